"""What is beside an engine over Kafka: topics of its own, a generator that writes to one, a reader of the other."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from penstock_bench.engines.inputs import prepare
from penstock_bench.engines.launch import DRAIN_S_MAX, START_S_MAX, Launched, Run, Sides, limit_of
from penstock_bench.engines.program import Program
from penstock_bench.kafka.place import PARTITIONS, Place
from penstock_bench.kafka.subject import OverKafka
from penstock_bench.meter.errors import EngineFailed
from penstock_bench.meter.processes import Processes
from penstock_bench.meter.rows import Check

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
        given = run.prepare(1)
        lines, groups = subject.probes(run.event_start_us)
        common = {"servers": self._topics.servers, "partitions": PARTITIONS}
        self._feeding = {**common, "directory": str(run.directory), "topic": self._topics.events}
        self._feeding |= {"probes": lines, "lead_s": run.launch.lead_s}
        self._watching = {**common, "topic": self._topics.results, "out": str(run.directory), "probes": groups}
        self._watching |= {"columns": subject.columns, "group": subject.workload.group}
        self._watching["expected"] = subject.results(given, run.event_start_us)

    def open(self, table: Processes, stack: ExitStack) -> dict[str, Any]:
        self._feeder = stack.enter_context(_program("feeder", self._feeding, self._run.directory))
        self._watcher = stack.enter_context(_program("watcher", self._watching, self._run.directory))
        self.programs = self._feeder, self._watcher
        for pid, role in ((self._broker, "broker"), (self._feeder.pid, "generator"), (self._watcher.pid, "reader")):
            table.name(pid, role)
        topics = self._topics
        told = {"servers": topics.servers, "events": topics.events, "results": topics.results}
        return {**told, "partitions": PARTITIONS}

    def start_us(self, engine: Sequence[Program]) -> int:
        self._watcher.message("up", START_S_MAX, self._feeder, *engine)
        start_us: int = self._feeder.ask("start_us", START_S_MAX)
        return start_us

    def finish(self, engine: Sequence[Program], deadline_s: float) -> tuple[bool, int | None]:
        lag_us: int = self._feeder.message("lag_p99_us", DRAIN_S_MAX)
        finished = True
        try:
            self._watcher.message("done", max(deadline_s - time.time(), 0.1), *engine)
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
