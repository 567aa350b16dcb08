"""A job beside another one on the same machine; for the study of isolation.

The neighbour is a Spark application of its own (``python -m penstock_bench.studies.neighbours``, which takes commands
from its input), or a second job in the Spark application of the first.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import IO, Any

import msgspec

import penstock as ps
from penstock.pipeline.options import Forms
from penstock_bench.engines.program import Program
from penstock_bench.meter.job import Run, discard, observe, running
from penstock_bench.meter.rows import ResultRow
from penstock_bench.workloads import WORKLOADS

WORKLOAD = "yahoo"
OFFERED_EPS = 4_000_000.0
READY_S_MAX = 120.0
SETTLE_S = 3.0
_FIRST = (1, 100.0)
"""The idle neighbour has some events, so that it is up, and then none."""


class Load(Enum):
    """What the neighbour does."""

    IDLE = "idle"
    BATCH = "batch"
    RECORD = "record"
    """Under overload in this form."""


class Carried(msgspec.Struct):
    """What the neighbour did in the time that was measured."""

    events: int
    seconds: float
    cpu_cores: float
    """0 where it cannot be told from the first job's."""

    @property
    def eps(self) -> float:
        """Events per second."""
        return self.events / self.seconds


def _running(load: Load, parallelism: int) -> AbstractContextManager[Run]:
    rate: Any = OFFERED_EPS if load is not Load.IDLE else ps.rates.steps([_FIRST, (3600, 0), (1, 1)])
    forms = Forms.ADAPTIVE.value if load is Load.IDLE else load.value
    return running(WORKLOADS[WORKLOAD].pipeline(rate, ps.foreach(discard)), parallelism=parallelism, forms=forms)


@dataclass
class Counted:
    """A job whose events are counted between two moments."""

    run: Run
    first: tuple[int, int] = (0, 0)

    def begin(self) -> None:
        """Count from now on."""
        self.first = self.run.read()
        self.run.processes.restart()

    def end(self) -> Carried:
        """Return what was done since."""
        events, heard_us = self.run.read()
        seconds = max(1, heard_us - self.first[1]) / 1e6
        return Carried(events - self.first[0], seconds, round(self.run.processes.cpu_cores, 3))


@dataclass(frozen=True)
class Neighbour:
    """Runs while it is entered; what it did is counted from `begin` to `end`."""

    begin: Callable[[], object]
    end: Callable[[], Carried]


@contextmanager
def within(load: Load, parallelism: int, settle_s: float) -> Iterator[Neighbour]:
    """A second job in this process: both share one Spark application, and whose CPU is whose cannot be told."""
    with _running(load, parallelism) as run:
        time.sleep(settle_s)
        counted = Counted(run)
        yield Neighbour(counted.begin, lambda: msgspec.structs.replace(counted.end(), cpu_cores=0.0))
        run.end()


@contextmanager
def beside(load: Load, parallelism: int, settle_s: float) -> Iterator[Neighbour]:
    """A process of its own, with its own Spark application."""
    module = "penstock_bench.studies.neighbours"
    command = [sys.executable, "-m", module, load.value, str(parallelism), str(settle_s)]
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory,
        Program("neighbour", command, Path(directory) / "log", messages=True) as program,
    ):
        program.message("ready", READY_S_MAX)
        yield Neighbour(
            lambda: program.ask("begin", READY_S_MAX),
            lambda: msgspec.convert(program.ask("end", READY_S_MAX), Carried),
        )
        program.finish(READY_S_MAX)


def serve(load: Load, parallelism: int, settle_s: float, commands: IO[str]) -> None:
    """Be the neighbour: ready, then an answer to each command, until there are no more."""
    with _running(load, parallelism) as run:
        time.sleep(settle_s)
        counted = Counted(run)
        print(json.dumps({"ready": True}), flush=True)
        for command in map(str.strip, commands):
            found = msgspec.to_builtins(counted.end())
            if command == "begin":
                counted.begin()
            print(json.dumps({command: found}), flush=True)
        run.end()


def measure(
    rate_eps: float, seconds: float, parallelism: int, neighbour: Neighbour | None, *, warm_up_s: float
) -> tuple[ResultRow, Carried | None]:
    """Run the first job at a fixed rate, with a neighbour or alone; every result is compared with the exact one."""
    carried: list[Carried] = []
    begun: list[bool] = []

    def look(job: ps.Job) -> None:
        at_s = time.time() - job.start_us / 1e6
        if neighbour is not None and not begun:
            begun.append(True)
            neighbour.begin()
        if neighbour is not None and not carried and at_s > warm_up_s + seconds:
            carried.append(neighbour.end())

    forms = Forms.ADAPTIVE.value
    row, _ = observe(WORKLOADS[WORKLOAD], rate_eps, seconds, parallelism, forms, warm_up_s=warm_up_s, watchers=[look])
    if neighbour is not None and not carried:
        carried.append(neighbour.end())
    return row, carried[0] if carried else None


if __name__ == "__main__":
    serve(Load(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.stdin)
