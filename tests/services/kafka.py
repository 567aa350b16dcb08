"""A Kafka of one node; the jars come from a cache directory."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    NewTopic,
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

    def __init__(self) -> None:
        super().__init__(settings=_SETTINGS)

    @property
    def address(self) -> str:
        return self.servers

    def topic(self, name: str = "t", partitions: int = 1, **settings: str) -> str:
        """Make a topic of which there is no other, and return its name."""
        name = f"{name}-{uuid.uuid4().hex[:8]}"
        config = {key.replace("_", "."): value for key, value in settings.items()}
        made = self.admin.create_topics([NewTopic(name, partitions, 1, config=config)])
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
        settings: dict[str, Any] = {"bootstrap.servers": self.servers, "linger.ms": 1}
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
