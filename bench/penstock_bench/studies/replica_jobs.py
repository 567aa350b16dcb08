"""The rows of the study of replicas that are real jobs: functions that wait, a load that is sped up, stamps at the end.

Nothing but the end's stamps is taken from the job for latency; replicas over time are those that it reports.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.connectors.rates import RateSchedule, Segment
from penstock_bench.meter.job import read_rows
from penstock_bench.studies.replica_rows import ENGINE, LAWS, OVER, PEAK_WORK, Scene
from penstock_bench.studies.traces import Trace

OPERATIONS = 4
SERVICE_S = 0.025
"""Of each operation."""
POOL = 32
"""Replicas, each of which runs the chain of all operations: as many as the model has for four operations."""
TD = "200ms"
WARM_UP_S = 25.0
"""The pool comes up, and everything is built, before the load begins; cut from what is measured."""
WARM_UP_EPS = 4.0
WAIT_S = 120.0


@dataclass(frozen=True)
class Replayed:
    """A load as it is replayed."""

    trace: Trace
    rates_eps: tuple[float, ...]
    """Of each second of the recording."""
    speed: float

    @staticmethod
    def of(trace: Trace, seconds: int, speed: float) -> Replayed:
        """Scale the first part of a load so that its peak keeps the pool as busy as the model's."""
        rates = trace.rates_eps[:seconds]
        peak_eps = POOL * PEAK_WORK / OVER / (OPERATIONS * SERVICE_S)
        return Replayed(trace, tuple(rate * peak_eps / max(rates) for rate in rates), speed)

    @property
    def seconds(self) -> float:
        """How long it lasts when replayed."""
        return len(self.rates_eps) / self.speed

    @property
    def schedule(self) -> RateSchedule:
        """When each record is due, the warm-up first."""
        step_us = round(1e6 / self.speed)
        segments = [Segment(step_us, max(0.1, rate)) for rate in self.rates_eps]
        return RateSchedule((Segment(round(1e6 * WARM_UP_S), WARM_UP_EPS), *segments))

    @property
    def total(self) -> int:
        """Records, those of the warm-up included."""
        return round(WARM_UP_EPS * WARM_UP_S + sum(max(0.1, rate) for rate in self.rates_eps) / self.speed)


def _wait(r: Any) -> tuple[int]:
    time.sleep(SERVICE_S)
    return (r.number,)


def _stamp(r: Any) -> tuple[int, int]:
    return r.number, time.time_ns() // 1000


def pipeline(load: Replayed, out: Path, replicas: Any) -> ps.Pipeline:
    """Four operations that wait, behind each other, as the paper's Twitter application."""
    source = ps.generator(
        {"number": ps.fields.sequence()}, rate=load.schedule, format="columns", total=load.total, partitions=1, seed=1
    )
    stream = ps.stream("events", source)
    for place in range(OPERATIONS):
        stream = stream.map(_wait, schema="number bigint", name=f"step{place}", replicas=replicas)
    # Behind the replicas, where records are in their order again.
    return stream.map(_stamp, schema="number bigint, at_us bigint", name="stamp").to(ps.files(out), name="out")


def replay(name: str, load: Replayed, replicas: Any, target_ms: float = 0.0, **options: Any) -> Scene:
    """Run a job through a load."""
    with tempfile.TemporaryDirectory(prefix="penstock-replicas-") as directory:
        out = Path(directory)
        job = ps.start(pipeline(load, out, replicas), name="replicas", parallelism=1, forms="record", **options)
        report = job.wait(WAIT_S + WARM_UP_S + 20 * load.seconds)
        assert report is not None
        rows = read_rows(out)
    return scene_of(name, load, rows, report, target_ms)


def scene_of(name: str, load: Replayed, rows: Sequence[dict[str, Any]], report: Any, target_ms: float) -> Scene:
    """Find latencies from the stamps of the rows, and replicas from what the job reports."""
    due_us = [report.start_us + int(each) for each in load.schedule.times_us(0, load.total)]
    cut_us = report.start_us + round(1e6 * WARM_UP_S)
    end_us = cut_us + 1e6 * load.seconds
    stamps = {row["number"]: row["at_us"] for row in rows}
    taken = [(stamps[number], at_us) for number, at_us in enumerate(due_us) if number in stamps and at_us >= cut_us]
    latencies = sorted((at - due) / 1_000 for at, due in taken)
    elastic = report.adaptation.elastic
    moments = (
        [each for each in elastic.moments if WARM_UP_S <= each.at_s <= WARM_UP_S + load.seconds] if elastic else []
    )
    active = sum(each.replicas for each in moments) / len(moments) if moments else 1.0
    came = Counter(int((due - cut_us) / 1e6) for _, due in taken)
    went = Counter(int((at - cut_us) / 1e6) for at, _ in taken)
    shares = [abs(went[each] - came[each]) / came[each] for each in range(int(load.seconds)) if came[each]]
    due = sum(at_us >= cut_us for at_us in due_us)
    return Scene(
        LAWS,
        name,
        load.trace.name,
        ENGINE,
        round(1 - active / POOL, 4),
        round(sum(shares) / max(1, len(shares)), 4),
        round(sum(at <= end_us + 1e6 for at, _ in taken) / max(1, due), 4),
        due - len(taken),
        round(sum(latencies) / max(1, len(latencies)), 2),
        round(latencies[int(0.99 * len(latencies))], 2) if latencies else 0.0,
        round(active * load.seconds, 1),
        len({int(at / 1e6) for at, due_at in taken if (at - due_at) / 1_000 > target_ms}) if target_ms else 0,
        sum(each.at_s >= WARM_UP_S for each in report.switches),
        course=[[round(each.at_s - WARM_UP_S, 2), float(each.replicas)] for each in moments],
    )
