"""Runs single jobs for the studies: one rate, watched operation by operation; a climb through rates; an overload."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

import penstock as ps
from penstock.control.monitor import Status
from penstock.demo.series import Course, Sampler, Scene
from penstock.metrics import Histogram
from penstock_bench.meter.measure import BACKLOG_S_MAX, POLL_S, discard, latency_row, read_rows, wait_for_start
from penstock_bench.meter.processes import ProcessMeter
from penstock_bench.meter.rows import OperationRow, ResultRow, cdf_of, mean_ms_of
from penstock_bench.studies.base import Desk
from penstock_bench.workloads import Comparison, Workload, replay

WARM_UP_S = 4.0
"""Run at the same rate and checked, but not measured: slots come up and costs are sampled in this time."""
BEYOND = 1.25
"""Times the capacity of the record form: a rate that only the batch form carries."""
SETTLE_S = 5.0
"""Before a capacity is measured: forms have changed, micro-batches have their size."""
QUICK_S = 1.5
EXACT_EVENTS_MAX = 3_000_000
EXACT_SENTENCES_MAX = 300_000
"""Outputs of more events than this are not compared row by row: that would take longer than the run."""


@dataclass
class Watch:
    """Mean components of every operation over a run, from the status that the job shows twice a second."""

    _weights: Counter[str] = field(default_factory=Counter)
    _sums: dict[str, Counter[str]] = field(default_factory=dict)
    _forms: dict[str, str] = field(default_factory=dict)
    _heard_us: int = 0

    def take(self, status: Status) -> None:
        """Take a status, if it says something new; records weigh as many as came."""
        if status.heard_us <= self._heard_us:
            return
        self._heard_us = status.heard_us
        for each in status.operations:
            self._forms[each.name] = each.form
            if each.in_eps <= 0:
                continue
            self._weights[each.name] += each.in_eps  # type: ignore[assignment]
            sums = self._sums.setdefault(each.name, Counter())
            for name, mean_us in each.components_us.items():
                sums[name] += mean_us * each.in_eps  # type: ignore[assignment]

    def rows(self) -> list[OperationRow]:
        """Operations in the order of the pipeline."""
        found = []
        for name, form in self._forms.items():
            weight = self._weights[name]
            if not weight:
                continue
            parts = {part: round(total / weight / 1000, 4) for part, total in self._sums[name].items()}
            found.append(
                OperationRow(name=name, form=form, latency_ms=round(sum(parts.values()), 4), components_ms=parts)
            )
        return found


def observe(
    workload: Workload[Any],
    rate: float,
    seconds: float,
    parallelism: int,
    forms: str,
    *,
    warm_up_s: float = WARM_UP_S,
    **options: Any,
) -> ResultRow:
    """Offer events at a fixed rate; compare every result with the exact one, and watch every operation."""
    watch = Watch()
    events_max = EXACT_SENTENCES_MAX if workload.name == "wordcount" else EXACT_EVENTS_MAX
    exact = rate * (warm_up_s + seconds) <= events_max
    with tempfile.TemporaryDirectory(prefix="penstock-study-") as directory:
        out = Path(directory) / "out"
        sink = ps.files(out) if exact else ps.foreach(discard)
        pipeline = workload.pipeline(rate, sink, seconds=warm_up_s + seconds)
        started = ps.start(pipeline, name=f"study-{workload.name}", parallelism=parallelism, forms=forms, **options)
        with started as job, ProcessMeter() as meter:
            wait_for_start(job)
            time.sleep(warm_up_s)
            job.begin_measuring()
            meter.restart()
            backlog = 0
            end_us = job.start_us + (warm_up_s + seconds) * 1e6
            while (report := job.wait(POLL_S)) is None:
                status = job.status()
                if status.at_us <= end_us:
                    watch.take(status)
                    backlog = waiting(status)
        found = Comparison()
        if exact:
            source = workload.source(rate, seconds=warm_up_s + seconds)
            found = workload.compare(workload.expected(replay(source, report.start_us)), read_rows(out), parallelism)
    lost, duplicated = found.lost + report.lost, found.duplicated + found.wrong + report.duplicated
    row = latency_row(workload.name, rate, report, meter, lost, duplicated, found.reordered + report.reordered, forms)
    row.note += "" if exact else "; records are counted on every edge, rows not compared: too many"
    latency_us = job.latency_us()
    row.mean_ms, row.cdf = mean_ms_of(latency_us), cdf_of(latency_us)
    row.components_ms, row.operations = report.components_ms, watch.rows()
    row.warm_up_s, row.sustained = warm_up_s, backlog <= rate * BACKLOG_S_MAX
    row.settings = dict(options)
    row.note += f"; {len(report.switches)} switches" if report.switches else ""
    return row


def waiting(status: Status) -> int:
    """Events that are due and that no source has read yet."""
    return sum(op.queue_records for op in status.operations if op.reads)


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
    **options: Any,
) -> list[Step]:
    """Raise the rate step by step in one job, and measure each step; ends early when ``enough`` says so."""
    pipeline = workload.pipeline(ps.rates.steps([(step_s, rate) for rate in rates]), ps.foreach(discard))
    started = ps.start(pipeline, name=f"study-{workload.name}", parallelism=parallelism, forms=forms, **options)
    steps: list[Step] = []
    with started as job:
        wait_for_start(job)
        for i, rate in enumerate(rates):
            _sleep_until(job, (i + 0.5) * step_s)
            before, looks, batch = job.latency_us(), 0, Counter[str]()
            while time.time() < job.start_us / 1e6 + (i + 1) * step_s:
                time.sleep(POLL_S)
                looks += 1
                batch.update(op.name for op in job.status().operations if op.form == "batch")
            status = job.status()
            steps.append(_step(rate, job.latency_us().since(before), waiting(status), status, batch, looks))
            if enough is not None and enough(steps):
                break
        job.stop()
        job.wait()
    return steps


def _sleep_until(job: ps.Job, at_s: float) -> None:
    time.sleep(max(0.0, job.start_us / 1e6 + at_s - time.time()))


def _step(rate: float, latency: Histogram, backlog: int, status: Status, batch: Counter[str], looks: int) -> Step:
    known = bool(latency.total)
    return Step(
        rate=round(rate, 1),
        p50_ms=latency.quantile(0.5) / 1000 if known else None,
        p99_ms=latency.quantile(0.99) / 1000 if known else None,
        mean_ms=mean_ms_of(latency),
        backlog=backlog,
        kept_up=backlog <= rate * BACKLOG_S_MAX,
        batch={op.name: round(batch[op.name] / max(1, looks), 3) for op in status.operations},
    )


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
    """Offer more than can be carried, and count what gets through."""
    pipeline = workload.pipeline(offered_eps, ps.foreach(discard))
    started = ps.start(pipeline, name=f"study-{workload.name}", parallelism=parallelism, forms=forms, **options)
    with started as job, ProcessMeter() as meter:
        wait_for_start(job)
        time.sleep(settle_s)
        meter.restart()
        first, began_us = _read(job)
        time.sleep(seconds)
        last, ended_us = _read(job)
        switches = len(job.adaptation().switches)
        job.stop()
        job.wait()
    took_s = max(1, ended_us - began_us) / 1e6
    return ResultRow(
        workload=workload.name,
        engine="penstock",
        form=forms,
        rate=offered_eps,
        seconds=round(took_s, 2),
        events=last - first,
        capacity_eps=round((last - first) / took_s),
        cpu_cores=round(meter.cpu_cores, 3),
        rss_mb=round(meter.rss_mb_max, 1),
        warm_up_s=settle_s,
        settings={"workers": parallelism, **options},
        note=f"overload; {switches} switches",
    )


def beyond_record(workload: Workload[Any], desk: Desk, offered_eps: float) -> float:
    """Measure what the record form carries, and return a rate that is too high for it."""
    desk.tell(f"{workload.name}: what the record form carries")
    row = carry(
        workload,
        offered_eps,
        desk.seconds(5.0, QUICK_S),
        desk.options.parallelism,
        "record",
        settle_s=QUICK_S if desk.options.quick else SETTLE_S,
    )
    desk.add(row)
    return float(f"{BEYOND * (row.capacity_eps or 1.0):.2g}")


def _read(job: ps.Job) -> tuple[int, int]:
    """Records that the sources have given, and the moment of which that is told."""
    status = job.status()
    return sum(op.records_in for op in status.operations if op.reads), status.heard_us


def through_burst(workload: Workload[Any], scene: Scene, parallelism: int, forms: str) -> tuple[ResultRow, Course]:
    """Run through a burst, sampled some times a second; every result is compared with the exact one."""
    sampler = Sampler(scene)
    with tempfile.TemporaryDirectory(prefix="penstock-study-") as directory:
        out = Path(directory) / "out"
        pipeline = workload.pipeline(scene.schedule, ps.files(out), seconds=scene.seconds)
        started = ps.start(pipeline, name=f"study-{workload.name}", parallelism=parallelism, forms=forms)
        with started as job, ProcessMeter() as meter:
            wait_for_start(job)
            meter.restart()
            while (report := job.wait(POLL_S)) is None:
                sampler(job)
        exact = workload.expected(replay(workload.source(scene.schedule, seconds=scene.seconds), report.start_us))
        found = workload.compare(exact, read_rows(out), parallelism)
    lost, duplicated = found.lost + report.lost, found.duplicated + report.duplicated
    reordered = found.reordered + report.reordered
    row = latency_row(workload.name, scene.peak_eps, report, meter, lost, duplicated + found.wrong, reordered, forms)
    row.cdf, row.mean_ms = cdf_of(job.latency_us()), mean_ms_of(job.latency_us())
    row.components_ms = report.components_ms
    row.note = f"burst {scene.base_eps:,.0f} to {scene.peak_eps:,.0f}/s for {scene.burst_s:g} s, the whole run"
    figures = msgspec.structs.replace(
        sampler.figures(forms, report), lost=lost, duplicated=duplicated, reordered=reordered, wrong=found.wrong
    )
    return row, Course(figures, sampler.samples, report.switches)
