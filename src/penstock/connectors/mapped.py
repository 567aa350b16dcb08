"""A table as an Arrow file that all processes of a machine map into memory: one copy, and no index to build at a start.

The file has one batch: the rows, sorted by a checksum of their keys, and the checksums as the last column. A key is
found by bisection. `write_table` makes the file, `MappedTable` reads it, `SharedTable` goes on to a newer one.
"""

from __future__ import annotations

import logging
import threading
import weakref
from bisect import bisect_left
from collections.abc import Callable, Sequence
from pathlib import Path
from zlib import crc32

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.secrets import one_line
from penstock.errors import InvalidOption
from penstock.operators import Finder
from penstock.operators.keys import key_values
from penstock.types import Record, Schema

_log = logging.getLogger("penstock.tables")
_CHECKSUM = "__checksum"
HELD_ROWS_MAX = 20_000
"""Rows that a process keeps as records, because they were looked up lately."""
_encode = msgspec.msgpack.Encoder().encode


def write_table(path: Path, batches: Sequence[pa.RecordBatch], schema: Schema, key: str) -> int:
    """Write the rows of a table into a file, which appears whole; return how many there are. Null keys match nothing.

    Raises
    ------
    InvalidOption
        If a key is there twice.
    """
    table = pa.Table.from_batches(batches, schema.arrow)
    keys = table.column(key)
    if keys.null_count:
        table = table.filter(keys.is_valid())
        keys = table.column(key)
    if pc.count_distinct(keys).as_py() != len(keys):
        counts = keys.value_counts()
        twice = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")[0].as_py()
        raise InvalidOption(option="key", given=key, allowed=f"a column without duplicates ({twice!r} is there twice)")
    values = key_values(keys.combine_chunks())
    checksums = np.fromiter((crc32(_encode(each)) for each in values), np.uint32, len(values))
    order = np.argsort(checksums, kind="stable")
    columns = [column.combine_chunks() for column in table.take(pa.array(order)).columns]
    stored = pa.RecordBatch.from_arrays([*columns, pa.array(checksums[order])], [*schema.names, _CHECKSUM])
    unfinished = path.with_name(f"{path.name}-unfinished")
    with pa.OSFile(str(unfinished), "wb") as file, pa.ipc.new_file(file, stored.schema) as writer:
        writer.write_batch(stored)
    unfinished.replace(path)
    return len(values)


class MappedTable:
    """The rows of a file, where they lie."""

    def __init__(self, path: str, schema: Schema, key: str) -> None:
        with pa.memory_map(path) as file:
            stored = pa.ipc.open_file(file).get_batch(0)
        self.path = path
        self.rows = pa.RecordBatch.from_arrays(stored.columns[:-1], schema=schema.arrow)
        self._schema = schema
        checksums = stored.column(_CHECKSUM).buffers()[1]
        self._checksums = memoryview(checksums).cast("B")[: 4 * stored.num_rows].cast("I") if checksums else ()
        self._key = self.rows.column(key)
        self._held: dict[object, Record | None] = {}

    def get(self, key: object) -> Record | None:
        """The row of a key."""
        try:
            return self._held[key]
        except KeyError:
            pass
        place = self._place(key)
        found = None if place is None else self._schema.to_rows(self.rows.slice(place, 1))[0]
        if len(self._held) >= HELD_ROWS_MAX:
            self._held.clear()
        self._held[key] = found
        return found

    def columns(self, keys: pa.Array) -> tuple[pa.RecordBatch, pa.Array]:
        """All rows, and the places of those with these keys."""
        coded = keys.dictionary_encode()
        places = [self._place(key) for key in key_values(coded.dictionary)]
        return self.rows, pa.array(places, pa.int32()).take(coded.indices)

    def _place(self, key: object) -> int | None:
        if key is None:
            return None
        checksums, wanted = self._checksums, crc32(_encode(key))
        at = bisect_left(checksums, wanted)
        while at < len(checksums) and checksums[at] == wanted:
            if key_values(self._key.slice(at, 1))[0] == key:
                return at
            at += 1
        return None


Locate = Callable[[str], str]
"""From the identity of a table to the path of its newest file."""
_locate: Locate | None = None
_open: weakref.WeakValueDictionary[str, SharedTable] = weakref.WeakValueDictionary()
"""The tables of this process: operations that are built twice share theirs."""


def use_tables(locate: Locate | None) -> None:
    """Say where this process finds the files of tables."""
    global _locate
    _locate = locate


def shared_table(identity: str, make: Callable[[], str], schema: Schema, key: str, look_s: float | None) -> SharedTable:
    """Open a table of this process; ``make`` makes its file where nobody else does."""
    found = _open.get(identity)
    if found is None:
        locate = _locate
        newest = (lambda: locate(identity)) if locate is not None else make
        found = _open[identity] = SharedTable(newest, schema, key, look_s)
    return found


class SharedTable:
    """A table at work: rows of one moment, until a newer file is mapped beside them and takes over between two blocks.

    Parameters
    ----------
    newest : callable
        Returns the path of the newest file.
    look_s : float or None
        How often to ask for it; None: only once.
    """

    def __init__(self, newest: Callable[[], str], schema: Schema, key: str, look_s: float | None) -> None:
        self._newest, self._schema, self._key = newest, schema, key
        self._content = MappedTable(newest(), schema, key)
        self._next: MappedTable | None = None
        if look_s is not None:
            # The thread must not keep alive what nobody looks anything up in any more.
            stop = threading.Event()
            args = (weakref.ref(self), stop, look_s)
            threading.Thread(target=_follow, args=args, name="penstock-table", daemon=True).start()
            weakref.finalize(self, stop.set)

    def look(self) -> None:
        """Map a newer file, if there is one."""
        path = self._newest()
        if path != (self._next or self._content).path:
            self._next = MappedTable(path, self._schema, self._key)

    def turn(self) -> None:
        """Go on with the newest rows; called between two blocks."""
        following = self._next
        if following is not None:
            self._content, self._next = following, None

    def get(self, key: object) -> Record | None:
        """The row of a key."""
        return self._content.get(key)

    def columns(self, keys: pa.Array) -> tuple[pa.RecordBatch, pa.Array]:
        """All rows, and the places of those with these keys."""
        return self._content.columns(keys)

    def finder(self) -> Finder:
        """What a lookup works with."""
        return Finder(self.get, self.columns, turn=self.turn)


def _follow(holder: weakref.ref[SharedTable], stop: threading.Event, look_s: float) -> None:
    failed = False
    while not stop.wait(look_s):
        table = holder()
        if table is None:
            return
        try:
            table.look()
            failed = False
        except FileNotFoundError:
            return  # the job is over, and this process waits for another one
        except Exception as error:
            if not failed:
                _log.warning("a table could not be read again, its rows stay as they were: %s", one_line(error))
            failed = True
        del table
