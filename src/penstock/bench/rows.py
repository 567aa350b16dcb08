"""The format of results: one row per measurement, one header per file. Run as a program it prints the JSON Schema."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from typing import Any

import msgspec

import penstock


class ProcessUsage(msgspec.Struct, kw_only=True):
    """A process of a run, or several of the same name together."""

    name: str
    """What it does, where that is known, else the program's name."""
    processes: int = 1
    cpu_cores: float
    rss_mb: float
    """The most it had."""


class ResultRow(msgspec.Struct, kw_only=True):
    """One measurement. Latencies count from the scheduled time of an event; null means: not measured here."""

    workload: str
    engine: str
    form: str
    rate: float | None
    """Offered events per second; null for a search of the maximum."""
    seconds: float
    events: int
    p50_ms: float | None = None
    p90_ms: float | None = None
    p99_ms: float | None = None
    p999_ms: float | None = None
    max_ms: float | None = None
    sustained_eps: float | None = None
    capacity_eps: float | None = None
    """What got through when more was offered than can be carried."""
    cpu_cores: float | None = None
    """Of all processes: driver, JVM and workers."""
    rss_mb: float | None = None
    lost: int | None = None
    duplicated: int | None = None
    reordered: int | None = None
    late: int | None = None
    note: str = ""
    run: str = ""
    """Which run of the runner it belongs to."""
    variant: str = ""
    """Of the engine."""
    version: str = ""
    """Of the engine."""
    warm_up_s: float | None = None
    """Seconds at the schedule's beginning that were run and checked but not measured."""
    results: int | None = None
    """Rows that came out."""
    wrong: int | None = None
    """Rows that no input explains."""
    throughput_eps: float | None = None
    """Events per second whose result came out in the measured time."""
    backlog_growth: float | None = None
    """By how much events that are due and not out grew, as a share of the events offered."""
    sustained: bool | None = None
    generator_lag_ms: float | None = None
    """How late the generator handed events over, 99th percentile: back-pressure, or the generator's own limit."""
    processes: list[ProcessUsage] = []
    settings: dict[str, object] = {}
    """What is not the engine's default."""


class Check(msgspec.Struct, kw_only=True):
    """One figure that is not a latency: start-up, idle cost, bounded memory, overhead."""

    name: str
    value: float
    unit: str
    target: str
    met: bool
    detail: dict[str, object] = {}


class Header(msgspec.Struct, kw_only=True):
    """What was measured, on what."""

    penstock: str
    python: str
    spark: str
    pyarrow: str
    java: str
    machine: str
    cores: int
    memory_gb: float
    settings: dict[str, object]


class Results(msgspec.Struct, kw_only=True):
    """One run of the benchmarks."""

    header: Header
    rows: list[ResultRow]
    checks: list[Check]


def make_header(settings: dict[str, object]) -> Header:
    """Describe this machine and these versions."""
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr.splitlines()
    return Header(
        penstock=penstock.__version__,
        python=platform.python_version(),
        spark=version("pyspark"),
        pyarrow=version("pyarrow"),
        java=java[0] if java else "",
        machine=f"{platform.system()} {platform.machine()}",
        cores=os.cpu_count() or 1,
        memory_gb=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        settings=settings,
    )


def results_schema() -> dict[str, Any]:
    """The JSON Schema of a file of results; published as benchmarks/results.schema.json."""
    return msgspec.json.schema(Results, schema_hook=_anything)


def _anything(kind: type) -> dict[str, Any]:
    del kind  # details and settings may hold anything
    return {"description": "any value"}


if __name__ == "__main__":
    print(msgspec.json.format(msgspec.json.encode(results_schema()), indent=2).decode())
