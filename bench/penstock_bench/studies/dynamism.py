"""Recorded loads replayed (Finch, section 5.2): how each form takes spikes that nobody has drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from penstock.control.changes import ChangeReport
from penstock.demo.series import Sampler
from penstock_bench.meter.job import observe
from penstock_bench.meter.rows import Check, Claim, ResultRow, Results
from penstock_bench.report.chart import Figure, Line, Lines
from penstock_bench.report.words import ms, number
from penstock_bench.studies.base import (
    ADAPTIVE,
    BATCH,
    FORMS,
    RECORD,
    Desk,
    Study,
    Table,
    data_of,
    fields,
    machine,
    pick,
    table,
    two_digits,
)
from penstock_bench.studies.traces import SPEED, Stretch, find_traces
from penstock_bench.workloads import WORKLOADS, Workload, replay

WORKLOAD = "scoring"
OPERATION = "score"
"""The one whose form is told."""
SECONDS = 12.0
PEAK = 2.0
"""Height of a load: so many times what the record form carries."""
QUICK_PEAK_EPS = 20_000.0
OFFERED_STEP_S = 0.1


class Moment(msgspec.Struct):
    """A job at one moment; rates and latencies are those of the last half second."""

    at_s: float
    handled_eps: float
    backlog: int
    """Due and not at the end of the pipeline yet."""
    p99_ms: float


class Replay(msgspec.Struct):
    """One form through one load."""

    trace: str
    origin: str
    form: str
    first_s: int
    speed: float
    peak_eps: float
    mean_eps: float
    backlog_max: int
    batch_share: float
    """Share of the time in which the operation was in batch form."""
    switches: int
    pause_ms_max: float
    carried_records: int
    offered_eps: list[float]
    """Of every tenth of a second."""
    moments: list[Moment]


class Dynamism(Study):
    """See the module."""

    name = "dynamism"
    title = "Recorded loads, replayed"
    after = "Finch, section 5.2 (workload dynamism; named, not measured there)"
    method = (
        f"A model called per event. Of each recorded load the part around its busiest time, {SPEED:g} times faster "
        f"than recorded and scaled so that its busiest half second has {PEAK:g} times the rate that the record form "
        "was measured to carry; in three forms with the same events at the same times, every output compared with "
        "the exact one. The loads are those of the directory that PENSTOCK_TRACES names; without any, one is made up."
    )

    def run(self, desk: Desk) -> None:
        quick, workload = desk.options.quick, WORKLOADS[WORKLOAD]
        traces = find_traces(desk.options.traces)
        peak_eps = QUICK_PEAK_EPS if quick else two_digits(PEAK * desk.record_eps(WORKLOAD))
        for each in traces[: 1 if quick else None]:
            stretch = each.stretch(desk.seconds(SECONDS), peak_eps)
            # Scores do not depend on when the job began: one exact result for all forms.
            exact = workload.expected(replay(workload.source(stretch.schedule, seconds=stretch.seconds), 0))
            for form in FORMS:
                desk.tell(f"{each.name} ({each.origin}), {number(stretch.mean_eps)} events/s on average, {form}")
                row, found = through(workload, stretch, exact, desk.options.parallelism, form)
                desk.append("replays", found)
                desk.add(row)

    def findings(self, results: Results) -> Iterator[Claim | Check]:
        by_trace = _by_trace(results)
        for name, found in by_trace.items():
            rows = {form: row for form in FORMS if (row := pick(results, form=form, trace=name)) is not None}
            if set(found) != set(FORMS) or set(rows) != set(FORMS):
                continue
            own = found[ADAPTIVE]
            told = "; ".join(
                f"{form} p50 {ms(row.p50_ms)}, p99 {ms(row.p99_ms)}, max {ms(row.max_ms)} ms, backlog up to "
                f"{number(found[form].backlog_max)}, {number(row.cpu_cores)} cores"
                for form, row in rows.items()
            )
            better = (rows[ADAPTIVE].p99_ms or 0.0) < (rows[RECORD].p99_ms or 0.0)
            yield Claim(
                f"Finch, section 5.2: dynamism, {name}",
                "no figures, a question: how well are spikes handled, and how does the system adapt? Taken as: a load "
                "too high for records is followed with a lower p99 than in record form",
                f"{own.origin}, from second {own.first_s:,} on, {own.speed:g} times faster, up to "
                f"{number(own.peak_eps)}/s: {told}; switches of the adaptive form: {own.switches}; it was in batch "
                f"form {own.batch_share:.0%} of the time; {machine(results)}",
                better if own.switches else None,
            )
        known = [row for row in results.rows if row.lost is not None]
        if by_trace and known:
            wrong = sum(sum(row.faults.values()) for row in known)
            switches = sum(each.switches for found in by_trace.values() for each in found.values())
            yield Claim(
                "Finch, section 5.2: dynamism, what is lost on the way",
                "no figures; DO and QE ask for no loss, no duplicate and no reordering",
                f"{sum(row.events for row in known):,} events through {len(known)} runs with {switches} switches: "
                f"lost, duplicated or reordered {wrong}",
                not wrong,
            )

    def tables(self, results: Results) -> list[Table]:
        replays = [each for own in _by_trace(results).values() for each in own.values()]
        pairs = [(each, pick(results, form=each.form, trace=each.trace)) for each in replays]
        return table(
            "Loads and forms",
            [(each, row) for each, row in pairs if row is not None],
            ("load, form", lambda pair: f"{pair[0].trace}, {pair[0].form}"),
            *fields(ms, 1, p50_ms="p50 ms", p99_ms="p99 ms", max_ms="max ms"),
            *fields(number, 0, backlog_max="largest backlog"),
            ("in batch form %", lambda pair: f"{100 * pair[0].batch_share:.0f}"),
            ("switches", lambda pair: str(pair[0].switches)),
            *fields(ms, 0, pause_ms_max="longest pause ms"),
            *fields(number, 1, cpu_cores="cores"),
        )

    def figures(self, results: Results) -> list[Figure]:
        found = []
        for name, own in _by_trace(results).items():
            first = next(iter(own.values()))
            panels = [
                Lines("Rate", "seconds", "events/s", [_offered(first), *_lines(own, "handled_eps")]),
                Lines("Backlog", "seconds", "events", _lines(own, "backlog")),
                Lines("Latency, p99 of the last half second", "seconds", "ms", _lines(own, "p99_ms"), y_log=True),
            ]
            caption = f"{first.origin}, from second {first.first_s:,} on, {first.speed:g} times faster. Grey: offered."
            found.append(Figure(f"dynamism-{name}", f"Through the load '{name}'", caption, panels, columns=1))
        return found


def through(
    workload: Workload[Any], stretch: Stretch, exact: Any, parallelism: int, form: str
) -> tuple[ResultRow, Replay]:
    """Run a workload through a stretch of a load in one form."""
    sampler = Sampler(stretch)
    row, report = observe(
        workload,
        stretch.schedule,
        stretch.seconds,
        parallelism,
        form,
        warm_up_s=0.0,
        watchers=[sampler],
        exact=exact,
    )
    # Loads of the same height are no repetitions of each other: each is a workload of its own.
    row.workload, row.rate = f"{workload.name}-{stretch.trace.name}", round(stretch.mean_eps, 1)
    row.settings = {"trace": stretch.trace.name, "speed": SPEED}
    row.note = f"{stretch.trace.origin}; the whole run, its mean rate; {len(report.switches)} switches"
    moments = [Moment(each.at_s, each.handled_eps, each.backlog_records, each.p99_ms) for each in sampler.samples]
    return row, Replay(
        trace=stretch.trace.name,
        origin=stretch.trace.origin,
        form=form,
        first_s=stretch.first_s,
        speed=SPEED,
        peak_eps=round(max(stretch.rates_eps), 1),
        mean_eps=round(stretch.mean_eps, 1),
        backlog_max=max((each.backlog for each in moments), default=0),
        batch_share=round(batch_share(report.switches, OPERATION, report.seconds), 4),
        switches=len(report.switches),
        pause_ms_max=max((each.pause_ms for each in report.switches), default=0.0),
        carried_records=sum(each.carried_records for each in report.switches),
        offered_eps=offered(stretch),
        moments=moments,
    )


def batch_share(switches: Sequence[ChangeReport], operation: str, seconds: float) -> float:
    """In which share of a run an operation was in batch form; it begins in record form."""
    since_s, inside_s, inside = 0.0, 0.0, False
    for switch in switches:
        if operation not in switch.operations:
            continue
        # A switch that ends before the first event is how the run begins.
        at_s = min(max(0.0, switch.at_s + switch.total_ms / 1000), seconds)
        inside_s += at_s - since_s if inside else 0.0
        since_s, inside = at_s, switch.to == BATCH
    inside_s += max(0.0, seconds - since_s) if inside else 0.0
    return inside_s / seconds if seconds > 0 else 0.0


def offered(stretch: Stretch) -> list[float]:
    """The rate of a stretch in every tenth of a second."""
    steps = range(round(stretch.seconds / OFFERED_STEP_S))
    due = [stretch.schedule.due(round(step * OFFERED_STEP_S * 1e6) - 1) for step in (*steps, len(steps))]
    return [round((after - before) / OFFERED_STEP_S, 1) for before, after in pairwise(due)]


def _offered(found: Replay) -> Line:
    x = [step * OFFERED_STEP_S for step in range(len(found.offered_eps))]
    return Line("offered", "plain", x, found.offered_eps, markers=False, steps=True)


def _lines(own: dict[str, Replay], name: str) -> list[Line]:
    def point(each: Moment) -> tuple[float, float | None]:
        value = float(getattr(each, name))
        # Without a result there is no latency.
        return each.at_s, value if value or name != "p99_ms" else None

    lines = [Line.of(form, form, map(point, own[form].moments), markers=False) for form in FORMS if form in own]
    return [line for line in lines if line.x]


def _by_trace(results: Results) -> dict[str, dict[str, Replay]]:
    found: dict[str, dict[str, Replay]] = {}
    for each in data_of(results, "replays", list[Replay]):
        found.setdefault(each.trace, {})[each.form] = each
    return found
