"""Running aggregates whose keys have a time to live: what begins anew, what is late, what is forgotten, snapshots."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from states import restore, snapshot

import penstock as ps
from penstock.errors import InvalidOption, TypeMismatch
from penstock.operators import Aggregation, Combine, Emit, ErrorPolicy, Errors, Reduce
from penstock.operators.keyed import aggregates as agg
from penstock.operators.keyed import expiring
from penstock.operators.keyed.expiring import ExpiringOperator, TimeToLive
from penstock.testing import collect
from penstock.types import Schema

SCHEMA = Schema.parse("k string, n bigint, at timestamp")
TTL = 20


def built(keys: tuple[str, ...] = ("k",), emit: Emit = Emit.EVERY, policy: ErrorPolicy = ErrorPolicy.FAIL) -> Any:
    of = Aggregation(keys, (("c", agg.count()), ("s", agg.sum("n"))), None, emit, TimeToLive("at", TTL))
    operator = Reduce(of, SCHEMA, whole=True).build(SCHEMA, Errors("under test", policy))
    assert isinstance(operator, ExpiringOperator)
    return operator


def put(operator: ExpiringOperator, *rows: tuple[Any, ...], late: int = 0) -> list[tuple[Any, ...]]:
    made = operator.process([SCHEMA.record_type(*row) for row in rows])
    assert made.late == late
    return [(row.k, row.c, row.s) for row in made.rows]


ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9), st.integers(0, 200)), max_size=6)
MOVES = st.lists(
    st.tuples(st.just("rows"), ROWS)
    | st.tuples(st.just("advance"), st.integers(0, 220))
    | st.tuples(st.sampled_from(["snapshot", "restart"]), st.booleans()),
    max_size=20,
)


@pytest.mark.parametrize("forgotten_max", [1, 1_000])
@settings(max_examples=60)
@given(moves=MOVES)
def test_a_record_long_after_the_newest_of_its_key_begins_anew(forgotten_max: int, moves: list[Any]) -> None:
    """The recomputation holds every key for ever: when one is forgotten, and how many at a time, changes nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expiring, "FORGOTTEN_MAX", forgotten_max)
        operator = built()
        snapshots: list[bytes] = []
        exact: dict[str, list[int]] = {}
        watermark_us = -1
        for what, given_ in moves:
            if what == "rows":
                expected, late = [], 0
                for k, n, at in given_:
                    if at < watermark_us:
                        late += 1
                        continue
                    held = exact.get(k)
                    if held is None or at > held[2] + TTL:
                        held = exact[k] = [0, 0, at]
                    held[:] = [held[0] + 1, held[1] + n, max(held[2], at)]
                    expected.append((k, held[0], held[1]))
                assert put(operator, *given_, late=late) == expected
            elif what == "advance":
                watermark_us = max(watermark_us, given_)
                assert operator.advance(given_).rows == []
            else:
                snapshots = [] if given_ or not snapshots else snapshots
                snapshots.append(snapshot(operator, full=not snapshots))
                if what == "restart":
                    operator = built()
                    restore(operator, snapshots)
                    snapshots = []
        assert operator.finish().rows == []
        for _ in range(2 * len(exact) + 1):
            watermark_us = max(watermark_us, 400) + 1
            operator.advance(watermark_us)
        assert operator.held_keys == 0, "keys that nothing on time can meet are forgotten"


def test_few_keys_are_forgotten_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiring, "FORGOTTEN_MAX", 10)
    operator = built()
    put(operator, *((f"k{i}", 1, i % 3) for i in range(25)))
    held = []
    for watermark_us in (100, 101, 102):
        operator.advance(watermark_us)
        held.append(operator.held_keys)
    assert held == [15, 5, 0]


def test_a_key_that_goes_on_is_kept() -> None:
    operator = built()
    for at in range(0, 200, 10):
        (row,) = put(operator, ("a", 1, at))
        operator.advance(at)
    assert row == ("a", 20, 20)
    assert operator.held_keys == 1


def test_changes_are_sent_on_once_for_each_key_and_block() -> None:
    operator = built(emit=Emit.CHANGE)
    assert put(operator, ("a", 1, 0), ("b", 5, 0), ("a", 2, 5)) == [("a", 2, 3), ("b", 1, 5)]
    assert put(operator, ("a", 1, 100), ("a", 7, 100)) == [("a", 2, 8)]


def test_a_record_without_a_time_is_bad_in_both_forms() -> None:
    of = Aggregation(("k",), (("c", agg.count()),), None, Emit.CHANGE, TimeToLive("at", TTL))
    combine = Combine(of, whole=True).build(SCHEMA, Errors("under test", ErrorPolicy.SKIP))
    rows = [SCHEMA.record_type("a", 1, 3), SCHEMA.record_type("a", 2, None)]
    assert combine.process(rows).rows == rows[:1]
    done = combine.process_batch(SCHEMA.to_batch(rows))
    assert SCHEMA.to_rows(done.columns) == rows[:1]
    assert done.failures is not None
    assert put(built(policy=ErrorPolicy.SKIP), ("a", 1, None), ("a", 2, 1)) == [("a", 1, 2)]


def test_a_key_of_several_columns_survives_a_snapshot() -> None:
    operator, again = built(("k", "n")), built(("k", "n"))
    operator.process([SCHEMA.record_type("a", 1, 0)])
    restore(again, [snapshot(operator, full=True)])
    (row,) = again.process([SCHEMA.record_type("a", 1, TTL)]).rows
    assert row.c == 2


def test_options_are_checked_before_anything_starts() -> None:
    keyed = ps.stream("in", ps.records([], schema=SCHEMA.ddl)).key_by("k")
    with pytest.raises(InvalidOption, match=r"ttl.*together with on"):
        keyed.count(ttl="1h")
    with pytest.raises(InvalidOption, match="ttl"):
        keyed.count(on="at")
    with pytest.raises(InvalidOption, match="ttl"):
        keyed.count(ttl="soon", on="at")
    with pytest.raises(TypeMismatch, match="'n' is bigint"):
        keyed.count(ttl="1h", on="n")
    of = Aggregation(("k",), (("c", agg.count()),), ttl=TimeToLive("at", 3_600_000_000))
    assert "kept for 1h of at" in str(Reduce(of, SCHEMA).state_signature), "a state with another one does not fit"


def test_in_a_job() -> None:
    hour_us = 3_600_000_000
    rows = [("a", 1, 0), ("b", 1, 0), ("a", 1, hour_us), ("b", 1, hour_us + 1), ("b", 1, hour_us + 2)]
    source = ps.records([{"k": k, "n": n, "at": at} for k, n, at in rows], schema=SCHEMA.ddl)
    stream = ps.stream("in", source).with_watermark("at", 0)
    found = collect(stream.key_by("k").count(ttl="1h", on="at", emit="every"))
    assert sorted((row["k"], row["count"]) for row in found) == [("a", 1), ("a", 2), ("b", 1), ("b", 1), ("b", 2)]
