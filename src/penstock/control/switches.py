"""Switches of form from wish to effect, one at a time for each unit: prepare, switch, run. Pure.

=========  =======================================  ===========================================  =========
unit       event                                    effect                                       next
=========  =======================================  ===========================================  =========
STEADY     wanted: a range                          slots are wanted                             PREPARING
STEADY     wanted: none (back), or replicas, of     Switch to all                               SWITCHING
           which only those that are up are taken
PREPARING  slots are up, everywhere                 Switch to all                               SWITCHING
PREPARING  too long                                 the switch has failed                        STEADY
SWITCHING  Changed by every instance                the switch is done, and measured             STEADY
any        no slots are left for its range          Switch to all: back                         SWITCHING
any        a recovery is over                       Switch to all again: rebuilt instances run  same
                                                    their chain in record form
=========  =======================================  ===========================================  =========
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from penstock.control.changes import CHANGES_MAX, ChangeReport
from penstock.operators import Form
from penstock.pipeline.plan import Plan, UnitSpec
from penstock.pipeline.ranges import NONE, Range
from penstock.protocol import messages as m

PREPARE_US_MAX = 10_000_000


@dataclass(slots=True)
class _Pending:
    number: int
    range: Range
    since_us: int
    record: ChangeReport
    replicas: tuple[int, ...] = ()
    sent_us: int | None = None
    waiting: set[int] = field(default_factory=set)

    @property
    def needs_slots(self) -> bool:
        return bool(self.range) and not self.replicas


@dataclass(slots=True)
class _UnitState:
    range: Range = NONE
    replicas: tuple[int, ...] = ()
    """Those that compute the range; none: slots do."""
    number: int = 0
    interval_us: int = 0
    pending: _Pending | None = None

    @property
    def batch(self) -> Range:
        """What is in batch form."""
        return NONE if self.replicas else self.range

    def message(self, unit: int) -> m.Switch:
        return m.Switch(
            number=self.number,
            unit=unit,
            range=self.range,
            interval_us=self.interval_us,
            replicas=self.replicas,
        )


@dataclass(frozen=True, slots=True)
class SwitchEnded:
    """A unit runs as it was to, or does not (``failed``): what is in batch form now."""

    unit: int
    range: Range
    failed: bool


@dataclass(frozen=True, slots=True)
class FormView:
    """The form of a unit as the driver wants it, to be looked at."""

    range: Range
    pending: int | None
    """Number of the switch that is under way."""
    sent_us: int | None
    waiting: frozenset[int]
    """Instances that have not made it."""
    replicas: tuple[int, ...] = ()
    """Those that compute the range; none: slots do."""


class Switches:
    """Carries switches out."""

    def __init__(self, plan: Plan, numbers: Iterator[int] | None = None) -> None:
        self.reports: list[ChangeReport] = []
        self._plan = plan
        self._units = {unit.id: _UnitState() for unit in plan.units}
        self._numbers = numbers or count(1)

    @property
    def wants_slots(self) -> bool:
        """Whether some range is, or is to be, in batch form."""
        return self.is_away or any(
            state.pending is not None and state.pending.needs_slots for state in self._units.values()
        )

    @property
    def is_away(self) -> bool:
        """Whether some range is in batch form, or on its way there."""
        return any(state.batch for state in self._units.values())

    @property
    def is_busy(self) -> bool:
        """Whether a switch of any unit is under way."""
        return any(state.pending is not None for state in self._units.values())

    def range(self, unit: int) -> Range:
        """What is in batch form now."""
        return self._units[unit].batch

    def replicas(self, unit: int) -> tuple[Range, tuple[int, ...]]:
        """What is in replicas now, and their numbers."""
        state = self._units[unit]
        return (state.range, state.replicas) if state.replicas else (NONE, ())

    def inspect(self) -> dict[int, FormView]:
        """A read-only view by unit."""
        return {
            unit: FormView(
                state.range,
                state.pending.number if state.pending is not None else None,
                state.pending.sent_us if state.pending is not None else None,
                frozenset(state.pending.waiting) if state.pending is not None else frozenset(),
                state.replicas,
            )
            for unit, state in self._units.items()
        }

    def is_here(self, unit: int) -> bool:
        """Whether all of a unit is computed by its own instances, and no switch says otherwise."""
        return not self.range(unit) and not self.busy(unit)

    def busy(self, unit: int) -> bool:
        """Whether a switch of the unit is under way."""
        return self._units[unit].pending is not None

    def begin(
        self,
        unit: UnitSpec,
        chosen: Range,
        reason: str,
        inputs: dict[str, float],
        at_s: float,
        now_us: int,
        replicas: tuple[int, ...] = (),
    ) -> None:
        """Begin a switch, to these replicas or to slots; a unit that is busy finishes the one before first."""
        state = self._units[unit.id]
        if state.pending is not None or (chosen, replicas) == (state.range, state.replicas):
            return
        before, after = set(state.range), set(chosen)
        changed = before ^ after if not replicas and not state.replicas else before | after
        names = [_name(unit, index) for index in sorted(changed)]
        to = Form.BATCH if len(after) >= len(before) or (after and state.replicas) else Form.RECORD
        told = f"{len(replicas)} replicas" if replicas else to.value
        record = ChangeReport(at_s=round(at_s, 3), operations=names, to=told, reason=reason, inputs=inputs)
        state.pending = _Pending(next(self._numbers), chosen, now_us, record, replicas)

    def call_back(self, reason: str, at_s: float, now_us: int) -> None:
        """Bring every range back, also those whose switch is not over: without slots it never would be."""
        for unit in self._plan.units:
            state = self._units[unit.id]
            if state.batch:
                state.pending = None
                self.begin(unit, NONE, reason, {}, at_s, now_us)

    def tick(self, slots_everywhere: bool, interval_us: int, now_us: int) -> tuple[list[m.Switch], list[SwitchEnded]]:
        """Return the switches to be sent to all workers now, and switches that have failed."""
        due: list[m.Switch] = []
        failed: list[SwitchEnded] = []
        for unit, state in self._units.items():
            pending = state.pending
            if pending is None or pending.sent_us is not None:
                continue
            if pending.needs_slots and not slots_everywhere:
                if now_us - pending.since_us > PREPARE_US_MAX:
                    state.pending = None
                    failed.append(SwitchEnded(unit, state.batch, failed=True))
                continue
            pending.sent_us = now_us
            pending.record.prepare_ms = (now_us - pending.since_us) / 1000
            pending.waiting = set(range(self._plan.units[unit].instances))
            state.range, state.replicas, state.number = pending.range, pending.replicas, pending.number
            state.interval_us = interval_us
            due.append(state.message(unit))
        return due, failed

    def repeat(self) -> list[m.Switch]:
        """The standing switches, for instances that were built anew."""
        return [state.message(unit) for unit, state in self._units.items() if state.number]

    def pace(self, unit: int, interval_us: int) -> list[m.Switch]:
        """Change how long the unit's micro-batches gather."""
        state = self._units[unit]
        if state.pending is not None or not state.batch or state.interval_us == interval_us:
            return []
        state.interval_us = interval_us
        return [state.message(unit)]

    def on_changed(self, message: m.Changed, now_us: int) -> list[SwitchEnded]:
        """An instance runs as it was to; when all do, the switch is done."""
        state = self._units[message.unit]
        pending = state.pending
        if pending is None or pending.number != message.number:
            return []
        record = pending.record
        record.pause_ms = max(record.pause_ms, message.pause_us / 1000)
        if message.instance in pending.waiting:
            record.carried_records += message.carried_records
        pending.waiting.discard(message.instance)
        if pending.waiting:
            return []
        record.total_ms = (now_us - pending.since_us) / 1000
        self.reports.append(record)
        del self.reports[:-CHANGES_MAX]
        state.pending = None
        return [SwitchEnded(message.unit, state.batch, failed=False)]


def _name(unit: UnitSpec, index: int) -> str:
    return unit.name if index < 0 else unit.ops[index].name
