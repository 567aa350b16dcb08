"""Rows in memory: the scripted source and the sink that tests and notebooks use."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.checks import Whole
from penstock.connectors.base import (
    Position,
    Run,
    Sink,
    SinkWriter,
    Source,
    SourceBatch,
    SourceColumns,
    SourceReader,
    WriterContext,
    check_count,
)
from penstock.connectors.buffered import DeliveringWriter
from penstock.durations import parse_us
from penstock.errors import InvalidOption, LimitExceeded, PenstockError
from penstock.types import Record, Schema, attribute, nested_dict

_ROWS_MAX = 10_000_000


@dataclass(frozen=True, slots=True)
class At:
    """In a script: what follows is due at this time after the start; as the last item: the end is then.

    Attributes
    ----------
    time : str or float
        A duration such as ``"5s"``, or seconds.
    """

    time: str | int | float


@dataclass(frozen=True, slots=True)
class _Script:
    """One partition: rows, when each is due, and when the partition ends."""

    rows: tuple[tuple[object, ...], ...]
    times_us: tuple[int, ...]
    end_us: int


class Records(Source):
    """A bounded source of given rows; build it with :func:`records`."""

    def __init__(self, scripts: tuple[_Script, ...], schema: Schema) -> None:
        self._scripts = scripts
        self._schema = schema

    @property
    def schema(self) -> Schema:
        return self._schema

    @property
    def kind(self) -> str:
        return "records"

    @property
    def is_split(self) -> bool:
        return True

    @property
    def is_bounded(self) -> bool:
        return True

    def partitions(self, parallelism: int) -> int:
        del parallelism
        return len(self._scripts)

    def reader(self, partition: int, partitions: int, start_us: int) -> SourceReader:
        del partitions
        return _RecordsReader(self._scripts[partition], self._schema, start_us)


class _RecordsReader(SourceReader):
    def __init__(self, script: _Script, schema: Schema, start_us: int) -> None:
        self._schema = schema
        self._rows = [schema.record_type(*row) for row in script.rows]
        self._times_us = script.times_us
        self._end_us = script.end_us
        self._start_us = start_us

    def poll(self, now_us: int, records_max: int) -> SourceBatch | None:
        at = self.offset
        end = min(self._due(now_us), at + records_max)
        if end <= at:
            return None
        self.offset = end
        return SourceBatch(self._rows[at:end], self._start_us + self._times_us[at], at)

    def wake_us(self, now_us: int) -> int | None:
        if self.offset < len(self._rows):
            return self._start_us + self._times_us[self.offset]
        end_us = self._start_us + self._end_us
        return end_us if now_us < end_us else None

    def seek(self, position: Position) -> None:
        assert isinstance(position, int)
        self.offset = position

    def backlog_records(self, now_us: int) -> int:
        return max(self._due(now_us) - self.offset, 0)

    def due_records(self, now_us: int) -> int:
        return self.backlog_records(now_us)

    def read(self, run: Run) -> SourceColumns:
        at = run.at
        assert isinstance(at, int)
        check_count(run.count, len(self._rows) - at)
        columns = self._schema.to_batch(self._rows[at : at + run.count])
        return SourceColumns(columns, self._start_us + self._times_us[at])

    def _due(self, now_us: int) -> int:
        return bisect.bisect_right(self._times_us, now_us - self._start_us)


def records(
    rows: Sequence[object] = (), *, schema: str | Schema, partitions: int | Sequence[Sequence[object]] = 1
) -> Records:
    """Read given rows, once.

    Parameters
    ----------
    rows : sequence
        Dicts, tuples in column order, records, or bare values for a single column; :class:`At` among
        them sets when what follows is due, otherwise a row is due at the start.
    schema : str or Schema
        Their schema; every row is checked against it here.
    partitions : int or sequence of sequences
        Over how many partitions to deal the rows in turn (an ``At`` goes to all of them); or, instead of
        ``rows``, the rows of each partition.
    """
    parsed = Schema.parse(schema)
    if isinstance(partitions, int):
        if isinstance(partitions, bool) or partitions < 1:
            raise InvalidOption(option="partitions", given=partitions, allowed="from 1, or a list of lists of rows")
        lists = _deal(rows, partitions)
    else:
        if rows or not partitions:
            raise InvalidOption(
                option="partitions", given="lists of rows", allowed="at least one list, and then no rows"
            )
        lists = [list(part) for part in partitions]
    return Records(tuple(_script(items, parsed) for items in lists), parsed)


def _deal(rows: Sequence[object], partitions: int) -> list[list[object]]:
    lists: list[list[object]] = [[] for _ in range(partitions)]
    dealt = 0
    for row in rows:
        if isinstance(row, At):
            for items in lists:
                items.append(row)
        else:
            lists[dealt % partitions].append(row)
            dealt += 1
    return lists


def _script(items: list[object], schema: Schema) -> _Script:
    rows: list[tuple[object, ...]] = []
    times_us: list[int] = []
    at_us = 0
    for index, item in enumerate(items):
        if isinstance(item, At):
            time_us = parse_us(item.time, option="At", allow_zero=True)
            if time_us < at_us:
                raise InvalidOption(option="At", given=item.time, allowed="times that do not go back")
            at_us = time_us
            continue
        try:
            record = schema.coerce(item)
        except PenstockError as error:
            error.what = f"row {index}: {error.what}"
            raise
        # Kept as tuples: record classes are generated, so their instances cannot be sent to the workers.
        rows.append(tuple(getattr(record, attribute(name)) for name in schema.names))
        times_us.append(at_us)
    return _Script(tuple(rows), tuple(times_us), at_us)


class Memory(Sink):
    """A sink that collects committed records in the driver process; build it with :func:`memory`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._rows: list[Record] = []

    def __getstate__(self) -> dict[str, object]:
        # The workers need none of the rows, and a lock cannot be sent.
        return {"_limit": self._limit}

    def __setstate__(self, state: dict[str, int]) -> None:
        self.__init__(state["_limit"])  # type: ignore[misc]

    @property
    def kind(self) -> str:
        return "memory"

    @property
    def rows(self) -> list[Record]:
        """The records committed so far."""
        with self._lock:
            return list(self._rows)

    def dicts(self) -> list[dict[str, object]]:
        """Return the records committed so far as dicts."""
        return [nested_dict(row) for row in self.rows]

    def clear(self) -> None:
        """Forget the records collected so far."""
        with self._lock:
            self._rows.clear()

    def writer(self, schema: Schema, context: WriterContext) -> SinkWriter:
        del context
        return DeliveringWriter(schema)

    def deliver(self, rows: list[Record], schema: Schema) -> None:
        del schema
        with self._lock:
            if len(self._rows) + len(rows) > self._limit:
                raise LimitExceeded(what="rows of a memory sink", limit=self._limit, got=len(self._rows) + len(rows))
            self._rows += rows


def memory(*, limit: int = _ROWS_MAX) -> Memory:
    """Collect the output in the driver process, epoch by epoch as it is committed: each record exactly once.

    Parameters
    ----------
    limit : int
        How many rows it may hold; one more fails the job.

    Examples
    --------
    >>> sink = ps.memory()
    >>> ps.run(stream.to(sink))
    >>> sink.dicts()
    """
    return Memory(Whole(1).read("limit", limit))
