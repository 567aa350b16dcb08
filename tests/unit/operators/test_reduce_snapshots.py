"""The state of an aggregation through snapshots: what is restored goes on exactly as the original does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from states import restore, snapshot

from penstock.errors import PenstockError
from penstock.operators import Aggregation, Combine, ErrorPolicy, Errors, Reduce, sliding, tumbling
from penstock.operators.keyed import aggregates as agg
from penstock.operators.keyed.aggregates import Mergeable
from penstock.operators.keyed.reduce import LATE, ReduceOperator
from penstock.types import Record, Schema, record_dict

SCHEMA = Schema.parse("k string, j bigint, n bigint, x double, at timestamp")


class Distinct(Mergeable):
    """Number of distinct values, with a list as its state."""

    def init(self) -> Any:
        return []

    def add(self, state: Any, record: Any) -> Any:
        return state if record.n in state else [*state, record.n]

    def merge(self, left: Any, right: Any) -> Any:
        return left + [each for each in right if each not in left]

    def result(self, state: Any) -> Any:
        return len(state)


class Opaque(Distinct):
    def init(self) -> Any:
        return object()

    def add(self, state: Any, record: Any) -> Any:
        return state


AGGREGATES = {
    "c": agg.count(),
    "s": agg.sum("n"),
    "lo": agg.min("x"),
    "hi": agg.max("k"),
    "mean": agg.mean("n"),
    "first": agg.first("n"),
    "last": agg.last("x"),
    "distinct": agg.custom(Distinct(), type="bigint"),
}
WINDOWS: dict[str, Any] = {
    "closing": tumbling("10us", on="at", lateness="3us"),
    "updating": tumbling("10us", on="at", lateness="3us", emit="update"),
    "sliding": sliding("10us", slide="4us", on="at", lateness="3us"),
    "sliding updates": sliding("10us", slide="5us", on="at", lateness="3us", emit="update"),
    "running": None,
}
KEYS: list[tuple[str, ...]] = [("k",), ("k", "j"), ()]


class Halves:
    """Both halves of one aggregation; a block goes in, rows come out."""

    def __init__(self, keys: tuple[str, ...], window: Any, *, whole: bool = False, **aggs: Any) -> None:
        of = Aggregation(keys, tuple((aggs or AGGREGATES).items()), window)
        errors = Errors("agg", ErrorPolicy.FAIL)
        combine = Combine(of, whole)
        self.combine = combine.build(SCHEMA, errors)
        reduce = Reduce(of, SCHEMA, whole).build(combine.bind(SCHEMA), errors)
        assert isinstance(reduce, ReduceOperator)
        self.reduce = reduce
        self.late: list[tuple[Any, ...]] = []
        self.late_records = 0
        """Of the last block, those that were put aside, and how many there were."""

    def add(self, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        result = self.reduce.process(self.combine.process([SCHEMA.record_type(*row) for row in rows]).rows)
        self.late_records = result.late
        self.late = plain((result.sides or {}).get(LATE, []))
        return plain(result.rows)


def plain(rows: list[Record]) -> list[tuple[Any, ...]]:
    return [tuple(record_dict(row).values()) for row in rows]


def row(k: str, n: int, at: int = 0) -> tuple[Any, ...]:
    return (k, 0, n, 0.5, at)


# --- single steps -----------------------------------------------------------------------------------------------------


def restored(make: Callable[[], Halves], *snapshots: bytes) -> Halves:
    halves = make()
    restore(halves.reduce, snapshots)
    return halves


def windowed() -> Halves:
    return Halves(("k",), WINDOWS["closing"], c=agg.count(), s=agg.sum("n"))


def test_a_whole_snapshot_holds_everything() -> None:
    halves = windowed()
    halves.add([row("a", 1), row("b", 2), row("a", 3, 15)])
    again = restored(windowed, snapshot(halves.reduce, True))
    assert again.reduce.open_groups == 3
    assert plain(again.reduce.finish().rows) == plain(halves.reduce.finish().rows)


def test_changes_hold_only_what_changed() -> None:
    halves = windowed()
    halves.add([row(f"k{i}", 1) for i in range(1000)])
    full = snapshot(halves.reduce, True)
    assert len(snapshot(halves.reduce, False)) < 30, "nothing has"
    halves.add([row("k7", 5), row("new", 5)])
    delta = snapshot(halves.reduce, False)
    assert len(delta) < len(full) / 100
    again = restored(windowed, full, delta)
    assert again.reduce.open_groups == 1001
    assert sorted(plain(again.reduce.finish().rows)) == sorted(plain(halves.reduce.finish().rows))


def test_windows_that_closed_in_between_are_gone_and_stay_closed() -> None:
    halves = windowed()
    halves.add([row("a", 1), row("a", 1, 12)])
    full = snapshot(halves.reduce, True)
    halves.add([row("a", 1, 25), row("b", 1, 3)])
    assert plain(halves.reduce.advance(13).rows) == [("a", 0, 10, 1, 1), ("b", 0, 10, 1, 1)]
    delta = snapshot(halves.reduce, False)
    again = restored(windowed, full, delta)
    again.add([row("a", 1, 9)])
    assert again.late_records == 1
    assert again.reduce.advance(13).rows == []
    assert plain(again.reduce.finish().rows) == [("a", 10, 20, 1, 1), ("a", 20, 30, 1, 1)]


def test_a_window_that_came_and_went_between_two_snapshots_leaves_nothing() -> None:
    halves = windowed()
    full = snapshot(halves.reduce, True)
    halves.add([row("a", 1)])
    halves.reduce.advance(100)
    again = restored(windowed, full, snapshot(halves.reduce, False))
    assert again.reduce.open_groups == 0
    assert again.reduce.finish().rows == []


def test_what_is_restored_is_not_a_change() -> None:
    halves = windowed()
    halves.add([row(f"k{i}", 1) for i in range(100)])
    again = restored(windowed, snapshot(halves.reduce, True))
    assert len(snapshot(again.reduce, False)) < 30


def test_a_snapshot_is_of_its_moment() -> None:
    halves = windowed()
    halves.add([row("a", 1)])
    full = snapshot(halves.reduce, True)
    halves.add([row("a", 1)])
    assert plain(restored(windowed, full).reduce.finish().rows) == [("a", 0, 10, 1, 1)]


def test_a_state_that_cannot_be_stored_names_the_operation() -> None:
    halves = Halves(("k",), WINDOWS["closing"], whole=True, o=agg.custom(Opaque(), type="bigint"))
    halves.add([row("a", 1)])
    with pytest.raises(PenstockError, match=r"operation 'agg'.*cannot be stored"):
        snapshot(halves.reduce, True)


# --- any input --------------------------------------------------------------------------------------------------------

ROWS = st.tuples(
    st.sampled_from(["a", "b", "ö", "", None]),
    st.sampled_from([0, 1, None]),
    st.none() | st.integers(-(1 << 40), 1 << 40),
    st.none() | st.floats(allow_nan=False),
    st.integers(0, 60),
)
BLOCKS = st.lists(ROWS, max_size=8)
MOVES = st.one_of(
    st.tuples(st.just("add"), BLOCKS),
    st.tuples(st.just("add"), BLOCKS),
    st.tuples(st.just("advance"), st.integers(0, 70)),
    st.tuples(st.just("snapshot"), st.booleans()),
)


def do(halves: Halves, move: str, what: Any) -> list[Any]:
    if move == "add":
        return [halves.add(what), halves.late, halves.late_records]
    return plain(halves.reduce.advance(what).rows)


@pytest.mark.parametrize("whole", [False, True], ids=["partials", "whole"])
@pytest.mark.parametrize("window", list(WINDOWS))
@pytest.mark.parametrize("keys", KEYS, ids=lambda keys: "+".join(keys) or "none")
@settings(max_examples=20, deadline=None)
@given(before=st.lists(MOVES, max_size=14), after=st.lists(MOVES, max_size=8))
def test_a_restored_state_behaves_exactly_like_the_original(
    keys: tuple[str, ...], window: str, whole: bool, before: list[Any], after: list[Any]
) -> None:
    def make() -> Halves:
        return Halves(keys, WINDOWS[window], whole=whole)

    original = make()
    chain: list[bytes] = [snapshot(original.reduce, True)]
    for move, what in [*before, ("snapshot", False)]:
        if move == "snapshot":
            packed = snapshot(original.reduce, what)
            chain = [packed] if what else [*chain, packed]
        else:
            do(original, move, what)
    again = restored(make, *chain)
    assert again.reduce.open_groups == original.reduce.open_groups
    for move, what in after:
        if move == "snapshot":
            # Go on from a snapshot of the restored one: chains may be restored and continued again and again.
            chain = [snapshot(again.reduce, True)]
            again = restored(make, *chain)
        else:
            assert do(again, move, what) == do(original, move, what)
    assert sorted(plain(again.reduce.finish().rows), key=repr) == sorted(plain(original.reduce.finish().rows), key=repr)
