"""Runs a foreign engine against the feeder: input made beforehand, programs started, the warm-up cut, output read.

Every engine that reads from the socket goes through here, so all of them are fed, metered and ended alike.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock_bench.engines.inputs import prepare
from penstock_bench.engines.program import Program
from penstock_bench.meter.engine import Observation, Output, Rate, RunOptions
from penstock_bench.meter.processes import Processes
from penstock_bench.meter.rows import ProcessUsage
from penstock_bench.meter.stamped import read_outputs
from penstock_bench.meter.subject import Subject

START_S_MAX = 120.0
"""How long an engine may take until it has connected."""
DRAIN_S_MAX = 60.0
"""How long it may take after the last event until all results are out; what is not out then counts as lost."""
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
        Connections that the engine opens to the feeder, each with its share of the events.
    lead_s : float
        From the engine's last connection to the start of the schedule: what it still needs to come up.
    dealt : int
        Instances among which the engine deals its lines out in turn; order is kept within each.
    hold : bool
        Whether the connection stays open after the last event: the program finds the end by itself.
    closing : bool
        Whether the engine needs a last line to close its windows.
    read : callable
        Reads the output, where that is not the log of `outputs`; takes the directory of the run.
    """

    commands: Sequence[Sequence[str]]
    specification: dict[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    connections: int = 1
    lead_s: float = 1.0
    dealt: int = 1
    hold: bool = False
    closing: bool = False
    read: Callable[[Path], list[Output]] = read_outputs


def run_fed(
    engine: str, subject: Subject, rate: Rate, seconds: float, options: RunOptions, launch: Launch
) -> Observation:
    """Run an engine that reads from the socket and return what came out."""
    given = subject.input(rate, options.warm_up_s + seconds, seed=options.seed)
    # Event times follow the schedule but from a start of their own: the input is made before anyone has connected.
    event_start_us = time.time_ns() // 1_000_000 * 1000
    options.tell("making the input", None)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
        end_us = event_start_us + round((options.warm_up_s + seconds) * 1e6)
        closing = subject.closing(end_us) if launch.closing else None
        prepared = prepare(subject, given, event_start_us, directory, launch.connections, closing)
        options.tell("starting", None)
        settings = dict(stack.enter_context(subject.beside()))
        table = stack.enter_context(Processes())
        feeder = stack.enter_context(_feeder(directory, launch))
        table.name(feeder.pid, "generator")
        specification = {
            **subject.specification(),
            "port": feeder.message("port", START_S_MAX),
            "out": str(directory),
            "events": prepared.events,
            "end_us": end_us,
            "parallelism": options.parallelism,
            **launch.specification,
        }
        path = directory / "specification.json"
        path.write_text(json.dumps(specification))
        environment = {**launch.environment, "PENSTOCK_SPEC": str(path)}
        programs = [
            stack.enter_context(Program(engine, command, directory / f"program-{i}.log", environment=environment))
            for i, command in enumerate(launch.commands)
        ]
        for program in programs:
            table.name(program.pid, engine)
        start_us = feeder.message("start_us", START_S_MAX, *programs)
        usages = measured_usages(table, start_us, seconds, options, programs)
        options.tell("waiting for the last results", None)
        finished = _finish(programs, start_us, options.warm_up_s + seconds)
        notes = [] if finished else [f"not done {DRAIN_S_MAX:g} s after the last event: stopped"]
        lag_us = feeder.message("lag_p99_us", DRAIN_S_MAX) if finished else None
        if not finished:
            for program in programs:
                program.close()
        return Observation(
            start_us=start_us,
            event_start_us=event_start_us,
            outputs=launch.read(directory),
            partitions=launch.connections * launch.dealt,
            processes=usages,
            feed_lag_ms=None if lag_us is None else lag_us / 1000,
            settings=settings,
            notes=notes,
        )


@contextmanager
def _feeder(directory: Path, launch: Launch) -> Iterator[Program]:
    arguments = [str(directory), str(launch.connections), str(launch.lead_s), "hold" if launch.hold else "close"]
    command = [sys.executable, "-m", "penstock_bench.engines.feeder", *arguments]
    with Program("generator", command, directory / "feeder.log", messages=True) as feeder:
        yield feeder


def measured_usages(
    table: Processes, start_us: int, seconds: float, options: RunOptions, programs: list[Program]
) -> list[ProcessUsage]:
    """Wait through the schedule; CPU and memory count from the end of the warm-up to the last scheduled event."""
    warm_s = start_us / 1e6 + options.warm_up_s
    options.tell("warming up", warm_s - time.time())
    _sleep_until(warm_s, programs)
    table.restart()
    options.tell("measuring", seconds)
    _sleep_until(warm_s + seconds, programs)
    return table.usages()


def _sleep_until(at_s: float, programs: list[Program]) -> None:
    while (left_s := at_s - time.time()) > 0:
        time.sleep(min(left_s, 0.5))
        for program in programs:
            program.check()


def _finish(programs: list[Program], start_us: int, seconds: float) -> bool:
    """Wait until all programs have ended by themselves; return whether they did in time."""
    deadline_s = start_us / 1e6 + seconds + DRAIN_S_MAX
    return all(program.wait(max(deadline_s - time.time(), 0.1)) for program in programs)
