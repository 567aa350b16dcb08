"""A job beside another one on the same machine; for the study of isolation.

The neighbour is a Spark application of its own (``python -m penstock_bench.studies.neighbours``, which takes commands
from its input), or a second job in the Spark application of the first.
"""

from __future__ import annotations

import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from enum import Enum
from types import TracebackType
from typing import IO, Any

import msgspec

import penstock as ps
from penstock.errors import PenstockError
from penstock.pipeline.options import Forms
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


class Neighbour(ABC):
    """Runs from entering to leaving; what it did is counted from `begin` to `end`."""

    @abstractmethod
    def begin(self) -> None:
        """Count from now on."""

    @abstractmethod
    def end(self) -> Carried:
        """Return what was done since."""


class Within(Neighbour, AbstractContextManager["Within"]):
    """A second job in this process: both share one Spark application."""

    def __init__(self, load: Load, parallelism: int, settle_s: float) -> None:
        self._stack = ExitStack()
        self._load, self._parallelism, self._settle_s = load, parallelism, settle_s

    def __enter__(self) -> Within:
        self._run = self._stack.enter_context(_running(self._load, self._parallelism))
        time.sleep(self._settle_s)
        return self

    def __exit__(self, *_: object) -> None:
        with self._stack:
            self._run.end()

    def begin(self) -> None:
        self._first = self._run.read()

    def end(self) -> Carried:
        return _carried(self._first, self._run.read(), 0.0)


class Beside(Neighbour, AbstractContextManager["Beside"]):
    """A process of its own, with its own Spark application."""

    def __init__(self, load: Load, parallelism: int, settle_s: float) -> None:
        program = "penstock_bench.studies.neighbours"
        self._command = [sys.executable, "-m", program, load.value, str(parallelism), str(settle_s)]

    def __enter__(self) -> Beside:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        self._process: subprocess.Popen[str] = subprocess.Popen(self._command, **pipes)  # type: ignore[call-overload]
        self._answer()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()  # its end is the word to stop
        try:
            self._process.wait(READY_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def begin(self) -> None:
        self._say("begin")
        self._answer()

    def end(self) -> Carried:
        self._say("end")
        return msgspec.json.decode(self._answer(), type=Carried)

    def _say(self, word: str) -> None:
        assert self._process.stdin is not None
        print(word, file=self._process.stdin, flush=True)

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise PenstockError(f"the neighbour has ended by itself, with code {self._process.wait(READY_S_MAX)}.")
        return line


def _carried(first: tuple[int, int], last: tuple[int, int], cpu_cores: float) -> Carried:
    return Carried(last[0] - first[0], max(1, last[1] - first[1]) / 1e6, round(cpu_cores, 3))


def serve(load: Load, parallelism: int, settle_s: float, commands: IO[str], say: Callable[[str], None]) -> None:
    """Be the neighbour: ready, then an answer to each command, until there are no more."""
    with _running(load, parallelism) as run:
        time.sleep(settle_s)
        first = run.read()
        say("ready")
        for command in commands:
            if command.strip() == "begin":
                first = run.read()
                run.processes.restart()
                say("begun")
            else:
                say(msgspec.json.encode(_carried(first, run.read(), run.processes.cpu_cores)).decode())
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


def nobody() -> AbstractContextManager[None]:
    """No neighbour."""
    return nullcontext()


if __name__ == "__main__":
    serve(Load(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.stdin, lambda text: print(text, flush=True))
