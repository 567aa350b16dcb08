"""As-of joins: any order of arrival, any blocks, any snapshots, one result, and no more state than is needed."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from states import restore, snapshot

from penstock.errors import InvalidOption
from penstock.operators import Errors, JoinHow, Match, Side, Tag, join_asof
from penstock.operators.keyed.asof import AsOfOperator
from penstock.types import Schema, record_dict

LEFT = Schema.parse("a bigint, k string, t timestamp")
RIGHT = Schema.parse("k string, b string, u timestamp")
Row = tuple[Any, ...]
HOWS = pytest.mark.parametrize("how", [JoinHow.LEFT, JoinHow.INNER])


class AsOf:
    """The parts of one join, and the snapshots that it has taken."""

    def __init__(
        self, how: JoinHow, tolerance_us: int | None, lateness_us: int = 0, left: Schema = LEFT, right: Schema = RIGHT
    ) -> None:
        tolerance = None if tolerance_us is None else f"{tolerance_us}us"
        self.of = of = join_asof(
            "k", tolerance=tolerance, left_time="t", right_time="u", lateness=f"{lateness_us}us", how=how.value
        )
        self.schemas = {Side.LEFT: left, Side.RIGHT: right}
        self.tags = {side: Tag(of, left, right, side).build(self.schemas[side], Errors("join")) for side in Side}
        self.match = self.new()
        self.chain = [snapshot(self.match, True)]
        self.out: list[Row] = []

    def new(self) -> AsOfOperator:
        left, right = self.schemas.values()
        match = Match(self.of, left, right).build(self.of.tagged(left, right), Errors("join"))
        assert isinstance(match, AsOfOperator)
        return match

    def add(self, side: Side, rows: list[Row]) -> None:
        records = [self.schemas[side].record_type(*row) for row in rows]
        assert self.match.process(self.tags[side].process(records).rows).rows == []

    def advance(self, event_time_us: int) -> None:
        self.keep(self.match.advance(event_time_us))

    def finish(self) -> list[Row]:
        self.keep(self.match.finish())
        assert self.match.held_records == 0
        return self.out

    def keep(self, rows: list[Any]) -> None:
        self.out += [tuple(record_dict(row).values()) for row in rows]

    def restart(self, full: bool) -> None:
        """Go on with what was just stored."""
        packed = snapshot(self.match, full)
        self.chain = [packed] if full else [*self.chain, packed]
        again = self.new()
        restore(again, self.chain)
        assert again.held_records == self.match.held_records
        self.match = again


def recomputed(lefts: list[Row], rights: list[Row], tolerance_us: int | None, how: JoinHow) -> Counter[Row]:
    found: Counter[Row] = Counter()
    for a, k, t in lefts:
        known = [
            (u, b is not None, b)
            for other, b, u in rights
            if k is not None and other == k and u <= t and (tolerance_us is None or t - u <= tolerance_us)
        ]
        if known:
            u, _, b = max(known)
            found[a, k, t, b, u] += 1
        elif how is JoinHow.LEFT:
            found[a, k, t, None, None] += 1
    return found


KEYS = st.sampled_from(["x", "y", None])
TIMES = st.integers(0, 40)
MOVES = st.one_of(
    st.tuples(st.just(Side.LEFT), st.lists(st.tuples(st.integers(0, 3), KEYS, TIMES), max_size=6)),
    st.tuples(st.just(Side.RIGHT), st.lists(st.tuples(KEYS, st.sampled_from(["p", "q", None]), TIMES), max_size=6)),
    st.tuples(st.just("advance"), st.integers(0, 60)),
    st.tuples(st.just("restart"), st.booleans()),
)


@HOWS
@settings(max_examples=150)
@given(
    moves=st.lists(MOVES, max_size=20),
    tolerance_us=st.none() | st.integers(0, 30),
    lateness_us=st.integers(0, 15),
)
def test_the_result_is_that_of_all_that_is_not_late(
    how: JoinHow, moves: list[Any], tolerance_us: int | None, lateness_us: int
) -> None:
    asof = AsOf(how, tolerance_us, lateness_us)
    accepted: dict[Side, list[Row]] = {Side.LEFT: [], Side.RIGHT: []}
    watermark_us, late = -1000, 0
    for move, what in moves:
        match move:
            case "advance":
                watermark_us = max(watermark_us, what - lateness_us)
                asof.advance(what)
                waiting = sum(row[2] >= watermark_us for row in accepted[Side.LEFT] if row[1] is not None)
                waiting += sum(row[2] >= watermark_us for row in accepted[Side.LEFT] if row[1] is None)
                ahead = sum(row[2] >= watermark_us for row in accepted[Side.RIGHT])
                known = {
                    k
                    for k, _, u in accepted[Side.RIGHT]
                    if u < watermark_us and (tolerance_us is None or u + tolerance_us >= watermark_us)
                }
                assert asof.match.held_records == waiting + ahead + len(known), "one version that may be met, no more"
            case "restart":
                asof.restart(what)
            case Side():
                asof.add(move, what)
                key = 1 if move is Side.LEFT else 0
                for row in what:
                    if row[key] is None and not how.keeps(move):
                        continue
                    if row[2] >= watermark_us:
                        accepted[move].append(row)
                    else:
                        late += 1
    assert asof.match.late_records == late
    out = asof.finish()
    assert Counter(out) == recomputed(accepted[Side.LEFT], accepted[Side.RIGHT], tolerance_us, how)
    times = [row[2] for row in out]
    assert times == sorted(times), "a window over the results waits for nothing"


def test_values_of_every_type_survive_a_restart() -> None:
    right = Schema.parse(
        "k string, u timestamp, p decimal(10,2), s struct<a: int, b: array<string>>, m map<string,int>"
    )
    asof = AsOf(JoinHow.LEFT, None, right=right)
    (said,) = [right.coerce(("x", 1, Decimal("1.50"), {"a": 1, "b": ["y", None]}, {"z": 2}))]
    asof.add(Side.RIGHT, [tuple(record_dict(said).values())])
    asof.add(Side.LEFT, [(1, "x", 2)])
    asof.restart(True)
    asof.restart(False)
    assert asof.finish() == [(1, "x", 2, *list(record_dict(said).values())[1:])]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"how": "right"}, "how='right' is not allowed. Allowed: left, inner"),
        ({"tolerance": "soon"}, "tolerance='soon'"),
        ({"left_time": None}, "left_time"),
    ],
)
def test_options_are_checked(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        join_asof("k", **{"left_time": "t", "right_time": "u", **options})
