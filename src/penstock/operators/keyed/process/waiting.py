"""Records that wait until event time has passed them, and are taken in its order then, whatever order they came in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

from penstock.operators.keyed.match_once import order_source
from penstock.types import Record, Schema, record_dict


class Waiting:
    """A heap of records by time, then by their columns, so that the order is the same in every run."""

    def __init__(self, time: str, schema: Schema) -> None:
        self._record_type = schema.record_type
        self._heap: list[tuple[Any, ...]] = []
        self._fresh: list[Record] = []
        """What has come since the last snapshot."""
        self._number = 0
        scope: dict[str, Any] = {}
        columns = order_source([(f"r.{each.name}", each.type) for each in schema.fields if each.name != time], scope)
        source = f"def entry(n, r): return (r.{time}, {columns}n, r)"
        exec(compile(source, "<penstock process>", "exec"), scope)
        self._entry: Callable[[int, Record], tuple[Any, ...]] = scope["entry"]

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, record: Record) -> None:
        """Have a record wait."""
        self._number += 1
        heappush(self._heap, self._entry(self._number, record))
        self._fresh.append(record)

    def next_us(self, before_us: int) -> int | None:
        """Time of the first record that waits, if it is before that."""
        heap = self._heap
        return heap[0][0] if heap and heap[0][0] < before_us else None

    def pop(self) -> Record:
        """Take the first record."""
        record: Record = heappop(self._heap)[-1]
        return record

    def snapshot(self, full: bool) -> list[Any]:
        """The values of what waits, or of what has come; whose turn it has been since follows from the watermark."""
        records = [entry[-1] for entry in self._heap] if full else self._fresh
        self._fresh = []
        return [list(record_dict(each).values()) for each in records]

    def restore(self, rows: Sequence[Any], watermark_us: int) -> None:
        """Take what a snapshot and the changes after it hold; event time has passed some of it."""
        records = (self._record_type(*row) for row in rows)
        self._heap = [entry for i, each in enumerate(records) if (entry := self._entry(i, each))[0] >= watermark_us]
        self._number = len(rows)
        heapify(self._heap)
