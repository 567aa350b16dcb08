"""Failures (Finch, figures 5.2 and 5.3; Drizzle, figure 7): throughput and latency while workers are lost."""

from __future__ import annotations

import statistics

import msgspec

from penstock_bench.meter.rows import Check, Claim, Results
from penstock_bench.meter.runner import Spread
from penstock_bench.meter.timeline import DEFINITION
from penstock_bench.report.chart import Bar, Bars, Figure, Line, Lines, Mark
from penstock_bench.report.words import ms, number
from penstock_bench.studies.base import Desk, Study, Table, machine
from penstock_bench.studies.kills import SHAPES, Outcome, run_losses
from penstock_bench.studies.short.peer_failure import Victim
from penstock_bench.studies.short.peer_failure import measure_peer as measure_peer_failure

WORKERS = 4
SIZES = (1, 2, 3)
ROUNDS = 2
RATE_EPS = 20_000.0
QUICK_RATE_EPS = 4_000.0
RECOVERED_S_MAX = 5.0


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
        outcomes: dict[str, Outcome] = {}
        quick = desk.options.quick
        sizes = SIZES[:1] if quick else SIZES * ROUNDS
        for shape in list(SHAPES)[: 1 if quick else None]:
            rate_eps = QUICK_RATE_EPS if quick else RATE_EPS
            desk.tell(f"{shape}: kills of {', '.join(map(str, sizes))} of {WORKERS} workers at {number(rate_eps)}/s")
            row, outcomes[shape] = run_losses(shape, rate_eps, sizes, 2 if quick else WORKERS, quick=quick)
            desk.add(row)
            desk.put("outcomes", outcomes)
        if desk.options.peer:
            for victim in Victim:
                desk.tell(f"yahoo, Structured Streaming loses one {victim.value}")
                row, check = measure_peer_failure(victim, RATE_EPS)
                desk.add(row)
                desk.check(check)

    def judge(self, results: Results) -> tuple[list[Claim], list[Check]]:
        outcomes = _outcomes(results)
        claims, checks = [], []
        if outcomes:
            told = "; ".join(f"{shape}: {_by_size(outcome, 'tfr')}" for shape, outcome in outcomes.items())
            large = {shape: [_median(outcome, size, "tfr") for size in SIZES] for shape, outcome in outcomes.items()}
            known = [each for each in large.values() if None not in each]
            claims.append(
                Claim(
                    source="Finch, figure 5.2: size of failure against throughput",
                    claimed="the larger the failure, the lower TFR; lower for more complex workloads (10 containers)",
                    measured=f"TFR by workers killed of {WORKERS}: {told}; {machine(results)}",
                    holds=all((each[-1] or 0.0) <= 1.1 * (each[0] or 0.0) for each in known) if known else None,
                )
            )
            told = "; ".join(f"{shape}: {_by_size(outcome, 'recovered_s')}" for shape, outcome in outcomes.items())
            claims.append(
                Claim(
                    source="Finch, figure 5.3: size of failure against recovery time",
                    claimed="recovery time hardly grows with the failure; with state it is longer",
                    measured=f"seconds until results come as fast as before: {told}",
                    holds=None,
                )
            )
        windowed = outcomes.get("windowed")
        if windowed is not None and windowed.losses:
            peaks = [loss.peak_ms for loss in windowed.losses]
            normal = [loss.normal_s for loss in windowed.losses if loss.normal_s is not None]
            claims.append(
                Claim(
                    source="Drizzle, figure 7: latency through a failure",
                    claimed="Drizzle: from 350 ms to about 1 s, normal after one window of 10 s; Spark 3x its normal "
                    "latency; Flink 18 s, normal after 40 s (128 machines, one killed)",
                    measured=f"calm p99 {ms(windowed.calm_p99_ms)} ms; peak {ms(statistics.median(peaks))} ms "
                    f"(largest {ms(max(peaks))}); normal again after "
                    f"{number(statistics.median(normal) if normal else None)} s, {len(normal)} of {len(peaks)} kills",
                    holds=len(normal) == len(peaks) and max(peaks) <= 18_000,
                )
            )
        for shape, outcome in outcomes.items():
            slowest = max((loss.normal_s or 9e9 for loss in outcome.losses), default=0.0)
            checks.append(
                Check(
                    name=f"{shape}: latency normal again, slowest of {len(outcome.losses)} kills",
                    value=round(slowest, 2) if slowest < 9e9 else -1.0,
                    unit="s (-1: not before the next)",
                    target=f"at most {RECOVERED_S_MAX:g}",
                    met=slowest <= RECOVERED_S_MAX,
                )
            )
        return claims, checks

    def tables(self, results: Results) -> list[Table]:
        heads = [
            "at s",
            "killed",
            "TFR",
            "throughput back s",
            "caught up s",
            "latency normal s",
            "silent ms",
            "peak ms",
        ]
        return [
            (
                f"Kills and recoveries: {shape}",
                heads,
                [
                    [
                        f"{loss.at_s:.1f}",
                        f"{loss.size} of {outcome.workers}",
                        *(number(each) for each in (loss.tfr, loss.recovered_s, loss.caught_up_s, loss.normal_s)),
                        ms(loss.silent_ms),
                        ms(loss.peak_ms),
                    ]
                    for loss in outcome.losses
                ],
            )
            for shape, outcome in _outcomes(results).items()
        ]

    def figures(self, results: Results) -> list[Figure]:
        outcomes = _outcomes(results)
        if not outcomes:
            return []
        panels = []
        for shape, outcome in outcomes.items():
            keys = dict(zip(SIZES, ("record", "batch", "out"), strict=True))
            bars = [_bar(outcome, size, keys[size], "tfr") for size in SIZES]
            panels.append(Bars(f"{shape}: TFR", "T_failure / T_normal", [bar for bar in bars if bar is not None]))
            bars = [_bar(outcome, size, keys[size], "recovered_s") for size in SIZES]
            panels.append(Bars(f"{shape}: recovery", "seconds", [bar for bar in bars if bar is not None]))
        caption = "Median of the kills of each size, whiskers from the least to the largest."
        found = [Figure("failure-sizes", "Size of a failure", caption, panels, columns=2)]
        over = [_over_time(shape, outcome) for shape, outcome in outcomes.items() if outcome.moments]
        if over:
            told = "Of the events due in each tenth of a second. Dashed: workers are killed; the number says how many."
            found.append(Figure("failure-latency", "Latency through failures", told, over, columns=1))
        return found


def _over_time(shape: str, outcome: Outcome) -> Lines:
    def line(label: str, key: str, field: str) -> Line:
        known = [(each.at_s, getattr(each, field)) for each in outcome.moments if getattr(each, field) is not None]
        return Line(label, key, [at for at, _ in known], [max(took_ms, 0.05) for _, took_ms in known], markers=False)

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


def _bar(outcome: Outcome, size: int, key: str, field: str) -> Bar | None:
    values = _of_size(outcome, size, field)
    found = Spread.of(values)
    if found is None:
        return None
    return Bar(f"{size} of {outcome.workers}", key, found.median, found.low, found.high, len(values))


def _outcomes(results: Results) -> dict[str, Outcome]:
    assert results.study is not None
    return msgspec.convert(results.study.data.get("outcomes", {}), dict[str, Outcome])
