"""The ends of an edge: outputs that cut a unit's results into partition logs, inputs that read them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from penstock.dataset import Bell, Block, Log, Mark, Receiver
from penstock.dataset.log import RETAINED_RECORDS_MAX
from penstock.engine.snapshot import InputState
from penstock.metrics.times import later
from penstock.operators.keys import Partitioner
from penstock.pipeline.plan import EdgeSpec, Mode, Plan
from penstock.types import Record

READER = "edge"
"""Name of the one reader of an edge's log: the neighbour in this process, or the channel's sender."""


class Span:
    """Which block ids a piece of work covers, and what goes with them; one object is reused for every block."""

    __slots__ = ("due_us", "epoch", "event_time_us_max", "first", "idle", "last", "mark")

    def __init__(self) -> None:
        self.first = 0
        self.last = 0
        self.epoch = 1
        self.due_us = 0
        self.event_time_us_max: int | None = None
        self.idle = False
        self.mark = Mark.NONE


class EdgeOutput:
    """One edge of one producing instance: a log for every consumer.

    Blocks without records are not written at once: the next block of that log, or `announce`, covers their ids.
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
                first_id=first_id,
            )
            for consumer in self.consumers
        ]
        self._partitioner = Partitioner(edge.keys, len(self.consumers)) if edge.mode is Mode.SHUFFLE else None
        self._idle = [False] * len(self.logs)
        self._event_time: list[int | None] = [None] * len(self.logs)
        self._next_id = first_id
        self._epoch = 1

    @property
    def is_filling(self) -> bool:
        """Whether so much is kept for replay that an epoch should be committed soon."""
        return any(2 * log.retained_records > RETAINED_RECORDS_MAX for log in self.logs)

    @property
    def has_unannounced(self) -> bool:
        """Whether some consumer does not know of ids that have passed."""
        following = self._next_id
        for log in self.logs:  # noqa: SIM110 (asked at every step: no generator)
            if log.next_id < following:
                return True
        return False

    def emit(self, span: Span, rows: list[Record]) -> None:
        """Write the records of a span, dealt out to the logs of their owners."""
        self._next_id = span.last + 1
        self._epoch = span.epoch
        self.records_written += len(rows)
        if self._partitioner is None or len(self.logs) == 1:
            self._write(0, span, rows)
        elif rows:
            for i, part in enumerate(self._partitioner.rows(rows)):
                self._write(i, span, part)
        else:
            for i in range(len(self.logs)):
                self._write(i, span, rows)

    def emit_parts(self, span: Span, parts: Mapping[int, tuple[int, bytes]]) -> None:
        """Write packed records of a span that a slot has dealt out already: count and columns by consumer."""
        self._next_id = span.last + 1
        self._epoch = span.epoch
        for i in range(len(self.logs)):
            count, packed = parts.get(i, (0, None))
            self.records_written += count
            self._write(i, span, [], count, packed)

    def _write(
        self, i: int, span: Span, rows: list[Record], packed_count: int = 0, packed: bytes | None = None
    ) -> None:
        newest = span.event_time_us_max
        held = self._event_time[i]
        if held is not None and (newest is None or held > newest):
            newest = held
        count = len(rows) or packed_count
        if not count and span.mark is Mark.NONE and span.idle == self._idle[i]:
            self._event_time[i] = newest
            return
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
                newest,
                span.idle,
                span.mark,
                packed,
            )
        )
        self._idle[i] = span.idle
        self._event_time[i] = None

    def announce(self) -> None:
        """Tell every consumer of ids, and of event time, that passed without a record for it."""
        for i, log in enumerate(self.logs):
            if log.next_id < self._next_id:
                last = self._next_id - 1
                log.append(
                    Block(
                        log.next_id,
                        last,
                        self._epoch,
                        event_time_us_max=self._event_time[i],
                        idle=self._idle[i],
                    )
                )
                self._event_time[i] = None


class EdgeInput(ABC):
    """One producing instance as its consumer sees it."""

    def __init__(self, state: InputState | None = None) -> None:
        self.aligned = False
        """Its marker of the present epoch has come; wait for the other inputs."""
        self.ended = state.ended if state else False
        self.idle = state.idle if state else False
        self.event_time_us = state.event_time_us if state else None
        self.shown_us = 0
        """When it last showed an event time; 0 before the first look."""
        self.records_read = state.records_read if state else 0
        self.disordered_blocks = 0
        """Blocks that did not follow the one before; stays 0 unless the layers below are wrong."""
        self._next_id = state.next_id if state else 0

    def state(self) -> InputState:
        """Where this input stands."""
        return InputState(self._next_id, self.event_time_us, self.idle, self.ended, self.records_read)

    def audit(self, block: Block) -> None:
        """Count what is read here, independently of what the log or the channel believes."""
        self.records_read += block.count
        if block.first != self._next_id:
            self.disordered_blocks += 1
        self._next_id = block.last + 1

    def saw_event_time(self, event_time_us: int | None) -> None:
        """Take note of the newest event time that came from this producer."""
        self.event_time_us = later(self.event_time_us, event_time_us)

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

    def __init__(self, log: Log, state: InputState | None = None) -> None:
        super().__init__(state)
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

    def __init__(self, receiver: Receiver, state: InputState | None = None) -> None:
        super().__init__(state)
        self.receiver = receiver

    def rings(self, bell: Bell) -> None:
        self.receiver.bell = bell

    def peek(self) -> Block | None:
        return self.receiver.peek()

    def pop(self) -> Block:
        return self.receiver.pop()

    def queued_records(self) -> int:
        return self.receiver.queued_records
