"""Structs, maps, decimals, floats and columns of any name: rows to columns and back, and schemas made elsewhere."""

from __future__ import annotations

import dataclasses
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pytest
from pyspark.sql import types as spark

import penstock as ps
from penstock import functions as F
from penstock.errors import BadRecord, SchemaError, UnknownColumn
from penstock.operators import ErrorPolicy, ParseJson
from penstock.operators.errors import Errors
from penstock.types import Schema

DDL = (
    "`user id` bigint, a struct<b: int, c: struct<d: array<timestamp>, `e f`: string>>, "
    "m map<string, struct<x: date>>, p decimal(10,2), f float, class array<map<int, float>>"
)
ROWS: list[dict[str, Any]] = [
    {
        "user id": 1,
        "a": {"b": 2, "c": {"d": [3, None, datetime(2020, 1, 1, tzinfo=UTC)], "e f": "x"}},
        "m": {"k": {"x": date(1970, 1, 5)}, "n": None},
        "p": Decimal("1.5"),
        "f": 0.1,
        "class": [{1: 0.5}, None, {}],
    },
    {},
    {"a": {"c": None}, "m": {}, "class": [], "p": 3},
]


def test_rows_to_columns_and_back() -> None:
    schema = Schema.parse(DDL)
    rows = [schema.coerce(row) for row in ROWS]
    batch = schema.to_batch(rows)
    batch.validate(full=True)
    assert schema.to_rows(batch) == rows
    assert schema.to_rows(batch.slice(1)) == rows[1:]
    assert schema.to_rows(schema.to_batch([])) == []
    first = rows[0]
    assert first["user id"] == 1
    assert first.a.c.d == [3, None, 1_577_836_800_000_000]
    assert first.a.c["e f"] == "x"
    assert first.m["k"].x == 4
    assert first.p == Decimal("1.50")
    assert first.f == pytest.approx(0.1)
    assert first.f != 0.1, "a float is as coarse in a record as it is in a column"
    with pytest.raises(UnknownColumn, match="Did you mean 'user id'"):
        first["user_id"]


@pytest.mark.parametrize(
    ("ddl", "value"),
    [
        ("decimal(4,2)", Decimal("123.4")),
        ("decimal(4,2)", Decimal("1.234")),
        ("decimal(4,2)", 1.5),
        ("decimal(4,2)", Decimal("NaN")),
        ("decimal(4,2)", Decimal("-Infinity")),
        ("struct<a: int>", {"b": 1}),
        ("struct<a: int>", 5.5),
        ("map<string, int>", {1: 1}),
        ("map<string, int>", [1]),
        ("float", "1"),
    ],
)
def test_what_does_not_fit_is_named(ddl: str, value: object) -> None:
    with pytest.raises(BadRecord, match="column 'x'"):
        Schema.parse(f"x {ddl}, y int").coerce({"x": value})


@dataclasses.dataclass
class Item:
    name: str
    price: Decimal | None


class Order(msgspec.Struct):
    id: int
    at: datetime
    items: list[Item]
    tags: dict[str, float] | None = None
    size: Annotated[int, "smallint"] = 0


def test_schemas_are_read_from_classes() -> None:
    assert Schema.parse(Order).ddl == (
        "id bigint not null, at timestamp not null, "
        "items array<struct<name: string not null, price: decimal(38,18)>> not null, "
        "tags map<string, double>, size smallint not null"
    )
    with pytest.raises(SchemaError, match="which no column type stands for"):
        Schema.parse(dataclasses.make_dataclass("Odd", [("x", complex)]))


def test_schemas_are_read_from_spark() -> None:
    given = spark.StructType(
        [
            spark.StructField("a b", spark.ArrayType(spark.DecimalType(5, 1)), False),
            spark.StructField("m", spark.MapType(spark.StringType(), spark.TimestampType())),
            spark.StructField("s", spark.StructType([spark.StructField("x", spark.ByteType(), False)])),
        ]
    )
    assert Schema.parse(given).ddl == (
        "`a b` array<decimal(5,1)> not null, m map<string, timestamp>, s struct<x: tinyint not null>"
    )


def test_nested_json_needs_no_json_loads() -> None:
    text = (
        '{"user id":1,"a":{"b":2,"t":"2026-01-01T00:00:00Z"},"m":{"1":{"x":"2020-01-02"}},'
        '"p":1.25,"f":0.1,"l":[{"q":1,"more":[]},null]}'
    )
    ddl = (
        "`user id` bigint, a struct<b: int, t: timestamp>, m map<int, struct<x: date>>, p decimal(10,2), f float, "
        "l array<struct<q: int>>"
    )
    lines = Schema.parse("value string")
    rows = [lines.coerce(each) for each in (text, '{"a":{"b":"x"}}', '{"p":1.234}', "{}")]
    operation = ParseJson(Schema.parse(ddl))
    operator = operation.build(lines, Errors("parse", ErrorPolicy.SKIP))
    done = operator.process(rows)
    in_batch = operator.process_batch(lines.to_batch(rows))
    assert operation.schema.to_rows(in_batch.columns) == done.rows
    only_good = operator.process_batch(lines.to_batch([rows[0], rows[3]]))
    assert only_good.fallbacks == 0
    assert operation.schema.to_rows(only_good.columns) == done.rows
    first, empty = done.rows
    assert first["user id"] == 1
    assert first.a.t == 1_767_225_600_000_000
    assert first.m[1].x == (date(2020, 1, 2) - date(1970, 1, 1)).days
    assert first.p == Decimal("1.25")
    assert [item and item.q for item in first.l] == [1, None]
    assert empty.a is None


def test_rows_of_a_test_are_plain_all_the_way_down() -> None:
    source = ps.records([(1, "a")], schema="n bigint, s string")
    made = ps.stream("in", source).select(both=F.struct("n", "s"), many=F.array(F.struct("n")))
    harness = ps.testing.Harness(made.to(ps.memory()))
    harness.run()
    assert harness.rows() == [{"both": {"n": 1, "s": "a"}, "many": [{"n": 1}]}]
