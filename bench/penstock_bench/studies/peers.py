"""Structured Streaming beside our own runs, where a study has a place for it and was asked to."""

from __future__ import annotations

from penstock_bench.engines import RunOptions, open_engine, subject
from penstock_bench.meter.runner import measure, new_run
from penstock_bench.studies.base import Desk
from penstock_bench.studies.short.peer_throughput import measure_apart

ENGINE = "spark:sql"
EVENTS = 2_400_000
QUICK_EVENTS = 200_000
FILES_PER_BATCH = (2, 6)
"""Of 100,000 events each: the better one counts."""


def measure_peer(desk: Desk, workload: str, rate: float, seconds: float) -> None:
    """Measure its latency at a rate, fed and judged like every engine."""
    options = RunOptions(parallelism=desk.options.parallelism)
    row, _ = measure(open_engine(ENGINE), subject(workload), rate, seconds, options, new_run())
    desk.add(row)


def sustained_peer(desk: Desk) -> None:
    """Measure the throughput of its Yahoo query on input that lies ready in files."""
    for files in FILES_PER_BATCH[: 1 if desk.options.quick else None]:
        desk.add(measure_apart("yahoo", QUICK_EVENTS if desk.options.quick else EVENTS, files))
