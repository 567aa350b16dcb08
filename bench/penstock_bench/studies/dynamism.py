"""Recorded loads replayed (Finch, section 5.2): how each form takes spikes that nobody has drawn."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

import penstock as ps
from penstock.control.hand_overs import Switch
from penstock.runtime.report import measured_operations
from penstock_bench.meter.measure import POLL_S, latency_row, read_rows, wait_for_start
from penstock_bench.meter.processes import ProcessMeter
from penstock_bench.meter.rows import Check, Claim, ResultRow, Results, cdf_of, mean_ms_of
from penstock_bench.report.chart import Figure, Line, Lines
from penstock_bench.report.words import ms, number
from penstock_bench.studies.base import ADAPTIVE, BATCH, FORMS, RECORD, Desk, Study, Table, machine
from penstock_bench.studies.jobs import QUICK_S, SETTLE_S, carry
from penstock_bench.studies.traces import SPEED, Stretch, find_traces
from penstock_bench.workloads import WORKLOADS, Workload, replay

WORKLOAD = "scoring"
OPERATION = "score"
"""The one whose form is told."""
SECONDS = 12.0
OFFERED_EPS = 6_000_000.0
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
        seconds, peak_eps = desk.seconds(SECONDS, QUICK_S), QUICK_PEAK_EPS
        traces = find_traces()
        if not quick:
            desk.tell("what the record form carries")
            row = desk.add(carry(workload, OFFERED_EPS, 5.0, desk.options.parallelism, RECORD, settle_s=SETTLE_S))
            peak_eps = float(f"{PEAK * (row.capacity_eps or QUICK_PEAK_EPS):.2g}")
        kept: list[Replay] = []
        for each in traces[: 1 if quick else None]:
            stretch = each.stretch(seconds, peak_eps)
            # Scores do not depend on when the job began: one exact result for all forms.
            exact = workload.expected(replay(workload.source(stretch.schedule, seconds=stretch.seconds), 0))
            for form in FORMS:
                desk.tell(f"{each.name} ({each.origin}), {number(stretch.mean_eps)} events/s on average, {form}")
                row, found = through(workload, stretch, exact, desk.options.parallelism, form)
                kept.append(found)
                desk.put("replays", kept)
                desk.add(row)

    def judge(self, results: Results) -> tuple[list[Claim], list[Check]]:
        claims = []
        by_trace = _by_trace(results)
        for name, found in by_trace.items():
            rows = {form: _row(results, name, form) for form in FORMS}
            record, batch, adaptive = rows[RECORD], rows[BATCH], rows[ADAPTIVE]
            if set(found) != set(FORMS) or record is None or batch is None or adaptive is None:
                continue
            own = found[ADAPTIVE]
            told = "; ".join(
                f"{form} p50 {ms(row.p50_ms)}, p99 {ms(row.p99_ms)}, max {ms(row.max_ms)} ms, backlog up to "
                f"{number(found[form].backlog_max)}, {number(row.cpu_cores)} cores"
                for form, row in ((RECORD, record), (ADAPTIVE, adaptive), (BATCH, batch))
            )
            better = (adaptive.p99_ms or 0.0) < (record.p99_ms or 0.0)
            claims.append(
                Claim(
                    source=f"Finch, section 5.2: dynamism, {name}",
                    claimed="no figures, a question: how well are spikes handled, and how does the system adapt? Taken "
                    "as: a load too high for records is followed with a lower p99 than in record form",
                    measured=f"{own.origin}, from second {own.first_s:,} on, {own.speed:g} times faster, up to "
                    f"{number(own.peak_eps)}/s: {told}; switches of the adaptive form: {own.switches}; it was in batch "
                    f"form {own.batch_share:.0%} of the time; {machine(results)}",
                    holds=better if own.switches else None,
                )
            )
        known = [row for row in results.rows if row.lost is not None]
        if by_trace and known:
            wrong = sum((row.lost or 0) + (row.duplicated or 0) + (row.reordered or 0) for row in known)
            switches = sum(each.switches for found in by_trace.values() for each in found.values())
            claims.append(
                Claim(
                    source="Finch, section 5.2: dynamism, what is lost on the way",
                    claimed="no figures; DO and QE ask for no loss, no duplicate and no reordering",
                    measured=f"{sum(row.events for row in known):,} events through {len(known)} runs with {switches} "
                    f"switches: lost, duplicated or reordered {wrong}",
                    holds=not wrong,
                )
            )
        return claims, []

    def tables(self, results: Results) -> list[Table]:
        lines = []
        for name, found in _by_trace(results).items():
            for form, each in found.items():
                row = _row(results, name, form)
                if row is not None:
                    latency = [ms(row.p50_ms), ms(row.p99_ms), ms(row.max_ms)]
                    inside = f"{100 * each.batch_share:.0f}"
                    figures = [number(each.backlog_max), inside, str(each.switches), ms(each.pause_ms_max)]
                    lines.append([f"{name}, {form}", *latency, *figures, number(row.cpu_cores)])
        heads = ["load, form", "p50 ms", "p99 ms", "max ms", "largest backlog", "in batch form %", "switches"]
        return [("Loads and forms", [*heads, "longest pause ms", "cores"], lines)] if lines else []

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


@dataclass
class _Sampler:
    """Looks at a job some times a second."""

    stretch: Stretch
    moments: list[Moment] = field(default_factory=list)
    _heard_us: int = 0

    def look(self, job: ps.Job) -> None:
        status = job.status()
        if not status.start_us or status.heard_us <= max(self._heard_us, status.start_us):
            return
        self._heard_us = status.heard_us
        at_s = (status.heard_us - status.start_us) / 1e6
        ends = [each for each in status.operations if each.name in measured_operations(job.plan)]
        due = self.stretch.schedule.due(int(min(at_s, self.stretch.seconds) * 1e6) - 1)
        self.moments.append(
            Moment(
                at_s=round(at_s, 3),
                handled_eps=round(sum(each.in_eps for each in ends), 1),
                backlog=max(0, due - sum(each.records_in for each in ends)),
                p99_ms=max((each.p99_ms for each in ends), default=0.0),
            )
        )


def through(
    workload: Workload[Any], stretch: Stretch, exact: Any, parallelism: int, form: str
) -> tuple[ResultRow, Replay]:
    """Run a workload through a stretch of a load in one form."""
    sampler, seconds = _Sampler(stretch), stretch.seconds
    with tempfile.TemporaryDirectory(prefix="penstock-study-") as directory:
        out = Path(directory) / "out"
        pipeline = workload.pipeline(stretch.schedule, ps.files(out), seconds=seconds)
        started = ps.start(pipeline, name="study-dynamism", parallelism=parallelism, forms=form)
        with started as job, ProcessMeter() as meter:
            wait_for_start(job)
            meter.restart()
            while (report := job.wait(POLL_S)) is None:
                sampler.look(job)
        found = workload.compare(exact, read_rows(out), parallelism)
    lost, duplicated = found.lost + report.lost, found.duplicated + found.wrong + report.duplicated
    reordered, peak_eps = found.reordered + report.reordered, max(stretch.rates_eps)
    # Loads of the same height are no repetitions of each other: each is a workload of its own.
    named = f"{workload.name}-{stretch.trace.name}"
    row = latency_row(named, round(stretch.mean_eps, 1), report, meter, lost, duplicated, reordered, form)
    row.cdf, row.mean_ms, row.components_ms = (
        cdf_of(job.latency_us()),
        mean_ms_of(job.latency_us()),
        report.components_ms,
    )
    row.settings = {"trace": stretch.trace.name, "speed": SPEED}
    row.note = f"{stretch.trace.origin}; the whole run, its mean rate; {len(report.switches)} switches"
    return row, Replay(
        trace=stretch.trace.name,
        origin=stretch.trace.origin,
        form=form,
        first_s=stretch.first_s,
        speed=SPEED,
        peak_eps=round(peak_eps, 1),
        mean_eps=round(stretch.mean_eps, 1),
        backlog_max=max((each.backlog for each in sampler.moments), default=0),
        batch_share=round(batch_share(report.switches, OPERATION, report.seconds), 4),
        switches=len(report.switches),
        pause_ms_max=max((each.pause_ms for each in report.switches), default=0.0),
        carried_records=sum(each.carried_records for each in report.switches),
        offered_eps=offered(stretch),
        moments=sampler.moments,
    )


def batch_share(switches: Sequence[Switch], operation: str, seconds: float) -> float:
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
    found = []
    for form in FORMS:
        points = [(each.at_s, float(getattr(each, name))) for each in own[form].moments] if form in own else []
        # Without a result there is no latency.
        points = [point for point in points if point[1] or name != "p99_ms"]
        if points:
            found.append(Line(form, form, [x for x, _ in points], [y for _, y in points], markers=False))
    return found


def _row(results: Results, trace: str, form: str) -> ResultRow | None:
    found = [row for row in results.rows if row.settings.get("trace") == trace and row.form == form]
    return found[-1] if found else None


def _by_trace(results: Results) -> dict[str, dict[str, Replay]]:
    assert results.study is not None
    found: dict[str, dict[str, Replay]] = {}
    for each in msgspec.convert(results.study.data.get("replays", []), list[Replay]):
        found.setdefault(each.trace, {})[each.form] = each
    return found
