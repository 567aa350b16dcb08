"""Elasticity (Drizzle, section 3.3): an executor is added under load and used, then given back."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from penstock.control.rescaling import MoveReport
from penstock.errors import PenstockError
from penstock_bench.engines.program import Program
from penstock_bench.meter.rows import Check, Claim, Results
from penstock_bench.meter.standalone import Standalone, standalone
from penstock_bench.report.chart import Figure, Line, Lines, Mark, figure
from penstock_bench.report.words import ms
from penstock_bench.studies.base import Desk, Study, Table, at_most, fields, machine, table

RATE_EPS = 5_000.0
COLUMNS = 2
CALM_S = 15.0
WAIT_S = 120.0
WAIT_MS_MAX = 100.0
PROGRAM = """
import sys, threading, time
import msgspec, penstock as ps
from penstock_bench.workloads import WORKLOADS
directory, rate, master, columns = sys.argv[1:]
pipeline = WORKLOADS["yahoo-updates"].pipeline(float(rate), ps.files(directory + "/out"))
options = {"parallelism": int(columns), "workers": 1, "forms": "record", "master": master}
job = ps.start(pipeline, checkpoint=directory + "/checkpoint", name="elastic", **options)
def obey():
    for line in sys.stdin:
        word, *rest = line.split()
        job.scale(int(rest[0])) if word == "scale" else job.drain()
threading.Thread(target=obey, daemon=True).start()
def tell(**what):
    print(msgspec.json.encode(what).decode(), flush=True)
before, began = job.latency_us(), time.monotonic()
while (report := job.wait(0.5)) is None:
    now = job.latency_us()
    since, before, status = now.since(before), now, job.status()
    tell(look={
        "at_s": time.monotonic() - began, "records": since.total, "p50_ms": since.quantile(0.5) / 1000,
        "p99_ms": since.quantile(0.99) / 1000, "workers": len(set(status.placement)) if status.epoch else 0,
        "processes": len(status.workers), "waiting": status.waiting,
    })
