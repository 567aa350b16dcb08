"""Measures failures: the Yahoo pipeline with its workers killed again and again, and what checkpoints cost."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import penstock as ps
from penstock.bench.chaos import Campaign, Killer
from penstock.bench.measure import POLL_S, latency_row, measure_latency, read_rows, wait_for_start
from penstock.bench.processes import ProcessMeter
from penstock.bench.rows import Check, ResultRow
from penstock.bench.workloads import WORKLOADS, replay

RATE_EPS = 20_000
KILL_EVERY_S = 4.0
RESUMED_S_MAX = 2.0
COST_RATE_EPS = 100_000
COST_MAX = 0.10
COST_P99_MS_MAX = 5.0


def measure_kills(kills: int, parallelism: int, seed: int = 1) -> tuple[ResultRow, Check]:
    """Kill random workers at random times, and compare the output with the exact result."""
    workload, seconds = WORKLOADS["yahoo"], 5.0 + kills * KILL_EVERY_S + 5.0
    campaign = Campaign(seed, int(KILL_EVERY_S * 1e6))
    killer = Killer(campaign)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        pipeline = workload.pipeline(RATE_EPS, ps.files(Path(directory) / "out"), seconds=seconds)
        with ps.start(pipeline, name="bench-kills", parallelism=parallelism) as job, ProcessMeter() as meter:
            wait_for_start(job)
            meter.restart()
            while (report := job.wait(POLL_S)) is None:
                if time.time() < job.start_us / 1e6 + seconds - 5.0:
                    killer(job)
        exact = workload.expected(replay(workload.source(RATE_EPS, seconds=seconds), report.start_us))
        found = workload.compare(exact, read_rows(Path(directory) / "out"), parallelism)
    lost, duplicated = found.lost + report.lost, found.duplicated + found.wrong + report.duplicated
    row = latency_row("yahoo", RATE_EPS, report, meter, lost, duplicated, found.reordered + report.reordered)
    findings = campaign.findings(report)
    row.note = f"{len(findings.kills)} workers killed, one every {KILL_EVERY_S:g} s; {row.note}"
    took = findings.resumed_s
    p95 = took.p95 if took else float("inf")
    check = Check(
        name="output resumes after a worker is killed, p95",
        value=round(p95, 2),
        unit="s",
        target=f"<= {RESUMED_S_MAX:g}",
        met=p95 <= RESUMED_S_MAX and findings.passed and found.exact,
        detail={
            "kills": len(findings.kills),
            "resumed_s": [kill.resumed_s for kill in findings.kills],
            "lost": lost,
            "duplicated": duplicated,
            "reordered": row.reordered,
        },
    )
    return row, check


def check_cost(seconds: float, parallelism: int) -> Check:
    """CPU and latency with durable checkpoints every second against none at all, in turns."""
    workload = WORKLOADS["yahoo"]
    without, with_ = [], []
    for _ in range(2):
        without.append(measure_latency(workload, COST_RATE_EPS, seconds, parallelism, epoch="1h"))
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
            with_.append(measure_latency(workload, COST_RATE_EPS, seconds, parallelism, checkpoint=directory))
    cores = [min(row.cpu_cores or 0.0 for row in rows) for rows in (without, with_)]
    p99 = [min(row.p99_ms or 0.0 for row in rows) for rows in (without, with_)]
    cost = cores[1] / cores[0] - 1
    return Check(
        name="CPU cost of a durable checkpoint every second",
        value=round(100 * cost, 1),
        unit="%",
        target=f"< {100 * COST_MAX:g}, and p99 less than {COST_P99_MS_MAX:g} ms higher",
        met=cost < COST_MAX and p99[1] - p99[0] < COST_P99_MS_MAX,
        detail={"rate": COST_RATE_EPS, "cores": cores, "p99_ms": p99, "better of": len(without)},
    )
