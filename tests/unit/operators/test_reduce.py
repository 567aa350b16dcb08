"""The half of an aggregation that owns the state: closing, lateness, and what a record that raises leaves behind."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import InvalidOption, OperationFailed, PenstockError, TypeMismatch
from penstock.operators import Aggregation, Combine, ErrorPolicy, Errors, Reduce, Result, tumbling
from penstock.operators.errors import ErrorCounts
from penstock.operators.keyed import aggregates as agg
from penstock.operators.keyed.reduce import LATE, ReduceOperator
from penstock.types import Record, Schema, record_dict

SCHEMA = Schema.parse("k string, n bigint, at timestamp")


class Halves:
    """Both halves of one aggregation, joined."""

    def __init__(
        self, *, whole: bool, keys: tuple[str, ...] = ("k",), policy: Any = "fail", window: Any = None, **aggs: Any
    ):
        of = Aggregation(keys, tuple((aggs or {"n": agg.count()}).items()), window)
        of.bind(SCHEMA)
        errors = Errors("agg", ErrorPolicy(policy))
        self.counts = ErrorCounts()
        combine = Combine(of, whole)
        self.combine = combine.build(SCHEMA, errors)
        reduce = Reduce(of, SCHEMA, whole).build(combine.bind(SCHEMA), errors)
        assert isinstance(reduce, ReduceOperator)
        self.reduce = reduce
        self.late = 0

    def add(self, *rows: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        return plain(self.process(*rows).rows)

    def process(self, *rows: tuple[Any, ...]) -> Result:
        combined = self.combine.process([SCHEMA.record_type(*row) for row in rows])
        reduced = self.reduce.process(combined.rows)
        for each in (combined, reduced):
            if each.failures is not None:
                self.counts.add(each.failures.counts)
        self.late += reduced.late
        return reduced


def plain(rows: list[Record]) -> list[tuple[Any, ...]]:
    return [tuple(record_dict(row).values()) for row in rows]


BOTH = pytest.mark.parametrize("whole", [False, True], ids=["partials", "whole"])


@BOTH
def test_a_window_closes_at_its_end_plus_the_lateness(whole: bool) -> None:
    halves = Halves(whole=whole, window=tumbling("10us", on="at", lateness="3us"))
    assert halves.add(("a", 1, 0), ("a", 1, 9), ("b", 1, 12)) == []
    assert halves.reduce.advance(12).rows == []
    assert plain(halves.reduce.advance(13).rows) == [("a", 0, 10, 2)]
    assert halves.reduce.advance(13).rows == []
    assert halves.reduce.open_groups == 1
    halves.add(("a", 1, 9), ("a", 1, 10))
    assert halves.late == 1
    assert plain(halves.reduce.finish().rows) == [("b", 10, 20, 1), ("a", 10, 20, 1)]
    assert halves.reduce.open_groups == 0


@BOTH
def test_event_time_does_not_go_back(whole: bool) -> None:
    halves = Halves(whole=whole, window=tumbling("10us", on="at"))
    halves.reduce.advance(100)
    assert halves.reduce.advance(5).rows == []
    halves.add(("a", 1, 50), ("a", 1, 100), ("a", 1, 99))
    assert halves.late == 2
    assert plain(halves.reduce.finish().rows) == [("a", 100, 110, 1)]


def test_late_records_come_out_whole_and_in_order() -> None:
    halves = Halves(whole=True, window=tumbling("10us", on="at"))
    halves.reduce.advance(100)
    result = halves.process(("a", 1, 5), ("b", 2, 105), ("c", None, -7))
    assert result.sides is not None
    assert plain(result.sides[LATE]) == [("a", 1, 5), ("c", None, -7)]
    assert halves.process(("b", 2, 105)).sides is None
    assert halves.late == 2


@BOTH
def test_windows_before_the_epoch_are_aligned_too(whole: bool) -> None:
    halves = Halves(whole=whole, window=tumbling("10us", on="at"))
    halves.add(("a", 1, -1), ("a", 1, -10), ("a", 1, -11))
    assert plain(halves.reduce.finish().rows) == [("a", -20, -10, 1), ("a", -10, 0, 2)]


@BOTH
def test_updates_show_each_touched_group_once(whole: bool) -> None:
    halves = Halves(whole=whole, window=tumbling("10us", on="at", emit="update"))
    assert halves.add(("a", 1, 0), ("b", 1, 0), ("a", 1, 5), ("a", 1, 15)) == [
        ("a", 0, 10, 2),
        ("b", 0, 10, 1),
        ("a", 10, 20, 1),
    ]
    assert halves.add(("a", 1, 1)) == [("a", 0, 10, 3)]
    assert halves.reduce.finish().rows == []
    assert halves.reduce.open_groups == 0


@BOTH
def test_null_is_a_key_of_its_own(whole: bool) -> None:
    halves = Halves(whole=whole, keys=("k", "n"), count=agg.count())
    assert halves.add((None, 1, 0), (None, None, 0), ("a", None, 0), (None, 1, 0)) == [
        (None, 1, 2),
        (None, None, 1),
        ("a", None, 1),
    ]


@BOTH
def test_running_totals_without_keys(whole: bool) -> None:
    halves = Halves(whole=whole, keys=(), total=agg.sum("n"), mean=agg.mean("n"), low=agg.min("n"))
    assert halves.add(("a", None, 0)) == [(None, None, None)]
    assert halves.add(("a", 4, 0), ("b", 1, 0)) == [(5, 2.5, 1)]
    assert halves.add(("b", None, 0)) == [(5, 2.5, 1)]


class Touchy(agg.Mergeable):
    """A sum that cannot stand 13 once there is a sum."""

    def init(self) -> int:
        return 0

    def add(self, state: int, record: Any) -> int:
        return state + record.n

    def merge(self, left: int, right: int) -> int:
        if 13 in (left, right):
            raise ValueError("thirteen")
        return left + right

    def result(self, state: int) -> int:
        if state > 100:
            raise ValueError("too much")
        return state


@BOTH
@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
def test_a_record_whose_merge_raises_leaves_no_trace(whole: bool, policy: str) -> None:
    touchy = agg.custom(Touchy(), type="bigint")
    halves = Halves(whole=whole, policy=policy, first=agg.count(), touchy=touchy, last=agg.sum("n"))
    assert halves.add(("a", 1, 0), ("a", 13, 0), ("a", 2, 0)) == [("a", 2, 3, 3)]
    assert halves.counts.skipped + halves.counts.dead_letters == 1


@BOTH
def test_a_result_that_raises_names_the_operation(whole: bool) -> None:
    window = tumbling("10us", on="at")
    halves = Halves(whole=whole, window=window, touchy=agg.custom(Touchy(), type="bigint"))
    halves.add(("a", 99, 0), ("a", 99, 0))
    with pytest.raises(OperationFailed, match="too much") as failure:
        halves.reduce.finish()
    assert failure.value.operation == "agg"


@BOTH
def test_sums_that_do_not_fit_fail(whole: bool) -> None:
    halves = Halves(whole=whole, total=agg.sum("n"))
    with pytest.raises(PenstockError, match="does not fit a bigint"):
        halves.add(("a", (1 << 63) - 1, 0), ("a", 1, 0))


def test_windows_are_checked() -> None:
    for bad in (
        {"size": 0},
        {"size": "-1s"},
        {"size": "10"},
        {"size": "1s", "lateness": -1},
        {"size": "1s", "emit": "never"},
    ):
        with pytest.raises(InvalidOption):
            tumbling(**{"on": "at", **bad})
    with pytest.raises(TypeMismatch, match="time column 'n' is bigint"):
        tumbling("1s", on="n").check(SCHEMA)
    assert str(tumbling("90s", on="at", lateness="500ms")) == "tumbling 90s on at, lateness 500ms"


@pytest.mark.parametrize(
    "aggregate", [agg.sum("k"), agg.mean("at"), agg.min("missing"), agg.custom(object(), type="int")], ids=str
)
def test_aggregates_are_checked(aggregate: Any) -> None:
    with pytest.raises(PenstockError):
        Aggregation(("k",), (("x", aggregate),)).bind(SCHEMA)
    with pytest.raises(InvalidOption, match="at least one"):
        Aggregation(("k",), ()).bind(SCHEMA)
