"""Recorded loads replayed (Finch, section 5.2): how each form takes spikes that nobody has drawn."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from penstock.control.changes import ChangeReport
from penstock_bench.meter.rows import Claim, Results
from penstock_bench.report.chart import Figure, Line, Lines, figure
from penstock_bench.report.words import grouped, ms, number
from penstock_bench.studies.base import ADAPTIVE, BATCH, FORMS, RECORD, Desk, Study, two_digits
from penstock_bench.studies.findings import Findings, Paired, Table, curve, fields, paired, table
from penstock_bench.studies.traces import SPEED, Stretch, find_traces
from penstock_bench.workloads import WORKLOADS, replay

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

    @property
    def told(self) -> str:
        return f"{self.origin}, from second {self.first_s:,} on, {self.speed:g} times faster"


class Dynamism(Study):
    """A model called per event. Of each recorded load the part around its busiest time, 30 times faster than recorded
    and scaled so that its busiest half second has 2 times the rate that the record form was measured to carry; in three
    forms with the same events at the same times, every output compared with the exact one. The loads are those of the
    directory that PENSTOCK_TRACES names; without any, one is made up.
    """

    name = "dynamism"
    title = "Recorded loads, replayed"
    after = "Finch, section 5.2 (workload dynamism; named, not measured there)"

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
                row, report, sampler = desk.through(workload, stretch, form, exact=exact)
                # Loads of the same height are no repetitions of each other: each is a workload of its own.
                row.workload, row.rate = f"{WORKLOAD}-{each.name}", round(stretch.mean_eps, 1)
                row.note = f"{each.origin}; the whole run, its mean rate; {len(report.switches)} switches"
                moments = [Moment(s.at_s, s.handled_eps, s.backlog_records, s.p99_ms) for s in sampler.samples]
                found = Replay(
                    trace=each.name,
                    origin=each.origin,
                    form=form,
                    first_s=stretch.first_s,
                    speed=SPEED,
                    peak_eps=round(max(stretch.rates_eps), 1),
                    mean_eps=round(stretch.mean_eps, 1),
                    backlog_max=max((moment.backlog for moment in moments), default=0),
                    batch_share=round(batch_share(report.switches, OPERATION, report.seconds), 4),
                    switches=len(report.switches),
                    pause_ms_max=max((switch.pause_ms for switch in report.switches), default=0.0),
                    carried_records=sum(switch.carried_records for switch in report.switches),
                    offered_eps=offered(stretch),
                    moments=moments,
                )
                desk.append("replays", found)
                desk.add(row, trace=each.name, speed=SPEED)

    def findings(self, results: Results) -> Findings:
        by_trace = _by_trace(results)
        for name, replays in by_trace.items():
            pairs = {pair.found.form: pair for pair in _pairs(results) if pair.found.trace == name}
            if set(pairs) != set(FORMS):
                continue
            own = replays[ADAPTIVE]
            told = "; ".join(
                f"{form} p50 {ms(row.p50_ms)}, p99 {ms(row.p99_ms)}, max {ms(row.max_ms)} ms, backlog up to "
                f"{number(replays[form].backlog_max)}, {number(row.cpu_cores)} cores"
                for form, row in ((form, pairs[form].row) for form in FORMS)
            )
            better = (pairs[ADAPTIVE].row.p99_ms or 0.0) < (pairs[RECORD].row.p99_ms or 0.0)
            yield Claim(
                f"Finch, section 5.2: dynamism, {name}",
                "no figures, a question: how well are spikes handled, and how does the system adapt? Taken as: a load "
                "too high for records is followed with a lower p99 than in record form",
                f"{own.told}, up to {number(own.peak_eps)}/s: {told}; switches of the adaptive form: {own.switches}; "
                f"it was in batch form {own.batch_share:.0%} of the time; {results.machine}",
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
        return table(
            "Loads and forms",
            _pairs(results),
            ("load, form", lambda pair: f"{pair.found.trace}, {pair.found.form}"),
            *fields(ms, row__p50_ms="p50 ms", row__p99_ms="p99 ms", row__max_ms="max ms"),
            *fields(number, found__backlog_max="largest backlog"),
            *fields(lambda share: f"{100 * share:.0f}", found__batch_share="in batch form %"),
            *fields(str, found__switches="switches"),
            *fields(ms, found__pause_ms_max="longest pause ms"),
            *fields(number, row__cpu_cores="cores"),
        )

    def figures(self, results: Results) -> list[Figure]:
        found = []
        for name, own in _by_trace(results).items():

            def lines(field: str, own: dict[str, Replay] = own) -> list[Line]:
                forms = [form for form in FORMS if form in own]
                # Without a result there is no latency.
                moments = {
                    form: [each for each in own[form].moments if each.p99_ms or field != "p99_ms"] for form in forms
                }
                return [curve(form, form, moments[form], "at_s", field, markers=False) for form in forms]

            first = next(iter(own.values()))
            x = [step * OFFERED_STEP_S for step in range(len(first.offered_eps))]
            rate = Line("offered", "plain", x, first.offered_eps, markers=False, steps=True)
            panels = [
                Lines("Rate", "seconds", "events/s", [rate, *lines("handled_eps")]),
                Lines("Backlog", "seconds", "events", lines("backlog")),
                Lines("Latency, p99 of the last half second", "seconds", "ms", lines("p99_ms"), y_log=True),
            ]
            caption = f"{first.told}. Grey: offered."
            found += figure(f"dynamism-{name}", f"Through the load '{name}'", caption, panels, columns=1)
        return found


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


def _by_trace(results: Results) -> dict[str, dict[str, Replay]]:
    found = grouped(results.data("replays", list[Replay]), "trace")
    return {trace: {each.form: each for each in own} for trace, own in found.items()}


def _pairs(results: Results) -> list[Paired[Replay]]:
    replays = (each for own in _by_trace(results).values() for each in own.values())
    return paired(results, replays, "form", "trace")
