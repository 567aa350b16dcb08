"""Keyed operations on one worker: ``python benchmarks/keyed.py [NAME …] [SECONDS]``.

Latency at a fixed rate, counted from when a record was scheduled, after a warm-up. ``join``: 20,000 + 20,000 records/s
of two streams, by key within a second. ``distinct``: drop_duplicates over a million keys within ten minutes, at 50,000
records/s. ``count``: a running count of a million keys, at 20,000 records/s. ``carried``: how many records/s a running
count takes, with a thousand and with a million keys. ``close``: how long records wait that pass by a window of many
keys as it closes; ``kept``: one that is kept after that; ``early``: one with early results.
"""

from __future__ import annotations

import sys
from time import monotonic

import penstock as ps
from asking import words
from penstock.runtime.report import Report

KEYS = 1_000_000


def side(name: str, other: str, rate: int, keys: int) -> ps.Stream:
    """Records with a key, a number and an event time."""
    fields = {"k": ps.fields.integers(0, keys - 1), other: ps.fields.sequence(), "at": ps.fields.event_time(unit="us")}
    return ps.stream(name, ps.generator(fields, rate=rate, seed=len(name), format="columns"))


def pipelines() -> dict[str, ps.Pipeline]:
    """What is measured."""
    views, clicks = side("views", "v", 20_000, KEYS), side("clicks", "c", 20_000, KEYS)
    joined = views.join(clicks, on="k", time="at", within="1s")
    distinct = side("events", "n", 50_000, KEYS).drop_duplicates("k", on="at", within="10m")
    return {
        "join": joined.to(ps.foreach(_nothing)),
        "distinct": distinct.to(ps.foreach(_nothing)),
        "count": counting(KEYS, 20_000),
    }


def counting(keys: int, rate: int | None) -> ps.Pipeline:
    """A running count, whose first records touch every key once."""
    fields = {"n": ps.fields.sequence(), "drawn": ps.fields.integers(0, keys - 1)}
    events = ps.stream("events", ps.generator(fields, rate=rate, format="columns"))
    key = ps.when(ps.col("n") < keys, ps.col("n")).otherwise(ps.col("drawn"))
    return events.select("n", k=key).key_by("k").count().to(ps.foreach(_nothing))


def carried(seconds: int) -> None:
    """Print how many records a second a running count of few and of many keys takes."""
    found = {}
    for keys in (1_000, KEYS):
        with ps.start(counting(keys, None), parallelism=1, forms="record", name="bench-carried") as job:
            while _counted(job) < 2 * KEYS:
                job.wait(0.1)
            before, since = _counted(job), monotonic()
            job.wait(seconds)
            found[keys] = (_counted(job) - before) / (monotonic() - since)
            job.stop()
        sys.stdout.write(f"carried: {keys:,} keys {found[keys]:,.0f} records/s\n")
        sys.stdout.flush()
    sys.stdout.write(f"carried: a million keys leave {found[KEYS] / found[1_000]:.2f} of what a thousand carry\n")


CLOSING: dict[str, dict[str, str]] = {"close": {}, "kept": {"allowed_lateness": "5s"}, "early": {"early": "12500ms"}}
"""Windows whose close is measured, by their options."""


def closing(name: str, seconds: int) -> None:
    """Print how long records waited that pass by windows of a million keys, which close every 25 s."""
    fields = {"n": ps.fields.sequence(), "at": ps.fields.event_time(unit="us")}
    events = ps.stream("events", ps.generator(fields, rate=50_000, format="columns"))
    window = ps.tumbling("25s", on="at", **CLOSING[name])
    closed = events.select("at", k=ps.col("n") % KEYS).key_by("k").window(window).count()
    late = ps.rates.steps([("15s", 0), ("1s", 1_000)])  # the warm-up is over then
    beside = ps.stream("beside", ps.generator(fields, rate=late, format="columns"))
    beside = beside.filter(ps.col("n") >= 0, name="passing")
    pipeline = closed.to(ps.foreach(_nothing)) + beside.to(ps.foreach(_nothing))
    with ps.start(pipeline, parallelism=1, forms="record", name=f"bench-{name}") as job:
        report = _measured(job, seconds)
    found = {each.name: each for each in report.operations}
    passing, rows = found["passing"], found["count"].records_out
    told = f"p50 {passing.total_p50_ms} p99 {passing.total_p99_ms} max {passing.total_max_ms} ms"
    sys.stdout.write(f"{name}: {told} beside {rows:,} results\n")
    sys.stdout.flush()


def _measured(job: ps.Job, seconds: int) -> Report:
    """Warm up, measure, and end."""
    while not job.began_us:
        job.wait(0.1)
    until = monotonic() + seconds / 4
    while monotonic() < until:
        job.wait(0.1)
    job.begin_measuring()
    job.wait(seconds)
    job.drain()
    report = job.wait()
    assert report is not None
    return report


def _counted(job: ps.Job) -> int:
    return sum(each.records_in for each in job.status().operations if each.name == "count.combine")


def _nothing(_row: object) -> None:
    pass


def main() -> None:
    """Measure, and print a line for each."""
    chosen, seconds = words(__doc__, [*pipelines(), "carried", *CLOSING], 30)
    for name in chosen:
        if name == "carried":
            carried(seconds)
            continue
        if name in CLOSING:
            closing(name, seconds)
            continue
        with ps.start(pipelines()[name], parallelism=1, name=f"bench-{name}") as job:
            report = _measured(job, seconds)
        figures = {each.name: each.records_in for each in report.operations}
        sys.stdout.write(f"{name}: {report.latency_ms} lost={report.lost} late={report.late} {figures}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
