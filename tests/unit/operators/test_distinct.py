"""drop_duplicates: who passes, how long keys are held, and that a restart changes neither."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from states import restore, snapshot

import penstock as ps
from penstock.connectors.memory import At
from penstock.operators import DropDuplicates, ErrorPolicy, Errors
from penstock.operators.keyed.distinct import Distinct, DistinctOperator
from penstock.testing import Harness
from penstock.types import Schema

S = 1_000_000
SCHEMA = Schema.parse("k string, n bigint, at timestamp")
WITHIN = 10
MOVES = st.lists(
    st.tuples(st.just("rows"), st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 90)), max_size=6))
    | st.tuples(st.just("advance"), st.integers(0, 100))
    | st.tuples(st.sampled_from(["snapshot", "restart"]), st.booleans()),
    max_size=25,
)


def built(on: str | None = "at", keys: tuple[str, ...] = ("k",)) -> DistinctOperator:
    made = Distinct(DropDuplicates(keys, on, WITHIN)).build(SCHEMA, Errors("under test", ErrorPolicy.FAIL))
    assert isinstance(made, DistinctOperator)
    return made


@pytest.mark.parametrize("on", ["at", None])
@given(moves=MOVES)
def test_a_record_passes_if_none_near_it_has(on: str | None, moves: list[Any]) -> None:
    operator = built(on)
    snapshots: list[bytes] = []
    passed: list[tuple[str, int]] = []
    watermark_us = -1
    for what, given_ in moves:
        if what == "rows":
            done = operator.process([SCHEMA.record_type(k, 0, at) for k, at in given_])
            expected = []
            for k, at in given_:
                near = [each for each in passed if each[0] == k and (on is None or abs(each[1] - at) <= WITHIN)]
                if not near and (on is None or at >= watermark_us):
                    expected.append((k, at))
                    passed.append((k, at))
            assert [(row.k, row.at) for row in done.rows] == expected
        elif what == "advance":
            watermark_us = max(watermark_us, given_)
            assert operator.advance(given_).rows == []
            if on is not None:
                kept = {k for k, at in passed if at >= watermark_us - WITHIN}
                assert operator.held_keys == len(kept), "keys that nothing on time can meet are forgotten"
        else:
            snapshots = [] if given_ or not snapshots else snapshots
            snapshots.append(snapshot(operator, full=not snapshots))
            if what == "restart":
                operator = built(on)
                restore(operator, snapshots)
                snapshots = []


def test_keys_of_several_columns_survive_a_snapshot() -> None:
    operator = built(keys=("k", "n"))
    operator.process([SCHEMA.record_type("a", 1, 0)])
    again = built(keys=("k", "n"))
    restore(again, [snapshot(operator, full=True)])
    assert again.process([SCHEMA.record_type("a", 1, 5), SCHEMA.record_type("a", 2, 5)]).rows[0].n == 2


@pytest.mark.parametrize("parallelism", [1, 3])
def test_in_a_pipeline_duplicates_are_gone_and_windows_behind_go_on(parallelism: int) -> None:
    rows: list[Any] = []
    for i in range(120):
        rows += [At(i / 10), (f"k{i // 2 % 7}", i // 2, i * S // 10)]
    events = ps.stream("in", ps.records(schema=SCHEMA, partitions=[rows[:120], rows[120:]]))
    unique = events.drop_duplicates("k", "n", on="at", within="1s")
    counted = unique.window("5s", on="at").count()
    pipeline = unique.to(ps.memory(), name="unique") + counted.to(ps.memory(), name="counted")
    harness = Harness(pipeline, parallelism=parallelism)
    harness.run()
    assert Counter(row["n"] for row in harness.rows("unique")) == Counter(range(60))
    assert sum(row["count"] for row in harness.rows("counted")) == 60
    assert harness.count("drop_duplicates", "late") == harness.count("count", "late") == 0


def test_a_time_and_a_span_belong_together() -> None:
    events = ps.stream("in", ps.records([], schema=SCHEMA))
    with pytest.raises(ps.PenstockError, match="within"):
        events.drop_duplicates("k", on="at")
