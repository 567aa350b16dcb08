"""The rows of the study of replicas that are real jobs: functions that wait, a load that is sped up, stamps at the end.

Nothing but the end's stamps is taken from the job for latency; replicas over time are those that it reports.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.connectors.rates import RateSchedule, Segment
from penstock.pipeline.options import ReplicaLaw
from penstock.runtime.job import Job, plan_of
from penstock_bench.meter.job import read_rows
from penstock_bench.studies.queueing import GRACE_S, Outcome
from penstock_bench.studies.replica_rows import ENGINE, LAWS, OVER, PEAK_WORK, Scene, scene_of
from penstock_bench.studies.traces import Stretch, Trace

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
class Replayed(Stretch):
    """A part of a load with a warm-up before it."""

    @staticmethod
    def of(trace: Trace, seconds: int) -> Replayed:
        """Scale the first part of a load so that its peak keeps the pool as busy as the model's."""
        rates = trace.rates_eps[:seconds]
        peak_eps = POOL * PEAK_WORK / OVER / (OPERATIONS * SERVICE_S)
        return Replayed(trace, 0, tuple(rate * peak_eps / max(rates) for rate in rates))

    @property
    def schedule(self) -> RateSchedule:
        """When each record is due, the warm-up first."""
        segments = [Segment(round(1e6 / self.speed), max(0.1, rate)) for rate in self.rates_eps]
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


@dataclass(frozen=True)
class Replay:
    """A job to be run through a load: its row, and its options."""

    name: str
    replicas: Any
    options: dict[str, Any] = field(default_factory=dict)
    law: ReplicaLaw = ReplicaLaw.PREDICTIVE
    table: str = LAWS


def replay(run: Replay, load: Replayed, target_ms: float = 0.0) -> Scene:
    with tempfile.TemporaryDirectory(prefix="penstock-replicas-") as directory:
        out = Path(directory)
        plan = plan_of(pipeline(load, out, run.replicas), name="replicas", parallelism=1, forms="record", **run.options)
        job = Job(replace(plan, options=replace(plan.options, replica_law=run.law)))
        report = job.wait(WAIT_S + WARM_UP_S + 20 * load.seconds)
        assert report is not None
        rows = read_rows(out)
    outcome = outcome_of(load, rows, report)
    return scene_of(outcome, (run.table, run.name, load.trace.name, ENGINE), POOL, target_ms, drawn=True)


def outcome_of(load: Replayed, rows: Sequence[dict[str, Any]], report: Any) -> Outcome:
    """Find latencies from the stamps of the rows, and replicas from what the job reports."""
    cut_us = report.start_us + round(1e6 * WARM_UP_S)
    due_us = [report.start_us + int(each) for each in load.schedule.times_us(0, load.total)]
    stamps = {row["number"]: row["at_us"] for row in rows}
    due = {number: at_us for number, at_us in enumerate(due_us) if at_us >= cut_us}
    taken = [(stamps[number], at_us) for number, at_us in due.items() if number in stamps]
    elastic = report.adaptation.elastic
    moments = [
        each for each in (elastic.moments if elastic else ()) if WARM_UP_S <= each.at_s <= WARM_UP_S + load.seconds
    ]
    active = sum(each.replicas for each in moments) / len(moments) if moments else 1.0
    return Outcome(
        received=len(due),
        dropped=len(due) - len(taken),
        latencies_s=[((at - cut_us) / 1e6, (at - due_at) / 1e6) for at, due_at in taken],
        replica_s=active * load.seconds,
        changes=sum(each.at_s >= WARM_UP_S for each in report.switches),
        replicas=[(round(each.at_s - WARM_UP_S, 2), each.replicas) for each in moments],
        seconds=load.seconds,
        arrivals_s=[(at_us - cut_us) / 1e6 for _, at_us in taken],
        interval_s=1.0,
        end_s=load.seconds + GRACE_S,
    )
