"""Elasticity (Drizzle, section 3.3): an executor is added under load and used, then given back."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from penstock.control.rescaling import MoveReport
from penstock.errors import PenstockError
from penstock_bench.engines.program import Program
from penstock_bench.meter.rows import Claim, Results
from penstock_bench.meter.standalone import Standalone, standalone
from penstock_bench.report.chart import Figure, Mark, figure
from penstock_bench.report.words import ms
from penstock_bench.studies.base import Desk, Study
from penstock_bench.studies.findings import Findings, Table, at_most, fields, latency, table

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
    at_s: float
    what: str


class End(msgspec.Struct):
    moves: list[MoveReport]
    exact: bool
    events: int


class Course(msgspec.Struct):
    """A job on a cluster that grows and shrinks."""

    looks: list[Look] = []
    happened: list[Happened] = []
    end: End | None = None


class Elasticity(Study):
    """The Yahoo pipeline at 5,000 events/s, with 2 instances of everything, on a standalone cluster whose machines have
    a core each. The job begins on one. A second one joins, and the job is told to use two workers; after a while it is
    told to use one again, and the machine is taken away. Latency is that of each half second.
    """

    name = "elasticity"
    title = "An executor is added and removed under load"
    after = "Drizzle, section 3.3 (DZ-4)"

    def run(self, desk: Desk) -> None:
        calm_s = desk.seconds(CALM_S, quick=3.0)
        with tempfile.TemporaryDirectory(prefix="penstock-elasticity-") as place:
            (Path(place) / "cluster").mkdir()
            with standalone(Path(place) / "cluster") as cluster:
                desk.put("course", _through(cluster, Path(place), calm_s, desk.tell))

    def findings(self, results: Results) -> Findings:
        course = results.data("course", Course)
        if course.end is None or not course.end.moves:
            return
        pauses = [each.pause_ms for each in course.end.moves]
        looks, times = [each for each in course.looks if each.records], [each.at_s for each in course.happened]
        begin_s = looks[0].at_s + 2.0 if looks else 0.0
        moving = [each.p99_ms for each in looks if any(abs(each.at_s - at) <= 1.0 for at in times)]
        calm = [each.p99_ms for each in looks if each.at_s > begin_s and all(abs(each.at_s - at) > 1.5 for at in times)]
        used = ", ".join(f"{each.what} at {each.at_s:.1f} s" for each in course.happened)
        yield Claim(
            "Drizzle, section 3.3: elasticity",
            "machines that join or leave are taken into account at the next group boundary; what runs is not stopped",
            f"{used}; {len(pauses)} instances moved, paused for {ms(min(pauses))} to {ms(max(pauses))} ms; p99 calm "
            f"{ms(max(calm, default=0.0))} ms at the most, while they moved {ms(max(moving, default=0.0))} ms; "
            f"{results.machine}",
            course.end.exact,
        )
        name, exact = "longest pause of an instance that moves to another executor", course.end.exact
        yield at_most(name, max(pauses), "ms", WAIT_MS_MAX, digits=1, where=", exact", also=exact)

    def tables(self, results: Results) -> list[Table]:
        course = results.data("course", Course)
        return table(
            "Moves",
            course.end.moves if course.end is not None else (),
            *fields(str, column="instance", old="from worker", new="to worker"),
            *fields(ms, pause_ms="pause ms", total_ms="total ms"),
            ("loaded ahead KB", lambda each: f"{each.loaded_bytes / 1000:.1f}"),
        )

    def figures(self, results: Results) -> list[Figure]:
        course = results.data("course", Course)
        looks = [each for each in course.looks if each.records]
        marks = [Mark(each.at_s, each.what) for each in course.happened]
        panel = latency("Yahoo pipeline", looks, ("p99", "p99_ms"), marks)
        told = "Of each half second. Dashed: what was done to the cluster and to the job."
        return figure("elasticity", self.title, told, [panel], columns=1)


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
