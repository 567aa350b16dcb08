"""Both forms of every operation on random and on nasty input: equal rows, side outputs, counts and dead letters."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agreeing import FORMS, POLICIES, Outcome, agree, exact, exact_rows, rows_of, values_of
from penstock.errors import TypeMismatch
from penstock.expr import col, lit, when
from penstock.operators import (
    Apply,
    ErrorPolicy,
    Filter,
    How,
    Lookup,
    Project,
    Split,
    op,
    table,
)
from penstock.types import Record, Schema

# --- expressions ------------------------------------------------------------------------------------------------------

MIXED = Schema.parse(
    "k string, n bigint, i int, x double, b boolean, at timestamp, day date, raw binary, words array<string>,"
    " m bigint not null"
)
MIXED_ROWS = rows_of(MIXED)
CONDITIONS = st.sampled_from(
    [
        col("k") == "view",
        (col("n") > 0) | col("k").is_null(),
        ~(col("x") < 1.5) & col("b"),
        col("b"),
        10 / col("n") > 1,
        col("n") * col("m") > 0,
        col("i") % col("m") == 1,
        col("k").isin("a", "view"),
        col("at") > "1970-01-01T00:00:10",
        col("n") + 1 > col("m"),
        lit(True),
        lit(False),
    ]
)


@given(MIXED_ROWS, CONDITIONS, POLICIES)
def test_filter(rows: list[Record], condition: Any, policy: ErrorPolicy) -> None:
    agree(Filter(condition), MIXED, rows, policy)


PROJECTED = st.lists(
    st.sampled_from(
        [
            col("k"),
            (col("n") + col("m")).alias("sum"),
            (col("x") / col("i")).alias("ratio"),
            (-col("m")).alias("negated"),
            col("n").cast("tinyint").alias("narrow"),
            col("k").upper().alias("upper"),
            when(col("b"), col("n")).otherwise(col("m")).alias("chosen"),
            lit(1).alias("one"),
            lit("a").alias("letter"),
            col("words"),
            col("raw"),
            col("day"),
            (col("at") > "1970-01-01T00:00:00").alias("after"),
        ]
    ),
    min_size=1,
    max_size=4,
    unique_by=str,
)


@given(MIXED_ROWS, PROJECTED, st.booleans(), POLICIES)
def test_select_and_with_columns(rows: list[Record], columns: list[Any], keep: bool, policy: ErrorPolicy) -> None:
    agree(Project(tuple(columns), keep), MIXED, rows, policy)


@given(MIXED_ROWS, POLICIES)
def test_with_columns_replaces_in_place(rows: list[Record], policy: ErrorPolicy) -> None:
    operation = Project(((col("n") + 1).alias("n"), col("m").alias("last")), keep=True)
    assert operation.bind(MIXED).names == (*MIXED.names, "last")
    done = agree(operation, MIXED, rows, policy)
    if policy in (ErrorPolicy.SKIP, ErrorPolicy.DEAD_LETTER):
        fine = [row for row in rows if row.n != (1 << 63) - 1]
        assert [row.n for row in done.rows] == [None if row.n is None else row.n + 1 for row in fine]


@given(MIXED_ROWS, st.lists(CONDITIONS, min_size=1, max_size=3), POLICIES)
def test_split(rows: list[Record], conditions: list[Any], policy: ErrorPolicy) -> None:
    operation = Split(tuple((f"branch{i}", condition) for i, condition in enumerate(conditions)))
    done = agree(operation, MIXED, rows, policy)
    assert done.rows == []
    if done.failure is None:
        out = sum(map(len, done.sides.values()))
        assert out + done.counts.skipped == len(rows)


# --- users' functions -------------------------------------------------------------------------------------------------

NUMBERS = Schema.parse("n bigint, s string")
NUMBER_ROWS = rows_of(NUMBERS, n=st.integers(-5, 20))


@op(schema="n bigint not null, half double, label string")
def halve(r: Record) -> Any:
    if r.n == 7:
        raise ValueError("seven")
    return {"n": r.n, "half": r.n / 2 if r.n % 2 else r.n // 2, "label": r.s}


@op(schema="n bigint not null, half double, label string")
def halve_both(r: Record) -> Any:
    return halve.record_form(r)


@halve_both.batch
def _halve_batch(batch: pa.RecordBatch) -> Any:
    if pc.any(pc.equal(batch.column("n"), 7)).as_py():
        raise ValueError("seven somewhere")
    return pa.table(
        {"label": batch.column("s"), "n": batch.column("n"), "half": pc.divide(batch.column("n").cast("float64"), 2.0)}
    )


@op(schema="part int, of string")
def repeat(r: Record) -> Any:
    if r.n == 7:
        raise ValueError("seven")
    return ((i, r.s) if i % 2 else {"part": i, "of": r.s} for i in range(r.n))


@op(schema="part int, of string")
def repeat_both(r: Record) -> Any:
    return repeat.record_form(r)


@repeat_both.batch
def _repeat_batch(batch: pa.RecordBatch) -> Any:
    counts = batch.column("n").to_pylist()
    if 7 in counts or None in counts:
        raise ValueError("left to the records")
    at = [i for i, n in enumerate(counts) for _ in range(n)]
    parts = [part for n in counts for part in range(n)]
    return pa.record_batch({"part": pa.array(parts, "int64"), "of": batch.column("s").take(pa.array(at, "int64"))})


@op(schema="n tinyint")
def wrong(r: Record) -> Any:
    """Return whatever a confused user may."""
    return [r.n, 1000, "1", True, 1.5, (1, 2), {"m": 1}, None][(r.n or 0) % 8]


@given(
    NUMBER_ROWS,
    st.sampled_from([Apply(halve), Apply(halve_both), Apply(repeat, True), Apply(repeat_both, True), Apply(wrong)]),
    POLICIES,
)
def test_map_and_flat_map(rows: list[Record], operation: Apply, policy: ErrorPolicy) -> None:
    done = agree(operation, NUMBERS, rows, policy)
    if policy is ErrorPolicy.DEAD_LETTER and operation.function in (halve, halve_both):
        bad = [row for row in rows if row.n is None or row.n == 7]
        assert [json.loads(letter.record)["n"] for letter in done.dead_letters] == [row.n for row in bad]
        assert all("in halve" in letter.traceback for letter in done.dead_letters)


@given(NUMBER_ROWS)
def test_both_kinds_of_functions_agree_with_each_other(rows: list[Record]) -> None:
    for plain, both, flat in [(halve, halve_both, False), (repeat, repeat_both, True)]:
        left = agree(Apply(plain, flat), NUMBERS, rows, ErrorPolicy.SKIP)
        right = agree(Apply(both, flat), NUMBERS, rows, ErrorPolicy.SKIP)
        assert exact_rows(left.rows) == exact_rows(right.rows)


@pytest.mark.parametrize(
    "returned",
    [
        lambda batch: batch.slice(1),
        lambda batch: pa.record_batch({"other": batch.column("n")}),
        lambda batch: None,
        lambda batch: pa.record_batch({"n": pa.nulls(batch.num_rows, pa.int64())}),
        lambda batch: pa.record_batch({"n": pa.array(["x"] * batch.num_rows)}),
    ],
    ids=["too few rows", "wrong column", "no batch", "nulls in a not null column", "wrong type"],
)
def test_a_wrong_batch_form_falls_back_to_the_record_form(returned: Callable[[pa.RecordBatch], Any]) -> None:
    @op(schema="n bigint not null")
    def same(r: Record) -> Any:
        return (r.n,)

    same.batch(returned)
    rows = [NUMBERS.record_type(n, "") for n in (1, 2, 3)]
    assert [row.n for row in agree(Apply(same), NUMBERS, rows).rows] == [1, 2, 3]


@pytest.mark.parametrize("form", FORMS)
def test_retry_gives_every_record_its_attempts(form: str) -> None:
    """Also when so many fail that bookkeeping per retry would add up."""
    seen: dict[int, int] = {}

    def flaky(r: Record) -> Any:
        seen[r.n] = seen.get(r.n, 0) + 1
        if seen[r.n] <= r.n % 4:
            raise ConnectionError("try again")
        return (r.n,)

    rows = [NUMBERS.record_type(n, "") for n in range(100_000)]
    done = Outcome(Apply(op(schema="n bigint")(flaky)), NUMBERS, rows, ErrorPolicy.RETRY, form)
    assert done.failure is None
    assert [row.n for row in done.rows] == list(range(100_000))
    assert done.counts.retried == sum(n % 4 for n in range(100_000))


@pytest.mark.parametrize("form", FORMS)
def test_retry_gives_up_in_the_end(form: str) -> None:
    calls = []

    def never(r: Record) -> Any:
        calls.append(r.n)
        raise ConnectionError("down")

    operation = Apply(op(schema="n bigint")(never))
    done = Outcome(operation, NUMBERS, [NUMBERS.record_type(5, "")], ErrorPolicy.RETRY, form)
    assert done.failure is not None
    assert "ConnectionError: down" in done.failure
    assert calls == [5] * 4


# --- lookup -----------------------------------------------------------------------------------------------------------

KEYED = Schema.parse("k string, i int, at timestamp, day date, b boolean, raw binary")
_KEY_VALUES: dict[str, list[Any]] = {
    "k": ["a", "b", "", "é", None],
    "i": [0, 1, -1, (1 << 31) - 1, None],
    "at": [0, 1, -1_000_001, None],
    "day": [0, -1, 19_000, None],
    "b": [True, False, None],
    "raw": [b"", b"a", b"\xff", None],
}


@given(st.data(), st.sampled_from(KEYED.names), st.sampled_from(How), POLICIES)
def test_lookup(data: st.DataObject, on: str, how: How, policy: ErrorPolicy) -> None:
    ddl = KEYED.field(on).type.ddl
    keys = data.draw(st.lists(st.sampled_from(_KEY_VALUES[on]), unique=True))
    rows = [(key, f"name {i}" if i % 2 else None, i) for i, key in enumerate(keys)]
    found = table(rows, schema=f"key {ddl}, label string, n bigint not null", key="key")
    special = {on: st.sampled_from(_KEY_VALUES[on][:-1]) | values_of(KEYED.field(on).type)}
    records = data.draw(rows_of(KEYED, **special))
    done = agree(Lookup(found, on, how), KEYED, records, policy)
    by_key = {key: (label, n) for key, label, n in rows if key is not None}
    expected = [
        (getattr(r, on), *by_key.get(getattr(r, on), (None, None)))
        for r in records
        if how is How.LEFT or getattr(r, on) in by_key
    ]
    assert [(exact(getattr(r, on)), r.label, r.n) for r in done.rows] == [(exact(k), *rest) for k, *rest in expected]


@pytest.mark.parametrize("ddl", ["double", "array<int>"])
def test_a_table_has_a_key_that_both_forms_compare_alike(ddl: str) -> None:
    with pytest.raises(TypeMismatch, match="cannot be a key"):
        table([], schema=f"key {ddl}, label string", key="key")
