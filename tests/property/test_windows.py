"""Windows by number, early firings and windows that never end: any blocks, any snapshots, the results of a sort."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from states import restore, snapshot

from penstock.errors import InvalidOption
from penstock.expr.aggregation import AggregateCall
from penstock.operators import (
    Aggregation,
    Errors,
    Reduce,
    StatefulOperator,
    count_window,
    global_window,
    sliding,
    tumbling,
)
from penstock.operators.keyed import aggregates as agg
from penstock.operators.keyed.calls import aggregate_of
from penstock.types import Schema, record_dict

SCHEMA = Schema.parse("k string, n bigint, at timestamp")
Row = tuple[Any, ...]
ROWS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.integers(0, 60)), max_size=6)
MOVES = st.lists(
    st.tuples(st.just("rows"), ROWS)
    | st.tuples(st.just("advance"), st.integers(0, 70))
    | st.tuples(st.just("restart"), st.booleans()),
    max_size=20,
)


class Run:
    """An aggregation behind the shuffle, and the snapshots that it has taken."""

    def __init__(self, window: Any, *, whole: bool, keys: tuple[str, ...] = ("k",)) -> None:
        listed = aggregate_of(AggregateCall("collect_list", ()), ("n",), SCHEMA)
        aggregates = (("c", agg.count()), ("s", agg.sum("n")), ("all", listed))
        is_count = not hasattr(window, "pane_us")
        self.of = Aggregation(keys, aggregates, None if is_count else window, counts=window if is_count else None)
        self.whole = whole
        ((_, combine),) = self.of.expand([SCHEMA], ["late"] if whole else []).before
        self.combine = combine.build(SCHEMA, Errors("combine"))
        self.between = combine.bind(SCHEMA)
        self.operator = self.new()
        self.chain = [snapshot(self.operator, True)]
        self.out: list[Row] = []
        self.late = 0

    def new(self) -> StatefulOperator:
        made = Reduce(self.of, SCHEMA, self.whole).build(self.between, Errors("reduce"))
        assert isinstance(made, StatefulOperator)
        return made

    def add(self, rows: list[Row]) -> None:
        made = self.operator.process(self.combine.process([SCHEMA.record_type(*row) for row in rows]).rows)
        self.late += made.late
        self.keep(made.rows)

    def keep(self, rows: Any) -> None:
        self.out += [tuple(tuple(v) if isinstance(v, list) else v for v in record_dict(row).values()) for row in rows]

    def restart(self, full: bool) -> None:
        packed = snapshot(self.operator, full)
        self.chain = [packed] if full else [*self.chain, packed]
        self.operator = self.new()
        restore(self.operator, self.chain)

    def do(self, moves: list[Any]) -> tuple[list[Row], list[Row], int]:
        """Make moves; return what is on time, what came out, and how much was late."""
        watermark_us, kept = -1000, []
        for move, what in moves:
            if move == "advance":
                watermark_us = max(watermark_us, what)
                self.keep(self.operator.advance(what).rows)
            elif move == "restart":
                self.restart(what)
            else:
                self.add(what)
                kept += [(*row, watermark_us) for row in what]
        self.keep(self.operator.finish().rows)
        assert len(self.operator.state) == 0
        return kept, self.out, self.late


@settings(max_examples=80)
@given(moves=MOVES, size=st.integers(1, 6), slide=st.integers(1, 6), ordered=st.booleans())
def test_windows_by_number_hold_the_next_records_of_a_key(
    moves: list[Any], size: int, slide: int, ordered: bool
) -> None:
    slide = min(size, slide)
    kept, out, late = Run(count_window(size, slide=slide, on="at" if ordered else None), whole=True).do(moves)
    if ordered:
        assert late == sum(at < reached for _, _, at, reached in kept)
        kept = sorted((row for row in kept if row[2] >= row[3]), key=lambda row: (row[2], row[0], row[1]))
    expected: list[Row] = []
    for key in "ab":
        numbers = [n for k, n, _, _ in kept if k == key]
        for first in range(0, len(numbers), slide):
            held = numbers[first : first + size]
            expected.append((key, first // slide, len(held), sum(held), tuple(held)))
    assert Counter(out) == Counter(expected)


@settings(max_examples=50)
@given(moves=MOVES, every=st.integers(1, 4))
def test_the_value_so_far_comes_after_every_so_many_records(moves: list[Any], every: int) -> None:
    kept, out, _ = Run(global_window(every=every), whole=True).do(moves)
    expected: list[Row] = []
    for key in "ab":
        numbers = [n for k, n, _, _ in kept if k == key]
        ends = {*range(every, len(numbers) + 1, every), len(numbers)} - {0}
        expected += [(key, end, sum(numbers[:end]), tuple(numbers[:end])) for end in ends]
    assert Counter(out) == Counter(expected)


EARLY = 4
WINDOWS = {
    "tumbling": tumbling(f"{3 * EARLY}us", on="at", early=f"{EARLY}us"),
    "sliding": sliding(f"{3 * EARLY}us", slide=f"{2 * EARLY}us", on="at", early=f"{EARLY}us"),
    "global": global_window(every=f"{EARLY}us", on="at"),
}


def starts_of(name: str, time_us: int) -> list[int]:
    slide = {"tumbling": 3, "sliding": 2, "global": 10**6}[name] * EARLY
    size = 10**6 * EARLY if name == "global" else 3 * EARLY
    return [start for start in range(-10 * slide * (name != "global"), 100, slide) if start <= time_us < start + size]


@pytest.mark.parametrize("name", list(WINDOWS))
@pytest.mark.parametrize("whole", [True, False])
@settings(max_examples=50)
@given(moves=MOVES)
def test_firings_are_the_results_of_what_is_before_their_moment(name: str, whole: bool, moves: list[Any]) -> None:
    run = Run(WINDOWS[name], whole=whole or name == "sliding")
    kept, out, late = run.do(moves)
    size = 10**6 * EARLY if name == "global" else 3 * EARLY
    groups: dict[tuple[str, int], dict[int, list[int]]] = {}
    missed = 0
    for k, n, at, reached in kept:
        pane = at // EARLY * EARLY
        # One that has missed its firing is in the next one, for as long as the window is open.
        moment = (pane if pane + EARLY > reached else reached // EARLY * EARLY) + EARLY
        starts = starts_of(name, at)
        missed += any(start + size <= reached for start in starts)
        for start in starts:
            if start + size > reached:
                groups.setdefault((k, start), {}).setdefault(moment, []).append(n)
    expected: list[Row] = []
    for (k, start), by_moment in groups.items():
        so_far: list[int] = []
        for moment in sorted(by_moment):
            so_far += by_moment[moment]
            shown = (moment,) if name == "global" else (start, start + size)
            if moment < start + size:
                expected.append((k, *shown, len(so_far), sum(so_far), Counter(so_far)))
        if name != "global":
            expected.append((k, start, start + size, len(so_far), sum(so_far), Counter(so_far)))
    assert late == missed
    found = [(*row[:-1], Counter(row[-1])) for row in out]
    assert sorted(map(repr, map(_plain, found))) == sorted(map(repr, map(_plain, expected)))


def _plain(row: Row) -> Row:
    return (*row[:-1], sorted(row[-1].items()))


def test_records_that_wait_keep_their_types_over_a_restart() -> None:
    schema = Schema.parse("p decimal(10,2), at timestamp")
    of = Aggregation((), (("c", agg.count()),), counts=count_window(1, on="at"))
    operators = [Reduce(of, schema, whole=True).build(schema, Errors("reduce")) for _ in range(2)]
    first, again = operators
    assert isinstance(first, StatefulOperator)
    assert isinstance(again, StatefulOperator)
    first.process([schema.record_type(Decimal("2.50"), 1), schema.record_type(Decimal("10.00"), 1)])
    restore(again, [snapshot(first, True)])
    again.process([schema.record_type(Decimal("3.00"), 1)])
    assert [row.c for row in again.finish().rows] == [1, 1, 1]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: tumbling("10s", on="at", early="3s"), "early='3s' is not allowed. Allowed: a part of 10s"),
        (lambda: sliding("10s", slide="4s", on="at", early="4s"), "a part of 10s and of 4s"),
        (lambda: tumbling("10s", on="at", early="5s", emit="change"), "with emit='close'"),
        (lambda: tumbling("10s", on="at", early="5s", allowed_lateness="1s"), "without allowed_lateness"),
        (lambda: count_window(0), "size=0"),
        (lambda: count_window(3, slide=4), "slide=4"),
        (lambda: count_window(3, lateness="1s"), "lateness='1s' is not allowed. Allowed: together with on"),
        (lambda: global_window(every="5s"), "on=None"),
        (lambda: global_window(every=0), "every=0"),
    ],
)
def test_options_are_checked(make: Any, says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        make()
