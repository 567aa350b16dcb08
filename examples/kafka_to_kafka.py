"""From one Kafka topic to another, exactly once: clicks per page and ten seconds of event time.

Run it with ``python examples/kafka_to_kafka.py``: it starts a broker of its own (the first time it fetches one, 43 MB),
writes some clicks, counts them and shows what a reader of committed records finds. To use yours, which must have topics
``clicks`` and ``counts``, give its address: ``python examples/kafka_to_kafka.py host:9092``.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack

import penstock as ps


def pipeline(servers: str) -> ps.Pipeline:
    """Count clicks: from topic ``clicks``, as far as it goes now, to topic ``counts``."""
    clicks = ps.stream("clicks", ps.kafka(servers, "clicks", stop="latest", group="clicks-example"))
    parsed = clicks.parse_json("page string, at timestamp").with_watermark("at", "1s")
    counts = parsed.key_by("page").window("10s", on="at").count()
    return counts.to(ps.kafka(servers, "counts", key="page"))


def fill(servers: str) -> None:
    """Make the topics of a broker that was just started, and write a minute of clicks."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": servers})
    for each in admin.create_topics([NewTopic("clicks", 4), NewTopic("counts", 1)]).values():
        each.result()
    producer = Producer({"bootstrap.servers": servers})
    for number in range(6_000):
        click = {"page": f"/{number % 3}", "at": 1_700_000_000_000 + 10 * number}
        producer.produce("clicks", json.dumps(click), key=click["page"])
    producer.flush()


def show(servers: str) -> None:
    """Print what is in the topic of the counts."""
    from confluent_kafka import Consumer, TopicPartition

    reader = Consumer({"bootstrap.servers": servers, "group.id": "example", "enable.partition.eof": True})
    reader.assign([TopicPartition("counts", 0, 0)])
    while (message := reader.poll(10)) is not None and message.error() is None:
        print(message.value().decode())
    reader.close()


def main() -> None:
    """Run the pipeline on a broker that was named, or on one of its own."""
    with ExitStack() as stack:
        if len(sys.argv) > 1:
            servers = sys.argv[1]
        else:
            from penstock.testing.kafka_broker import KafkaBroker

            servers = stack.enter_context(KafkaBroker()).servers
            fill(servers)
        ps.run(pipeline(servers), name="clicks")
        show(servers)


if __name__ == "__main__":
    main()
