"""The load generator over Kafka, a program of its own: writes prepared lines to a topic when they are due.

Open loop: it never waits for the engine. Before the schedule it writes a probe to every partition now and then, so that
whoever watches the results can tell when the engine is up; then it is told to start.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from confluent_kafka import Producer

from penstock_bench.engines.feeder import Lines, tell, tell_lag
from penstock_bench.kafka import heard

SEND_RECORDS_MAX = 1_024
PROBE_S = 0.2
QUIET_S = 0.5
"""No probe is written in so much time before the schedule starts."""
SETTINGS = {"linger.ms": 1, "acks": 1, "queue.buffering.max.messages": 2_000_000, "socket.nagle.disable": True}
"""What waits in the generator's own socket would be counted as every engine's latency."""


class Topic:
    """Where lines go.

    What is due at one look goes to one partition, and what is due at the next to the next one, as producers without
    keys do: a request to every partition for a few records each would keep the broker busy with requests.
    """

    def __init__(self, producer: Producer, name: str, partitions: int, data: bytes) -> None:
        self._producer, self._name, self._partitions, self._data = producer, name, partitions, data
        self._turn = 0

    def lines(self, first: int, ends: list[int]) -> None:
        """Write lines of the data."""
        for end in ends:
            self.write(self._data[first : end - 1], self._turn % self._partitions)  # without the end of the line
            first = end
        self._turn += 1
        self._producer.poll(0)

    def write(self, value: bytes, partition: int) -> None:
        """Write a record, as soon as there is room for it."""
        while True:
            try:
                self._producer.produce(self._name, value, partition=partition)
                return
            except BufferError:
                self._producer.poll(0.01)


def main() -> None:
    """Argument: a specification in JSON (directory, servers, topic, partitions, probes, lead_s or null: at once)."""
    spec = json.loads(sys.argv[1])
    producer = Producer({"bootstrap.servers": spec["servers"], **SETTINGS})
    lines = Lines(Path(spec["directory"]), 0)
    topic = Topic(producer, spec["topic"], spec["partitions"], lines.data)  # type: ignore[arg-type]
    if spec["lead_s"] is None:
        began_s = time.monotonic()
        lines.send(topic.lines, None, SEND_RECORDS_MAX)
        producer.flush()
        tell(seconds=time.monotonic() - began_s)
        return
    started, start_us = heard(sys.stdin.readline), 0
    while not start_us or time.time_ns() // 1000 < start_us - QUIET_S * 1e6:
        for partition, line in enumerate(spec["probes"]):
            topic.write(line.encode(), partition)
        producer.poll(0)
        if started.wait(PROBE_S) and not start_us:
            start_us = time.time_ns() // 1000 + round(spec["lead_s"] * 1e6)
            tell(start_us=start_us)
        elif start_us:
            time.sleep(PROBE_S)
    tell_lag(lines.send(topic.lines, start_us, SEND_RECORDS_MAX))
    producer.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
