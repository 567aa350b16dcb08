"""Both forms of what runs before a shuffle: equal partials, sides and owners."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agreeing import FORMS, POLICIES, Outcome, agree, exact, exact_rows, rows_of
from penstock.operators import (
    Aggregation,
    Combine,
    ErrorPolicy,
    Join,
    JoinHow,
    Partitioner,
    Side,
    Tag,
    sliding,
    tumbling,
)
from penstock.operators.keyed import aggregates as agg
from penstock.operators.keyed.bounds import Bounds
from penstock.types import Record, Schema, record_dict

# --- aggregation before the shuffle -----------------------------------------------------------------------------------

GROUPED = Schema.parse(
    "k string, i int, b boolean, raw binary, day date, n bigint, small tinyint, x double, s string, at timestamp,"
    " w array<int>"
)
_SMALL: dict[str, st.SearchStrategy[Any]] = {
    "k": st.sampled_from(["a", "b", ""]),
    "i": st.integers(0, 2),
    "raw": st.sampled_from([b"", b"a"]),
    "day": st.integers(-1, 1),
    "at": st.integers(-25_000_000, 25_000_000),
    "x": st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf, -math.inf]),
    "n": st.integers(-5, 5) | st.sampled_from([(1 << 63) - 1, -(1 << 63), 1 << 62]),
}
GROUPED_ROWS = rows_of(GROUPED, max_size=20, **_SMALL)


class Spread(agg.Mergeable):
    """Largest minus smallest; fails on 13, in ``add``."""

    def init(self) -> list[int]:
        return []

    def add(self, state: list[int], record: Any) -> list[int]:
        if record.small == 13:
            raise ValueError("thirteen")
        return state if record.small is None else self.merge(state, [record.small, record.small])

    def merge(self, left: list[int], right: list[int]) -> list[int]:
        if not left or not right:
            return left or right
        return [min(left[0], right[0]), max(left[1], right[1])]

    def result(self, state: list[int]) -> int | None:
        return state[1] - state[0] if state else None


AGGREGATES: dict[str, agg.Aggregate] = {
    "count": agg.count(),
    "count_x": agg.count("x"),
    "count_w": agg.count("w"),
    "sum_n": agg.sum("n"),
    "sum_small": agg.sum("small"),
    "sum_x": agg.sum("x"),
    "mean_n": agg.mean("n"),
    "mean_x": agg.mean("x"),
    "spread": agg.custom(Spread(), type="bigint"),
    **{f"min_{c}": agg.min(c) for c in ("n", "small", "x", "s", "b", "day", "at")},
    **{f"max_{c}": agg.max(c) for c in ("n", "small", "x", "s", "b", "day", "at")},
    **{f"first_{c}": agg.first(c) for c in GROUPED.names},
    **{f"last_{c}": agg.last(c) for c in GROUPED.names},
}
WINDOWS = [
    None,
    tumbling("10s", on="at"),
    tumbling("7us", on="at", lateness="1s", emit="update"),
    sliding("10s", slide="4s", on="at"),
    tumbling("12us", on="at", early="4us"),
    sliding("12s", slide="4s", on="at", early="2s"),
]
KEYS = st.lists(st.sampled_from(["k", "i", "b", "raw", "day"]), unique=True, max_size=3).map(tuple)


def _sums(operation: Combine) -> set[str]:
    """Names of the slots that hold sums of doubles."""
    return {
        f"_p{i}_0"
        for i, (_, each) in enumerate(operation.of.aggregates)
        if each.word in ("sum", "mean") and each.column == "x"
    }


def agree_on_partials(operation: Combine, rows: list[Record], policy: ErrorPolicy) -> Outcome:
    """As `agree`, but sums of doubles may differ by their rounding."""
    record, batch = (Outcome(operation, GROUPED, rows, policy, form) for form in FORMS)
    assert record.effects() == batch.effects()
    assert len(record.rows) == len(batch.rows)
    rounded = _sums(operation)
    # Rounding is relative to what was added up, which may be much larger than the sum.
    slack = 1e-9 * sum(abs(row.x) for row in rows if row.x is not None and math.isfinite(row.x))
    for mine, theirs in zip(record.rows, batch.rows, strict=True):
        for name, value in record_dict(mine).items():
            other = getattr(theirs, name)
            if name in rounded and value is not None and math.isfinite(value):
                assert value == pytest.approx(other, rel=1e-9, abs=slack)
            else:
                assert exact(value) == exact(other), name
    return record


@pytest.mark.parametrize("name", AGGREGATES)
@settings(max_examples=40)
@given(rows=GROUPED_ROWS, keys=KEYS, window=st.sampled_from(WINDOWS), policy=POLICIES)
def test_each_aggregate_combines(
    name: str, rows: list[Record], keys: tuple[str, ...], window: Any, policy: ErrorPolicy
) -> None:
    agree_on_partials(Combine(Aggregation(keys, (("a", AGGREGATES[name]),), window)), rows, policy)


@given(
    rows=GROUPED_ROWS,
    keys=KEYS,
    window=st.sampled_from(WINDOWS),
    names=st.lists(st.sampled_from([n for n in AGGREGATES if AGGREGATES[n].arrow_functions]), min_size=1, max_size=5),
    policy=POLICIES,
)
def test_several_aggregates_combine(
    rows: list[Record], keys: tuple[str, ...], window: Any, names: list[str], policy: ErrorPolicy
) -> None:
    aggregates = tuple((f"a{i}", AGGREGATES[name]) for i, name in enumerate(names))
    done = agree_on_partials(Combine(Aggregation(keys, aggregates, window)), rows, policy)
    if done.failure is None:
        lost = done.counts.skipped + done.counts.dead_letters
        assert sum(row._n for row in done.rows) + lost == len(rows)


@given(GROUPED_ROWS, st.sampled_from(WINDOWS), POLICIES)
def test_whole_records_pass_a_combine(rows: list[Record], window: Any, policy: ErrorPolicy) -> None:
    operation = Combine(Aggregation(("k",), (("n", agg.count()),), window), whole=True)
    done = agree(operation, GROUPED, rows, policy)
    if window is None:
        assert exact_rows(done.rows) == exact_rows(rows)
    elif done.failure is None:
        timed = [row for row in rows if row.at is not None]
        assert exact_rows(done.rows) == exact_rows(timed)


# --- joins before the shuffle -----------------------------------------------------------------------------------------

CLICKS = Schema.parse("at timestamp, k string, i int not null, n bigint, w array<int>, x double, raw binary not null")
VIEWS = Schema.parse("k string, seen timestamp, i int not null, s string, day date, b boolean")


@pytest.mark.parametrize("how", list(JoinHow))
@pytest.mark.parametrize("side", list(Side))
@settings(max_examples=50)
@given(data=st.data(), keys=st.sampled_from([("k",), ("i",), ("i", "k")]), policy=POLICIES)
def test_sides_of_a_join(
    how: JoinHow, side: Side, data: st.DataObject, keys: tuple[str, ...], policy: ErrorPolicy
) -> None:
    of = Join(keys, "at", "seen", Bounds.within(10), how=how)
    left, right = CLICKS, Schema(tuple(f for f in VIEWS.fields if f.name in keys or f.name not in CLICKS))
    of.bind(left, right)
    schema, time = (left, "at") if side is Side.LEFT else (right, "seen")
    rows = data.draw(rows_of(schema))
    done = agree(Tag(of, left, right, side), schema, rows, policy)
    if done.failure is None:
        timed = [row for row in rows if getattr(row, time) is not None]
        shown = timed if how.keeps(side) else [r for r in timed if getattr(r, keys[-1]) is not None]
        assert [(row._t, row._side) for row in done.rows] == [(getattr(row, time), side is Side.RIGHT) for row in shown]


# --- dealing out by key -----------------------------------------------------------------------------------------------


@given(
    rows_of(GROUPED, max_size=20),
    st.lists(st.sampled_from(["k", "i", "b", "raw", "day", "at", "n"]), unique=True, min_size=1, max_size=3),
    st.integers(1, 5),
)
def test_rows_and_columns_are_dealt_alike(rows: list[Record], keys: list[str], instances: int) -> None:
    by_rows = Partitioner(tuple(keys), instances).rows(rows)
    by_columns = Partitioner(tuple(keys), instances).columns(GROUPED.to_batch(rows))
    assert len(by_rows) == len(by_columns) == instances
    for mine, theirs in zip(by_rows, by_columns, strict=True):
        assert exact_rows(mine) == exact_rows(GROUPED.to_rows(theirs))
    assert sum(map(len, by_rows)) == len(rows)
