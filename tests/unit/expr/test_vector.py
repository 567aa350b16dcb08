"""The Arrow form where it must differ from plain kernels; that it agrees in general is a property test."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from penstock.errors import PenstockError
from penstock.expr import Column, col, lit, record_function, vectorise, when
from penstock.expr.regex import to_re2
from penstock.types import Schema


def _both(column: Column, ddl: str, *values: object) -> tuple[list[object], list[object]]:
    schema = Schema.parse(ddl)
    rows = [schema.record_type(value) for value in values]
    return list(map(record_function(column, schema), rows)), vectorise(column, schema)(
        schema.to_batch(rows)
    ).to_pylist()


@pytest.mark.parametrize(
    ("column", "ddl", "values"),
    [
        (col("x").lower(), "x string", ["ABC", None, "İΑΣ"]),
        (col("x").upper(), "x string", ["abc", None, "ß"]),
        (col("x").isin(0.0, math.nan), "x double", [0.0, -0.0, None, math.nan]),
        (col("x") % 0.5, "x double", [1.75, None, -1.75, -0.0]),
        (col("x") % -3, "x bigint", [7, -7, None, 0]),
        (col("x") == 5, "x tinyint", [5, None, -5]),
        (col("x") < 1000, "x tinyint", [127, None]),
        (col("x").cast("int"), "x string", ["1", " +2 ", None]),
        (col("x").cast("double"), "x string", ["1.5", "1e3", "inf"]),
        (col("x").cast("bigint"), "x double", [-1.5, None, -(2.0**63)]),
        (col("x").rlike(r"(?<!a)b"), "x string", ["b", "ab", None]),
        (col("x").contains(b"\xff"), "x binary", [b"a\xff", b"", None]),
        (when(col("x").is_null(), "none").when(col("x") > 0, "up"), "x int", [1, None, -1]),
        (lit(7), "x int", [1, 2]),
        (lit(None).cast("array<string>"), "x int", [1, 2]),
        (col("x").split(","), "x string", ["a,b", "", None]),
    ],
    ids=str,
)
def test_agrees_with_the_record_form(column: Column, ddl: str, values: list[object]) -> None:
    by_record, by_batch = _both(column, ddl, *values)
    assert by_batch == by_record


def test_empty_batch() -> None:
    schema = Schema.parse("x bigint")
    assert vectorise(col("x") + 1, schema)(schema.to_batch([])).equals(pa.array([], pa.int64()))


@pytest.mark.parametrize(
    ("column", "ddl", "value"),
    [
        (col("x") + 1, "x bigint", 2**63 - 1),
        (-col("x"), "x bigint", -(2**63)),
        (1 / col("x"), "x bigint", 0),
        (col("x") % col("x"), "x bigint", 0),
        (col("x") % col("x"), "x double", -0.0),
        (col("x").cast("tinyint"), "x bigint", 128),
        (col("x").cast("bigint"), "x double", 2.0**63),
        (col("x").cast("int"), "x string", "0x1F"),
        (col("x").cast("string"), "x binary", b"\xff"),
    ],
    ids=str,
)
def test_raises_where_the_record_form_does(column: Column, ddl: str, value: object) -> None:
    schema = Schema.parse(ddl)
    with pytest.raises(PenstockError):
        record_function(column, schema)(schema.record_type(value))
    with pytest.raises((PenstockError, pa.ArrowInvalid)):
        vectorise(column, schema)(schema.to_batch([schema.record_type(value)]))


@pytest.mark.parametrize(
    ("pattern", "translated"),
    [
        ("error", "error"),
        (r"^\d+ (GET|POST) .*\.html", r"^\d+ (GET|POST) .*\.html"),
        (r"a\s+b$", r"a[\t\n\v\f\r ]+b\n?\z"),
        (r"[a-z0-9_]+", r"[a-z0-9_]+"),
        (r"(?:ab){2,3}?", r"(?:ab){2,3}?"),
        (r"\bword\b", None),
        (r"(?i)x", None),
        (r"(a)\1", None),
        (r"(?=a)", None),
        (r"a$b", None),
        (r"a++", None),
        (r"[\s]", None),
        (r"[[:alpha:]]", None),
        (r"a{,3}", None),
    ],
)
def test_patterns_go_to_re2_only_where_it_means_the_same(pattern: str, translated: str | None) -> None:
    assert to_re2(pattern) == translated
