"""Event time in band: who is late depends on the partitions' contents only, behind any shuffle, branch or merge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

import penstock as ps
from penstock.connectors.memory import At
from penstock.operators import sliding
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.testing import Harness
from penstock.testing.cluster import Cluster

S = 1_000_000
EVENT = "k string, n bigint, at timestamp"
WIDTHS = pytest.mark.parametrize("parallelism", [1, 2, 3])

Rows = list[Any]


def _branch(stream: ps.Stream) -> ps.Stream:
    return stream.split(all=ps.col("n") >= 0)["all"]


def _merge(stream: ps.Stream) -> ps.Stream:
    parts = stream.split(even=ps.col("n") % 2 == 0, odd=ps.col("n") % 2 != 0)
    return parts["even"].merge(parts["odd"])


def _shuffle(stream: ps.Stream) -> ps.Stream:
    return stream.key_by("n").filter(ps.col("n") >= 0)


def _renamed(stream: ps.Stream) -> ps.Stream:
    renamed = stream.select("k", "n", then=ps.col("at")).key_by("n").filter(ps.col("n") >= 0)
    return renamed.select("k", "n", at=ps.col("then"))


def _made_behind_a_shuffle(stream: ps.Stream) -> ps.Stream:
    """Where the time column is made, the partitions are mixed already."""
    return stream.key_by("n").map(lambda r: (r.k, r.n, r.at), schema=EVENT)


def _made_behind_a_merge(stream: ps.Stream) -> ps.Stream:
    return _merge(stream).map(lambda r: (r.k, r.n, r.at), schema=EVENT)


BETWEEN = {
    "chained": lambda stream: stream,
    "branch": _branch,
    "merge": _merge,
    "shuffle": _shuffle,
    "renamed": _renamed,
    "made behind a shuffle": _made_behind_a_shuffle,
    "made behind a merge": _made_behind_a_merge,
}
WAYS = pytest.mark.parametrize("between", BETWEEN.values(), ids=list(BETWEEN))


def source(partitions: list[Rows], schema: str = EVENT, name: str = "in") -> ps.Stream:
    return ps.stream(name, ps.records(schema=schema, partitions=partitions))


def plain(rows: Rows) -> Rows:
    return [row for row in rows if not isinstance(row, At)]


def on_time(partitions: list[Rows], size_us: int, delay_us: int) -> tuple[Counter[tuple[Any, ...]], int]:
    """Windows of what is not late by the watermark of its own partition, and how much is."""
    counts: Counter[tuple[Any, ...]] = Counter()
    late = 0
    for rows in partitions:
        newest: int | None = None
        for k, _, at in plain(rows):
            end = at - at % size_us + size_us
            if newest is not None and newest - delay_us >= end:
                late += 1
            else:
                counts[k, end - size_us, end] += 1
            newest = at if newest is None else max(newest, at)
    return Counter((*group, n) for group, n in counts.items()), late


def bag(rows: Any) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in rows)


def disordered(seed: int, partitions: int, count: int = 120) -> list[Rows]:
    """Partitions at different speeds, with records that are far behind here and there."""
    random = Random(seed)
    found: list[Rows] = []
    for p in range(partitions):
        rows: Rows = []
        step_s = random.choice([0.05, 0.1, 0.3])
        for i in range(count):
            if random.random() < 0.3:
                rows.append(At(i * step_s))
            behind_us = random.choice([0, 0, 0, S // 2, 4 * S, 15 * S])
            rows.append((f"k{random.randrange(5)}", p * count + i, 60 * S + i * S // 5 - behind_us))
        found.append(rows)
    return found


# --- the number late --------------------------------------------------------------------------------------------------


@WIDTHS
@WAYS
def test_a_partition_behind_is_waited_for(between: Callable[[ps.Stream], ps.Stream], parallelism: int) -> None:
    """More partitions than instances, one an hour behind: nothing of it is late, whatever is before the window."""
    partitions: list[Rows] = [[], [], [], []]
    for i in range(40):
        for p in range(3):
            partitions[p] += [At(i / 10), (f"k{p}", i, 3600 * S + i * S)]
        partitions[3] += [At(i / 10), ("k3", i, i * S)]
    counted = between(source(partitions)).key_by("k").window("5s", on="at").count()
    harness = Harness(counted.to(ps.memory()), parallelism=parallelism)
    harness.run()
    assert harness.count("count", "late") == 0
    assert bag(harness.rows()) == on_time(partitions, 5 * S, 0)[0]


@pytest.mark.parametrize("seed", range(3))
@WIDTHS
@WAYS
def test_a_record_is_late_by_the_watermark_of_its_own_partition(
    between: Callable[[ps.Stream], ps.Stream], parallelism: int, seed: int
) -> None:
    partitions = disordered(seed, 3)
    declared = source(partitions).with_watermark("at", "1s")
    counted = between(declared).key_by("k").window("5s", on="at").count()
    harness = Harness(counted.to(ps.memory()), parallelism=parallelism, idle="1h")
    harness.run()
    expected, late = on_time(partitions, 5 * S, S)
    assert late > 20
    assert bag(harness.rows()) == expected
    assert harness.count("count", "late") == late


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("between", [BETWEEN[each] for each in ("chained", "branch", "merge", "shuffle")])
def test_the_number_late_is_the_same_in_both_forms_and_with_stalls(
    between: Callable[[ps.Stream], ps.Stream], seed: int
) -> None:
    partitions = disordered(seed, 4)
    expected, late = on_time(partitions, 5 * S, S)
    for forms in ("record", "batch"):
        for stalls in (False, True):
            sink = ps.memory()
            counted = between(source(partitions).with_watermark("at", "1s")).key_by("k").window("5s", on="at").count()
            options = Options.of(parallelism=2, epoch="200ms", idle="10s", forms=forms, slots=2)
            cluster = Cluster(Plan.of(counted.to(sink).graph(), options))
            for _ in range(3 * stalls):
                cluster.run_until(cluster.now_us + S)
                cluster.now_us += 15 * S
            cluster.run_until(1 << 62)
            figures = [each for worker in cluster.workers for each in worker.figures()]
            told = sum(each.late for each in figures if each.operation == "count")
            rows = Counter((row.k, row.window_start, row.window_end, row.count) for row in sink.rows)
            assert (rows, told) == (expected, late), (forms, stalls)


# --- windows and joins behind each other ------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["record", "batch"])
def test_a_time_that_is_made_of_windows_results_is_not_taken_for_that_of_their_input(form: str) -> None:
    """The window's own watermark is ahead of what it gives, by its size."""
    rows: Rows = [each for i in range(60) for each in (At(i / 10), (f"k{i % 5}", i, i * S))]
    first = source([rows]).key_by("k").window("10s", on="at").count()
    made = first.map(lambda r: (r.k, r.count, r.window_start), schema=EVENT)
    harness = Harness(made.key_by("k").window(ps.session("2s", on="at")).count().to(ps.memory()), parallelism=2)
    harness.switch(form)
    harness.run()
    assert harness.count("count-2", "late") == 0
    assert len(harness.rows()) == 30


