"""The format of results: one row per measurement, one header per file. Run as a program it prints the JSON Schema."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from typing import Any, TypeVar, get_origin

import msgspec

import penstock
from penstock.metrics import Histogram
from penstock.metrics.histogram import bucket_bound

T = TypeVar("T")


class ProcessUsage(msgspec.Struct, kw_only=True):
    """A process of a run, or several of the same name together."""

    name: str
    processes: int = 1
    cpu_cores: float
    pss_mb: float | None = None
    """The most memory it had, pages that several processes share counted in parts."""
    rss_mb: float | None = None
    """In results of earlier versions: shared pages counted in each process."""

    @property
    def memory_mb(self) -> float | None:
        return self.rss_mb if self.pss_mb is None else self.pss_mb


class OperationRow(msgspec.Struct, kw_only=True):
    """One operation of a run: how long a record took from the end of the operation before to the end of this one."""

    name: str
    form: str
    latency_ms: float
    """On average, the way between processes included."""
    components_ms: dict[str, float]


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
    pss_mb: float | None = None
    """The most memory that all processes had, pages that several share counted once."""
    rss_mb: float | None = None
    """In results of earlier versions: shared pages counted in each process."""
    lost: int | None = None
    duplicated: int | None = None
    reordered: int | None = None
    late: int | None = None
    note: str = ""
    run: str = ""
    """Which run of the runner it belongs to."""
    variant: str = ""
    version: str = ""
    """Of the engine, as its variant is."""
    warm_up_s: float | None = None
    """Seconds at the schedule's beginning that were run and checked but not measured."""
    results: int | None = None
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
    mean_ms: float | None = None
    cdf: list[tuple[float, float]] = []
    """Shares of the events, each with the latency in milliseconds that it does not exceed."""
    components_ms: dict[str, float] = {}
    """Where the mean latency went: out, wait, schedule, process, transmit."""
    operations: list[OperationRow] = []

    @property
    def memory_mb(self) -> float | None:
        return self.rss_mb if self.pss_mb is None else self.pss_mb

    @property
    def faults(self) -> dict[str, int]:
        """What is not exact in the output, by its kind; empty where nothing is, or nothing was compared."""
        counts = {"lost": self.lost, "duplicated": self.duplicated, "wrong": self.wrong, "reordered": self.reordered}
        return {name: count for name, count in counts.items() if count}


class Check(msgspec.Struct):
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


class Claim(msgspec.Struct):
    """A figure of a paper, in words, beside ours."""

    source: str
    claimed: str
    """And on what it was measured."""
    measured: str
    holds: bool | None
    """None where the two cannot be compared."""


class StudyNotes(msgspec.Struct, kw_only=True):
    """A question that was put to the engine, after a paper."""

    name: str
    title: str
    method: str
    complete: bool
    """False: it was interrupted, and this is what there is."""
    quick: bool
    """A trial of the study itself: too short for its figures to mean anything."""
    claims: list[Claim] = []
    data: dict[str, object] = {}
    """What fits neither rows nor checks; the study's own module knows its shape."""


class Results(msgspec.Struct, kw_only=True):
    """One run of the benchmarks."""

    header: Header
    rows: list[ResultRow]
    checks: list[Check]
    study: StudyNotes | None = None

    @property
    def machine(self) -> str:
        """On what it was measured, in words."""
        return f"one machine with {self.header.cores} cores and {self.header.memory_gb:g} GB"

    def rows_of(
        self,
        workload: str | None = None,
        form: str | None = None,
        rate: float | None = None,
        engine: str = "penstock",
        *,
        having: str = "p99_ms",
        **settings: object,
    ) -> list[ResultRow]:
        """Return the rows of this description in which a figure is known; what is None may be anything."""
        wanted = {"workload": workload, "form": form, "rate": rate, "engine": engine}
        return [
            row
            for row in self.rows
            if all(value in (None, getattr(row, name)) for name, value in wanted.items())
            and settings.items() <= row.settings.items()
            and getattr(row, having) is not None
        ]

    def pick(self, *description: Any, **more: Any) -> ResultRow | None:
        """Return the last row of a description; see `rows_of`."""
        return next(reversed(self.rows_of(*description, **more)), None)

    def data(self, name: str, kind: type[T]) -> T:
        """Return what a study has put under a name, as the type that it is of; empty where there is nothing."""
        found = self.study.data.get(name) if self.study is not None else None
        return msgspec.convert(([] if get_origin(kind) is list else {}) if found is None else found, kind)


CDF_SHARES = (0.01, *(i / 20 for i in range(1, 20)), 0.98, 0.99, 0.995, 0.999, 0.9995, 0.9999, 1.0)


def cdf_of(latency_us: Histogram) -> list[tuple[float, float]]:
    """Read a histogram of microseconds as shares of the events with their latencies in milliseconds."""
    if not latency_us.total:
        return []
    return [(share, latency_us.quantile(share) / 1000) for share in CDF_SHARES]


def mean_ms_of(latency_us: Histogram) -> float | None:
    """Mean of a histogram of microseconds, in milliseconds: at most 3 % too high."""
    if not latency_us.total:
        return None
    sum_us = sum(bucket_bound(bucket) * times for bucket, times in latency_us.counts.items())
    return round(sum_us / latency_us.total / 1000, 4)


def latency_fields(latency_us: Histogram) -> dict[str, Any]:
    """Percentiles, mean and distribution of a histogram of microseconds, as a row has them."""
    if not latency_us.total:
        return {}
    quantiles = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "p999_ms": 0.999}
    found: dict[str, Any] = {name: latency_us.quantile(q) / 1000 for name, q in quantiles.items()}
    return {**found, "max_ms": latency_us.maximum / 1000, "mean_ms": mean_ms_of(latency_us), "cdf": cdf_of(latency_us)}


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
    # Details and settings may hold anything.
    return msgspec.json.schema(Results, schema_hook=lambda _: {"description": "any value"})


if __name__ == "__main__":
    print(msgspec.json.format(msgspec.json.encode(results_schema()), indent=2).decode())
