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
SEND_RECORDS_MAX = 1_024
PROBE_S = 0.2
QUIET_S = 0.5
"""No probe is written in so much time before the schedule starts."""
SETTINGS = {
    "linger.ms": CLIENT_LINGER_MS,
    "acks": 1,
    "queue.buffering.max.messages": 2_000_000,
    "socket.nagle.disable": True,
}
"""What waits in the generator's own socket would be counted as every engine's latency."""


class _Lines:
    """The prepared lines, and how far they have been sent.

    What is due at one look goes to one partition, and what is due at the next to the next one, as producers without
    keys do: a request to every partition for a few records each would keep the broker busy with requests.
    """

    def __init__(self, directory: Path, partitions: int, send: Callable[[bytes, int], None]) -> None:
        self._partitions, self._send = partitions, send
        self._ends = np.load(directory / ENDS.format(0))
        self.times_us = np.load(directory / TIMES.format(0))
        with (directory / LINES.format(0)).open("rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if len(self._ends) else b""
        self.at = self._turn = 0

    @property
    def is_done(self) -> bool:
        """Whether everything was sent."""
        return self.at >= len(self._ends)

    def advance(self, since_us: int | None) -> int | None:
        """Send what is due so long after the start, some at a time, None for all; return when the oldest was due."""
        due = len(self._ends) if since_us is None else int(np.searchsorted(self.times_us, since_us, side="right"))
        end = min(due, self.at + SEND_RECORDS_MAX)
        if end <= self.at:
            return None
        oldest_us, begin = int(self.times_us[self.at]), int(self._ends[self.at - 1]) if self.at else 0
        data, send, partition = self._data, self._send, self._turn % self._partitions
        for stop in self._ends[self.at : end].tolist():
            send(data[begin : stop - 1], partition)  # without the end of the line
            begin = stop
        self.at = end
        self._turn += 1
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

    lines = _Lines(Path(spec["directory"]), spec["partitions"], send)
    if spec["lead_s"] is None:
        _at_once(producer, lines)
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
    lags_us = _send_all(producer, lines, start_us)
    _tell(lag_p99_us=sorted(lags_us)[int(0.99 * (len(lags_us) - 1))] if lags_us else 0)
    producer.flush()
    sys.stdin.read()


def _send_all(producer: Producer, lines: _Lines, start_us: int) -> list[int]:
    lags_us = []
    while not lines.is_done:
        oldest_us = lines.advance(time.time_ns() // 1000 - start_us)
        if oldest_us is not None:
            lags_us.append(time.time_ns() // 1000 - start_us - oldest_us)
        producer.poll(0)
        if not lines.is_done:
            time.sleep(max((start_us + int(lines.times_us[lines.at])) / 1e6 - time.time(), LINGER_S))
    return lags_us


def _at_once(producer: Producer, lines: _Lines) -> None:
    began_s = time.monotonic()
    while not lines.is_done:
        lines.advance(None)
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
