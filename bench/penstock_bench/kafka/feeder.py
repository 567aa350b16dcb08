"""The load generator, a program of its own: writes prepared lines to a topic when they are due.

Open loop: it never waits for the engine. Before the schedule it writes a probe to every partition now and then, so that
whoever watches the results can tell when the engine is up; then it is told to start.
"""

from __future__ import annotations

import json
import mmap
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Producer

from penstock_bench.engines.inputs import ENDS, LINES, TIMES

LINGER_S = 0.0005
"""Least time between two looks at the clock."""
CLIENT_LINGER_MS = 1
SEND_RECORDS_MAX = 2_048
PROBE_S = 0.2
QUIET_S = 0.5
"""No probe is written in so much time before the schedule starts."""
SETTINGS = {"linger.ms": CLIENT_LINGER_MS, "acks": 1, "queue.buffering.max.messages": 2_000_000}


class _Partition:
    """The lines of one partition, and how far they have been sent."""

    def __init__(self, directory: Path, partition: int, send: Callable[[bytes, int], None]) -> None:
        self._partition, self._send = partition, send
        self._ends = np.load(directory / ENDS.format(partition))
        self.times_us = np.load(directory / TIMES.format(partition))
        self._file = (directory / LINES.format(partition)).open("rb")
        self._data = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) if len(self._ends) else b""
        self.at = 0

    @property
    def is_done(self) -> bool:
        return self.at >= len(self._ends)

    def advance(self, since_us: int | None) -> int:
        """Send what is due so long after the start, or all where that is None, some at a time; return the oldest."""
        due = len(self._ends) if since_us is None else int(np.searchsorted(self.times_us, since_us, side="right"))
        end = min(due, self.at + SEND_RECORDS_MAX)
        oldest_us = int(self.times_us[self.at]) if end > self.at else -1
        if end > self.at:
            begin = int(self._ends[self.at - 1]) if self.at else 0
            data, send, partition = self._data, self._send, self._partition
            for stop in self._ends[self.at : end].tolist():
                send(data[begin : stop - 1], partition)  # without the end of the line
                begin = stop
            self.at = end
        return oldest_us


def main() -> None:
    """Argument: a specification in JSON (directory, servers, topic, partitions, probes, lead_s or null: at once)."""
    spec = json.loads(sys.argv[1])
    producer = Producer({"bootstrap.servers": spec["servers"], **SETTINGS})

    def send(value: bytes, partition: int) -> None:
        while True:
            try:
                producer.produce(spec["topic"], value, partition=partition)
                return
            except BufferError:
                producer.poll(0.01)

    parts = [_Partition(Path(spec["directory"]), each, send) for each in range(spec["partitions"])]
    if spec["lead_s"] is None:
        _at_once(producer, parts)
        return
    started = threading.Event()
    threading.Thread(target=_hear, args=(started,), daemon=True).start()
    start_us = 0
    while not start_us or time.time_ns() // 1000 < start_us - QUIET_S * 1e6:
        for partition, line in enumerate(spec["probes"]):
            send(line.encode(), partition)
        producer.poll(0)
        if started.wait(PROBE_S) and not start_us:
            start_us = time.time_ns() // 1000 + round(spec["lead_s"] * 1e6)
            _tell(start_us=start_us)
        elif start_us:
            time.sleep(PROBE_S)
    lags_us = _send_all(producer, parts, start_us)
    _tell(lag_p99_us=sorted(lags_us)[int(0.99 * (len(lags_us) - 1))] if lags_us else 0)
    producer.flush()
    sys.stdin.read()


def _send_all(producer: Producer, parts: list[_Partition], start_us: int) -> list[int]:
    lags_us = []
    while left := [each for each in parts if not each.is_done]:
        now_us = time.time_ns() // 1000
        for each in left:
            oldest_us = each.advance(now_us - start_us)
            if oldest_us >= 0:
                lags_us.append(time.time_ns() // 1000 - start_us - oldest_us)
        producer.poll(0)
        waits = [(start_us + int(each.times_us[each.at])) / 1e6 for each in left if not each.is_done]
        time.sleep(max(min(waits, default=0.0) - time.time(), LINGER_S))
    return lags_us


def _at_once(producer: Producer, parts: list[_Partition]) -> None:
    began_s = time.monotonic()
    while left := [each for each in parts if not each.is_done]:
        for each in left:
            each.advance(None)
        producer.poll(0)
    producer.flush()
    _tell(seconds=time.monotonic() - began_s)


def _hear(started: threading.Event) -> None:
    sys.stdin.readline()
    started.set()


def _tell(**what: Any) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main()
