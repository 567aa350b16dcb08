"""A channel carries one log to one remote reader: windowed sending, acknowledgement, resending, duplicate refusal.

The transport below may lose, repeat or reorder messages across a reconnect; correctness rests on block ids here.

=========  =========================  ==================================================================
side       event                      effect
=========  =========================  ==================================================================
sender     window open                send the block at the cursor
sender     Ack(received, consumed)    credit what was consumed; remember what arrived
sender     Ack with ``gap``           go back to ``received + 1`` (once per gap)
sender     no progress for a while    go back to ``received + 1``; wait twice as long the next time
sender     all received, none         send the last block again, which makes the receiver acknowledge; wait
           consumed for a while       twice as long the next time
receiver   next id                    take it
receiver   id below the next          refuse as duplicate, count it
receiver   id above the next          refuse, count it, acknowledge at once with ``gap`` set
receiver   records consumed           acknowledge when a quarter of the window is used, or after a while
receiver   blocks wait, nothing new   acknowledge again, ever more rarely, so that nobody asks
=========  =========================  ==================================================================
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from penstock.dataset.bell import Bell
from penstock.dataset.block import Block, Mark
from penstock.dataset.log import Log
from penstock.dataset.sizes import QUEUE_BYTES

WINDOW_RECORDS = 8_192
WINDOW_BYTES = QUEUE_BYTES // 2
ACK_DELAY_US = 20_000
ACK_AGAIN_US_MAX = 500_000
"""How often a receiver that waits for its consumer says the same again; more often than a sender would ask."""
RESEND_US_MIN = 1_000_000
RESEND_US_MAX = 30_000_000


class ChannelId(NamedTuple):
    """One producing instance and one consuming instance of an edge."""

    edge: int
    producer: int
    consumer: int


@dataclass(frozen=True, slots=True)
class Ack:
    """What the receiver has: last id received in order, last id consumed, and whether something is missing."""

    received: int
    consumed: int
    gap: bool = False


@dataclass(frozen=True, slots=True)
class SenderView:
    """The sending end of a channel, to be looked at."""

    sent: int
    received: int
    in_flight_records: int
    in_flight_bytes: int
    is_waiting: bool
    bounds: tuple[int, int]


@dataclass(frozen=True, slots=True)
class ReceiverView:
    """The receiving end of a channel, to be looked at."""

    received: int
    owes_ack: bool
    queued_records: int
    largest: int
    """Records of the largest block that waits."""
    queued_bytes: int
    largest_bytes: int


class Sender:
    """Reads a log within the window, of records and of bytes, and keeps what it needs to send again."""

    def __init__(
        self,
        channel: ChannelId,
        log: Log,
        reader: str,
        window_records: int = WINDOW_RECORDS,
        generation: int = 0,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        self.channel = channel
        self.generation = generation
        self.resent_blocks = 0
        self._log = log
        self._reader = reader
        self._window = window_records
        self._window_bytes = window_bytes
        self._in_flight: deque[Block] = deque()  # sent and not consumed
        self._in_flight_records = 0
        self._in_flight_bytes = 0
        self._sent = self._received = log.position(reader) - 1
        self._progress_us = 0
        self._resend_us = RESEND_US_MIN
        self.bell = log.reader_bell = Bell()
        """Rung when there may be something to send."""

    def inspect(self) -> SenderView:
        """A read-only view."""
        records, size_bytes = self._in_flight_records, self._in_flight_bytes
        return SenderView(self._sent, self._received, records, size_bytes, self._is_waiting, self._log.bounds)

    def next(self, now_us: int) -> Block | None:
        """Return the next block to send, if the window allows; a block larger than the window goes alone."""
        block = self._log.peek(self._reader)
        if block is None:
            return None
        if (
            block.count
            and self._in_flight
            and (
                self._in_flight_records + block.weight > self._window
                or self._in_flight_bytes + block.size_bytes > self._window_bytes
            )
        ):
            return None
        self._log.read(self._reader)
        if not self._in_flight:
            self._progress_us = now_us
        self._in_flight.append(block)
        self._in_flight_records += block.weight
        self._in_flight_bytes += block.size_bytes
        if block.last <= self._sent:
            self.resent_blocks += 1
        self._sent = max(self._sent, block.last)
        return block

    def weigh(self, block: Block, size_bytes: int) -> None:
        """Note what the block that `next` has just returned really weighs, now that it is packed."""
        if block.size_bytes != size_bytes:
            self._in_flight_bytes += size_bytes - block.size_bytes
            self._log.weigh(self._reader, size_bytes)

    def on_ack(self, ack: Ack, now_us: int) -> None:
        """Take the receiver's word."""
        self.bell.rung = True
        if ack.received > self._received:
            self._received = ack.received
            self._made_progress(now_us)
        elif self._sent == self._received:
            # A slow consumer's receiver acknowledges again and again; as long as it does, there is nothing to probe.
            self._progress_us = now_us
        while self._in_flight and self._in_flight[0].last <= ack.consumed:
            self._land(self._in_flight.popleft())
            self._made_progress(now_us)
        self._log.consume(self._reader, ack.consumed)
        if ack.gap and ack.received == self._received:
            self._go_back(now_us)

    def tick(self, now_us: int) -> None:
        """Send again what the receiver has not confirmed for too long."""
        if not self._is_waiting or now_us - self._progress_us < self._resend_us:
            return
        self._resend_us = min(2 * self._resend_us, RESEND_US_MAX)
        if self._sent > self._received:
            self._go_back(now_us)
        else:
            # The word that it was consumed may be lost, and a receiver without work sends no other.
            probe = self._in_flight.pop()
            self._land(probe)
            self._log.seek(self._reader, probe.first)
            self._progress_us = now_us

    def wake_us(self) -> int | None:
        """When `tick` has something to do, or None."""
        return self._progress_us + self._resend_us if self._is_waiting else None

    @property
    def _is_waiting(self) -> bool:
        return bool(self._in_flight) or self._sent > self._received

    def _land(self, block: Block) -> None:
        self._in_flight_records -= block.weight
        self._in_flight_bytes -= block.size_bytes

    def _made_progress(self, now_us: int) -> None:
        self._progress_us = now_us
        self._resend_us = RESEND_US_MIN

    def _go_back(self, now_us: int) -> None:
        # Never forward: what is being sent again and was skipped would be missing from what is in flight.
        if self._log.position(self._reader) > self._received + 1:
            self._log.seek(self._reader, self._received + 1)
        while self._in_flight and self._in_flight[-1].last > self._received:
            self._land(self._in_flight.pop())
        self._progress_us = now_us


