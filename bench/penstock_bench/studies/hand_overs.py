"""Changes of form under load: how long nothing comes out, to batch form and back; `switch-point` and `short` ask."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.control.changes import ChangeReport
from penstock.demo.chaos import quantile
from penstock_bench.meter.job import Run, read_rows, row_of, running
from penstock_bench.meter.rows import Check, Results
from penstock_bench.report.chart import Figure, Line, Lines, figure
from penstock_bench.report.words import ms
from penstock_bench.studies.base import BATCH, RECORD, Desk
from penstock_bench.studies.findings import Table, at_most, table
from penstock_bench.workloads import WORKLOADS, replay

SWITCHES, QUICK_SWITCHES = 100, 4
RATE_EPS, EVERY_S, WARM_UP_S, WAIT_S = 20_000, 0.12, 2.0, 60.0
PAUSE_MS_MAX, WHOLE_MS_MAX = 20.0, 300.0
FRONT = ("events", "parse_json", "filter", "select", "lookup", "count")
"""The operations of the Yahoo pipeline before the shuffle."""
NAME = "hand_overs"
DIRECTIONS = {BATCH: "to batch form", RECORD: "back to record form"}


def change(run: Run, order: Callable[[], object], rest_s: float) -> None:
    """Order a change, wait until it is done, and a while longer."""
    done = len(run.job.adaptation().switches)
    order()
    run.until(lambda: len(run.job.adaptation().switches) > done, WAIT_S)
    time.sleep(rest_s)


def measure(desk: Desk) -> None:
    """Change the form of the Yahoo pipeline's front again and again under load; every result is compared."""
    workload, parallelism = WORKLOADS["yahoo-updates"], desk.options.parallelism
    wanted = desk.choose(SWITCHES, SWITCHES, QUICK_SWITCHES)
    desk.tell(f"{wanted} changes of form at {RATE_EPS:,}/s")
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        out = Path(directory) / "out"
        with running(workload.pipeline(RATE_EPS, ps.files(out)), parallelism=parallelism, forms=RECORD) as run:
            run.warm_up(WARM_UP_S)
            for i in range(wanted):
                change(run, partial(run.job.switch, *FRONT, to=RECORD if i % 2 else BATCH), EVERY_S)
            report = run.end(drain=True)
        exact = workload.expected(replay(workload.source(RATE_EPS), report.start_us, report.offsets["events"]))
        found = workload.compare(exact, read_rows(out), parallelism)
    row = row_of(workload.name, RATE_EPS, "switching", run, report, found)
    carried = sum(each.carried_records for each in report.switches)
    row.note = f"{len(report.switches)} switches; carried over {carried:,} records"
    desk.add(row)
    desk.put(NAME, report.switches)


def _known(results: Results) -> dict[str, list[ChangeReport]]:
    """Changes in both directions together, and in each; the first one waits for Spark to bring the slots up."""
    known = results.data(NAME, list[ChangeReport])[1:]
    found = {"": known} | {words: [each for each in known if each.to == to] for to, words in DIRECTIONS.items()}
    return {words: own for words, own in found.items() if own}


def _at(switches: Sequence[ChangeReport], field: str, share: float) -> float:
    return quantile(sorted(getattr(each, field) for each in switches), share)


def findings(results: Results) -> Iterator[Check]:
    """Hold pauses and whole changes against their targets. Pure."""
    for words, own in _known(results).items():
        p99_ms = _at(own, "pause_ms", 0.99)
        if not words:
            yield at_most("hand-over: pause, p99", p99_ms, "ms", PAUSE_MS_MAX, {"switches": own})
            whole_ms = _at(own, "total_ms", 0.99)
            yield at_most("hand-over: whole switch, warm, p99", whole_ms, "ms", WHOLE_MS_MAX, digits=1)
            continue
        p50_ms, longest_ms = (round(_at(own, "pause_ms", share), 3) for share in (0.5, 1.0))
        detail = {"changes": len(own), "p50_ms": p50_ms, "longest_ms": longest_ms}
        yield at_most(f"hand-over {words}: pause, p99", p99_ms, "ms", PAUSE_MS_MAX, detail)


def tables(results: Results) -> list[Table]:
    """Pauses and whole changes in both directions. Pure."""

    def told(field: str, share: float) -> Callable[[Any], str]:
        return lambda pair: ms(_at(pair[1], field, share))

    return table(
        f"Changes of form at {RATE_EPS:,} events/s",
        [pair for pair in _known(results).items() if pair[0]],
        ("direction", lambda pair: pair[0]),
        ("changes", lambda pair: str(len(pair[1]))),
        ("pause p50 ms", told("pause_ms", 0.5)),
        ("pause p99 ms", told("pause_ms", 0.99)),
        ("pause max ms", told("pause_ms", 1.0)),
        ("whole p50 ms", told("total_ms", 0.5)),
        ("whole p99 ms", told("total_ms", 0.99)),
        ("carried over, median", lambda pair: f"{_at(pair[1], 'carried_records', 0.5):,.0f}"),
    )


def figures(results: Results) -> list[Figure]:
    """How long changes of form are felt. Pure."""
    known = _known(results)
    lines = [pauses(words, to, [each.pause_ms for each in known.get(words, [])]) for to, words in DIRECTIONS.items()]
    panel = Lines("Pauses", "ms", "% of changes up to", lines, x_log=True)
    return figure("hand-overs", "How long a change of form is felt", f"At {RATE_EPS:,} events/s.", [panel])


def pauses(label: str, key: str, pauses_ms: Sequence[float]) -> Line:
    """Draw the shares of pauses that are no longer than so much."""
    points = [(took_ms, 100.0 * at / len(pauses_ms)) for at, took_ms in enumerate(sorted(pauses_ms), 1)]
    return Line.of(label, key, points, markers=False)
