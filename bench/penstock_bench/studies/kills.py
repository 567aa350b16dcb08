"""A job whose workers are killed, several at once, and what a reader of its output sees; for the study of failures."""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import psutil

import penstock as ps
from penstock.connectors.generator import Generator
from penstock.runtime.clock import now_us
from penstock.runtime.report import Latency
from penstock_bench.meter.measure import POLL_S, latency_row, read_rows, wait_for_start
from penstock_bench.meter.processes import ProcessMeter
from penstock_bench.meter.rows import ResultRow, cdf_of
from penstock_bench.meter.timeline import NEVER_US, Shown, Timeline
from penstock_bench.meter.views import views_due
from penstock_bench.meter.witness import Witness
from penstock_bench.workloads import WORKLOADS, Comparison, Workload, replay

WARM_UP_S = 3.0
CALM_S, QUICK_CALM_S = 6.0, 2.0
EVERY_S, QUICK_EVERY_S = 7.0, 4.0
MOMENT_US = 100_000
BACK_US, BACK_STEP_US, BACK_SHARE = 200_000, 10_000, 0.9
"""Throughput is back when in so long a time this share of the usual results came."""
SEED = 1


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


class Moment(msgspec.Struct):
    """Latency of the events due in a tenth of a second; None where none was due, or none was seen."""

    at_s: float
    p50_ms: float | None
    max_ms: float | None


class Outcome(msgspec.Struct):
    """A run."""

    workers: int
    calm_p99_ms: float
    calm_eps: float
    """T_normal: events per second whose result came out."""
    losses: list[Loss]
    moments: list[Moment]


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


def _each_event(source: Generator, start_us: int, shown: list[Shown]) -> Timeline:
    """Every event has a row of its own; one that came again after a failure counts when it came first."""
    assert source.schedule is not None
    assert source.total is not None
    seen_us = np.full(source.total, NEVER_US, dtype=np.int64)
    if shown:
        np.minimum.at(seen_us, [each.group[1] for each in shown], [each.at_us for each in shown])
    return Timeline(start_us + source.schedule.times_us(0, source.total), seen_us)


def _views(source: Generator, start_us: int, shown: list[Shown]) -> Timeline:
    return Timeline.of(views_due(source, start_us, keyed=True), shown)


def _same(stream: ps.Stream) -> ps.Stream:
    return stream


SHAPES = {
    "stateless": Shape(WORKLOADS["identity"], lambda records: records.map(_numbered), None, _each_event),
    "windowed": Shape(WORKLOADS["yahoo-updates"], _same, "campaign_id", _views),
}


def run_losses(
    name: str, rate_eps: float, sizes: Sequence[int], workers: int, *, quick: bool = False
) -> tuple[ResultRow, Outcome]:
    """Kill so many workers at once, one size after the other, while events come at a rate."""
    shape = SHAPES[name]
    calm_s, every_s = (QUICK_CALM_S, QUICK_EVERY_S) if quick else (CALM_S, EVERY_S)
    due_s = [WARM_UP_S + calm_s + i * every_s for i in range(len(sizes))]
    seconds = due_s[-1] + every_s
    source = shape.workload.source(rate_eps, seconds=seconds)
    killer = _Killer(random.Random(SEED))
    with tempfile.TemporaryDirectory(prefix="penstock-study-") as directory:
        seen, out = Witness(Path(directory) / "seen", shape.key), Path(directory) / "out"
        stream = shape.workload.build(ps.stream("events", source))
        pipelines = [shape.build(stream).to(seen, name="seen"), stream.to(ps.files(out), name="out")]
        with ps.start(*pipelines, name="study-failure", parallelism=workers) as job, ProcessMeter() as meter:
            wait_for_start(job)
            meter.restart()
            done: list[tuple[int, int]] = []
            while (report := job.wait(POLL_S)) is None:
                if len(done) < len(sizes) and time.time() - job.start_us / 1e6 >= due_s[len(done)]:
                    done.append((now_us(), killer(job, sizes[len(done)])))
        timeline = shape.timeline(source, report.start_us, seen.shown())
        exact = shape.workload.expected(replay(source, report.start_us))
        found = shape.workload.compare(exact, read_rows(out), workers)
    end_us = report.start_us + round(seconds * 1e6)
    row = _row(name, rate_eps, report, meter, found, timeline, done)
    return row, judge(timeline, done, report.start_us, end_us, workers)


def _row(
    name: str,
    rate_eps: float,
    report: Any,
    meter: ProcessMeter,
    found: Comparison,
    timeline: Timeline,
    done: list[tuple[int, int]],
) -> ResultRow:
    lost, duplicated = found.lost + report.lost, found.duplicated + found.wrong + report.duplicated
    reordered = found.reordered + report.reordered
    row = latency_row(name, rate_eps, report, meter, lost, duplicated, reordered, "adaptive")
    histogram = timeline.between(report.start_us + round(WARM_UP_S * 1e6), NEVER_US).latency_us
    latency = Latency.of(histogram)
    row.p50_ms, row.p90_ms, row.p99_ms = latency.p50, latency.p90, latency.p99
    row.p999_ms, row.max_ms, row.cdf = latency.p999, latency.max, cdf_of(histogram)
    row.note = f"{sum(count for _, count in done)} workers killed in {len(done)} blows; until a reader sees the result"
    return row


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
        losses.append(
            Loss(
                round((at_us - start_us) / 1e6, 3),
                size,
                tfr,
                recovered_s,
                found.caught_up_s,
                found.normal_s,
                found.silent_ms,
                found.peak_ms,
            )
        )
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
        known = bool(len(waits_us))
        found.append(
            Moment(
                round((at_us - start_us) / 1e6, 1),
                round(float(np.median(waits_us)) / 1000, 3) if known else None,
                round(float(waits_us.max()) / 1000, 3) if known else None,
            )
        )
    return found


class _Killer:
    """Kills workers of a job on this machine, below this process; nobody else's."""

    def __init__(self, chance: random.Random) -> None:
        self._random = chance
        self._dead: set[int] = set()

    def __call__(self, job: ps.Job, count: int) -> int:
        """Kill so many at once; returns how many were."""
        alive = [each.pid for each in job.status().workers if each.pid and each.pid not in self._dead]
        killed = 0
        for pid in self._random.sample(alive, min(count, len(alive))):
            try:
                process = psutil.Process(pid)
                if os.getpid() in {parent.pid for parent in process.parents()}:
                    process.send_signal(signal.SIGKILL)
                    self._dead.add(pid)
                    killed += 1
            except psutil.NoSuchProcess:
                continue
        return killed
