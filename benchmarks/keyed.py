"""Latency of keyed operations at a fixed rate: ``python benchmarks/keyed.py [join|distinct] [SECONDS]``.

``join``: 20,000 + 20,000 records/s of two streams, by key within a second. ``distinct``: drop_duplicates over a million
keys within ten minutes, at 50,000 records/s. Latency counts from when a record was scheduled, after a warm-up.
"""

from __future__ import annotations

import sys
from time import monotonic

import penstock as ps

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
    }


def _nothing(_row: object) -> None:
    pass


def main() -> None:
    """Measure, and print a line for each."""
    chosen = [each for each in sys.argv[1:] if not each.isdigit()] or list(pipelines())
    seconds = next((int(each) for each in sys.argv[1:] if each.isdigit()), 30)
    for name in chosen:
        with ps.start(pipelines()[name], parallelism=1, name=f"bench-{name}") as job:
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
        figures = {each.name: each.records_in for each in report.operations}
        sys.stdout.write(f"{name}: {report.latency_ms} lost={report.lost} late={report.late} {figures}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
