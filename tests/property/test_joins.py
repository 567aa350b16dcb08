"""Joins whose records are each in one pair at most: any order of arrival, any blocks, any snapshots, one result."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joining import Joining, Row
from penstock.operators import JoinHow, Side, join
from penstock.operators.keyed.match_once import MatchOnceOperator
from penstock.types import Schema

LEFT = Schema.parse("a bigint, k string, t timestamp, s string")
RIGHT = Schema.parse("k string, b string, u timestamp")
HOWS = pytest.mark.parametrize("how", list(JoinHow))


def joined_once(within_us: int, lateness_us: int, how: JoinHow, left: Schema = LEFT, right: Schema = RIGHT) -> Joining:
    times = {"left_time": "t", "right_time": "u", "lateness": f"{lateness_us}us"}
    once = Joining(join("k", within=f"{within_us}us", how=how.value, match="once", **times), left, right)
    assert isinstance(once.match, MatchOnceOperator)
    return once


def recomputed(lefts: list[Row], rights: list[Row], within_us: int, how: JoinHow) -> Counter[Row]:
    """The contract, literally: rows in their order, each with the first one that waits, or to wait."""

    def nulls_first(values: Row) -> list[Row]:
        return [(value is not None, value) for value in values]

    rows: list[Any] = [(t, 0, nulls_first((a, s)), k, (a, k, t, s)) for a, k, t, s in lefts]
    rows += [(u, 1, nulls_first((b,)), k, (k, b, u)) for k, b, u in rights]
    rows.sort(key=lambda row: row[:3])
    waiting: list[Any] = []
    found: Counter[Row] = Counter()
    for row in rows:
        time_us, side, _, key, values = row
        partners = [each for each in waiting if each[1] != side and each[3] == key and each[0] >= time_us - within_us]
        if key is None or not partners:
            waiting.append(row)
            continue
        waiting.remove(partners[0])
        left, right = (values, partners[0][4]) if side == 0 else (partners[0][4], values)
        found[(*left, *right[1:])] += 1
    if how.keeps_left:
        found.update((*values, None, None) for _, side, _, _, values in waiting if side == 0)
    if how.keeps_right:
        found.update((None, k, None, None, b, u) for _, side, _, _, (k, b, u) in (w for w in waiting if w[1] == 1))
    return found


KEYS = st.sampled_from(["x", "y", None])
TIMES = st.integers(0, 40)
LEFT_ROWS = st.tuples(st.none() | st.integers(0, 3), KEYS, TIMES, st.sampled_from(["", "ä", None]))
RIGHT_ROWS = st.tuples(KEYS, st.sampled_from(["p", "q", None]), TIMES)
MOVES = st.one_of(
    st.tuples(st.just(Side.LEFT), st.lists(LEFT_ROWS, max_size=6)),
    st.tuples(st.just(Side.RIGHT), st.lists(RIGHT_ROWS, max_size=6)),
    st.tuples(st.just("advance"), st.integers(0, 60)),
    st.tuples(st.just("snapshot"), st.booleans()),
    st.tuples(st.just("restore"), st.booleans()),
)


@HOWS
@settings(max_examples=150)
@given(moves=st.lists(MOVES, max_size=20), within_us=st.integers(0, 30), lateness_us=st.integers(0, 15))
def test_the_result_is_that_of_taking_what_is_not_late_in_order(
    how: JoinHow, moves: list[Any], within_us: int, lateness_us: int
) -> None:
    once = joined_once(within_us, lateness_us, how)
    accepted: dict[Side, list[Row]] = {Side.LEFT: [], Side.RIGHT: []}
    watermark_us, late = -1000, 0
    for move, what in moves:
        match move:
            case "advance":
                watermark_us = max(watermark_us, what - lateness_us)
                once.advance(what)
            case "snapshot":
                once.snapshot(what)
            case "restore":
                once.restart(what)
            case Side():
                once.add(move, what)
                key = 1 if move is Side.LEFT else 0
                for row in what:
                    if row[2] >= watermark_us:
                        accepted[move].append(row)
                    elif row[key] is not None or how.keeps(move):
                        late += 1
    assert once.late == late
    assert Counter(once.finish()) == recomputed(accepted[Side.LEFT], accepted[Side.RIGHT], within_us, how)


@HOWS
@given(
    data=st.data(),
    lefts=st.lists(LEFT_ROWS, max_size=25),
    rights=st.lists(RIGHT_ROWS, max_size=25),
    within_us=st.integers(0, 30),
    lateness_us=st.integers(0, 10),
)
def test_partitions_blocks_and_restarts_make_no_difference(
    how: JoinHow, data: st.DataObject, lefts: list[Row], rights: list[Row], within_us: int, lateness_us: int
) -> None:
    """Each side in two partitions that are in order but for the lateness, each read in blocks of its own sizes."""
    once = joined_once(within_us, lateness_us, how)
    inputs: list[tuple[Side, list[Row]]] = []
    for side, rows in ((Side.LEFT, lefts), (Side.RIGHT, rights)):
        jitter = data.draw(st.lists(st.integers(0, lateness_us), min_size=len(rows), max_size=len(rows)))
        order = sorted(range(len(rows)), key=lambda i, rows=rows, jitter=jitter: rows[i][2] + jitter[i])  # type: ignore[misc]
        inputs += [(side, [rows[i] for i in order[part::2]]) for part in range(2)]
    reached = [-1] * 4
    while any(rows for _, rows in inputs):
        i = data.draw(st.sampled_from([i for i, (_, rows) in enumerate(inputs) if rows]))
        side, rows = inputs[i]
        size = data.draw(st.integers(1, 7))
        block, rows[:] = rows[:size], rows[size:]
        once.add(side, block)
        reached[i] = max([reached[i], *(row[2] for row in block)])
        open_inputs = [reached[i] for i in range(4) if inputs[i][1]]
        if open_inputs and min(open_inputs) >= 0:
            once.advance(min(open_inputs))
        if data.draw(st.integers(0, 4)) == 0:
            once.restart(data.draw(st.booleans()))
    assert once.late == 0
    assert Counter(once.finish()) == recomputed(lefts, rights, within_us, how)


@HOWS
@settings(max_examples=60)
@given(before=st.lists(MOVES, max_size=14), after=st.lists(MOVES, max_size=8))
def test_a_restored_state_gives_the_same_rows_in_the_same_order(
    how: JoinHow, before: list[Any], after: list[Any]
) -> None:
    original, again = joined_once(16, 3, how), joined_once(16, 3, how)
    for once, restores in ((original, False), (again, True)):
        for move, what in [*before, ("restore", False), *after]:
            match move:
                case "advance":
                    once.advance(what)
                case "snapshot":
                    once.snapshot(what)
                case "restore" if restores:
                    once.restart(what)
                case Side():
                    once.add(move, what)
        once.finish()
    assert again.out == original.out
    assert again.late == original.late


@given(moves=st.lists(MOVES, max_size=20), within_us=st.integers(0, 30))
def test_pairs_come_in_the_order_of_time(moves: list[Any], within_us: int) -> None:
    """By the later of the two times, so that a window over them waits for nothing."""
    once = joined_once(within_us, 0, JoinHow.INNER)
    for move, what in moves:
        if move == "advance":
            once.advance(what)
        elif isinstance(move, Side):
            once.add(move, what)
    once.finish()
    later = [max(t, u) for _, _, t, _, _, u in once.out]
    assert later == sorted(later)


ODD_DOUBLES = [0.0, -0.0, 1.5, float("inf"), float("-inf"), float("nan"), None]
ODD_LEFT = Schema.parse("k int, t timestamp, x double, w array<double>, raw binary, yes boolean, day date")
ODD_RIGHT = Schema.parse("k int, u timestamp, tags array<array<string>>")
ODD_ROWS = st.tuples(
    st.just(1),
    st.integers(0, 2),
    st.sampled_from(ODD_DOUBLES),
    st.none() | st.lists(st.sampled_from(ODD_DOUBLES), max_size=2),
    st.sampled_from([b"", b"\xff", None]),
    st.sampled_from([True, False, None]),
    st.sampled_from([-1, 0, None]),
)
ODD_TAGS = st.none() | st.lists(st.none() | st.lists(st.sampled_from(["", "é", None]), max_size=2), max_size=2)


@HOWS
@given(
    data=st.data(),
    lefts=st.lists(ODD_ROWS, max_size=8),
    rights=st.lists(st.tuples(st.just(1), st.integers(0, 2), ODD_TAGS), max_size=8),
)
def test_every_value_has_its_place_in_the_order(
    how: JoinHow, data: st.DataObject, lefts: list[Row], rights: list[Row]
) -> None:
    """Nulls, NaN, both zeros, arrays: what is paired with what does not depend on which of equal times came first."""
    rows = [(Side.LEFT, row) for row in lefts] + [(Side.RIGHT, row) for row in rights]
    results = []
    for arrival in (rows, data.draw(st.permutations(rows))):
        once = joined_once(1, 0, how, ODD_LEFT, ODD_RIGHT)
        for side, row in arrival:
            once.add(side, [row])
        results.append(Counter(map(repr, once.finish())))
    assert results[0] == results[1]
