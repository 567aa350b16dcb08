"""The writer of sinks that take their output in the driver process; memory and console use it."""

from __future__ import annotations

import msgspec

from penstock.connectors.base import SinkWriter
from penstock.types import Record, Schema


class DeliveringWriter(SinkWriter):
    """Keeps records until their epoch is committed, then hands them to the driver."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._open: list[Record] = []
        self._prepared: dict[int, list[Record]] = {}

    def write(self, rows: list[Record]) -> None:
        self._open += rows

    def prepare(self, epoch: int) -> None:
        self._prepared[epoch] = self._open
        self._open = []

    def snapshot(self, epoch: int) -> bytes | None:
        # Earlier ones too: the word that they are committed may come only after this.
        return msgspec.msgpack.encode({each: rows for each, rows in self._prepared.items() if each <= epoch})

    def restore(self, epoch: int, snapshot: bytes | None) -> None:
        if snapshot is not None:
            kind = dict[int, list[self._schema.record_type]]  # type: ignore[name-defined]
            self._prepared = msgspec.msgpack.decode(snapshot, type=kind)

    def commit(self, epoch: int) -> list[Record] | None:
        ready = sorted(prepared for prepared in self._prepared if prepared <= epoch)
        return [row for prepared in ready for row in self._prepared.pop(prepared)] or None
