"""Jobs of ours under the meter: the one loop that starts, warms up, watches and ends them, and compares what came out.

The studies run their jobs through here. An engine's run, which is judged from outside, is `runner`'s.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import penstock as ps
from penstock.control.monitor import Status
from penstock.metrics import Histogram
from penstock.runtime.clock import now_us
from penstock.runtime.report import Report
from penstock_bench.meter.evaluate import backlog_between
from penstock_bench.meter.processes import Processes
from penstock_bench.meter.rows import OperationRow, ResultRow, latency_fields
from penstock_bench.meter.search import search
from penstock_bench.meter.tally import Tally
from penstock_bench.meter.timeline import Times
from penstock_bench.workloads import AT_SINK, Comparison, Workload, replay

POLL_S = 0.1
WARM_UP_S = 4.0
"""Run at the same rate and checked, but not measured: slots come up and costs are sampled in this time."""
SETTLE_S = 5.0
"""Before a capacity is measured: forms have changed, micro-batches have their size."""
FLOWING_US, FLOWING_S_MAX = 1_000_000, 20.0
"""Results flow that have come in so long a time; and how long they are waited for."""
KEPT_UP_S_MAX = 0.25
"""A step of a climb is kept up with if less than so many seconds of input are due and not read at its end."""
TRIAL_SETTLE_S, TRIAL_S, TRIAL_FACTOR = 2.5, 3.0, 1.2
"""Of the search for the highest rate that is sustained, around what was carried under overload. A trial begins at half
its rate: what has gathered before slots are up could not be worked off near the limit."""
EXACT_EVENTS_MAX = 3_000_000
EXACT_SENTENCES_MAX = 300_000
"""Outputs of more events than this are not compared row by row: that would take longer than the run."""
Watcher = Callable[[ps.Job], object]
"""Looks at a running job some times a second."""


def discard(record: object) -> None:
    """A sink that does nothing."""


def waiting(status: Status) -> int:
    """Events that are due and that no source has read yet."""
    return sum(op.queue_records for op in status.operations if op.reads)


def read_rows(directory: Path) -> list[dict[str, Any]]:
    """Read what the files sink has committed, in order of epoch and instance."""
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    return [decode(line) for path in sorted(directory.glob("part-*")) for line in path.read_bytes().splitlines()]


@dataclass
class Run:
    """A job that runs; times are seconds since its schedule began."""

    job: ps.Job
    processes: Processes
    looks: list[tuple[float, int]] = field(default_factory=list)
    """How many events waited at the sources when they were looked at."""

    @property
    def at_s(self) -> float:
        return time.time() - self.job.start_us / 1e6

    def warm_up(self, until_s: float) -> None:
        """Let time pass; what is measured is measured from here on."""
        time.sleep(max(0.0, until_s - self.at_s))
        self.job.begin_measuring()
        self.processes.restart()

    def watch(self, *watchers: Watcher, until_s: float | None = None, backlog_s: float | None = None) -> Report | None:
        """Call the watchers until that time, or until the job has ended; then its report is returned.

        The backlog is looked at up to ``backlog_s``: after its last event a job has none.
        """
        while until_s is None or self.at_s < until_s:
            if (report := self.job.wait(POLL_S)) is not None:
                return report
            for watcher in watchers:
                watcher(self.job)
            if backlog_s is None or self.at_s <= backlog_s:
                self.looks.append((self.at_s, waiting(self.job.status())))
        return None

    def sustained(self, rate: float, first_s: float, end_s: float) -> bool:
        """Whether the backlog at the sources did not grow in a time in which events came at a rate."""
        if not self.looks:
            return False
        at_s, backlog = np.array(self.looks).T
        waited, due = (lambda at_us: np.interp(at_us / 1e6, at_s, backlog)), (lambda at_us: at_us * rate / 1e6)
        return backlog_between(waited, due, round(1e6 * first_s), round(1e6 * end_s)).is_sustained

    def until(self, condition: Callable[[], object], seconds_max: float, every_s: float = 0.005) -> None:
        """Wait until a condition holds, but no longer than so many seconds."""
        deadline = time.monotonic() + seconds_max
        while not condition() and time.monotonic() < deadline:
            time.sleep(every_s)

    def read(self) -> tuple[int, int]:
        """Events that the sources have given, and the moment of which that is told."""
        status = self.job.status()
        return sum(op.records_in for op in status.operations if op.reads), status.heard_us

    def end(self, *, drain: bool = False) -> Report:
        """Stop the job, with what is on its way or, drained, behind it."""
        (self.job.drain if drain else self.job.stop)()
        report = self.job.wait()
        assert report is not None
        return report


@contextmanager
def running(
    *pipelines: ps.Pipeline, parallelism: int, forms: str = "adaptive", memory: bool = True, **options: Any
) -> Iterator[Run]:
    """Start a job, and wait until its sources' schedules begin."""
    with ExitStack() as stack:
        job = stack.enter_context(ps.start(*pipelines, name="bench", parallelism=parallelism, forms=forms, **options))
        processes = stack.enter_context(Processes(memory=memory))
        while not job.start_us and job.wait(POLL_S) is None:
            pass
        time.sleep(max(0.0, job.start_us / 1e6 - time.time()))
        processes.restart()
        yield Run(job, processes)


