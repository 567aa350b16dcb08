"""The join of two streams: what is paired, what is late, how long records are held, snapshots, any interleaving."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from states import restore, snapshot

from penstock.errors import InvalidOption, PenstockError, SchemaError, TypeMismatch, UnknownColumn
from penstock.operators import Errors, Join, JoinHow, Match, Side, StatefulOperator, Tag, join
from penstock.operators.keyed import match as match_module
from penstock.operators.keyed.match import MatchOperator
from penstock.types import Record, Schema, record_dict

LEFT = Schema.parse("k string, j int, a bigint, t timestamp")
RIGHT = Schema.parse("u timestamp, j int, k string, b string")
Row = tuple[Any, ...]


class Sides:
    """All parts of one join; rows of either side go in, pairs come out."""

    def __init__(self, of: Join, left: Schema = LEFT, right: Schema = RIGHT) -> None:
        errors = Errors("join")
        self._schemas = {Side.LEFT: left, Side.RIGHT: right}
        tags = {side: Tag(of, left, right, side) for side in Side}
        self._tags = {side: tags[side].build(self._schemas[side], errors) for side in Side}
        self.of = of
        match = Match(of, left, right).build(of.tagged(left, right), errors)
        assert isinstance(match, MatchOperator)
        self.match = match
        self.late = 0

    def add(self, side: Side, *rows: Row) -> list[Row]:
        records = [self._schemas[side].record_type(*row) for row in rows]
        made = self.match.process(self._tags[side].process(records).rows)
        self.late += made.late
        return plain(made.rows)

    def left(self, *rows: Row) -> list[Row]:
        return self.add(Side.LEFT, *rows)

    def right(self, *rows: Row) -> list[Row]:
        return self.add(Side.RIGHT, *rows)


def plain(rows: list[Record]) -> list[Row]:
    return [tuple(record_dict(row).values()) for row in rows]


def joined(within_us: int = 10, **options: Any) -> Join:
    if "bounds" in options:
        low, high = (f"t + INTERVAL {each} MICROSECONDS" for each in options.pop("bounds"))
        sides = (Schema.parse(ON_K["left"]), Schema.parse(ON_K["right"]))
        return join("k", *sides, within=f"u BETWEEN {low} AND {high}", **options)
    options = {"left_time": "t", "right_time": "u", **options}
    return join(options.pop("on", "k"), within=f"{within_us}us", **options)


ON_K = {"left": "k string, a bigint, t timestamp", "right": "k string, b string, u timestamp"}


def on_k(**options: Any) -> Sides:
    return Sides(joined(**options), Schema.parse(ON_K["left"]), Schema.parse(ON_K["right"]))


# --- single steps -----------------------------------------------------------------------------------------------------


def test_a_pair_comes_with_its_second_record_whichever_that_is() -> None:
    sides = on_k()
    assert sides.left(("x", 1, 100), ("y", 2, 100)) == []
    assert sides.right(("x", "p", 110), ("x", "q", 111), ("z", "r", 100)) == [("x", 1, 100, "p", 110)]
    assert sides.left(("x", 3, 105)) == [("x", 3, 105, "p", 110), ("x", 3, 105, "q", 111)]
    assert sides.right(("x", "s", 90)) == [("x", 1, 100, "s", 90)]


def test_within_nothing_pairs_equal_times() -> None:
    sides = on_k(within_us=0)
    sides.left(("x", 1, 100), ("x", 2, 101))
    assert sides.right(("x", "p", 101), ("x", "q", 102)) == [("x", 2, 101, "p", 101)]
    sides.match.advance(102)
    assert sides.match.held_records == 1


def test_several_keys_and_columns_in_any_order() -> None:
    sides = Sides(joined(on=["j", "k"]))
    assert sides.of.bind(LEFT, RIGHT).names == ("k", "j", "a", "t", "u", "b")
    sides.left(("x", 1, 10, 100), ("x", 2, 20, 100))
    assert sides.right((100, 2, "x", "p"), (100, 2, "y", "q"), (100, None, "x", "r")) == [("x", 2, 20, 100, 100, "p")]


def test_one_time_column_holds_the_later_time() -> None:
    left, right = Schema.parse("k string, t timestamp, a int"), Schema.parse("k string, t timestamp, b int")
    sides = Sides(join("k", within="10us", time="t", how="left"), left, right)
    assert sides.of.bind(left, right).ddl == "k string, t timestamp, a int, b int"
    sides.left(("x", 100, 1))
    assert sides.right(("x", 97, 2), ("x", 103, 3)) == [("x", 100, 1, 2), ("x", 103, 1, 3)]
    sides.left(("x", 200, 4))
    assert plain(sides.match.finish().rows) == [("x", 200, 4, None)]


def test_records_behind_the_watermark_are_late_and_older_ones_are_let_go() -> None:
    sides = on_k(within_us=16, lateness="5us")
    sides.left(("x", 1, 100), ("x", 2, 101))
    sides.match.advance(105)
    assert sides.right(("x", "late", 99), ("x", "p", 100)) == [("x", 1, 100, "p", 100), ("x", 2, 101, "p", 100)]
    assert sides.late == 1
    sides.match.advance(120)  # the watermark is 115: a partner for 100 may still come
    assert sides.right(("x", "q", 115)) == [("x", 1, 100, "q", 115), ("x", 2, 101, "q", 115)]
    sides.match.advance(90)
    assert sides.match.watermark_us == 115
    sides.match.advance(124)  # 119: nothing within 16 of 102 and before can come, and buckets hold two microseconds
    assert sides.match.held_records == 1
    assert sides.match.finish().rows == []
    assert sides.match.held_records == 0


def test_old_records_are_let_go_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes does not wait until a whole bucket is gone; what is left of it pairs with nobody."""
    monkeypatch.setattr(match_module, "LEAVING_MIN", 2)
    sides = on_k(within_us=800)
    sides.left(*(("x", i, i) for i in range(100)))
    held = []
    for step in range(60):
        assert sides.match.advance(2000 + step).rows == []
        assert sides.right(("x", "p", 2000 + step)) == []
        held.append(sides.match.held_records)
        if step == 5:
            again = on_k(within_us=800)
            restore(again.match, [snapshot(sides.match, True)])
            assert again.match.held_records >= held[-1]
            sides = again
    assert 80 < held[0] < 100
    assert held[-1] == 60, "all of the left ones are gone"
    assert sides.match.finish().rows == []
    assert len(sides.match.state) == 0


