"""Session windows: what comes out is what a sort of all records that are on time would give."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from states import restore, snapshot

from penstock.operators import Aggregation, ErrorPolicy, Errors, Reduce, session
from penstock.operators.keyed import aggregates as agg
from penstock.operators.keyed.reduce import LATE
from penstock.operators.keyed.sessions import SessionOperator
from penstock.types import Schema

SCHEMA = Schema.parse("k string, n bigint, at timestamp")
GAP = 10
MOVES = st.lists(
    st.tuples(st.just("rows"), st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 150)), max_size=6))
    | st.tuples(st.just("advance"), st.integers(0, 160))
    | st.tuples(st.sampled_from(["snapshot", "restart"]), st.booleans()),
    max_size=25,
)
Row = tuple[str, int, int]


def built(keys: tuple[str, ...] = ("k",), lateness_us: int = 0) -> SessionOperator:
    window = session(f"{GAP}us", on="at", lateness=f"{lateness_us}us")
    of = Aggregation(keys, (("c", agg.count()), ("s", agg.sum("n")), ("low", agg.min("at"))), window)
    made = Reduce(of, SCHEMA, whole=True).build(SCHEMA, Errors("under test", ErrorPolicy.FAIL))
    assert isinstance(made, SessionOperator)
    return made


def sorted_into_sessions(rows: list[Row]) -> list[tuple[Any, ...]]:
    """Key, start, end, count and sum of each session."""
    found: list[list[Any]] = []
    for k, n, at in sorted(rows, key=lambda row: (row[0], row[2])):
        last = found[-1] if found and found[-1][0] == k else None
        if last is not None and at <= last[2]:
            last[2], last[3], last[4] = at + GAP, last[3] + 1, last[4] + n
        else:
            found.append([k, at, at + GAP, 1, n])
    return [tuple(each) for each in found]


def shown(rows: list[Any]) -> list[tuple[Any, ...]]:
    for row in rows:
        assert row.low == row.window_start
    return [(row.k, row.window_start, row.window_end, row.c, row.s) for row in rows]


@given(moves=MOVES, lateness_us=st.integers(0, 20))
def test_sessions_are_those_of_a_sort(moves: list[Any], lateness_us: int) -> None:
    operator = built(lateness_us=lateness_us)
    snapshots: list[bytes] = []
    kept: list[Row] = []
    found: list[tuple[Any, ...]] = []
    watermark_us, number = -1, 0
    for what, given_ in moves:
        if what == "rows":
            rows = []
            for k, at in given_:
                number += 1
                rows.append((k, number, at))
            done = operator.process([SCHEMA.record_type(*row) for row in rows])
            behind = [row for row in rows if row[2] < watermark_us]
            assert [(r.k, r.n, r.at) for r in (done.sides or {}).get(LATE, [])] == behind
            assert done.late == len(behind)
            kept += [row for row in rows if row[2] >= watermark_us]
        elif what == "advance":
            watermark_us = max(watermark_us, given_ - lateness_us)
            closed = shown(operator.advance(given_).rows)
            assert all(end < watermark_us for _, _, end, _, _ in closed)
            assert [each[2] for each in closed] == sorted(each[2] for each in closed)
            found += closed
        else:
            snapshots = [] if given_ or not snapshots else snapshots
            snapshots.append(snapshot(operator, full=not snapshots))
            if what == "restart":
                operator = built(lateness_us=lateness_us)
                restore(operator, snapshots)
                snapshots = []
    found += shown(operator.finish().rows)
    assert operator.open_groups == 0
    assert sorted(found) == sorted(sorted_into_sessions(kept))


def test_a_record_may_join_two_sessions() -> None:
    operator = built()
    operator.process([SCHEMA.record_type("a", n, at) for n, at in ((1, 0), (2, 20), (3, 10), (4, 31))])
    assert operator.open_groups == 2
    assert shown(operator.advance(30).rows) == []
    assert shown(operator.advance(31).rows) == [("a", 0, 30, 3, 6)]
    assert shown(operator.finish().rows) == [("a", 31, 41, 1, 4)]


def test_without_a_key_there_is_one_row_of_sessions() -> None:
    operator = built(keys=())
    operator.process([SCHEMA.record_type(k, 1, at) for k, at in (("a", 0), ("b", 9), ("a", 40))])
    rows = operator.finish().rows
    assert [(row.window_start, row.window_end, row.c) for row in rows] == [(0, 19, 2), (40, 50, 1)]


def test_a_straggler_is_judged_by_its_own_partition() -> None:
    operator = built()
    operator.straggler_us = 50
    assert operator.process([SCHEMA.record_type("a", 1, 49), SCHEMA.record_type("a", 2, 50)]).late == 1
    operator.straggler_us = None
    assert operator.process([SCHEMA.record_type("a", 4, 3)]).late == 0
    assert shown(operator.finish().rows) == [("a", 3, 13, 1, 4), ("a", 50, 60, 1, 2)]


def test_a_bad_record_leaves_no_trace_in_the_state() -> None:
    of = Aggregation(("k",), (("s", agg.sum("n")),), session(f"{GAP}us", on="at"))
    operator = Reduce(of, SCHEMA, whole=True).build(SCHEMA, Errors("under test", ErrorPolicy.SKIP))
    assert isinstance(operator, SessionOperator)
    done = operator.process([SCHEMA.record_type("a", n, at) for n, at in ((1, 0), (2, None), (4, 6))])
    assert done.failures is not None
    assert done.failures.counts.skipped == 1
    assert [row.s for row in operator.finish().rows] == [5]


@pytest.mark.parametrize("keys", [("k",), ("k", "n")])
def test_keys_survive_a_snapshot(keys: tuple[str, ...]) -> None:
    operator = built(keys)
    operator.process([SCHEMA.record_type("a", 1, 0)])
    packed = snapshot(operator, full=True)
    again = built(keys)
    restore(again, [packed])
    again.process([SCHEMA.record_type("a", 1, 4)])
    (row,) = again.finish().rows
    assert row.c == 2
