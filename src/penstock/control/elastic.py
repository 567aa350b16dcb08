"""The MAPE loop of replicas (PS-4): figures of every unit in, at every interval td; numbers of replicas out. Pure.

The control loop feeds it and owns what it asks: `Measures` for costs, `Switches` for forms, `Replication` for the
replicas. What it has seen and done is kept over time, as the metrics of PS-6.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from penstock.control.asked import bounds
from penstock.control.candidates import reaches
from penstock.control.forms import OpMeasure, UnitMeasure
from penstock.control.laws.replicas import INPUT, Operator
from penstock.control.monitor import OperationFigures
from penstock.control.replicas import Replication
from penstock.control.replicating import RangeMeasure, Replicator
from penstock.control.switches import Switches
from penstock.engine.ways.pool import DEPTH
from penstock.pipeline.plan import Plan, UnitSpec
from penstock.pipeline.ranges import Range
from penstock.protocol import messages as m
from penstock.protocol.pulses import ReplicaPulse, UnitPulse

MOMENTS_MAX = 1_000
"""Moments that are kept; when there are more, two become one."""
COMPUTES_MIN = 0.5
"""A function that uses the processor for this share of its time computes; replicas beyond the cores gain nothing."""
SLOW_SHARE = 0.1
"""An operation that takes less of its chain's time than this is not worth a place at the ends of a range."""
US_PER_S = 1_000_000


class ElasticMoment(msgspec.Struct):
    """One interval of the loop, or several of them on average (PS-6)."""

    at_s: float
    """Its end, since the sources began to read."""
    received: float
    """Records that came from outside in a second, and those that the loop had expected for it."""
    expected: float
    processed: float
    """Of those that came from outside, as many as all ranges with replicas have kept up with."""
    queue_records: float
    replicas: int
    """Processes that compute ranges which may have replicas: a range without any has its workers."""
    latency_ms: float
    """Mean at the end of the pipeline."""
    ranges: dict[str, int] = {}
    """By range, named by its operations: the replicas that compute it; 0: its workers do."""


class ElasticReport(msgspec.Struct):
    """Replicas over a whole run: the metrics of PS-6.

    Attributes
    ----------
    replicas_over : int
        r_over, what an over-provisioned job would have all the time: the pool.
    saved : float
        1 - r/r_over.
    degradation : float
        |in - out|/in, on average over the moments.
    processed : float
        Records processed for each one that was received.
    replica_s : float
        Seconds of active replicas.
    """

    replicas_over: int
    saved: float
    degradation: float
    processed: float
    latency_ms: float
    replica_s: float
    changes: int
    moments: list[ElasticMoment]


@dataclass(slots=True)
class _Unit:
    """Counts of one unit at a look."""

    arrived: int = 0
    taken: int = 0


@dataclass(slots=True)
class _Away:
    """What the replicas of a unit had done at a look."""

    records: int = 0
    busy_us: int = 0
    cpu_us: int = 0

    def add(self, pulse: ReplicaPulse) -> None:
        self.records += pulse.records_out
        self.busy_us += pulse.busy_us
        self.cpu_us += pulse.cpu_us


@dataclass(frozen=True, slots=True)
class _Cost:
    """An operation: records that reach it for one that enters the unit, and what each of them takes."""

    reach: float
    record_us: float