def test_null_keys_equal_nothing() -> None:
    sides = on_k()
    sides.left((None, 1, 100))
    assert sides.right((None, "p", 100)) == []
    assert sides.match.held_records == 0
    outer = on_k(how="left")
    assert outer.right((None, "p", 100)) == []
    assert outer.left((None, 1, 100)) == [(None, 1, 100, None, None)]
    outer.match.advance(200)
    assert outer.left((None, 1, 100)) == []
    assert outer.late == 1


def test_an_outer_record_without_a_partner_comes_once_that_is_certain() -> None:
    sides = on_k(within_us=8, how="left")
    sides.left(("x", 1, 100), ("y", 2, 101), ("x", 3, 103))
    sides.right(("x", "p", 94))
    assert sides.match.advance(108).rows == []
    assert plain(sides.match.advance(110).rows) == [("y", 2, 101, None, None)]
    assert plain(sides.match.advance(112).rows) == [("x", 3, 103, None, None)]
    sides.left(("z", 4, 112))
    assert plain(sides.match.finish().rows) == [("z", 4, 112, None, None)]
    assert sides.match.finish().rows == []


def test_the_output_schema_of_an_outer_join_has_nulls() -> None:
    right = Schema.parse("k string, b string not null, u timestamp not null")
    inner = joined().bind(Schema.parse(ON_K["left"]), right)
    outer = joined(how="left").bind(Schema.parse(ON_K["left"]), right)
    assert [inner.field(name).nullable for name in ("b", "u")] == [False, False]
    assert [outer.field(name).nullable for name in ("b", "u")] == [True, True]


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"how": "outre"}, "how='outre' is not allowed. Allowed: inner, left, right, full"),
        ({"match": "onse"}, "match='onse' is not allowed. Allowed: all, once. Did you mean 'once'"),
        ({"match": None}, "match=None is not allowed. Allowed: all, once"),
        ({"within_us": -1}, "within"),
        ({"lateness": "soon"}, "lateness"),
        ({"left_time": None}, "left_time"),
        ({"right_time": None}, "right_time"),
        ({"time": "t"}, "left_time"),
        ({"on": 5}, "on=5"),
    ],
)
def test_options_are_checked(options: dict[str, Any], option: str) -> None:
    with pytest.raises(InvalidOption, match=option):
        joined(**options)


