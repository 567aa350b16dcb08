"""Measures one workload on Penstock: latency at a fixed rate, open loop, and the highest rate it sustains."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

import penstock as ps
from penstock.runtime.report import Report
from penstock_bench.meter.processes import ProcessMeter
from penstock_bench.meter.rows import ResultRow, cdf_of, mean_ms_of
from penstock_bench.workloads import Workload, replay

WARM_UP_S = 2.0
"""Cut from every measurement: from the first scheduled event on."""
STEP_S = 3.0
"""Length of one step of the search for the highest rate."""
SETTLE_S = 3.0
"""Before the first step, at half its rate: slots come up, costs are sampled."""
SHARES = (0.7, 0.8, 0.87, 0.94, 1.0, 1.07, 1.15, 1.25)
"""Rates of the search, as shares of what was carried under overload."""
RETRIES = 2
LOOKS = 10
BACKLOG_S_MAX = 0.25
"""A rate is sustained while the backlog at the end of its step is less than so many seconds of input."""
POLL_S = 0.1


def wait_for_start(job: ps.Job) -> None:
    """Wait until the sources' schedules begin."""
    while not job.start_us:
        if job.wait(POLL_S) is not None:
            return
    time.sleep(max(0.0, job.start_us / 1e6 - time.time()))


def measure_latency(
    workload: Workload[Any], rate: float, seconds: float, parallelism: int, forms: str = "record", **options: Any
) -> ResultRow:
    """Offer events at a fixed rate, and compare every result with the exact one; ``options`` go to `ps.start`."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        pipeline = workload.pipeline(rate, ps.files(Path(directory) / "out"), seconds=WARM_UP_S + seconds)
        started = ps.start(pipeline, name=f"bench-{workload.name}", parallelism=parallelism, forms=forms, **options)
        with started as job, ProcessMeter() as meter:
            wait_for_start(job)
            time.sleep(WARM_UP_S)
            job.begin_measuring()
            meter.restart()
            report = job.wait()
        assert report is not None
        source = workload.source(rate, seconds=WARM_UP_S + seconds)
        exact = workload.expected(replay(source, report.start_us))
        found = workload.compare(exact, read_rows(Path(directory) / "out"), parallelism)
        lost, duplicated = found.lost + report.lost, found.duplicated + found.wrong + report.duplicated
        reordered = found.reordered + report.reordered
    row = latency_row(workload.name, rate, report, meter, lost, duplicated, reordered, forms)
    latency_us = job.latency_us()
    row.mean_ms, row.cdf, row.components_ms = mean_ms_of(latency_us), cdf_of(latency_us), report.components_ms
    return row


def latency_row(
    workload: str,
    rate: float | None,
    report: Report,
    meter: ProcessMeter,
    lost: int | None,
    duplicated: int | None,
    reordered: int | None,
    forms: str = "record",
) -> ResultRow:
    """Put a report into the format of results."""
    latency = report.latency_ms
    return ResultRow(
        workload=workload,
        engine="penstock",
        form=forms,
        rate=rate,
        seconds=round(report.seconds, 2),
        events=report.events_in,
        p50_ms=latency.p50,
        p90_ms=latency.p90,
        p99_ms=latency.p99,
        p999_ms=latency.p999,
        max_ms=latency.max,
        cpu_cores=round(meter.cpu_cores, 3),
        rss_mb=round(meter.rss_mb_max, 1),
        lost=lost,
        duplicated=duplicated,
        reordered=reordered,
        late=report.late,
        note=f"to the update of '{report.measured_at}'",
    )


def read_rows(directory: Path) -> list[dict[str, Any]]:
    """Read what the files sink has committed, in order of epoch and instance."""
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    return [decode(line) for path in sorted(directory.glob("part-*")) for line in path.read_bytes().splitlines()]


def measure_sustained(
    workload: Workload[Any], carried_eps: float, parallelism: int, forms: str = "record"
) -> ResultRow:
    """Raise the rate step by step, around what was carried under overload, until the backlog at the sources grows.

    The last rate that did not make it grow is sustained. Where not even the first one was, the search begins lower.
    """
    row = _climb(workload, carried_eps, parallelism, forms)
    for _ in range(RETRIES):
        if row.sustained_eps:
            break
        carried_eps /= 2
        row = _climb(workload, carried_eps, parallelism, forms)
    return row


def _climb(workload: Workload[Any], carried_eps: float, parallelism: int, forms: str) -> ResultRow:
    rates = [share * carried_eps for share in SHARES]
    schedule = ps.rates.steps([(SETTLE_S, rates[0] / 2), *((STEP_S, rate) for rate in rates)])
    pipeline = workload.pipeline(schedule, ps.foreach(discard))
    sustained, backlog, step = 0.0, 0, 0
    started = ps.start(pipeline, name=f"bench-{workload.name}-max", parallelism=parallelism, forms=forms)
    with started as job, ProcessMeter() as meter:
        wait_for_start(job)
        for step, rate in enumerate(rates):
            end_s = job.start_us / 1e6 + SETTLE_S + (step + 1) * STEP_S
            if step == 0:
                time.sleep(max(0.0, end_s - STEP_S - time.time()))
                meter.restart()
            time.sleep(max(0.0, end_s - LOOKS * POLL_S - time.time()))
            # The least of several looks: a backlog that comes and goes with micro-batches does not grow.
            backlog = min(_backlog(job) for _ in range(LOOKS))
            if backlog > rate * BACKLOG_S_MAX:
                break
            sustained = rate
        job.stop()
        job.wait()
        status = job.status()
    end = f"at {rates[step]:,.0f}/s the backlog was {backlog:,}" if sustained < rates[-1] else "kept up with all"
    return ResultRow(
        workload=workload.name,
        engine="penstock",
        form=forms,
        rate=None,
        seconds=SETTLE_S + STEP_S * (step + 1),
        events=sum(op.records_in for op in status.operations if op.reads),
        sustained_eps=round(sustained),
        cpu_cores=round(meter.cpu_cores, 3),
        rss_mb=round(meter.rss_mb_max, 1),
        note=f"steps of {STEP_S:g} s, {SHARES[0]:g} to {SHARES[-1]:g} of {carried_eps:,.0f}/s; {end}",
    )


def _backlog(job: ps.Job) -> int:
    time.sleep(POLL_S)
    return sum(op.queue_records for op in job.status().operations if op.reads)


def discard(record: object) -> None:
    """Take a result and do nothing with it."""