class Elastic:
    """Watches units, and has the replicas of their ranges follow the load.

    Parameters
    ----------
    cores : int
        Processor cores that computing replicas share.
    """

    def __init__(self, plan: Plan, cores: int, switches: Switches, replication: Replication) -> None:
        self._plan = plan
        self._cores = cores
        self._switches = switches
        self._replication = replication
        self._interval_us = plan.options.replica_interval_us
        self._replicator = Replicator(replication.size, self._interval_us, law=plan.options.replica_law)
        self._pulses: dict[tuple[int, int], UnitPulse] = {}
        self._pulsed_us: dict[int, int] = {}
        """By worker: of which moment its last pulse is."""
        self._written: dict[tuple[int, int], int] = {}
        """By worker and edge."""
        self._last: dict[int, _Unit] = {}
        self._last_written: Counter[int] = Counter()
        self._looked_us: int | None = None
        self._seen_us = 0.0
        """Of which moment the counts of the last look are: with short intervals, a pulse's age matters."""
        self._away: dict[int, _Away] = {}
        self._ranges: dict[int, Range] = {}
        self._waits: dict[int, bool] = {}
        """By unit: whether its range waits for others, rather than computes; known once replicas have run it."""
        self._moments: list[ElasticMoment] = []
        self._changes = 0
        self._seconds = 0.0
        self._replica_s = self._received = self._processed = 0.0
        self._asked = {unit.id: next(iter(bounds(unit)), None) for unit in plan.units}

    def settle(self, unit: int, degree: int) -> None:
        """The user has decided how many processes compute a unit's range: the law goes on from there."""
        self._replicator.settle(unit, degree)

    @property
    def notes(self) -> list[str]:
        """Where replicas cannot do what is needed."""
        return self._replicator.notes

    def on_worker(self, message: m.FromWorker) -> None:
        """Monitor: take queues from pulses, what edges carry from heartbeats."""
        match message:
            case m.Pulse(worker=worker, units=units, at_us=at_us):
                self._pulses.update(((each.unit, each.instance), each) for each in units)
                self._pulsed_us[worker] = at_us
            case m.Heartbeat(worker=worker, edges=edges):
                self._written.update(((worker, each.edge), each.records_written) for each in edges)
            case _:
                pass

    def widths(self) -> dict[tuple[int, int], int]:
        """By unit and operation in replicas, or that comes back to them: how many processes compute it in record form.

        The law of the switch point counts with it: what replicas carry is no burst.
        """
        found = {}
        for unit, chosen in self._ranges.items():
            present, active = self._switches.replicas(unit)
            width = len(active)
            if not active:
                present, away = chosen, self._switches.range(unit)
                need = self._replicator.needs.get(str(unit))
                width = need.replicas if need is not None and away else 0
            if width and not self._waits.get(unit, False):
                width = min(width, self._cores)
            if active or width > self._plan.processes(self._plan.units[unit]):
                found.update({(unit, index): width for index in present})
        return found

    # --- the loop -----------------------------------------------------------------------------------------------------

    def tick(
        self,
        measures: Sequence[UnitMeasure],
        record_ns: Mapping[str, float],
        figures: Mapping[str, OperationFigures],
        at_s: float,
        now_us: int,
    ) -> None:
        """Analyse, plan and execute, if an interval has passed; ``record_ns`` is what a record costs in record form."""
        if not self._replication.size:
            return
        seen_us = sum(self._pulsed_us.values()) / max(1, len(self._pulsed_us))
        if self._looked_us is None:
            self._looked_us, self._seen_us = now_us, seen_us
            self._count()
        if now_us - self._looked_us < self._interval_us or seen_us <= self._seen_us:
            return
        before, before_written, passed_us = self._last, self._last_written, seen_us - self._seen_us
        self._looked_us, self._seen_us = now_us, seen_us
        self._count()
        share = self._interval_us / passed_us
        operators = self._operators(before, before_written, share)
        if operators is None:
            return  # rolled back: instances count again from an earlier place
        costs = {each.unit: self._costs(each.operations, record_ns) for each in measures}
        ranges = [found for unit in self._plan.units if (found := self._measure(unit, costs)) is not None]
        for each in ranges:
            own_us = self._execution_us(each, costs.get(each.unit, {}))
            operators[each.unit] = replace(operators[each.unit], execution_us=own_us)
        incoming = sum(each.received.get(INPUT, 0.0) for each in operators)
        for wanted in self._replicator.decide(now_us, operators, ranges, incoming):
            self._changes += 1
            degree = max(1, wanted.degree)
            self._replication.want(wanted.unit, wanted.range, degree, wanted.reason, wanted.inputs, now_us)
        self._remember(operators, ranges, incoming, figures, at_s, passed_us)

    def _execution_us(self, at: RangeMeasure, costs: Mapping[int, _Cost]) -> float:
        """et of a range for a record that enters its unit: what replicas took of late, else what the worker takes."""
        known = [costs[index] for index in at.range if index in costs]
        now = _Away()
        for (unit, _), pulse in self._pulses.items():
            if unit == at.unit and pulse.replicas is not None:
                now.add(pulse.replicas)
        before, self._away[at.unit] = self._away.get(at.unit, _Away()), now
        records, busy_us = now.records - before.records, now.busy_us - before.busy_us
        if records <= 0 or busy_us <= 0 or not known:
            return sum(each.reach * each.record_us for each in known)
        self._waits[at.unit] = now.cpu_us - before.cpu_us < COMPUTES_MIN * busy_us
        return known[0].reach * busy_us / records

    def _count(self) -> None:
        counts: dict[int, _Unit] = {}
        for (unit, _), pulse in self._pulses.items():
            held = counts.setdefault(unit, _Unit())
            held.arrived += pulse.arrived
            held.taken += pulse.arrived - pulse.waiting
        self._last = counts
        self._last_written = Counter()
        for (_, edge), records in self._written.items():
            self._last_written[edge] += records

    def _operators(
        self, before: Mapping[int, _Unit], before_written: Counter[int], share: float
    ) -> list[Operator] | None:
        """Every unit in this interval; counts are those of an interval of the usual length."""
        found = []
        for unit in self._plan.units:
            now, then = self._last.get(unit.id, _Unit()), before.get(unit.id, _Unit())
            arrived, taken = now.arrived - then.arrived, now.taken - then.taken
            if arrived < 0 or taken < 0:
                return None
            waiting = sum(pulse.waiting for (number, _), pulse in self._pulses.items() if number == unit.id)
            found.append(
                Operator(
                    name=str(unit.id),
                    received=self._received_by(unit, share * arrived, before_written),
                    processed=share * taken,
                    queue=waiting + self._under_way(unit),
                    execution_us=0.0,
                    most=1,
                )
            )
        return found

    def _received_by(self, unit: UnitSpec, arrived: float, before_written: Counter[int]) -> dict[str, float]:
        """λ_i^p: what came to a unit, by the unit that it came from."""
        if unit.source is not None:
            return {INPUT: arrived}
        edges = self._plan.inputs(unit.id)
        carried = [max(0, self._last_written[each.id] - before_written[each.id]) for each in edges]
        total = sum(carried)
        found: dict[str, float] = {}
        for edge, records in zip(edges, carried, strict=True):
            part = records / total if total else 1 / len(edges)
            found[str(edge.producer)] = found.get(str(edge.producer), 0.0) + part * arrived
        return found

    def _under_way(self, unit: UnitSpec) -> float:
        """Records with replicas that are more than these have at work, and ready to go on with."""
        active = len(self._switches.replicas(unit.id)[1])
        if not active:
            return 0.0
        pulses = [pulse.replicas for (number, _), pulse in self._pulses.items() if number == unit.id]
        under_way = sum(each.records_in - each.records_out for each in pulses if each is not None)
        return float(max(0, under_way - DEPTH * active * unit.instances))

    # --- ranges -------------------------------------------------------------------------------------------------------

    def _measure(self, unit: UnitSpec, costs: Mapping[int, Mapping[int, _Cost]]) -> RangeMeasure | None:
        """The range of a unit that may have replicas, if there is one."""
        chosen = self._range(unit, costs.get(unit.id, {}))
        if chosen is None:
            return None
        self._ranges[unit.id] = chosen
        least, most = self._replication.bounds(unit.id, chosen)
        return RangeMeasure(
            unit=unit.id,
            names=tuple(unit.display_at(index) for index in chosen),
            range=chosen,
            processes=self._plan.processes(unit),
            degree=self._replication.degree(unit.id),
            least=least,
            most=most,
            in_batch=bool(self._switches.range(unit.id)) or self._switches.busy(unit.id),
            cores=self._cores if self._waits.get(unit.id) is False else None,
        )

    def _range(self, unit: UnitSpec, costs: Mapping[int, _Cost]) -> Range | None:
        """What the user has asked for; else from the first slow operation to the last, as they were when it began."""
        if (asked := self._asked[unit.id]) is not None:
            return asked
        if not self._plan.options.replicas or not len(unit.replicable):
            return None
        present, active = self._switches.replicas(unit.id)
        if active:
            return present
        works = {index: each.reach * each.record_us for index, each in costs.items() if index in unit.replicable}
        slow = [index for index, work in works.items() if work >= SLOW_SHARE * sum(works.values()) > 0]
        return Range(min(slow), max(slow)) if slow else None

    @staticmethod
    def _costs(operations: Sequence[OpMeasure], record_ns: Mapping[str, float]) -> dict[int, _Cost]:
        """By operation, as far as its cost is known."""
        reached = zip(operations, reaches(operations), strict=True)
        return {op.index: _Cost(reach, record_ns[op.name] / 1_000) for op, reach in reached if op.name in record_ns}

    # --- what was ---------------------------------------------------------------------------------------------------

    def _remember(
        self,
        operators: Sequence[Operator],
        ranges: Sequence[RangeMeasure],
        incoming: float,
        figures: Mapping[str, OperationFigures],
        at_s: float,
        passed_us: float,
    ) -> None:
        by_unit = {int(each.name): each for each in operators}
        replicas = sum(each.degree or each.processes for each in ranges)
        seconds, per_s = passed_us / US_PER_S, US_PER_S / self._interval_us
        watched = [by_unit[each.unit] for each in ranges] or list(by_unit.values())
        kept_up = [each.processed / each.arrived for each in watched if each.arrived > 0]
        processed = incoming * min(kept_up, default=1.0)
        ends = [figures[op.name] for unit in self._plan.units for op in unit.ops[-1:] if op.name in figures]
        came = sum(each.in_eps for each in ends)
        latency_us = sum(each.latency_us * each.in_eps for each in ends) / came if came else 0.0
        self._seconds += seconds
        self._replica_s += replicas * seconds
        self._received += incoming
        self._processed += processed
        self._moments.append(
            ElasticMoment(
                round(at_s, 3),
                round(incoming * per_s, 1),
                round(self._replicator.expected * per_s, 1),
                round(processed * per_s, 1),
                sum(each.queue for each in watched),
                replicas,
                round(latency_us / 1_000, 3),
                {", ".join(each.names): each.degree for each in ranges},
            )
        )
        if len(self._moments) > MOMENTS_MAX:
            self._moments = [_both(*pair) for pair in zip(self._moments[::2], self._moments[1::2], strict=False)]

    def report(self) -> ElasticReport | None:
        """The metrics so far; None if the job has no replicas."""
        over = self._replication.size
        if not over:
            return None
        shares = [abs(each.received - each.processed) / each.received for each in self._moments if each.received]
        weights = [each.received for each in self._moments]
        latency_ms = sum(each.latency_ms * each.received for each in self._moments) / (sum(weights) or 1.0)
        return ElasticReport(
            over,
            round(1 - self._replica_s / (over * self._seconds), 4) if self._seconds else 0.0,
            round(sum(shares) / len(shares), 4) if shares else 0.0,
            round(min(1.0, self._processed / self._received), 4) if self._received else 1.0,
            round(latency_ms, 3),
            round(self._replica_s, 3),
            self._changes,
            list(self._moments),
        )


def _both(one: ElasticMoment, two: ElasticMoment) -> ElasticMoment:
    """Two moments as one."""
    means = {
        name: (getattr(one, name) + getattr(two, name)) / 2
        for name in ("received", "expected", "processed", "queue_records", "latency_ms")
    }
    most = {name: max(one.ranges.get(name, 0), two.ranges.get(name, 0)) for name in one.ranges | two.ranges}
    return ElasticMoment(at_s=two.at_s, replicas=max(one.replicas, two.replicas), ranges=most, **means)
