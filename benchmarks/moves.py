"""Columns with much state move between two workers: ``python benchmarks/moves.py [MOVES] [EVENTS/S] [KEYS]``.

A running count whose state weighs about 100 MB as it is stored goes to a second worker and back, while records come. A
record carries its scheduled time, and a function behind the count notes how long every fifth one took and which column
it is of. So keys that move and keys that stay where they are can be told apart: printed, and kept as JSON, are the
pauses, and latencies of both kinds of keys during the moves, in their pauses alone, and in the time between.
"""

from __future__ import annotations

import io
import struct
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

import penstock as ps
from asking import numbers
from keeping import keep
from penstock.control.rescaling import MoveReport
from penstock.demo.chaos import quantile
from penstock.operators.keys import owner
from penstock_bench.studies.findings import at_most

KEYS = 1_800_000
TEXT = "x" * 40
"""Part of each key, so that the state weighs what it shall."""
COLUMNS = 2
CALM_S = 3.0
WAIT_S = 60.0
WAIT_MS = 100.0
"""No record should wait longer than this because of a move."""
SAMPLED = ("3", "7")
"""Last digits of the keys whose records are noted."""
NEAR_US = 20_000
"""Around a pause: the two clocks that its ends are told by agree within this."""
APART_US = 500_000
"""What is further than this from any move is calm."""
NOTE = "<qii"


class Noting:
    """Notes when a record was due, how long it took and its column; each copy has a file of its own."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._file: io.FileIO | None = None

    def __call__(self, row: Any) -> list[Any]:
        """Take a row of the count; nothing goes on from here."""
        if row.k.endswith(SAMPLED):
            now_us = time.time_ns() // 1000
            if self._file is None:
                self._file = io.FileIO(f"{self._directory}/{time.time_ns()}.notes", "w")
            self._file.write(struct.pack(NOTE, row.due, now_us - row.due, owner(row.k, COLUMNS)))
        return []


def pipeline(rate: int, keys: int, directory: Path) -> ps.Pipeline:
    """A count of many keys in two columns; its first records touch every key once."""
    fields = {
        "n": ps.fields.sequence(),
        "drawn": ps.fields.integers(0, keys - 1),
        "at": ps.fields.event_time(unit="us"),
    }
    fill, take = f"{max(1, keys // 100_000) * 1000}ms", "1s"
    shape = ps.rates.steps([(fill, 100_000), (take, rate)])
    events = ps.stream("events", ps.generator(fields, rate=shape, format="columns"))
    key = ps.when(ps.col("n") < keys, ps.col("n")).otherwise(ps.col("drawn"))
    named = events.select(k=ps.functions.concat(ps.lit(TEXT), key.cast("string")), at="at")
    counted = named.key_by("k").aggregate(count=ps.agg.count(), due=ps.agg.max("at"))
    return counted.flat_map(Noting(str(directory)), schema="nothing int", name="note").to(ps.foreach(_nothing))


def _nothing(_row: object) -> None:
    pass


@dataclass(frozen=True)
class Window:
    """A move in absolute time."""

    column: int
    began_us: int
    stopped_us: int
    ended_us: int

    @staticmethod
    def of(move: MoveReport, zero_us: int) -> Window:
        """From a report, whose times count from ``zero_us``."""
        ended_us = zero_us + round(move.at_s * 1e6)
        return Window(
            move.column, ended_us - round(move.total_ms * 1000), ended_us - round(move.pause_ms * 1000), ended_us
        )


def notes(directory: Path) -> Iterator[tuple[int, int, int]]:
    """When records were due, how long they took, and their column."""
    for path in directory.glob("*.notes"):
        yield from struct.iter_unpack(NOTE, path.read_bytes())


def told_apart(found: Iterator[tuple[int, int, int]], windows: Sequence[Window], since_us: int) -> dict[str, Any]:
    """Latencies in milliseconds of keys that moved and keys that stayed, by what was going on when they were due."""
    latencies: dict[str, list[float]] = defaultdict(list)
    for due_us, took_us, column in found:
        if due_us < since_us:
            continue
        near = [each for each in windows if each.began_us - APART_US <= due_us <= each.ended_us + APART_US]
        if not near:
            latencies["calm"].append(took_us / 1000)
        for each in near:
            who = "moved" if column == each.column else "stayed"
            if each.began_us <= due_us <= each.ended_us:
                latencies[f"{who}_during_moves"].append(took_us / 1000)
            if each.stopped_us - NEAR_US <= due_us <= each.ended_us + NEAR_US:
                latencies[f"{who}_in_pauses"].append(took_us / 1000)
    return {name: summed_up(values) for name, values in sorted(latencies.items())}


def summed_up(values: list[float]) -> dict[str, float]:
    """Percentiles."""
    values.sort()
    found = {f"p{round(100 * q)}": round(quantile(values, q), 2) for q in (0.5, 0.9, 0.99)}
    return {"records": len(values), **found, "max": round(values[-1], 2)}


def main() -> None:
    """Move, print what it cost, keep it."""
    moves, rate, keys = map(int, numbers(__doc__, moves=20, rate=20_000, keys=KEYS))
    options: dict[str, Any] = {"parallelism": COLUMNS, "workers": 1, "forms": "record", "name": "bench-moves"}
    with tempfile.TemporaryDirectory(prefix="penstock-moves-") as place:
        directory = Path(place)
        with ps.start(pipeline(rate, keys, directory), **options) as job:
            job.wait(keys / 100_000 + 15)
            status = job.status()
            zero_us, since_us = status.at_us - round(status.uptime_s * 1e6), status.at_us
            for i in range(moves):
                until, done = monotonic() + WAIT_S, len(job.moves())
                job.scale(2 - i % 2)
                while monotonic() < until and len(job.moves()) <= done:
                    job.wait(0.05)
                job.wait(CALM_S)
            windows = [Window.of(each, zero_us) for each in job.moves()]
            found = job.moves()
            job.stop()
        latencies = told_apart(notes(directory), windows, since_us)
    pauses = sorted(round(each.pause_ms, 1) for each in found)
    loaded_mb = round(median(each.loaded_bytes for each in found) / 1e6, 1)
    told = f"{len(found)} moves of {loaded_mb} MB: pause median {median(pauses):.0f}, longest {pauses[-1]:.0f} ms"
    sys.stdout.write(f"{told}; {pauses}\n")
    for name, each in latencies.items():
        told = ", ".join(f"{quantity} {value:,}" for quantity, value in each.items())
        sys.stdout.write(f"{name.replace('_', ' '):<20} {told}\n")
    figures = {"loaded_mb": loaded_mb, "pause_ms": pauses, "latency_ms": latencies}
    checks = [
        at_most("records of what moved, in pauses: p99", latencies["moved_in_pauses"].get("p99", 0.0), "ms", WAIT_MS),
        at_most("longest pause of a move", pauses[-1], "ms", WAIT_MS),
    ]
    keep("moves", {"moves": moves, "rate": rate, "keys": keys}, checks, figures)
    sys.exit(0 if len(found) == moves else 1)


if __name__ == "__main__":
    main()
