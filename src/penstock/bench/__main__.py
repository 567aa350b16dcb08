"""``make bench``: the short set of measurements, its table on the screen and its JSON in benchmarks/results."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from penstock.bench import structured_streaming
from penstock.bench.checks import check_idle, check_overhead, check_slow_consumer, check_start
from penstock.bench.failure import RATE_EPS, check_cost, measure_kills
from penstock.bench.measure import BACKLOG_S_MAX, STEP_S, WARM_UP_S, measure_latency, measure_sustained
from penstock.bench.peer_failure import Victim, measure_peer
from penstock.bench.rows import Check, ResultRow, Results, make_header
from penstock.bench.workloads import WORKLOADS
from penstock.runtime.spark import close_session, open_session

PARALLELISM = 2
LATENCY_RATES = {
    "yahoo": (4_000, 20_000, 100_000, 250_000),
    "wordcount": (4_000, 20_000),
    "grep": (4_000, 20_000, 100_000),
}
FIRST_RATES = {"yahoo": 300_000, "wordcount": 20_000, "grep": 300_000, "scoring": 10_000}
SPARK_EVENTS = 2_400_000
SPARK_FILES_PER_BATCH = 2


def main() -> None:
    """Measure, show, and write the results."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--seconds", type=float, default=15.0, help="length of each latency measurement")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/latest.json"))
    parser.add_argument("--kills", type=int, default=12, help="workers killed in the measurement of recovery")
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
                "spark": structured_streaming.SETTINGS,
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

    check(check_start())
    check(check_overhead(500_000))
    session = open_session("local", PARALLELISM, "bench")
    try:
        check(check_idle(10.0, PARALLELISM))
        check(check_slow_consumer(12.0, PARALLELISM))
        row, recovered = measure_kills(options.kills, PARALLELISM)
        add(row)
        for each in recovered:
            check(each)
        check(check_cost(8.0, PARALLELISM))
        for name, rates in LATENCY_RATES.items():
            for rate in rates:
                add(measure_latency(WORKLOADS[name], rate, options.seconds, PARALLELISM))
        for name, first_rate in FIRST_RATES.items():
            add(measure_sustained(WORKLOADS[name], first_rate, PARALLELISM))
    finally:
        close_session()
        del session
    if not options.no_peer:
        add(_peer("latency", 4_000, options.seconds))
        add(_peer("sustained", SPARK_EVENTS, SPARK_FILES_PER_BATCH))
        for victim in Victim:
            row, caught_up = measure_peer(victim, RATE_EPS)
            add(row)
            check(caught_up)
    console.print(_table(results))
    for line in _ratios(results):
        console.print(line)


def _peer(what: str, first: float, second: float) -> ResultRow:
    command = [sys.executable, "-m", "penstock.bench.structured_streaming", what, str(first), str(second)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return msgspec.convert(json.loads(done.stdout.splitlines()[-1]), ResultRow)


def _line(row: ResultRow) -> str:
    if row.sustained_eps is not None:
        return f"{row.workload} on {row.engine}: sustains {row.sustained_eps:,.0f} events/s ({row.note})"
    return (
        f"{row.workload} on {row.engine} at {row.rate:,.0f}/s: p50 {row.p50_ms:.2f} ms, p99 {row.p99_ms:.2f} ms, "
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


def _ratios(results: Results) -> list[str]:
    """Compare with the peer inside this run."""
    found = {(r.engine, r.rate): r for r in results.rows if r.workload == "yahoo"}
    ours, theirs = found.get(("penstock", 4_000)), found.get(("spark", 4_000))
    lines = []
    if ours and theirs and ours.p50_ms and theirs.p50_ms:
        lines.append(f"yahoo at 4,000/s, p50: {theirs.p50_ms / ours.p50_ms:,.0f} times below Structured Streaming")
    ours, theirs = found.get(("penstock", None)), found.get(("spark", None))
    if ours and theirs and ours.sustained_eps and theirs.sustained_eps:
        ratio = ours.sustained_eps / theirs.sustained_eps
        lines.append(f"yahoo, sustained in record form: {ratio:.2f} times Structured Streaming's batches")
    return lines


if __name__ == "__main__":
    main()