exact = not (report.lost or report.duplicated or report.reordered)
tell(end={"moves": report.moves, "exact": exact, "events": report.events_in})
"""


class Look(msgspec.Struct, kw_only=True):
    """The job in half a second."""

    at_s: float
    records: int
    p50_ms: float
    p99_ms: float
    workers: int
    processes: int
    waiting: list[str] = []


class Happened(msgspec.Struct):
    """Something was done to the cluster or the job."""

    at_s: float
    what: str


class End(msgspec.Struct):
    """What the job says at its end."""

    moves: list[MoveReport]
    exact: bool
    events: int


class Course(msgspec.Struct):
    """A job on a cluster that grows and shrinks."""

    looks: list[Look] = []
    happened: list[Happened] = []
    end: End | None = None


class Elasticity(Study):
    """See the module."""

    name = "elasticity"
    title = "An executor is added and removed under load"
    after = "Drizzle, section 3.3 (DZ-4)"
    method = (
        f"The Yahoo pipeline at {RATE_EPS:,.0f} events/s, with {COLUMNS} instances of everything, on a standalone "
        "cluster whose machines have a core each. The job begins on one. A second one joins, and the job is told to "
        "use two workers; after a while it is told to use one again, and the machine is taken away. Latency is that of "
        "each half second."
    )

    def run(self, desk: Desk) -> None:
        calm_s = desk.seconds(CALM_S, quick=3.0)
        with tempfile.TemporaryDirectory(prefix="penstock-elasticity-") as place:
            (Path(place) / "cluster").mkdir()
            with standalone(Path(place) / "cluster") as cluster:
                desk.put("course", _through(cluster, Path(place), calm_s, desk.tell))

    def findings(self, results: Results) -> Iterator[Claim | Check]:
        course = _course(results)
        if course.end is None or not course.end.moves:
            return
        pauses = [each.pause_ms for each in course.end.moves]
        calm, moving = _calm(course), _moving(course)
        used = ", ".join(f"{each.what} at {each.at_s:.1f} s" for each in course.happened)
        yield Claim(
            "Drizzle, section 3.3: elasticity",
            "machines that join or leave are taken into account at the next group boundary; what runs is not stopped",
            f"{used}; {len(pauses)} instances moved, paused for {ms(min(pauses))} to {ms(max(pauses))} ms; p99 calm "
            f"{ms(max(calm, default=0.0))} ms at the most, while they moved {ms(max(moving, default=0.0))} ms; "
            f"{machine(results)}",
            course.end.exact,
        )
        name, exact = "longest pause of an instance that moves to another executor", course.end.exact
        yield at_most(name, max(pauses), "ms", WAIT_MS_MAX, digits=1, where=", exact", also=exact)

    def tables(self, results: Results) -> list[Table]:
        course = _course(results)
        return table(
            "Moves",
            course.end.moves if course.end is not None else (),
            *fields(str, column="instance", old="from worker", new="to worker"),
            *fields(ms, pause_ms="pause ms", total_ms="total ms"),
            ("loaded ahead KB", lambda each: f"{each.loaded_bytes / 1000:.1f}"),
        )

    def figures(self, results: Results) -> list[Figure]:
        course = _course(results)
        looks = [each for each in course.looks if each.records]
        lines = [
            Line.of("p99", "out", [(each.at_s, max(each.p99_ms, 0.05)) for each in looks], markers=False),
            Line.of("median", "record", [(each.at_s, max(each.p50_ms, 0.05)) for each in looks], markers=False),
        ]
        marks = [Mark(each.at_s, each.what) for each in course.happened]
        panel = Lines("Yahoo pipeline", "seconds", "latency, ms", lines, y_log=True, marks=marks)
        told = "Of each half second. Dashed: what was done to the cluster and to the job."
        return figure("elasticity", self.title, told, [panel], columns=1)


def _course(results: Results) -> Course:
    assert results.study is not None
    found = results.study.data.get("course")
    return msgspec.convert(found, Course) if found else Course()


def _through(cluster: Standalone, place: Path, calm_s: float, tell: Callable[[str], None]) -> Course:
    course = Course()
    tell("one machine with a core, one worker")
    cluster.add(cores=1)
    command = [sys.executable, "-c", PROGRAM, str(place), str(RATE_EPS), cluster.master, str(COLUMNS)]
    with Program("elasticity", command, place / "log", environment=cluster.environment, messages=True) as job:

        def until(condition: Callable[[Look], bool], what: str) -> None:
            deadline = time.monotonic() + WAIT_S
            while time.monotonic() < deadline:
                course.looks.append(msgspec.convert(job.message("look", WAIT_S), Look))
                if condition(course.looks[-1]):
                    return
            raise PenstockError(f"the job did not get to this: {what}.")

        def calm() -> None:
            end_s = course.looks[-1].at_s + calm_s
            until(lambda look: look.at_s >= end_s, "it is calm")

        def note(what: str) -> None:
            course.happened.append(Happened(course.looks[-1].at_s, what))
            tell(what)

        until(lambda look: look.workers == 1 and look.records > 0, "it works")
        calm()
        note("a machine is added")
        cluster.add(cores=1)
        job.tell("scale 2")
        until(lambda look: look.workers == 2, "two workers share it")
        note("two workers")
        calm()
        job.tell("scale 1")
        until(lambda look: look.workers == look.processes == 1, "one worker has all of it")
        note("one worker")
        cluster.remove()
        calm()
        note("the machine has gone")
        job.tell("drain")
        course.end = msgspec.convert(job.message("end", WAIT_S), End)
    return course


def _moving(course: Course) -> list[float]:
    """p99 of the half seconds in which something was done, and of those right after."""
    times = [each.at_s for each in course.happened]
    return [each.p99_ms for each in course.looks if each.records and any(abs(each.at_s - at) <= 1.0 for at in times)]


def _calm(course: Course) -> list[float]:
    times = [each.at_s for each in course.happened]
    begin_s = next((each.at_s for each in course.looks if each.records), 0.0) + 2.0
    return [
        each.p99_ms
        for each in course.looks
        if each.records and each.at_s > begin_s and all(abs(each.at_s - at) > 1.5 for at in times)
    ]