def row_of(
    name: str,
    rate: float | None,
    forms: str,
    run: Run,
    report: Report,
    found: Comparison | None,
    *,
    latency_us: Histogram | None = None,
) -> ResultRow:
    """Put a run into the format of results; ``found`` is None where nothing was compared."""
    switched = f"; {len(report.switches)} switches" if report.switches else ""
    row = ResultRow(
        workload=name,
        engine="penstock",
        form=forms,
        rate=rate,
        seconds=round(report.seconds, 2),
        events=report.events_in,
        late=report.late,
        components_ms=report.components_ms,
        note=f"to the update of '{report.measured_at}'{switched}",
        **latency_fields(run.job.latency_us() if latency_us is None else latency_us),
        **run.processes.used(),
    )
    if found is not None:
        row.lost = found.lost + report.lost
        row.duplicated = found.duplicated + found.wrong + report.duplicated
        row.reordered = found.reordered + report.reordered
    return row


class Watch:
    """Mean components of every operation over a run, from the status that the job shows twice a second."""

    def __init__(self) -> None:
        self._forms: dict[str, str] = {}
        self._records: dict[str, float] = defaultdict(float)
        self._sums_us: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self._heard_us = 0

    def take(self, status: Status) -> None:
        """Take a status, if it says something new; records weigh as many as came."""
        if status.heard_us <= self._heard_us:
            return
        self._heard_us = status.heard_us
        for each in status.operations:
            self._forms[each.name] = each.form
            self._records[each.name] += each.in_eps
            for part, mean_us in each.components_us.items() if each.in_eps else ():
                self._sums_us[each.name][part] += mean_us * each.in_eps

    def rows(self) -> list[OperationRow]:
        found = []
        for name, form in self._forms.items():
            if count := self._records[name]:
                parts = {part: round(sum_us / count / 1000, 4) for part, sum_us in self._sums_us[name].items()}
                took_ms = round(sum(parts.values()), 4)
                found.append(OperationRow(name=name, form=form, latency_ms=took_ms, components_ms=parts))
        return found


def observe(
    workload: Workload[Any],
    rate: Any,
    seconds: float,
    parallelism: int,
    forms: str,
    *,
    warm_up_s: float = WARM_UP_S,
    watchers: Sequence[Watcher] = (),
    exact: Any = None,
    **options: Any,
) -> tuple[ResultRow, Report]:
    """Offer events at a rate or by a schedule; compare every result with the exact one, and watch every operation.

    ``exact`` is the exact result, where it is known already; ``options`` go to `ps.start`.
    """
    watch, whole_s = Watch(), warm_up_s + seconds
    source = workload.source(rate, seconds=whole_s)
    compared = (source.total or 0) <= (EXACT_SENTENCES_MAX if workload.name == "wordcount" else EXACT_EVENTS_MAX)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        out = Path(directory) / "out"
        pipeline = workload.pipeline(rate, ps.files(out) if compared else ps.foreach(discard), seconds=whole_s)
        with running(pipeline, parallelism=parallelism, forms=forms, **options) as run:
            if warm_up_s:
                run.warm_up(warm_up_s)

            def look(job: ps.Job) -> None:
                if run.at_s <= whole_s:
                    watch.take(job.status())

            report = run.watch(look, *watchers, backlog_s=whole_s)
        assert report is not None
        found = Comparison()
        if compared:
            exact = workload.expected(replay(source, report.start_us)) if exact is None else exact
            found = workload.compare(exact, read_rows(out), parallelism)
    eps = float(rate) if isinstance(rate, int | float) else None
    row = row_of(workload.name, eps, forms, run, report, found)
    row.note += "" if compared else "; records are counted on every edge, rows not compared: too many"
    row.operations, row.warm_up_s, row.settings = watch.rows(), warm_up_s, dict(options)
    row.sustained = None if eps is None else run.sustained(eps, warm_up_s, whole_s)
    return row, report


