"""At once into a topic: records are sent when they come, and again after a failure, with a header that tells."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.connectors.base import SinkWriter, WriterContext
from penstock.connectors.kafka.access import Access, Troubles, client_library
from penstock.connectors.kafka.encoding import Entry, Layout
from penstock.connectors.kafka.transactions import decode_entries
from penstock.errors import PenstockError
from penstock.types import Record, Schema

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

HEADER = "penstock"
IN_FLIGHT_MAX = 50_000
"""Records that may wait for the broker's answer; then the instance takes no more."""
FINISH_S = 60.0


class Unconfirmed(msgspec.Struct, array_like=True):
    """What a snapshot keeps of the sink."""

    epoch: int
    """What comes next bears its number."""
    entries: list[Entry]
    """What the broker may not have."""


class ImmediateWriter(SinkWriter):
    """Sends every record as it comes; those that the broker has not confirmed are part of the snapshots.

    The header ``penstock`` of a record is ``job/operation/instance/epoch/attempt/number``. The number counts from 0 in
    every epoch. A later attempt at an epoch, after a failure, replaces what earlier ones have sent of it and of later
    epochs. So what follows on an epoch in which nothing was sent bears the number of that: an earlier attempt may have
    sent something then, and nothing else would replace it.
    """

    def __init__(
        self, access: Access, topic: str, layout: Layout, schema: Schema, context: WriterContext, bytes_max: int
    ) -> None:
        self._access = access
        self._topic = topic
        self._operation = context.operation
        self._encode = layout.encoder(schema, bytes_max)
        self._name = f"{context.job_id}/{context.operation}/{context.instance}"
        self._attempt = time.time_ns() // 1_000_000
        self._epoch = 1
        self._number = 0
        self._in_flight: dict[int, Entry] = {}
        self._sent = 0
        self._failure: PenstockError | None = None
        self._troubles = Troubles(was_reached=True)  # by the driver, when it checked
        self._producer: Producer = access.producer(
            self._troubles,
            **{
                # What a worker writes in one turn shares a request: one for each record would cost too much.
                "linger.ms": 1,
                "partitioner": "murmur2_random",
                "message.timeout.ms": 0,
                "retry.backoff.ms": 20,
                "queue.buffering.max.messages": 0,
                "queue.buffering.max.kbytes": 2 * 1024 * 1024 - 1,
                **access.options,
            },
        )

    def write(self, rows: list[Record]) -> None:
        self._send(self._encode(rows))

    def adopt(self, staged: bytes, schema: Schema) -> None:
        del schema
        self._send(decode_entries(staged))

    def _send(self, entries: list[Entry]) -> None:
        name = f"{self._name}/{self._epoch}/{self._attempt}/"
        number = self._number
        for key, value, headers, partition in entries:
            tagged = [(HEADER, f"{name}{number}".encode()), *(headers or ())]
            self._produce((key, value, tagged, partition))
            number += 1
        self._number = number
        self._poll()

    def _produce(self, entry: Entry) -> None:
        key, value, headers, partition = entry
        self._sent = number = self._sent + 1
        self._in_flight[number] = entry
        confirmed: Callable[[KafkaError | None, Message], None] = partial(self._confirmed, number)
        self._producer.produce(self._topic, value, key, partition, confirmed, headers=headers)  # type: ignore[arg-type]

    def _confirmed(self, number: int, error: KafkaError | None, message: Any) -> None:
        del message
        if error is None:
            del self._in_flight[number]
            self._troubles.passed()
        elif self._failure is None:
            what = f"topic '{self._topic}': {error.str()}."
            self._failure = self._access.failed(what, operation=self._operation)

    def _poll(self) -> None:
        self._producer.poll(0)
        if self._failure is not None:
            raise self._failure
        self._troubles.raise_fatal(self._access)

    @property
    def is_blocked(self) -> bool:
        if len(self._in_flight) > IN_FLIGHT_MAX:
            self._producer.poll(0)
        return len(self._in_flight) > IN_FLIGHT_MAX

    def prepare(self, epoch: int) -> None:
        self._poll()
        if self._number:
            self._epoch, self._number = epoch + 1, 0

    def snapshot(self, epoch: int) -> bytes | None:
        del epoch
        return msgspec.msgpack.encode(Unconfirmed(self._epoch, list(self._in_flight.values())))

    def restore(self, epoch: int, snapshot: bytes | None) -> None:
        self._epoch = epoch + 1
        if snapshot is not None:
            held = msgspec.msgpack.decode(snapshot, type=Unconfirmed)
            self._epoch = held.epoch
            for entry in held.entries:
                self._produce(entry)

    def commit(self, epoch: int) -> list[Record] | None:
        del epoch
        self._poll()
        return None

    def finish(self) -> None:
        left = self._producer.flush(FINISH_S)
        self._poll()
        if left:
            raise self._access.failed(
                f"{left} records are not in topic '{self._topic}' yet: {self._troubles.latest or 'no answer'}.",
                hint="Start the job again with the same checkpoint directory: it sends them.",
                operation=self._operation,
            )

    def close(self) -> None:
        kinds = client_library()
        try:
            self._producer.purge()
            self._producer.flush(0)
        except kinds.KafkaException:
            pass
