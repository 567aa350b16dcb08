"""Failures (Finch, figures 5.2 and 5.3; Drizzle, figure 7): throughput and latency while workers are lost."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from penstock.demo.chaos import quantile
from penstock_bench.meter.rows import Check, Claim, Results
from penstock_bench.meter.runner import Spread
from penstock_bench.meter.timeline import DEFINITION
from penstock_bench.report.chart import Bar, Bars, Figure, Mark, figure
from penstock_bench.report.words import ms, number
from penstock_bench.studies.base import Desk, Study
from penstock_bench.studies.findings import Findings, Table, at_most, fields, latency, listed, table
from penstock_bench.studies.kills import Outcome, run_losses
from penstock_bench.studies.peers import Victim, lose

WORKERS = 4
SIZES = {1: "record", 2: "batch", 3: "out"}
"""How many are killed at once, and the colour of that."""
ROUNDS = 2
SHORT_KILLS = 6
RATE_EPS, QUICK_RATE_EPS = 20_000.0, 4_000.0
RESUMED_S_MAX, NORMAL_S_MAX = 2.0, 5.0
ASIDE_MS_MAX, ASIDE_FACTOR = 50.0, 2.0


class Failure(Study):
    name = "failure"
    title = "Throughput, latency and recovery when workers are killed"
    after = "Finch, figures 5.2 and 5.3; Drizzle, figure 7"
    method = (
        "Four workers at 20,000 events/s; one, two and three of them are killed at once, twice each, 7 s apart: in a "
        "pipeline without state and in the Yahoo pipeline with its windows. Recovery lasts until "
        "results come as fast as before (90 % for a fifth of a second); TFR = T_failure / T_normal: results per second "
        "in that time over those while it was calm. "
        f"Latency is normal {DEFINITION}."
    )

    def run(self, desk: Desk) -> None:
        options = desk.options
        sizes = desk.choose(tuple(SIZES) * ROUNDS, (1,) * SHORT_KILLS, (1,))
        workers = desk.choose(WORKERS, options.parallelism, 2)
        rate_eps = QUICK_RATE_EPS if options.quick else RATE_EPS
        calm_s, every_s = desk.choose((6.0, 7.0), (4.0, 4.0), (2.0, 4.0))
        for shape in desk.choose(("stateless", "windowed"), ("windowed",), ("stateless",)):
            desk.tell(f"{shape}: kills of {', '.join(map(str, sizes))} of {workers} workers at {number(rate_eps)}/s")
            row, outcome = run_losses(shape, rate_eps, sizes, workers, calm_s, every_s, aside=options.short)
            desk.add(row)
            desk.put_in("outcomes", shape, outcome)
        for victim in Victim if options.peer and not options.short else ():
            desk.tell(f"yahoo, Structured Streaming loses one {victim.value}")
            row, check = lose(victim, RATE_EPS)
            desk.add(row)
            desk.check(check)

    def findings(self, results: Results) -> Findings:
        outcomes, several = _outcomes(results), _several(results)
        if several:
            tfr = {shape: _medians(outcome, "tfr") for shape, outcome in several.items()}
            known = [each for each in tfr.values() if len(each) == len(SIZES)]
            yield Claim(
                "Finch, figure 5.2: size of failure against throughput",
                "the larger the failure, the lower TFR; lower for more complex workloads (10 containers)",
                f"TFR by workers killed of {WORKERS}: {_by_shape(tfr)}; {results.machine}",
                all(each[max(SIZES)] <= 1.1 * each[min(SIZES)] for each in known) if known else None,
            )
            recovered = {shape: _medians(outcome, "recovered_s") for shape, outcome in several.items()}
            yield Claim(
                "Finch, figure 5.3: size of failure against recovery time",
                "recovery time hardly grows with the failure; with state it is longer",
                f"seconds until results come as fast as before: {_by_shape(recovered)}",
                None,
            )
        windowed = outcomes.get("windowed")
        if windowed is not None and windowed.losses:
            peaks = [loss.peak_ms for loss in windowed.losses]
            normal = [loss.normal_s for loss in windowed.losses if loss.normal_s is not None]
            yield Claim(
                "Drizzle, figure 7: latency through a failure",
                "Drizzle: from 350 ms to about 1 s, normal after one window of 10 s; Spark 3x its normal latency; "
                "Flink 18 s, normal after 40 s (128 machines, one killed)",
                f"calm p99 {ms(windowed.calm_p99_ms)} ms; peak {ms(statistics.median(peaks))} ms (largest "
                f"{ms(max(peaks))}); normal again after {number(statistics.median(normal) if normal else None)} s, "
                f"{len(normal)} of {len(peaks)} kills",
                len(normal) == len(peaks) and max(peaks) <= 18_000,
            )
            yield from _checks(windowed)
        for shape, outcome in several.items():
            times = [loss.normal_s for loss in outcome.losses]
            ended = None not in times
            slowest = max(filter(None, times), default=0.0) if ended else -1.0
            name = f"{shape}: latency normal again, slowest of {len(times)} kills"
            yield at_most(name, slowest, "s (-1: not before the next)", NORMAL_S_MAX, digits=2, also=ended)

    def tables(self, results: Results) -> list[Table]:
        found: list[Table] = []
        for shape, outcome in _outcomes(results).items():
            found += table(
                f"Kills and recoveries: {shape}",
                outcome.losses,
                *fields(lambda at_s: f"{at_s:.1f}", at_s="at s"),
                *fields(f"{{}} of {outcome.workers}".format, size="killed"),
                *fields(number, tfr="TFR", recovered_s="throughput back s", resumed_s="output again s"),
                *fields(number, caught_up_s="caught up s", normal_s="latency normal s"),
                *fields(ms, silent_ms="silent ms", peak_ms="peak ms"),
            )
        return found

    def figures(self, results: Results) -> list[Figure]:
        panels: list[Bars] = []
        for shape, outcome in _several(results).items():
            panels.append(Bars(f"{shape}: TFR", "T_failure / T_normal", _bars(outcome, "tfr")))
            panels.append(Bars(f"{shape}: recovery", "seconds", _bars(outcome, "recovered_s")))
        over = []
        for shape, outcome in _outcomes(results).items():
            marks = [Mark(loss.at_s, str(loss.size)) for loss in outcome.losses]
            over.append(latency(shape, outcome.moments, ("largest", "max_ms"), marks))
        caption = "Median of the kills of each size, whiskers from the least to the largest."
        told = "Of the events due in each tenth of a second. Dashed: workers are killed; the number says how many."
        return [
            *figure("failure-sizes", "Size of a failure", caption, panels, columns=2),
            *figure("failure-latency", "Latency through failures", told, over, columns=1),
        ]


def _checks(outcome: Outcome) -> Iterator[Check]:
    """Single workers that were killed: what a reader of the output sees of it."""
    losses = [loss for loss in outcome.losses if loss.size == 1]
    resumed, normal = (_known(outcome, field, 1) for field in ("resumed_s", "normal_s"))
    if resumed:
        detail = {
            "resumed": "the first epoch after the recovery is committed",
            "caught_up": "every event that was due before the kill is counted in what the sink has",
            "kills": losses,
            "lost, duplicated or reordered": not outcome.exact,
        }
        also, name = len(resumed) == len(losses) and outcome.exact, "output resumes after a worker is killed, p95"
        yield at_most(name, quantile(resumed, 0.95), "s", RESUMED_S_MAX, detail, digits=2, also=also)
    if losses:
        p95, unfinished = quantile(normal, 0.95) if normal else 0.0, len(losses) - len(normal)
        told = {"normal": DEFINITION, "calm_p99_ms": outcome.calm_p99_ms, "not before the next kill": unfinished}
        also, name = bool(normal) and not unfinished, "latency is normal again after a worker is killed, p95"
        yield at_most(name, p95, "s", NORMAL_S_MAX, told, digits=2, also=also)
    if outcome.aside is not None:
        worst, usual = (max(each, default=0.0) for each in (outcome.aside.after_ms, outcome.aside.before_ms))
        most_ms, also = max(ASIDE_MS_MAX, ASIDE_FACTOR * usual), bool(outcome.aside.after_ms)
        name = "longest gap in a branch that the killed worker has no part in"
        where = f": {ASIDE_MS_MAX:g}, or {ASIDE_FACTOR:g} times the longest before these kills"
        yield at_most(name, worst, "ms", most_ms, outcome.aside, digits=1, where=where, also=also)


def _known(outcome: Outcome, field: str, size: int) -> list[float]:
    """What is known of kills of so many workers, ascending."""
    found = (getattr(loss, field) for loss in outcome.losses if loss.size == size)
    return sorted(each for each in found if each is not None)


def _medians(outcome: Outcome, field: str) -> dict[int, float]:
    return {size: statistics.median(known) for size in SIZES if (known := _known(outcome, field, size))}


def _by_shape(medians: dict[str, dict[int, float]]) -> str:
    return "; ".join(
        f"{shape}: {listed((size, number(value)) for size, value in own.items())}" for shape, own in medians.items()
    )


def _bars(outcome: Outcome, field: str) -> list[Bar]:
    bars = []
    for size, key in SIZES.items():
        values = _known(outcome, field, size)
        if (found := Spread.of(values)) is not None:
            bars.append(Bar(f"{size} of {outcome.workers}", key, found.median, found.low, found.high, len(values)))
    return bars


def _outcomes(results: Results) -> dict[str, Outcome]:
    return results.data("outcomes", dict[str, Outcome])


def _several(results: Results) -> dict[str, Outcome]:
    """Those in which failures had several sizes."""
    found = _outcomes(results).items()
    return {shape: each for shape, each in found if len({loss.size for loss in each.losses}) > 1}
