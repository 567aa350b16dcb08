"""What must hold of the lines of a worker's units and of the slots it knows, after every step it takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from penstock.engine.inspect import UnitView, WorkerView
from penstock.engine.line import Item, Marker
from penstock.engine.snapshot import InstanceId
from penstock.engine.ways.pool import DEPTH
from penstock.protocol import slots as s
from penstock.testing.simulation.world import Violation


class LineAudit:
    """Looks at one worker again and again."""

    def __init__(self) -> None:
        self.closing = False
        """Whether some unit, at the last look, waited for results before it could switch."""
        self.markers = False
        """Whether a marker waited behind something."""
        self._closed: dict[InstanceId, int] = {}
        """By unit that waits to switch and has nothing gathered: its last micro-batch."""
        self._expected = False
        self._complete: set[int] = set()

    def check(self, worker: WorkerView) -> None:
        """Raise Violation if something cannot be."""
        held = list(worker.unsent)
        for slot in worker.slots:
            held += slot.work
            if len(slot.work) > DEPTH:
                raise Violation(f"slot {slot.incarnation} has {len(slot.work)} micro-batches of one worker")
        waiting: list[int] = []
        self.closing = self.markers = False
        for unit in worker.units:
            line = unit.line
            if line:
                waiting += _check_line(unit.name, line)
                self.closing = self.closing or unit.is_switching
                self.markers = self.markers or any(isinstance(each, Marker) for each in line)
            self._check_closed(unit, line)
        if sorted(held) != sorted(waiting):
            nowhere, nobody = Counter(waiting) - Counter(held), Counter(held) - Counter(waiting)
            raise Violation(
                f"micro-batches {list(nowhere.elements())} are in line and nowhere else; "
                f"{list(nobody.elements())} are out for nobody"
            )

    def _check_closed(self, unit: UnitView, line: Sequence[Item | Marker]) -> None:
        if not line or not unit.is_switching or unit.is_careful or unit.gathers:
            self._closed.pop(unit.key, None)
            return
        newest = max((each.number for each in line if isinstance(each, Item)), default=0)
        if newest > self._closed.setdefault(unit.key, newest):
            raise Violation(f"{unit.name} cuts micro-batch {newest} although it is to switch")

    def before(self, worker: WorkerView, message: s.FromSlot) -> None:
        """Work out whether a result that has come may be taken."""
        if isinstance(message, s.Done):
            self._complete = _complete(worker)
            self._expected = any(
                slot.incarnation == message.incarnation and slot.work.get(message.item) == message.attempt
                for slot in worker.slots
            )

    def after(self, worker: WorkerView, message: s.FromSlot) -> None:
        """Raise Violation if a result was taken that was not expected."""
        if isinstance(message, s.Done) and not self._expected and _complete(worker) != self._complete:
            raise Violation(f"{message} is taken, which is of the past")


def _complete(worker: WorkerView) -> set[int]:
    """Micro-batches in line that have their result."""
    lines = [each for unit in worker.units for each in unit.line]
    return {each.number for each in lines if isinstance(each, Item) and each.result is not None}


def _check_line(name: str, line: Sequence[Item | Marker]) -> list[int]:
    """Check that micro-batches are in line in the order in which they were cut; return those that are away."""
    away: list[int] = []
    before = 0
    for each in line:
        if not isinstance(each, Item) or not each.number:
            continue
        if each.number <= before:
            raise Violation(f"{name}: {each.number} is in line behind {before}")
        before = each.number
        if not each.is_complete:
            away.append(each.number)
    return away
