"""Exactly once into a topic: every committed epoch becomes visible with one transaction, which carries its number.

The number, the *token*, is one more record of the transaction, in a compacted topic beside (`Channel.tokens`), under
the name of the sink's instance. So the records of an epoch are visible if and only if the token has reached it. The
records stay in the instance's snapshots until they are. So a transaction that times out or is aborted loses nothing: it
is sent again.

===============================  ==================================  =================================================
a crash after                    what is durable                     what the next writer does
===============================  ==================================  =================================================
write                            nothing of the epoch                 the records come again, from the sources
prepare, and it is sent ahead    in the topic, where nobody sees it   initialising aborts it; the records come again
the snapshot, before its commit  records, in a snapshot nobody uses   likewise
the commit record                records, in the snapshot             initialising aborts it; token < epoch: it sends
                                                                      the epoch
the transaction is committed     all of it, and the token             token = epoch: it sends nothing
===============================  ==================================  =================================================

The thread that sends, and the table of its states, are in `publisher`.
"""

from __future__ import annotations

import msgspec

from penstock.connectors.base import SinkWriter, WriterContext
from penstock.connectors.kafka.encoding import Entry, Layout
from penstock.connectors.kafka.publisher import Publisher
from penstock.connectors.kafka.tokens import Channel
from penstock.types import Record, Schema

QUEUED_BYTES_MAX = 64 * 1024 * 1024
"""Committed records that may wait for the broker; then the instance takes no more."""
FINISH_S = 60.0


class Held(msgspec.Struct, array_like=True):
    """What a snapshot keeps of the sink."""

    since: int
    """Tokens of epochs that may be in the topic by now are behind this offset."""
    epochs: dict[int, list[Entry]]
    """What may not be there, by epoch."""


class TransactionWriter(SinkWriter):
    """Hands the records of each epoch to a publisher, which holds them until they are in the topic."""

    def __init__(
        self, channel: Channel, layout: Layout, schema: Schema, context: WriterContext, bytes_max: int
    ) -> None:
        self._channel = channel
        self._operation = context.operation
        self._encode = layout.encoder(schema, bytes_max)
        self._open: list[Entry] = []
        self._publisher: Publisher | None = None

    def _publishing(self) -> Publisher:
        if self._publisher is None:
            # No process knows of a token before the job began: another one of this name may be quicker.
            self._publisher = Publisher(self._channel, 0, self._channel.ends[self._channel.partition])
        if self._publisher.failure is not None:
            raise self._publisher.failure.at(self._operation)
        return self._publisher

    def write(self, rows: list[Record]) -> None:
        self._publishing()
        self._open += self._encode(rows)

    def adopt(self, staged: bytes, schema: Schema) -> None:
        del schema
        self._publishing()
        self._open += decode_entries(staged)

    @property
    def is_blocked(self) -> bool:
        return self._publisher is not None and self._publisher.queued_bytes > QUEUED_BYTES_MAX

    def prepare(self, epoch: int) -> None:
        publisher = self._publishing()
        if self._open:
            publisher.prepare(epoch, self._open)
            self._open = []

    def snapshot(self, epoch: int) -> bytes | None:
        return msgspec.msgpack.encode(Held(*self._publishing().held(epoch)))

    def restore(self, epoch: int, snapshot: bytes | None) -> None:
        held = msgspec.msgpack.decode(snapshot, type=Held) if snapshot is not None else Held(0, {})
        self._publisher = Publisher(self._channel, epoch, held.since, held.epochs)

    def commit(self, epoch: int) -> list[Record] | None:
        self._publishing().commit(epoch)
        return None

    def finish(self) -> None:
        publisher = self._publishing()
        if not publisher.wait(FINISH_S):
            raise self._channel.access.failed(
                f"the last epochs are committed and not in topic '{self._channel.topic}' yet: {publisher.trouble}.",
                hint="Start the job again with the same checkpoint directory: it sends them.",
                operation=self._operation,
            )
        self._publishing()

    def close(self) -> None:
        if self._publisher is not None:
            self._publisher.close()


encode_entries = msgspec.msgpack.Encoder().encode
decode_entries = msgspec.msgpack.Decoder(list[Entry]).decode
