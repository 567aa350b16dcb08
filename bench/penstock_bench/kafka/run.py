"""Beside an engine over Kafka: a broker, topics for each run, a generator that writes to one, a reader of the other."""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from penstock.testing.kafka_broker import KafkaBroker
from penstock_bench.engines.inputs import prepare
from penstock_bench.engines.launch import DRAIN_S_MAX, START_S_MAX, Launched, Run, Sides, limit_of
from penstock_bench.engines.program import Program
from penstock_bench.engines.subjects import Built
from penstock_bench.meter.errors import EngineFailed, UnknownWorkload
from penstock_bench.meter.processes import Processes
from penstock_bench.meter.rows import Check
from penstock_bench.meter.subject import Input
from penstock_bench.workloads.yahoo import CAMPAIGN_OF_AD, WINDOW_MS

PARTITIONS = 4


class Topics(NamedTuple):
    """Where a run reads and writes."""

    servers: str
    events: str
    results: str


class Place:
    """Starts a broker when it is first needed, and ends it. Every run has topics of its own."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._numbers = itertools.count(1)

    @cached_property
    def broker(self) -> KafkaBroker:
        return self._stack.enter_context(KafkaBroker(lasting=True))

    def topics(self) -> Topics:
        """Make the topics of a run: equal for all engines, and empty."""
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        number = next(self._numbers)
        found = Topics(self.broker.servers, f"events-{number}", f"results-{number}")
        wanted = [NewTopic(name, PARTITIONS, 1) for name in (found.events, found.results)]
        for made in self.broker.admin.create_topics(wanted).values():
            made.result()
        return found

    def close(self) -> None:
        self._stack.close()


NAMES = ("yahoo",)
PROBE_BEFORE_MS = 3_600_000
"""Probes belong to a window so long before the first event: whatever comes of them is told from results."""


class OverKafka(Built):
    """A built-in workload whose lines come from a topic."""

    def __init__(self, name: str) -> None:
        if name not in NAMES:
            raise UnknownWorkload(given=name, available=NAMES)
        super().__init__(name)
        self.base, self.name = name, f"{name}, Kafka"

    @property
    def reference(self) -> str:
        return self.base

    def probes(self, event_start_us: int) -> tuple[list[str], list[list[Any]]]:
        """A line for each partition, and the group of the result that it leads to."""
        time_ms = (event_start_us // 1000 - PROBE_BEFORE_MS) // WINDOW_MS * WINDOW_MS
        of_campaign = {campaign: ad for ad, campaign in CAMPAIGN_OF_AD.items()}
        chosen = list(of_campaign.items())[:PARTITIONS]
        lines = [json.dumps({"ad_id": ad, "event_type": "view", "event_time": time_ms}) for _, ad in chosen]
        return lines, [[campaign, time_ms * 1000] for campaign, _ in chosen]

    def results(self, given: Input, event_start_us: int) -> int:
        """What the counts of all groups add up to when everything is out."""
        return sum(self.workload.expected(given.replay(event_start_us)).values())


SETTLE_S = 1.0
"""Results are read for so long after the last one that was expected: there may be some that were not."""
END_S = 15.0
LIMIT_RECORDS = 200_000


class Between(Sides):
    """Two topics; the programs of an engine run until they are ended."""

    partitions = PARTITIONS

    def __init__(self, run: Run, place: Place) -> None:
        subject = run.subject
        assert isinstance(subject, OverKafka)
        run.options.tell("starting the broker", None)
        self._run, self._topics, self._broker = run, place.topics(), place.broker.pid
        self.but, self.event_start_us = [self._broker], run.event_start_us
        expected = subject.results(run.prepare(1), run.event_start_us)
        lines, groups = subject.probes(run.event_start_us)
        common = {"servers": self._topics.servers, "partitions": PARTITIONS, "directory": str(run.directory)}
        self._feeding = {**common, "topic": self._topics.events, "probes": lines, "lead_s": run.launch.lead_s}
        self._watching = {**common, "topic": self._topics.results, "probes": groups, "expected": expected}
        self._watching |= {"columns": subject.columns, "group": subject.workload.group}

    def open(self, table: Processes, stack: ExitStack) -> dict[str, Any]:
        self._feeder = stack.enter_context(_program("feeder", self._feeding, self._run.directory))
        self._watcher = stack.enter_context(_program("watcher", self._watching, self._run.directory))
        self.programs = self._feeder, self._watcher
        for pid, role in ((self._broker, "broker"), (self._feeder.pid, "generator"), (self._watcher.pid, "reader")):
            table.name(pid, role)
        return {**self._topics._asdict(), "partitions": PARTITIONS}

    def start_us(self, engine: Sequence[Program]) -> int:
        self._watcher.message("up", START_S_MAX, self._feeder, *engine)
        start_us: int = self._feeder.ask("start_us", START_S_MAX)
        return start_us

    def finish(self, engine: Sequence[Program], deadline_s: float) -> tuple[bool, int | None]:
        lag_us: int = self._feeder.message("lag_p99_us", DRAIN_S_MAX)
        try:
            finished = bool(self._watcher.message("done", max(deadline_s - time.time(), 0.1), *engine))
            time.sleep(SETTLE_S)
        except EngineFailed:
            for each in engine:
                each.check()
            finished = False
        self._watcher.finish(END_S)
        return finished, lag_us


class OverTopics(Launched):
    """An engine that reads a topic and writes to another one; its programs find them in their specification."""

    def __init__(self, place: Place, variant: str | None = None) -> None:
        super().__init__(variant)
        self._place = place

    def sides(self, run: Run) -> Sides:
        return Between(run, self._place)


def _program(name: str, spec: dict[str, Any], directory: Path) -> Program:
    command = [sys.executable, "-m", f"penstock_bench.kafka.{name}", json.dumps(spec)]
    return Program(name, command, directory / f"{name}.log", messages=True)


def generator_limit(place: Place, subject: OverKafka) -> Check:
    """Measure how fast prepared events go into the topic."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        directory, topics = Path(name), place.topics()
        given = subject.input(LIMIT_RECORDS, None, total=LIMIT_RECORDS)
        prepare(subject, given, time.time_ns() // 1000, directory, partitions=1)
        spec = {"servers": topics.servers, "partitions": PARTITIONS, "directory": name, "topic": topics.events}
        with _program("feeder", {**spec, "probes": [], "lead_s": None}, directory) as feeder:
            took_s: float = feeder.message("seconds", START_S_MAX)
    how = f"lines made beforehand, written to a topic of {PARTITIONS} partitions on the same machine"
    return limit_of(LIMIT_RECORDS, took_s, how)
