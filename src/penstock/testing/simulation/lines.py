"""What must hold of a worker's detours and of the slots it knows, after every step it takes."""

from __future__ import annotations

from collections import Counter

from penstock.engine.detour import Detour, Item, Marker
from penstock.engine.pool import DEPTH, SlotPool
from penstock.engine.worker import Worker
from penstock.protocol import slots as s
from penstock.testing.simulation.world import Violation


class LineAudit:
    """Looks at one worker again and again."""

    def __init__(self) -> None:
        self.closing = False
        """Whether some unit, at the last look, waited for results on its way back."""
        self.markers = False
        """Whether a marker waited behind something."""
        self._closed: dict[Detour, int] = {}
        """By detour that is on its way back and holds nothing to cut any more: its last micro-batch."""
        self._expected = False

    def check(self, worker: Worker) -> None:
        """Raise Violation if something cannot be."""
        pool = worker._desk.pool
        held = _held(pool)
        waiting: Counter[int] = Counter()
        self.closing = self.markers = False
        for unit in worker.units:
            detour = unit.detour
            if detour is None:
                continue
            where = f"{unit.spec.name}.{unit.instance}"
            waiting.update(_check_line(where, detour))
            self.closing = self.closing or (detour.closing and not detour.is_empty)
            self.markers = self.markers or any(isinstance(each, Marker) for each in detour.line)
            self._check_closed(where, detour)
        if held != waiting:
            nowhere, nobody = list((waiting - held).elements()), list((held - waiting).elements())
            raise Violation(f"micro-batches {nowhere} are in line and nowhere else; {nobody} are out for nobody")
        for known in pool._known.values():
            if len(known.work) > DEPTH:
                raise Violation(f"slot {known.ready.incarnation} has {len(known.work)} micro-batches of one worker")

    def _check_closed(self, where: str, detour: Detour) -> None:
        if not detour.closing or detour.gathering:
            return
        newest = max((each.item for each in detour.line if isinstance(each, Item)), default=0)
        if newest > self._closed.setdefault(detour, newest):
            raise Violation(f"{where} cuts micro-batch {newest} although it is on its way back")

    def before(self, worker: Worker, message: s.FromSlot) -> None:
        """Work out whether a result that has come may be taken."""
        if isinstance(message, s.Done):
            known = worker._desk.pool._known.get(message.incarnation)
            work = known.work.get(message.item) if known is not None else None
            self._expected = work is not None and work.do.attempt == message.attempt

    def after(self, worker: Worker, message: s.FromSlot) -> None:
        """Raise Violation if a result was taken that was not expected."""
        if isinstance(message, s.Done) and not self._expected:
            for unit in worker.units:
                for each in unit.detour.line if unit.detour is not None else ():
                    if isinstance(each, Item) and each.result is not None and each.result.done is message:
                        raise Violation(f"{unit.spec.name}.{unit.instance} takes {message}, which is of the past")


def _held(pool: SlotPool) -> Counter[int]:
    held = Counter(work.do.item for work in pool._unsent)
    for known in pool._known.values():
        held.update(known.work.keys())
    return held


def _check_line(where: str, detour: Detour) -> list[int]:
    """Check that the line's ids follow each other; return the micro-batches that are away."""
    away: list[int] = []
    next_id: int | None = None
    for each in detour.line:
        if next_id is not None and each.first != next_id:
            raise Violation(f"{where}: {each.first}..{each.last} is in line behind {next_id - 1}")
        next_id = each.last + 1
        if isinstance(each, Item) and each.result is None and each.local is None:
            away.append(each.item)
    return away
