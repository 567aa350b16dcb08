"""Writers that keep rows in memory until their epoch is committed: for the driver's process, or for a transaction."""

from __future__ import annotations

import msgspec

from penstock.connectors.base import SinkWriter
from penstock.types import Record, Schema


class BufferedWriter(SinkWriter):
    """Holds the rows of the present epoch and of prepared ones; a subclass says what a commit does with them."""

    def __init__(self, schema: Schema) -> None:
        self._kind = dict[int, list[schema.record_type]]  # type: ignore[name-defined]
        self._open: list[Record] = []
        self._prepared: dict[int, list[Record]] = {}

    def write(self, rows: list[Record]) -> None:
        self._open += rows

    def prepare(self, epoch: int) -> None:
        self._prepared[epoch] = self._open
        self._open = []

    def snapshot(self, epoch: int) -> bytes | None:
        # Earlier epochs too: the word that they are committed may come only after this.
        return msgspec.msgpack.encode({each: rows for each, rows in self._prepared.items() if each <= epoch})

    def restore(self, epoch: int, snapshot: bytes | None) -> None:
        if snapshot is not None:
            self._prepared = msgspec.msgpack.decode(snapshot, type=self._kind)

    def _take(self, epoch: int) -> list[tuple[int, list[Record]]]:
        """Take the rows prepared up to ``epoch`` out, by epoch."""
        ready = sorted(prepared for prepared in self._prepared if prepared <= epoch)
        return [(prepared, self._prepared.pop(prepared)) for prepared in ready]


class DeliveringWriter(BufferedWriter):
    """Hands committed records to the driver; memory and console use it."""

    def commit(self, epoch: int) -> list[Record] | None:
        return [row for _, rows in self._take(epoch) for row in rows] or None
