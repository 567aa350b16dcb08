"""What records weigh: an estimate that costs nothing per record, and pieces of records that fit into messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import ceil

import msgspec
import pyarrow as pa

from penstock.types import Record

BLOCK_BYTES = 1 << 20
"""About the most that a block, or a message of several, weighs; a record that is larger travels alone."""
QUEUE_BYTES = 16 << 20
"""Bytes that may wait on one edge before its producer pauses."""
RETAINED_QUEUES = 8
"""So many times what may wait may be kept for replay."""
WEIGH_RECORDS = 32
"""Of so many records, one is weighed; of a large block, a few."""
_WEIGHED_MAX = 4

_encode = msgspec.msgpack.Encoder().encode


class Scale:
    """About what a record of one stream weighs, from a few of them now and then.

    Attributes
    ----------
    record_bytes : int
        Mean of the last samples, the newest one counting most.
    """

    __slots__ = ("_left", "_mean", "record_bytes")

    def __init__(self) -> None:
        self.record_bytes = 0
        self._mean = 0.0
        self._left = 0
        """So many records need not be weighed."""

    def add(self, rows: Sequence[Record]) -> int:
        """Take note of records that pass; return about what one of them weighs."""
        self._left -= len(rows)
        if self._left < 0:
            self._weigh(rows)
        return self.record_bytes

    def fit(self, records: int, rows: Sequence[Record], bytes_max: int) -> int:
        """Take note of records that pass; return how many like them to take at once, ``records`` at the most."""
        each = self.add(rows)
        return records if records * each <= bytes_max else max(1, bytes_max // each)

    def _weigh(self, rows: Sequence[Record]) -> None:
        self._left = WEIGH_RECORDS
        few = rows[:: max(WEIGH_RECORDS, 1 + len(rows) // _WEIGHED_MAX)]
        found = len(_encode(few)) / len(few)
        # Of a large block the sample is as good as what is known of the blocks before; it may begin a new kind of data.
        share = 1.0 if not self._mean else 0.25 if len(rows) < WEIGH_RECORDS else 0.75
        self._mean += share * (found - self._mean)
        self.record_bytes = ceil(self._mean)


def cut(pack: Callable[[int, int], bytes], count: int, bytes_max: int) -> Iterator[tuple[int, bytes]]:
    """Yield ``count`` records, packed in pieces of at most ``bytes_max``: how many, and their bytes.

    The pieces depend on nothing but the records. One record that is larger than the limit is a piece of its own.

    Parameters
    ----------
    pack : callable
        Packs the records from one index up to another.
    """
    ahead = [(0, count)]
    while ahead:
        first, end = ahead.pop()
        packed = pack(first, end)
        if len(packed) <= bytes_max or end - first <= 1:
            yield end - first, packed
            continue
        pieces = min(end - first, 1 + len(packed) // bytes_max)
        each = -(-(end - first) // pieces)
        ahead += reversed([(at, min(at + each, end)) for at in range(first, end, each)])


def cut_rows(rows: list[Record], bytes_max: int) -> Iterator[tuple[int, bytes]]:
    """Yield rows in packed pieces; see `cut`."""
    return cut(lambda first, end: _encode(rows[first:end]), len(rows), bytes_max)


def cut_columns(batch: pa.RecordBatch, bytes_max: int) -> Iterator[tuple[int, bytes]]:
    """Yield columns in packed pieces; see `cut`."""

    def pack(first: int, end: int) -> bytes:
        packed: bytes = batch.slice(first, end - first).serialize().to_pybytes()
        return packed

    return cut(pack, batch.num_rows, bytes_max)
