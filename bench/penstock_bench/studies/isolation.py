"""Two jobs on one machine (Finch, section 5.2): what a neighbour does to a calm job, and the calm job to it.

The neighbour is a Spark application of its own (``python -m penstock_bench.studies.isolation``, which takes commands
from its input), or a second job in the Spark application of the first.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import IO, Any

import msgspec

import penstock as ps
from penstock.pipeline.options import Forms
from penstock_bench.engines.program import Program
from penstock_bench.meter.job import WARM_UP_S, Run, discard, observe, running
from penstock_bench.meter.rows import Check, Claim, ResultRow, Results
from penstock_bench.report.chart import Bar, Bars, Figure, figure
from penstock_bench.report.words import ms, number, ratio
from penstock_bench.studies.base import (
    ADAPTIVE,
    BATCH,
    QUICK_S,
    Desk,
    Study,
    Table,
    data_of,
    fields,
    machine,
    pick,
    table,
)
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
    module = "penstock_bench.studies.isolation"
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


RATE_EPS = 4_000.0
SECONDS = 12.0
STARVED = 0.1
"""A job is starved that has less than this share of what it carries alone."""


class Case(Enum):
    """Who is beside the calm job."""

    ALONE = "alone"
    IDLE = "beside an idle job"
    RECORD = "beside an overloaded job in record form"
    BATCH = "beside an overloaded job in batch form"
    SHARED = "with an overloaded job in the same Spark application"
    AGAIN = "alone again"
    """At the end: what the machine itself has changed meanwhile."""


QUICK_CASES = (Case.ALONE, Case.BATCH)


class Shared(msgspec.Struct):
    """What the neighbour carried in a case."""

    case: str
    eps: float
    cpu_cores: float


class Isolation(Study):
    """See the module."""

    name = "isolation"
    title = "Two jobs on one machine"
    after = "Finch, section 5.2 (isolation and multi-tenancy; named, not measured there)"
    method = (
        "The Yahoo pipeline at 4,000 events/s, adaptive: alone; beside an idle job; beside a job that is offered more "
        "than it can carry, in record form and in batch form, each in a Spark application of its own; with such a job "
        "in the same Spark application; and alone again. Both jobs have as many workers as the study. Nothing is set "
        "aside for either: they share the cores as the operating system deals them out."
    )

    def run(self, desk: Desk) -> None:
        quick, workers, seconds = desk.options.quick, desk.options.parallelism, desk.seconds(SECONDS)
        settle_s, warm_up_s = (QUICK_S, QUICK_S) if quick else (SETTLE_S, WARM_UP_S)
        desk.tell("what the overloaded job carries alone, batch form")
        desk.add(desk.carry(WORKLOAD, BATCH, min(seconds, 6.0)))
        for case in QUICK_CASES if quick else Case:
            desk.tell(f"{number(RATE_EPS)}/s, {case.value}")
            with _neighbour(case, workers, settle_s) as neighbour:
                row, carried = measure(RATE_EPS, seconds, workers, neighbour, warm_up_s=warm_up_s)
            desk.add(_named(row, case, carried))
            if carried is not None:
                desk.append("neighbours", Shared(case.value, round(carried.eps, 1), carried.cpu_cores))

    def findings(self, results: Results) -> Iterator[Claim | Check]:
        rows = _rows(results)
        alone = rows.get(Case.ALONE)
        beside = {case: row for case, row in rows.items() if case not in (Case.ALONE, Case.AGAIN)}
        if alone is None or not beside:
            return
        told = "; ".join(
            f"{case.value} p50 {ms(row.p50_ms)}, p99 {ms(row.p99_ms)}, p99.9 {ms(row.p999_ms)} ms "
            f"({ratio(row.p99_ms, alone.p99_ms)} at p99)"
            for case, row in beside.items()
        )
        again = rows.get(Case.AGAIN)
        since = f"; alone again p99 {ms(again.p99_ms)} ms" if again else ""
        kept = [row for row in beside.values() if row.sustained]
        yield Claim(
            "Finch, section 5.2: isolation, the calm job",
            "no figures, a question: how much do workloads on one cluster affect each other?",
            f"alone p50 {ms(alone.p50_ms)}, p99 {ms(alone.p99_ms)}, p99.9 {ms(alone.p999_ms)} ms; {told}{since}; it "
            f"kept up with {number(alone.rate)}/s in {len(kept)} of {len(beside)} cases; {machine(results)}",
            None,
        )
        free = _free_eps(results)
        busy = {each.case: each for each in _neighbours(results) if each.case != Case.IDLE.value}
        if free and busy:
            carried = "; ".join(f"{case} {number(each.eps)}/s" for case, each in busy.items())
            shares = [each.eps / free for each in busy.values() if each.case in (Case.BATCH.value, Case.SHARED.value)]
            starved = len(kept) < len(beside) or any(share < STARVED for share in shares)
            yield Claim(
                "Finch, section 5.2: multi-tenancy, starvation",
                "no figures, a question: does one workload starve the others? Taken as: none does",
                f"the overloaded job carries {number(free)}/s alone in batch form; with the calm one: {carried}; the "
                f"calm one {'fell behind' if len(kept) < len(beside) else 'always kept up'}",
                not starved,
            )

    def tables(self, results: Results) -> list[Table]:
        by_case = {each.case: each for each in _neighbours(results)}
        return table(
            "The calm job and its neighbour",
            [(case.value, row, by_case.get(case.value)) for case, row in _rows(results).items()],
            ("case", lambda each: each[0]),
            *fields(ms, 1, p50_ms="p50 ms", p99_ms="p99 ms", p999_ms="p99.9 ms", max_ms="max ms"),
            *fields(number, 1, cpu_cores="cores of all"),
            *fields(number, 2, eps="neighbour events/s", cpu_cores="its cores"),
        )

    def figures(self, results: Results) -> list[Figure]:
        panels = []
        for name, field in (("p50", "p50_ms"), ("p99", "p99_ms"), ("p99.9", "p999_ms")):
            bars = [
                Bar(_short(case), _colour(case), getattr(row, field) or 0.0) for case, row in _rows(results).items()
            ]
            panels.append(Bars(f"The calm job: {name}", "ms", bars))
        bars = [Bar(_short(Case(each.case)), BATCH, each.eps) for each in _neighbours(results) if each.eps]
        free = _free_eps(results)
        if free and bars:
            panels.append(Bars("What the neighbour carries", "events/s", [Bar("by itself", BATCH, free), *bars]))
        caption = f"The calm job has {number(RATE_EPS)} events/s; by what is beside it."
        return figure("isolation", "Two jobs on one machine", caption, panels, columns=2)


def _neighbour(case: Case, workers: int, settle_s: float) -> AbstractContextManager[Neighbour | None]:
    loads = {Case.IDLE: Load.IDLE, Case.RECORD: Load.RECORD, Case.BATCH: Load.BATCH}
    if case in loads:
        return beside(loads[case], workers, settle_s)
    return within(Load.BATCH, workers, settle_s) if case is Case.SHARED else nullcontext()


def _named(row: ResultRow, case: Case, carried: Carried | None) -> ResultRow:
    row.settings, row.variant = {"case": case.value}, case.value
    if carried is not None:
        row.note += f"; cores and memory are those of both jobs, the neighbour carried {number(carried.eps)}/s"
    return row


def _short(case: Case) -> str:
    words = {Case.IDLE: "idle", Case.RECORD: "overload, record", Case.BATCH: "overload, batch"}
    return (words | {Case.SHARED: "overload, same Spark"}).get(case, case.value)


def _colour(case: Case) -> str:
    return ADAPTIVE if case in (Case.ALONE, Case.IDLE, Case.AGAIN) else BATCH


def _rows(results: Results) -> dict[Case, ResultRow]:
    return {case: row for case in Case if (row := pick(results, case=case.value)) is not None}


def _free_eps(results: Results) -> float | None:
    free = pick(results, form=BATCH, having="capacity_eps")
    return free.capacity_eps if free is not None else None


def _neighbours(results: Results) -> list[Shared]:
    return data_of(results, "neighbours", list[Shared])


if __name__ == "__main__":
    serve(Load(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.stdin)
