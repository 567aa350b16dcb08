"""Is the switch point right? On a sweep of rates and costs, the form of the adaptive job against the better one."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import msgspec
import pyarrow as pa

import penstock as ps
from penstock_bench.foreign.programs.loads import spin, spins_per_second
from penstock_bench.meter.job import Step, climb
from penstock_bench.meter.rows import Claim, Results
from penstock_bench.report.chart import Band, Cell, Cells, Figure, Lines, figure
from penstock_bench.report.words import ms, number
from penstock_bench.studies import hand_overs
from penstock_bench.studies.base import ADAPTIVE, BATCH, FORMS, RECORD, Desk, Study
from penstock_bench.studies.findings import Findings, Table, at_least, curve
from penstock_bench.workloads import Workload
from penstock_bench.workloads.numbered import compare, expected

COSTS_US = (5.0, 20.0, 80.0)
"""Of one record in record form."""
GAIN = 20
"""How many times cheaper it is in batch form."""
LOADS = (0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 2.5)
"""Of what the record form was measured to carry."""
QUICK_LOADS = (0.3, 2.0)
STEP_S, QUICK_STEP_S = 4.0, 2.0
BAND = 0.10
RIGHT_MIN = 0.95
OPERATION = "work"


class Case(msgspec.Struct):
    """One rate and one cost: what each form came to, and which one the adaptive job had."""

    cost_us: float
    load: float
    rate: float
    record_ms: float | None
    batch_ms: float | None
    adaptive_ms: float | None
    chosen: str
    better: str
    near: bool = False
    """Within the band around the crossover, where both are equally good."""

    @property
    def right(self) -> bool:
        return self.chosen == self.better

    @property
    def no_slower(self) -> bool:
        """Whether the adaptive job was as fast as the better form; a machine that others use may have changed since."""
        best_ms = min(each for each in (self.record_ms, self.batch_ms, math.inf) if each is not None)
        return self.adaptive_ms is not None and self.adaptive_ms <= (1 + BAND) * best_ms


def synthetic(cost_us: float) -> Workload[Any]:
    """Build an operation that computes for so long per record, and a twentieth of that in batch form."""
    rounds = round(cost_us * spins_per_second() / 1e6)

    @ps.op(schema="number bigint not null", pure=True)
    def work(record: Any) -> tuple[int]:
        spin(rounds)
        return (record.number,)

    @work.batch
    def _work_batch(records: pa.RecordBatch) -> pa.RecordBatch:
        spin(rounds * records.num_rows // GAIN)
        return records

    return Workload(
        name=f"work-{cost_us:g}us",
        title=f"{cost_us:g} µs of computing for every record",
        fields={"number": ps.fields.sequence()},
        format="columns",
        build=lambda events: events.map(work, name=OPERATION),
        expected=expected,
        compare=compare,
    )


class SwitchPoint(Study):
    """An operation that computes for c microseconds per record, and c/20 in batch form. A job in each form climbs
    through rates of 0.3 to 2.5 times what the record form was measured to carry, 4 s each. Better is the form in which
    events had the lower mean latency in the second half of the step; chosen is the one that the adaptive job was in for
    most of that time. Cells within 10 % of the crossover do not count. At last the front of the Yahoo pipeline is
    switched 100 times, to batch form and back, at 20,000 events/s: how long nothing comes.
    """

    name = "switch-point"
    title = "Is the switch point right, and how long is a switch?"
    after = "DO, section 4: the switch point"

    def run(self, desk: Desk) -> None:
        quick, parallelism = desk.options.quick, desk.options.parallelism
        step_s = desk.seconds(STEP_S, QUICK_STEP_S)
        for cost_us in COSTS_US[1:2] if quick else COSTS_US:
            workload, own = synthetic(cost_us), dict[str, list[Step]]()
            capacity_eps = desk.record_eps(workload, STEP_S, offered_eps=3 * parallelism * 1e6 / cost_us)
            desk.put(f"capacity-{cost_us:g}", capacity_eps)
            rates = [load * capacity_eps for load in (QUICK_LOADS if quick else LOADS)]
            for form in FORMS:
                desk.tell(f"{cost_us:g} µs, {number(rates[0])} to {number(rates[-1])} events/s, {form}")
                own[form] = climb(workload, rates, step_s, parallelism, form)
                desk.put_in("steps", f"{cost_us:g}", own)
        hand_overs.measure(desk)

    def findings(self, results: Results) -> Findings:
        found = cases(results)
        counted = [case for case in found if not case.near]
        if counted:
            right = sum(case.right for case in counted)
            share, near = right / len(counted), len(found) - len(counted)
            missed = [case for case in counted if not case.right]
            wrong = [
                f"{case.cost_us:g} µs at {case.load:g}: {case.chosen}, {case.better} better "
                f"({ms(case.record_ms)} and {ms(case.batch_ms)} ms)"
                for case in missed
            ]
            harmless = sum(case.no_slower for case in missed)
            name, unit = "switch point: cells in which the adaptive job took the better form", "cells outside the band"
            detail = {"wrong": wrong, "near the crossover": near, "wrong but no slower": harmless}
            yield at_least(name, share, f"of {len(counted)} {unit}", RIGHT_MIN, detail, digits=4)
            yield Claim(
                "DO, section 4.2: the switch point",
                "micro-batches are chosen when the queue is longer than L_switch, records otherwise; K = 0.2 is "
                "empirical, and how often that is the better choice is not told",
                f"the better form in {right} of {len(counted)} cells ({share:.0%}); {near} near the crossover are not "
                f"counted; {results.machine}"
                + (f". Wrong, {harmless} of them no slower than the better form: {'; '.join(wrong)}" if wrong else ""),
                share >= RIGHT_MIN,
            )
        yield from hand_overs.findings(results)

    def tables(self, results: Results) -> list[Table]:
        return hand_overs.tables(results)

    def figures(self, results: Results) -> list[Figure]:
        found = cases(results)
        costs = list(dict.fromkeys(case.cost_us for case in found))
        loads = sorted({case.load for case in found})
        by_place = {(case.cost_us, case.load): case for case in found}
        cells = Cells(
            "Form of the adaptive job",
            "rate, times what the record form carries",
            "cost of a record",
            [f"{load:g}" for load in loads],
            [f"{cost_us:g} µs" for cost_us in costs],
            [[_cell(by_place.get((cost_us, load))) for load in loads] for cost_us in costs],
        )
        caption = "Green: the better of the two. Red: the worse. Grey: within 10 % of the crossover, not counted."
        panels = [_panel([case for case in found if case.cost_us == cost_us]) for cost_us in costs]
        over = (
            "Mean latency in the second half of each step, both axes logarithmic; shaded: within 10 % of the crossover."
        )
        return [
            *figure("switch-point-cells", "Chosen form", caption, [cells] if found else [], columns=1),
            *figure("switch-point-latency", "Latency of both forms, and of the adaptive job", over, panels),
            *hand_overs.figures(results),
        ]


def _cell(case: Case | None) -> Cell:
    return Cell("", None) if case is None else Cell(case.chosen, None if case.near else case.right)


def _panel(own: list[Case]) -> Lines:
    lines = [curve(form, form, own, "load", f"{form}_ms", dashed=form == ADAPTIVE) for form in FORMS]
    cross = crossover(own)
    bands = [Band(cross * (1 - BAND), cross * (1 + BAND))] if cross is not None else []
    ticks = [load for load in (0.3, 0.5, 0.7, 1.0, 1.5, 2.5) if load in {case.load for case in own}]
    title = f"{own[0].cost_us:g} µs per record"
    return Lines(
        title, "rate, times record capacity", "mean latency, ms", lines, True, True, bands=bands, x_ticks=ticks
    )


def cases(results: Results) -> list[Case]:
    """Put the steps of all forms together, and mark those near the crossover."""
    found: list[Case] = []
    for cost, own in results.data("steps", dict[str, dict[str, list[Step]]]).items():
        if not all(own.get(form) for form in FORMS):
            continue
        capacity_eps = results.data(f"capacity-{cost}", float)
        mine = []
        for record, batch, adaptive in zip(own[RECORD], own[BATCH], own[ADAPTIVE], strict=False):
            slow, fast = (each.mean_ms if each.mean_ms is not None else math.inf for each in (record, batch))
            chosen = BATCH if adaptive.batch.get(OPERATION, 0.0) >= 0.5 else RECORD
            means_ms = record.mean_ms, batch.mean_ms, adaptive.mean_ms
            load, better = round(record.rate / capacity_eps, 2), RECORD if slow <= fast else BATCH
            mine.append(Case(float(cost), load, record.rate, *means_ms, chosen, better))
        cross = crossover(mine)
        for case in mine:
            case.near = cross is not None and abs(case.load / cross - 1) <= BAND
        found += mine
    return found


def crossover(own: list[Case]) -> float | None:
    """The load from which on the batch form is better, between the two loads that enclose it; None if there is none."""
    for before, after in pairwise(own):
        if before.better == RECORD and after.better == BATCH:
            left, right = (_advantage(case) for case in (before, after))
            if not (math.isfinite(left) and math.isfinite(right)):
                return math.sqrt(before.load * after.load)
            share = left / (left - right) if left != right else 0.5
            return before.load * math.pow(after.load / before.load, share)
    return None


def _advantage(case: Case) -> float:
    """Logarithm of how much worse the record form is; below 0 where it is better."""
    if not case.record_ms or not case.batch_ms:
        return math.inf
    return math.log(case.record_ms / case.batch_ms)
