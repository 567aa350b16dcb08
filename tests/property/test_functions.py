"""Both forms of every function agree, on records that are drawn at random, bad ones included."""

from __future__ import annotations

from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import drawing
import meaning
from agreeing import exact
from penstock.errors import PenstockError
from penstock.expr import Column, infer, record_function, vectorise
from penstock.operators import ErrorPolicy, Project
from penstock.operators.errors import Errors
from penstock.types import DataType, Schema, TypeKind, record_dict, to_array, to_values

SCHEMA = meaning.SCHEMA
TEXTS = [
    "",
    "a",
    "Hello World",
    " x ",
    "äß",
    "1.5",
    "-7",
    "2024-02-29",
    "2026-03-29 01:30:00",
    '{"a":{"b":[1]}}',
    "[1]",
    "%_\\",
]
NUMBERS = [0, 1, -1, 2, 7, 127, -128, 300, 2**31 - 1, -(2**31), 2**53 + 1, 2**63 - 1, -(2**63)]
DOUBLES = [0.0, -0.0, 0.5, -2.5, 1e-5, 1234567.891, 1e300, float("inf"), float("-inf"), float("nan")]


def value_of(kind: DataType, random: Random) -> Any:
    if random.random() < 0.2:
        return None
    word = kind.kind
    if kind.is_integer:
        low, high = kind.bounds()
        return random.choice([value for value in NUMBERS if low <= value <= high])
    if kind.is_fractional:
        return random.choice(DOUBLES)
    if word is TypeKind.BOOLEAN:
        return random.random() < 0.5
    if word is TypeKind.DECIMAL:
        return Decimal(random.randrange(-(10**6), 10**6)).scaleb(-2)
    if word is TypeKind.STRING:
        return random.choice(TEXTS)
    if word is TypeKind.BINARY:
        return random.choice([b"", b"abc", b"\x80\xff"])
    if word is TypeKind.TIMESTAMP:
        return random.choice([0, -1, 1_774_747_815_123_456, random.randrange(-(10**16), 10**17)])
    if word is TypeKind.DATE:
        return random.randrange(-40_000, 40_000)
    if word is TypeKind.STRUCT:
        return {field.name: value_of(field.type, random) for field in kind.fields}
    assert kind.element is not None
    size = random.randrange(4)
    if kind.key is None:
        return [value_of(kind.element, random) for _ in range(size)]
    keys = random.sample(["a", "b", "k", "l", "z"], size)
    return {key: value_of(kind.element, random) for key in keys}


def drawn(random: Random, rows: int) -> list[Any]:
    return [SCHEMA.coerce({f.name: value_of(f.type, random) for f in SCHEMA}) for _ in range(rows)]


def results(columns: list[Column], rows: list[Any]) -> tuple[Any, Any]:
    """What select makes of the records in both forms: rows, and which records failed."""
    operation = Project(tuple(column.alias(f"c{i}") for i, column in enumerate(columns)))
    output: Schema = operation.bind(SCHEMA)
    operator = operation.build(SCHEMA, Errors("select", ErrorPolicy.SKIP))
    by_record = operator.process(rows)
    by_batch = operator.process_batch(SCHEMA.to_batch(rows))
    made = [repr([record_dict(row) for row in found]) for found in (by_record.rows, output.to_rows(by_batch.columns))]
    failed = [len(each.failures.dead) if each.failures else 0 for each in (by_record, by_batch)]
    return (made[0], failed[0]), (made[1], failed[1])


@pytest.mark.parametrize("group", meaning.GROUPS)
@settings(max_examples=6)
@given(seed=st.integers(0, 2**32))
def test_both_forms_agree(group: str, seed: int) -> None:
    random = Random(seed)
    rows = drawn(random, random.randrange(1, 6))
    for column in random.sample(meaning.GROUPS[group](), 12):
        by_record, by_batch = results([column], rows)
        assert by_record == by_batch, column


def test_both_forms_agree_on_the_records_of_the_comparison_with_spark() -> None:
    rows = meaning.records()
    for make in (*meaning.GROUPS.values(), meaning.failures):
        for column in make():
            by_record, by_batch = results([column], rows)
            assert by_record == by_batch, column


@pytest.mark.parametrize("seed", range(4))
def test_drawn_expressions_have_two_equal_forms(seed: int) -> None:
    """Whatever the table of functions allows: values of the type that is told, or an error for people, in both."""
    random = Random(seed)
    rows = drawing.rows(random, 8)
    batch = drawing.SCHEMA.to_batch(rows)
    for column in drawing.Drawer(random).draw(100):
        told = infer(column, drawing.SCHEMA)
        function, kernel = record_function(column, drawing.SCHEMA), vectorise(column, drawing.SCHEMA)
        try:
            values = [function(row) for row in rows]
        except (PenstockError, ArithmeticError):
            with pytest.raises((PenstockError, ArithmeticError, pa.ArrowException)):
                kernel(batch)
            continue
        assert told.nullable or None not in values, column
        to_array(values, told.type)
        try:
            found = to_values(kernel(batch), told.type)
        except (PenstockError, ArithmeticError, pa.ArrowException):
            continue  # the loop takes over
        assert list(map(exact, found)) == list(map(exact, values)), column
