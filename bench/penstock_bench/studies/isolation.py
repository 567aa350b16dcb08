"""Two jobs on one machine (Finch, section 5.2): what a neighbour does to a calm job, and the calm job to it.

The neighbour is a Spark application of its own (``python -m penstock_bench.studies.isolation``, which answers every
line of its input), or a second job in the Spark application of the first.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

import msgspec

import penstock as ps
from penstock_bench.meter.job import discard, running
from penstock_bench.meter.rows import Claim, ResultRow, Results
from penstock_bench.report.chart import Bar, Bars, Figure, figure
from penstock_bench.report.words import ms, number, ratio
from penstock_bench.studies.base import ADAPTIVE, BATCH, QUICK_S, RECORD, Desk, Study, process
from penstock_bench.studies.findings import Findings, Table, fields, table
from penstock_bench.workloads import WORKLOADS

WORKLOAD = "yahoo"
RATE_EPS, OFFERED_EPS = 4_000.0, 4_000_000.0
"""Of the calm job, and of a neighbour that is offered more than it can carry."""
SECONDS, SETTLE_S, READY_S_MAX = 12.0, 3.0, 120.0
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
FORMS = {Case.IDLE: ADAPTIVE, Case.RECORD: RECORD, Case.BATCH: BATCH, Case.SHARED: BATCH}
"""In which the neighbour runs."""
SHORT = {Case.IDLE: "idle", Case.RECORD: "overload, record", Case.BATCH: "overload, batch"}
SHORT |= {Case.SHARED: "overload, same Spark"}


class Shared(msgspec.Struct):
    """What the neighbour carried in a case."""

    case: str
    eps: float
    cpu_cores: float
    """0 where it cannot be told from the first job's."""


Neighbour = Callable[[], Shared]
"""Says what it has carried since it was last asked."""


@contextmanager
def within(case: Case, parallelism: int, settle_s: float) -> Iterator[Neighbour]:
    """A job in this process: two share one Spark application, and whose CPU is whose cannot be told."""
    rate: Any = OFFERED_EPS
    if case is Case.IDLE:
        # Some events, so that it is up, and then none.
        rate = ps.rates.steps([(1, 100), (3600, 0), (1, 1)])
    pipeline = WORKLOADS[WORKLOAD].pipeline(rate, ps.foreach(discard))
    with running(pipeline, parallelism=parallelism, forms=FORMS[case]) as run:
        last = (0, 0)

        def count() -> Shared:
            nonlocal last
            (before, before_us), last = last, run.read()
            eps = (last[0] - before) / (max(1, last[1] - before_us) / 1e6)
            cores = 0.0 if case is Case.SHARED else round(run.processes.cpu_cores, 3)
            run.processes.restart()
            return Shared(case.value, round(eps, 1), cores)

        time.sleep(settle_s)
        yield count
        run.end()


@contextmanager
def beside(case: Case, parallelism: int, settle_s: float) -> Iterator[Neighbour]:
    """A job in a process of its own, with its own Spark application."""
    with process("isolation", case.name, parallelism, settle_s) as program:
        program.message("ready", READY_S_MAX)
        yield lambda: msgspec.convert(program.ask("count", READY_S_MAX), Shared)
        program.finish(READY_S_MAX)


def serve(case: Case, parallelism: int, settle_s: float) -> None:
    """Be the neighbour: ready, then an answer to each line, until there are no more."""
    with within(case, parallelism, settle_s) as neighbour:
        print(json.dumps({"ready": True}), flush=True)
        for line in sys.stdin:
            print(json.dumps({line.strip(): msgspec.to_builtins(neighbour())}), flush=True)


