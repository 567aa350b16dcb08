"""From a job's status to flat, tagged samples; the exporter calls it, the outlets write what it returns. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import TypeVar

import msgspec

from penstock.control.changes import Advice, ChangeReport
from penstock.control.monitor import OperationFigures, Status
from penstock.control.replicas import ReplicasView
from penstock.control.rescaling import MoveReport
from penstock.control.shifting import ShiftReport
from penstock.metrics import Histogram
from penstock.metrics.histogram import bucket_bound
from penstock.operators import DEAD_LETTERS, Form
from penstock.pipeline.plan import Plan
from penstock.runtime.metrics_out.catalogue import (
    COMPONENT,
    INSTANCE,
    JOB,
    JOB_COMPONENT,
    OPERATION,
    OUTLET,
    PHASE,
    PROCESS,
)

ENGINE = "penstock"
BOUNDS_US = tuple(step * 10**power for power in range(2, 8) for step in (1, 2, 5))
"""Upper bounds of the histogram's buckets: 100 µs to 50 s."""
Transfer = TypeVar("Transfer", MoveReport, ShiftReport)


class Tags(msgspec.Struct, frozen=True):
    """What every sample of a run is tagged with."""

    job: str
    run: str
    version: str
    engine: str = ENGINE


class Point(msgspec.Struct):
    """Fields of one thing at one time."""

    measurement: str
    tags: dict[str, str]
    fields: dict[str, float]


class Buckets(msgspec.Struct):
    """Latencies so far, cumulative, as Prometheus has histograms."""

    counts: list[int]
    """How many are not above each of `BOUNDS_US`."""
    total: int
    sum_s: float
    """Of the upper bounds of fine buckets: at most 3.2 % too high."""


class ProcessFigures(msgspec.Struct):
    """CPU time and memory of a process, or of all of a kind."""

    name: str
    cpu_s: float
    rss_bytes: float


class OutletFigures(msgspec.Struct):
    """How a place of metrics fares."""

    outlet: str
    sent: int = 0
    failed: int = 0
    dropped: int = 0


class Snapshot(msgspec.Struct):
    """All samples of one time."""

    at_us: int
    tags: Tags
    points: list[Point]
    switches: list[ChangeReport]
    """Those since the last snapshot."""
    advice: list[Advice]
    """What would have been done since then, with ``advise``."""
    began_us: int
    """What the times of switches, advice, moves and shifts count from."""
    advised: bool
    """Whether the job only advises."""
    latency: Buckets
    moves: list[MoveReport] = []
    """Those since the last snapshot."""
    shifts: list[ShiftReport] = []
    """Likewise."""


@dataclass(frozen=True)
class Layout:
    """What samples need to know of a plan."""

    units: Mapping[str, str]
    """Unit by operation."""
    sinks: frozenset[str]

    @staticmethod
    def of(plan: Plan) -> Layout:
        """Read it off a plan."""
        units = {unit.name: unit.name for unit in plan.units if unit.source is not None}
        units |= {spec.name: unit.name for unit in plan.units for spec in unit.ops}
        return Layout(units, frozenset(plan.sinks.keys() - {DEAD_LETTERS}))


@dataclass
class _Counter:
    """A worker that is built anew counts from zero again; what is told to others must not fall."""

    last: float = 0.0
    told: float = 0.0

    def take(self, now: float) -> float:
        self.told += max(0.0, now - self.last)
        self.last = now
        return self.told


@dataclass
class _Transfers:
    """Moves, or shifts, so far; a status has the last of them."""

    total: int = 0
    loaded_bytes: int = 0
    groups: int = 0

    def new(self, total: int, last: Sequence[Transfer]) -> list[Transfer]:
        """Take those of a status that were not there before."""
        count, self.total = total - self.total, total
        found = list(last[-count:]) if count > 0 else []
        self.loaded_bytes += sum(each.loaded_bytes for each in found)
        self.groups += sum(each.groups for each in found if isinstance(each, ShiftReport))
        return found


