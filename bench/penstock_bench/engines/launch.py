"""Runs an engine's programs: input made beforehand, programs started, the warm-up cut, output read.

Every engine goes through here, Penstock too, so all of them are metered and ended alike. What is beside it differs: a
foreign engine reads its lines from the feeder's socket, Penstock makes its own events, and over Kafka all read a topic.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from penstock_bench.engines.inputs import prepare
from penstock_bench.engines.program import Program
from penstock_bench.meter.engine import Engine, Observation, Output, Rate, RunOptions
from penstock_bench.meter.processes import Processes
from penstock_bench.meter.rows import Check
from penstock_bench.meter.stamped import read_outputs
from penstock_bench.meter.subject import Input, Subject

START_S_MAX = 120.0  # how long an engine may take until it has connected
DRAIN_S_MAX = 60.0
"""How long it may take after the last event until all results are out; what is not out then counts as lost."""
POLL_S = 0.5
FOREIGN = Path(__file__).parents[1] / "foreign"


@dataclass(frozen=True)
class Launch:
    """How an engine's programs are started; each finds its specification through the variable PENSTOCK_SPEC."""

    commands: Sequence[Sequence[str]]
    specification: Mapping[str, Any] = field(default_factory=dict)  # beside workload, port and place of the output
    environment: Mapping[str, str] = field(default_factory=dict)
    connections: int = 1
    """That the engine opens to the feeder, each with its share of the events; 0: it makes its own events."""
    lead_s: float = 1.0
    """From the engine's last connection to the start of the schedule: what it still needs to come up."""
    dealt: int = 1  # instances among which the engine deals its lines out in turn; order is kept within each
    closing: bool = False  # whether the engine needs a last line to close its windows
    read: Callable[[Path], list[Output]] = read_outputs  # from the directory of the run
    settings: Mapping[str, object] = field(default_factory=dict)  # for the results: what is not the engine's default
    notes: Sequence[str] = ()  # what a reader of the results has to know
    blows: Sequence[tuple[float, Callable[[], object]]] = ()  # done to the engine so many seconds after the warm-up


@dataclass(frozen=True)
class Run:
    """One run of an engine: what it is given, and where its files lie."""

    subject: Subject
    rate: Rate
    seconds: float
    options: RunOptions
    launch: Launch
    directory: Path

    @cached_property
    def event_start_us(self) -> int:
        """What event times count from: the schedule's own start is not known before the engine is up."""
        return time.time_ns() // 1_000_000 * 1000

    @property
    def end_us(self) -> int:
        """After the last event time."""
        return self.event_start_us + round((self.options.warm_up_s + self.seconds) * 1e6)

    def prepare(self, partitions: int) -> Input:
        """Make the input, for so many partitions, and write it down."""
        self.options.tell("making the input", None)
        given = self.subject.input(self.rate, self.options.warm_up_s + self.seconds, seed=self.options.seed)
        closing = self.subject.closing(self.end_us) if self.launch.closing else None
        prepare(self.subject, given, self.event_start_us, self.directory, partitions, closing)
        return given


class Sides(ABC):
    """What is beside an engine: who gives it its events, and who knows its results."""

    but: Collection[int] = ()  # processes that were there before the run and count all the same
    programs: Sequence[Program] = ()
    partitions: int  # of the input; order is kept within each
    event_start_us: int | None  # what event times count from; None: from the start of the schedule

    @abstractmethod
    def open(self, table: Processes, stack: ExitStack) -> dict[str, Any]:
        """Start it; return what the engine's programs are told."""

    @abstractmethod
    def start_us(self, engine: Sequence[Program]) -> int:
        """Wait until the engine is up; return when the schedule starts."""

    @abstractmethod
    def finish(self, engine: Sequence[Program], deadline_s: float) -> tuple[bool, int | None]:
        """Wait for the last results: whether they came in time, and how late the generator was, where there is one."""


