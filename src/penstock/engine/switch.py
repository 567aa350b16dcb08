"""A change of what computes, in one unit instance: what is wanted, and how long nobody behind it got an output."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.pipeline.plan import Plan, UnitSpec
from penstock.pipeline.ranges import Range
from penstock.protocol import messages as m

READY_US_MAX = 1_000_000
"""So long a switch waits at the most for slots to build the operations that they are to run."""


@dataclass(slots=True)
class Change:
    """A switch of form, or an exchange of alternatives, that an instance has made."""

    number: int
    left_us: int
    """When the way before gave its last output."""
    carried_records: int
    """Records that waited at that moment."""
    pause_us: int = 0
    case: str = ""
    """How an alternative stood to the one before it when they synchronised."""
    moved_records: int = 0
    warm_us: int = 0

    def message(self, worker: int, incarnation: int, unit: int, instance: int) -> m.Changed:
        """What the driver is told."""
        return m.Changed(
            worker=worker,
            incarnation=incarnation,
            number=self.number,
            unit=unit,
            instance=instance,
            pause_us=self.pause_us,
            carried_records=self.carried_records,
            case=self.case,
            moved_records=self.moved_records,
            warm_us=self.warm_us,
        )


def at_first(plan: Plan, spec: UnitSpec) -> m.Switch | None:
    """The switch that every instance of a unit begins with: part of the unit runs nowhere but in slots."""
    whole = plan.whole(spec)
    if not whole:
        return None
    away = Range(whole[0], whole[-1])
    return m.Switch(number=0, unit=spec.id, range=away, interval_us=plan.options.interval_us)


class Changes:
    """The changes of one unit instance: one switch is wanted at the most, some changes have not given an output yet."""

    def __init__(self) -> None:
        self.pending: m.Switch | None = None
        """One that slots get ready for, while the way before goes on."""
        self._pending_us: int | None = None
        self.wanted: m.Switch | None = None
        self.over: list[Change] = []
        """Those that nobody was told of yet."""
        self.measured: list[Change] = []
        """Those made last, while the new way has given no output yet."""

    @property
    def is_calm(self) -> bool:
        """Whether no switch is to be made, and no change is being measured."""
        return self.pending is None and self.wanted is None and not self.measured

    @property
    def is_due(self) -> bool:
        """Whether another form has not been taken up."""
        return self.pending is not None or self.wanted is not None

    def prepare(self, switch: m.Switch) -> None:
        """Have slots get ready for a switch."""
        self.pending, self._pending_us = switch, None

    def has_waited(self, now_us: int) -> bool:
        """Whether slots had time enough to get ready."""
        if self._pending_us is None:
            self._pending_us = now_us
        return now_us - self._pending_us >= READY_US_MAX

    def begin(self, switch: m.Switch, now_us: int, waiting_records: int) -> None:
        """The new way has taken over."""
        self.wanted = None
        self.made(switch.number, now_us, waiting_records)

    def made(
        self,
        number: int,
        left_us: int,
        waiting_records: int,
        *,
        case: str = "",
        moved_records: int = 0,
        warm_us: int = 0,
    ) -> None:
        """Something else computes from now on."""
        change = Change(number=number, left_us=left_us, carried_records=waiting_records)
        change.case, change.moved_records, change.warm_us = case, moved_records, warm_us
        self.measured.append(change)

    def output(self, due_us: int, now_us: int) -> None:
        """The new way has given its first output: the pause is over."""
        for held in self.measured:
            held.pause_us = max(0, now_us - max(held.left_us, due_us))
        self.nothing_to_do()

    def nothing_to_do(self) -> None:
        """Nothing waits for the new way: nobody has waited for it either."""
        self.over += self.measured
        self.measured.clear()

    def end(self) -> None:
        """Whoever has ended computes nothing, in the old way or the new: every switch is made."""
        self.nothing_to_do()
        for switch in (self.pending, self.wanted):
            if switch is not None:
                self.over.append(Change(number=switch.number, left_us=0, carried_records=0))
        self.pending = self.wanted = None

    def take(self) -> list[Change]:
        """Take the changes that are over."""
        over, self.over = self.over, []
        return over