@dataclass
class Sampler:
    """Turns one status after another into snapshots."""

    tags: Tags
    layout: Layout
    _counters: dict[tuple[str, str], _Counter] = field(default_factory=dict)
    _latency_last: Histogram = field(default_factory=Histogram)
    _latency_told: Histogram = field(default_factory=Histogram)
    _switches_total: int = 0
    _moves: _Transfers = field(default_factory=_Transfers)
    _shifts: _Transfers = field(default_factory=_Transfers)

    def take(
        self,
        status: Status,
        latency_us: Histogram,
        processes: Iterable[ProcessFigures] = (),
        outlets: Iterable[OutletFigures] = (),
    ) -> Snapshot:
        """Make the samples of one time; ``latency_us`` holds the latencies so far."""
        new = status.switches_total - self._switches_total
        self._switches_total = status.switches_total
        all_shifts = status.staffing.shifts if status.staffing is not None else []
        moves = self._moves.new(status.moves_total, status.moves)
        shifts = self._shifts.new(len(all_shifts), all_shifts)
        recent_us = self._recent(latency_us)
        points = [Point(JOB, {}, {**self._job(status), **_percentiles(recent_us)})]
        points.append(Point(PHASE, {"phase": status.phase}, {"current": 1.0}))
        for component, mean_ms in status.components_ms.items():
            points.append(Point(JOB_COMPONENT, {"component": component}, {"mean_seconds": mean_ms / 1e3}))
        replicated = {name: each for each in status.replicas for name in each.operations}
        for each in status.operations:
            points += self._operation(each, replicated.get(each.name))
            points += self._instances(each, status.placement)
        for process in processes:
            used = {"cpu_seconds_total": process.cpu_s, "resident_bytes": process.rss_bytes}
            points.append(Point(PROCESS, {"process": process.name}, used))
        for outlet in outlets:
            counted = {"sent_total": outlet.sent, "failed_total": outlet.failed, "dropped_total": outlet.dropped}
            points.append(Point(OUTLET, {"outlet": outlet.outlet}, {name: float(n) for name, n in counted.items()}))
        for point in points:
            point.fields = {name: value for name, value in point.fields.items() if isfinite(value)}
        return Snapshot(
            at_us=status.at_us,
            tags=self.tags,
            points=points,
            switches=status.switches[-new:] if new > 0 and not status.advise else [],
            advice=status.advice[-new:] if new > 0 and status.advise else [],
            began_us=status.began_us,
            advised=status.advise,
            latency=_buckets(self._latency_told),
            moves=moves,
            shifts=shifts,
        )

    def _recent(self, latency_us: Histogram) -> Histogram:
        """What came since the last snapshot."""
        # Where there is less than before, a warm-up was cut or a worker was built anew: what is new cannot be told.
        less = latency_us.total < self._latency_last.total
        recent = Histogram() if less else latency_us.since(self._latency_last)
        self._latency_last = latency_us
        self._latency_told.merge(recent)
        return recent

    def _job(self, status: Status) -> dict[str, float]:
        sources = [each for each in status.operations if each.reads]
        sinks = [each for each in status.operations if each.name in self.layout.sinks]
        fields = {
            "uptime_seconds": status.uptime_s,
            "in_records_per_second": sum(each.in_eps for each in sources),
            "out_records_per_second": sum(each.in_eps for each in sinks),
            "records_in_total": self._steady("", "in", sum(each.records_in for each in sources)),
            "records_out_total": self._steady("", "out", sum(each.records_in for each in sinks)),
            "queue_records": float(sum(each.queue_records for each in status.operations)),
            "epochs_total": float(max(0, status.epoch)),
            "epoch_seconds": status.epoch_ms / 1e3,
            "recoveries_total": float(status.recoveries),
            "group_micro_batches": float(status.group_size),
            "workers": float(len(status.workers)),
            "workers_wanted": float(status.staffing.wanted if status.staffing is not None else len(status.workers)),
            "slots": float(len(status.slots)),
            "replicas": float(len(status.replica_pids)),
            "replicas_active": float(len({number for each in status.replicas for number in each.replicas})),
            "replica_seconds_total": status.replica_s,
            "moves_total": float(self._moves.total),
            "move_bytes_total": float(self._moves.loaded_bytes),
            "shifts_total": float(self._shifts.total),
            "shift_bytes_total": float(self._shifts.loaded_bytes),
            "shift_groups_total": float(self._shifts.groups),
        }
        if status.saved is not None:
            fields["replicas_saved_ratio"] = status.saved
        shifts = status.staffing.shifts if status.staffing is not None else []
        for name, transfers in (("move", status.moves), ("shift", shifts)):
            for transfer in transfers[-1:]:
                fields[f"{name}_pause_seconds"] = transfer.pause_ms / 1e3
                fields[f"{name}_seconds"] = transfer.total_ms / 1e3
        fields["switches_advised_total" if status.advise else "switches_total"] = float(status.switches_total)
        if status.overhead is not None:
            fields["scheduling_overhead_ratio"] = status.overhead
        if status.switches and not status.advise:
            last = status.switches[-1]
            fields["switch_pause_seconds"] = last.pause_ms / 1e3
            fields["switch_seconds"] = last.total_ms / 1e3
            fields["switch_carried_records"] = float(last.carried_records)
        return fields

    def _operation(self, each: OperationFigures, replicas: ReplicasView | None) -> list[Point]:
        tags = {"operation": each.name, "unit": self.layout.units.get(each.name, each.name), "form": each.form}
        counts = {
            "records_in_total": each.records_in,
            "records_out_total": each.records_out,
            "late_total": each.late,
            "skipped_total": each.skipped,
            "retried_total": each.retried,
            "dead_letters_total": each.dead_letters,
            "timed_out_total": each.timed_out,
            "over_bound_total": each.over_bound,
            "fallbacks_total": each.fallbacks,
        }
        fields = {
            "in_records_per_second": each.in_eps,
            "out_records_per_second": each.out_eps,
            "selectivity_ratio": each.selectivity,
            "queue_records": float(each.queue_records),
            "service_seconds": each.service_us / 1e6,
            "block_records": each.block_records,
            "batch_form": float(each.form == Form.BATCH.value),
            "instances": float(each.instances),
            **{name: self._steady(each.name, name, count) for name, count in counts.items()},
        }
        if replicas is not None:
            fields["replicas"] = float(replicas.degree)
            fields["replicas_wanted"] = float(replicas.wanted)
            fields["replicas_least"], fields["replicas_most"] = float(replicas.least), float(replicas.most)
            fields["replica_activations_total"] = self._steady(each.name, "activations", replicas.activations)
        points = [Point(OPERATION, tags, fields)]
        if each.p99_ms:  # nothing came: there is no latency, rather than one of 0
            fields |= {"latency_p50_seconds": each.p50_ms / 1e3, "latency_p99_seconds": each.p99_ms / 1e3}
            points += [
                Point(COMPONENT, {**tags, "component": component}, {"mean_seconds": mean_us / 1e6})
                for component, mean_us in each.components_us.items()
            ]
        return points

    def _instances(self, each: OperationFigures, placement: Sequence[int]) -> list[Point]:
        """Who has each instance of an operation: instance i of all of them is on the same worker."""
        common = {"operation": each.name, "unit": self.layout.units.get(each.name, each.name)}
        return [
            Point(INSTANCE, {**common, "number": str(number)}, {"worker": float(worker)})
            for number, worker in enumerate(placement[: each.instances])
        ]

    def _steady(self, operation: str, name: str, now: float) -> float:
        return self._counters.setdefault((operation, name), _Counter()).take(now)


def _percentiles(recent_us: Histogram) -> dict[str, float]:
    """None where nothing came, rather than 0."""
    if not recent_us.total:
        return {}
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
    found = {f"latency_{name}_seconds": recent_us.quantile(share) / 1e6 for name, share in shares.items()}
    return {**found, "latency_max_seconds": recent_us.maximum / 1e6}


def _buckets(latency_us: Histogram) -> Buckets:
    counts = [0] * len(BOUNDS_US)
    sum_us = 0
    for bucket, times in latency_us.counts.items():
        highest_us = bucket_bound(bucket)
        sum_us += highest_us * times
        for index, bound_us in enumerate(BOUNDS_US):
            if highest_us <= bound_us:
                counts[index] += times
    return Buckets(counts, latency_us.total, sum_us / 1e6)