class Fed(Sides):
    """The feeder, to which the engine connects, or nobody; the programs end with their input."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._feeder: Program | None = None
        connections = run.launch.connections
        self.partitions = max(connections, 1) * run.launch.dealt
        self.event_start_us = run.event_start_us if connections else None
        if connections:
            run.prepare(connections)

    def open(self, table: Processes, stack: ExitStack) -> dict[str, Any]:
        launch = self._run.launch
        if not launch.connections:
            return {}
        self._feeder = stack.enter_context(feeding(self._run.directory, launch.connections, launch.lead_s))
        table.name(self._feeder.pid, "generator")
        return {"port": self._feeder.message("port", START_S_MAX)}

    def start_us(self, engine: Sequence[Program]) -> int:
        start_us: int = (self._feeder or engine[0]).message("start_us", START_S_MAX, *engine)
        return start_us

    def finish(self, engine: Sequence[Program], deadline_s: float) -> tuple[bool, int | None]:
        if not all(program.wait(max(deadline_s - time.time(), 0.1)) for program in engine):
            return False, None
        return True, None if self._feeder is None else self._feeder.message("lag_p99_us", DRAIN_S_MAX)


class Launched(Engine):
    """An engine whose programs are started here."""

    @abstractmethod
    def launch(self, subject: Subject, rate: Rate, seconds: float, options: RunOptions) -> Launch:
        """Say what is to be started for a run."""

    def sides(self, run: Run) -> Sides:
        """Prepare what is beside the engine."""
        return Fed(run)

    def run(self, subject: Subject, rate: Rate, seconds: float, options: RunOptions) -> Observation:
        launch = self.launch(subject, rate, seconds, options)
        with ExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
            return self._measured(Run(subject, rate, seconds, options, launch, directory), stack)

    def _measured(self, run: Run, stack: ExitStack) -> Observation:
        launch, options = run.launch, run.options
        sides = self.sides(run)
        options.tell("starting", None)
        table = stack.enter_context(Processes(apart=True, but=sides.but))
        settings = {**stack.enter_context(run.subject.beside()), **launch.settings}
        told = {**run.subject.specification(), "out": str(run.directory), "end_us": run.end_us}
        told |= {"parallelism": options.parallelism, **sides.open(table, stack), **launch.specification}
        programs = self._start(run, told, table, stack)
        start_us = sides.start_us(programs)
        warm_s = start_us / 1e6 + options.warm_up_s
        end_s, watched = warm_s + run.seconds, [*programs, *sides.programs]
        options.tell("warming up", warm_s - time.time())
        _sleep_until(warm_s, watched)
        table.restart()
        options.tell("measuring", run.seconds)
        for after_s, strike in launch.blows:
            _sleep_until(warm_s + after_s, watched)
            strike()
        _sleep_until(end_s, watched)
        usages = table.usages()
        options.tell("waiting for the last results", None)
        finished, lag_us = sides.finish(programs, end_s + DRAIN_S_MAX)
        for program in programs:
            program.close()
        late = [] if finished else [f"not done {DRAIN_S_MAX:g} s after the last event: stopped"]
        return Observation(
            start_us=start_us,
            event_start_us=start_us if sides.event_start_us is None else sides.event_start_us,
            outputs=launch.read(run.directory),
            partitions=sides.partitions,
            processes=usages,
            feed_lag_ms=None if lag_us is None else lag_us / 1000,
            settings=settings,
            notes=[*launch.notes, *late],
        )

    def _start(self, run: Run, told: dict[str, Any], table: Processes, stack: ExitStack) -> list[Program]:
        path = run.directory / "specification.json"
        path.write_text(json.dumps(told))
        environment = {**run.launch.environment, "PENSTOCK_SPEC": str(path)}
        programs = []
        for i, command in enumerate(run.launch.commands):
            log, messages = run.directory / f"program-{i}.log", not run.launch.connections
            program = Program(self.label, command, log, environment=environment, messages=messages)
            programs.append(stack.enter_context(program))
            table.name(program.pid, self.label)
        return programs


def _sleep_until(at_s: float, programs: Sequence[Program]) -> None:
    while (left_s := at_s - time.time()) > 0:
        time.sleep(min(left_s, POLL_S))
        for program in programs:
            program.check()


def feeding(directory: Path, connections: int, lead_s: float | None) -> Program:
    """Start the feeder of prepared lines; ``lead_s`` is the time to the schedule's start, None: all at once."""
    spec = json.dumps({"directory": str(directory), "connections": connections, "lead_s": lead_s})
    command = [sys.executable, "-m", "penstock_bench.engines.feeder", spec]
    return Program("generator", command, directory / "feeder.log", messages=True)


def limit_of(events: int, seconds: float, how: str, **detail: object) -> Check:
    """How much a generator can send, as the results tell it."""
    target, detail = "above every rate that is measured", {"how": how, **detail}
    return Check("limit of the generator", round(events / seconds), "events/s", target, met=True, detail=detail)
