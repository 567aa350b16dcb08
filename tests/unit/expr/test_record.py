"""The record form's generated source, which is what the hot path runs."""

from __future__ import annotations

from functools import reduce
from operator import or_

import pytest

from penstock import functions as F
from penstock.errors import ArithmeticFailed, BadRecord, TypeMismatch
from penstock.expr import Column, call, coalesce, col, lit, predicate_source, record_function, record_source, when
from penstock.types import Schema

SCHEMA = Schema.parse(
    "a bigint, b bigint not null, i int not null, s string, u string not null, f boolean, g boolean not null, d double"
)


@pytest.mark.parametrize(
    ("column", "source"),
    [
        (col("s") == "view", "r.s == _c0"),
        (lit("view") == col("s"), "_c0 == r.s"),
        (col("s") != "view", "r.s is not None and r.s != _c0"),
        (col("u") != "view", "r.u != _c0"),
        (~(col("u") == "view"), "not (r.u == _c0)"),
        (~(col("s") != "view"), "r.s == _c0"),
        (col("s") == col("u"), "r.s == r.u"),
        (col("a") == col("a"), "r.a is not None and r.a == r.a"),
        (col("a") == col("i").cast("bigint") + 1, "r.a is not None and r.a == (r.i + 1)"),
        (col("a") > 3, "r.a is not None and r.a > 3"),
        (col("b") > -3, "r.b > (-3)"),
        ((col("b") > 3) & (col("s") == "x"), "(r.b > 3) and (r.s == _c0)"),
        (~((col("b") > 3) | col("f")), "(not (r.b > 3)) and (r.f is False)"),
        (col("s").isin("x", "y"), "r.s in _c0"),
        (~col("u").isin("x", "y"), "not (r.u in _c0)"),
        (col("b").between(1, 5), "1 <= r.b <= 5"),
        (col("a").is_null(), "r.a is None"),
        (col("a").is_not_null(), "r.a is not None"),
        (col("b").is_null(), "False"),
        ((col("a") + col("b")).is_null(), "r.a is None"),
        (col("u").contains("x"), "_c0 in r.u"),
        (when(col("g"), col("f")).otherwise(True), "(r.f if r.g else True)"),
        (col("g") | col("f") | (col("b") > 1), "r.g or r.f or (r.b > 1)"),
        (col("f"), "r.f"),
        (~col("g"), "not r.g"),
    ],
    ids=str,
)
def test_predicates_are_as_short_as_nulls_allow(column: Column, source: str) -> None:
    assert predicate_source(column, SCHEMA, {}) == source


@pytest.mark.parametrize(
    ("column", "source"),
    [
        (col("a"), "r.a"),
        (lit(None).cast("int"), "None"),
        (col("i").cast("bigint") + 1, "r.i + 1"),
        (col("i").cast("bigint") * col("i"), "r.i * r.i"),
        (col("d") * 2, "None if r.d is None else r.d * 2.0"),
        (col("i") / 4, "r.i / 4.0"),
        (col("i") % 4, "r.i % 4 if r.i >= 0 else -(-r.i % 4)"),
        (coalesce(col("a"), col("b"), 0), "r.a if r.a is not None else r.b"),
        (when(col("g"), col("b")).otherwise(0), "r.b if r.g else 0"),
        (col("i").cast("bigint"), "r.i"),
        (col("g") & col("f"), "r.g and r.f"),
        (
            col("b") + 1,
            "_t0 if -9223372036854775808 <= (_t0 := r.b + 1) <= 9223372036854775807 else _overflow(_t0)",
        ),
    ],
    ids=str,
)
def test_values(column: Column, source: str) -> None:
    assert record_source(column, SCHEMA, {}) == source


def test_one_null_test_covers_a_whole_chain_of_operators() -> None:
    assert record_source(col("d") * col("d") + col("d"), SCHEMA, {}) == "None if r.d is None else (r.d * r.d) + r.d"


def test_constants_never_stand_in_the_source_and_do_not_replace_what_is_in_the_namespace() -> None:
    namespace: dict[str, object] = {"_c0": "taken"}
    hostile = '"); raise SystemExit  # '
    assert predicate_source(col("s") == hostile, SCHEMA, namespace) == "r.s == _c1"
    assert namespace == {"_c0": "taken", "_c1": hostile}


def test_several_sources_share_a_namespace() -> None:
    namespace: dict[str, object] = {}
    sources = [record_source(column, SCHEMA, namespace) for column in (col("u") == "x", col("u") == "y")]
    assert sources == ["r.u == _c0", "r.u == _c1"]


def test_sources_work_inside_a_comprehension() -> None:
    namespace: dict[str, object] = {}
    source = predicate_source(col("a") + col("b") > 3, SCHEMA, namespace)
    exec(f"def keep(rows):\n    return [r.a for r in rows if {source}]", namespace)
    rows = [SCHEMA.coerce({"a": a, "b": 1, "i": 0, "u": "", "g": True}) for a in (1, None, 3, 9)]
    assert namespace["keep"](rows) == [3, 9]  # type: ignore[operator]


def test_long_chains_of_conditions_compile() -> None:
    source = predicate_source(reduce(or_, [col("b") == i for i in range(250)]), SCHEMA, {})
    compile(source, "<test>", "eval")


def test_a_predicate_must_be_a_condition() -> None:
    with pytest.raises(TypeMismatch, match="not a condition"):
        predicate_source(col("a") + 1, SCHEMA, {})


_VALUES = Schema.parse("x bigint, y bigint, d double, s string, v binary, t timestamp, n tinyint not null")


