"""Reads one partition of a generated source, a chunk of records at a time; the generator opens it."""

from __future__ import annotations

import bisect
from typing import Protocol

import pyarrow as pa

from penstock.connectors.base import Position, Run, SourceBatch, SourceColumns, SourceReader, check_count
from penstock.connectors.rates import RateSchedule
from penstock.types import Record

# To make a chunk takes most of a millisecond however few records it has, for what it needs is no longer in the
# caches of the processor. While the schedule is kept up with, that is to happen in few turns, so that one record in a
# hundred does not wait for it; larger chunks, which cost less per record, are made when that many are due already.
_CHUNK_RECORDS_CALM = 2048
_ENDLESS_RECORDS = 1 << 30


class Chunks(Protocol):
    """Makes records from a global offset on, every ``stride``-th, and when each is due after the start."""

    def __call__(self, first: int, count: int, stride: int) -> tuple[list[Record], list[int]]: ...


class Columns(Protocol):
    """Makes the same records as columns."""

    def __call__(self, first: int, count: int, stride: int) -> pa.RecordBatch: ...


class GeneratorReader(SourceReader):
    """Reads one partition of a generator: the global offsets ``offset * partitions + partition``."""

    def __init__(
        self,
        chunks: Chunks,
        columns: Columns,
        schedule: RateSchedule | None,
        *,
        partition: int,
        partitions: int,
        start_us: int,
        total: int | None,
        chunk_records_max: int,
    ) -> None:
        self._chunks = chunks
        self._columns = columns
        self._schedule = schedule
        self._partition = partition
        self._partitions = partitions
        self._start_us = start_us
        self._end = None if total is None else self._share(total)
        self._chunk_records_max = chunk_records_max
        self._first = 0
        self._rows: list[Record] = []
        self._times_us: list[int] = []

    def poll(self, now_us: int, records_max: int) -> SourceBatch | None:
        first, at = self.offset, self.offset - self._first
        if not 0 <= at < len(self._rows):
            # Made even if not due yet: the poll that finds nothing to do has the time for it.
            if not self._fill(now_us):
                return None
            at = 0
        end = self._due_end(now_us, at, records_max)
        if end <= at:
            return None
        rows = self._rows[at:end]
        due_us = now_us if self._schedule is None else self._start_us + self._times_us[at]
        self.offset += len(rows)
        missing = records_max - len(rows)
        # At most one chunk is made in a poll, and only if some of it can be given out.
        if missing > 0 and end == len(self._rows) and at > 0 and self._next_due(now_us) and self._fill(now_us):
            end = self._due_end(now_us, 0, missing)
            rows += self._rows[:end]
            self.offset += end
        return SourceBatch(rows, due_us, first)

    def wake_us(self, now_us: int) -> int | None:
        if self._end is not None and self.offset >= self._end:
            return None
        if self._schedule is None:
            return now_us
        at = self.offset - self._first
        if 0 <= at < len(self._times_us):
            return self._start_us + self._times_us[at]
        return self._start_us + self._schedule.time_us(self.offset * self._partitions + self._partition)

    def seek(self, position: Position) -> None:
        assert isinstance(position, int)
        self.offset = position

    def backlog_records(self, now_us: int) -> int:
        if self._schedule is None:
            return 0 if self._end is None else self._end - self.offset
        due = self._share(self._schedule.due(now_us - self._start_us))
        return max((due if self._end is None else min(due, self._end)) - self.offset, 0)

    def due_records(self, now_us: int) -> int:
        if self._schedule is None and self._end is None:
            return _ENDLESS_RECORDS
        return self.backlog_records(now_us)

    def read(self, run: Run) -> SourceColumns:
        assert isinstance(run.at, int)
        check_count(run.count, None if self._end is None else self._end - run.at)
        first = run.at * self._partitions + self._partition
        columns = self._columns(first, run.count, self._partitions)
        due_us = 0 if self._schedule is None else self._start_us + self._schedule.time_us(first)
        return SourceColumns(columns, due_us)

    def _share(self, count: int) -> int:
        """How many of the first ``count`` global offsets are this partition's."""
        return max(-((self._partition - count) // self._partitions), 0)

    def _due_end(self, now_us: int, at: int, records_max: int) -> int:
        limit = min(at + records_max, len(self._rows))
        if self._schedule is None:
            return limit
        return bisect.bisect_right(self._times_us, now_us - self._start_us, at, limit)

    def _next_due(self, now_us: int) -> bool:
        wake_us = self.wake_us(now_us)
        return wake_us is not None and wake_us <= now_us

    def _fill(self, now_us: int) -> bool:
        """Make the chunk at the offset; False once the partition has ended."""
        count = self._chunk_records_max
        if self._schedule is not None:
            count = min(max(self.backlog_records(now_us), _CHUNK_RECORDS_CALM), count)
        if self._end is not None:
            count = min(count, self._end - self.offset)
        if count <= 0:
            return False
        first = self.offset * self._partitions + self._partition
        self._rows, self._times_us = self._chunks(first, count, self._partitions)
        self._first = self.offset
        return True
