"""Rows that are looked up here and read again from time to time, beside the records: nobody waits for it."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from penstock.connectors.secrets import one_line
from penstock.operators import Finder, Places
from penstock.types import Record, Schema, attribute

_log = logging.getLogger("penstock.tables")


@dataclass(frozen=True)
class _Content:
    """All rows, as they were at one moment."""

    index: dict[object, Record]
    rows: pa.RecordBatch
    find: Places


class Refreshed:
    """The rows of a table, read at the start, and again every ``refresh_s``.

    A record, or a batch, is looked up in rows of one moment. Where they cannot be read again the last ones stay, and
    the log says so.

    Parameters
    ----------
    load : callable
        Reads all rows.
    """

    def __init__(self, name: str, load: Callable[[], list[Record]], schema: Schema, key: str, refresh_s: float | None):
        self._load, self._schema, self._key = load, schema, key
        self._content = self._read()
        self._stop = threading.Event()
        if refresh_s is not None:
            # The thread must not keep alive what nobody looks anything up in any more.
            args = (weakref.ref(self), self._stop, refresh_s, name)
            threading.Thread(target=_refresh, args=args, name=f"penstock-table-{name}", daemon=True).start()
            weakref.finalize(self, self._stop.set)

    def _read(self) -> _Content:
        records, key, at = self._load(), self._key, attribute(self._key)
        rows = self._schema.to_batch(records)
        index = {value: each for each in records if (value := getattr(each, at)) is not None}
        return _Content(index, rows, Places(rows.column(key)))

    def read_again(self) -> None:
        """Take the rows as they are now."""
        self._content = self._read()

    def get(self, key: object) -> Record | None:
        """The row of a key."""
        return self._content.index.get(key)

    def columns(self, keys: pa.Array) -> tuple[pa.RecordBatch, pa.Array]:
        """All rows, and the places of those with these keys."""
        content = self._content
        return content.rows, content.find(keys)

    def finder(self) -> Finder:
        """What a lookup works with."""
        return Finder(self.get, self.columns)


def _refresh(holder: weakref.ref[Refreshed], stop: threading.Event, refresh_s: float, name: str) -> None:
    while not stop.wait(refresh_s):
        table = holder()
        if table is None:
            return
        try:
            table.read_again()
        except Exception as error:
            _log.warning("table %s could not be read again, its rows stay as they were: %s", name, one_line(error))
        del table
