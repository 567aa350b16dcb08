"""What the switcher is told of every unit: rates and queues from pulses, costs from samples and heartbeats. Pure."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.control.candidates import Relieved, capacity_eps, reaches
from penstock.control.costs import Costs
from penstock.control.forms import OpMeasure, UnitMeasure
from penstock.control.monitor import OperationFigures
from penstock.operators import BatchKind, Form
from penstock.pipeline.plan import Plan, UnitSpec
from penstock.protocol import messages as m
from penstock.protocol import slots as s

RATE_WINDOW_US = 400_000
"""Arrival rates are those of so long: short, because bursts are."""
BLOCKED_WINDOW_US = 1_000_000
"""Whether outputs hold an instance up is told by so long: in batch form it takes much at once, then nothing."""
BLOCKED_MIN = 0.05
"""An instance that waits for room in its outputs for this share of the time is held up by what is behind it.

Half of what the decision needs: where the record form carries what gets through with the hysteresis to spare, it has
nothing to do, or waits, for a tenth of the time.
"""
SCHEDULE_US = 5_000
"""From a micro-batch's cut to its begin, before it was measured."""
TRANSMIT_US = 1_000
RECORDS_MIN = 256
"""Costs are taken from heartbeats in which an operation handled at least so many records in a block on average,"""
BLOCK_WORK_US_MIN = 5_000
"""or in which a block was at least so much work, however few its records were."""
ASSUMED_GAIN = 2.0
"""How much faster a vectorised form is taken to be that cannot be tried on samples, until it has run."""
SATURATED_RECORDS = 1_000
"""An instance before which so many records wait all the time gives all it can."""
SLACK_MIN = 0.1
SLACK_WEIGHT = 0.5
SLACK_BACK_US = 30_000_000
"""Time in which what was once seen of a crowded machine is forgotten."""
STEADY_LOOKS = 4
"""Figures count for a form's costs when the operation has been in it for so many heartbeats."""


@dataclass(frozen=True, slots=True)
class _Look:
    """One instance at one moment: what has come so far, what waits, how long it could not go on for its outputs."""

    at_us: int
    arrived: int
    waiting: int
    blocked_us: int

    def taken_eps(self, later: _Look) -> float:
        taken = later.arrived - later.waiting - self.arrived + self.waiting
        return max(0, taken) * 1e6 / max(1, later.at_us - self.at_us)

    def blocked_share(self, later: _Look) -> float:
        return (later.blocked_us - self.blocked_us) / max(1, later.at_us - self.at_us)


@dataclass(slots=True)
class _Arrivals:
    """One instance, at some moments of the last while."""

    seen: deque[_Look] = field(default_factory=deque)
    waiting: int = 0

    def add(self, look: _Look) -> None:
        if self.seen and (look.arrived < self.seen[-1].arrived or look.blocked_us < self.seen[-1].blocked_us):
            self.seen.clear()  # rolled back: it counts again from an earlier place
        self.seen.append(look)
        self.waiting = look.waiting
        while len(self.seen) > 2 and look.at_us - self.seen[1].at_us >= BLOCKED_WINDOW_US:
            self.seen.popleft()

    @property
    def eps(self) -> float:
        if len(self.seen) < 2:
            return 0.0
        last, first = self.seen[-1], self.seen[0]
        for look in self.seen:
            if last.at_us - look.at_us < RATE_WINDOW_US:
                break
            first = look
        return (last.arrived - first.arrived) * 1e6 / max(1, last.at_us - first.at_us)

    @property
    def taken_eps(self) -> float:
        """Records taken in each second."""
        return self.seen[0].taken_eps(self.seen[-1]) if self.seen else 0.0

    @property
    def is_blocked(self) -> bool:
        """Whether its outputs hold it up."""
        return len(self.seen) > 1 and self.seen[0].blocked_share(self.seen[-1]) >= BLOCKED_MIN

    @property
    def carried_eps(self) -> float | None:
        """Records taken in each second while some waited all the time: what the instance can carry; None otherwise."""
        if len(self.seen) < 2:
            return None
        before, last = self.seen[-2], self.seen[-1]
        if min(before.waiting, last.waiting) < SATURATED_RECORDS or before.blocked_share(last) >= BLOCKED_MIN:
            return None
        return before.taken_eps(last)


