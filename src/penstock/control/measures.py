"""What the switcher is told of every unit: rates and queues from pulses, costs from samples and heartbeats. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from penstock.control.candidates import capacity_eps
from penstock.control.forms import OpMeasure, UnitMeasure
from penstock.control.monitor import OperationFigures
from penstock.operators import BatchKind, Form
from penstock.pipeline.plan import Plan, UnitSpec
from penstock.protocol import messages as m
from penstock.protocol import slots as s

RATE_WINDOW_US = 400_000
"""Arrival rates are those of so long: short, because bursts are."""
SCHEDULE_US = 5_000
"""From a micro-batch's cut to its begin, before it was measured."""
TRANSMIT_US = 1_000
RECORDS_MIN = 256
"""Costs are taken from heartbeats in which an operation handled at least so many records in a block on average."""
WEIGHT = 0.3
SATURATED_RECORDS = 1_000
"""An instance before which so many records wait all the time gives all it can."""
SLACK_MIN = 0.1
SLACK_WEIGHT = 0.5
SLACK_BACK_US = 30_000_000
"""Time in which what was once seen of a crowded machine is forgotten."""
STEADY_LOOKS = 4
"""Figures count for a form's costs when the operation has been in it for so many heartbeats."""


@dataclass(slots=True)
class _Arrivals:
    """Arrived so far at one instance, at some moments of the last while."""

    seen: deque[tuple[int, int, int]] = field(default_factory=deque)
    waiting: int = 0

    def add(self, at_us: int, arrived: int, waiting: int) -> None:
        if self.seen and arrived < self.seen[-1][1]:
            self.seen.clear()  # rolled back: it counts again from an earlier place
        self.seen.append((at_us, arrived, waiting))
        self.waiting = waiting
        while len(self.seen) > 2 and at_us - self.seen[1][0] >= RATE_WINDOW_US:
            self.seen.popleft()

    @property
    def eps(self) -> float:
        if len(self.seen) < 2:
            return 0.0
        (first_us, first, _), (last_us, last, _) = self.seen[0], self.seen[-1]
        return (last - first) * 1e6 / max(1, last_us - first_us)

    @property
    def taken_eps(self) -> float | None:
        """Records taken in each second while some waited all the time: what the instance can carry; None otherwise."""
        if len(self.seen) < 2:
            return None
        (first_us, first, waited), (last_us, last, waits) = self.seen[-2], self.seen[-1]
        if min(waited, waits) < SATURATED_RECORDS:
            return None
        return (last - waits - first + waited) * 1e6 / max(1, last_us - first_us)


class Measures:
    """Keeps what was measured and puts it together, unit by unit."""

    def __init__(self, plan: Plan, cores: int, pins: dict[str, Form]) -> None:
        self._plan = plan
        self._cores = cores
        self._pins = pins
        self._arrivals: dict[tuple[int, int], _Arrivals] = {}
        self._record_ns: dict[str, float] = {}
        self._batch_ns: dict[str, float] = {}
        self._sampled: set[str] = set()
        self._samples: dict[int, int] = {}
        self._steady: dict[str, tuple[str, int]] = {}
        """The form of each operation, and how often it was seen in it in a row."""
        self._figures: dict[str, OperationFigures] = {}
        self._slots: dict[int, int] = {}
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
            held.add(pulse.at_us, each.arrived, each.waiting)

    def on_calibrated(self, found: s.Calibrated) -> None:
        """Take the costs of both forms on a sample; the least of several, for whatever disturbs one only adds to it."""
        unit = self._plan.units[found.unit]
        for index, records in found.records_in.items():
            name = unit.name if index < 0 else unit.ops[index].name
            for costs, taken_ns in ((self._record_ns, found.record_ns), (self._batch_ns, found.batch_ns)):
                if index in taken_ns:
                    cost_ns = taken_ns[index] / records
                    costs[name] = min(cost_ns, costs[name]) if name in self._sampled else cost_ns
            self._sampled.add(name)
        self._samples[found.unit] = self.samples(unit) + 1

    def samples(self, unit: UnitSpec) -> int:
        """How many samples have told the costs of both forms."""
        return self._samples.get(unit.id, 0)

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
            costs = self._batch_ns if each.form == Form.BATCH.value else self._record_ns
            if each.block_records < RECORDS_MIN and each.name in costs:
                continue
            if each.service_us > 0.0:
                cost_ns = each.service_us * 1000
                known = costs.get(each.name)
                costs[each.name] = cost_ns if known is None else known + WEIGHT * (cost_ns - known)

    def calibrated(self, form: Form) -> dict[str, float]:
        """Nanoseconds per record by operation in one form, as far as known."""
        return dict(self._record_ns if form is Form.RECORD else self._batch_ns)

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
        taken = [each.taken_eps for each in held]
        computed = capacity_eps(measure.operations)
        if computed and taken and all(op.form is Form.RECORD for op in measure.operations):
            known = [each for each in taken if each is not None]
            if len(known) == len(taken):
                slack += SLACK_WEIGHT * (min(1.0, max(SLACK_MIN, sum(known) / computed)) - slack)
        self._slack[unit.id] = slack, now_us
        return slack

    def _unit(self, unit: UnitSpec, slots: int, interval_us: int, now_us: int) -> UnitMeasure:
        held = [each for (number, _), each in self._arrivals.items() if number == unit.id]
        arrival_eps, queue = sum(each.eps for each in held), float(sum(each.waiting for each in held))
        if unit.source is None and queue > self._plan.options.queue_records / 2:
            queue += self._behind(unit)
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
                    record_eps=self._eps(self._record_ns.get(name), min(unit.instances, self._cores)),
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
        )
        slack = self._watch_slack(unit, held, measure, now_us)
        if slack == 1.0:
            return measure
        slower = [replace(op, record_eps=op.record_eps * slack if op.record_eps else None) for op in operations]
        return replace(measure, operations=tuple(slower))

    def _batch_eps(self, unit: UnitSpec, index: int, name: str, width: int) -> float | None:
        cost_ns = self._batch_ns.get(name)
        spec = unit.ops[index] if index >= 0 else None
        if (
            cost_ns is None
            and spec is not None
            and (spec.operation.batch_kind is not BatchKind.VECTORISED or not self._reached(name))
        ):
            # Before it has been tried: a sink, or a function without a batch form, costs what it costs.
            cost_ns = self._record_ns.get(name)
        return self._eps(cost_ns, width)

    @staticmethod
    def _eps(cost_ns: float | None, width: int) -> float | None:
        return None if cost_ns is None or cost_ns <= 0.0 else width * 1e9 / cost_ns

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
        """Mean time from a unit's last operation to the next unit."""
        outputs = [edge for edge in self._plan.outputs(unit.id) if edge.op_index == len(unit.ops) - 1]
        for edge in outputs:
            consumer = self._plan.units[edge.consumer]
            if consumer.ops and (figures := self._figures.get(consumer.ops[0].name)) is not None:
                return figures.transmit_us
        return 0.0
