"""No engine at all: one loop in Python between the same two ends, socket and log, or two topics: the meter's floor."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from .lines import Lines
from .outlog import OutLog
from .queries import Counting, query, specification


def answers(spec: dict[str, Any]) -> tuple[Callable[[bytes], Iterable[tuple[str, bytes]]], Callable[[], Any]]:
    """What gives the rows of a line, with their keys where they have some, and those at the end."""
    wanted = query(spec)
    if not isinstance(wanted, Counting):
        rows = wanted.rows
        return lambda line: (("", row) for row in rows(line)), wanted.end
    keys, row, counts = wanted.keys, wanted.row, defaultdict[str, int](int)

    def counted(line: bytes) -> Iterable[tuple[str, bytes]]:
        for key in keys(line):
            counts[key] += 1
            yield key, row(key, counts[key])

    return counted, tuple


def over_socket(spec: dict[str, Any]) -> None:
    rows_of, end = answers(spec)
    log, lines = OutLog(spec["out"], "plain"), Lines(spec["port"], blocking=True)
    while (batch := lines.read()) is not None:
        for line in batch:
            for _, row in rows_of(line):
                log.row(row)
    for row in end():
        log.row(row)
    log.close()


def over_kafka(spec: dict[str, Any]) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    rows_of, _ = answers(spec)
    consumer = Consumer({"bootstrap.servers": spec["servers"], "group.id": "plain", "fetch.queue.backoff.ms": 5})
    consumer.assign([TopicPartition(spec["events"], each, 0) for each in range(spec["partitions"])])
    producer = Producer({"bootstrap.servers": spec["servers"], "linger.ms": spec["linger_ms"]})
    while True:
        first = consumer.poll(1.0)
        for message in (first, *consumer.consume(1_000, 0)) if first is not None else ():
            for key, row in rows_of(message.value() or b"") if message.error() is None else ():
                producer.produce(spec["results"], row, key.partition("\t")[0])
        producer.poll(0)


if __name__ == "__main__":
    told = specification()
    (over_kafka if "servers" in told else over_socket)(told)
