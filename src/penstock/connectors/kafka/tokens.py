"""Tokens: a compacted topic beside the output that says which epoch of each sink instance is there."""

from __future__ import annotations

import time
from dataclasses import dataclass
from zlib import crc32

from penstock.connectors.kafka.access import Access, Troubles, client_library, described
from penstock.connectors.kafka.starts import LATEST, resolved
from penstock.errors import CheckpointMismatch

TIMEOUT_MS = 60_000
CALL_S = 5.0
_TOKEN_S = 90.0
"""How long reading a token may take: somebody else's transaction that nobody ends is ended by its time-out."""
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

    def end(self, *, stable: bool = False) -> int:
        """How far the tokens go, those of open transactions included; ``stable``: up to the first of these."""
        clients, troubles = client_library(), Troubles(was_reached=True)
        at = {clients.TopicPartition(self.tokens, self.partition): clients.admin.OffsetSpec.latest()}
        admin = self.access.admin(troubles)

        def look(_: float) -> int:
            level = clients.IsolationLevel.READ_COMMITTED if stable else clients.IsolationLevel.READ_UNCOMMITTED
            (answer,) = admin.list_offsets(at, isolation_level=level, request_timeout=CALL_S).values()
            return int(answer.result().offset)

        return self.access.ask(f"topic '{self.tokens}'", look, admin, troubles, CALL_S)

    def token(self, since: int, *, stable: bool = False) -> int | None:
        """The newest epoch that is in the topic, if it was written behind offset ``since``.

        What is behind a transaction that is open cannot be read, whoever's it is: it is waited for, or with ``stable``
        left out.
        """
        kinds, troubles = client_library().KafkaError, Troubles()
        end = self.end(stable=stable)
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
    _, partitions = described(access, tokens, "READ", "WRITE", was_made=True)
    found = resolved(access, tokens, partitions, LATEST, group="", isolation="read_uncommitted", option="tokens")
    return tuple(found[each] for each in range(partitions))
