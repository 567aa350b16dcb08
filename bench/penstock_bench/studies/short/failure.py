"""Measures failures: the Yahoo pipeline with its workers killed again and again, and what checkpoints cost."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import penstock as ps
from penstock.control.recovery import downstream, hosted
from penstock.demo.chaos import Campaign, Findings, Kill, Killer, quantile
from penstock.pipeline.plan import Plan
from penstock.runtime.report import Latency, Report
from penstock_bench.meter.measure import POLL_S, WARM_UP_S, latency_row, measure_latency, read_rows, wait_for_start
from penstock_bench.meter.processes import ProcessMeter
from penstock_bench.meter.rows import Check, ResultRow
from penstock_bench.meter.timeline import DEFINITION, NEVER_US, Recovery, Timeline
from penstock_bench.meter.views import count_as_a_whole, views_due
from penstock_bench.meter.witness import Witness
from penstock_bench.workloads import WORKLOADS

MAIN = WORKLOADS["yahoo-updates"]
"""A row for every count that changes: what a reader sees of each event, and when."""
RATE_EPS = 20_000
ASIDE_EPS = 2_000
WARM_UP_US = int(WARM_UP_S * 1e6)
CALM_S = 4.0
KILL_EVERY_S = 4.0
END_S = 4.0
ASIDE_S = 1.5
"""How long before and after a kill the other branch is looked at."""
ASIDE_MS_MAX = 50.0
ASIDE_FACTOR = 2.0
RESUMED_S_MAX = 2.0
NORMAL_S_MAX = 5.0
COST_RATE_EPS = 100_000
COST_MAX = 0.10
COST_P99_MS_MAX = 5.0


def measure_kills(kills: int, parallelism: int, seed: int = 1) -> tuple[ResultRow, list[Check]]:
    """Kill random workers at random times; compare the output with the exact result, and time what a reader sees.

    A second branch lives on worker 0 alone: a kill of another worker does not concern it.
    """
    seconds = WARM_UP_S + CALM_S + kills * KILL_EVERY_S + END_S
    campaign = Campaign(seed, int(KILL_EVERY_S * 1e6))
    killer = Killer(campaign)
    source = MAIN.source(RATE_EPS, seconds=seconds)
    aside = MAIN.source(ASIDE_EPS, seconds=seconds, partitions=1, seed=1)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        directory = Path(name)
        seen, seen_aside = Witness(directory / "seen", "campaign_id"), Witness(directory / "aside")
        counted, counted_aside = MAIN.build(ps.stream("events", source)), count_as_a_whole(ps.stream("aside", aside))
        pipelines = [
            counted_aside.to(seen_aside, name="seen_aside"),
            counted_aside.to(ps.files(directory / "out_aside"), name="out_aside"),
            counted.to(seen, name="seen"),
            counted.to(ps.files(directory / "out"), name="out"),
        ]
        with ps.start(*pipelines, name="bench-kills", parallelism=parallelism) as job, ProcessMeter() as meter:
            wait_for_start(job)
            meter.restart()
            while (report := job.wait(POLL_S)) is None:
                if WARM_UP_S + CALM_S < time.time() - job.start_us / 1e6 < seconds - END_S:
                    killer(job)
                else:
                    campaign.observe(job.status())
        due = views_due(source, report.start_us, keyed=True)
        due_aside = views_due(aside, report.start_us, keyed=False)
        timelines = Timeline.of(due, seen.shown()), Timeline.of(due_aside, seen_aside.shown())
        exact = {group: len(times) for group, times in due.items()}
        found = MAIN.compare(exact, read_rows(directory / "out"), parallelism)
        rows_aside = [{"campaign_id": "", **row} for row in read_rows(directory / "out_aside")]
        found_aside = MAIN.compare({group: len(times) for group, times in due_aside.items()}, rows_aside, 1)
    lost = found.lost + found_aside.lost + report.lost
    duplicated = sum(each.duplicated + each.wrong for each in (found, found_aside)) + report.duplicated
    reordered = found.reordered + found_aside.reordered + report.reordered
    findings = campaign.findings(report)
    recoveries = _recoveries(timelines[0], findings.kills, report.start_us, seconds)
    row = _row(timelines[0], report, meter, source.total or 0)
    row.lost, row.duplicated, row.reordered = lost, duplicated, reordered
    row.note = f"{len(findings.kills)} workers killed, one every {KILL_EVERY_S:g} s; until the sink has the new count"
    exactly_once = findings.passed and not (lost or duplicated or reordered)
    return row, [
        _check_resumed(findings, recoveries, exactly_once),
        _check_normal(_calm(timelines[0], findings.kills, report.start_us), recoveries),
        _check_aside(timelines[1], job.plan, findings.kills),
    ]


def _calm(timeline: Timeline, kills: list[Kill], start_us: int) -> Timeline:
    """What came before the kills, without the warm-up."""
    return timeline.calm(start_us + WARM_UP_US, kills[0].at_us if kills else NEVER_US)


def _recoveries(timeline: Timeline, kills: list[Kill], start_us: int, seconds: float) -> list[Recovery]:
    calm_p99_us = _calm(timeline, kills, start_us).p99_us
    ends_us = [kill.at_us for kill in kills[1:]] + [start_us + int(seconds * 1e6)]
    # Without a kill there is one end too many.
    return [timeline.recovery(kill.at_us, end_us, calm_p99_us) for kill, end_us in zip(kills, ends_us, strict=False)]


def _row(timeline: Timeline, report: Report, meter: ProcessMeter, events: int) -> ResultRow:
    row = latency_row("yahoo", RATE_EPS, report, meter, None, None, None)
    row.events = events
    latency = Latency.of(timeline.between(report.start_us + WARM_UP_US, NEVER_US).latency_us)
    row.p50_ms, row.p90_ms, row.p99_ms = latency.p50, latency.p90, latency.p99
    row.p999_ms, row.max_ms = latency.p999, latency.max
    return row


def _check_resumed(findings: Findings, recoveries: list[Recovery], exactly_once: bool) -> Check:
    p95 = findings.resumed_s.p95 if findings.resumed_s else float("inf")
    return Check(
        name="output resumes after a worker is killed, p95",
        value=round(p95, 2),
        unit="s",
        target=f"<= {RESUMED_S_MAX:g}",
        met=p95 <= RESUMED_S_MAX and exactly_once,
        detail={
            "resumed": "the first epoch after the recovery is committed",
            "kills": len(findings.kills),
            "resumed_s": [kill.resumed_s for kill in findings.kills],
            "caught_up": "every event that was due before the kill is counted in what the sink has",
            "caught_up_s": [each.caught_up_s for each in recoveries],
            "silent_ms": [each.silent_ms for each in recoveries],
            "peak_ms": [each.peak_ms for each in recoveries],
            "lost, duplicated or reordered": not exactly_once,
        },
    )


def _check_normal(calm: Timeline, recoveries: list[Recovery]) -> Check:
    took = sorted(each.normal_s for each in recoveries if each.normal_s is not None)
    unfinished = len(recoveries) - len(took)
    p95 = quantile(took, 0.95) if took else 0.0
    return Check(
        name="latency is normal again after a worker is killed, p95",
        value=round(p95, 2),
        unit="s",
        target=f"<= {NORMAL_S_MAX:g}",
        met=bool(took) and not unfinished and p95 <= NORMAL_S_MAX,
        detail={
            "not before the next kill": unfinished,
            "normal": DEFINITION,
            "calm_p99_ms": round(calm.p99_us / 1000, 3),
            "normal_s": [each.normal_s for each in recoveries],
        },
    )


def _check_aside(timeline: Timeline, plan: Plan, kills: list[Kill]) -> Check:
    """Compare the longest silences of the other branch after kills that do not concern it with those before them."""
    branch = {unit.id for unit in plan.units if unit.name == "aside"}
    instances = downstream(plan, {(unit, 0) for unit in branch})
    spared = [kill for kill in kills if not instances & downstream(plan, hosted(plan, kill.worker))]
    span_us = int(ASIDE_S * 1e6)
    after_ms = [timeline.silent_us(kill.at_us, kill.at_us + span_us) / 1000 for kill in spared]
    before_ms = [timeline.silent_us(kill.at_us - span_us, kill.at_us) / 1000 for kill in spared]
    worst, usual = max(after_ms, default=0.0), max(before_ms, default=0.0)
    return Check(
        name="longest gap in a branch that the killed worker has no part in",
        value=round(worst, 1),
        unit="ms",
        target=f"<= {ASIDE_MS_MAX:g}, or {ASIDE_FACTOR:g} times the longest before these kills",
        met=bool(spared) and worst <= max(ASIDE_MS_MAX, ASIDE_FACTOR * usual),
        detail={
            "rate": ASIDE_EPS,
            "looked at": f"{ASIDE_S:g} s after and before each kill of a worker that the branch has no instance on",
            "after_ms": after_ms,
            "before_ms": before_ms,
        },
    )


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