@pytest.mark.parametrize(
    ("of", "left", "right", "error", "says"),
    [
        (joined(), "k int, t timestamp", "k bigint, u timestamp", TypeMismatch, "'k' is int on the left and bigint"),
        (joined(), "k int, t timestamp", "j int, u timestamp", UnknownColumn, "k"),
        (joined(), "k int, t bigint", "k int, u timestamp", TypeMismatch, "left time column 't' is bigint"),
        (joined(), "k int, t timestamp", "k int, u date", TypeMismatch, "right time column 'u' is date"),
        (joined(), "k int, a int, t timestamp", "k int, a int, u timestamp", SchemaError, "a column 'a' as well"),
        (joined(), "k int, u int, t timestamp", "k int, u timestamp", SchemaError, "a column 'u' as well"),
        (joined(), "k double, t timestamp", "k double, u timestamp", TypeMismatch, "cannot be a key"),
        (joined(on=[]), "k int, t timestamp", "k int, u timestamp", InvalidOption, "at least one column"),
    ],
)
def test_both_sides_are_checked(of: Join, left: str, right: str, error: type[PenstockError], says: str) -> None:
    with pytest.raises(error, match=says):
        of.bind(Schema.parse(left), Schema.parse(right))


# --- snapshots --------------------------------------------------------------------------------------------------------


def test_changes_hold_only_what_came_since() -> None:
    sides = on_k()
    sides.left(*(("x", i, i % 5) for i in range(1000)))
    full = snapshot(sides.match, True)
    assert len(snapshot(sides.match, False)) < 30, "nothing has"
    sides.right(("y", "p", 3))
    delta = snapshot(sides.match, False)
    assert len(delta) < len(full) / 100
    again = on_k()
    restore(again.match, [full, delta])
    assert again.match.held_records == 1001
    assert len(snapshot(again.match, False)) < 30, "what is restored is not a change"


def test_what_came_out_before_a_snapshot_does_not_come_again() -> None:
    sides = on_k(how="left")
    sides.left(("x", 1, 100), ("y", 2, 100), ("z", 3, 130))
    full = snapshot(sides.match, True)
    sides.right(("x", "p", 100), ("z", "q", 130))
    assert plain(sides.match.advance(120).rows) == [("y", 2, 100, None, None)]
    again = on_k(how="left")
    restore(again.match, [full, snapshot(sides.match, False)])
    assert again.match.held_records == 2
    assert again.match.finish().rows == []
    again = on_k(how="left")
    restore(again.match, [full])
    assert plain(again.match.finish().rows) == [
        ("x", 1, 100, None, None),
        ("y", 2, 100, None, None),
        ("z", 3, 130, None, None),
    ]


