"""A change of form as one unit instance sees it: what is wanted, and how long nobody behind it got an output."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.line import Range
from penstock.protocol import messages as m

READY_US_MAX = 1_000_000
"""So long a switch waits at the most for slots to build the operations that they are to run."""


@dataclass(frozen=True, slots=True)
class Switch:
    """Compute a range of operations in slots, or replicas, from the next item on; an empty range: everything here."""

    number: int
    range: Range
    interval_us: int = 50_000
    """How long a micro-batch gathers at the most."""
    replicas: tuple[int, ...] = ()
    """The replicas that compute it; none: slots do."""


@dataclass(slots=True)
class Switched:
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

    def message(self, worker: int, incarnation: int, unit: int, instance: int) -> m.Switched:
        """What the driver is told."""
        return m.Switched(
            worker=worker,
            incarnation=incarnation,
            switch=self.number,
            unit=unit,
            instance=instance,
            pause_us=self.pause_us,
            carried_records=self.carried_records,
            case=self.case,
            moved_records=self.moved_records,
            warm_us=self.warm_us,
        )


class Switches:
    """The switches of one unit instance: one is wanted at the most, some have not given an output yet."""

    def __init__(self) -> None:
        self.ordered: Switch | None = None
        """One that slots get ready for, while the way before goes on."""
        self._ordered_us: int | None = None
        self.wanted: Switch | None = None
        self.over: list[Switched] = []
        """Those that nobody was told of yet."""
        self.measured: list[Switched] = []
        """Those made last, while the new way has given no output yet."""

    @property
    def is_calm(self) -> bool:
        """Whether no switch is to be made, and none is being measured."""
        return self.ordered is None and self.wanted is None and not self.measured

    @property
    def is_due(self) -> bool:
        """Whether another form has not been taken up."""
        return self.ordered is not None or self.wanted is not None

    def order(self, switch: Switch) -> None:
        """Have slots get ready for a switch."""
        self.ordered, self._ordered_us = switch, None

    def has_waited(self, now_us: int) -> bool:
        """Whether slots had time enough to get ready."""
        if self._ordered_us is None:
            self._ordered_us = now_us
        return now_us - self._ordered_us >= READY_US_MAX

    def begin(self, switch: Switch, now_us: int, waiting_records: int) -> None:
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
        self.measured.append(Switched(number, left_us, waiting_records, 0, case, moved_records, warm_us))

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
        for switch in (self.ordered, self.wanted):
            if switch is not None:
                self.over.append(Switched(switch.number, 0, 0))
        self.ordered = self.wanted = None

    def take(self) -> list[Switched]:
        """Take the switches that are over."""
        over, self.over = self.over, []
        return over