class Measures:
    """Keeps what was measured and puts it together, unit by unit."""

    def __init__(self, plan: Plan, cores: int, pins: Mapping[str, Form]) -> None:
        self._plan = plan
        self._cores = cores
        self._pins = pins
        self._arrivals: dict[tuple[int, int], _Arrivals] = {}
        self._costs = Costs()
        self._samples: Counter[tuple[int, int]] = Counter()
        self._steady: dict[str, tuple[str, int]] = {}
        """The form of each operation, and how often it was seen in it in a row."""
        self._figures: dict[str, OperationFigures] = {}
        self._using: dict[str, str] = {}
        """Which alternative computes, of operations that have changed it."""
        self._slots: dict[int, int] = {}
        self.widths: dict[tuple[int, int], int] = {}
        """By unit and operation that replicas compute: how many."""
        self._slack: dict[int, tuple[float, int]] = {}
        """By unit: the share of its record form's computed capacity that it had when it gave all it could, and when."""

    def slots_everywhere(self, workers: int) -> bool:
        """Whether every worker has slots that take its work."""
        return len(self._slots) == workers and all(self._slots.values())

    def forget_worker(self, worker: int) -> None:
        """A worker is lost: its successor has to find slots first."""
        self._slots.pop(worker, None)

    def on_pulse(self, pulse: m.Pulse) -> None:
        """Take rates and queues."""
        self._slots[pulse.worker] = pulse.slots
        for each in pulse.units:
            held = self._arrivals.setdefault((each.unit, each.instance), _Arrivals())
            held.add(_Look(pulse.at_us, each.arrived, each.waiting, each.blocked_us))

    @property
    def figures(self) -> Mapping[str, OperationFigures]:
        """The last figures by operation."""
        return self._figures

    def exchanged(self, name: str, before: str, after: str) -> None:
        """Another alternative of an operation computes, with other costs."""
        self._costs.exchange(name, before, after)
        self._steady.pop(name, None)
        self._using[name] = after
        for unit in self._plan.units:
            if any(spec.name == name for spec in unit.ops):
                for instance in range(unit.instances):
                    self._samples.pop((unit.id, instance), None)

    def on_calibrated(self, found: s.Calibrated) -> None:
        """Take the costs of both forms on a sample."""
        unit = self._plan.units[found.unit]
        for index, records in found.records_in.items():
            name = unit.name_at(index)
            if index in found.using and self._using.get(name, found.using[index]) != found.using[index]:
                continue  # of an alternative that has been exchanged meanwhile
            for form, taken_ns in ((Form.RECORD, found.record_ns), (Form.BATCH, found.batch_ns)):
                if index in taken_ns:
                    self._costs.sampled(name, form, found.instance, taken_ns[index] / records)
        self._samples[found.unit, found.instance] += 1

    def samples(self, unit: UnitSpec, instance: int) -> int:
        """How many samples of an instance have told the costs of both forms."""
        return self._samples[unit.id, instance]

    def _reached(self, name: str) -> bool:
        figures = self._figures.get(name)
        return figures is not None and figures.records_in > 0

    def on_figures(self, figures: list[OperationFigures]) -> None:
        """Take λ, and costs while blocks are large enough to tell: many small ones say what a block costs."""
        for each in figures:
            self._figures[each.name] = each
            form, looks = self._steady.get(each.name, (each.form, 0))
            looks = looks + 1 if form == each.form else 0
            self._steady[each.name] = each.form, looks
            if looks < STEADY_LOOKS:
                continue  # some of the records were handled in the other form
            if each.service_us > 0.0:
                much = each.block_records >= RECORDS_MIN or each.block_records * each.service_us >= BLOCK_WORK_US_MIN
                mean_ns, slowest_ns = each.service_us * 1000, each.slowest_us * 1000
                self._costs.heard(each.name, Form(each.form), mean_ns, slowest_ns, enough=much)

    def calibrated(self, form: Form) -> dict[str, float]:
        """Nanoseconds per record by operation in one form, as far as known."""
        return self._costs.means_ns(form)

    def units(self, slots: int, interval_us: int, now_us: int) -> list[UnitMeasure]:
        """Every unit as it is now."""
        return [self._unit(unit, slots, interval_us, now_us) for unit in self._plan.units if len(unit.movable)]

    def _watch_slack(self, unit: UnitSpec, held: list[_Arrivals], measure: UnitMeasure, now_us: int) -> float:
        """Compare what the record form should carry with what it does when it gives all it can.

        Costs are measured on an operation alone; a machine that others use too, or memory that is short, show here.
        """
        slack, seen_us = self._slack.get(unit.id, (1.0, now_us))
        if now_us > seen_us:
            slack = min(1.0, slack + (1.0 - slack) * (now_us - seen_us) / SLACK_BACK_US)
        taken = [each.carried_eps for each in held]
        computed = capacity_eps(measure.operations)
        if computed and taken and all(op.form is Form.RECORD for op in measure.operations):
            known = [each for each in taken if each is not None]
            if len(known) == len(taken):
                slack += SLACK_WEIGHT * (min(1.0, max(SLACK_MIN, sum(known) / computed)) - slack)
        self._slack[unit.id] = slack, now_us
        return slack

    def _unit(self, unit: UnitSpec, slots: int, interval_us: int, now_us: int) -> UnitMeasure:
        held = [each for (number, _), each in self._arrivals.items() if number == unit.id]
        arrival_eps, queue = sum(each.eps for each in held), self._queue(unit, held)
        names = [unit.name] if unit.source is not None else []
        names += [spec.name for spec in unit.ops]
        first = -1 if unit.source is not None else 0
        operations: list[OpMeasure] = []
        reach = 1.0
        for index, name in enumerate(names, start=first):
            figures = self._figures.get(name)
            selectivity = figures.selectivity if figures is not None and figures.records_in else 1.0
            form = Form(figures.form) if figures is not None else Form.RECORD
            operations.append(
                OpMeasure(
                    name=name,
                    unit=unit.id,
                    index=index,
                    form=form,
                    switchable=index in unit.movable,
                    pinned=self._pins.get(name),
                    arrival_eps=arrival_eps * reach,
                    record_eps=self._eps(
                        self._mean_ns(name, Form.RECORD),
                        self.widths.get((unit.id, index), min(self._plan.processes(unit), self._cores)),
                    ),
                    batch_eps=self._batch_eps(unit, index, name, min(max(1, slots), self._cores)),
                    selectivity=selectivity,
                    queue_records=queue * reach,
                )
            )
            reach *= selectivity
        schedule_us = [f.schedule_us for n in names if (f := self._figures.get(n)) is not None and f.schedule_us > 0]
        measure = UnitMeasure(
            unit=unit.id,
            operations=tuple(operations),
            interval_us=interval_us,
            schedule_us=schedule_us[0] if schedule_us else SCHEDULE_US,
            batch_transmit_us=TRANSMIT_US,
            record_transmit_us=self._transmit_us(unit),
            queue_records=queue,
            arrival_eps=arrival_eps,
            spread=self._spread(operations),
            relieved=self._relieved(unit, held),
            processes=self._plan.processes(unit),
        )
        slack = self._watch_slack(unit, held, measure, now_us)
        if slack == 1.0:
            return measure
        slower = [replace(op, record_eps=op.record_eps * slack if op.record_eps else None) for op in operations]
        return replace(measure, operations=tuple(slower))

    def _batch_eps(self, unit: UnitSpec, index: int, name: str, width: int) -> float | None:
        cost_ns, record_ns = self._mean_ns(name, Form.BATCH), self._mean_ns(name, Form.RECORD)
        spec = unit.ops[index] if index >= 0 else None
        if (
            cost_ns is None
            and spec is not None
            and (spec.operation.batch_kind is not BatchKind.VECTORISED or not self._reached(name))
        ):
            # Before it has been tried: a sink, or a function without a batch form, costs what it costs.
            cost_ns = record_ns
        elif cost_ns is None and record_ns is not None and unit.movable.start <= 0 and index >= unit.repeatable.stop:
            cost_ns = record_ns / ASSUMED_GAIN
        return self._eps(cost_ns, width)

    def _mean_ns(self, name: str, form: Form) -> float | None:
        cost = self._costs.of(name, form)
        return None if cost is None else cost.mean_ns

    @staticmethod
    def _eps(cost_ns: float | None, width: int) -> float | None:
        return None if cost_ns is None or cost_ns <= 0.0 else width * 1e9 / cost_ns

    def _spread(self, operations: Sequence[OpMeasure]) -> float:
        """By how much a record takes longer in the slowest instance than on average, in record form."""
        mean_ns = slowest_ns = 0.0
        for op, reach in zip(operations, reaches(operations), strict=True):
            cost = self._costs.of(op.name, Form.RECORD)
            if cost is not None:
                mean_ns, slowest_ns = mean_ns + reach * cost.mean_ns, slowest_ns + reach * cost.slowest_ns
        return slowest_ns / mean_ns if mean_ns > 0.0 else 1.0

    def _relieved(self, unit: UnitSpec, held: Sequence[_Arrivals]) -> Relieved | None:
        """The unit without back-pressure, if there is some: an instance that waits for its outputs has no load."""
        free = [each for each in held if not each.is_blocked]
        if len(free) == len(held):
            return None
        taken_eps = sum(each.taken_eps for each in held)
        load_eps = sum(min(each.eps, each.taken_eps) if each.is_blocked else each.eps for each in held)
        return Relieved(taken_eps=taken_eps, arrival_eps=load_eps, queue_records=self._queue(unit, free))

    def _queue(self, unit: UnitSpec, held: Sequence[_Arrivals]) -> float:
        queue = float(sum(each.waiting for each in held))
        if unit.source is None and queue > self._plan.options.queue_records / 2:
            queue += self._behind(unit)
        return queue

    def _behind(self, unit: UnitSpec) -> float:
        """Records that wait further up because this unit is full, as many as will reach it."""
        waiting = 0.0
        for edge in self._plan.inputs(unit.id):
            producer = self._plan.units[edge.producer]
            queued = float(sum(each.waiting for (number, _), each in self._arrivals.items() if number == producer.id))
            for spec in producer.ops[: edge.op_index + 1]:
                figures = self._figures.get(spec.name)
                queued *= figures.selectivity if figures is not None and figures.records_in else 1.0
            waiting += queued
        return waiting

    def _transmit_us(self, unit: UnitSpec) -> float:
        """Mean time from a unit's last operation to the next unit, without the time in that unit's queue.

        Whichever form the records come from, they wait there as long (L = λW: so many wait, so many come in a second).
        """
        outputs = [edge for edge in self._plan.outputs(unit.id) if edge.op_index == len(unit.ops) - 1]
        for edge in outputs:
            consumer = self._plan.units[edge.consumer]
            if consumer.ops and (figures := self._figures.get(consumer.ops[0].name)) is not None:
                queued_us = 1e6 * figures.queue_records / figures.in_eps if figures.in_eps > 0.0 else 0.0
                return max(0.0, figures.transmit_us - queued_us)
        return 0.0
