"""The replayable log of one edge partition: contiguous block ids, readers with cursors, bounds and truncation.

Units append to logs and read from them; the sender of a channel is one more reader. Pure data: no clock, no socket.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.dataset.bell import Bell
from penstock.dataset.block import Block, Mark
from penstock.dataset.sizes import QUEUE_BYTES, RETAINED_QUEUES
from penstock.errors import OffsetGap, ProtocolError

UNREAD_RECORDS_MAX = 16_384
RETAINED_RECORDS_MAX = 1_000_000


@dataclass(slots=True)
class Cursor:
    """Where a reader stands, as indexes into the log's sequence of blocks."""

    next: int = 0
    consumed: int = 0
    consumed_weight: int = 0
    consumed_bytes: int = 0


@dataclass(slots=True)
class LogView:
    """A log, to be looked at: what it keeps, and where its readers stand."""

    log: Log
    base: int
    """Index of the first block in the whole sequence."""
    blocks: Sequence[Block]
    next_id: int
    cursors: Sequence[tuple[int, int]]
    """Consumed, and next to be read, as indexes into the whole sequence."""


class Log:
    """A bounded sequence of blocks with replay: a block stays until all have consumed it and its epoch is committed.

    The bounds, in records and in bytes, are the producer's to respect: it asks `has_room` before it takes more input,
    and then appends whatever came of that, be it more than fits.

    Parameters
    ----------
    name : str
        For errors.
    readers : iterable of str
        Names of the readers; each gets a cursor at the beginning.
    unread_records_max : int
        Records that may wait for the slowest reader; `has_room` is False from there on.
    retained_records_max : int
        Records that may be kept in all.
    unread_bytes_max : int
        Bytes that may wait for the slowest reader; some times as many may be kept in all.
    first_id : int
        Id of the first block: where a restored producer goes on.
    """

    def __init__(
        self,
        name: str,
        readers: Iterable[str],
        *,
        unread_records_max: int = UNREAD_RECORDS_MAX,
        retained_records_max: int = RETAINED_RECORDS_MAX,
        unread_bytes_max: int = QUEUE_BYTES,
        first_id: int = 0,
    ) -> None:
        self.name = name
        self._cursors = {reader: Cursor() for reader in readers}
        if not self._cursors:
            raise ProtocolError(f"log {name} has no reader.")
        self._unread_max = unread_records_max
        self._retained_max = retained_records_max
        self._unread_bytes_max = unread_bytes_max
        self._retained_bytes_max = RETAINED_QUEUES * unread_bytes_max
        self._blocks: list[Block] = []
        self._base = 0  # index of self._blocks[0] in the whole sequence
        self._next_id = first_id
        self._weight_in = 0  # of everything ever appended
        self._weight_out = 0  # of everything truncated
        self._bytes_in = 0
        self._bytes_out = 0
        self._committed_epoch = 0
        self._ended = False
        self.reader_bell = Bell()
        """Rung for every block that is appended."""
        self.writer_bell = Bell()
        """Rung when something is consumed, if the writer waits for room."""

    @property
    def next_id(self) -> int:
        """Id that the next block must begin with."""
        return self._next_id

    @property
    def bounds(self) -> tuple[int, int]:
        """First id still kept and first id not yet written."""
        return (self._blocks[0].first if self._blocks else self._next_id), self._next_id

    @property
    def retained_records(self) -> int:
        """Records kept, consumed ones included."""
        return self._weight_in - self._weight_out

    @property
    def retained_bytes(self) -> int:
        """Bytes kept, consumed ones included."""
        return self._bytes_in - self._bytes_out

    @property
    def is_filling(self) -> bool:
        """Whether so much is kept for replay that an epoch should be committed soon."""
        return 2 * self.retained_records > self._retained_max or 2 * self.retained_bytes > self._retained_bytes_max

    def inspect(self) -> LogView:
        """A read-only view."""
        cursors = [(each.consumed, each.next) for each in self._cursors.values()]
        return LogView(self, self._base, self._blocks, self._next_id, cursors)

    @property
    def committed_epoch(self) -> int:
        """Last epoch known to be committed everywhere."""
        return self._committed_epoch

    def unread_records(self, reader: str) -> int:
        """Records that the reader has not consumed yet."""
        return self._weight_in - self._cursors[reader].consumed_weight

    @property
    def has_room(self) -> bool:
        """Whether a producer may append; markers may always be appended."""
        if self._weight_in - self._weight_out >= self._retained_max:
            return False
        if self._bytes_in - self._bytes_out >= self._retained_bytes_max:
            return False
        weight = self._weight_in - self._unread_max
        size_bytes = self._bytes_in - self._unread_bytes_max
        for cursor in self._cursors.values():  # as in has_queue_room: asked at every step, so without a call
            if cursor.consumed_weight <= weight or cursor.consumed_bytes <= size_bytes:
                return False
        return True

    @property
    def has_queue_room(self) -> bool:
        """Whether the readers keep up, however much is kept for replay.

        Records before a marker may be appended as long as they do: there is no commit, which drops what is kept, unless
        the marker comes through.
        """
        weight = self._weight_in - self._unread_max
        size_bytes = self._bytes_in - self._unread_bytes_max
        for cursor in self._cursors.values():
            if cursor.consumed_weight <= weight or cursor.consumed_bytes <= size_bytes:
                return False
        return True

    def append(self, block: Block) -> None:
        """Add the next block.

        Raises
        ------
        OffsetGap
            If the block does not begin where the log ends.
        """
        if block.first != self._next_id or block.last < block.first:
            raise OffsetGap(log=self.name, expected=self._next_id, got=block.first)
        if self._ended:
            raise ProtocolError(f"log {self.name} has ended; block {block.first} cannot follow.")
        self._blocks.append(block)
        self._next_id = block.last + 1
        self._weight_in += block.weight
        self._bytes_in += block.size_bytes
        self._ended = block.mark is Mark.END
        self.reader_bell.rung = True

    def peek(self, reader: str) -> Block | None:
        """Return the block at the reader's cursor without moving it."""
        at = self._cursors[reader].next - self._base
        return self._blocks[at] if at < len(self._blocks) else None

    def read(self, reader: str) -> Block | None:
        """Return the block at the reader's cursor and move on; it is not consumed yet."""
        cursor = self._cursors[reader]
        at = cursor.next - self._base
        if at >= len(self._blocks):
            return None
        cursor.next += 1
        return self._blocks[at]

    def consume(self, reader: str, last: int) -> None:
        """Note that the reader is done with everything up to block id ``last``."""
        cursor = self._cursors[reader]
        blocks, base = self._blocks, self._base
        while cursor.consumed < cursor.next and (block := blocks[cursor.consumed - base]).last <= last:
            cursor.consumed_weight += block.weight
            cursor.consumed_bytes += block.size_bytes
            cursor.consumed += 1
        if self.writer_bell.blocked:
            self.writer_bell.rung = True

    def weigh(self, reader: str, size_bytes: int) -> None:
        """Note what the block that the reader has read last really weighs."""
        at = self._cursors[reader].next - 1
        block = self._blocks[at - self._base]
        more = size_bytes - block.size_bytes
        block.size_bytes = size_bytes
        self._bytes_in += more
        for cursor in self._cursors.values():
            if cursor.consumed > at:
                cursor.consumed_bytes += more

    def seek(self, reader: str, block_id: int) -> None:
        """Move the reader's cursor to the block that begins at ``block_id``: replay, or a resend."""
        at = bisect_left(self._blocks, block_id, key=lambda block: block.first)
        found = self._blocks[at].first if at < len(self._blocks) else self._next_id
        if found != block_id:
            raise OffsetGap(log=self.name, expected=self.bounds[0], got=block_id)
        cursor = self._cursors[reader]
        cursor.next = self._base + at
        if cursor.consumed > cursor.next:
            for block in self._blocks[at : cursor.consumed - self._base]:
                cursor.consumed_weight -= block.weight
                cursor.consumed_bytes -= block.size_bytes
            cursor.consumed = cursor.next

    def seek_after_epoch(self, reader: str, epoch: int) -> int:
        """Move the reader to the first block after ``epoch``, as if it had consumed all before; return its id."""
        at = bisect_right(self._blocks, epoch, key=lambda block: block.epoch)
        cursor = self._cursors[reader]
        cursor.next = cursor.consumed = self._base + at
        cursor.consumed_weight = self._weight_out + sum(block.weight for block in self._blocks[:at])
        cursor.consumed_bytes = self._bytes_out + sum(block.size_bytes for block in self._blocks[:at])
        return self.position(reader)

    def position(self, reader: str) -> int:
        """Id of the next block the reader will get."""
        block = self.peek(reader)
        return block.first if block is not None else self._next_id

    def commit(self, epoch: int) -> None:
        """Note that ``epoch`` is committed everywhere, and drop what is no longer needed."""
        self._committed_epoch = max(self._committed_epoch, epoch)
        consumed = min(cursor.consumed for cursor in self._cursors.values()) - self._base
        dropped = 0
        while dropped < consumed and self._blocks[dropped].epoch <= self._committed_epoch:
            self._weight_out += self._blocks[dropped].weight
            self._bytes_out += self._blocks[dropped].size_bytes
            dropped += 1
        del self._blocks[:dropped]
        self._base += dropped
