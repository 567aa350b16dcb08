"""Sends epochs into a topic, each in a transaction that carries its number; a thread that the sink's writer owns.

`Course` decides, without a clock and without a client; `Publisher` does it. An epoch that is prepared is *sent ahead*:
its records and its token are on the broker, in a transaction that is open, while the job stores snapshots and records
the commit. Then the commit of the transaction is all that is left to do.

================  ==============================  =======================================================  ==========
publisher         event                           effect                                                   next
================  ==============================  =======================================================  ==========
closed            it starts, or after an error    initialise (fences every other writer of that name and   open
                  a committed epoch waits         ends its transaction), then read the token
closed            token > what was ever committed an older checkpoint: refused                             failed
closed, open      a broker is away                wait, and try again; more than enough waits: no room     closed
open              epochs up to the token          forget them: they are there                              open
open              committed epochs behind it      one transaction: records, token = the last; commit it    open
open              an epoch is prepared, none of   begin a transaction: its records, its token              ahead
                  the committed ones waits
ahead             the epoch is committed          commit the transaction                                   open
ahead             it is not, for `AHEAD_S_MAX`    abort it, so that it holds no reader up                  open, late
ahead             the writer is closed            abort it: the epoch is rolled back, or sent by others    –
ahead, open       fenced by another writer,       give the client up                                       closed
                  aborted by a time-out …
ahead, open       not allowed, too large …        the job fails                                            failed
================  ==============================  =======================================================  ==========

*Late*: nothing is sent ahead until a committed epoch is in the topic. A writer that was replaced, and has nothing that
is committed, stays closed: it does not fence its successor.

Two writers of one name cannot harm each other, only slow each other down: whoever sends has initialised before and read
the token after that, and commits nothing but committed epochs, which are the same for both.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from penstock.connectors.kafka.access import Troubles, client_library
from penstock.connectors.kafka.encoding import Entry, weight
from penstock.connectors.kafka.tokens import CALL_S, Channel
from penstock.errors import CheckpointMismatch, KafkaFailed, PenstockError

if TYPE_CHECKING:
    from confluent_kafka import Producer

AHEAD_S_MAX = 2.0
"""Readers see nothing behind an open transaction: one whose epoch is not committed for so long is aborted."""
CLOSE_S = 5.0
ABORT_S = 1.0
_BACKOFF_S = 0.1
_BACKOFF_S_MAX = 2.0


class Do(Enum):
    """What the thread does next."""

    OPEN = auto()
    SEND = auto()
    """Committed epochs, in one transaction."""
    SEND_AHEAD = auto()
    COMMIT = auto()
    """The transaction of the epoch that was sent ahead."""
    ABORT = auto()


@dataclass(frozen=True, slots=True)
class Prepared:
    """The records of an epoch, on their way into the topic."""

    epoch: int
    entries: list[Entry]
    size_bytes: int


class Course:
    """Which epochs are on their way, and what is to be done next; see the table."""

    def __init__(self, committed: int) -> None:
        self.committed = committed
        """The newest epoch that is known to be committed."""
        self.done = -1
        """The newest epoch that is in the topic, as far as is known here."""
        self.queued_bytes = 0
        """Of committed epochs that are not there yet."""
        self.waiting: deque[Prepared] = deque()
        self.ahead: int | None = None
        """The epoch that is in the open transaction."""
        self.has_opened = False
        """Whether it has ever found out what is in the topic."""
        self._is_open = False
        self._is_late = False
        self._ahead_s = 0.0

    # --- what happens -------------------------------------------------------------------------------------------------

    def prepare(self, epoch: int, entries: list[Entry]) -> None:
        """Take the records of an epoch, behind those before it."""
        prepared = Prepared(epoch, entries, weight(entries))
        self.waiting.append(prepared)
        if epoch <= self.committed:
            self.queued_bytes += prepared.size_bytes

    def commit(self, epoch: int) -> None:
        """The job has committed an epoch, and those before it."""
        for each in self.waiting:
            if self.committed < each.epoch <= epoch:
                self.queued_bytes += each.size_bytes
        self.committed = max(self.committed, epoch)

    def opened(self, token: int | None) -> None:
        """Nobody else writes under the name, and the newest epoch that is there is known."""
        self.has_opened = self._is_open = True
        self._forget(self.done if token is None else token)

    def sent_ahead(self, epoch: int, now_s: float) -> None:
        """The records of an epoch are in a transaction that is open."""
        self.ahead, self._ahead_s = epoch, now_s

    def published(self, epoch: int) -> None:
        """A transaction is committed, and so everything up to an epoch is there."""
        self.ahead, self._is_late = None, False
        self._forget(epoch)

    def aborted(self) -> None:
        """The open transaction was given up."""
        self.ahead, self._is_late = None, True

    def failed(self) -> None:
        """The client was given up, and whatever transaction it had open."""
        self._is_open, self.ahead = False, None

    def _forget(self, epoch: int) -> None:
        self.done = max(self.done, epoch)
        while self.waiting and self.waiting[0].epoch <= epoch:
            self.queued_bytes -= self.waiting.popleft().size_bytes

    # --- what follows from it -----------------------------------------------------------------------------------------

    @property
    def ready(self) -> list[Prepared]:
        """Committed epochs that are not in the topic."""
        return [each for each in self.waiting if each.epoch <= self.committed]

    def next(self, now_s: float) -> Do | None:
        """What to do now; None: wait, until something happens or `AHEAD_S_MAX` is over."""
        if not self._is_open:
            return Do.OPEN if self.ready or not self.has_opened else None
        if self.ahead is not None:
            if self.ahead <= self.committed:
                return Do.COMMIT
            return Do.ABORT if now_s - self._ahead_s >= AHEAD_S_MAX else None
        if self.ready:
            return Do.SEND
        return Do.SEND_AHEAD if self.waiting and not self._is_late else None


class Publisher:
    """Carries a course out.

    Parameters
    ----------
    committed : int
        The newest epoch that is known to be committed.
    since : int
        Tokens that are not known here are behind this offset.
    held : mapping
        Committed epochs that may not be in the topic, with their records.
    """

    def __init__(
        self, channel: Channel, committed: int, since: int, held: Mapping[int, list[Entry]] | None = None
    ) -> None:
        self._channel = channel
        self._course = Course(committed)
        for epoch in sorted(held or ()):
            self._course.prepare(epoch, (held or {})[epoch])
        self._since = since
        self._changed = threading.Condition()
        self._stopping = False
        self._troubles = Troubles(was_reached=True)  # by the driver, when it checked
        self._producer: Producer | None = None
        self._refused: Any = None
        self._written = 0
        """Where the last token is."""
        self.failure: PenstockError | None = None
        self._thread = threading.Thread(target=self._run, name="penstock-kafka", daemon=True)
        self._thread.start()

    def prepare(self, epoch: int, entries: list[Entry]) -> None:
        """Take the records of an epoch."""
        with self._changed:
            self._course.prepare(epoch, entries)
            self._changed.notify_all()

    def commit(self, epoch: int) -> None:
        """Have everything up to an epoch become visible."""
        with self._changed:
            self._course.commit(epoch)
            self._changed.notify_all()

    def held(self, epoch: int) -> tuple[int, dict[int, list[Entry]]]:
        """What a snapshot has to know: the offset to look for tokens from, and the epochs that may not be there."""
        with self._changed:
            return self._since, {each.epoch: each.entries for each in self._course.waiting if each.epoch <= epoch}

    @property
    def queued_bytes(self) -> int:
        """Of committed records that wait for the broker."""
        return self._course.queued_bytes

    def wait(self, timeout_s: float) -> bool:
        """Wait until everything that is committed is in the topic; say whether it is."""
        course = self._course
        with self._changed:
            is_over = lambda: (course.has_opened and not course.ready) or self.failure is not None  # noqa: E731
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
        while (what := self._next()) is not None:
            try:
                self._do(what)
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

    def _next(self) -> Do | None:
        """Wait for something to do; None: the writer is closed."""
        course = self._course
        with self._changed:
            while not self._stopping:
                what = course.next(time.monotonic())
                if what is not None:
                    return what
                self._changed.wait(None if course.ahead is None else AHEAD_S_MAX)
        return None

    def _do(self, what: Do) -> None:
        course = self._course
        match what:
            case Do.OPEN:
                token = self._open()
                with self._changed:
                    course.opened(token)
                    self._changed.notify_all()
            case Do.SEND:
                with self._changed:
                    ready = course.ready
                self._send(ready)
                self._commit(ready[-1].epoch)
            case Do.SEND_AHEAD:
                first = course.waiting[0]
                self._send([first])
                with self._changed:
                    course.sent_ahead(first.epoch, time.monotonic())
            case Do.COMMIT:
                assert course.ahead is not None
                self._commit(course.ahead)
            case Do.ABORT:
                assert self._producer is not None
                self._producer.abort_transaction(CALL_S)
                with self._changed:
                    course.aborted()

    def _open(self) -> int | None:
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
        producer.init_transactions(CALL_S)
        token = channel.token(self._since)
        if token is not None and token > self._course.committed:
            # Epochs that follow would be taken for those that are there.
            raise CheckpointMismatch(
                f"topic '{channel.topic}' has epoch {token} of this job, and the checkpoint ends with epoch "
                f"{self._course.committed}.",
                hint="Restore the newest checkpoint, or begin anew with another checkpoint directory and topic.",
            )
        self._troubles.passed()
        return token

    def _send(self, epochs: list[Prepared]) -> None:
        """Begin a transaction, with the records of epochs and the token of the last."""
        producer, channel, topic = self._producer, self._channel, self._channel.topic
        assert producer is not None
        self._refused = None
        producer.begin_transaction()
        produce = producer.produce
        for each in epochs:
            for key, value, headers, partition in each.entries:
                produce(topic, value, key, partition, headers=headers)  # type: ignore[arg-type]
        token = b"%d" % epochs[-1].epoch
        produce(channel.tokens, token, channel.name, channel.partition, on_delivery=self._note_token)

    def _commit(self, epoch: int) -> None:
        """Commit the transaction, which ends with the token of an epoch."""
        producer, errors = self._producer, client_library().KafkaException
        assert producer is not None
        while True:
            try:
                producer.commit_transaction(CALL_S)
                break
            except errors as error:
                if self._refused is not None:
                    raise errors(self._refused) from None
                if not error.args[0].retriable() or self._stopping:
                    raise
        self._troubles.passed()
        with self._changed:
            self._since = self._written
            self._course.published(epoch)
            self._changed.notify_all()

    def _note_token(self, error: Any, message: Any) -> None:
        self._note_refused(error, message)
        if error is None:
            self._written = message.offset()

    def _note_refused(self, error: Any, message: Any) -> None:
        del message
        kinds = client_library().KafkaError
        if error is not None and error.code() not in (kinds._PURGE_QUEUE, kinds._PURGE_INFLIGHT):
            self._refused = error

    def _drop(self) -> None:
        """Give the client up; a transaction that was sent ahead is ended, if that is quick, for others to read on."""
        producer, self._producer = self._producer, None
        ahead = self._course.ahead
        with self._changed:
            self._course.failed()
        if producer is None:
            return
        if ahead is not None and self._stopping:
            with suppress(client_library().KafkaException):
                producer.abort_transaction(ABORT_S)
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
