"""Rows that wait in memory for their epoch's commit, and the writer of sinks that take them in the driver's process."""

from __future__ import annotations

import msgspec

from penstock.connectors.base import SinkWriter
from penstock.types import Record, Schema


class PreparedRows:
    """Rows of the present epoch and of prepared ones; sinks without a durable place of their own keep them here."""

    def __init__(self, schema: Schema) -> None:
        self._kind = dict[int, list[schema.record_type]]  # type: ignore[name-defined]
        self._open: list[Record] = []
        self._prepared: dict[int, list[Record]] = {}

    def write(self, rows: list[Record]) -> None:
        """Take rows of the present epoch."""
        self._open += rows

    def prepare(self, epoch: int) -> None:
        """The present epoch ends."""
        self._prepared[epoch] = self._open
        self._open = []

    def snapshot(self, epoch: int) -> bytes:
        """All rows that are prepared: the word that earlier epochs are committed may come only after this."""
        return msgspec.msgpack.encode({each: rows for each, rows in self._prepared.items() if each <= epoch})

    def restore(self, snapshot: bytes | None) -> None:
        """Take the rows of a snapshot."""
        if snapshot is not None:
            self._prepared = msgspec.msgpack.decode(snapshot, type=self._kind)

    def take(self, epoch: int) -> list[tuple[int, list[Record]]]:
        """Take the rows prepared up to ``epoch`` out, by epoch."""
        ready = sorted(prepared for prepared in self._prepared if prepared <= epoch)
        return [(prepared, self._prepared.pop(prepared)) for prepared in ready]


class DeliveringWriter(SinkWriter):
    """Keeps records until their epoch is committed, then hands them to the driver; memory and console use it."""

    def __init__(self, schema: Schema) -> None:
        self._rows = PreparedRows(schema)

    def write(self, rows: list[Record]) -> None:
        self._rows.write(rows)

    def prepare(self, epoch: int) -> None:
        self._rows.prepare(epoch)

    def snapshot(self, epoch: int) -> bytes | None:
        return self._rows.snapshot(epoch)

    def restore(self, epoch: int, snapshot: bytes | None) -> None:
        self._rows.restore(snapshot)

    def commit(self, epoch: int) -> list[Record] | None:
        return [row for _, rows in self._rows.take(epoch) for row in rows] or None
