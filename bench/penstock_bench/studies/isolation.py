"""Two jobs on one machine (Finch, section 5.2): what a neighbour does to a calm job, and the calm job to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from enum import Enum

import msgspec

from penstock_bench.meter.job import WARM_UP_S
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
from penstock_bench.studies.neighbours import SETTLE_S, WORKLOAD, Carried, Load, Neighbour, beside, measure, within

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
