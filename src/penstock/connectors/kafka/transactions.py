"""Exactly once into a topic: every committed epoch becomes one transaction, which carries the epoch's number.

The number, the *token*, is one more record of the transaction, in a compacted topic beside (`Channel.tokens`), under
the name of the sink's instance. So the records of an epoch are visible if and only if the token has reached it. The
records stay in the instance's snapshots until they are. No transaction is open longer than it takes to send an epoch:
one that times out or is aborted loses nothing, it is sent again.

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
from zlib import crc32

import msgspec

from penstock.connectors.base import SinkWriter, WriterContext
from penstock.connectors.kafka.access import Access, Troubles, client_library, described
from penstock.connectors.kafka.encoding import Entry, Layout, weight
from penstock.connectors.kafka.starts import LATEST, resolved
from penstock.errors import CheckpointMismatch, KafkaFailed, PenstockError
from penstock.types import Record, Schema

if TYPE_CHECKING:
    from confluent_kafka import Producer

QUEUED_BYTES_MAX = 64 * 1024 * 1024
"""Committed records that may wait for the broker; then the instance takes no more."""
TIMEOUT_MS = 60_000
FINISH_S = 60.0
CLOSE_S = 5.0
_CALL_S = 5.0
_TOKEN_S = 90.0
"""How long reading a token may take: somebody else's transaction that nobody ends is ended by its time-out."""
_BACKOFF_S = 0.1
_BACKOFF_S_MAX = 2.0
TOKENS = "penstock-epochs"
TOKEN_PARTITIONS = 16


@dataclass(frozen=True)
class Channel:
    """Where an instance of a sink writes, under which name, and where its tokens are."""

    access: Access
    topic: str
    name: str
    tokens: str
    ends: tuple[int, ...]
    """How far each partition of the tokens went before the job began."""

    @property
    def timeout_ms(self) -> int:
        """After so long the broker aborts a transaction."""
        return int(self.access.options.get("transaction.timeout.ms", TIMEOUT_MS))

    @property
    def partition(self) -> int:
        """Where its tokens are."""
        return crc32(self.name.encode()) % len(self.ends)

    def end(self) -> int:
        """How far the tokens go, those of open transactions included."""
        clients, troubles = client_library(), Troubles()
        at = {clients.TopicPartition(self.tokens, self.partition): clients.admin.OffsetSpec.latest()}
        admin = self.access.admin(troubles)

        def look(_: float) -> int:
            level = clients.IsolationLevel.READ_UNCOMMITTED
            (answer,) = admin.list_offsets(at, isolation_level=level, request_timeout=_CALL_S).values()
            return int(answer.result().offset)

        return self.access.ask(f"topic '{self.tokens}'", look, admin, troubles, _CALL_S)

    def token(self, since: int) -> int | None:
        """The newest epoch that is in the topic, if it was written behind offset ``since``.

        What is behind a transaction that is open cannot be read, whoever's it is: it is waited for.
        """
        kinds, troubles = client_library().KafkaError, Troubles()
        end = self.end()
        if since > end:
            raise CheckpointMismatch(
                f"topic '{self.tokens}', which says what of this job is in topic '{self.topic}', was made anew.",
                hint="Restore it, or begin anew with another checkpoint directory.",
            )
        settings = {"isolation.level": "read_committed", "enable.partition.eof": True, "fetch.wait.max.ms": 20}
        consumer = self.access.consumer(troubles, **settings)
        found, reached, deadline = None, since, time.monotonic() + _TOKEN_S
        try:
            consumer.assign([client_library().TopicPartition(self.tokens, self.partition, since)])
            while reached < end:
                message = consumer.poll(0.5)
                error = message.error() if message is not None else None
                if message is not None and error is None:
                    if message.key() == self.name.encode():
                        found = int(message.value() or b"-1")
                    reached = (message.offset() or 0) + 1
                elif message is not None and error is not None and error.code() == kinds._PARTITION_EOF:
                    reached = message.offset() or 0
                elif time.monotonic() > deadline:
                    raise self.access.failed(f"topic '{self.tokens}' cannot be read: {troubles.latest or 'no answer'}.")
        finally:
            consumer.close()
        return found


