"""Columns with much state move between two workers: ``python benchmarks/moves.py [MOVES] [EVENTS/S]``.

A running count whose state weighs about 100 MB as it is stored goes to a second worker and back, while records come.
Printed are the pause of each move, how long records waited in the half seconds of moves, of those that moved and of
those that stayed where they were, and in the time between.
"""

from __future__ import annotations

import sys
from statistics import median
from time import monotonic

import penstock as ps

KEYS = 1_800_000
TEXT = "x" * 40
"""Part of each key, so that the state weighs what it shall."""
CALM_S = 3.0


def pipeline(rate: int) -> ps.Pipeline:
    """A count of many keys in two columns; its first records touch every key once."""
    fields = {"n": ps.fields.sequence(), "drawn": ps.fields.integers(0, KEYS - 1)}
    fill, take = f"{KEYS // 100_000 * 1000}ms", "1s"
    shape = ps.rates.steps([(fill, 100_000), (take, rate)])
    events = ps.stream("events", ps.generator(fields, rate=shape, format="columns"))
    key = ps.when(ps.col("n") < KEYS, ps.col("n")).otherwise(ps.col("drawn"))
    named = events.select(k=ps.functions.concat(ps.lit(TEXT), key.cast("string")))
    return named.key_by("k").count().to(ps.foreach(_nothing))


def _nothing(_row: object) -> None:
    pass


def main() -> None:
    """Move, and print what it cost."""
    given = [int(each) for each in sys.argv[1:]]
    moves, rate = (*given, *(20, 20_000)[len(given) :])
    with ps.start(pipeline(rate), parallelism=2, workers=1, forms="record", name="bench-moves") as job:
        job.wait(KEYS / 100_000 + 15)
        latencies: dict[bool, list[float]] = {True: [], False: []}
        before = job.latency_us()
        for i in range(moves):
            job.scale(2 - i % 2)
            until, done = monotonic() + 60, len(job.moves())
            while monotonic() < until and len(job.moves()) <= done:
                job.wait(0.25)
                now = job.latency_us()
                latencies[True].append(now.since(before).quantile(0.99) / 1000)
                before = now
            calm = monotonic() + CALM_S
            while monotonic() < calm:
                job.wait(0.25)
                now = job.latency_us()
                latencies[False].append(now.since(before).quantile(0.99) / 1000)
                before = now
        found = job.moves()
        job.stop()
    pauses = sorted(each.pause_ms for each in found)
    loaded = median(each.loaded_bytes for each in found) / 1e6
    told = f"{len(found)} moves of {loaded:.0f} MB: pause median {median(pauses):.0f}, longest {pauses[-1]:.0f} ms"
    sys.stdout.write(f"{told}; all {[round(each) for each in pauses]}\n")
    for moving, when in ((True, "while it moves"), (False, "between moves")):
        waits = latencies[moving]
        told = f"median {median(waits):.1f}, worst {max(waits):.1f} ms"
        sys.stdout.write(f"p99 of each quarter of a second {when}: {told}\n")


if __name__ == "__main__":
    main()