class Isolation(Study):
    """The Yahoo pipeline at 4,000 events/s, adaptive: alone; beside an idle job; beside a job that is offered more than
    it can carry, in record form and in batch form, each in a Spark application of its own; with such a job in the same
    Spark application; and alone again. Both jobs have as many workers as the study. Nothing is set aside for either:
    they share the cores as the operating system deals them out.
    """

    name = "isolation"
    title = "Two jobs on one machine"
    after = "Finch, section 5.2 (isolation and multi-tenancy; named, not measured there)"

    def run(self, desk: Desk) -> None:
        quick, workers = desk.options.quick, desk.options.parallelism
        settle_s = QUICK_S if quick else SETTLE_S
        desk.overload(WORKLOAD, BATCH, 6.0)
        for case in QUICK_CASES if quick else Case:
            desk.tell(f"{number(RATE_EPS)}/s, {case.value}")
            if case not in FORMS:
                desk.add(desk.observe(WORKLOAD, RATE_EPS, ADAPTIVE, SECONDS), case.value, case=case.value)
                continue
            with (within if case is Case.SHARED else beside)(case, workers, settle_s) as neighbour:
                row, carried = measure(desk, neighbour)
            row.note += f"; cores and memory are those of both jobs, the neighbour carried {number(carried.eps)}/s"
            desk.add(row, case.value, case=case.value)
            desk.append("neighbours", carried)

    def findings(self, results: Results) -> Findings:
        rows = _rows(results)
        alone, again = rows.get(Case.ALONE), rows.get(Case.AGAIN)
        beside = {case: row for case, row in rows.items() if case in FORMS}
        if alone is None or not beside:
            return
        told = "; ".join(
            f"{case.value} p50 {ms(row.p50_ms)}, p99 {ms(row.p99_ms)}, p99.9 {ms(row.p999_ms)} ms "
            f"({ratio(row.p99_ms, alone.p99_ms)} at p99)"
            for case, row in beside.items()
        )
        since = f"; alone again p99 {ms(again.p99_ms)} ms" if again else ""
        kept = [row for row in beside.values() if row.sustained]
        yield Claim(
            "Finch, section 5.2: isolation, the calm job",
            "no figures, a question: how much do workloads on one cluster affect each other?",
            f"alone p50 {ms(alone.p50_ms)}, p99 {ms(alone.p99_ms)}, p99.9 {ms(alone.p999_ms)} ms; {told}{since}; it "
            f"kept up with {number(alone.rate)}/s in {len(kept)} of {len(beside)} cases; {results.machine}",
            None,
        )
        free = _free_eps(results)
        busy = {case: each for case, each in _neighbours(results).items() if case is not Case.IDLE}
        if free and busy:
            carried = "; ".join(f"{case.value} {number(each.eps)}/s" for case, each in busy.items())
            starved = any(busy[case].eps / free < STARVED for case in (Case.BATCH, Case.SHARED) if case in busy)
            behind = len(kept) < len(beside)
            yield Claim(
                "Finch, section 5.2: multi-tenancy, starvation",
                "no figures, a question: does one workload starve the others? Taken as: none does",
                f"the overloaded job carries {number(free)}/s alone in batch form; with the calm one: {carried}; the "
                f"calm one {'fell behind' if behind else 'always kept up'}",
                not (behind or starved),
            )

    def tables(self, results: Results) -> list[Table]:
        neighbours = _neighbours(results)
        return table(
            "The calm job and its neighbour",
            [Beside(case, row, neighbours.get(case)) for case, row in _rows(results).items()],
            *fields(str, case__value="case"),
            *fields(ms, row__p50_ms="p50 ms", row__p99_ms="p99 ms", row__p999_ms="p99.9 ms", row__max_ms="max ms"),
            *fields(number, row__cpu_cores="cores of all"),
            *fields(number, neighbour__eps="neighbour events/s", neighbour__cpu_cores="its cores"),
        )

    def figures(self, results: Results) -> list[Figure]:
        busy = {case for case, form in FORMS.items() if form != ADAPTIVE}
        drawn = {case: (SHORT.get(case, case.value), BATCH if case in busy else ADAPTIVE) for case in Case}
        panels = []
        for name, field in (("p50", "p50_ms"), ("p99", "p99_ms"), ("p99.9", "p999_ms")):
            bars = [Bar(*drawn[case], getattr(row, field) or 0.0) for case, row in _rows(results).items()]
            panels.append(Bars(f"The calm job: {name}", "ms", bars))
        bars = [Bar(SHORT[case], BATCH, each.eps) for case, each in _neighbours(results).items() if each.eps]
        free = _free_eps(results)
        if free and bars:
            panels.append(Bars("What the neighbour carries", "events/s", [Bar("by itself", BATCH, free), *bars]))
        caption = f"The calm job has {number(RATE_EPS)} events/s; by what is beside it."
        return figure("isolation", self.title, caption, panels, columns=2)


class Beside(msgspec.Struct):
    case: Case
    row: ResultRow
    neighbour: Shared | None


def measure(desk: Desk, neighbour: Neighbour) -> tuple[ResultRow, Shared]:
    """Run the first job with a neighbour, which is counted in the time that is measured."""
    counts: list[Shared] = []
    end_s = desk.warm_up_s + desk.seconds(SECONDS)

    def look(job: ps.Job) -> None:
        if not counts or (len(counts) == 1 and time.time() - job.start_us / 1e6 > end_s):
            counts.append(neighbour())

    row = desk.observe(WORKLOAD, RATE_EPS, ADAPTIVE, SECONDS, watchers=[look])
    return row, counts[1] if len(counts) > 1 else neighbour()


def _rows(results: Results) -> dict[Case, ResultRow]:
    return {case: row for case in Case if (row := results.pick(case=case.value)) is not None}


def _free_eps(results: Results) -> float | None:
    free = results.pick(form=BATCH, having="capacity_eps")
    return free.capacity_eps if free is not None else None


def _neighbours(results: Results) -> dict[Case, Shared]:
    return {Case(each.case): each for each in results.data("neighbours", list[Shared])}


if __name__ == "__main__":
    serve(Case[sys.argv[1]], int(sys.argv[2]), float(sys.argv[3]))