class Receiver:
    """Takes blocks in order, refuses the rest, and holds them until the unit consumes them."""

    def __init__(
        self,
        channel: ChannelId,
        window_records: int = WINDOW_RECORDS,
        generation: int = 0,
        first_id: int = 0,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        self.channel = channel
        self.generation = generation
        self.duplicate_blocks = 0
        self.refused_blocks = 0
        self.queued_records = 0
        self._window = window_records
        self._window_bytes = window_bytes
        self._queue: deque[Block] = deque()
        self._received = self._consumed = first_id - 1
        self._owed_records = 0
        self._owed_bytes = 0
        self._ack_since_us: int | None = None
        self._ack_delay_us = ACK_DELAY_US
        self._told = (self._received, self._consumed)
        self.ack_now = False
        """Whether an acknowledgement is to be sent without waiting for others."""
        self.bell = Bell()
        """Rung for every block that is taken."""
        self._gap = False

    def inspect(self) -> ReceiverView:
        """A read-only view."""
        largest = max((block.count for block in self._queue), default=0)
        sizes = [block.size_bytes for block in self._queue]
        return ReceiverView(
            self._received, self.ack_now, self.queued_records, largest, sum(sizes), max(sizes, default=0)
        )

    def accept(self, block: Block, now_us: int) -> bool:
        """Take the block if it is the next one; say so."""
        if block.first == self._received + 1:
            self._received = block.last
            self._queue.append(block)
            self.queued_records += block.count
            if self._ack_since_us is None:
                self._ack_since_us = now_us
            self._ack_delay_us = ACK_DELAY_US
            self.bell.rung = True
            return True
        if block.last <= self._received:
            self.duplicate_blocks += 1
        else:
            self.refused_blocks += 1
            self._gap = True
        self.ack_now = True
        return False

    def peek(self) -> Block | None:
        """Return the oldest block not consumed."""
        return self._queue[0] if self._queue else None

    def pop(self) -> Block:
        """Consume the oldest block."""
        block = self._queue.popleft()
        self.queued_records -= block.count
        self._consumed = block.last
        self._owed_records += block.weight
        self._owed_bytes += block.size_bytes
        if (
            self._owed_records * 4 >= self._window
            or self._owed_bytes * 4 >= self._window_bytes
            or block.mark is Mark.END
            or self._ack_delay_us > ACK_DELAY_US  # the consumer has stood still: its producer may wait for room
        ):
            self.ack_now = True
        return block

    def wake_us(self) -> int | None:
        """When an acknowledgement is due, or None."""
        return None if self._ack_since_us is None else self._ack_since_us + self._ack_delay_us

    def ack(self, now_us: int) -> Ack | None:
        """Return the acknowledgement to send now, if any."""
        due = self._ack_since_us is not None and now_us - self._ack_since_us >= self._ack_delay_us
        if not (self.ack_now or due):
            return None
        ack = Ack(self._received, self._consumed, self._gap)
        news, self._told = self._told != (ack.received, ack.consumed), (ack.received, ack.consumed)
        self._ack_delay_us = ACK_DELAY_US if news else min(2 * self._ack_delay_us, ACK_AGAIN_US_MAX)
        self.ack_now = False
        self._gap = False
        self._owed_records = self._owed_bytes = 0
        # Blocks that are queued but not consumed need one more acknowledgement later.
        self._ack_since_us = now_us if self._queue else None
        return ack
