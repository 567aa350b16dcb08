"""``make bench``: the short set of measurements, its table on the screen and its JSON in benchmarks/results."""

from __future__ import annotations

import argparse
import sys
from enum import Enum
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from penstock.pipeline.options import Forms
from penstock.runtime.spark import close_session, open_session
from penstock_bench.engines import RunOptions, open_engine, subject
from penstock_bench.engines.spark_session import SETTINGS
from penstock_bench.meter.measure import BACKLOG_S_MAX, STEP_S, WARM_UP_S, measure_latency, measure_sustained
from penstock_bench.meter.rows import Check, ResultRow, Results, make_header
from penstock_bench.meter.runner import measure, new_run
from penstock_bench.studies.generator_speed import check_generator
from penstock_bench.studies.jobs import carry
from penstock_bench.studies.short.checks import check_idle, check_overhead, check_slow_consumer, check_start
from penstock_bench.studies.short.failure import RATE_EPS, check_cost, measure_kills
from penstock_bench.studies.short.peer_failure import Victim, measure_peer
from penstock_bench.studies.short.peer_throughput import measure_apart
from penstock_bench.studies.short.ratios import compared
from penstock_bench.studies.short.switching import check_tuned, measure_burst, measure_groups, measure_hand_overs
from penstock_bench.workloads import WORKLOADS

PARALLELISM = 2
RECORD, BATCH, ADAPTIVE = Forms.RECORD.value, Forms.BATCH.value, Forms.ADAPTIVE.value
LATENCY_RATES = {
    "yahoo": (
        *((rate, forms) for rate in (4_000, 20_000) for forms in (RECORD, ADAPTIVE, BATCH)),
        (100_000, RECORD),
        (250_000, RECORD),
    ),
    "wordcount": ((4_000, RECORD), (20_000, ADAPTIVE)),
    "grep": ((4_000, RECORD), (100_000, ADAPTIVE)),
}
THROUGHPUT = {
    "yahoo": (4_000_000, (RECORD, BATCH, ADAPTIVE)),
    "wordcount": (4_000_000, (RECORD, BATCH)),
    "grep": (12_000_000, (RECORD, BATCH)),
    "scoring": (12_000_000, (RECORD, BATCH, ADAPTIVE)),
}
"""By workload: more events/s than any form carries, and the forms."""
CAPACITY_S = 5.0
BURST_EPS = (10_000, 500_000)
PEER_RATES = {"yahoo": 4_000, "wordcount": 4_000, "grep": 4_000}
PEER_FILES = (
    ("yahoo", 2_400_000, 6),
    ("wordcount", 1_200_000, 3),
    ("grep", 2_400_000, 6),
)
"""Workload, events, and how many files of 100,000 events each make a micro-batch."""


class Part(Enum):
    """What can be measured by itself."""

    GENERATOR = "generator"
    START = "start"
    KILLS = "kills"
    LATENCY = "latency"
    THROUGHPUT = "throughput"
    BURST = "burst"
    HAND_OVERS = "hand-overs"
    GROUPS = "groups"
    PEER = "peer"
    PEER_KILLS = "peer-kills"

    def __str__(self) -> str:
        return self.value


SHORT = frozenset(Part) - {Part.PEER_KILLS}
"""All but what `study failure --peer` does as well: the short set is to take less than 15 minutes."""