@pytest.mark.parametrize("match", ["all", "once"])
def test_decimals_and_structs_survive_a_restart(match: str) -> None:
    left = Schema.parse("k string, t timestamp, p decimal(10,2), s struct<n: int>")
    right = Schema.parse("k string, u timestamp")
    row = left.coerce(("x", 1, Decimal("1.50"), {"n": 3}))
    of = join("k", within="10us", left_time="t", right_time="u", match=match)
    operators = [Match(of, left, right).build(of.tagged(left, right), Errors("join")) for _ in range(2)]
    tags = [
        Tag(of, left, right, side).build(schema, Errors("join"))
        for side, schema in zip(Side, (left, right), strict=True)
    ]
    first, again = operators
    assert isinstance(first, StatefulOperator)
    assert isinstance(again, StatefulOperator)
    first.process(tags[0].process([row]).rows)
    restore(again, [snapshot(first, True)])
    out = again.process(tags[1].process([right.record_type("x", 2)]).rows).rows + list(again.advance(100).rows)
    assert plain(out) == [("x", 1, row.p, row.s, 2)]


def test_the_end_leaves_nothing_behind() -> None:
    sides = on_k(how="left")
    sides.left(("x", 1, 100))
    full = snapshot(sides.match, True)
    assert len(sides.match.finish().rows) == 1
    again = on_k(how="left")
    restore(again.match, [full, snapshot(sides.match, False)])
    assert again.match.held_records == 0
    assert again.match.finish().rows == []


# --- any input --------------------------------------------------------------------------------------------------------

KEYS = st.sampled_from(["a", "b", None])
TIMES = st.integers(0, 60)
LEFT_ROWS = st.tuples(KEYS, st.integers(0, 9), TIMES)
RIGHT_ROWS = st.tuples(KEYS, st.sampled_from(["p", "q", ""]), TIMES)
MOVES = st.one_of(
    st.tuples(st.just(Side.LEFT), st.lists(LEFT_ROWS, max_size=5)),
    st.tuples(st.just(Side.RIGHT), st.lists(RIGHT_ROWS, max_size=5)),
    st.tuples(st.just("advance"), st.integers(0, 90)),
)
HOWS = pytest.mark.parametrize("how", list(JoinHow))


BOUNDS = st.tuples(st.integers(-40, 40), st.integers(0, 50)).map(lambda drawn: (drawn[0], drawn[0] + drawn[1]))
"""The least and the largest difference of the times of a pair, the right one's less the left one's."""


def recomputed(lefts: list[Row], rights: list[Row], bounds: tuple[int, int], how: JoinHow) -> Counter[Row]:
    """The join of all rows at once."""

    def partners(one: Row, others: list[Row], low: int, high: int) -> list[Row]:
        return [each for each in others if one[0] == each[0] is not None and low <= each[2] - one[2] <= high]

    low, high = bounds
    rows: Counter[Row] = Counter()
    for left in lefts:
        pairs = [(*left, *right[1:]) for right in partners(left, rights, low, high)]
        rows.update(pairs or ([(*left, None, None)] if how.keeps_left else []))
    if how.keeps_right:
        rows.update((k, None, None, b, u) for k, b, u in rights if not partners((k, b, u), lefts, -high, -low))
    return rows


@HOWS
@settings(max_examples=60)
@given(moves=st.lists(MOVES, max_size=14), bounds=BOUNDS, lateness_us=st.integers(0, 20))
def test_results_are_all_pairs_of_what_is_not_late(
    how: JoinHow, moves: list[Any], bounds: tuple[int, int], lateness_us: int
) -> None:
    """Whatever the blocks, the interleaving of the sides and the moments at which event time advances."""
    sides = on_k(bounds=bounds, lateness=f"{lateness_us}us", how=how.value)
    accepted: dict[Side, list[Row]] = {Side.LEFT: [], Side.RIGHT: []}
    got: list[Row] = []
    watermark_us, late = -1000, 0
    for move, what in moves:
        if move == "advance":
            watermark_us = max(watermark_us, what - lateness_us)
            got += plain(sides.match.advance(what).rows)
            continue
        got += sides.add(move, *what)
        for row in what:
            if row[2] >= watermark_us:
                accepted[move].append(row)
            elif row[0] is not None or how.keeps(move):
                late += 1
    got += plain(sides.match.finish().rows)
    assert Counter(got) == recomputed(accepted[Side.LEFT], accepted[Side.RIGHT], bounds, how)
    assert sides.late == late


