"""Reads given offsets of a topic: for slots, for dead letters and for samples. It blocks until they are there."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from penstock.connectors.kafka.access import Access, Troubles, client_library

if TYPE_CHECKING:
    from confluent_kafka import Message

WAIT_S = 20.0
"""Without any answer for so long, reading fails."""
_LOOK_S = 0.5
_FETCH_BYTES = 4 * 1024 * 1024


class Ranges:
    """Reads ranges of partitions, one at a time; one that follows the last costs no new fetch."""

    def __init__(self, access: Access, topic: str, isolation: str) -> None:
        self._access = access
        self._topic = topic
        self._troubles = Troubles()
        self._consumer = access.consumer(
            self._troubles,
            **{
                "isolation.level": isolation,
                "enable.partition.eof": True,
                # What lies behind a range may never be wanted here.
                "queued.min.messages": 1,
                "fetch.message.max.bytes": _FETCH_BYTES,
                "fetch.queue.backoff.ms": 1,
                "fetch.wait.max.ms": 50,
            },
        )
        self._next: tuple[int, int] | None = None
        """Partition and offset that can be read on without a new fetch."""
        self._rest: deque[Message] = deque()

    def read(self, partition: int, first: int, end: int | None, count: int) -> list[Message]:
        """Return the messages from ``first`` up to ``end``; where there is no end, so many as ``count`` says."""
        if self._next != (partition, first):
            self._rest.clear()
            self._consumer.assign([client_library().TopicPartition(self._topic, partition, first)])
        self._next = None
        found: list[Message] = []
        deadline = time.monotonic() + WAIT_S
        while True:
            while self._rest:
                message = self._rest[0]
                error = message.error()
                if error is not None:
                    self._rest.popleft()
                    if self._is_end(message, partition, first, end):
                        return found
                    continue
                offset: int = message.offset()  # type: ignore[assignment]
                if end is not None and offset >= end:
                    self._next = partition, end
                    return found
                found.append(self._rest.popleft())
                if len(found) == count if end is None else offset == end - 1:
                    self._next = partition, offset + 1
                    return found
            # Asked for many, the client waits until there are so many.
            arrived = self._consumer.poll(_LOOK_S)
            if arrived is not None:
                deadline = time.monotonic() + WAIT_S
                self._rest.append(arrived)
                self._rest.extend(self._consumer.consume(10_000, 0))
                continue
            self._troubles.raise_fatal(self._access)
            if time.monotonic() > deadline:
                cause = self._troubles.latest or "no answer"
                raise self._access.failed(
                    f"partition {partition} of topic '{self._topic}' could not be read from offset {first}: {cause}."
                )

    def _is_end(self, message: Message, partition: int, first: int, end: int | None) -> bool:
        """Whether a message that is none says that nothing more of the range comes."""
        error, kinds = message.error(), client_library().KafkaError
        assert error is not None
        if error.code() == kinds._PARTITION_EOF:
            # Before the end it is that of a fetch: more has been written since.
            return end is not None and (message.offset() or 0) >= end
        if error.code() in (
            kinds._AUTO_OFFSET_RESET, kinds.OFFSET_OUT_OF_RANGE, kinds.UNKNOWN_TOPIC_OR_PART, kinds._UNKNOWN_PARTITION,
        ):  # fmt: skip
            raise self._access.failed(
                f"partition {partition} of topic '{self._topic}' no longer has the records from offset {first} on.",
                hint="Give the topic a longer retention.",
            )
        self._troubles.note(error)
        return False

    def close(self) -> None:
        """End the client."""
        self._consumer.close()