def _value(column: Column, **values: object) -> object:
    return record_function(column, _VALUES)(_VALUES.coerce({"n": 1, **values}))


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (col("x") + 1, {"x": 2**63 - 1}),
        (col("x") - col("y"), {"x": -(2**63), "y": 1}),
        (col("x") * col("y"), {"x": 2**62, "y": 2}),
        (-col("x"), {"x": -(2**63)}),
        (col("x").abs(), {"x": -(2**63)}),
        (col("x") / col("y"), {"x": 1, "y": 0}),
        (col("x") / 0, {"x": 1}),
        (col("x") % 0, {"x": 1}),
        (col("d") % col("d"), {"d": 0.0}),
        (col("d") / col("d"), {"d": -0.0}),
        (col("x").cast("int"), {"x": 2**31}),
        (col("d").cast("bigint"), {"d": 2.0**63}),
        (col("d").cast("bigint"), {"d": float("nan")}),
        (col("t").cast("string"), {"t": 2**62}),
    ],
    ids=str,
)
def test_arithmetic_that_has_no_result_raises(column: Column, values: dict[str, object]) -> None:
    with pytest.raises(ArithmeticFailed):
        _value(column, **values)


@pytest.mark.parametrize(
    ("kind", "text"), [("int", "1_0"), ("double", "0x1"), ("boolean", "maybe"), ("date", "1.1.2030")]
)
def test_text_that_cannot_be_read_raises(kind: str, text: str) -> None:
    with pytest.raises(BadRecord, match="is not"):
        _value(col("s").cast(kind), s=text)


def test_conditions_guard_what_follows_them() -> None:
    guarded = (col("x") != 0) & (10 / col("x") > 1)
    assert [_value(guarded, x=x) for x in (0, 5, 20, None)] == [False, True, False, None]
    assert _value(when(col("x") != 0, 10 / col("x")).otherwise(0), x=0) == 0.0


@pytest.mark.parametrize(
    ("column", "values", "expected"),
    [
        (col("x") % 3, {"x": -7}, -1),
        (col("x") % -3, {"x": 7}, 1),
        (col("d") % 3, {"d": -7.5}, -1.5),
        (col("x") / 2, {"x": 7}, 3.5),
        (col("s").cast("bigint"), {"s": " -12 "}, -12),
        (col("s").cast("timestamp"), {"s": "2024-01-01T01:00:00+01:00"}, 1704067200000000),
        (col("t").cast("string"), {"t": 1704067200500000}, "2024-01-01 00:00:00.5"),
        (col("t").cast("bigint"), {"t": -1}, -1),
        (col("t").cast("date").cast("string"), {"t": 1704067200500000}, "2024-01-01"),
        ((col("x") / 1000).cast("timestamp"), {"x": 1700000000123}, 1700000000123000),
        (col("d").cast("int"), {"d": -1.9}, -1),
        (col("d").cast("string"), {"d": float("inf")}, "Infinity"),
        (col("s").trim(), {"s": " a\t "}, "a\t"),
        (col("s").upper(), {"s": "straße"}, "STRASSE"),
        (col("s").substr(2, 2), {"s": "a😀cd"}, "😀c"),
        (col("s").split(","), {"s": "a,,b"}, ["a", "", "b"]),
        (col("v").contains(b"\xff"), {"v": b"a\xff"}, True),
        (col("s").rlike(r"^\d+$"), {"s": "٣"}, False),
        (lit(None).cast("boolean") & (col("x") > 5), {"x": 1}, False),
        (col("x").between(col("y"), 5), {"x": 9}, False),
        (col("x").between(col("y"), 5), {"x": 3}, None),
        (col("d").isin(float("nan")), {"d": float("nan")}, True),
        (when(col("x") > 1, "big").when(col("x") > 0, "one"), {"x": 0}, None),
    ],
    ids=str,
)
def test_semantics(column: Column, values: dict[str, object], expected: object) -> None:
    assert _value(column, **values) == expected


@pytest.mark.parametrize(
    ("column", "found"),
    [
        (F.transform("ns", lambda x: x + 1), [2, 3, None]),
        (F.transform("ns", lambda x, i: x * i + F.col("n")), [7, 9, None]),
        (F.filter("ns", lambda x: x > 1), [2]),
        (F.filter("ns", lambda x, i: i > 0), [2, None]),
        (F.transform("ns", lambda x: F.size(F.filter("ns", lambda y: y >= x))), [2, 1, 0]),
        (F.transform(F.transform("ns", lambda x: x + 1), lambda x: x * 2), [4, 6, None]),
        # An assignment within what is gone through: Python refuses that in a comprehension.
        (F.transform(F.array(F.col("n") + 1, F.col("n") * 2), lambda x: x + 1), [9, 15]),
    ],
)
def test_elements_are_computed_in_place(column: Column, found: list[int | None]) -> None:
    schema = Schema.parse("ns array<int>, n int")
    assert record_function(column, schema)(schema.record_type([1, 2, None], 7)) == found
    assert record_function(column, schema)(schema.record_type(None, None)) in (None, [None, None])


def test_an_element_costs_no_call() -> None:
    source = record_source(F.transform("ns", lambda x: x + 1), Schema.parse("ns array<int>"), {})
    assert "lambda" not in source
    assert " for " in source


def test_a_column_is_not_taken_for_a_constant_of_its_name() -> None:
    """Columns may be called like a unit of time, or like the one letter at which a text is split."""
    schema = Schema.parse("x string, hour string, t timestamp")
    record = schema.coerce(("b.", "month", 1_700_000_000_000_000))
    split = record_function(call("split", lit("axbcc"), col("x")), schema)
    assert split(record) == ["ax", "c"]
    cut = record_function(call("date_trunc", col("hour"), col("t")), schema)
    assert cut(record) == 1_698_796_800_000_000
    with pytest.raises(TypeMismatch, match="not a unit of time"):
        record_function(call("timestamp_add", col("hour"), lit(1), col("t")), schema)
