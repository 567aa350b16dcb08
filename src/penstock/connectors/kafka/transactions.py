"""Exactly once into a topic: every committed epoch becomes one transaction, which carries the epoch's number.

The number, the *token*, is the committed offset of a group of the sink instance's own (`Channel.name`), written by the
transaction itself. So the records of an epoch are visible if and only if the token has reached it. The records stay in
the instance's snapshots until they are. No transaction is open longer than it takes to send an epoch: one that times
out or is aborted loses nothing, it is sent again.

===============================  ==================================  =================================================
a crash after                    what is durable                     what the next writer does
===============================  ==================================  =================================================
write                            nothing of the epoch                 the records come again, from the sources
prepare, before the snapshot     nothing of the epoch                 likewise
the snapshot, before its commit  records, in a snapshot nobody uses   likewise
the commit record                records, in the snapshot             token < epoch: it sends the epoch
the transaction has begun        likewise; some of it in the topic    initialising aborts it; it sends the epoch
the transaction is committed     all of it, and the token             token = epoch: it sends nothing
===============================  ==================================  =================================================

================  ==============================  ======================================================  ==============
publisher         event                           effect                                                  next
================  ==============================  ======================================================  ==============
closed            it starts, or an error passed   initialise (fences every other writer of that name and  open
                                                  ends its transaction), then read the token
closed            token > what was ever committed an older checkpoint: refused                            failed
closed, open      a broker is away                wait, and try again; more than enough waits: no room    closed
open              epochs up to the token          forget them: they are there                             open
open              epochs behind it                one transaction: records, token = the last of them      open
open              fenced by another writer        as any error: initialise, read the token                closed
open              not allowed, too large …        the job fails                                           failed
================  ==============================  ======================================================  ==============

Two writers of one name cannot harm each other, only slow each other down: whoever sends has initialised before and read
the token after that, and sends nothing but committed epochs, which are the same for both.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.connectors.base import SinkWriter, WriterContext
from penstock.connectors.kafka.access import Access, Troubles, client_library
from penstock.connectors.kafka.encoding import Entry, Layout, weight
from penstock.errors import CheckpointMismatch, KafkaFailed, PenstockError
from penstock.types import Record, Schema

if TYPE_CHECKING:
    from confluent_kafka import Producer

QUEUED_BYTES_MAX = 64 * 1024 * 1024
"""Committed records that may wait for the broker; then the instance takes no more."""
TIMEOUT_MS = 60_000
FINISH_S = 60.0
CLOSE_S = 5.0
_CALL_S = 15.0
_BACKOFF_S = 0.1
_BACKOFF_S_MAX = 2.0
TOKEN_S = 24 * 3600.0
"""Brokers keep the offsets of a group that nobody is in for a week, unless they are told otherwise; so a token that is
missing after less than this was never there."""


@dataclass(frozen=True)
class Channel:
    """Where an instance of a sink writes, and under which name."""

    access: Access
    topic: str
    name: str
    timeout_ms: int = TIMEOUT_MS

    @staticmethod
    def of(access: Access, topic: str, job_id: str, operation: str, instance: int) -> Channel:
        """The name is the same in every process and every run of a job."""
        timeout_ms = int(access.options.get("transaction.timeout.ms", TIMEOUT_MS))
        return Channel(access, topic, f"penstock-{job_id}-{operation}-{instance}", timeout_ms)

    def token(self, wait_s: float = _CALL_S) -> tuple[int | None, Any]:
        """The newest epoch that is in the topic, if any; and what a transaction needs to write the next."""
        clients, troubles = client_library(), Troubles()
        consumer = self.access.consumer(troubles, **{"group.id": self.name, "isolation.level": "read_committed"})
        try:
            at = [clients.TopicPartition(self.topic, 0)]
            ask = lambda seconds: consumer.committed(at, timeout=seconds)  # noqa: E731
            (found,) = self.access.ask(f"token '{self.name}'", ask, consumer, troubles, wait_s)
            if found.error is not None:
                raise self.access.failed(f"token '{self.name}': {found.error.str()}.")
            return (found.offset if found.offset >= 0 else None), consumer.consumer_group_metadata()
        finally:
            consumer.close()


class Publisher:
    """Sends committed epochs, in their order, from a thread of its own."""

    def __init__(self, channel: Channel, committed: int, told: bool) -> None:
        self._channel = channel
        self._committed = committed
        """The newest epoch that is known to be committed."""
        self._told = told
        """Whether there must be a token, if one was ever written."""
        self._todo: deque[tuple[int, list[Entry]]] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._troubles = Troubles()
        self._producer: Producer | None = None
        self._refused: Any = None
        self._is_open = False
        """Whether it has ever found out what is in the topic."""
        self.done = -1
        """The newest epoch that is in the topic, as far as is known here."""
        self.queued_bytes = 0
        self.failure: PenstockError | None = None
        self._thread = threading.Thread(target=self._run, name="penstock-kafka", daemon=True)
        self._thread.start()

    def submit(self, epoch: int, entries: list[Entry]) -> None:
        """Have a committed epoch sent."""
        with self._changed:
            self._committed = max(self._committed, epoch)
            self._todo.append((epoch, entries))
            self.queued_bytes += weight(entries)
            self._changed.notify_all()

    def wait(self, timeout_s: float) -> bool:
        """Wait until everything that was submitted is in the topic; say whether it is."""
        with self._changed:
            is_over = lambda: (self._is_open and not self._todo) or self.failure is not None  # noqa: E731
            return self._changed.wait_for(is_over, timeout_s)

    @property
    def trouble(self) -> str:
        """Why it waits, if it does."""
        return self._channel.access.hide(self._troubles.latest)

    def close(self) -> None:
        """End the thread; what was not sent is in the snapshots."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join(CLOSE_S)

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        backoff_s = _BACKOFF_S
        errors = client_library().KafkaException
        while not self._stopping:
            try:
                if self._producer is None:
                    self._open()
                with self._changed:
                    self._changed.wait_for(lambda: self._todo or self._stopping)
                    ready = [each for each in self._todo if each[0] > self.done]
                    last = self._todo[-1][0] if self._todo else self.done
                if self._stopping:
                    break
                if ready:
                    self._send(ready)
                self._forget(last)
                backoff_s = _BACKOFF_S
            except errors as error:
                self._drop()
                if not self._passes(error.args[0]):
                    return
                with self._changed:
                    self._changed.wait_for(lambda: self._stopping, backoff_s)
                backoff_s = min(2 * backoff_s, _BACKOFF_S_MAX)
            except PenstockError as error:
                if not isinstance(error, KafkaFailed) or not error.what.startswith("nobody answers"):
                    self._fail(error)
                    return
                self._drop()
            except Exception as error:
                self._fail(self._channel.access.failed(f"{type(error).__name__}: {error}."))
                return
        self._drop()

    def _open(self) -> None:
        """Fence whoever writes under this name, and find out what is there."""
        channel = self._channel
        producer = channel.access.producer(
            self._troubles,
            **{
                "linger.ms": 0,
                "partitioner": "murmur2_random",
                "retry.backoff.ms": 5,
                "queue.buffering.max.messages": 0,
                "queue.buffering.max.kbytes": 2 * 1024 * 1024 - 1,
                "delivery.report.only.error": True,
                **channel.access.options,
                "transaction.timeout.ms": channel.timeout_ms,
                "transactional.id": channel.name,
                "on_delivery": self._note_refused,
            },
        )
        self._producer = producer
        producer.init_transactions(_CALL_S)
        token, self._group = channel.token()
        if token is not None and token > self._committed:
            # Epochs that follow would be taken for those that are there.
            raise CheckpointMismatch(
                f"topic '{channel.topic}' has epoch {token} of this job, and the checkpoint ends with epoch "
                f"{self._committed}.",
                hint="Restore the newest checkpoint, or begin anew with another checkpoint directory and topic.",
            )
        if token is None and self._told:
            raise CheckpointMismatch(
                f"topic '{channel.topic}' no longer says which epochs of this job it has (group '{channel.name}'), "
                "and the last of them may be missing there or not.",
                hint="Brokers forget that a week after the last write (offsets.retention.minutes). Begin anew with "
                "another checkpoint directory and start=.",
            )
        self._told, self._is_open = False, True
        self.done = max(self.done, -1 if token is None else token)
        self._forget(self.done)
        self._troubles.passed()

    def _send(self, ready: list[tuple[int, list[Entry]]]) -> None:
        producer, topic = self._producer, self._channel.topic
        assert producer is not None
        self._refused = None
        producer.begin_transaction()
        produce = producer.produce
        for _, entries in ready:
            for key, value, headers, partition in entries:
                produce(topic, value, key, partition, headers=headers)  # type: ignore[arg-type]
        at = client_library().TopicPartition(topic, 0, ready[-1][0])
        producer.send_offsets_to_transaction([at], self._group, _CALL_S)
        try:
            producer.commit_transaction(_CALL_S)
        except client_library().KafkaException as error:
            raise client_library().KafkaException(self._refused or error.args[0]) from None
        self._troubles.passed()

    def _note_refused(self, error: Any, message: Any) -> None:
        del message
        kinds = client_library().KafkaError
        if error is not None and error.code() not in (kinds._PURGE_QUEUE, kinds._PURGE_INFLIGHT):
            self._refused = error

    def _forget(self, epoch: int) -> None:
        with self._changed:
            self.done = max(self.done, epoch)
            while self._todo and self._todo[0][0] <= epoch:
                self.queued_bytes -= weight(self._todo.popleft()[1])
            self._changed.notify_all()

    def _drop(self) -> None:
        """Give the client up, and whatever transaction it has open."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()

    def _passes(self, error: Any) -> bool:
        """Whether it is worth another try; else the sink fails."""
        kinds = client_library().KafkaError
        channel = self._channel
        self._troubles.note(error)
        refused = {
            kinds.TOPIC_AUTHORIZATION_FAILED: "the user may not write to it",
            kinds.CLUSTER_AUTHORIZATION_FAILED: "the user may not write there",
            kinds.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: f"the user may not use the transactional id '{channel.name}'",
            kinds.GROUP_AUTHORIZATION_FAILED: f"the user may not use the group '{channel.name}'",
            kinds.UNKNOWN_TOPIC_OR_PART: "it is not there any more, or has no such partition",
            kinds._UNKNOWN_TOPIC: "it is not there any more",
            kinds._UNKNOWN_PARTITION: "it has no such partition",
            kinds.MSG_SIZE_TOO_LARGE: "a record is larger than the topic takes (max.message.bytes)",
            kinds.INVALID_TRANSACTION_TIMEOUT: f"the broker refuses transaction.timeout.ms={channel.timeout_ms}",
            kinds.INVALID_RECORD: "the broker refuses a record: a compacted topic needs keys",
            kinds._AUTHENTICATION: "the broker does not know the user",
            kinds.SASL_AUTHENTICATION_FAILED: "the broker does not know the user",
        }
        cause = refused.get(error.code())
        if cause is not None:
            self._fail(channel.access.failed(f"topic '{channel.topic}': {cause}.", hint=error.str()))
        return cause is None

    def _fail(self, error: PenstockError) -> None:
        with self._changed:
            self.failure = error
            self._changed.notify_all()


class Held(msgspec.Struct, array_like=True):
    """What a snapshot keeps of the sink."""

    published: int
    """The newest epoch that was in the topic then; -1: none."""
    at_s: float
    epochs: dict[int, list[Entry]]
    """What may not be there, by epoch."""


class TransactionWriter(SinkWriter):
    """Holds the records of epochs that are not in the topic yet, and has them sent when they are committed."""

    def __init__(
        self, channel: Channel, layout: Layout, schema: Schema, context: WriterContext, bytes_max: int
    ) -> None:
        self._channel = channel
        self._operation = context.operation
        self._encode = layout.encoder(schema, bytes_max)
        self._open: list[Entry] = []
        self._prepared: dict[int, list[Entry]] = {}
        self._submitted = -1
        self._publisher: Publisher | None = None

    def _publishing(self) -> Publisher:
        if self._publisher is None:
            self._publisher = Publisher(self._channel, 0, told=False)
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
    def is_full(self) -> bool:
        return self._publisher is not None and self._publisher.queued_bytes > QUEUED_BYTES_MAX

    def prepare(self, epoch: int) -> None:
        self._publishing()
        if self._open:
            self._prepared[epoch] = self._open
            self._open = []

    def snapshot(self, epoch: int) -> bytes | None:
        published = self._settle()
        held = {each: entries for each, entries in self._prepared.items() if each <= epoch}
        return msgspec.msgpack.encode(Held(published, time.time(), held))

    def restore(self, epoch: int, snapshot: bytes | None) -> None:
        told = False
        if snapshot is not None:
            held = msgspec.msgpack.decode(snapshot, type=Held)
            self._prepared = held.epochs
            told = held.published >= 0 and bool(held.epochs) and time.time() - held.at_s > TOKEN_S
        self._publisher = Publisher(self._channel, epoch, told)

    def commit(self, epoch: int) -> list[Record] | None:
        publisher = self._publishing()
        for each in sorted(self._prepared):
            if self._submitted < each <= epoch:
                publisher.submit(each, self._prepared[each])
                self._submitted = each
        self._settle()
        return None

    def _settle(self) -> int:
        """Forget what is in the topic; return the newest epoch that is."""
        done = self._publishing().done
        for each in [each for each in self._prepared if each <= min(done, self._submitted)]:
            del self._prepared[each]
        return done

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
