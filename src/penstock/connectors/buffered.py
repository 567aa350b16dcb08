"""Writers that keep rows in memory until their epoch is committed: for the driver's process, or for a transaction."""

from __future__ import annotations

import msgspec
import pyarrow as pa

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


COLUMNAR_ROWS = 16 * 1024
"""Records that become columns at once."""


class ColumnarWriter(SinkWriter):
    """Holds the records of the present epoch as columns; a subclass says where they go when it is prepared."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._rows: list[Record] = []
        self._batches: list[pa.RecordBatch] = []
        self._open_bytes = 0

    def write(self, rows: list[Record]) -> None:
        self._rows += rows
        if len(self._rows) >= COLUMNAR_ROWS:
            self._flush()

    def write_batch(self, batch: pa.RecordBatch, schema: Schema) -> None:
        del schema
        if batch.num_rows:
            self._flush()
            self._hold(batch)

    def _flush(self) -> None:
        if self._rows:
            rows, self._rows = self._rows, []
            self._hold(self._schema.to_batch(rows))

    def _hold(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._open_bytes += batch.nbytes

    def _taken(self) -> list[pa.RecordBatch]:
        """Take what was written since the last time."""
        self._flush()
        batches, self._batches, self._open_bytes = self._batches, [], 0
        return batches


class DeliveringWriter(BufferedWriter):
    """Hands committed records to the driver; memory and console use it."""

    def commit(self, epoch: int) -> list[Record] | None:
        return [row for _, rows in self._take(epoch) for row in rows] or None
