"""Measures the batch path and switching: bursts, a hundred hand-overs, group sizes."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.control.monitor import Status
from penstock.demo.chaos import quantile
from penstock_bench.meter.measure import POLL_S, discard, latency_row, read_rows, wait_for_start
from penstock_bench.meter.processes import ProcessMeter
from penstock_bench.meter.rows import Check, ResultRow
from penstock_bench.workloads import WORKLOADS, Workload, replay

BURST_BEFORE_S, BURST_S, BURST_AFTER_S = 6.0, 5.0, 6.0
CALM_P99_MS = 10.0
WAIT_S = 60.0
SWITCH_EVERY_S = 0.12
FRONT = ("events", "parse_json", "filter", "select", "lookup", "count")
"""The operations of the Yahoo pipeline before the shuffle."""
GROUP_SIZES = (1, 2, 5, 10, 25, 50, 100)


def _sources(status: Status) -> tuple[int, int]:
    """Records that the sources have given, and records that wait before them."""
    read = [op for op in status.operations if op.kind == "generator"]
    return sum(op.records_in for op in read), sum(op.queue_records for op in read)


def measure_burst(
    workload: Workload[Any], base_eps: float, peak_eps: float, parallelism: int, forms: str
) -> tuple[ResultRow, list[Check]]:
    """A calm stream, a burst, calm again: latency over time, backlog, switches."""
    schedule = ps.rates.steps([(BURST_BEFORE_S, base_eps), (BURST_S, peak_eps), (3600, base_eps)])
    pipeline = workload.pipeline(schedule, ps.foreach(discard))
    started = ps.start(pipeline, name=f"bench-{workload.name}-burst", parallelism=parallelism, forms=forms)
    series: list[dict[str, object]] = []
    with started as job, ProcessMeter() as meter:
        wait_for_start(job)
        start_s = job.start_us / 1e6
        while (at_s := time.time() - start_s) < BURST_BEFORE_S + BURST_S + BURST_AFTER_S:
            time.sleep(POLL_S)
            status = job.status()
            last = status.operations[-1]
            series.append(
                {
                    "at_s": round(at_s, 2),
                    "in_eps": round(status.operations[0].in_eps),
                    "backlog": _sources(status)[1],
                    "p99_ms": round(last.p99_ms, 2),
                    "forms": "".join(op.form[0] for op in status.operations),
                }
            )
        switches = list(job.adaptation().switches)
        job.stop()
        job.wait()
    end_s = BURST_BEFORE_S + BURST_S
    during = [float(str(each["p99_ms"])) for each in series if BURST_BEFORE_S <= float(str(each["at_s"])) < end_s + 1]
    after = [each for each in series if float(str(each["at_s"])) >= end_s]
    calm_s = next(
        (
            float(str(each["at_s"])) - end_s
            for i, each in enumerate(after)
            if all(float(str(later["p99_ms"])) < CALM_P99_MS for later in after[i:])
        ),
        float("inf"),
    )
    row = ResultRow(
        workload=workload.name,
        engine="penstock",
        form=forms,
        rate=peak_eps,
        seconds=BURST_BEFORE_S + BURST_S + BURST_AFTER_S,
        events=_sources(status)[0],
        p99_ms=max(during),
        cpu_cores=round(meter.cpu_cores, 3),
        rss_mb=round(meter.rss_mb_max, 1),
        note=f"burst {base_eps:,.0f} to {peak_eps:,.0f}/s for {BURST_S:g} s; p99 is the worst half second",
    )
    detail: dict[str, object] = {"series": series, "switches": [_plain(each) for each in switches]}
    name = f"{workload.name}, burst, {forms}"
    return row, [
        Check(
            name=f"{name}: worst p99 of half a second",
            value=round(max(during), 1),
            unit="ms",
            target="under 1,000 in adaptive form",
            met=max(during) < 1000 or forms != "adaptive",
            detail=detail,
        ),
        Check(
            name=f"{name}: p99 under {CALM_P99_MS:g} ms again",
            value=round(calm_s, 2) if calm_s != float("inf") else -1.0,
            unit="s after the burst (-1: not seen)",
            target="2 in adaptive form",
            met=calm_s <= 2.0 or forms != "adaptive",
        ),
    ]


def _plain(switch: Any) -> dict[str, object]:
    return {
        "at_s": switch.at_s,
        "operations": switch.operations,
        "to": switch.to,
        "pause_ms": switch.pause_ms,
        "total_ms": switch.total_ms,
        "carried_records": switch.carried_records,
        "reason": switch.reason,
        "inputs": switch.inputs,
    }


def measure_hand_overs(switches: int, rate_eps: float, parallelism: int) -> tuple[ResultRow, list[Check]]:
    """Change the form of the Yahoo pipeline's front again and again under load; every result is compared."""
    workload = WORKLOADS["yahoo-updates"]
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        out = Path(directory) / "out"
        started = ps.start(
            workload.pipeline(rate_eps, ps.files(out)), name="bench-switch", parallelism=parallelism, forms="record"
        )
        with started as job, ProcessMeter() as meter:
            wait_for_start(job)
            time.sleep(2.0)
            for i in range(switches):
                job.switch(*FRONT, to="record" if i % 2 else "batch")
                deadline = time.monotonic() + 30
                while len(job.adaptation().switches) <= i and time.monotonic() < deadline:
                    time.sleep(0.005)
                time.sleep(SWITCH_EVERY_S)
            job.drain()
            report = job.wait()
        assert report is not None
        exact = workload.expected(replay(workload.source(rate_eps), report.start_us, report.offsets["events"]))
        found = workload.compare(exact, read_rows(out), parallelism)
    done = report.switches
    warm = done[1:]  # the first one waits for Spark to bring the slots up
    pauses, totals = sorted(each.pause_ms for each in warm), sorted(each.total_ms for each in warm)
    lost, duplicated = found.lost + report.lost, found.duplicated + found.wrong + report.duplicated
    reordered = found.reordered + report.reordered
    row = latency_row(workload.name, rate_eps, report, meter, lost, duplicated, reordered, "switching")
    row.note = f"{len(done)} switches; carried over {sum(each.carried_records for each in done):,} records"
    detail: dict[str, object] = {"switches": [_plain(each) for each in done]}
    return row, [
        Check(
            name="hand-over: pause, p99",
            value=round(quantile(pauses, 0.99), 2),
            unit="ms",
            target="at most 50",
            met=quantile(pauses, 0.99) <= 50,
            detail=detail,
        ),
        Check(
            name="hand-over: whole switch, warm, p99",
            value=round(quantile(totals, 0.99), 1),
            unit="ms",
            target="at most 300",
            met=quantile(totals, 0.99) <= 300,
        ),
    ]


