"""Windows that overlap: which windows a record is in, what closes when, what is late, and what a bad record leaves."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidOption, TypeMismatch
from penstock.operators import Aggregation, Combine, ErrorPolicy, Errors, Reduce, Result, Sliding, sliding
from penstock.operators.keyed import aggregates as agg
from penstock.operators.keyed.reduce import LATE, ReduceOperator
from penstock.types import Record, Schema, record_dict

SCHEMA = Schema.parse("k string, n bigint, at timestamp")
Row = tuple[Any, ...]


class Halves:
    """Both halves of one aggregation, joined; the first in either form."""

    def __init__(self, window: Sliding, *, whole: bool, form: str = "record", policy: str = "fail", **aggs: Any):
        of = Aggregation(("k",), tuple((aggs or {"n": agg.count()}).items()), window)
        of.bind(SCHEMA)
        errors = Errors("agg", ErrorPolicy(policy))
        combine = Combine(of, whole)
        self.combine = combine.build(SCHEMA, errors)
        self.between = combine.bind(SCHEMA)
        self.form = form
        reduce = Reduce(of, SCHEMA, whole).build(self.between, errors)
        assert isinstance(reduce, ReduceOperator)
        self.reduce = reduce
        self.late = 0

    def add(self, *rows: Row) -> list[Row]:
        made = self.process(*rows)
        self.late += made.late
        return plain(made.rows)

    def process(self, *rows: Row) -> Result:
        records = [SCHEMA.record_type(*row) for row in rows]
        if self.form == "record":
            return self.reduce.process(self.combine.process(records).rows)
        done = self.combine.process_batch(SCHEMA.to_batch(records))
        return self.reduce.process(self.between.to_rows(done.columns))


def plain(rows: list[Record]) -> list[Row]:
    return [tuple(record_dict(row).values()) for row in rows]


BOTH = pytest.mark.parametrize("whole", [False, True], ids=["panes", "whole"])
FORMS = pytest.mark.parametrize("form", ["record", "batch"])
SLIDES = st.tuples(st.integers(1, 30), st.integers(1, 30)).filter(lambda pair: pair[1] <= pair[0])


def window_of(size_us: int, slide_us: int, **options: Any) -> Sliding:
    return sliding(f"{size_us}us", slide=f"{slide_us}us", on="at", **options)


@given(SLIDES, st.integers(-100, 100))
def test_a_record_is_in_every_window_that_spans_its_time(sizes: tuple[int, int], time_us: int) -> None:
    size_us, slide_us = sizes
    window = window_of(size_us, slide_us)
    spanning = [start for start in range(time_us - size_us + 1, time_us + 1) if start % slide_us == 0]
    assert list(window.starts(time_us)) == spanning
    pane = time_us - time_us % window.pane_us
    assert list(window.starts(pane)) == spanning, "a pane is in the windows of all its records"


@BOTH
@FORMS
def test_windows_close_one_after_the_other(whole: bool, form: str) -> None:
    halves = Halves(window_of(10, 4, lateness="3us"), whole=whole, form=form, n=agg.count(), s=agg.sum("n"))
    assert halves.add(("a", 1, 5), ("b", 2, 9), ("a", 4, 9)) == []
    assert halves.reduce.advance(8).rows == []
    assert plain(halves.reduce.advance(9).rows) == [("a", -4, 6, 1, 1)]
    assert plain(halves.reduce.advance(15).rows) == [("a", 0, 10, 2, 5), ("b", 0, 10, 1, 2)]
    assert halves.reduce.open_groups == 4
    assert plain(halves.reduce.finish().rows) == [
        ("a", 4, 14, 2, 5), ("b", 4, 14, 1, 2), ("b", 8, 18, 1, 2), ("a", 8, 18, 1, 4)
    ]  # fmt: skip
    assert halves.reduce.open_groups == 0


@BOTH
def test_a_record_that_misses_a_window_is_late_once_and_in_the_windows_that_are_open(whole: bool) -> None:
    halves = Halves(window_of(10, 2), whole=whole)
    halves.reduce.advance(14)  # windows up to the one that starts at 4 are closed
    result = halves.process(("a", 1, 3), ("a", 2, 9), ("a", 3, 14))
    assert result.late == 2
    assert plain(halves.reduce.finish().rows) == [
        ("a", 6, 16, 2), ("a", 8, 18, 2), ("a", 10, 20, 1), ("a", 12, 22, 1), ("a", 14, 24, 1)
    ]  # fmt: skip
    if whole:
        assert result.sides is not None
        assert plain(result.sides[LATE]) == [("a", 1, 3), ("a", 2, 9)]


@BOTH
def test_updates_show_each_window_that_changed_once(whole: bool) -> None:
    halves = Halves(window_of(4, 2, emit="update"), whole=whole)
    assert halves.add(("a", 1, 2), ("b", 1, 2), ("a", 1, 3), ("a", 1, 4)) == [
        ("a", 0, 4, 2), ("a", 2, 6, 3), ("b", 0, 4, 1), ("b", 2, 6, 1), ("a", 4, 8, 1)
    ]  # fmt: skip
    assert halves.reduce.advance(4).rows == []
    assert halves.add(("a", 1, 3)) == [("a", 2, 6, 4)]
    assert halves.reduce.finish().rows == []


class Touchy(agg.Mergeable):
    """A list that is changed in place, and that cannot stand more than three members."""

    def init(self) -> list[int]:
        return []

    def add(self, state: list[int], record: Any) -> list[int]:
        state.append(record.n)
        return state

    def merge(self, left: list[int], right: list[int]) -> list[int]:
        if len(left) == 3:
            raise ValueError("enough")
        left += right
        return left

    def result(self, state: list[int]) -> str:
        return "".join(map(str, state))


@pytest.mark.parametrize("policy", ["skip", "retry"])
def test_state_that_is_changed_in_place_is_not_shared_between_windows(policy: str) -> None:
    halves = Halves(window_of(4, 2), whole=True, policy=policy, all=agg.custom(Touchy(), type="string"))
    halves.add(("a", 1, 1), ("a", 2, 2), ("a", 3, 5))
    assert plain(halves.reduce.finish().rows) == [
        ("a", -2, 2, "1"),
        ("a", 0, 4, "12"),
        ("a", 2, 6, "23"),
        ("a", 4, 8, "3"),
    ]


def test_a_record_that_one_window_cannot_take_is_in_none() -> None:
    halves = Halves(window_of(4, 2), whole=True, policy="skip", n=agg.count(), all=agg.custom(Touchy(), type="string"))
    # Windows 0 and 2 get the record at 3; window 2 is full then, and window 4 would have room.
    failures = halves.process(("a", 1, 3), ("a", 2, 5), ("a", 3, 5), ("a", 4, 5), ("a", 5, 7)).failures
    assert failures is not None
    assert failures.counts.skipped == 1
    assert plain(halves.reduce.finish().rows) == [
        ("a", 0, 4, 1, "1"), ("a", 2, 6, 3, "123"), ("a", 4, 8, 3, "235"), ("a", 6, 10, 1, "5")
    ]  # fmt: skip


def test_records_travel_whole_where_their_order_counts() -> None:
    def needs(window: Sliding | None, *aggregates: agg.Aggregate) -> bool:
        return Aggregation(("k",), tuple((f"a{i}", each) for i, each in enumerate(aggregates)), window).needs_records

    window = window_of(4, 2)
    assert not needs(window, agg.count(), agg.sum("n"), agg.mean("n"), agg.min("n"), agg.max("n"))
    assert needs(window, agg.count(), agg.first("n"))
    assert needs(window, agg.last("n"))
    assert needs(window, agg.custom(Touchy(), type="string"))
    assert not needs(None, agg.first("n"))


BLOCKS = st.lists(
    st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.none() | st.integers(-9, 9), st.integers(0, 60))),
    max_size=6,
)


@pytest.mark.parametrize("emit", ["close", "update"])
@BOTH
@FORMS
@given(sizes=SLIDES, blocks=BLOCKS, marks=st.lists(st.integers(0, 60), max_size=6))
def test_results_are_those_of_a_recomputation(
    whole: bool, form: str, emit: str, sizes: tuple[int, int], blocks: list[list[Row]], marks: list[int]
) -> None:
    """Whatever the blocks and the watermarks: every window has what came before it closed, and the rest is late."""
    size_us, slide_us = sizes
    window = window_of(size_us, slide_us, emit=emit)
    aggregates: dict[str, Any] = {"c": agg.count(), "s": agg.sum("n"), "lo": agg.min("n"), "m": agg.mean("n")}
    if whole:
        aggregates |= {"first": agg.first("n"), "last": agg.last("n")}
    halves = Halves(window, whole=whole, form=form, **aggregates)
    expected: dict[tuple[Any, int], list[int | None]] = {}
    late, reached, shown = 0, -1000, []
    for i, block in enumerate(blocks):
        shown += halves.add(*block)
        for k, n, at in block:
            starts = [start for start in range(at - size_us + 1, at + 1) if start % slide_us == 0]
            late += starts[0] + size_us <= reached
            for start in starts:
                if start + size_us > reached:
                    expected.setdefault((k, start), []).append(n)
        if i < len(marks):
            reached = max(reached, marks[i])
            shown += plain(halves.reduce.advance(marks[i]).rows)
    shown += plain(halves.reduce.finish().rows)
    if emit == "update":
        shown = list({row[:2]: row for row in shown}.values())
    rows = []
    for (k, start), values in expected.items():
        known = [n for n in values if n is not None]
        row: Row = (k, start, start + size_us, len(values), *(
            (sum(known), min(known), sum(known) / len(known)) if known else (None, None, None)
        ))  # fmt: skip
        rows.append(row + ((known[0], known[-1]) if known else (None, None)) if whole else row)
    assert Counter(shown) == Counter(rows)
    assert halves.late == late


def test_sliding_windows_are_checked() -> None:
    for option, bad in (
        ("slide", {"slide": "11s"}),
        ("slide", {"slide": 0}),
        ("slide", {"slide": "9ms"}),
        ("slide", {"slide": "often"}),
        ("size", {"size": "10"}),
        ("lateness", {"lateness": -1}),
        ("emit", {"emit": "never"}),
    ):
        with pytest.raises(InvalidOption, match=option):
            sliding(**{"size": "10s", "slide": "2s", "on": "at", **bad})  # type: ignore[arg-type]
    sliding("10s", slide="10ms", on="at")
    sliding("10s", slide="10s", on="at")
    with pytest.raises(TypeMismatch, match="time column 'n' is bigint"):
        sliding("2s", slide="1s", on="n").check(SCHEMA)
    told = str(sliding("90s", slide="1m", on="at", lateness="500ms"))
    assert told == "sliding 90s every 1m on at, lateness 500ms"
