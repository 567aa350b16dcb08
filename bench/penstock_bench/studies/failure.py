"""Failures (Finch, figures 5.2 and 5.3; Drizzle, figure 7): throughput and latency while workers are lost."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from penstock.demo.chaos import quantile
from penstock_bench.meter.rows import Check, Claim, Results
from penstock_bench.meter.runner import Spread
from penstock_bench.meter.timeline import DEFINITION
from penstock_bench.report.chart import Bar, Bars, Figure, Line, Lines, Mark, figure
from penstock_bench.report.words import ms, number
from penstock_bench.studies.base import Desk, Study, Table, at_most, data_of, fields, machine, table
from penstock_bench.studies.kills import CALM_S, EVERY_S, Outcome, run_losses
from penstock_bench.studies.peers import Victim, lose

WORKERS = 4
SIZES = (1, 2, 3)
ROUNDS = 2
SHORT_KILLS = 6
RATE_EPS = 20_000.0
QUICK_RATE_EPS = 4_000.0
RESUMED_S_MAX, NORMAL_S_MAX = 2.0, 5.0
ASIDE_MS_MAX, ASIDE_FACTOR = 50.0, 2.0


class Failure(Study):
    """See the module."""

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
        sizes = desk.choose(SIZES * ROUNDS, (1,) * SHORT_KILLS, (1,))
        workers = desk.choose(WORKERS, options.parallelism, 2)
        rate_eps = QUICK_RATE_EPS if options.quick else RATE_EPS
        calm_s, every_s = desk.choose((CALM_S, EVERY_S), (4.0, 4.0), (2.0, 4.0))
        for shape in desk.choose(("stateless", "windowed"), ("windowed",), ("stateless",)):
            desk.tell(f"{shape}: kills of {', '.join(map(str, sizes))} of {workers} workers at {number(rate_eps)}/s")
            times = {"calm_s": calm_s, "every_s": every_s}
            row, outcome = run_losses(shape, rate_eps, sizes, workers, aside=options.short, **times)
            desk.add(row)
            desk.put_in("outcomes", shape, outcome)
        for victim in Victim if options.peer and not options.short else ():
            desk.tell(f"yahoo, Structured Streaming loses one {victim.value}")
            row, check = lose(victim, RATE_EPS)
            desk.add(row)
            desk.check(check)

    def findings(self, results: Results) -> Iterator[Claim | Check]:
        outcomes = _outcomes(results)
        several = _several(outcomes)
        if several:
            told = "; ".join(f"{shape}: {_by_size(outcome, 'tfr')}" for shape, outcome in several.items())
            large = {shape: [_median(outcome, size, "tfr") for size in SIZES] for shape, outcome in several.items()}
            known = [each for each in large.values() if None not in each]
            yield Claim(
                "Finch, figure 5.2: size of failure against throughput",
                "the larger the failure, the lower TFR; lower for more complex workloads (10 containers)",
                f"TFR by workers killed of {WORKERS}: {told}; {machine(results)}",
                all((each[-1] or 0.0) <= 1.1 * (each[0] or 0.0) for each in known) if known else None,
            )
            told = "; ".join(f"{shape}: {_by_size(outcome, 'recovered_s')}" for shape, outcome in several.items())
            yield Claim(
                "Finch, figure 5.3: size of failure against recovery time",
                "recovery time hardly grows with the failure; with state it is longer",
                f"seconds until results come as fast as before: {told}",
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
            slowest = max((loss.normal_s or 9e9 for loss in outcome.losses), default=0.0)
            name = f"{shape}: latency normal again, slowest of {len(outcome.losses)} kills"
            value, unit = slowest if slowest < 9e9 else -1.0, "s (-1: not before the next)"
            yield at_most(name, value, unit, NORMAL_S_MAX, digits=2, also=slowest < 9e9)

    def tables(self, results: Results) -> list[Table]:
        return [
            each
            for shape, outcome in _outcomes(results).items()
            for each in table(
                f"Kills and recoveries: {shape}",
                [(loss, outcome.workers) for loss in outcome.losses],
                ("at s", lambda pair: f"{pair[0].at_s:.1f}"),
                ("killed", lambda pair: f"{pair[0].size} of {pair[1]}"),
                *fields(number, 0, tfr="TFR", recovered_s="throughput back s", resumed_s="output again s"),
                *fields(number, 0, caught_up_s="caught up s", normal_s="latency normal s"),
                *fields(ms, 0, silent_ms="silent ms", peak_ms="peak ms"),
            )
        ]

    def figures(self, results: Results) -> list[Figure]:
        outcomes = _outcomes(results)
        panels = []
        for shape, outcome in _several(outcomes).items():
            panels.append(Bars(f"{shape}: TFR", "T_failure / T_normal", _bars(outcome, "tfr")))
            panels.append(Bars(f"{shape}: recovery", "seconds", _bars(outcome, "recovered_s")))
        caption = "Median of the kills of each size, whiskers from the least to the largest."
        over = [_over_time(shape, outcome) for shape, outcome in outcomes.items()]
        told = "Of the events due in each tenth of a second. Dashed: workers are killed; the number says how many."
        return [
            *figure("failure-sizes", "Size of a failure", caption, panels, columns=2),
            *figure("failure-latency", "Latency through failures", told, over, columns=1),
        ]


def _checks(outcome: Outcome) -> Iterator[Check]:
    """Single workers that were killed: what a reader of the output sees of it."""
    losses = [loss for loss in outcome.losses if loss.size == 1]
    resumed = sorted(loss.resumed_s for loss in losses if loss.resumed_s is not None)
    if resumed:
        p95 = quantile(resumed, 0.95)
        detail = {
            "resumed": "the first epoch after the recovery is committed",
            "caught_up": "every event that was due before the kill is counted in what the sink has",
            "kills": losses,
            "lost, duplicated or reordered": not outcome.exact,
        }
        also, name = len(resumed) == len(losses) and outcome.exact, "output resumes after a worker is killed, p95"
        yield at_most(name, p95, "s", RESUMED_S_MAX, detail, digits=2, also=also)
    normal = sorted(loss.normal_s for loss in losses if loss.normal_s is not None)
    if losses:
        p95, unfinished = quantile(normal, 0.95) if normal else 0.0, len(losses) - len(normal)
        detail = {"normal": DEFINITION, "calm_p99_ms": outcome.calm_p99_ms, "not before the next kill": unfinished}
        also, name = bool(normal) and not unfinished, "latency is normal again after a worker is killed, p95"
        yield at_most(name, p95, "s", NORMAL_S_MAX, detail, digits=2, also=also)
    if outcome.aside is not None:
        worst, usual = (max(each, default=0.0) for each in (outcome.aside.after_ms, outcome.aside.before_ms))
        name, most_ms = "longest gap in a branch that the killed worker has no part in", ASIDE_FACTOR * usual
        where = f": {ASIDE_MS_MAX:g}, or {ASIDE_FACTOR:g} times the longest before these kills"
        also, most_ms = bool(outcome.aside.after_ms), max(ASIDE_MS_MAX, most_ms)
        yield at_most(name, worst, "ms", most_ms, outcome.aside, digits=1, where=where, also=also)


def _over_time(shape: str, outcome: Outcome) -> Lines:
    def line(label: str, key: str, field: str) -> Line:
        known = [(each.at_s, took) for each in outcome.moments if (took := getattr(each, field)) is not None]
        return Line.of(label, key, [(at_s, max(took_ms, 0.05)) for at_s, took_ms in known], markers=False)

    marks = [Mark(loss.at_s, str(loss.size)) for loss in outcome.losses]
    lines = [line("largest", "out", "max_ms"), line("median", "record", "p50_ms")]
    return Lines(shape, "seconds", "latency, ms", lines, y_log=True, marks=marks)


def _of_size(outcome: Outcome, size: int, field: str) -> list[float]:
    found = (getattr(loss, field) for loss in outcome.losses if loss.size == size)
    return [each for each in found if each is not None]


def _median(outcome: Outcome, size: int, field: str) -> float | None:
    found = _of_size(outcome, size, field)
    return statistics.median(found) if found else None


def _by_size(outcome: Outcome, field: str) -> str:
    return ", ".join(
        f"{size}: {number(_median(outcome, size, field))}" for size in SIZES if _of_size(outcome, size, field)
    )


def _bars(outcome: Outcome, field: str) -> list[Bar]:
    bars = []
    for size, key in zip(SIZES, ("record", "batch", "out"), strict=True):
        values = _of_size(outcome, size, field)
        if (found := Spread.of(values)) is not None:
            label = f"{size} of {outcome.workers}"
            bars.append(Bar(label, key, found.median, found.low, found.high, len(values)))
    return bars


def _several(outcomes: dict[str, Outcome]) -> dict[str, Outcome]:
    """Those in which failures had several sizes."""
    return {shape: each for shape, each in outcomes.items() if len({loss.size for loss in each.losses}) > 1}


def _outcomes(results: Results) -> dict[str, Outcome]:
    return data_of(results, "outcomes", dict[str, Outcome])
