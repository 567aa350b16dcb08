"""Runs an engine over Kafka: topics made, programs started, the engine seen to be up, results read from outside."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock_bench.engines.inputs import prepare
from penstock_bench.engines.launch import DRAIN_S_MAX, POLL_S, START_S_MAX, Launch
from penstock_bench.engines.program import Program
from penstock_bench.kafka.place import PARTITIONS, Place, Topics
from penstock_bench.kafka.subject import OverKafka
from penstock_bench.meter.engine import Engine, Observation, Rate, RunOptions
from penstock_bench.meter.errors import EngineFailed
from penstock_bench.meter.processes import Processes
from penstock_bench.meter.rows import Check
from penstock_bench.meter.stamped import read_outputs
from penstock_bench.meter.subject import Subject

SETTLE_S = 1.0
"""Results are read for so long after the last one that was expected: there may be some that were not."""
END_S = 15.0
LIMIT_RECORDS = 200_000


@dataclass(frozen=True)
class _Sides:
    """What is beside an engine: who writes its events, and who reads its results."""

    feeder: Program
    watcher: Program
    event_start_us: int


class KafkaEngine(Engine):
    """An engine that reads a topic and writes to another one; its programs are started here."""

    def __init__(self, place: Place, variant: str | None = None) -> None:
        super().__init__(variant)
        self._place = place

    @abstractmethod
    def launch(self, topics: Topics, options: RunOptions) -> Launch:
        """Say what is to be started; programs find the topics in their specification."""

    def supports(self, subject: Subject) -> str | None:
        return None if isinstance(subject, OverKafka) else "it is measured over Kafka here"

    def run(self, subject: Subject, rate: Rate, seconds: float, options: RunOptions) -> Observation:
        assert isinstance(subject, OverKafka)
        with ExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
            options.tell("starting the broker", None)
            topics = self._place.topics()
            launch = self.launch(topics, options)
            table = stack.enter_context(Processes(apart=True, but=[self._place.broker.pid]))
            table.name(self._place.broker.pid, "broker")
            options.tell("making the input", None)
            sides = _beside(subject, rate, seconds, options, topics, directory, launch.lead_s, stack)
            table.name(sides.feeder.pid, "generator")
            table.name(sides.watcher.pid, "reader")
            options.tell("starting", None)
            programs = self._start(subject, topics, launch, options, directory, stack)
            for each in programs:
                table.name(each.pid, self.label)
            try:
                return self._measured(sides, programs, table, launch, seconds, options, directory)
            finally:
                for each in programs:
                    each.close()

    def _start(
        self,
        subject: OverKafka,
        topics: Topics,
        launch: Launch,
        options: RunOptions,
        directory: Path,
        stack: ExitStack,
    ) -> list[Program]:
        told: dict[str, Any] = {**subject.specification(), "reference": subject.reference, "out": str(directory)}
        told |= {"servers": topics.servers, "events": topics.events, "results": topics.results}
        told |= {"partitions": topics.partitions, "parallelism": options.parallelism, **launch.specification}
        path = directory / "specification.json"
        path.write_text(json.dumps(told))
        environment = {**launch.environment, "PENSTOCK_SPEC": str(path)}
        logs = [directory / f"program-{i}.log" for i in range(len(launch.commands))]
        return [
            stack.enter_context(Program(self.label, command, log, environment=environment))
            for command, log in zip(launch.commands, logs, strict=True)
        ]

    def _measured(
        self,
        sides: _Sides,
        programs: Sequence[Program],
        table: Processes,
        launch: Launch,
        seconds: float,
        options: RunOptions,
        directory: Path,
    ) -> Observation:
        sides.watcher.message("up", START_S_MAX, sides.feeder, *programs)
        start_us: int = sides.feeder.ask("start_us", START_S_MAX)
        warm_s = start_us / 1e6 + options.warm_up_s
        options.tell("warming up", warm_s - time.time())
        watched = [*programs, sides.feeder, sides.watcher]
        _sleep_until(warm_s, watched)
        table.restart()
        options.tell("measuring", seconds)
        _sleep_until(warm_s + seconds, watched)
        usages = table.usages()
        options.tell("waiting for the last results", None)
        notes = list(launch.notes)
        lag_us: int = sides.feeder.message("lag_p99_us", DRAIN_S_MAX)
        try:
            sides.watcher.message("done", max(warm_s + seconds + DRAIN_S_MAX - time.time(), 0.1), *programs)
            time.sleep(SETTLE_S)
        except EngineFailed:
            for each in programs:
                each.check()
            notes.append(f"not done {DRAIN_S_MAX:g} s after the last event: stopped")
        sides.watcher.finish(END_S)
        return Observation(
            start_us=start_us,
            event_start_us=sides.event_start_us,
            outputs=read_outputs(directory),
            partitions=PARTITIONS,
            processes=usages,
            feed_lag_ms=lag_us / 1000,
            settings=dict(launch.settings),
            notes=notes,
        )


def _beside(
    subject: OverKafka,
    rate: Rate,
    seconds: float,
    options: RunOptions,
    topics: Topics,
    directory: Path,
    lead_s: float,
    stack: ExitStack,
) -> _Sides:
    event_start_us = time.time_ns() // 1_000_000 * 1000
    given = subject.input(rate, options.warm_up_s + seconds, seed=options.seed)
    prepare(subject, given, event_start_us, directory, partitions=1)
    lines, groups = subject.probes(event_start_us)
    common = {"servers": topics.servers, "partitions": topics.partitions}
    feeding = {**common, "directory": str(directory), "topic": topics.events, "probes": lines, "lead_s": lead_s}
    watching = {**common, "topic": topics.results, "columns": subject.columns, "group": subject.workload.group}
    watching |= {"probes": groups, "expected": subject.results(given, event_start_us), "out": str(directory)}
    feeder = stack.enter_context(_program("feeder", feeding, directory))
    return _Sides(feeder, stack.enter_context(_program("watcher", watching, directory)), event_start_us)


def _program(name: str, spec: dict[str, Any], directory: Path) -> Program:
    command = [sys.executable, "-m", f"penstock_bench.kafka.{name}", json.dumps(spec)]
    return Program(name, command, directory / f"{name}.log", messages=True)


def _sleep_until(at_s: float, programs: Sequence[Program]) -> None:
    while (left_s := at_s - time.time()) > 0:
        time.sleep(min(left_s, POLL_S))
        for program in programs:
            program.check()


def generator_limit(place: Place, subject: OverKafka) -> Check:
    """Measure how fast prepared events go into the topic."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name, ExitStack() as stack:
        directory, topics = Path(name), place.topics()
        given = subject.input(LIMIT_RECORDS, None, total=LIMIT_RECORDS)
        prepare(subject, given, time.time_ns() // 1000, directory, partitions=1)
        spec = {"servers": topics.servers, "partitions": topics.partitions, "directory": name}
        spec |= {"topic": topics.events, "probes": [], "lead_s": None}
        feeder = stack.enter_context(_program("feeder", spec, directory))
        took_s: float = feeder.message("seconds", START_S_MAX)
    return Check(
        name="limit of the generator",
        value=round(LIMIT_RECORDS / took_s),
        unit="events/s",
        target="above every rate that is measured",
        met=True,
        detail={"how": f"lines made beforehand, written to a topic of {PARTITIONS} partitions on the same machine"},
    )
