"""The short set, `make bench`: a part of the studies in one go, what they do not ask, and ratios of what was found.

Ratios, because machines differ from day to day, and two rows of one run much less.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

from penstock_bench.engines.spark_session import SETTINGS
from penstock_bench.meter.evaluate import SUSTAINED
from penstock_bench.meter.job import TRIAL_S
from penstock_bench.meter.rows import Check, Results
from penstock_bench.report.chart import Figure
from penstock_bench.report.general import figures as general_figures
from penstock_bench.studies import hand_overs
from penstock_bench.studies.base import ADAPTIVE, BATCH, FORMS, RECORD, WARM_UP_SHORT_S, Desk, Study
from penstock_bench.studies.basics import check_cost, check_idle, check_overhead, check_slow_consumer, check_start
from penstock_bench.studies.burst import BurstStudy, burst_figures
from penstock_bench.studies.failure import Failure
from penstock_bench.studies.findings import Findings, Table, at_least, at_most
from penstock_bench.studies.generator_speed import check_generator
from penstock_bench.studies.groups import GroupsStudy
from penstock_bench.studies.peers import outside
from penstock_bench.studies.rates import Rates
from penstock_bench.studies.throughput import Throughput

PARTS: tuple[Study, ...] = (Failure(), Rates(), Throughput(), BurstStudy(), GroupsStudy())
BATCH_EPS_MIN = 1_500_000.0


class Short(Study):
    """Start-up, idle cost, bounded memory and overhead; then a part of the studies of failures, rates, throughput,
    bursts and groups, Structured Streaming beside them; a hundred hand-overs; what a durable checkpoint costs.
    """

    name = "short"
    title = "The short set"
    after = "a part of the studies"
    file = "latest"
    settings: ClassVar = {
        "warm_up_s": WARM_UP_SHORT_S,
        "epoch": "1s",
        "search": f"trials of {TRIAL_S:g} s; sustained: {SUSTAINED}, counted at the sink",
        "carried": "counted at the sink, ours and Structured Streaming's alike",
        "spark": SETTINGS,
    }

    def run(self, desk: Desk) -> None:
        desk.options = replace(desk.options, short=True, peer=True)
        desk.tell("generator, start-up, overhead")
        desk.check(*check_generator(), check_start(), check_overhead())
        desk.tell("idle, and behind a slow consumer")
        desk.check(check_idle(desk.options.parallelism))
        desk.check(check_slow_consumer(desk.options.parallelism))
        for part in PARTS:
            part.run(desk)
        hand_overs.measure(desk)
        desk.tell("the cost of a checkpoint")
        desk.check(check_cost(desk))

    def findings(self, results: Results) -> Findings:
        for part in PARTS:
            yield from part.findings(results)
        yield from hand_overs.findings(results)
        yield from ratios(results)

    def tables(self, results: Results) -> list[Table]:
        return [*Failure().tables(results), *hand_overs.tables(results)]

    def figures(self, results: Results) -> list[Figure]:
        return [*general_figures(results, self.file), *burst_figures(results, f"{self.file}-burst")]


def ratios(results: Results) -> Iterator[Check]:
    """Compare forms with each other, and with the peer, as far as the run has measured them."""

    def best(field: str, workload: str, form: str | None = None, engine: str = "penstock") -> float | None:
        rows = results.rows_of(workload, form, None, engine, having=field)
        return max((getattr(row, field) for row in rows), default=None)

    def found(field: str, workload: str, *description: Any) -> float | None:
        row = results.pick(workload, *description)
        return None if row is None else getattr(row, field)

    sustained = best("sustained_eps", "yahoo", BATCH)
    if sustained is not None:
        yield at_least("yahoo: sustained in batch form", sustained, "events/s", BATCH_EPS_MIN)
    ours, theirs = best("capacity_eps", "yahoo", BATCH), best("capacity_eps", "yahoo", engine="spark")
    yield from _ratio("yahoo: carried in batch form against Structured Streaming's best", ours, theirs, 4.0)
    for name in ("wordcount", "grep"):
        ours, theirs = best("capacity_eps", name), best("capacity_eps", name, engine="spark")
        yield from _ratio(f"{name}: carried in the better form against Structured Streaming", ours, theirs, 1.0)
    batch, record = (best("capacity_eps", "scoring", form) for form in (BATCH, RECORD))
    yield from _ratio("scoring: carried in batch form against record form", batch, record, 10.0)
    for rate in (4_000.0, 20_000.0):
        record, adaptive, batch = (found("p99_ms", "yahoo", form, rate) for form in FORMS)
        at = f"yahoo at {rate:,.0f}/s: p99 in"
        yield from _ratio(f"{at} adaptive form against record form", adaptive, record, most=1.1)
        yield from _ratio(f"{at} batch form against adaptive form", batch, adaptive, 5.0)
    theirs = found("p50_ms", outside("yahoo"), BATCH, None, "spark")
    ours = found("p50_ms", outside("yahoo"), ADAPTIVE)
    yield from _ratio("yahoo at 4,000/s: p50 of Structured Streaming against adaptive form", theirs, ours, 5.0)


def _ratio(
    name: str, value: float | None, base: float | None, least: float = 0.0, most: float | None = None
) -> Iterator[Check]:
    if value and base:
        share = value / base
        yield at_least(name, share, "times", least) if most is None else at_most(name, share, "times", most)