@WIDTHS
@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("window", ["tumbling", "session", "early", "behind another"])
def test_what_windows_hold_at_the_end_of_their_input_is_waited_for(window: str, crash: bool, parallelism: int) -> None:
    """Another stream is an hour ahead when the windows' own input ends: none of their results is late behind them."""
    ended = source([[(f"k{i}", i, i * S // 10) for i in range(0, 20, 2)], [(f"k{i}", i, i * S // 10) for i in (1, 3)]])
    ahead: list[Rows] = [[(f"k{i}", i, i * S // 10) for i in range(20)], [("k0", 0, 3600 * S), At("4s")]]
    other = source(ahead, "k string, m bigint, then timestamp", "other")
    windows: dict[str, Any] = {
        "tumbling": ps.tumbling("4s", on="at"),
        "session": ps.session("4s", on="at"),
        "early": ps.tumbling("4s", on="at", early="4s"),
    }
    if window == "behind another":
        first = ended.key_by("k").window("1s", on="at").count()
        counted = first.key_by("k").window("4s", on="window_start").count()
    else:
        counted = ended.key_by("k").window(windows[window]).count()
    time = "window_end" if window == "session" else "window_start"
    joined = counted.join(other, on="k", within="10s", left_time=time, right_time="then", how="left").select("k", "m")
    harness = Harness(joined.to(ps.memory()), parallelism=parallelism, idle="1h")
    if crash:
        harness.advance("3s")  # epochs after the one in which the windows have ended
        harness.crash()
    harness.run()
    assert harness.count("join", "late") == 0
    assert bag(harness.rows()) == Counter((f"k{i}", i) for i in (*range(0, 20, 2), 1, 3))


@WIDTHS
def test_a_window_behind_a_window_closes_although_no_key_comes_to_an_instance(parallelism: int) -> None:
    rows = [item for i in range(100) for item in (At(i), ("one", i, i * S))]
    first = source([[*rows, At(150)]]).key_by("k").window("5s", on="at").count()
    second = first.key_by("k").window("20s", on="window_end").sum("count")
    harness = Harness(second.to(ps.memory()), parallelism=parallelism)
    harness.advance("95s")
    assert len(harness.rows()) >= 3
    harness.run()
    assert harness.count("sum", "late") == 0
    assert sum(row["sum"] for row in harness.rows()) == 100


@WIDTHS
@pytest.mark.parametrize("on", ["window_start", "window_end"])
def test_windows_behind_windows_need_no_lateness_of_their_own(parallelism: int, on: str) -> None:
    partitions = disordered(7, 3)
    first = source(partitions).with_watermark("at", "15s").key_by("k").window("5s", on="at").count()
    second = first.key_by("k").window("10s", on=on).sum("count")
    third = second.window("60s", on="window_start").sum("sum")
    harness = Harness(third.to(ps.memory()), parallelism=parallelism, idle="1h")
    harness.run()
    assert [harness.count(each, "late") for each in ("count", "sum", "sum-2")] == [0, 0, 0]
    assert sum(row["sum"] for row in harness.rows()) == 360


@WIDTHS
@pytest.mark.parametrize("match", ["all", "once"])
@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("times", [("at", "at"), ("clicked", "seen")])
def test_a_window_behind_a_join_needs_no_lateness_of_its_own(
    parallelism: int, match: str, how: str, times: tuple[str, str]
) -> None:
    random = Random(3)
    left_time, right_time = times

    def side(seed: int) -> list[Rows]:
        rows: list[Rows] = [[], []]
        for i in range(200):
            at = i * S // 10 - random.randint(0, 2) * S
            rows[i % 2] += [At(i / 10 + seed), (f"k{random.randrange(9)}", i, at)]
        return rows

    lefts, rights = side(0), side(3)
    clicks = source(lefts, f"k string, n bigint, {left_time} timestamp", "clicks").with_watermark(left_time, "2s")
    views = source(rights, f"k string, m bigint, {right_time} timestamp", "views").with_watermark(right_time, "2s")
    named = {"time": "at"} if left_time == right_time else {"left_time": left_time, "right_time": right_time}
    pairs = clicks.join(views, on="k", within="1s", how=how, match=match, **named)
    pairs = pairs.map(lambda r: tuple(getattr(r, name) for name in pairs.schema.names), schema=pairs.schema)
    windows = pairs.key_by("k").window("5s", on=left_time, slide="2s").count()
    pipeline = windows.to(ps.memory(), name="windows") + pairs.to(ps.memory(), name="pairs")
    harness = Harness(pipeline, parallelism=parallelism, idle="1h")
    harness.run()
    assert (harness.count("join", "late"), harness.count("count", "late")) == (0, 0)
    expected: Counter[tuple[Any, int]] = Counter()
    for pair in harness.rows("pairs"):
        for start in sliding("5s", slide="2s", on="at").starts(pair[left_time]):
            expected[pair["k"], start] += 1
    assert expected
    assert {(row["k"], row["window_start"]): row["count"] for row in harness.rows("windows")} == expected


# --- two notions of event time ----------------------------------------------------------------------------------------


@WIDTHS
def test_branches_may_follow_different_columns(parallelism: int) -> None:
    rows = [item for i in range(60) for item in (At(i / 10), (f"k{i % 3}", i, i * S, 7200 * S - i * 100 * S))]
    stream = source([rows[::1]], "k string, n bigint, at timestamp, other timestamp")
    one = stream.key_by("k").window("5s", on="at").count()
    two = stream.key_by("k").window("5s", on="other", lateness="2h").count()
    pipeline = one.to(ps.memory(), name="one") + two.to(ps.memory(), name="two")
    harness = Harness(pipeline, parallelism=parallelism)
    harness.run()
    assert [sum(row["count"] for row in harness.rows(each)) for each in ("one", "two")] == [60, 60]


@WIDTHS
def test_two_readers_of_one_column_each_have_their_own_lateness(parallelism: int) -> None:
    partitions = disordered(5, 2)
    stream = source(partitions)
    strict = stream.key_by("k").window("5s", on="at").count()
    patient = stream.key_by("k").window("5s", on="at", lateness="15s").count()
    pipeline = strict.to(ps.memory(), name="strict") + patient.to(ps.memory(), name="patient")
    harness = Harness(pipeline, parallelism=parallelism, idle="1h")
    harness.run()
    assert bag(harness.rows("strict")) == on_time(partitions, 5 * S, 0)[0]
    assert bag(harness.rows("patient")) == on_time(partitions, 5 * S, 15 * S)[0]


@WIDTHS
def test_late_records_may_be_put_into_windows_of_their_own(parallelism: int) -> None:
    partitions = disordered(5, 2)
    strict = source(partitions).key_by("k").window("5s", on="at").count()
    again = strict.late.key_by("k").window("5s", on="at", lateness="1h").count()
    pipeline = strict.to(ps.memory(), name="strict") + again.to(ps.memory(), name="again")
    harness = Harness(pipeline, parallelism=parallelism, idle="1h")
    harness.run()
    expected, late = on_time(partitions, 5 * S, 0)
    assert bag(harness.rows("strict")) == expected
    assert sum(row["count"] for row in harness.rows("again")) == late > 20


def test_a_deep_graph_of_branches_is_planned_at_once() -> None:
    stream = source([[("a", 1, 0)]]).with_watermark("at", "1s")
    for i in range(40):
        stream = stream.map(lambda r: (r.k, r.n, r.at), schema=EVENT, name=f"map{i}") if i % 2 else stream
        parts = stream.split(name=f"split{i}", even=ps.col("n") % 2 == 0)
        stream = parts["even"].merge(parts["rest"], name=f"merge{i}")
    plan = Plan.of(stream.key_by("k").window("5s", on="at").count().to(ps.memory()).graph(), Options.of(parallelism=2))
    assert [unit.name for unit in plan.units if unit.timing is not None] == ["in"]
    assert plan.lanes(plan.units[-1].id, 0)
    assert not plan.keeps_lanes(plan.units[-1].id)


# --- allowed lateness -------------------------------------------------------------------------------------------------


@WIDTHS
def test_a_window_that_is_kept_makes_its_result_anew(parallelism: int) -> None:
    rows = [
        *[At(0), ("a", 1, 1 * S), ("a", 2, 2 * S)],
        *[At(1), ("a", 3, 12 * S)],  # closes the first window
        *[At(2), ("a", 4, 3 * S)],  # comes for it, and it is kept
        *[At(3), ("a", 5, 16 * S)],  # no longer
        *[At(4), ("a", 6, 4 * S)],  # late
        At(5),
    ]
    windows = source([rows]).key_by("k").window("10s", on="at", allowed_lateness="5s")
    harness = Harness(windows.count().to(ps.memory()), parallelism=parallelism)
    harness.run()
    assert [(row["window_start"], row["count"]) for row in harness.rows()] == [(0, 2), (0, 3), (10 * S, 2)]
    assert harness.count("count", "late") == 1


# --- sessions ---------------------------------------------------------------------------------------------------------


def sessions_on_time(partitions: list[Rows], gap_us: int, delay_us: int) -> tuple[Counter[tuple[Any, ...]], int]:
    """Sessions of what is not behind the watermark of its own partition, and how much is."""
    kept, late = [], 0
    for rows in partitions:
        newest: int | None = None
        for k, _, at in plain(rows):
            if newest is not None and at < newest - delay_us:
                late += 1
            else:
                kept.append((k, at))
            newest = at if newest is None else max(newest, at)
    found: list[list[Any]] = []
    for k, at in sorted(kept):
        if found and found[-1][0] == k and at <= found[-1][2]:
            found[-1][2:] = at + gap_us, found[-1][3] + 1
        else:
            found.append([k, at, at + gap_us, 1])
    return Counter(tuple(each) for each in found), late


@pytest.mark.parametrize("forms", ["record", "batch"])
@pytest.mark.parametrize("between", [BETWEEN[each] for each in ("chained", "merge", "shuffle")])
def test_sessions_are_those_of_what_is_on_time(between: Callable[[ps.Stream], ps.Stream], forms: str) -> None:
    partitions = disordered(11, 3)
    declared = between(source(partitions).with_watermark("at", "4s"))
    sink = ps.memory()
    sessions = declared.key_by("k").window(ps.session("700ms", on="at")).count()
    options = Options.of(parallelism=2, epoch="200ms", idle="1h", forms=forms, slots=2)
    cluster = Cluster(Plan.of(sessions.to(sink).graph(), options))
    cluster.run_until(1 << 62)
    expected, late = sessions_on_time(partitions, 700_000, 4 * S)
    assert late > 20
    assert len(expected) > 40
    assert Counter((row.k, row.window_start, row.window_end, row.count) for row in sink.rows) == expected
    figures = [each for worker in cluster.workers for each in worker.figures()]
    assert sum(each.late for each in figures if each.operation == "count") == late


@WIDTHS
@WAYS
def test_a_clock_that_steps_back_makes_late_records_and_loses_none(
    between: Callable[[ps.Stream], ps.Stream], parallelism: int
) -> None:
    """The clock of one producer is set back by an hour for a while; the other one's goes on."""
    steady = [row for i in range(60) for row in (At(i / 10), ("s", 2 * i, i * S))]
    stepped = [
        row for i in range(60) for row in (At(i / 10), ("t", 2 * i + 1, (i - 3600 * (20 <= i < 40)) * S + 7_200 * S))
    ]
    partitions = [steady, stepped]
    counted = between(source(partitions).with_watermark("at", "2s")).key_by("k").window(ps.tumbling("10s", on="at"))
    counts = counted.aggregate(n=ps.agg.count())
    harness = Harness(
        counts.to(ps.memory(), name="counts") + counts.late.to(ps.memory(), name="late"), parallelism=parallelism
    )
    harness.run()
    exact, late = on_time(partitions, 10 * S, 2 * S)
    assert late == 20, "those of the hour before"
    assert bag(harness.rows("counts")) == exact
    assert [row["k"] for row in harness.rows("late")] == ["t"] * late
    assert sum(row["n"] for row in harness.rows("counts")) + late == len(plain(steady)) + len(plain(stepped))