def main() -> None:
    """Measure, show, and write the results."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument(
        "--only", type=Part, nargs="+", choices=list(Part), help="these parts only; all but peer-kills by default"
    )
    parser.add_argument("--switches", type=int, default=100, help="hand-overs under load")
    parser.add_argument("--seconds", type=float, default=6.0, help="length of each latency measurement")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/latest.json"))
    parser.add_argument("--kills", type=int, default=6, help="workers killed in the measurement of recovery")
    parser.add_argument("--no-peer", action="store_true", help="leave Structured Streaming out")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    console = Console(width=None if sys.stdout.isatty() else 150, soft_wrap=True)
    results = Results(
        header=make_header(
            {
                "parallelism": PARALLELISM,
                "seconds": options.seconds,
                "warm_up_s": WARM_UP_S,
                "epoch": "1s",
                "search": f"steps of {STEP_S:g} s; sustained: backlog below {BACKLOG_S_MAX:g} s of input",
                "spark": SETTINGS,
            }
        ),
        rows=[],
        checks=[],
    )

    def add(row: ResultRow) -> None:
        results.rows.append(row)
        console.print(_line(row))
        options.out.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n")

    def check(found: Check) -> None:
        results.checks.append(found)
        mark = "ok" if found.met else "MISSED"
        console.print(f"{found.name}: {found.value:g} {found.unit} (target {found.target}) {mark}")
        options.out.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n")

    def checks(found: list[Check]) -> None:
        for each in found:
            check(each)

    wanted = SHORT if options.only is None else frozenset(options.only)
    if Part.GENERATOR in wanted:
        checks(check_generator())
    if Part.START in wanted:
        check(check_start())
        check(check_overhead(500_000))
    session = open_session("local", PARALLELISM, "bench")
    try:
        if Part.START in wanted:
            check(check_idle(10.0, PARALLELISM))
            check(check_slow_consumer(12.0, PARALLELISM))
        if Part.KILLS in wanted:
            row, recovered = measure_kills(options.kills, PARALLELISM)
            add(row)
            checks(recovered)
            check(check_cost(8.0, PARALLELISM))
        if Part.LATENCY in wanted:
            for name, rates in LATENCY_RATES.items():
                for rate, forms in rates:
                    add(measure_latency(WORKLOADS[name], rate, options.seconds, PARALLELISM, forms))
        if Part.THROUGHPUT in wanted:
            for name, (offered_eps, wanted_forms) in THROUGHPUT.items():
                for forms in wanted_forms:
                    carried = carry(WORKLOADS[name], offered_eps, CAPACITY_S, PARALLELISM, forms)
                    add(carried)
                    add(measure_sustained(WORKLOADS[name], carried.capacity_eps or 1.0, PARALLELISM, forms))
        if Part.BURST in wanted:
            for forms in (ADAPTIVE, RECORD):
                row, found = measure_burst(WORKLOADS["scoring"], *BURST_EPS, PARALLELISM, forms)
                add(row)
                checks(found)
        if Part.HAND_OVERS in wanted:
            row, found = measure_hand_overs(options.switches, RATE_EPS, PARALLELISM)
            add(row)
            checks(found)
        if Part.GROUPS in wanted:
            checks(measure_groups(PARALLELISM, (1, 10, 100), 3.0))
            checks(check_tuned(12.0, PARALLELISM))
    finally:
        close_session()
        del session
    if Part.PEER in wanted and not options.no_peer:
        for name, rate in PEER_RATES.items():
            row, _ = measure(open_engine("spark:sql"), subject(name), rate, options.seconds, RunOptions(), new_run())
            add(row)
        for name, events, files in PEER_FILES:
            add(measure_apart(name, events, files))
    if Part.PEER_KILLS in wanted and not options.no_peer:
        for victim in Victim:
            row, caught_up = measure_peer(victim, RATE_EPS)
            add(row)
            check(caught_up)
    checks(compared(results))
    console.print(_table(results))


def _line(row: ResultRow) -> str:
    if row.sustained_eps is not None:
        return f"{row.workload} on {row.engine}, {row.form}: sustains {row.sustained_eps:,.0f} events/s ({row.note})"
    if row.capacity_eps is not None:
        return f"{row.workload} on {row.engine}, {row.form}: carries {row.capacity_eps:,.0f} events/s ({row.note})"
    if row.p50_ms is None or row.max_ms is None:
        return f"{row.workload} on {row.engine}, {row.form}: p99 {row.p99_ms:,.1f} ms ({row.note})"
    return (
        f"{row.workload} on {row.engine}, {row.form}, at {row.rate:,.0f}/s: "
        f"p50 {row.p50_ms:.2f} ms, p99 {row.p99_ms:.2f} ms, "
        f"max {row.max_ms:.1f} ms; lost {row.lost}, duplicated {row.duplicated}, reordered {row.reordered}"
    )


def _table(results: Results) -> Table:
    table = Table("workload", "engine", "form", title="Penstock benchmarks")
    for name in (
        "rate/s",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "max ms",
        "sustained/s",
        "carried/s",
        "cores",
        "RSS MB",
        "lost",
        "dup",
        "reord",
    ):
        table.add_column(name, justify="right")
    for row in results.rows:
        numbers = (
            row.rate,
            row.p50_ms,
            row.p99_ms,
            row.p999_ms,
            row.max_ms,
            row.sustained_eps,
            row.capacity_eps,
            row.cpu_cores,
            row.rss_mb,
        )
        counts = (row.lost, row.duplicated, row.reordered)
        table.add_row(
            row.workload,
            row.engine,
            row.form,
            *("" if n is None else f"{n:,.0f}" if n >= 1000 else f"{n:.2f}" for n in numbers),
            *("" if n is None else f"{n:,}" for n in counts),
        )
    return table


if __name__ == "__main__":
    main()
