"""The law of the switch point applied to a measured unit, and decisions in words; the switcher calls it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.control.candidates import UnitMeasure, capacity_eps, reaches
from penstock.control.laws.switch_point import US_PER_S, SwitchInputs, SwitchPoint, switch_point
from penstock.operators import Form
from penstock.pipeline.ranges import NONE, Range


@dataclass(frozen=True, slots=True)
class WantedSwitch:
    """One change of form.

    Attributes
    ----------
    operations : tuple of str
        The operations that change, in chain order.
    chosen : Range
        All that shall be in batch form afterwards.
    to : Form
        The form that ``operations`` change to.
    reason : str
        One line for people.
    inputs : dict
        The law's inputs and results at the switch point, as measured when it was decided.
    """

    unit: int
    operations: tuple[str, ...]
    chosen: Range
    to: Form
    reason: str
    inputs: dict[str, float]
    at_us: int

    @staticmethod
    def between(
        unit: UnitMeasure, before: range, after: range, reason: str, inputs: dict[str, float], at_us: int
    ) -> WantedSwitch:
        """Name the change from one set of positions in batch form to another, one of which contains the other."""
        offset = unit.operations[0].index
        chosen = Range(after.start + offset, after.stop - 1 + offset) if after else NONE
        names = tuple(unit.operations[position].name for position in sorted(set(before) ^ set(after)))
        to = Form.BATCH if len(after) > len(before) else Form.RECORD
        return WantedSwitch(unit.unit, names, chosen, to, reason, inputs, at_us)


@dataclass(frozen=True, slots=True)
class AppliedLaw:
    """A unit with the law applied to it, at one operation: V, PD, PO and L are what they are there."""

    law: SwitchPoint
    unit: UnitMeasure
    arrival_eps: float
    record_eps: float
    batch_eps: float
    queue_records: float

    @staticmethod
    def of(unit: UnitMeasure, span: range, delta: float) -> AppliedLaw | None:
        """Apply the law at the first of the positions ``span``; None if there are none, or rates are unknown."""
        record_eps, batch_eps = capacity_eps(unit.operations), capacity_eps(unit.operations, span)
        if not span or record_eps is None or batch_eps is None:
            return None
        # All of the law's terms are in proportion to the reach. Where no record gets to, it is applied before the unit.
        reach = reaches(unit.operations)[span.start] or 1.0
        here = SwitchInputs(
            unit.arrival_eps * reach,
            record_eps * reach,
            batch_eps * reach,
            unit.interval_us,
            unit.schedule_us,
            unit.batch_transmit_us,
            unit.record_transmit_us,
        )
        # Inside a chain no queue is real but the one before a range in batch form.
        queue_records = max(unit.queue_records * reach, unit.operations[span.start].queue_records)
        law = switch_point(here, delta)
        return AppliedLaw(law, unit, here.arrival_eps, here.record_eps, here.batch_eps, queue_records)

    @property
    def backlog_records(self) -> float:
        """What waits in batch form besides the micro-batch that is being collected."""
        return max(0.0, self.queue_records - self.arrival_eps * self.unit.interval_us / US_PER_S)

    def left_records(self, after_s: float) -> float:
        """What the record form leaves of the queue after a while; a queue that grows counts as it is."""
        return self.queue_records - max(0.0, self.record_eps - self.arrival_eps) * after_s

    def inputs(self) -> dict[str, float]:
        """The figures that a switch is decided on."""
        unit, law = self.unit, self.law
        rates = {"V": self.arrival_eps, "PD": self.record_eps, "PO": self.batch_eps}
        times = {"T_ms": unit.interval_us, "t_s_ms": unit.schedule_us, "t_ot_ms": unit.batch_transmit_us}
        times |= {"t_dt_ms": unit.record_transmit_us, "C_ms": law.c_us}
        queues = {"L": self.queue_records, "backlog": self.backlog_records, "L_switch": law.switch_records}
        queues |= {"L_up": law.up_records, "L_down": law.down_records}
        found = {name: round(value, 1) for name, value in (rates | queues).items()}
        found |= {name: round(value / 1_000, 3) for name, value in times.items()}
        gain = self.batch_eps / self.record_eps
        return found | {"K": round(law.k, 4), "gain": round(gain, 2), "spread": round(unit.spread, 2)}