def carry(
    workload: Workload[Any],
    offered_eps: float,
    seconds: float,
    parallelism: int,
    forms: str,
    *,
    settle_s: float = SETTLE_S,
    **options: Any,
) -> ResultRow:
    """Offer more than can be carried, and count at the sink what gets through."""
    with _tallied(workload, offered_eps, parallelism, forms, **options) as (run, tally):
        run.warm_up(settle_s)
        # On a busy machine slots need longer to come up: not before results flow.
        run.until(lambda: tally.counted().rate_eps(now_us() - FLOWING_US, now_us()), FLOWING_S_MAX, POLL_S)
        run.processes.restart()
        began_us = now_us()
        time.sleep(seconds)
        ended_us, used, switches = now_us(), run.processes.used(), len(run.job.adaptation().switches)
        run.end()
        carried_eps = tally.counted().rate_eps(began_us, ended_us)
    took_s = (ended_us - began_us) / 1e6
    return ResultRow(
        workload=workload.name,
        engine="penstock",
        form=forms,
        rate=offered_eps,
        seconds=round(took_s, 2),
        events=round(carried_eps * took_s),
        capacity_eps=round(carried_eps),
        warm_up_s=settle_s,
        settings={"workers": parallelism, **options},
        note=f"overload, counted at the sink; {switches} switches",
        **used,
    )


def sustain(workload: Workload[Any], carried_eps: float, parallelism: int, forms: str) -> ResultRow:
    """Search for the highest rate at which no backlog grows, from what was carried under overload; a job a trial."""
    used: dict[float, dict[str, Any]] = {}

    def sustains(rate: float) -> bool:
        schedule = ps.rates.steps([(TRIAL_SETTLE_S, rate / 2), (3600, rate)])
        with _tallied(workload, schedule, parallelism, forms) as (run, tally):
            run.warm_up(TRIAL_SETTLE_S)
            time.sleep(TRIAL_S)
            end_us, used[rate] = now_us(), run.processes.used()
            run.end()
            out, start_us = tally.counted().out, run.job.start_us

        def due(at_us: Times) -> Times:
            return np.array([schedule.due(each) for each in (at_us - start_us).tolist()], dtype=np.int64)

        first_us = end_us - round(1e6 * TRIAL_S)
        return backlog_between(lambda at_us: due(at_us) - out(at_us), due, first_us, end_us).is_sustained

    found = search(sustains, 0.9 * carried_eps, factor=TRIAL_FACTOR)
    above = "" if found.failed_eps is None else f"; {found.failed_eps:,.0f}/s was not"
    return ResultRow(
        workload=workload.name,
        engine="penstock",
        form=forms,
        rate=None,
        seconds=TRIAL_S,
        events=round(found.sustained_eps * TRIAL_S),
        sustained_eps=round(found.sustained_eps),
        note=f"{len(found.trials)} trials of {TRIAL_S:g} s, around {carried_eps:,.0f}/s{above}",
        **used.get(found.sustained_eps, {"cpu_cores": 0.0, "pss_mb": 0.0}),
    )


@contextmanager
def _tallied(
    workload: Workload[Any], rate: Any, parallelism: int, forms: str, **options: Any
) -> Iterator[tuple[Run, Tally]]:
    """Run a workload into a sink that counts what comes."""
    shown = AT_SINK.get(workload.name, workload)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        tally = Tally(Path(directory), shown)
        with running(shown.pipeline(rate, tally), parallelism=parallelism, forms=forms, **options) as run:
            yield run, tally


class Step(msgspec.Struct):
    """One rate of a climb; latencies are those of the second half of its time."""

    rate: float
    p50_ms: float | None
    p99_ms: float | None
    mean_ms: float | None
    """None: nothing came out."""
    backlog: int
    kept_up: bool
    batch: dict[str, float]
    """By operation: in which share of the second half it was in batch form."""


def climb(
    workload: Workload[Any],
    rates: Sequence[float],
    step_s: float,
    parallelism: int,
    forms: str,
    *,
    enough: Callable[[list[Step]], bool] | None = None,
) -> list[Step]:
    """Raise the rate step by step in one job, and measure each step; ends early when ``enough`` says so."""
    pipeline = workload.pipeline(ps.rates.steps([(step_s, rate) for rate in rates]), ps.foreach(discard))
    steps: list[Step] = []
    with running(pipeline, parallelism=parallelism, forms=forms, memory=False) as run:
        for i, rate in enumerate(rates):
            run.watch(until_s=(i + 0.5) * step_s)
            before, looks, batch = run.job.latency_us(), 0, Counter[str]()
            while run.at_s < (i + 1) * step_s:
                time.sleep(POLL_S)
                looks += 1
                batch.update(op.name for op in run.job.status().operations if op.form == "batch")
            status, latency = run.job.status(), latency_fields(run.job.latency_us().since(before))
            step = Step(
                rate=round(rate, 1),
                p50_ms=latency.get("p50_ms"),
                p99_ms=latency.get("p99_ms"),
                mean_ms=latency.get("mean_ms"),
                backlog=waiting(status),
                kept_up=waiting(status) <= rate * KEPT_UP_S_MAX,
                batch={op.name: round(batch[op.name] / max(1, looks), 3) for op in status.operations},
            )
            steps.append(step)
            if enough is not None and enough(steps):
                break
        run.end()
    return steps
