"""Types and nullability of expressions, and the mistakes found before anything runs."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from penstock.errors import TypeMismatch, UnknownColumn
from penstock.expr import Column, coalesce, col, infer, lit, record_function, when
from penstock.types import Schema

SCHEMA = Schema.parse(
    "a bigint, b bigint not null, i int, n tinyint not null, d double, s string, v binary, f boolean, "
    "t timestamp not null, day date not null, words array<string>"
)


@pytest.mark.parametrize(
    ("column", "ddl"),
    [
        (col("a"), "a bigint"),
        (col("b"), "b bigint not null"),
        (col("a").alias("x"), "x bigint"),
        (col("i").cast("double"), "i double"),
        ((col("i") + col("n")).alias("x"), "x int"),
        ((col("n") + 1).alias("x"), "x int not null"),
        ((col("b") * 0.5).alias("x"), "x double not null"),
        ((col("b") / 2).alias("x"), "x double not null"),
        ((col("b") % 2).alias("x"), "x bigint not null"),
        ((-col("n")).alias("x"), "x tinyint not null"),
        ((col("d").abs()).alias("x"), "x double"),
        ((col("b") > 1.5).alias("x"), "x boolean not null"),
        ((col("a") > col("b")).alias("x"), "x boolean"),
        (col("a").is_null().alias("x"), "x boolean not null"),
        ((col("f") & col("a").is_null()).alias("x"), "x boolean"),
        (col("s").split(" ").alias("x"), "x array<string>"),
        (col("s").length().alias("x"), "x int"),
        (coalesce(col("a"), col("n")).alias("x"), "x bigint not null"),
        (coalesce(col("n"), 0).alias("x"), "x int not null"),
        (coalesce(col("n"), 1000).alias("x"), "x int not null"),
        (coalesce(col("i"), col("d"), 1).alias("x"), "x double not null"),
        (when(col("f"), "x").alias("x"), "x string"),
        (when(col("f"), "x").otherwise("y").alias("x"), "x string not null"),
        (when(col("f"), None).otherwise(col("b")).alias("x"), "x bigint"),
        (when(col("f"), 1).otherwise(2.5).alias("x"), "x double not null"),
        (lit(1).alias("x"), "x int not null"),
        (lit(2**40).alias("x"), "x bigint not null"),
        (lit(None).cast("string").alias("x"), "x string"),
        (lit(datetime(2030, 1, 1)).alias("x"), "x timestamp not null"),
        (lit(date(2030, 1, 1)).alias("x"), "x date not null"),
    ],
    ids=str,
)
def test_infers(column: Column, ddl: str) -> None:
    assert infer(column, SCHEMA).ddl == ddl


def test_an_unnamed_expression_is_named_by_its_text() -> None:
    assert infer(col("a") + 1, SCHEMA).name == "a + 1"


def test_unknown_column_names_the_nearest() -> None:
    with pytest.raises(UnknownColumn, match="Did you mean 'words'"):
        infer(col("word") == "x", SCHEMA)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (col("a") == "1", "compares bigint with string"),
        (col("t") > 5, "compares timestamp with bigint|compares timestamp with int"),
        (col("t") > "yesterday", "not a timestamp in ISO form"),
        (col("words") == col("words"), "compares array<string>"),
        (col("words").isin("a"), "compares array<string>"),
        (col("a").isin("x"), "compares bigint with string"),
        (lit("2030-01-01").isin(date(2030, 1, 1)), "compares string with date"),
        (col("a").between("x", 2), "compares"),
        (col("a") == None, "Use is_null"),  # noqa: E711
        (col("a") + None, "always null"),
        (col("s") + "x", "needs numbers, but s is string"),
        (col("f") + 1, "needs numbers, but f is boolean"),
        (-col("s"), "needs a number"),
        (col("a") & col("f"), "needs conditions, but a is bigint"),
        (~col("a"), "needs conditions"),
        (col("a").lower(), "needs string, but a is bigint"),
        (col("v").contains("x"), "needs string, but v is binary"),
        (col("s").contains(b"x"), "needs binary, but s is string"),
        (col("v").rlike("x"), "needs string"),
        (col("words").length(), "needs text, but words is array<string>"),
        (col("words").cast("int"), "cannot become int"),
        (col("t") - col("t"), "not defined for timestamp and timestamp"),
        (col("v").cast("int"), "cannot become int"),
        (coalesce(col("a"), "x"), "alternatives of type bigint and string"),
        (when(col("a"), 1), "a is not a condition"),
        (when(col("f"), None), "always null"),
        (lit(None), "None alone has no type"),
        (lit(2**63) > col("a"), "does not fit into 64 bits"),
    ],
    ids=str,
)
def test_refuses(column: Column, message: str) -> None:
    with pytest.raises(TypeMismatch, match=message):
        infer(column, SCHEMA)


@pytest.mark.parametrize(
    "column",
    [
        col("t") == "2030-01-01",
        col("t") == "2030-01-01T01:00:00+01:00",
        col("t") == datetime(2030, 1, 1),
        col("t") == datetime(2030, 1, 1, tzinfo=UTC),
        col("t") == date(2030, 1, 1),
        col("t").isin("2030-01-01"),
        col("t").between("2030-01-01", "2030-01-01 00:00:00.000001"),
        col("day") == "2030-01-01",
        col("day") == date(2030, 1, 1),
        lit("2030-01-01") == col("day"),
    ],
    ids=str,
)
def test_times_are_read_when_compiled(column: Column) -> None:
    record = SCHEMA.coerce({"b": 0, "n": 0, "t": 1893456000000000, "day": 21915})
    assert record_function(column, SCHEMA)(record) is True
