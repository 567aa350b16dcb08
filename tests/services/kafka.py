"""A Kafka of one node; the jars come from a cache directory."""

from __future__ import annotations

from penstock.testing.kafka_broker import KafkaBroker, missing

__all__ = ["Kafka", "missing"]


class Kafka(KafkaBroker):
    """A broker, which also makes topics for tests.

    Attributes
    ----------
    address : str
        Where it is.
    """

    @property
    def address(self) -> str:
        return self.servers

    def topic(self, name: str, partitions: int = 1, **settings: str) -> str:
        """Make a topic, anew where there is one, and return its name."""
        from confluent_kafka.admin import NewTopic

        config = {key.replace("_", "."): value for key, value in settings.items()}
        made = self.admin.create_topics([NewTopic(name, partitions, 1, config=config)])
        for each in made.values():
            each.result(20)
        return name
