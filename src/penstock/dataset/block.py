"""Blocks: the unit of identity, replay and hand-over; rows or columns of one edge, with the ids they cover."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import pyarrow as pa

from penstock.types import Record, Schema


class Mark(IntEnum):
    """What a block announces besides its records."""

    NONE = 0
    EPOCH = 1
    """The epoch ``block.epoch`` ends here."""
    END = 2
    """Nothing follows."""


@dataclass(slots=True)
class Block:
    """A run of block ids of one log and the records they hold.

    A stateless chain turns block *i* into block *i*. After a shuffle or a filter many blocks are empty; a run
    of empty ones is announced by the next block, whose ``first`` then lies before its ``last``.

    Attributes
    ----------
    first, last : int
        Block ids covered, both included.
    epoch : int
        Epoch the records belong to.
    rows, columns, packed :
        The records in one of three equal forms; a block without records has none. ``packed`` are columns in bytes, as
        they travel: whoever only passes them on does not open them.
    count : int
        Number of records.
    due_us : int
        When the oldest record was scheduled at its source; latency counts from here. 0 without records.
    event_time_us : int or None
        How far the producer has come in event time, with these ids and all of its lanes; None: nothing new.
    lane : int
        Lane that the records are of; -1 where they are of none.
    straggler_us : int or None
        How far their lane had come before them, where some of them are behind it; None: all are on time.
    idle : bool or None
        Whether the lane is idle from here on, so that nobody waits for it; None: as before.
    mark : Mark
        Epoch or end marker.
    size_bytes : int
        What the records weigh, packed: estimated where the block is made of rows, exact once it has travelled.
    place : object or None
        Where the source records are that they were made of, for a reader in this process that may have to name one.
    """

    first: int
    last: int
    epoch: int
    rows: list[Record] | None = None
    columns: pa.RecordBatch | None = None
    count: int = 0
    due_us: int = 0
    event_time_us: int | None = None
    lane: int = -1
    straggler_us: int | None = None
    idle: bool | None = None
    mark: Mark = Mark.NONE
    packed: bytes | None = None
    size_bytes: int = 0
    place: Any = None

    def as_rows(self, schema: Schema) -> list[Record]:
        """Return the records as rows."""
        if self.rows is not None:
            return self.rows
        return schema.to_rows(self.as_columns(schema)) if self.count else []

    def as_columns(self, schema: Schema) -> pa.RecordBatch:
        """Return the records as columns."""
        if self.columns is not None:
            return self.columns
        return unpack(self.packed, schema) if self.packed is not None else schema.to_batch(self.rows or [])

    @property
    def weight(self) -> int:
        """What the block counts for against a log's bound; an empty one is not free."""
        return self.count or 1


def pack(batch: pa.RecordBatch) -> bytes:
    """Return columns as bytes; the schema is known to whoever opens them."""
    packed: bytes = batch.serialize().to_pybytes()
    return packed


def unpack(packed: bytes, schema: Schema) -> pa.RecordBatch:
    """Open what `pack` has made."""
    return pa.ipc.read_record_batch(pa.py_buffer(packed), schema.arrow)


def join_columns(blocks: list[Block], schema: Schema) -> pa.RecordBatch:
    """Return a run of blocks as one micro-batch."""
    batches = [block.as_columns(schema) for block in blocks if block.count]
    if not batches:
        return schema.to_batch([])
    return pa.concat_batches(batches) if len(batches) > 1 else batches[0]
