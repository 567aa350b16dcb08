"""How fast events are made: the generator alone, in a process of its own on one core; the short set asks.

As a program, with a workload file as its argument, it is that process, and prints what it measured as JSON.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from penstock.connectors.base import Run
from penstock.connectors.generator import Generator
from penstock_bench.meter.rows import Check
from penstock_bench.studies.base import process
from penstock_bench.studies.findings import at_least
from penstock_bench.workloads.base import Workload

WORKLOAD_FILE = Path("benchmarks/workloads/listing-4.1.json")
BATCH_EPS_MIN, RECORD_EPS_MIN = 2_000_000.0, 500_000.0
SLICE_S, RUN_S_MAX = 0.4, 120.0
ROUNDS = 3
"""The best of so many: whatever else the machine does makes a generator slower, nothing makes it faster."""
BATCH_RECORDS, POLL_RECORDS = 20_000, 4_096
OFFERED_EPS = 100_000_000.0
NOW_US = 60_000_000
"""Scheduled, as in a benchmark, and read a minute late: more is due than can be made, so that nothing is waited for."""


class Speed(msgspec.Struct):
    source: str
    batch_eps: float
    record_eps: float
    event_bytes: float
    """Of an event on average, as Arrow holds it."""


class Speeds(msgspec.Struct):
    core: int | None
    """None where processes cannot be bound to one."""
    speeds: list[Speed]


def check_generator(file: Path = WORKLOAD_FILE) -> list[Check]:
    """Measure how many events a second the generator makes on one core: as batches, and record by record.

    Of two sources, that of the Yahoo benchmark and that of a workload file; the slower one counts. Takes about 8 s.
    """
    _sources(file)  # what is wrong with the file is told here
    with process("generator_speed", file) as program:
        return judge(msgspec.convert(program.message("found", RUN_S_MAX), Speeds))


def judge(found: Speeds) -> list[Check]:
    """Hold the slowest source against the targets. Pure."""
    how = "no core of its own" if found.core is None else f"bound to core {found.core}"
    checks = []
    for form, least_eps in (("batch", BATCH_EPS_MIN), ("record", RECORD_EPS_MIN)):
        by_source = {each.source: float(getattr(each, f"{form}_eps")) for each in found.speeds}
        detail: dict[str, object] = {
            "by source": {source: round(eps) for source, eps in by_source.items()},
            "bytes of an event": {each.source: round(each.event_bytes) for each in found.speeds},
            "how": f"one process, {how}; best of {ROUNDS} times {SLICE_S:g} s",
        }
        name, slowest_eps = f"generator, {form} form, one core", min(by_source.values())
        checks.append(at_least(name, slowest_eps, "events/s", least_eps, detail, digits=0))
    return checks


def measure(name: str, source: Generator) -> Speed:
    """Read a source in both forms, in turns, as fast as it goes."""
    made = [(_rate_eps(_batches(source)), _rate_eps(_polls(source))) for _ in range(ROUNDS)]
    columns = source.reader(0, 1, 0).read(Run(0, POLL_RECORDS)).columns
    batch_eps, record_eps = (max(each) for each in zip(*made, strict=True))
    return Speed(name, batch_eps, record_eps, columns.nbytes / columns.num_rows)


def _rate_eps(read: Callable[[], int]) -> float:
    read()  # tables that are made once
    began, count = time.perf_counter(), 0
    while (took_s := time.perf_counter() - began) < SLICE_S:
        count += read()
    return count / took_s


def _batches(source: Generator) -> Callable[[], int]:
    reader, firsts = source.reader(0, 1, 0), itertools.count(0, BATCH_RECORDS)
    return lambda: reader.read(Run(next(firsts), BATCH_RECORDS)).columns.num_rows


def _polls(source: Generator) -> Callable[[], int]:
    reader = source.reader(0, 1, 0)

    def poll() -> int:
        batch = reader.poll(NOW_US, POLL_RECORDS)
        assert batch is not None
        return len(batch.rows)

    return poll


def bind() -> int | None:
    """Bind this process to one of its cores, where that can be done; returns which."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    return core


def _sources(file: Path) -> dict[str, Workload[Any]]:
    from penstock_bench.files.workload import file_workload
    from penstock_bench.workloads import WORKLOADS

    return {"yahoo": WORKLOADS["yahoo"], file.stem: file_workload(file)}


if __name__ == "__main__":
    core = bind()
    made = [measure(name, each.source(OFFERED_EPS)) for name, each in _sources(Path(sys.argv[1])).items()]
    print(json.dumps({"found": msgspec.to_builtins(Speeds(core, made))}), flush=True)
