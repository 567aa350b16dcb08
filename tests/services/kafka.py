"""A Kafka of one node; the jars come from a cache directory."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from typing import Any

from confluent_kafka import (
    Consumer,
    ElectionType,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from penstock.testing.kafka_broker import PASSWORD, USER, KafkaBroker, login, missing
from waiting import WAIT_S

__all__ = ["Kafka", "missing"]


GUEST = "guest"
"""Who may log in with `PASSWORD` too, and may do nothing but what `Kafka.allow` allows."""
_SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:ANONYMOUS;User:{USER}",
    "listener.name.secured.plain.sasl.jaas.config": login({USER: PASSWORD, GUEST: PASSWORD}),
}


class Kafka(KafkaBroker):
    """A broker, which also makes topics for tests.

    Attributes
    ----------
    address : str
        Where it is.
    """

    replicas = 1
    """Of each partition of a topic."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(settings={**_SETTINGS, **settings})

    @property
    def address(self) -> str:
        return self.servers

    def topic(self, name: str = "t", partitions: int = 1, **settings: str) -> str:
        """Make a topic of which there is no other, and return its name."""
        name = f"{name}-{uuid.uuid4().hex[:8]}"
        config = {key.replace("_", "."): value for key, value in settings.items()}
        made = self.admin.create_topics([NewTopic(name, partitions, self.replicas, config=config)])
        for each in made.values():
            each.result(WAIT_S)
        return name

    def allow(self, kind: ResourceType, name: str, *operations: AclOperation) -> None:
        """Allow the guest something; a name that ends with a star is the beginning of one."""
        pattern = ResourcePatternType.PREFIXED if name.endswith("*") else ResourcePatternType.LITERAL
        rules = [
            AclBinding(kind, name.rstrip("*"), pattern, f"User:{GUEST}", "*", each, AclPermissionType.ALLOW)
            for each in operations
        ]
        for made in self.admin.create_acls(rules).values():
            made.result(WAIT_S)

    def forbid(self) -> None:
        """Take back everything that the guest was allowed."""
        anything = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            f"User:{GUEST}",
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        for answer in self.admin.delete_acls([anything]).values():
            answer.result(WAIT_S)

    def fill(self, topic: str, records: Sequence[tuple[int, str | None, Any]], *, step: int = 0) -> None:
        """Write records: partition, key, and a value that becomes JSON.

        With ``step``, every so many are a transaction, and one that is aborted lies between two: offsets have gaps.
        """
        settings: dict[str, Any] = {"bootstrap.servers": self.servers, "linger.ms": 1, "enable.idempotence": True}
        if step:
            settings["transactional.id"] = f"fill-{uuid.uuid4().hex}"
        producer = Producer(settings)
        if not step:
            self._produce(producer, topic, records)
            producer.flush()
            return
        producer.init_transactions()
        for first in range(0, len(records), step):
            producer.begin_transaction()
            self._produce(producer, topic, [(partition, key, "aborted") for partition, key, _ in records[:3]])
            producer.abort_transaction()
            producer.begin_transaction()
            self._produce(producer, topic, records[first : first + step])
            producer.commit_transaction()

    @staticmethod
    def _produce(producer: Producer, topic: str, records: Sequence[tuple[int, str | None, Any]]) -> None:
        for partition, key, value in records:
            producer.produce(topic, json.dumps(value), key, partition, headers=[("trace", b"t")])

    def read(self, topic: str, *, committed: bool = True) -> list[Message]:
        """Return all that readers of committed records find in a topic, partition by partition."""
        level = "read_committed" if committed else "read_uncommitted"
        settings = {"bootstrap.servers": self.servers, "group.id": "test", "isolation.level": level}
        reader = Consumer({**settings, "enable.partition.eof": True, "auto.offset.reset": "earliest"})
        partitions = list(self.admin.list_topics(topic).topics[topic].partitions)
        reader.assign([TopicPartition(topic, each, 0) for each in partitions])
        found, ended = [], set()
        while len(ended) < len(partitions):
            first = reader.poll(1.0)  # asked for many, it waits for so many
            for message in [first, *reader.consume(10_000, 0)] if first is not None else []:
                if message.error() is None:
                    found.append(message)
                    ended.discard(message.partition())
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
                else:
                    raise KafkaException(message.error())
        reader.close()
        return sorted(found, key=lambda each: (each.partition(), each.offset()))

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """Where a group is."""
        reader = Consumer({"bootstrap.servers": self.servers, "group.id": group})
        partitions = self.admin.list_topics(topic).topics[topic].partitions
        found = reader.committed([TopicPartition(topic, each) for each in partitions], timeout=WAIT_S)
        reader.close()
        return {each.partition: each.offset for each in found}


class Pair(Kafka):
    """Two nodes that have everything; the second one can be lost.

    Attributes
    ----------
    second : KafkaBroker
        The one that is not the controller.
    """

    replicas = 2

    def __init__(self) -> None:
        factors = ("offsets.topic.replication.factor", "transaction.state.log.replication.factor")
        lost = {"broker.session.timeout.ms": 2_000, "broker.heartbeat.interval.ms": 200}
        settings = {**dict.fromkeys(factors, 2), **lost}
        super().__init__(**settings)
        self.second = KafkaBroker(beside=self, settings={**_SETTINGS, **settings})
        self.servers = f"{self.servers},{self.second.servers}"

    def leaders(self, topic: str) -> list[int]:
        """The node that leads each partition, or -1."""
        found = self.admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
        return [each.leader for _, each in sorted(found.items())]

    def in_sync(self, topic: str) -> set[int]:
        """The nodes that have all of a topic."""
        found = self.admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
        return set.intersection(*(set(each.isrs) for each in found.values()))

    def visible(self, topic: str) -> int:
        """How far readers of committed records can read, all partitions together; grows with every transaction."""
        deadline = time.monotonic() + WAIT_S
        while True:
            found = self.admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
            wanted = {TopicPartition(topic, each): OffsetSpec.latest() for each in found}
            asked = self.admin.list_offsets(wanted, isolation_level=IsolationLevel.READ_COMMITTED)
            try:
                return sum(each.result(WAIT_S).offset for each in asked.values())
            except KafkaException:  # a leader that is gone, or that does not know yet that it leads
                assert time.monotonic() < deadline

    def lead_as_preferred(self) -> None:
        """Have each partition led by the node that is to lead it."""
        self.admin.elect_leaders(ElectionType.PREFERRED).result(WAIT_S)

    def close(self) -> None:
        self.second.close()
        super().close()
