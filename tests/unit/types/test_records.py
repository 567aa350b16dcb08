"""Records: checked construction, and rows to columns and back for every type."""

from __future__ import annotations

import math
import pickle
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle

from penstock.errors import BadRecord
from penstock.types import Record, Schema, parse_type, record_dict

INT64 = (-(1 << 63), (1 << 63) - 1)
GOOD: dict[str, list[Any]] = {
    "boolean": [True, False],
    "tinyint": [-128, 127, 0],
    "smallint": [-32768, 32767],
    "int": [-(1 << 31), (1 << 31) - 1],
    "bigint": [*INT64],
    "double": [0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, 1.7976931348623157e308],
    "string": ["", "a", "é😀", "\x00"],
    "binary": [b"", b"\xff\x00"],
    "timestamp": [0, -1, 253_402_300_800_000_000, *INT64],
    "date": [0, -1, 2_932_896, (1 << 31) - 1],
    "array<string>": [[], ["a", None, ""]],
    "array<timestamp>": [[0, None, INT64[1]]],
    "array<date>": [[0, None, -5]],
    "array<array<timestamp>>": [[[0, None], None, []]],
    "array<array<date>>": [[[1], None, [None]]],
}
BAD: dict[str, list[Any]] = {
    "boolean": [1, 0, "true", 1.0],
    "tinyint": [128, -129, True, 1.0, "1", 1.5],
    "smallint": [32768, "x"],
    "int": [1 << 31, 0.5],
    "bigint": [1 << 63, -(1 << 63) - 1, math.nan, b"1"],
    "double": ["1.0", True, b"", [1.0], 10**400],
    "string": [b"a", 1, ["a"], True],
    "binary": ["a", "YWJj", 1, [1]],
    "array<binary>": [["YWJj"]],
    "timestamp": ["2024-01-01", 1.5, date(2024, 1, 1), 1 << 63],
    "date": ["2024-01-01", 1 << 31],
    "array<string>": ["abc", [1], {"a": 1}],
    "array<int>": [[1.5], [1 << 31], [[1]]],
}


def same(left: Any, right: Any) -> bool:
    return repr(left) == repr(right) and type(left) is type(right)


@pytest.mark.parametrize("ddl", GOOD)
def test_rows_to_columns_and_back(ddl: str) -> None:
    schema = Schema.parse(f"a {ddl}, b {ddl}")
    values = [None, *GOOD[ddl], None]
    rows = [schema.record_type(value, None) for value in values]
    batch = schema.to_batch(rows)
    batch.validate(full=True)
    assert batch.schema == schema.arrow
    assert batch.column(0).null_count == 2
    back = schema.to_rows(batch)
    assert all(same(row.a, value) and row.b is None for row, value in zip(back, values, strict=True))
    assert schema.to_rows(schema.to_batch([])) == []
    assert schema.to_rows(batch.slice(1, 1))[0].a is not None


@pytest.mark.parametrize(("ddl", "value"), [(ddl, value) for ddl in GOOD for value in GOOD[ddl]])
def test_good_values_pass_unchanged(ddl: str, value: Any) -> None:
    schema = Schema.parse(f"a {ddl} not null")
    for given_ in ({"a": value}, (value,), schema.record_type(value)):
        assert same(schema.coerce(given_).a, value)


@pytest.mark.parametrize(("ddl", "value"), [(ddl, value) for ddl in BAD for value in BAD[ddl]])
def test_bad_values_are_named(ddl: str, value: Any) -> None:
    with pytest.raises(BadRecord, match=f"column 'a' is declared {ddl}"):
        Schema.parse(f"a {ddl}").coerce({"a": value})


@pytest.mark.parametrize("value", [(), (1,), [1], (1, 2, 3)])
def test_tuples_have_a_value_for_every_column(value: Any) -> None:
    with pytest.raises(BadRecord, match=f"has {len(value)} values, not 2"):
        Schema.parse("a int, b int").coerce(value)


@pytest.mark.parametrize(
    ("ddl", "value", "expected"),
    [
        ("double", 3, 3.0),
        ("double", np.float32(0.5), 0.5),
        ("double", np.float64(0.5), 0.5),
        ("double", np.int64(2), 2.0),
        ("bigint", np.int64(7), 7),
        ("tinyint", np.int8(-1), -1),
        ("boolean", np.bool_(True), True),
        ("string", np.str_("a"), "a"),
        ("array<double>", np.array([1.0, 2.0]), [1.0, 2.0]),
        ("array<int>", (1, 2), [1, 2]),
    ],
)
def test_what_users_functions_return_is_made_plain(ddl: str, value: Any, expected: Any) -> None:
    assert same(Schema.parse(f"a {ddl}").coerce((value,)).a, expected)


def test_shapes_of_records() -> None:
    schema = Schema.parse("a string, n bigint")
    assert record_dict(schema.coerce({"n": 1})) == {"a": None, "n": 1}
    assert record_dict(schema.coerce(["x", 2])) == {"a": "x", "n": 2}
    assert Schema.parse("a string").coerce("bare").a == "bare"
    for bad in ({"b": 1}, ("x", 1, 2), "bare", 5, None):
        with pytest.raises(BadRecord):
            schema.coerce(bad)


def test_null_is_refused_where_it_is_declared_so() -> None:
    schema = Schema.parse("a string not null")
    for bad in ({}, {"a": None}, (None,)):
        with pytest.raises(BadRecord, match="'a' is null"):
            schema.coerce(bad)


@given(st.lists(st.none() | st.integers(*INT64)), st.lists(st.none() | st.floats(), max_size=5))
def test_any_numbers_survive(ints: list[int | None], floats: list[float | None]) -> None:
    schema = Schema.parse("n bigint, at timestamp, x array<double>")
    rows = [schema.record_type(n, n, floats) for n in ints]
    assert [repr(record_dict(r)) for r in schema.to_rows(schema.to_batch(rows))] == [repr(record_dict(r)) for r in rows]


def test_arrow_types() -> None:
    assert parse_type("timestamp").arrow == pa.timestamp("us", tz="UTC")
    assert parse_type("array<date>").arrow == pa.list_(pa.date32())
    assert parse_type("tinyint").bounds() == (-128, 127)
    assert parse_type("date").bounds() == (-(1 << 31), (1 << 31) - 1)


def test_a_schema_that_travels_makes_the_same_records() -> None:
    used = Schema.parse("k string, n bigint not null")
    record = used.coerce(("a", 1))
    assert used.to_rows(used.to_batch([record])) == [record]
    there = cloudpickle.loads(cloudpickle.dumps(used))
    assert there == used
    assert there.record_type is used.record_type
    assert there.coerce({"k": "a", "n": 1}) == record


def test_generated_classes_are_records_of_their_schema_and_cannot_be_changed() -> None:
    made = Schema.parse("k string, n bigint").record_type("a", 1)
    assert isinstance(made, Record)
    assert type(made) is Schema.parse("k string, n bigint").record_type
    assert made._asdict() == {"k": "a", "n": 1}
    with pytest.raises(AttributeError):
        made.n = 2


def test_records_of_any_shape_are_sent_to_workers() -> None:

    schema = Schema.parse(
        "n int, s struct<a: int, at: timestamp>, xs array<struct<a: int>>, `odd name` map<string, int>"
    )
    row = schema.coerce((1, {"a": 2, "at": 3}, [{"a": 4}, None], {"k": 5}))
    again = pickle.loads(cloudpickle.dumps([row, row]))
    assert again == [row, row]
    assert type(again[0]) is type(row), "equal schemas share one class"
    assert type(again[0].s) is type(row.s)
