"""The outside reader, a program of its own: stamps every result when it can read it in the topic.

It reads committed records only, so what an engine writes in transactions counts from their commit.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from operator import itemgetter
from typing import Any

import msgspec
from confluent_kafka import Consumer, TopicPartition

from penstock_bench.engines.feeder import tell
from penstock_bench.foreign.programs.outlog import OutLog
from penstock_bench.kafka import heard
from penstock_bench.meter.tally import Growth, by_place
from penstock_bench.workloads.base import time_us

POLL_S = 0.05
TAKE_RECORDS = 1_000
SETTINGS = {"isolation.level": "read_committed", "fetch.wait.max.ms": 100, "fetch.queue.backoff.ms": 5}


def reads(columns: Sequence[str]) -> Callable[[bytes], list[Any]]:
    """What reads a result: a JSON array of the columns, or an object that has them; times are microseconds or text."""
    decode = msgspec.json.Decoder().decode
    named = itemgetter(*columns)
    times = [i for i, name in enumerate(columns) if name == "window_start"]
    at_us = cache(time_us)

    def read(value: bytes) -> list[Any]:
        found = decode(value)
        row = list(named(found)) if isinstance(found, dict) else found
        for i in times:
            row[i] = at_us(row[i])
        return row

    return read


class Progress:
    """Says when the engine is up, by the results of probes, and when everything is out."""

    def __init__(self, columns: Sequence[str], group: Sequence[str], probes: list[list[Any]], expected: int) -> None:
        get = by_place(columns)
        self._growth = Growth(group, get)
        self._group = get(*group)
        self._probes = {tuple(each) for each in probes}
        self._waiting = set(self._probes)
        self._left = expected

    def take(self, row: list[Any]) -> bool:
        """Take a row; return whether it is a result and not that of a probe."""
        group = self._group(row)
        if group in self._probes:
            self._waiting.discard(group)
            return False
        self._left -= self._growth.take([row])
        return True

    @property
    def is_up(self) -> bool:
        """Whether every probe had a result."""
        return not self._waiting

    @property
    def is_done(self) -> bool:
        return self._left <= 0


def main() -> None:
    """Argument: a specification in JSON (servers, topic, partitions, columns, group, probes, expected, directory).

    The end of its input ends it.
    """
    spec = json.loads(sys.argv[1])
    consumer = Consumer({"bootstrap.servers": spec["servers"], "group.id": "watcher", **SETTINGS})
    consumer.assign([TopicPartition(spec["topic"], each, 0) for each in range(spec["partitions"])])
    read = reads(spec["columns"])
    progress = Progress(spec["columns"], spec["group"], spec["probes"], spec["expected"])
    log, told, ended = OutLog(spec["directory"], "watcher"), set[str](), heard(sys.stdin.read)
    encode = msgspec.json.Encoder().encode
    while not ended.is_set():
        first = consumer.poll(POLL_S)
        if first is None:
            continue
        values = [each.value() for each in (first, *consumer.consume(TAKE_RECORDS, 0)) if each.error() is None]
        at_us = time.time_ns() // 1000
        # A record without value would take a row back; none of the workloads does.
        rows = [row for row in map(read, filter(None, values)) if progress.take(row)]
        log.rows([encode(row) for row in rows], at_us)
        for word, reached in (("up", progress.is_up), ("done", progress.is_done)):
            if reached and word not in told:
                told.add(word)
                tell(**{word: True})
    consumer.close()
    log.close()


if __name__ == "__main__":
    main()
