"""A job beside another one on the same machine; for the study of isolation.

The neighbour is a Spark application of its own (``python -m penstock_bench.studies.neighbours``, which takes commands
from its input), or a second job in the Spark application of the first.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import msgspec

import penstock as ps
from penstock.errors import PenstockError
from penstock.pipeline.options import Forms
from penstock_bench.meter.measure import BACKLOG_S_MAX, POLL_S, discard, latency_row, read_rows, wait_for_start
from penstock_bench.meter.processes import ProcessMeter
from penstock_bench.meter.rows import ResultRow, cdf_of, mean_ms_of
from penstock_bench.studies.jobs import waiting
from penstock_bench.workloads import WORKLOADS, Workload, replay

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


def _start(load: Load, parallelism: int) -> ps.Job:
    rate: Any = OFFERED_EPS if load is not Load.IDLE else ps.rates.steps([_FIRST, (3600, 0), (1, 1)])
    forms = Forms.ADAPTIVE.value if load is Load.IDLE else load.value
    pipeline = WORKLOADS[WORKLOAD].pipeline(rate, ps.foreach(discard))
    return ps.start(pipeline, name="study-neighbour", parallelism=parallelism, forms=forms)


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
        self._load, self._parallelism, self._settle_s = load, parallelism, settle_s

    def __enter__(self) -> Within:
        self._job = _start(self._load, self._parallelism)
        wait_for_start(self._job)
        time.sleep(self._settle_s)
        return self

    def __exit__(self, *_: object) -> None:
        with self._job as job:
            job.stop()
            job.wait()

    def begin(self) -> None:
        self._first, self._first_us = _read(self._job)

    def end(self) -> Carried:
        last, last_us = _read(self._job)
        return Carried(last - self._first, max(1, last_us - self._first_us) / 1e6, 0.0)


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


def _read(job: ps.Job) -> tuple[int, int]:
    """Events that the sources have given, and the moment of which that is told."""
    status = job.status()
    return sum(each.records_in for each in status.operations if each.reads), status.heard_us


def serve(load: Load, parallelism: int, settle_s: float, commands: IO[str], say: Callable[[str], None]) -> None:
    """Be the neighbour: ready, then an answer to each command, until there are no more."""
    with _start(load, parallelism) as job, ProcessMeter() as meter:
        wait_for_start(job)
        time.sleep(settle_s)
        first, first_us = _read(job)
        say("ready")
        for command in commands:
            last, last_us = _read(job)
            if command.strip() == "begin":
                first, first_us = last, last_us
                meter.restart()
                say("begun")
            else:
                took_s = max(1, last_us - first_us) / 1e6
                say(msgspec.json.encode(Carried(last - first, took_s, round(meter.cpu_cores, 3))).decode())
        job.stop()
        job.wait()


def measure(
    rate_eps: float, seconds: float, parallelism: int, neighbour: Neighbour | None, *, warm_up_s: float
) -> tuple[ResultRow, Carried | None]:
    """Run the first job at a fixed rate, with a neighbour or alone; every result is compared with the exact one."""
    workload: Workload[Any] = WORKLOADS[WORKLOAD]
    whole_s = warm_up_s + seconds
    with tempfile.TemporaryDirectory(prefix="penstock-study-") as directory:
        out = Path(directory) / "out"
        pipeline = workload.pipeline(rate_eps, ps.files(out), seconds=whole_s)
        with ps.start(pipeline, name="study-isolation", parallelism=parallelism) as job, ProcessMeter() as meter:
            wait_for_start(job)
            time.sleep(warm_up_s)
            job.begin_measuring()
            meter.restart()
            if neighbour is not None:
                neighbour.begin()
            behind, carried = 0, None
            end_us = job.start_us + whole_s * 1e6
            while (report := job.wait(POLL_S)) is None:
                status = job.status()
                if status.at_us <= end_us:
                    behind = waiting(status)
                elif neighbour is not None and carried is None:
                    carried = neighbour.end()
            if neighbour is not None and carried is None:
                carried = neighbour.end()
        source = workload.source(rate_eps, seconds=whole_s)
        found = workload.compare(workload.expected(replay(source, report.start_us)), read_rows(out), parallelism)
    lost, duplicated = found.lost + report.lost, found.duplicated + found.wrong + report.duplicated
    reordered = found.reordered + report.reordered
    row = latency_row(workload.name, rate_eps, report, meter, lost, duplicated, reordered, Forms.ADAPTIVE.value)
    latency_us = job.latency_us()
    row.mean_ms, row.cdf, row.components_ms = mean_ms_of(latency_us), cdf_of(latency_us), report.components_ms
    row.warm_up_s, row.sustained = warm_up_s, behind <= rate_eps * BACKLOG_S_MAX
    row.note += f"; {len(report.switches)} switches"
    return row, carried


def nobody() -> AbstractContextManager[None]:
    """No neighbour."""
    return nullcontext()


if __name__ == "__main__":
    serve(Load(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.stdin, lambda text: print(text, flush=True))
