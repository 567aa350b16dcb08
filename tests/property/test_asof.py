"""As-of joins: any order of arrival, any blocks, any snapshots, one result, and no more state than is needed."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joining import Joining, Row
from penstock.errors import InvalidOption
from penstock.operators import JoinHow, Side, join_asof
from penstock.operators.keyed.asof import AsOfOperator
from penstock.types import Schema, record_dict

LEFT = Schema.parse("a bigint, k string, t timestamp")
RIGHT = Schema.parse("k string, b string, u timestamp")
HOWS = pytest.mark.parametrize("how", [JoinHow.LEFT, JoinHow.INNER])


def as_of(
    how: JoinHow, tolerance_us: int | None, lateness_us: int = 0, left: Schema = LEFT, right: Schema = RIGHT
) -> Joining:
    tolerance = None if tolerance_us is None else f"{tolerance_us}us"
    times = {"left_time": "t", "right_time": "u", "lateness": f"{lateness_us}us"}
    asof = Joining(join_asof("k", tolerance=tolerance, how=how.value, **times), left, right)
    assert isinstance(asof.match, AsOfOperator)
    return asof


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
    asof = as_of(how, tolerance_us, lateness_us)
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
                before = len(asof.out)
                asof.add(move, what)
                assert len(asof.out) == before, "results come when event time has passed"
                key = 1 if move is Side.LEFT else 0
                for row in what:
                    if row[key] is None and not how.keeps(move):
                        continue
                    if row[2] >= watermark_us:
                        accepted[move].append(row)
                    else:
                        late += 1
    assert asof.late == late
    out = asof.finish()
    assert Counter(out) == recomputed(accepted[Side.LEFT], accepted[Side.RIGHT], tolerance_us, how)
    times = [row[2] for row in out]
    assert times == sorted(times), "a window over the results waits for nothing"


def test_values_of_every_type_survive_a_restart() -> None:
    right = Schema.parse(
        "k string, u timestamp, p decimal(10,2), s struct<a: int, b: array<string>>, m map<string,int>"
    )
    asof = as_of(JoinHow.LEFT, None, right=right)
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
