"""Records that wait until event time has passed them, and are taken in its order then, whatever order they came in."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import Any

from penstock.operators.keyed.match_once import order_source
from penstock.operators.keyed.state import Space
from penstock.types import Record, Schema, attribute


class Waiting:
    """A heap of records by time, then by their columns, so that the order is the same in every run.

    Parameters
    ----------
    held : Space
        Where they are kept, by key.
    """

    def __init__(self, time: str, keys: tuple[str, ...], schema: Schema, held: Space) -> None:
        self._record_type = schema.record_type
        self._key: Callable[[Record], Any] = attrgetter(*map(attribute, keys))
        self._held = held
        self._heap: list[tuple[Any, ...]] = []
        self._number = 0
        self._gone: set[int] = set()
        """Ids of records in the heap that are not held any more, while the state is loaded and for a while after."""
        self._taken: list[tuple[Any, ...]] | None = None
        """What was taken since `begin`, where that may have to be undone."""
        scope: dict[str, Any] = {}
        others = [(f"r.{attribute(each.name)}", each.type) for each in schema.fields if each.name != time]
        source = f"def entry(n, r): return (r.{attribute(time)}, {order_source(others, scope)}n, r)"
        exec(compile(source, "<penstock process>", "exec"), scope)
        self._entry: Callable[[int, Record], tuple[Any, ...]] = scope["entry"]

    def add(self, record: Record) -> None:
        """Have a record wait."""
        key = self._key(record)
        self._held.setdefault(key, []).append(record)
        self._held.changed[key] = None
        self._push(record)

    def _push(self, record: Record) -> None:
        self._number += 1
        heappush(self._heap, self._entry(self._number, record))

    def next_us(self, before_us: int) -> int | None:
        """Time of the first record that waits, if it is before that."""
        heap, gone = self._heap, self._gone
        while gone and heap and id(heap[0][-1]) in gone:
            gone.discard(id(heappop(heap)[-1]))
        return heap[0][0] if heap and heap[0][0] < before_us else None

    def pop(self) -> Record:
        """Take the first record."""
        entry = heappop(self._heap)
        if self._taken is not None:
            self._taken.append(entry)
        record: Record = entry[-1]
        key = self._key(record)
        held = self._held[key]
        held.remove(record)
        self._held.changed[key] = None
        if not held:
            del self._held[key]
        return record

    def begin(self, *, undoable: bool) -> None:
        """What is taken from now on may have to be put back, or need not be."""
        self._taken = [] if undoable else None

    def undo(self) -> None:
        """Put back what was taken since."""
        for entry in self._taken or ():
            heappush(self._heap, entry)
            key = self._key(entry[-1])
            self._held.setdefault(key, []).append(entry[-1])
            self._held.changed[key] = None

    def loaded(self, key: Any, rows: list[Any] | None, before: list[Record] | None) -> None:
        """The records of a key have come; those before, of which some may be among them, are out of date.

        Records are added at the end, and taken from anywhere; so what is left of those before comes first.
        """
        made, kept = [self._record_type(*row) for row in rows or ()], list[Record]()
        for each in before or ():
            if len(kept) < len(made) and each == made[len(kept)]:
                kept.append(each)
            else:
                self._gone.add(id(each))
        for each in made[len(kept) :]:
            self._push(each)
        if rows is not None:
            self._held[key] = kept + made[len(kept) :]

    def restored(self) -> None:
        """The records have been read back: put them in order."""
        for key, rows in self._held.items():
            self._held[key] = [self._record_type(*row) for row in rows]
        self.arrange()

    def arrange(self) -> None:
        """Other records are held than before: put them in order."""
        records = [each for rows in self._held.values() for each in rows]
        self._heap = [self._entry(i, each) for i, each in enumerate(records)]
        self._number = len(records)
        heapify(self._heap)
