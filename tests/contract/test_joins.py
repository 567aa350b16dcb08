"""Joins and sliding windows as parts of whole pipelines: exact output at several widths, late records, policies."""

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
from penstock.testing import Harness
from penstock.testing.cluster import Cluster

WIDTHS = pytest.mark.parametrize("parallelism", [1, 2, 3])
HOWS = pytest.mark.parametrize("how", ["inner", "left"])
ALL_HOWS = pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
CLICK = "k string, n bigint, clicked timestamp"
VIEW = "k string, m bigint, seen timestamp"
S = 1_000_000
Row = tuple[Any, ...]


def bag(rows: Any) -> Counter[Row]:
    """Rows as a multiset."""
    return Counter(tuple(row.values()) if isinstance(row, dict) else tuple(row) for row in rows)


def side(count: int, seed: int, disorder_s: int = 2) -> list[Row]:
    """Ten records a second, each up to ``disorder_s`` behind its place."""
    random = Random(seed)
    return [(f"k{random.randrange(9)}", i, i * S // 10 - random.randint(0, disorder_s) * S) for i in range(count)]


def paced(rows: list[Row], begin_s: float = 0.0) -> list[Any]:
    """Rows that come ten a second from ``begin_s`` on, so that they come in many blocks."""
    return [each for i in range(0, len(rows), 10) for each in (At(begin_s + i / 10), *rows[i : i + 10])]


def paired(lefts: list[Row], rights: list[Row], within_us: int, how: str, low_us: int | None = None) -> list[Row]:
    """The join, recomputed; with ``low_us`` the view is at least so long after the click."""
    found: list[Row] = []
    low_us, alone = -within_us if low_us is None else low_us, set(rights)
    for k, n, at in lefts:
        near = [row for row in rights if row[0] == k and low_us <= row[2] - at <= within_us]
        found += [(k, n, at, m, seen) for _, m, seen in near] or [(k, n, at, None, None)] * (how in ("left", "full"))
        alone -= set(near)
    return found + [(k, None, None, m, seen) for k, m, seen in alone] * (how in ("right", "full"))


def paired_once(lefts: list[Row], rights: list[Row], within_us: int, how: str) -> list[Row]:
    """The join that uses records up, recomputed: in the order of time, each with the first one that waits."""
    rows = sorted([(at, 0, n, k) for k, n, at in lefts] + [(seen, 1, m, k) for k, m, seen in rights])
    waiting: list[Any] = []
    found: list[Row] = []
    for row in rows:
        at, of, _, k = row
        partner = next((w for w in waiting if w[1] != of and w[3] == k and w[0] >= at - within_us), None)
        if partner is None:
            waiting.append(row)
            continue
        waiting.remove(partner)
        left, right = (row, partner) if of == 0 else (partner, row)
        found.append((k, left[2], left[0], right[2], right[0]))
    found += [(k, n, at, None, None) for at, of, n, k in waiting if of == 0 and how in ("left", "full")]
    return found + [(k, None, None, n, at) for at, of, n, k in waiting if of == 1 and how in ("right", "full")]


def latest(lefts: list[Row], rights: list[Row]) -> list[Row]:
    """The as-of join, recomputed."""
    found: list[Row] = []
    for k, n, at in lefts:
        known = [(seen, m) for other, m, seen in rights if other == k and seen <= at]
        found.append((k, n, at, *reversed(max(known, default=(None, None)))))
    return found


def sources(lefts: list[Any], rights: list[Any], partitions: int = 1) -> tuple[ps.Stream, ps.Stream]:
    """Both sides; rows that do not say when they come are paced."""

    def source(name: str, rows: list[Any], schema: str) -> ps.Stream:
        timed = any(isinstance(each, At) for each in rows)
        parts = [rows] if timed else [paced(rows[i::partitions]) for i in range(partitions)]
        return ps.stream(name, ps.records(partitions=parts, schema=schema))

    return source("clicks", lefts, CLICK), source("views", rights, VIEW)


def join(left: ps.Stream, right: ps.Stream, **options: Any) -> ps.Stream:
    return left.join(right, on="k", left_time="clicked", right_time="seen", **{"within": "3s", **options})


@WIDTHS
@ALL_HOWS
@pytest.mark.parametrize("partitions", [1, 3])
def test_every_pair_is_there_once(parallelism: int, how: str, partitions: int) -> None:
    lefts, rights = side(300, 1), side(200, 2)
    pairs = join(*sources(lefts, rights, partitions), lateness="4s", how=how)
    harness = Harness(pairs.to(ps.memory()), parallelism=parallelism)
    harness.run()
    assert bag(harness.rows()) == bag(paired(lefts, rights, 3 * S, how))
    assert harness.count("join", "late") == 0
    assert harness.count("join.left", "records_out") == 300
    assert harness.count("join.right", "records_out") == 200


@WIDTHS
@HOWS
@pytest.mark.parametrize("partitions", [1, 3])
def test_each_record_is_used_once(parallelism: int, how: str, partitions: int) -> None:
    lefts, rights = side(300, 1), side(200, 2)
    pairs = join(*sources(lefts, rights, partitions), lateness="4s", how=how, match="once")
    harness = Harness(pairs.to(ps.memory()), parallelism=parallelism)
    harness.run()
    expected = paired_once(lefts, rights, 3 * S, how)
    assert 100 < len(expected) < len(paired(lefts, rights, 3 * S, how))
    assert bag(harness.rows()) == bag(expected)
    assert harness.count("join", "late") == 0


KINDS: dict[str, Any] = {
    "once": (lambda *sides, how: join(*sides, lateness="4s", how=how, match="once"), paired_once),
    "bounds": (
        lambda left, right, how: left.join(
            right,
            on="k",
            within="seen BETWEEN clicked + INTERVAL 1 SECOND AND clicked + INTERVAL 3 SECONDS",
            lateness="4s",
            how=how,
        ),
        lambda *sides: paired(*sides, low_us=S),
    ),
    "asof": (
        lambda left, right, how: left.join_asof(right, on="k", left_time="clicked", right_time="seen", lateness="4s"),
        lambda lefts, rights, *_: latest(lefts, rights),
    ),
}


@WIDTHS
@pytest.mark.parametrize(
    ("kind", "how"),
    [("once", "inner"), ("once", "left"), ("once", "full"), ("bounds", "right"), ("bounds", "full"), ("asof", "left")],
)
@pytest.mark.parametrize("seed", range(2))
def test_crashes_do_not_change_who_is_paired_with_whom(parallelism: int, kind: str, how: str, seed: int) -> None:
    random = Random(seed)
    lefts, rights = side(400, seed + 20), side(300, seed + 40)
    sink = ps.memory()
    made, recomputed = KINDS[kind]
    pairs = made(*sources(lefts, rights, 2), how=how)
    options = Options.of(name="test", parallelism=parallelism, epoch=random.choice(["50ms", "200ms"]))
    cluster = Cluster(Plan.of(Graph.check(pairs.to(sink).nodes()), options, ps.memory()))
    for moment_us in sorted(random.sample(range(100_000, 4_000_000), 5)):
        cluster.run_until(cluster.start_us + moment_us)
        if not cluster.ended:
            cluster.crash(random.randrange(parallelism))
    cluster.run_until(1 << 62)
    assert cluster.ended
    assert cluster.error is None
    assert bag(tuple(getattr(row, name) for name in row.__struct_fields__) for row in sink.rows) == bag(
        recomputed(lefts, rights, 3 * S, how)
    )


@WIDTHS
def test_a_window_over_pairs_made_once_needs_no_lateness(parallelism: int) -> None:
    lefts, rights = side(300, 5), side(300, 6)
    clicks, views = sources(lefts, rights, 2)
    clicks, views = clicks.select("k", "n", at="clicked"), views.select("k", "m", at="seen")
    pairs = clicks.join(views, on="k", time="at", within="1s", lateness="4s", match="once")
    counted = pairs.key_by("k").window("2s", on="at").count()
    harness = Harness(counted.to(ps.memory()), parallelism=parallelism)
    harness.run()
    expected = Counter(
        (k, max(at, seen) // (2 * S) * 2 * S) for k, _, at, _, seen in paired_once(lefts, rights, S, "inner")
    )
    assert bag(harness.rows()) == bag((k, start, start + 2 * S, n) for (k, start), n in expected.items())
    assert harness.count("count", "late") == 0


@pytest.mark.parametrize("behind", ["clicks", "views"])
@pytest.mark.parametrize(("match", "recomputed"), [("all", paired), ("once", paired_once)])
def test_a_side_that_comes_later_finds_its_partners(behind: str, match: str, recomputed: Any) -> None:
    """What one side has long seen is held until the other one has come so far."""
    lefts, rights = side(200, 3), side(200, 4)
    slow = {"clicks": paced(lefts), "views": paced(rights)}
    slow[behind] = paced({"clicks": lefts, "views": rights}[behind], begin_s=0.7)
    pairs = join(*sources(slow["clicks"], slow["views"]), lateness="2s", how="left", match=match)
    harness = Harness(pairs.to(ps.memory()), parallelism=2)
    harness.run()
    assert bag(harness.rows()) == bag(recomputed(lefts, rights, 3 * S, "left"))
    assert harness.count("join", "late") == 0


@WIDTHS
@pytest.mark.parametrize(("match", "recomputed"), [("all", paired), ("once", paired_once)])
def test_late_records_of_either_side_are_counted_and_not_joined(parallelism: int, match: str, recomputed: Any) -> None:
    lefts = [("a", 1, 10 * S), At(0.2), ("a", 2, 5 * S), ("a", 3, 9 * S)]
    rights = [("a", 1, 9 * S), At(0.2), ("a", 2, 8 * S), ("a", 3, 7 * S)]
    pairs = join(*sources(lefts, rights), lateness="1s", match=match)
    harness = Harness(pairs.to(ps.memory()), parallelism=parallelism)
    harness.run()
    assert harness.count("join", "late") == 2
    kept = [("a", 1, 10 * S), ("a", 3, 9 * S)], [("a", 1, 9 * S), ("a", 2, 8 * S)]
    assert bag(harness.rows()) == bag(recomputed(*kept, 3 * S, "inner"))


@WIDTHS
@HOWS
def test_windows_over_pairs_are_complete(parallelism: int, how: str) -> None:
    lefts, rights = side(300, 5), side(300, 6)
    pairs = join(*sources(lefts, rights), within="1s", lateness="2s", how=how)
    counted = pairs.key_by("k").window("5s", on="clicked", slide="2s", lateness="5s").count()
    harness = Harness(counted.to(ps.memory()), parallelism=parallelism)
    harness.run()
    expected: Counter[Row] = Counter()
    for k, _, at, _, _ in paired(lefts, rights, S, how):
        expected.update((k, start) for start in range(-10 * S, 40 * S, 2 * S) if start <= at < start + 5 * S)
    assert bag(harness.rows()) == bag((k, start, start + 5 * S, n) for (k, start), n in expected.items())
    assert harness.count("count", "late") == 0


@WIDTHS
@pytest.mark.parametrize(("how", "time"), [("inner", "seen"), ("right", "seen"), ("left", "clicked")])
def test_windows_over_pairs_with_uneven_bounds_need_no_lateness(parallelism: int, how: str, time: str) -> None:
    """A window over a join's times waits as long as the join may take, and no record of it is late."""
    lefts, rights = side(200, 5), side(200, 6)
    pairs = KINDS["bounds"][0](*sources(lefts, rights, 2), how=how)
    counted = pairs.key_by("k").window("2s", on=time).count()
    harness = Harness(counted.to(ps.memory()), parallelism=parallelism)
    harness.run()
    place = 4 if time == "seen" else 2
    rows = paired(lefts, rights, 3 * S, how, low_us=S)
    expected = Counter((row[0], row[place] // (2 * S) * 2 * S) for row in rows)
    assert bag(harness.rows()) == bag((k, start, start + 2 * S, n) for (k, start), n in expected.items())
    assert harness.count("count", "late") == 0


@WIDTHS
def test_a_stream_can_be_joined_with_what_becomes_of_it(parallelism: int) -> None:
    rows = side(100, 7, disorder_s=0)
    stream, _ = sources(rows, [])
    sums = stream.select(k="k", m="n", seen="clicked").filter(ps.col("m") % 2 == 0)
    harness = Harness(join(stream, sums, within=0).to(ps.memory()), parallelism=parallelism)
    harness.run()
    assert bag(harness.rows()) == bag((k, n, at, n, at) for k, n, at in rows if n % 2 == 0)


@WIDTHS
def test_a_record_without_a_time_follows_the_policy(parallelism: int) -> None:
    lefts: list[Row] = [("a", 1, 10), ("a", 2, None), (None, 3, None)]
    pairs = join(*sources(lefts, [("a", 5, 10)]), on_error="dead_letter")
    harness = Harness(pairs.to(ps.memory()), parallelism=parallelism)
    harness.run()
    assert bag(harness.rows()) == bag([("a", 1, 10, 5, 10)])
    assert [letter["operation"] for letter in harness.dead_letters()] == ["join.left"] * 2
    assert all("time column 'clicked' is null" in str(letter["error"]) for letter in harness.dead_letters())


@WIDTHS
@pytest.mark.parametrize("emit", ["close", "update"])
def test_sliding_windows_in_a_pipeline(parallelism: int, emit: str) -> None:
    rows = side(300, 8, disorder_s=3)
    stream, _ = sources(rows, [])
    windows = stream.key_by("k").window("5s", on="clicked", slide="2s", lateness="3s", emit=emit)
    made = windows.aggregate(n=ps.agg.count(), last=ps.agg.last("n"))
    harness = Harness(made.to(ps.memory()), parallelism=parallelism)
    harness.run()
    expected: dict[Row, list[int]] = {}
    for k, n, at in rows:
        for start in range(-10 * S, 40 * S, 2 * S):
            if start <= at < start + 5 * S:
                expected.setdefault((k, start, start + 5 * S), []).append(n)
    newest = {tuple(row.values())[:3]: tuple(row.values()) for row in harness.rows()}
    assert bag(newest.values()) == bag((*window, len(ns), ns[-1]) for window, ns in expected.items())
    assert emit == "update" or len(newest) == len(harness.rows())
    assert harness.count("aggregate", "late") == 0


@WIDTHS
def test_a_record_that_misses_one_of_its_windows_is_late(parallelism: int) -> None:
    rows = [("a", 1, 9 * S), At(0.2), ("a", 2, 10 * S), At(0.4), ("a", 3, 7 * S), ("a", 4, 2 * S)]
    stream, _ = sources(rows, [])
    counted = stream.key_by("k").window("4s", on="clicked", slide="2s").count()
    pipeline = counted.to(ps.memory(), name="counts") + counted.late.to(ps.memory(), name="late")
    harness = Harness(pipeline, parallelism=parallelism)
    harness.run()
    assert bag(harness.rows("late")) == bag([("a", 3, 7 * S), ("a", 4, 2 * S)])
    assert bag(harness.rows("counts")) == bag(
        [("a", 6 * S, 10 * S, 1), ("a", 8 * S, 12 * S, 2), ("a", 10 * S, 14 * S, 1)]
    )
    assert harness.count("count", "late") == 2
