"""Kafka: a topic at either end of a pipeline."""

from penstock.connectors.kafka.place import Kafka, kafka

__all__ = ["Kafka", "kafka"]