@st.composite
def _disordered(draw: st.DrawFn, lateness_us: int, rows: st.SearchStrategy[Row]) -> list[list[Row]]:
    """Blocks of one side whose records are at most ``lateness_us`` behind the newest before them."""
    blocks, newest = [], 0
    for drawn in draw(st.lists(st.lists(rows, max_size=5), max_size=6)):
        block = []
        for key, value, time_us in drawn:
            at = max(time_us, newest - lateness_us)
            newest = max(newest, at)
            block.append((key, value, at))
        blocks.append(block)
    return blocks


@HOWS
@settings(max_examples=60)
@given(data=st.data(), bounds=BOUNDS, lateness_us=st.integers(0, 15))
def test_the_interleaving_of_the_sides_makes_no_difference(
    how: JoinHow, data: st.DataObject, bounds: tuple[int, int], lateness_us: int
) -> None:
    """Event time is the least that both sides have shown, as in a job: nothing is late, and all pairs are there."""
    blocks = {
        Side.LEFT: data.draw(_disordered(lateness_us, LEFT_ROWS)),
        Side.RIGHT: data.draw(_disordered(lateness_us, RIGHT_ROWS)),
    }
    turns = [Side.LEFT] * len(blocks[Side.LEFT]) + [Side.RIGHT] * len(blocks[Side.RIGHT])
    sides = on_k(bounds=bounds, lateness=f"{lateness_us}us", how=how.value)
    left = {side: list(each) for side, each in blocks.items()}
    reached: dict[Side, int | None] = {Side.LEFT: None, Side.RIGHT: None}
    got: list[Row] = []
    for side in data.draw(st.permutations(turns)):
        block = left[side].pop(0)
        got += sides.add(side, *block)
        reached[side] = max([time_us for _, _, time_us in block] + [reached[side] or 0])
        open_sides = [reached[each] for each in Side if left[each]]
        if open_sides and None not in open_sides:
            got += plain(sides.match.advance(min(each for each in open_sides if each is not None)).rows)
    got += plain(sides.match.finish().rows)
    all_rows = {side: [row for block in each for row in block] for side, each in blocks.items()}
    assert Counter(got) == recomputed(all_rows[Side.LEFT], all_rows[Side.RIGHT], bounds, how)
    assert sides.late == 0


SNAPSHOTS = st.tuples(st.just("snapshot"), st.booleans())


@HOWS
@settings(max_examples=40)
@given(before=st.lists(MOVES | SNAPSHOTS, max_size=14), after=st.lists(MOVES | SNAPSHOTS, max_size=8))
def test_a_restored_state_behaves_exactly_like_the_original(how: JoinHow, before: list[Any], after: list[Any]) -> None:
    def make() -> Sides:
        return on_k(within_us=16, lateness="3us", how=how.value)

    def do(sides: Sides, move: Any, what: Any) -> tuple[list[Row], int]:
        before = sides.late
        rows = plain(sides.match.advance(what).rows) if move == "advance" else sides.add(move, *what)
        return rows, sides.late - before

    original = make()
    chain = [snapshot(original.match, True)]
    for move, what in [*before, ("snapshot", False)]:
        if move == "snapshot":
            packed = snapshot(original.match, what)
            chain = [packed] if what else [*chain, packed]
        else:
            do(original, move, what)
    again = make()
    restore(again.match, chain)
    assert again.match.held_records == original.match.held_records
    for move, what in after:
        if move == "snapshot":
            chain = [snapshot(again.match, True)]
            again = make()
            restore(again.match, chain)
        else:
            assert do(again, move, what) == do(original, move, what), "the same rows in the same order"
    assert plain(again.match.finish().rows) == plain(original.match.finish().rows)
