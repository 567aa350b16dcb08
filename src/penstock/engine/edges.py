"""The ends of an edge: outputs that cut a unit's results into partition logs, inputs that read them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from penstock.dataset import Bell, Block, Log, Mark, Receiver, Scale, cut_columns, unpack
from penstock.engine.event_time import Origin
from penstock.engine.heat import SAMPLE_RECORDS, Heat
from penstock.engine.lineage import Place, source_behind
from penstock.engine.snapshot import InputState
from penstock.metrics.times import later
from penstock.operators.keys import Partitioner
from penstock.pipeline.plan import EdgeSpec, Mode, Plan
from penstock.pipeline.routes import NEVER, next_flip, owner_at_first, routed
from penstock.types import Record

READER = "edge"
"""Name of the one reader of an edge's log: the neighbour in this process, or the channel's sender."""

_MIXED = 0x9E3779B97F4A7C15
"""Multiplied with a number, it mixes its bits well: a stride of the golden ratio."""


class Span:
    """Which block ids a piece of work covers, and what goes with them; one object is reused for every block.

    A piece of work begins with one id; outputs that have to cut it into several blocks move ``last`` on.
    """

    __slots__ = ("due_us", "epoch", "event_time_us", "first", "idle", "lane", "last", "mark", "place", "straggler_us")

    def __init__(self) -> None:
        self.first = 0
        self.last = 0
        self.epoch = 1
        self.due_us = 0
        self.event_time_us: int | None = None
        self.lane = -1
        self.straggler_us: int | None = None
        self.idle: bool | None = None
        self.mark = Mark.NONE
        self.place: Place | None = None


class EdgeOutput:
    """One edge of one producing instance: a log for every consumer.

    Blocks without records are not written at once: the next block of that log, or `announce`, covers their ids. What is
    too heavy for one block is cut into several, each with an id of its own; event time, idleness and marks go with the
    last of them.
    """

    def __init__(self, edge: EdgeSpec, plan: Plan, instance: int, first_id: int = 0) -> None:
        self.edge = edge
        self.instance = instance
        self.consumers = edge.consumers(plan, instance)
        self.records_written = 0
        self.logs = [
            Log(
                f"{plan.units[edge.producer].name}.{instance}→{plan.units[edge.consumer].name}.{consumer}",
                [READER],
                unread_records_max=plan.options.queue_records,
                unread_bytes_max=plan.options.queue_bytes,
                first_id=first_id,
            )
            for consumer in self.consumers
        ]
        self._partitioner: Partitioner | None = None
        self._shifts = plan.routes
        self._routed: dict[int, int] = {}
        """Key groups that go to another consumer than they would at first."""
        self._flip_epoch = NEVER
        """Behind whose marker others do."""
        self.heat = Heat(edge.keys) if edge.mode is Mode.SHUFFLE and len(self.consumers) > 1 else None
        self._event_time: list[int | None] = [None] * len(self.logs)
        self._next_id = first_id
        self._epoch = 1
        self._scale = Scale()
        self._block_bytes = plan.options.block_bytes
        self._names_source = source_behind(plan, edge) is not None
        self.follow_shifts()

    def follow_shifts(self, epoch: int | None = None) -> None:
        """Deal out as the shifts say that are known now, from ``epoch`` on, or for the epoch that is written."""
        if self.edge.mode is not Mode.SHUFFLE:
            return
        epoch, unit, count = self._epoch if epoch is None else epoch, self.edge.consumer, len(self.consumers)
        found = routed(self._shifts, unit, count, epoch)
        self._flip_epoch = next_flip(self._shifts, unit, epoch)
        if self._partitioner is None or found != self._routed:
            self._partitioner, self._routed = Partitioner(self.edge.keys, count, found), found

    @property
    def is_filling(self) -> bool:
        """Whether so much is kept for replay that an epoch should be committed soon."""
        return any(log.is_filling for log in self.logs)

    def emit(self, span: Span, rows: list[Record]) -> None:
        """Write the records of a span, dealt out to the logs of their owners."""
        self._epoch = span.epoch
        if span.epoch > self._flip_epoch:
            self.follow_shifts(span.epoch)
        if rows:
            written = self.records_written
            self.records_written = now = written + len(rows)
            if self.heat is not None and written // SAMPLE_RECORDS != now // SAMPLE_RECORDS:
                # Not each n-th record: keys often come in turns, and some of them would never be seen.
                self.heat.add(rows[(written * _MIXED >> 32) % len(rows)])
            self._scale.add(rows)
        if self._partitioner is None or len(self.logs) == 1:
            self._write(0, span, rows)
        elif rows:
            for i, part in enumerate(self._partitioner.rows(rows)):
                self._write(i, span, part)
        else:
            for i in range(len(self.logs)):
                self._write(i, span, rows)
        self._next_id = span.last + 1

    def emit_parts(self, span: Span, parts: Mapping[int, Sequence[tuple[int, bytes]]]) -> None:
        """Write packed records of a span that a slot has dealt out already: counts and columns by consumer."""
        self._epoch = span.epoch
        if span.epoch > self._flip_epoch:
            self.follow_shifts(span.epoch)
        if self._routed:
            parts = self._redealt(parts)
        for i in range(len(self.logs)):
            pieces = parts.get(i, ())
            for ahead, (count, packed) in enumerate(pieces[:-1]):
                self._write_ahead(i, span, ahead, None, count, packed, len(packed))
            count, packed = pieces[-1] if pieces else (0, b"")
            self.records_written += sum(each[0] for each in pieces)
            self._write(i, span, [], count, packed)
        self._next_id = span.last + 1

    def _redealt(self, parts: Mapping[int, Sequence[tuple[int, bytes]]]) -> Mapping[int, Sequence[tuple[int, bytes]]]:
        """Deal those parts out again that may have records of groups that have been shifted: slots know of none.

        A key's records are all in one part, so they keep their order.
        """
        assert self._partitioner is not None
        again = {owner_at_first(group, len(self.logs)) for group in self._routed}
        found = {i: list(pieces) for i, pieces in parts.items() if i not in again}
        for i in sorted(again & parts.keys()):
            for _, packed in parts[i]:
                for j, part in enumerate(self._partitioner.columns(unpack(packed, self.edge.schema))):
                    found.setdefault(j, []).extend(cut_columns(part, self._block_bytes) if part.num_rows else ())
        return found

    def _write(self, i: int, span: Span, rows: list[Record], packed_count: int = 0, packed: bytes = b"") -> None:
        reached = span.event_time_us
        if reached is None:
            reached = self._event_time[i]
        count = len(rows) or packed_count
        if not count and span.mark is Mark.NONE and span.idle is None:
            self._event_time[i] = reached
            return
        size_bytes, place = len(packed), span.place if self._names_source else None
        if rows:
            size_bytes = count * self._scale.record_bytes
            if size_bytes > self._block_bytes and count > 1:
                place = None  # that of the first piece
                rows = self._cut(i, span, rows, -(-size_bytes // self._block_bytes))
                size_bytes = size_bytes * len(rows) // count
                count = len(rows)
        log = self.logs[i]
        log.append(
            Block(
                log.next_id,
                span.last,
                span.epoch,
                rows or None,
                None,
                count,
                span.due_us if count else 0,
                reached,
                span.lane,
                span.straggler_us,
                span.idle,
                span.mark,
                packed or None,
                size_bytes,
                place,
            )
        )
        self._event_time[i] = None

    def _cut(self, i: int, span: Span, rows: list[Record], pieces: int) -> list[Record]:
        """Write all but the last piece of records that are too heavy for one block; return the last."""
        each = max(1, len(rows) // pieces)
        at = 0
        for ahead, at in enumerate(range(0, len(rows) - each, each)):
            size_bytes = each * self._scale.record_bytes
            self._write_ahead(i, span, ahead, rows[at : at + each], each, None, size_bytes)
        return rows[at + each :]

    def _write_ahead(
        self,
        i: int,
        span: Span,
        ahead: int,
        rows: list[Record] | None,
        count: int,
        packed: bytes | None,
        size_bytes: int,
    ) -> None:
        """Write a piece that others of the same span follow: it has the next id, and tells nothing but its records."""
        log = self.logs[i]
        last = span.first + ahead
        lane, straggler_us = span.lane, span.straggler_us
        log.append(
            Block(
                log.next_id, last, span.epoch, rows, None, count, span.due_us, None, lane, straggler_us,
                packed=packed, size_bytes=size_bytes,
            )
        )  # fmt: skip
        span.last = max(span.last, last + 1)

    def announce(self) -> None:
        """Tell every consumer of ids, and of event time, that passed without a record for it."""
        for i, log in enumerate(self.logs):
            if log.next_id < self._next_id:
                last = self._next_id - 1
                log.append(Block(log.next_id, last, self._epoch, event_time_us=self._event_time[i]))
                self._event_time[i] = None


class EdgeInput(ABC):
    """One producing instance as its consumer sees it.

    Parameters
    ----------
    lanes : frozenset of int
        Lanes that the producer writes.
    delay_us : int
        How far its watermark trails its event time.
    """

    def __init__(self, lanes: frozenset[int], delay_us: int, state: InputState | None = None) -> None:
        self.lanes = lanes
        self.delay_us = delay_us
        self.aligned = False
        """Its marker of the present epoch has come; wait for the other inputs."""
        self.ended = self._has_ended = state.ended if state else False
        self.idle_lanes = set(state.idle_lanes) & lanes if state else set()
        self.event_time_us = state.event_time_us if state else None
        self.records_read = state.records_read if state else 0
        self.disordered_blocks = 0
        """Blocks that did not follow the one before; stays 0 unless the layers below are wrong."""
        self._next_id = state.next_id if state else 0

    def state(self) -> InputState:
        """Where this input stands."""
        idle = sorted(self.idle_lanes)
        return InputState(
            next_id=self._next_id,
            event_time_us=self.event_time_us,
            idle_lanes=idle,
            ended=self.ended,
            records_read=self.records_read,
        )

    def audit(self, block: Block) -> None:
        """Count what is read here, independently of what the log or the channel believes."""
        self.records_read += block.count
        if block.first != self._next_id:
            self.disordered_blocks += 1
        self._next_id = block.last + 1

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits for it: all of its lanes are idle, or it has ended."""
        return self._has_ended or len(self.idle_lanes) == len(self.lanes)

    def is_silent(self, lane: int) -> bool:
        """Whether a lane is not waited for here."""
        return self._has_ended or lane in self.idle_lanes

    def hear(self, origin: Origin) -> None:
        """Take note of what came with some records about event time."""
        self.event_time_us = later(self.event_time_us, origin.event_time_us)
        if origin.idle is not None:
            (self.idle_lanes.add if origin.idle else self.idle_lanes.discard)(origin.lane)
        self._has_ended = self._has_ended or origin.ends

    @abstractmethod
    def rings(self, bell: Bell) -> None:
        """Have every block that comes ring."""

    @abstractmethod
    def peek(self) -> Block | None:
        """Return the next block, if there is one."""

    @abstractmethod
    def pop(self) -> Block:
        """Consume the next block."""

    @abstractmethod
    def queued_records(self) -> int:
        """Records that wait here."""


class LocalInput(EdgeInput):
    """Reads a log in the same process."""

    def __init__(self, log: Log, lanes: frozenset[int], delay_us: int = 0, state: InputState | None = None) -> None:
        super().__init__(lanes, delay_us, state)
        self._log = log

    def rings(self, bell: Bell) -> None:
        self._log.reader_bell = bell

    def peek(self) -> Block | None:
        return self._log.peek(READER)

    def pop(self) -> Block:
        block = self._log.read(READER)
        assert block is not None
        self._log.consume(READER, block.last)
        return block

    def queued_records(self) -> int:
        return self._log.unread_records(READER)


class RemoteInput(EdgeInput):
    """Reads what a channel has received."""

    def __init__(
        self, receiver: Receiver, lanes: frozenset[int], delay_us: int = 0, state: InputState | None = None
    ) -> None:
        super().__init__(lanes, delay_us, state)
        self.receiver = receiver

    def rings(self, bell: Bell) -> None:
        self.receiver.bell = bell

    def peek(self) -> Block | None:
        return self.receiver.peek()

    def pop(self) -> Block:
        return self.receiver.pop()

    def queued_records(self) -> int:
        return self.receiver.queued_records
