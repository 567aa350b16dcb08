"""Whole pipelines in the harness at several widths: exact output, compared with a plain recomputation."""

from __future__ import annotations

from collections import Counter, defaultdict
from random import Random
from typing import Any

import pytest

import penstock as ps
from penstock.connectors.memory import At
from penstock.errors import OperationFailed
from penstock.operators.keyed.aggregates import Mergeable
from penstock.testing import Harness

WIDTHS = pytest.mark.parametrize("parallelism", [1, 2, 3])
EVENT = "k string, n bigint, at timestamp"
S = 1_000_000


def bag(rows: Any) -> Counter[tuple[Any, ...]]:
    """Rows as a multiset."""
    return Counter(tuple(row.values()) if isinstance(row, dict) else tuple(row) for row in rows)


def events(count: int, *, seed: int = 1, disorder_s: int = 0, keys: int = 7) -> list[tuple[str, int, int]]:
    """Events one tenth of a second apart, each up to ``disorder_s`` earlier than its place."""
    random = Random(seed)
    return [(f"k{random.randrange(keys)}", i, i * S // 10 - random.randint(0, disorder_s) * S) for i in range(count)]


def paced(rows: list[Any], every: int = 10) -> list[Any]:
    """Rows that come ``every`` a second, so that they reach the windows in many blocks."""
    out: list[Any] = []
    for i in range(0, len(rows), every):
        out += [At(i // every), *rows[i : i + every]]
    return out


def window_counts(rows: list[Any], size_us: int) -> Counter[tuple[Any, ...]]:
    counts = Counter((k, at - at % size_us) for k, _, at in rows)
    return Counter((k, start, start + size_us, n) for (k, start), n in counts.items())


def source(name: str = "in", **options: Any) -> ps.Stream:
    return ps.stream(name, ps.records(schema=EVENT, **options))


# --- windows ----------------------------------------------------------------------------------------------------------


@WIDTHS
def test_windows_count_what_is_in_order_and_out_of_order(parallelism: int) -> None:
    rows = events(300, disorder_s=3)
    counted = source(rows=paced(rows)).key_by("k").window(ps.tumbling("5s", on="at", lateness="3s")).count()
    harness = Harness(counted.to(ps.memory()), parallelism=parallelism)
    harness.run()
    assert harness.count("count", "late") == 0
    assert bag(harness.rows()) == window_counts(rows, 5 * S)


@WIDTHS
@pytest.mark.parametrize("seed", range(3))
def test_late_records_are_conserved_and_whole(parallelism: int, seed: int) -> None:
    rows = events(400, seed=seed, disorder_s=12)
    counted = (
        source(rows=paced(rows))
        .key_by("k")
        .window(ps.tumbling("5s", on="at", lateness="1s"))
        .aggregate(count=ps.agg.count())
    )
    harness = Harness(
        counted.to(ps.memory(), name="counts") + counted.late.to(ps.memory(), name="late"), parallelism=parallelism
    )
    harness.run()
    late = bag(harness.rows("late"))
    assert late, "the case tests nothing without late records"
    assert not late - bag(rows), "a late record is one that went in"
    assert late.total() == harness.count("aggregate", "late")
    assert bag(harness.rows("counts")) == window_counts(list((bag(rows) - late).elements()), 5 * S)


@WIDTHS
def test_late_records_are_counted_without_a_side_output_too(parallelism: int) -> None:
    rows = [("a", 0, 0), ("a", 1, 100 * S), At("1s"), ("a", 2, 1), ("b", 3, 2), ("a", 4, 101 * S)]
    counted = source(rows=rows).key_by("k").window(ps.tumbling("10s", on="at")).count()
    harness = Harness(counted.to(ps.memory()), parallelism=parallelism)
    harness.run()
    assert harness.count("count", "late") == 2
    assert bag(harness.rows()) == bag([("a", 0, 10 * S, 1), ("a", 100 * S, 110 * S, 2)])


@WIDTHS
def test_a_window_closes_when_the_watermark_reaches_its_end(parallelism: int) -> None:
    rows = [
        ("a", 0, 1),
        At("1s"),
        ("a", 1, 12 * S - 1),
        At("2s"),
        ("a", 2, 9 * S),
        At("3s"),
        ("a", 3, 12 * S),
        At("99s"),
    ]
    counted = source(rows=rows).key_by("k").window(ps.tumbling("10s", on="at", lateness="2s")).count()
    harness = Harness(counted.to(ps.memory()), parallelism=parallelism, epoch="100ms")
    harness.advance("2.9s")
    assert harness.rows() == []
    harness.advance("1s")
    assert bag(harness.rows()) == bag([("a", 0, 10 * S, 2)])
    harness.run()
    assert bag(harness.rows()) == bag([("a", 0, 10 * S, 2), ("a", 10 * S, 20 * S, 2)])


@WIDTHS
def test_an_idle_partition_neither_holds_time_back_nor_lets_it_jump(parallelism: int) -> None:
    busy: list[Any] = []
    for i in range(60):
        busy += [At(i), ("busy", i, i * S)]
    quiet = [("quiet", 0, 0), At(30), ("quiet", 1, 30 * S), At(31), ("quiet", 2, 31 * S)]
    counted = source(partitions=[busy, quiet]).key_by("k").window(ps.tumbling("5s", on="at", lateness="1s")).count()
    harness = Harness(counted.to(ps.memory()), parallelism=parallelism, epoch="100ms")
    harness.advance("20.5s")
    closed = {row["window_start"] for row in harness.rows()}
    assert 0 in closed, "the idle partition holds event time back"
    assert max(closed) <= 15 * S, "event time ran ahead of the active partition"
    harness.run()
    assert harness.count("count", "late") == 0, "the partition that woke up met a closed window"
    everything = [row for row in (*busy, *quiet) if not isinstance(row, At)]
    assert bag(harness.rows()) == window_counts(everything, 5 * S)


@WIDTHS
def test_a_partition_that_shows_no_event_time_does_not_hold_it_back(parallelism: int) -> None:
    """Its records come all the time, but a filter before the window takes them all."""
    rows: list[list[Any]] = [[], []]
    for i in range(60):
        rows[0] += [At(i), ("kept", i, i * S)]
        rows[1] += [At(i), ("dropped", i, i * S)]
    kept = source(partitions=rows).filter(ps.col("k") == "kept")
    counted = kept.key_by("k").window(ps.tumbling("5s", on="at")).count()
    harness = Harness(counted.to(ps.memory()), parallelism=parallelism, epoch="100ms")
    harness.advance("50s")
    assert len(harness.rows()) >= 8
    harness.run()
    assert bag(harness.rows()) == window_counts([r for r in rows[0] if not isinstance(r, At)], 5 * S)


@WIDTHS
def test_time_stands_still_while_every_partition_is_idle(parallelism: int) -> None:
    rows = [("a", 0, 1), At("60s"), ("a", 1, 2), At("61s")]
    counted = source(rows=rows).key_by("k").window(ps.tumbling("10s", on="at")).count()
    harness = Harness(counted.to(ps.memory()), parallelism=parallelism)
    harness.advance("59s")
    assert harness.rows() == []
    harness.run()
    assert harness.rows() == [{"k": "a", "window_start": 0, "window_end": 10 * S, "count": 2}]


@WIDTHS
def test_a_slow_partition_holds_the_windows_open(parallelism: int) -> None:
    """One partition is replayed an hour of event time behind the other: nothing of it is late."""
    ahead = paced([("ahead", i, 3600 * S + i * S) for i in range(40)], every=4)
    behind = paced([("behind", i, i * S) for i in range(40)], every=4)
    counted = source(partitions=[ahead, behind]).key_by("k").window(ps.tumbling("5s", on="at")).count()
    harness = Harness(counted.to(ps.memory()), parallelism=parallelism)
    harness.run()
    assert harness.count("count", "late") == 0
    assert bag(harness.rows()) == window_counts([r for r in (*ahead, *behind) if not isinstance(r, At)], 5 * S)


@WIDTHS
def test_a_slow_source_of_a_merge_holds_the_windows_open(parallelism: int) -> None:
    ahead = paced([("ahead", i, 3600 * S + i * S) for i in range(40)], every=4)
    behind = paced([("behind", i, i * S) for i in range(40)], every=4)
    merged = source("ahead", rows=ahead).merge(source("behind", rows=behind))
    counted = merged.key_by("k").window(ps.tumbling("5s", on="at")).count()
    harness = Harness(counted.to(ps.memory()), parallelism=parallelism)
    harness.run()
    assert harness.count("count", "late") == 0
    assert bag(harness.rows()) == window_counts([r for r in (*ahead, *behind) if not isinstance(r, At)], 5 * S)


@WIDTHS
def test_windows_that_send_every_change_end_at_the_exact_value(parallelism: int) -> None:
    rows = events(200, disorder_s=2)
    counted = (
        source(rows=paced(rows)).key_by("k").window(ps.tumbling("5s", on="at", lateness="2s", emit="update")).count()
    )
    harness = Harness(counted.to(ps.memory()), parallelism=parallelism)
    harness.run()
    last: dict[tuple[Any, Any], int] = {}
    for row in harness.rows():
        group = row["k"], row["window_start"]
        assert row["count"] > last.get(group, 0), "a count only grows"
        last[group] = row["count"]
    assert Counter((*group, group[1] + 5 * S, n) for group, n in last.items()) == window_counts(rows, 5 * S)


@WIDTHS
def test_a_window_without_keys_sees_the_whole_stream(parallelism: int) -> None:
    rows = events(150)
    total = source(rows=paced(rows), partitions=3).window(ps.tumbling("5s", on="at", lateness="1s")).sum("n")
    harness = Harness(total.to(ps.memory()), parallelism=parallelism)
    harness.run()
    sums: dict[int, int] = defaultdict(int)
    for _, n, at in rows:
        sums[at - at % (5 * S)] += n
    assert bag(harness.rows()) == bag((start, start + 5 * S, n) for start, n in sums.items())


@WIDTHS
def test_a_record_without_a_time_follows_the_policy(parallelism: int) -> None:
    rows = [("a", 0, 1), ("a", 1, None), ("a", 2, 3)]
    grouped = source(rows=rows).key_by("k").window(ps.tumbling("10s", on="at"))
    harness = Harness(grouped.aggregate(on_error="skip", count=ps.agg.count()).to(ps.memory()), parallelism=parallelism)
    harness.run()
    assert [row["count"] for row in harness.rows()] == [2]
    assert harness.count("aggregate.combine", "skipped") == 1
    with pytest.raises(OperationFailed, match="time column 'at' is null"):
        Harness(grouped.count().to(ps.memory()), parallelism=parallelism).run()


# --- the shape of the graph -------------------------------------------------------------------------------------------


@WIDTHS
def test_a_merge_loses_and_repeats_nothing(parallelism: int) -> None:
    left, right = events(100, seed=1), events(150, seed=2)
    merged = source("left", rows=left, partitions=2).merge(source("right", rows=right))
    harness = Harness(merged.to(ps.memory()), parallelism=parallelism)
    harness.run()
    assert bag(harness.rows()) == bag(left) + bag(right)


def test_a_stream_merged_with_itself_comes_twice() -> None:
    rows = events(50)
    stream = source(rows=rows)
    harness = Harness(stream.merge(stream).to(ps.memory()))
    harness.run()
    assert bag(harness.rows()) == bag(rows) + bag(rows)


@WIDTHS
def test_split_takes_the_first_branch_that_is_true(parallelism: int) -> None:
    rows = [*events(60), ("none", None, 0)]
    parts = source(rows=rows, partitions=2).split(
        small=ps.col("n") < 20, even=ps.col("n") % 2 == 0, large=ps.col("n") > 30
    )
    pipelines = [parts[name].to(ps.memory(), name=name) for name in parts]
    harness = Harness(pipelines[0] + pipelines[1] + pipelines[2] + pipelines[3], parallelism=parallelism)
    harness.run()
    expected: dict[str, list[Any]] = {name: [] for name in parts}
    for row in rows:
        n = row[1]
        name = "rest" if n is None else "small" if n < 20 else "even" if n % 2 == 0 else "large" if n > 30 else "rest"
        expected[name].append(row)
    assert {name: bag(harness.rows(name)) for name in parts} == {name: bag(r) for name, r in expected.items()}


@WIDTHS
def test_two_sinks_get_the_same_records(parallelism: int) -> None:
    rows = events(120)
    stream = source(rows=rows, partitions=2).filter(ps.col("n") >= 10)
    doubled = stream.with_columns(n=ps.col("n") * 2)
    harness = Harness(
        stream.to(ps.memory(), name="plain") + doubled.to(ps.memory(), name="doubled"), parallelism=parallelism
    )
    harness.run()
    assert bag(harness.rows("plain")) == bag(rows[10:])
    assert bag(harness.rows("doubled")) == bag((k, 2 * n, at) for k, n, at in rows[10:])


@WIDTHS
def test_a_diamond_of_branches_meets_again(parallelism: int) -> None:
    rows = events(400)
    parts = source(rows=paced(rows), partitions=2).split(odd=ps.col("n") % 2 == 1)
    odd = parts["odd"].key_by("k").map(lambda r: (r.k, -r.n, r.at), schema=EVENT)
    harness = Harness(odd.merge(parts["rest"]).to(ps.memory()), parallelism=parallelism, epoch="100ms")
    harness.run()
    assert bag(harness.rows()) == bag((k, -n if n % 2 else n, at) for k, n, at in rows)


@WIDTHS
def test_running_counts_end_at_the_exact_count_and_never_go_back(parallelism: int) -> None:
    rows = events(300)
    harness = Harness(source(rows=paced(rows)).key_by("k").count().to(ps.memory()), parallelism=parallelism)
    harness.run()
    last: Counter[Any] = Counter()
    for row in harness.rows():
        assert row["count"] > last[row["k"]]
        last[row["k"]] = row["count"]
    assert last == Counter(k for k, _, _ in rows)


class Distinct(Mergeable):
    """How many different values of ``n % 10`` a group has."""

    def init(self) -> list[int]:
        return []

    def add(self, state: list[int], record: Any) -> list[int]:
        return sorted({*state, record.n % 10})

    def merge(self, left: list[int], right: list[int]) -> list[int]:
        return sorted({*left, *right})

    def result(self, state: list[int]) -> int:
        return len(state)


@WIDTHS
@pytest.mark.parametrize("late", [False, True], ids=["partials", "whole records"])
def test_every_aggregate_equals_its_recomputation(parallelism: int, late: bool) -> None:
    rows = events(300, seed=5)
    grouped = source(rows=paced(rows)).key_by("k").window(ps.tumbling("10s", on="at", lateness="1s"))
    results = grouped.aggregate(
        count=ps.agg.count(), total=ps.agg.sum("n"), low=ps.agg.min("n"), high=ps.agg.max("n"), mean=ps.agg.mean("n"),
        first=ps.agg.first("n"), last=ps.agg.last("n"), distinct=ps.agg.custom(Distinct(), type="int"),
    )  # fmt: skip
    pipeline = results.to(ps.memory(), name="out")
    if late:
        pipeline = pipeline + results.late.to(ps.memory(), name="late")
    harness = Harness(pipeline, parallelism=parallelism)
    harness.run()
    groups: dict[Any, list[int]] = defaultdict(list)
    for k, n, at in rows:
        groups[k, at - at % (10 * S)].append(n)
    expected = [
        (k, w, w + 10 * S, len(v), sum(v), min(v), max(v), sum(v) / len(v), v[0], v[-1], len({n % 10 for n in v}))
        for (k, w), v in groups.items()
    ]
    assert bag(harness.rows("out")) == bag(expected)


@WIDTHS
def test_records_of_a_key_stay_in_order_through_shuffles(parallelism: int) -> None:
    rows = events(500, keys=11)
    stream = source(rows=paced(rows, 50)).key_by("k").filter(ps.col("n") % 7 != 3)
    stream = stream.key_by("k").map(lambda r: (r.k, r.n, r.at), schema=EVENT)
    harness = Harness(stream.to(ps.memory()), parallelism=parallelism)
    harness.run()
    got: dict[Any, list[Any]] = defaultdict(list)
    for row in harness.rows():
        got[row["k"]].append(row["n"])
    expected: dict[Any, list[Any]] = defaultdict(list)
    for k, n, _ in rows:
        if n % 7 != 3:
            expected[k].append(n)
    assert got == expected
