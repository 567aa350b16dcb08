"""A job whose workers are killed, several at once, and what a reader of its output sees; for the study of failures."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

import penstock as ps
from penstock.connectors.generator import Generator
from penstock.control.recovery import downstream, hosted
from penstock.demo.chaos import Campaign, Kill, Killer
from penstock.pipeline.plan import Plan
from penstock.runtime.clock import now_us
from penstock.types import Record
from penstock_bench.meter.job import read_rows, row_of, running
from penstock_bench.meter.rows import ResultRow
from penstock_bench.meter.stamped import Witness
from penstock_bench.meter.timeline import NEVER_US, Shown, Timeline, Times
from penstock_bench.workloads import WORKLOADS, Comparison, Workload, replay, yahoo
from penstock_bench.workloads.base import Row

WARM_UP_S = 3.0
MOMENT_US = 100_000
BACK_US, BACK_STEP_US, BACK_SHARE = 200_000, 10_000, 0.9
"""Throughput is back when in so long a time this share of the usual results came."""
SEED = 1
ASIDE, ASIDE_EPS, ASIDE_US = "aside", 2_000.0, 1_500_000
"""A branch that one worker has: its rate, and how long before and after a kill it is looked at."""


class Loss(msgspec.Struct):
    """Workers that were killed at once, and what came of it."""

    at_s: float
    size: int
    tfr: float | None
    """T_failure / T_normal: results per second until it is back, over those while it was calm; None if never back."""
    recovered_s: float | None
    """Until as many results per second came as before."""
    caught_up_s: float | None
    normal_s: float | None
    silent_ms: float
    peak_ms: float
    resumed_s: float | None = None
    """Until the first epoch after the recovery was committed."""


class Moment(msgspec.Struct):
    """Latency of the events due in a tenth of a second; None where none was due, or none was seen."""

    at_s: float
    p50_ms: float | None
    max_ms: float | None


class Gaps(msgspec.Struct):
    """Longest silences of a branch around kills that do not concern it."""

    after_ms: list[float]
    before_ms: list[float]


class Outcome(msgspec.Struct):
    """A run."""

    workers: int
    calm_p99_ms: float
    calm_eps: float
    """T_normal: events per second whose result came out."""
    losses: list[Loss]
    moments: list[Moment]
    exact: bool = True
    aside: Gaps | None = None


@dataclass(frozen=True)
class Shape:
    """A pipeline to lose workers of, and how its output tells when each event was seen."""

    workload: Workload[Any]
    build: Callable[[ps.Stream], ps.Stream]
    """What the witness sees: columns key, window_start and count."""
    key: str | None
    timeline: Callable[[Generator, int, list[Shown]], Timeline]


@ps.op(schema="window_start bigint not null, count bigint not null")
def _numbered(record: Any) -> tuple[int, int]:
    return record.number, 1


def _due_us(source: Generator, start_us: int) -> Times:
    assert source.schedule is not None
    assert source.total is not None
    return start_us + source.schedule.times_us(0, source.total)


def _each_event(source: Generator, start_us: int, shown: list[Shown]) -> Timeline:
    """Every event has a row of its own; one that came again after a failure counts when it came first."""
    due_us = _due_us(source, start_us)
    seen_us = np.full(len(due_us), NEVER_US, dtype=np.int64)
    if shown:
        np.minimum.at(seen_us, [each.group[1] for each in shown], [each.at_us for each in shown])
    return Timeline(due_us, seen_us)


def views_due(source: Generator, start_us: int, *, keyed: bool) -> dict[tuple[str, int], Times]:
    """Scheduled times of the views of each campaign (or, without key, of all) and window, ascending."""
    return yahoo.due(replay(source, start_us), _due_us(source, start_us), keyed=keyed)


_YAHOO = WORKLOADS["yahoo-updates"]
count_as_a_whole = partial(yahoo.build, emit="update", keyed=False)


def _whole(records: Iterable[Record]) -> dict[tuple[str, int], int]:
    counts = Counter[tuple[str, int]]()
    for (_, start_us), count in _YAHOO.expected(records).items():
        counts["", start_us] += count
    return counts


def _compare_whole(exact: Any, rows: Iterable[Row], partitions: int) -> Comparison:
    return _YAHOO.compare(exact, ({"campaign_id": "", **row} for row in rows), partitions)


_AS_A_WHOLE = replace(_YAHOO, build=count_as_a_whole, expected=_whole, compare=_compare_whole)


def _views(*, keyed: bool) -> Callable[[Generator, int, list[Shown]], Timeline]:
    return lambda source, start_us, shown: Timeline.of(views_due(source, start_us, keyed=keyed), shown)


SHAPES = {
    "stateless": Shape(WORKLOADS["identity"], lambda records: records.map(_numbered), None, _each_event),
    "windowed": Shape(_YAHOO, lambda counts: counts, "campaign_id", _views(keyed=True)),
    ASIDE: Shape(_AS_A_WHOLE, lambda counts: counts, None, _views(keyed=False)),
}


def run_losses(
    name: str, rate_eps: float, sizes: Sequence[int], workers: int, calm_s: float, every_s: float, aside: bool = False
) -> tuple[ResultRow, Outcome]:
    """Kill so many workers at once, one size after the other, while events come at a rate.

    With ``aside`` a second branch lives on worker 0 alone: a kill of another worker does not concern it.
    """
    due_s = [WARM_UP_S + calm_s + i * every_s for i in range(len(sizes))]
    seconds = due_s[-1] + every_s
    campaign = Campaign(SEED, every_us=1)
    killer, done = Killer(campaign), list[tuple[int, int]]()
    sources = {name: SHAPES[name].workload.source(rate_eps, seconds=seconds)}
    if aside:
        sources[ASIDE] = _YAHOO.source(ASIDE_EPS, seconds=seconds, partitions=1, seed=1)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as text:
        directory, pipelines, seen = Path(text), [], dict[str, Witness]()
        for each, source in sources.items():
            stream = SHAPES[each].workload.build(ps.stream(each, source))
            seen[each] = Witness(directory / f"seen-{each}", SHAPES[each].key)
            pipelines.append(SHAPES[each].build(stream).to(seen[each], name=f"{each}_seen"))
            pipelines.append(stream.to(ps.files(directory / each), name=f"{each}_out"))
        with running(*pipelines, parallelism=workers) as run:

            def strike(job: ps.Job) -> None:
                if len(done) < len(sizes) and run.at_s >= due_s[len(done)]:
                    done.append((now_us(), killer.strike(job, sizes[len(done)])))
                campaign.observe(job.status())

            report = run.watch(strike)
        assert report is not None
        start_us, found, timelines = report.start_us, Comparison(), dict[str, Timeline]()
        for each, source in sources.items():
            workload, partitions = SHAPES[each].workload, 1 if each == ASIDE else workers
            timelines[each] = SHAPES[each].timeline(source, start_us, seen[each].shown())
            exact = workload.expected(replay(source, start_us))
            found += workload.compare(exact, read_rows(directory / each), partitions)
    latency_us = timelines[name].between(start_us + round(WARM_UP_S * 1e6), NEVER_US).latency_us
    row = row_of(name, rate_eps, "adaptive", run, report, found, latency_us=latency_us)
    row.events = sources[name].total or 0
    row.note = f"{sum(count for _, count in done)} workers killed in {len(done)} blows; until a reader sees the result"
    outcome = judge(timelines[name], done, start_us, start_us + round(seconds * 1e6), workers)
    kills = iter(campaign.kills)
    for loss in outcome.losses:
        resumed = [next(kills).resumed_s for _ in range(loss.size)]
        loss.resumed_s = None if None in resumed else max(filter(None, resumed), default=None)
    outcome.exact = not row.faults
    outcome.aside = gaps(timelines[ASIDE], run.job.plan, campaign.kills) if aside else None
    return row, outcome


def gaps(timeline: Timeline, plan: Plan, kills: Sequence[Kill]) -> Gaps:
    """Longest silences of the other branch after kills that do not concern it, and before them."""
    branch = downstream(plan, {(unit.id, 0) for unit in plan.units if unit.name == ASIDE})
    spared = [kill.at_us for kill in kills if not branch & downstream(plan, hosted(plan, kill.worker))]
    return Gaps(
        [timeline.silent_us(at_us, at_us + ASIDE_US) / 1000 for at_us in spared],
        [timeline.silent_us(at_us - ASIDE_US, at_us) / 1000 for at_us in spared],
    )


def judge(timeline: Timeline, done: Sequence[tuple[int, int]], start_us: int, end_us: int, workers: int) -> Outcome:
    """Find out what each blow, at a moment and of a size, did to the output. Pure."""
    first_us = start_us + round(WARM_UP_S * 1e6)
    calm = timeline.calm(first_us, done[0][0] if done else end_us)
    calm_s = max(1, int(calm.due_us[-1]) - first_us) / 1e6 if len(calm.due_us) else 1.0
    calm_eps = len(calm.due_us) / calm_s
    losses = []
    for (at_us, size), next_us in zip(done, [*(at for at, _ in done[1:]), end_us], strict=True):
        found = timeline.recovery(at_us, next_us, calm.p99_us)
        tfr, recovered_s = _throughput(timeline, at_us, next_us, calm_eps)
        seen = found.caught_up_s, found.normal_s, found.silent_ms, found.peak_ms
        losses.append(Loss(round((at_us - start_us) / 1e6, 3), size, tfr, recovered_s, *seen))
    calm_ms = round(calm.p99_us / 1000, 3) if np.isfinite(calm.p99_us) else 0.0
    return Outcome(workers, calm_ms, round(calm_eps, 1), losses, _moments(timeline, start_us, end_us))


def _throughput(timeline: Timeline, at_us: int, end_us: int, calm_eps: float) -> tuple[float | None, float | None]:
    """TFR, and the time until throughput is back: results come as fast as before for a fifth of a second."""
    seen_us = np.sort(timeline.seen_us[(timeline.seen_us >= at_us) & (timeline.seen_us < end_us)])
    firsts_us = np.arange(at_us, end_us - BACK_US + 1, BACK_STEP_US)

    def is_usual(span_us: int) -> npt.NDArray[np.bool_]:
        came = np.searchsorted(seen_us, firsts_us + span_us) - np.searchsorted(seen_us, firsts_us)
        return came >= BACK_SHARE * calm_eps * span_us / 1e6

    # Not before results come: a time that begins in the silence may have enough of them at its end.
    back = np.flatnonzero(is_usual(BACK_US) & is_usual(BACK_STEP_US))
    if not len(back) or not calm_eps:
        return None, None
    took_s = float(firsts_us[back[0]] - at_us) / 1e6
    if not took_s:
        return 1.0, 0.0
    before = int(np.searchsorted(seen_us, firsts_us[back[0]]))
    return round(before / took_s / calm_eps, 3), took_s


def _moments(timeline: Timeline, start_us: int, end_us: int) -> list[Moment]:
    found = []
    for at_us in range(start_us, end_us, MOMENT_US):
        due = timeline.between(at_us, at_us + MOMENT_US)
        waits_us = (due.seen_us - due.due_us)[due.seen_us < NEVER_US]
        figures = (np.median(waits_us), waits_us.max()) if len(waits_us) else ()
        known = [round(float(each) / 1000, 3) for each in figures] or (None, None)
        found.append(Moment(round((at_us - start_us) / 1e6, 1), *known))
    return found