def measure_groups(parallelism: int, sizes: tuple[int, ...] = GROUP_SIZES, seconds: float = 4.0) -> list[Check]:
    """What scheduling costs each micro-batch, against the size of its group: for one stage, and before a shuffle."""
    found = []
    for shape, name in (("one stage", "grep"), ("with a shuffle", "yahoo")):
        times = {str(size): _scheduling_ms(WORKLOADS[name], size, parallelism, seconds) for size in sizes}
        first, last = times[str(sizes[0])], times[str(sizes[-1])]
        found.append(
            Check(
                name=f"scheduling per micro-batch, {shape}, groups of {sizes[-1]}",
                value=last,
                unit="ms",
                target=f"a tenth of that of groups of {sizes[0]}: {first:g} ms",
                met=last < first / 10,
                detail={"by_group_size_ms": times},
            )
        )
    return found


def _scheduling_ms(workload: Workload[Any], size: int, parallelism: int, seconds: float) -> float:
    """Small micro-batches in groups of one size: from submitting a group's job until its tasks are up, for each."""
    pipeline = workload.pipeline(200_000, ps.foreach(discard))
    started = ps.start(
        pipeline, name="bench-groups", parallelism=parallelism, forms="batch", interval="1ms", group_size=size
    )
    with started as job:
        wait_for_start(job)
        deadline = time.monotonic() + WAIT_S
        while len(job.adaptation().groups) < 3 and time.monotonic() < deadline:
            time.sleep(POLL_S)
        time.sleep(seconds)
        groups = job.adaptation().groups[1:]  # the first one comes up while Spark does
        job.stop()
        job.wait()
    batches = sum(each.micro_batches for each in groups) / parallelism
    return round(sum(each.scheduling_ms for each in groups) / max(1.0, batches), 3)


def check_tuned(seconds: float, parallelism: int) -> list[Check]:
    """Micro-batches of 50 ms, group size tuned: scheduling's share, and whether the load is carried."""
    pipeline = WORKLOADS["yahoo"].pipeline(200_000, ps.foreach(discard))
    with ps.start(pipeline, name="bench-tuned", parallelism=parallelism, forms="batch") as job:
        wait_for_start(job)
        time.sleep(seconds)
        found, backlog = job.adaptation(), _sources(job.status())[1]
        job.stop()
        job.wait()
    trajectory = [{"size": each.size, "overhead": each.overhead} for each in found.groups]
    # The share of the groups at the tuned size, not the average that still remembers the first small ones.
    last = [each.overhead for each in found.groups[-3:]]
    overhead = sum(last) / max(1, len(last))
    return [
        Check(
            name="group scheduling: overhead at the tuned size",
            value=round(overhead, 4),
            unit="share of a group's time",
            target="at most 0.10",
            met=bool(last) and overhead <= 0.10,
            detail={"trajectory": trajectory},
        ),
        Check(
            name="micro-batches of 50 ms: backlog at 200,000 events/s",
            value=backlog,
            unit="events",
            target="less than three micro-batches",
            met=backlog < 3 * 0.05 * 200_000,
        ),
    ]