class Publisher:
    """Sends committed epochs, in their order, from a thread of its own."""

    def __init__(self, channel: Channel, committed: int, since: int) -> None:
        self._channel = channel
        self._committed = committed
        """The newest epoch that is known to be committed."""
        self.since = since
        """Tokens that are not known here are behind this offset."""
        self._todo: deque[tuple[int, list[Entry]]] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._troubles = Troubles()
        self._producer: Producer | None = None
        self._refused: Any = None
        self._written = 0
        """Where the last token is."""
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
                    self.since = self._written
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
                **channel.access.options,
                "transaction.timeout.ms": channel.timeout_ms,
                "transactional.id": channel.name,
                "on_delivery": self._note_refused,
            },
        )
        self._producer = producer
        producer.init_transactions(_CALL_S)
        token = channel.token(self.since)
        if token is not None and token > self._committed:
            # Epochs that follow would be taken for those that are there.
            raise CheckpointMismatch(
                f"topic '{channel.topic}' has epoch {token} of this job, and the checkpoint ends with epoch "
                f"{self._committed}.",
                hint="Restore the newest checkpoint, or begin anew with another checkpoint directory and topic.",
            )
        with self._changed:
            self._is_open = True
        self._forget(self.done if token is None else token)
        self._troubles.passed()

    def _send(self, ready: list[tuple[int, list[Entry]]]) -> None:
        producer, channel, topic = self._producer, self._channel, self._channel.topic
        errors = client_library().KafkaException
        assert producer is not None
        self._refused = None
        producer.begin_transaction()
        produce = producer.produce
        for _, entries in ready:
            for key, value, headers, partition in entries:
                produce(topic, value, key, partition, headers=headers)  # type: ignore[arg-type]
        token = b"%d" % ready[-1][0]
        produce(channel.tokens, token, channel.name, channel.partition, on_delivery=self._note_token)
        while True:
            try:
                producer.commit_transaction(_CALL_S)
                break
            except errors as error:
                if self._refused is not None:
                    raise errors(self._refused) from None
                if not error.args[0].retriable() or self._stopping:
                    raise
        self._troubles.passed()

    def _note_token(self, error: Any, message: Any) -> None:
        self._note_refused(error, message)
        if error is None:
            self._written = message.offset()

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

    since: int
    """Tokens of epochs that may be in the topic by now are behind this offset."""
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
        self._publishing()
        if self._open:
            self._prepared[epoch] = self._open
            self._open = []

    def snapshot(self, epoch: int) -> bytes | None:
        # First the offset: what is published in between is found behind it.
        since = self._publishing().since
        self._settle()
        held = {each: entries for each, entries in self._prepared.items() if each <= epoch}
        return msgspec.msgpack.encode(Held(since, held))

    def restore(self, epoch: int, snapshot: bytes | None) -> None:
        since = 0
        if snapshot is not None:
            held = msgspec.msgpack.decode(snapshot, type=Held)
            self._prepared, since = held.epochs, held.since
        self._publisher = Publisher(self._channel, epoch, since)

    def commit(self, epoch: int) -> list[Record] | None:
        publisher = self._publishing()
        for each in sorted(self._prepared):
            if self._submitted < each <= epoch:
                publisher.submit(each, self._prepared[each])
                self._submitted = each
        self._settle()
        return None

    def _settle(self) -> None:
        """Forget what is in the topic."""
        done = self._publishing().done
        for each in [each for each in self._prepared if each <= min(done, self._submitted)]:
            del self._prepared[each]

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


def token_ends(access: Access, topic: str, tokens: str) -> tuple[int, ...]:
    """Make the topic of the tokens where there is none; return how far each of its partitions goes."""
    clients, troubles = client_library(), Troubles()
    admin = access.admin(troubles)
    known = access.ask("topics", lambda seconds: admin.list_topics(timeout=seconds).topics, admin, troubles)
    if tokens not in known:
        replicas = max((len(each.replicas) for each in known[topic].partitions.values()), default=1)
        # Small pieces: what is read when a job resumes stays short.
        settings = {"cleanup.policy": "compact", "segment.ms": "600000", "min.cleanable.dirty.ratio": "0.1"}
        wanted = clients.admin.NewTopic(tokens, TOKEN_PARTITIONS, replicas, config=settings)
        try:
            (made,) = admin.create_topics([wanted]).values()
            made.result()
        except clients.KafkaException as error:
            if error.args[0].code() != clients.KafkaError.TOPIC_ALREADY_EXISTS:
                raise access.failed(
                    f"topic '{tokens}', for the numbers of epochs, cannot be made: {error.args[0].str()}.",
                    hint=f"Make it (cleanup.policy=compact, {TOKEN_PARTITIONS} partitions), or name another: tokens=….",
                ) from None
    _, partitions = described(access, tokens)
    found = resolved(access, tokens, partitions, LATEST, group="", isolation="read_uncommitted", option="tokens")
    return tuple(found[each] for each in range(partitions))
