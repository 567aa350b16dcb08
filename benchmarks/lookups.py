"""Lookups in Redis: ``python benchmarks/lookups.py [WORDS …] [SECONDS]``; the server is started here, and ended.

Latency at 20,000 records/s, from when a record was scheduled, after a warm-up: ``none`` (no lookup, what the pipeline
itself takes), ``string`` and ``hash`` (``ps.redis_table`` in record form), ``async`` (``map_async`` that asks for all
that waits in one call). Throughput, as fast as records come through: ``calls`` (a function that asks for each record),
``records`` and ``batches`` (``ps.redis_table`` in record form and in batch form). Before them, a round trip of one GET.
"""

from __future__ import annotations

import os
import sys
from time import monotonic, perf_counter
from typing import Any

import penstock as ps
from asking import words
from penstock_bench.engines.redis_server import serving
from penstock_bench.workloads.lookup import ADDRESS, SEGMENT_OF_USER, TABLE, USERS, client, enrich

RATE = 20_000
UNBOUNDED = 10_000_000
"""More records per second than anything here carries."""
LATENCIES, THROUGHPUTS = ("none", "string", "hash", "async"), ("calls", "records", "batches")


def asked(where: str) -> Any:
    """Make an operation that asks for a record, and for all that wait at once."""
    clients: list[Any] = []

    @ps.op(schema="number bigint not null, segment string")
    async def segment(record: Any) -> tuple[int, str | None]:
        (found,) = await many([record])
        return found

    async def many(records: list[Any]) -> list[tuple[int, str | None]]:
        if not clients:
            from redis.asyncio import Redis

            clients.append(Redis.from_url(f"redis://{where}/0"))  # one for each worker
        found = await clients[0].mget([b"user:%d" % record.user for record in records])
        return [(r.number, None if f is None else f.decode()) for r, f in zip(records, found, strict=True)]

    segment.many(many)
    return segment


def pipeline(word: str, where: str) -> ps.Pipeline:
    """Build what a word stands for."""
    rate = RATE if word in LATENCIES else UNBOUNDED
    fields = {"number": ps.fields.sequence(), "user": ps.fields.integers(0, USERS - 1)}
    events = ps.stream("events", ps.generator(fields, rate=rate, seed=7, format="columns"))
    url, schema = f"redis://{where}/0", "user bigint, segment string"
    if word == "async":
        events = events.map_async(asked(where), capacity=4)
    elif word == "calls":
        events = events.map(enrich(where))
    elif word != "none":
        layout, prefix = ("hash", "hash") if word == "hash" else ("string", "user")
        table = ps.redis_table(url, schema=schema, key="user", prefix=prefix, layout=layout)
        events = events.lookup(table, on="user", how="left")
    return events.to(ps.foreach(_nothing))


def _nothing(_row: object) -> None:
    pass


def round_trip(where: str) -> str:
    """Ask for one key again and again."""
    took = []
    for i in range(5_000):
        began = perf_counter()
        client(where).get(b"user:%d" % (i % USERS))
        took.append(1e3 * (perf_counter() - began))
    took.sort()
    return f"p50 {took[len(took) // 2]:.2f} ms, p99 {took[len(took) * 99 // 100]:.2f} ms"


def measure(word: str, where: str, seconds: int) -> str:
    """Run a pipeline for a while, after a warm-up of a quarter of it."""
    forms = "batch" if word == "batches" else "record"
    with ps.start(pipeline(word, where), parallelism=1, name=f"bench-redis-{word}", forms=forms) as job:
        while not job.began_us:
            job.wait(0.1)
        until = monotonic() + max(2, seconds / 4)
        while monotonic() < until:
            job.wait(0.1)
        job.begin_measuring()
        before, began = _out(job), monotonic()
        job.wait(seconds)
        rate = (_out(job) - before) / (monotonic() - began)
        job.drain() if word in LATENCIES else job.stop()
        report = job.wait()
    assert report is not None
    return f"{report.latency_ms} lost={report.lost}" if word in LATENCIES else f"{rate:,.0f} records/s"


def _out(job: ps.Job) -> int:
    return job.status().operations[-1].records_in


def main() -> None:
    """Measure, and print a line for each."""
    chosen, seconds = words(__doc__, [*LATENCIES, *THROUGHPUTS], 15)
    with serving(TABLE):
        where = os.environ[ADDRESS]
        for user, segment in SEGMENT_OF_USER.items():
            client(where).hset(f"hash:{user}", "segment", segment)
        sys.stdout.write(f"round trip: {round_trip(where)}\n")
        for word in chosen:
            sys.stdout.write(f"{word}: {measure(word, where, seconds)}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
