"""Windows by number and early firings in whole pipelines: the same in every run, with crashes."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

import penstock as ps
from penstock.connectors.memory import At
from penstock.pipeline.graph import Graph
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.testing.cluster import Cluster

S = 1_000_000
EVENT = "k string, n bigint, at timestamp"
Row = tuple[Any, ...]
DELAY_US = 2 * S


def partitions_of(seed: int) -> list[list[Row]]:
    """Two partitions of records that are up to four seconds out of order, where two are declared."""
    random = Random(seed)
    rows = [(f"k{random.randrange(3)}", i, i * S // 5 - random.randint(0, 4) * S) for i in range(150)]
    return [rows[0::2], rows[1::2]]


def judged(partitions: list[list[Row]]) -> list[Row]:
    """Each record with the watermark of its partition when it came."""
    found = []
    for rows in partitions:
        newest: int | None = None
        for row in rows:
            found.append((*row, -(10**12) if newest is None else newest - DELAY_US))
            newest = row[2] if newest is None else max(newest, row[2])
    return found


def fired(partitions: list[list[Row]], size_us: int, early_us: int) -> tuple[Counter[Row], int]:
    """What firings and closes give, recomputed from what the partitions contain, and how many are late."""
    groups: dict[tuple[str, int], dict[int, list[int]]] = {}
    late = 0
    for k, n, at, reached in judged(partitions):
        start, pane = at // size_us * size_us, at // early_us * early_us
        if start + size_us <= reached:
            late += 1
            continue
        moment = (pane if pane + early_us > reached else reached // early_us * early_us) + early_us
        groups.setdefault((k, start), {}).setdefault(moment, []).append(n)
    found: Counter[Row] = Counter()
    for (k, start), by_moment in groups.items():
        total = count = 0
        for moment in sorted(by_moment):
            total, count = total + sum(by_moment[moment]), count + len(by_moment[moment])
            if moment < start + size_us:
                found[k, start, start + size_us, count, total] += 1
        found[k, start, start + size_us, count, total] += 1
    return found, late


def numbered(partitions: list[list[Row]], size: int, slide: int) -> tuple[Counter[Row], int]:
    """Windows by number in the order of time, recomputed."""
    rows = judged(partitions)
    kept = sorted((row for row in rows if row[2] >= row[3]), key=lambda row: (row[2], row[0], row[1]))
    found: Counter[Row] = Counter()
    for key in {row[0] for row in kept}:
        numbers = [n for k, n, _, _ in kept if k == key]
        for first in range(0, len(numbers), slide):
            held = numbers[first : first + size]
            found[key, first // slide, len(held), sum(held)] += 1
    return found, len(rows) - len(kept)


KINDS: dict[str, Any] = {
    "early": (ps.tumbling("6s", on="at", early="2s"), lambda parts: fired(parts, 6 * S, 2 * S)),
    "number": (ps.count_window(7, slide=3, on="at"), lambda parts: numbered(parts, 7, 3)),
}


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("seed", range(3))
def test_results_follow_from_what_the_partitions_contain(kind: str, seed: int) -> None:
    """Whatever the blocks, wherever a worker crashes, and for records further out of order than declared, too."""
    random = Random(seed)
    window, recomputed = KINDS[kind]
    parts = partitions_of(seed)
    paced = [
        [each for i in range(0, len(rows), 5) for each in (At(i / 10 + random.random() / 3), *rows[i : i + 5])]
        for rows in parts
    ]
    sink = ps.memory()
    events = ps.stream("events", ps.records(partitions=paced, schema=EVENT)).with_watermark("at", "2s")
    made = events.key_by("k").window(window).aggregate(c=ps.agg.count(), s=ps.agg.sum("n"))
    parallelism = 1 + seed % 2
    options = Options.of(name="test", parallelism=parallelism, epoch="200ms")
    cluster = Cluster(Plan.of(Graph.check(made.to(sink).nodes()), options, ps.memory()))
    for moment_us in sorted(random.sample(range(100_000, 7_000_000), 4)):
        cluster.run_until(cluster.start_us + moment_us)
        if not cluster.ended:
            cluster.crash(random.randrange(parallelism))
    cluster.run_until(1 << 62)
    assert cluster.ended
    assert cluster.error is None
    expected, late = recomputed(parts)
    assert Counter(tuple(getattr(row, name) for name in row.__struct_fields__) for row in sink.rows) == expected
    figures = [each for worker in cluster.workers for each in worker.figures() if each.operation == "aggregate"]
    assert sum(each.late for each in figures) == late
    assert late > 0
