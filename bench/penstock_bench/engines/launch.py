"""Runs an engine's programs: input made beforehand, programs started, the warm-up cut, output read.

Every engine goes through here, Penstock too, so all of them are metered and ended alike. A foreign engine reads its
lines from the feeder's socket; Penstock makes its own events.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock_bench.engines.inputs import Prepared, prepare
from penstock_bench.engines.program import Program
from penstock_bench.meter.engine import Engine, Observation, Output, Rate, RunOptions
from penstock_bench.meter.processes import Processes
from penstock_bench.meter.stamped import read_outputs
from penstock_bench.meter.subject import Subject

START_S_MAX = 120.0
"""How long an engine may take until it has connected."""
DRAIN_S_MAX = 60.0
"""How long it may take after the last event until all results are out; what is not out then counts as lost."""
POLL_S = 0.5
FOREIGN = Path(__file__).parents[1] / "foreign"


@dataclass(frozen=True)
class Launch:
    """How an engine's programs are started.

    Attributes
    ----------
    commands : list
        The command of every program; each finds its specification through the variable PENSTOCK_SPEC.
    specification : dict
        What the programs are told beside the workload, the port and the place of their output.
    environment : mapping
        More environment variables.
    connections : int
        Connections that the engine opens to the feeder, each with its share of the events; 0: it makes its own events.
    lead_s : float
        From the engine's last connection to the start of the schedule: what it still needs to come up.
    dealt : int
        Instances among which the engine deals its lines out in turn; order is kept within each.
    closing : bool
        Whether the engine needs a last line to close its windows.
    read : callable
        Reads the output, where that is not the usual log; takes the directory of the run.
    settings, notes
        For the results: what is not the engine's default, and what a reader has to know.
    blows : sequence of (float, callable)
        What is done to the engine at which second after the warm-up.
    """

    commands: Sequence[Sequence[str]]
    specification: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    connections: int = 1
    lead_s: float = 1.0
    dealt: int = 1
    closing: bool = False
    read: Callable[[Path], list[Output]] = read_outputs
    settings: Mapping[str, object] = field(default_factory=dict)
    notes: Sequence[str] = ()
    blows: Sequence[tuple[float, Callable[[], object]]] = ()


class Launched(Engine):
    """An engine whose programs are started here."""

    @abstractmethod
    def launch(self, subject: Subject, rate: Rate, seconds: float, options: RunOptions) -> Launch:
        """Say what is to be started for a run."""

    def run(self, subject: Subject, rate: Rate, seconds: float, options: RunOptions) -> Observation:
        launch = self.launch(subject, rate, seconds, options)
        with ExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
            return _Run(self.label, launch, directory, options, stack).measured(subject, rate, seconds)


class _Run:
    def __init__(self, engine: str, launch: Launch, directory: Path, options: RunOptions, stack: ExitStack) -> None:
        self._engine, self._launch, self._directory = engine, launch, directory
        self._options, self._stack = options, stack
        self._programs: list[Program] = []

    def measured(self, subject: Subject, rate: Rate, seconds: float) -> Observation:
        launch, options, whole_s = self._launch, self._options, self._options.warm_up_s + seconds
        # Event times follow the schedule but from a start of their own: the input is made before anyone has connected.
        event_start_us = time.time_ns() // 1_000_000 * 1000
        end_us = event_start_us + round(whole_s * 1e6)
        prepared = self._prepared(subject, rate, whole_s, event_start_us, end_us) if launch.connections else None
        options.tell("starting", None)
        table = self._stack.enter_context(Processes(apart=True))
        settings = {**self._stack.enter_context(subject.beside()), **launch.settings}
        told: dict[str, Any] = {**subject.specification(), "out": str(self._directory)}
        told |= {"end_us": end_us, "parallelism": options.parallelism, **launch.specification}
        feeder = None
        if prepared is not None:
            feeder = self._stack.enter_context(feeding(self._directory, launch.connections, str(launch.lead_s)))
            table.name(feeder.pid, "generator")
            told |= {"port": feeder.message("port", START_S_MAX), "events": prepared.events}
        self._start(told, table)
        start_us: int = (feeder or self._programs[0]).message("start_us", START_S_MAX, *self._programs)
        warm_s = start_us / 1e6 + options.warm_up_s
        options.tell("warming up", warm_s - time.time())
        self._sleep_until(warm_s)
        table.restart()
        options.tell("measuring", seconds)
        for after_s, strike in launch.blows:
            self._sleep_until(warm_s + after_s)
            strike()
        self._sleep_until(warm_s + seconds)
        usages = table.usages()
        options.tell("waiting for the last results", None)
        deadline_s = warm_s + seconds + DRAIN_S_MAX
        finished = all(program.wait(max(deadline_s - time.time(), 0.1)) for program in self._programs)
        lag_us = feeder.message("lag_p99_us", DRAIN_S_MAX) if finished and feeder is not None else None
        if not finished:
            for program in self._programs:
                program.close()
        late = [] if finished else [f"not done {DRAIN_S_MAX:g} s after the last event: stopped"]
        return Observation(
            start_us=start_us,
            event_start_us=start_us if prepared is None else event_start_us,
            outputs=launch.read(self._directory),
            partitions=max(launch.connections, 1) * launch.dealt,
            processes=usages,
            feed_lag_ms=None if lag_us is None else lag_us / 1000,
            settings=settings,
            notes=[*launch.notes, *late],
        )

    def _prepared(self, subject: Subject, rate: Rate, whole_s: float, event_start_us: int, end_us: int) -> Prepared:
        given = subject.input(rate, whole_s, seed=self._options.seed)
        self._options.tell("making the input", None)
        closing = subject.closing(end_us) if self._launch.closing else None
        return prepare(subject, given, event_start_us, self._directory, self._launch.connections, closing)

    def _start(self, told: dict[str, Any], table: Processes) -> None:
        path = self._directory / "specification.json"
        path.write_text(json.dumps(told))
        environment = {**self._launch.environment, "PENSTOCK_SPEC": str(path)}
        for i, command in enumerate(self._launch.commands):
            log, messages = self._directory / f"program-{i}.log", not self._launch.connections
            program = Program(self._engine, command, log, environment=environment, messages=messages)
            self._programs.append(self._stack.enter_context(program))
            table.name(program.pid, self._engine)

    def _sleep_until(self, at_s: float) -> None:
        while (left_s := at_s - time.time()) > 0:
            time.sleep(min(left_s, POLL_S))
            for program in self._programs:
                program.check()


def feeding(directory: Path, connections: int, lead: str) -> Program:
    """Start the feeder of prepared lines; ``lead`` is the time to the schedule's start, or ``at-once``."""
    command = [sys.executable, "-m", "penstock_bench.engines.feeder", str(directory), str(connections), lead]
    return Program("generator", command, directory / "feeder.log", messages=True)
