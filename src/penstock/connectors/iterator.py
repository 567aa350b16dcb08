"""A Python iterator or async generator as a source: any client library is a source with it."""

from __future__ import annotations

import asyncio
import queue
import threading
import traceback
from collections.abc import AsyncIterable, Callable, Iterable
from typing import Any

import msgspec

from penstock.checks import Flag, Whole
from penstock.connectors.base import OnceReader, Position, Source, SourceBatch
from penstock.errors import BadRecord, InvalidOption, SourceFailed
from penstock.types import Record, Schema

_POLL_US = 2_000
_AHEAD_ROWS = 1_000
Rows = Iterable[Any] | AsyncIterable[Any]


class _Position(msgspec.Struct, array_like=True):
    rows: int
    at: Any


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Position).decode


class FromIterator(Source):
    """Rows of a function; build it with :func:`from_iterator`."""

    def __init__(
        self,
        function: Callable[..., Rows],
        schema: Schema,
        position: Callable[[Any], Any] | None,
        repeats: bool,
        partitions: int | None,
    ) -> None:
        self._function = function
        self._schema = schema
        self._position = position
        self._repeats = repeats
        self._partitions = partitions

    @property
    def schema(self) -> Schema:
        return self._schema

    @property
    def kind(self) -> str:
        return "from_iterator"

    def partitions(self, parallelism: int) -> int:
        del parallelism
        return self._partitions or 1

    def reader(self, partition: int, partitions: int, start_us: int) -> _IteratorReader:
        del partitions, start_us
        before = () if self._partitions is None else (partition,)
        return _IteratorReader(self._function, before, self._schema, self._position, self._repeats)


class _End:
    """The last thing in a queue: no more rows, or why."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.text = None if error is None else "".join(traceback.format_exception(error)).rstrip()
        self.cause = f"{type(error).__name__}: {error}"


class _Pump:
    """Takes rows from an iterator in a thread of its own, a bounded number ahead: an iterator may wait."""

    def __init__(self, rows: Callable[[], Rows]) -> None:
        self.queue: queue.Queue[Any] = queue.Queue(_AHEAD_ROWS)
        self._stopped = False
        threading.Thread(target=self._run, args=(rows,), name="penstock-iterator", daemon=True).start()

    def _run(self, make: Callable[[], Rows]) -> None:
        try:
            rows = make()
            if isinstance(rows, AsyncIterable):
                asyncio.run(self._drain(rows))
            else:
                for row in rows:
                    if not self._put(row):
                        return
            self._put(_End())
        except BaseException as error:
            self._put(_End(error))

    async def _drain(self, rows: AsyncIterable[Any]) -> None:
        async for row in rows:
            while not self._stopped:
                try:
                    self.queue.put_nowait(row)
                    break
                except queue.Full:
                    await asyncio.sleep(0.005)
            if self._stopped:
                return

    def _put(self, row: Any) -> bool:
        while not self._stopped:
            try:
                self.queue.put(row, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def stop(self) -> None:
        """Ask it to end; it does when its iterator gives the next row."""
        self._stopped = True


class _IteratorReader(OnceReader):
    def __init__(
        self,
        function: Callable[..., Rows],
        before: tuple[int, ...],
        schema: Schema,
        position: Callable[[Any], Any] | None,
        repeats: bool,
    ) -> None:
        self._function = function
        self._before = before
        self._coerce = schema.coerce
        self._position_of = position
        self._repeats = repeats
        self._at: Any = None
        self._skip = 0
        self._pump: _Pump | None = None
        self._ended = False
        self._next_us = 0

    def poll(self, now_us: int, records_max: int) -> SourceBatch | None:
        if self._ended or now_us < self._next_us:
            return None
        if self._pump is None:
            args = (*self._before, self._at) if self._position_of is not None else self._before
            self._pump = _Pump(lambda: self._function(*args))
        rows: list[Record] = []
        while len(rows) < records_max:
            try:
                row = self._pump.queue.get_nowait()
            except queue.Empty:
                self._next_us = now_us + _POLL_US
                break
            if isinstance(row, _End):
                self._end(row)
                break
            if self._skip:
                self._skip -= 1
                continue
            rows.append(self._taken(row))
        if not rows:
            return None
        first, self.offset = self.offset, self.offset + len(rows)
        return SourceBatch(rows, now_us, first)

    def _taken(self, row: Any) -> Record:
        try:
            record = self._coerce(row)
        except BadRecord as error:
            raise SourceFailed(source="from_iterator", cause=error.what.rstrip("."), hint=error.hint) from None
        if self._position_of is not None:
            self._at = self._position_of(row)
        return record

    def _end(self, end: _End) -> None:
        if end.text is not None:
            raise SourceFailed(source="from_iterator", cause=f"the iterator has raised {end.cause}\n{end.text}")
        self._ended = True

    def wake_us(self, now_us: int) -> int | None:
        return None if self._ended else self._next_us

    def backlog_records(self, now_us: int) -> int:
        del now_us
        return self._pump.queue.qsize() if self._pump is not None else 0

    def position(self) -> Position:
        return _encode(_Position(self.offset, self._at))

    def seek(self, position: Position) -> None:
        assert isinstance(position, bytes)
        at = _decode(position)
        self.close()
        self.offset, self._at, self._ended = at.rows, at.at, False
        self._skip = at.rows if self._repeats else 0

    def close(self) -> None:
        if self._pump is not None:
            self._pump.stop()
            self._pump = None


def from_iterator(
    function: Callable[..., Rows],
    *,
    schema: str | Schema,
    position: Callable[[Any], Any] | None = None,
    repeats: bool = False,
    partitions: int | None = None,
) -> FromIterator:
    """Read the rows of a Python iterator or async generator; with it any client library is a source.

    What a crash does depends on what the function can do:

    ==================  ===============================================================  =============
    given               after a crash                                                    rows come
    ==================  ===============================================================  =============
    ``position``        the function is called with the position of the last committed   exactly once
                        row, and goes on behind it
    ``repeats=True``    it is called again, and what was committed is skipped            exactly once
    neither             it is called again, and goes on with whatever it gives           at most once
    ==================  ===============================================================  =============

    Parameters
    ----------
    function : callable
        Called on a worker; returns an iterator, or is a generator or an async generator. It may wait: it runs in a
        thread of its own, at most 1,000 rows ahead. The source ends when it does.
    schema : str or Schema
        Of the rows, which are dicts, tuples or records.
    position : callable
        Returns the position of a row: a number, text, or lists of them. The function then takes the position that it
        goes on behind; None at the beginning.
    repeats : bool
        The function gives the same rows whenever it is called.
    partitions : int
        Call it once for each partition, with its number as the first argument.

    Examples
    --------
    >>> def numbers(after):                                                              # doctest: +SKIP
    ...     yield from ({"n": n} for n in itertools.count(0 if after is None else after + 1))
    >>> ps.from_iterator(numbers, schema="n bigint", position=lambda row: row["n"])      # doctest: +SKIP
    """
    if not callable(function):
        raise InvalidOption(option="function", given=function, allowed="a function that returns an iterator")
    if position is not None and (not callable(position) or repeats):
        raise InvalidOption(option="position", given=position, allowed="a function of a row, and then no repeats=")
    many = None if partitions is None else Whole(1, 10_000).read("partitions", partitions)
    return FromIterator(function, Schema.parse(schema), position, Flag().read("repeats", repeats), many)
