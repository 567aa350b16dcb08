"""Reads given offsets of a topic: for slots, for dead letters and for samples. It blocks until they are there."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.connectors.kafka.access import Access, Troubles, client_library

if TYPE_CHECKING:
    from confluent_kafka import Message

WAIT_S = 20.0
"""Without any answer for so long, reading fails."""
_LOOK_S = 0.5
TAKE_RECORDS = 10_000
_FETCH_BYTES = 1024 * 1024
"""More than most ranges; what lies behind a range is fetched for nothing."""


class Ranges:
    """Reads ranges of partitions, one at a time.

    Other slots read the ranges before and behind. So nothing is kept for the next one. Between two ranges nothing is
    assigned: the client would go on asking for what follows, and begin with the next range when that is answered.
    """

    def __init__(self, access: Access, topic: str, isolation: str) -> None:
        self._access = access
        self._topic = topic
        self._troubles = Troubles(was_reached=True)  # by the driver, when it checked
        self._consumer = access.consumer(
            self._troubles,
            **{
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "queued.min.messages": 1,
                "fetch.message.max.bytes": _FETCH_BYTES,
                "fetch.queue.backoff.ms": 1,
                "fetch.wait.max.ms": 5,
            },
        )

    def read(self, partition: int, first: int, end: int | None, count: int) -> list[Message]:
        """Return the messages from ``first`` up to ``end``; where there is no end, so many as ``count`` says."""
        self._consumer.assign([client_library().TopicPartition(self._topic, partition, first)])
        try:
            return self._read(partition, first, end, count)
        finally:
            self._consumer.unassign()

    def _read(self, partition: int, first: int, end: int | None, count: int) -> list[Message]:
        found: list[Message] = []
        left = count if end is None else end - first
        deadline = time.monotonic() + WAIT_S
        while left > 0:
            # Asked for many, the client waits until there are so many.
            arrived = self._consumer.poll(_LOOK_S)
            if arrived is None:
                self._troubles.raise_fatal(self._access)
                if time.monotonic() > deadline:
                    what = f"partition {partition} of topic '{self._topic}' could not be read from offset {first}"
                    raise self._access.failed(f"{what}: {self._troubles.latest or 'no answer'}.")
                continue
            deadline = time.monotonic() + WAIT_S
            self._troubles.passed()
            for message in (arrived, *(self._consumer.consume(min(left - 1, TAKE_RECORDS), 0) if left > 1 else ())):
                if message.error() is not None:
                    if self._is_end(message, partition, first, end):
                        return found
                    continue
                offset: int = message.offset()
                if end is not None and offset >= end:
                    return found
                found.append(message)
                left = count - len(found) if end is None else end - offset - 1
        return found

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
