"""No engine at all: one loop in Python from one topic to the other. Its latency is the floor of what Kafka allows."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from .queries import Counting, query


def main() -> None:
    """Run the query of a specification until it is ended."""
    spec = json.loads(Path(os.environ["PENSTOCK_SPEC"]).read_text())
    wanted = query(spec)
    assert isinstance(wanted, Counting)
    consumer = Consumer({"bootstrap.servers": spec["servers"], "group.id": "plain", "fetch.queue.backoff.ms": 5})
    consumer.assign([TopicPartition(spec["events"], each, 0) for each in range(spec["partitions"])])
    producer = Producer({"bootstrap.servers": spec["servers"], "linger.ms": spec["linger_ms"]})
    counts: defaultdict[str, int] = defaultdict(int)
    while True:
        first = consumer.poll(1.0)
        for message in (first, *consumer.consume(1_000, 0)) if first is not None else ():
            for key in wanted.keys(message.value() or b"") if message.error() is None else ():
                counts[key] += 1
                producer.produce(spec["results"], wanted.row(key, counts[key]), key.partition("\t")[0])
        producer.poll(0)


if __name__ == "__main__":
    main()
