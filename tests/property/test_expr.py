"""Random expressions over random rows: the record form and the Arrow form give exactly the same values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import ArithmeticFailed, BadRecord
from penstock.expr import (
    Column,
    coalesce,
    col,
    infer,
    lit,
    predicate_source,
    record_function,
    vectorise,
    when,
)
from penstock.expr.infer import convertible
from penstock.expr.regex import to_re2
from penstock.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TINYINT,
    DataType,
    Field,
    Schema,
    array_of,
)

TYPES = [BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, DOUBLE, STRING, BINARY, TIMESTAMP, DATE, array_of(STRING)]
NUMBERS = [TINYINT, SMALLINT, INT, BIGINT, DOUBLE]
# Two columns of every type, one of which may be null.
SCHEMA = Schema(
    tuple(
        Field(f"{kind.kind.value}{i}", kind, nullable)
        for kind in TYPES
        for i, nullable in enumerate((True, False))
    )
)
ROWS_MAX = 8
_TEXTS = [
    "",
    " ",
    "a",
    "ab",
    "ABC",
    "a,b,",
    ",",
    "ß",
    "İ",
    "ΑΣ",
    "é😀",
    "a\n",
    "12",
    "-7",
    " 3 ",
    "1.5",
    "true",
    "\v",
    "0x1F",
]
_EXAMPLES = settings(
    deadline=None, max_examples=250, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def values(kind: DataType) -> st.SearchStrategy[Any]:
    if kind.element is not None:
        return st.lists(values(kind.element), max_size=3)
    if kind == BOOLEAN:
        return st.booleans()
    if kind == DOUBLE:
        special = [0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -2.0, 2.0**53, 2.0**63, 1e308, 5e-324]
        return st.sampled_from(special) | st.floats()
    if kind == STRING:
        return st.sampled_from(_TEXTS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
    if kind == BINARY:
        return st.sampled_from([b"", b"a", b"\xff", "é".encode()]) | st.binary(max_size=3)
    low, high = kind.bounds()
    return st.sampled_from([low, high, 0, 1, -1, 7]) | st.integers(low, high) | st.integers(-20, 20)


_SMALL = {
    BOOLEAN: [True, False],
    DOUBLE: [0.0, -0.0, 0.5, -1.5, 2.0, 3.0],
    STRING: _TEXTS,
    BINARY: [b"", b"a", b"ab"],
}
_EXTREME = {
    DOUBLE: [math.nan, math.inf, -math.inf, 2.0**53, 2.0**63, -(2.0**63), 1e308, 5e-324, 1e15 + 0.3],
    STRING: ["2024-02-29", "2024-02-29 12:30:00.5", "1e3", "NaN", "x" * 9, "é", "\U0001f600\uffff", "9" * 19],
    BINARY: [b"\xff", "é".encode(), b"\x00"],
}


def random_value(random: Random, kind: DataType) -> object:
    if kind.element is not None:
        return [random_value(random, kind.element) for _ in range(random.randrange(4))]
    if kind in _SMALL:
        return random.choice(_SMALL[kind] if random.random() < 0.7 else _EXTREME.get(kind, _SMALL[kind]))
    low, high = kind.bounds()
    odds = random.random()
    if odds < 0.7:
        return random.randrange(-9, 10)
    return (
        random.choice([low, high, low + 1, 2**31 % high, 10**15 % high])
        if odds < 0.85
        else random.randint(low, high)
    )


def random_rows(seed: int, count: int) -> list[Any]:
    """Rows from a seed: Hypothesis' own would take most of the test's time and be less varied."""
    random = Random(seed)

    def value(field: Field) -> object:
        return None if field.nullable and random.random() < 0.25 else random_value(random, field.type)

    return [SCHEMA.record_type(*map(value, SCHEMA)) for _ in range(count)]


def rows() -> st.SearchStrategy[list[Any]]:
    return st.builds(random_rows, st.integers(0, 1 << 32), st.integers(0, ROWS_MAX))


def number(depth: int) -> st.SearchStrategy[Column]:
    return st.sampled_from(NUMBERS).flatmap(lambda kind: expressions(kind, depth))


def plain(kind: DataType) -> st.SearchStrategy[Any]:
    """Literals as users write them."""
    if kind == TIMESTAMP:
        return st.datetimes()
    return st.dates() if kind == DATE else values(kind)


def leaves(kind: DataType) -> st.SearchStrategy[Column]:
    columns = st.sampled_from([col(field.name) for field in SCHEMA if field.type == kind])
    if kind.element is not None:
        return columns
    typed = plain(kind).map(lambda value: lit(value).cast(kind))
    return columns | columns | typed | st.just(lit(None).cast(kind))


def expressions(kind: DataType, depth: int) -> st.SearchStrategy[Column]:
    if depth == 0:
        return leaves(kind)
    same = expressions(kind, depth - 1)
    options = [
        leaves(kind),
        st.builds(coalesce, same, same),
        st.builds(lambda c, a, b: when(c, a).otherwise(b), conditions(depth - 1), same, same),
        st.builds(when, conditions(depth - 1), same),
    ]
    if kind == BOOLEAN:
        options.append(conditions(depth))
    if kind == STRING:
        options += [
            st.builds(
                lambda text, method: getattr(text, method)(),
                same,
                st.sampled_from(["lower", "upper", "trim"]),
            ),
            st.builds(
                lambda text, start, n: text.substr(start, n), same, st.integers(1, 4), st.integers(0, 3)
            ),
        ]
    if kind.element is not None:
        texts = expressions(STRING, depth - 1)
        options.append(
            st.builds(lambda text, sep: text.split(sep), texts, st.sampled_from([",", "a", "ab", "é"]))
        )
    if kind in (BIGINT, DOUBLE):
        options.append(arithmetic(depth).map(lambda column: column.cast(kind)))
    if kind == INT:
        sized = st.sampled_from([STRING, BINARY, array_of(STRING)]).flatmap(
            lambda t: expressions(t, depth - 1)
        )
        options.append(sized.map(lambda column: column.length()))
    if kind.element is None:
        sources = [source for source in TYPES if convertible(source, kind)]
        options.append(
            st.sampled_from(sources).flatmap(lambda t: expressions(t, depth - 1)).map(lambda c: c.cast(kind))
        )
    return st.one_of(options)


def arithmetic(depth: int) -> st.SearchStrategy[Column]:
    operators: list[Callable[[Any, Any], Any]] = [
        lambda a, b: a + b,
        lambda a, b: a - b,
        lambda a, b: a * b,
        lambda a, b: a / b,
        lambda a, b: a % b,
        lambda a, b: -a,
        lambda a, b: a.abs(),
    ]
    right = number(depth - 1) | st.integers(-3, 10).map(lit) | st.sampled_from([0.5, -2.0]).map(lit)
    return st.builds(lambda f, a, b: f(a, b), st.sampled_from(operators), number(depth - 1), right)


def comparisons(depth: int) -> st.SearchStrategy[Column]:
    operators: list[Callable[[Any, Any], Any]] = [
        lambda a, b: a == b,
        lambda a, b: a != b,
        lambda a, b: a < b,
        lambda a, b: a <= b,
        lambda a, b: a > b,
        lambda a, b: a >= b,
    ]

    def of(kind: DataType) -> st.SearchStrategy[Column]:
        operand = number(depth) if kind.is_numeric else expressions(kind, depth)
        literals = st.lists(plain(kind), max_size=3)
        return (
            st.builds(lambda f, a, b: f(a, b), st.sampled_from(operators), operand, operand | plain(kind))
            | st.builds(lambda a, lo, hi: a.between(lo, hi), operand, operand, operand | plain(kind))
            | st.builds(lambda a, found: a.isin(found), expressions(kind, depth), literals)
        )

    return st.sampled_from([kind for kind in TYPES if kind.element is None]).flatmap(of)


def matches(depth: int) -> st.SearchStrategy[Column]:
    methods = st.sampled_from(["contains", "startswith", "endswith"])

    def of(kind: DataType) -> st.SearchStrategy[Column]:
        operand = expressions(kind, depth)
        return st.builds(lambda a, method, part: getattr(a, method)(part), operand, methods, values(kind))

    patterns = st.sampled_from(
        [r"a", r"^a", r"a$", r"\d+", r"[^a]b", r"\w", r"\s", r"(?i)A", r"a|,", r"\bа?", r"."]
    )
    regex = st.builds(lambda a, pattern: a.rlike(pattern), expressions(STRING, depth), patterns)
    return of(STRING) | of(BINARY) | regex


def conditions(depth: int) -> st.SearchStrategy[Column]:
    if depth == 0:
        return leaves(BOOLEAN)
    smaller = expressions(BOOLEAN, depth - 1)
    anything = st.sampled_from(TYPES).flatmap(lambda kind: expressions(kind, depth - 1))
    return st.one_of(
        comparisons(depth - 1),
        comparisons(depth - 1),
        matches(depth - 1),
        st.builds(lambda a, b: a & b, smaller, smaller),
        st.builds(lambda a, b: a | b, smaller, smaller),
        st.builds(lambda a: ~a, smaller),
        st.builds(lambda a: a.is_null(), anything),
        st.builds(lambda a: a.is_not_null(), anything),
    )


def exact(value: object) -> object:
    """Make doubles comparable bit by bit (any NaN is the same NaN)."""
    return ("double", repr(value)) if isinstance(value, float) else (type(value), value)


def by_record(column: Column, records: list[Any]) -> list[object] | None:
    """Values of the record form, or None where it raises."""
    try:
        return list(map(record_function(column, SCHEMA), records))
    except (ArithmeticFailed, BadRecord):
        return None


def by_batch(column: Column, records: list[Any]) -> list[object] | None:
    """Values of the Arrow form, or None where it raises."""
    field = infer(column, SCHEMA)
    evaluate = vectorise(column, SCHEMA)
    try:
        array = evaluate(SCHEMA.to_batch(records))
    except (ArithmeticFailed, BadRecord, pa.ArrowInvalid):
        return None
    assert array.type == field.type.arrow
    result = Schema((Field("value", field.type),))
    batch = pa.RecordBatch.from_arrays([array], schema=result.arrow)
    found = [record.value for record in result.to_rows(batch)]
    assert field.nullable or None not in found
    return found


def check_agreement(column: Column, records: list[Any]) -> bool:
    """Compare the two forms on one batch; return whether the Arrow form had values."""
    found = by_batch(column, records)
    if found is None:
        return False
    expected = by_record(column, records)
    assert expected is not None, "the Arrow form went on where the record form raised"
    assert list(map(exact, found)) == list(map(exact, expected))
    return True


@pytest.mark.parametrize("depth", [1, 2])
@_EXAMPLES
@given(data=st.data(), records=rows())
def test_both_forms_agree(depth: int, data: st.DataObject, records: list[Any]) -> None:
    kinds = st.sampled_from(TYPES).flatmap(lambda kind: expressions(kind, depth))
    column = data.draw(kinds | arithmetic(depth) | conditions(depth), label="expression")
    if not check_agreement(column, records):
        for record in records:
            check_agreement(column, [record])


@_EXAMPLES
@given(column=conditions(2), records=rows())
def test_predicate_is_truthy_exactly_where_the_value_is_true(column: Column, records: list[Any]) -> None:
    namespace: dict[str, Any] = {}
    source = predicate_source(column, SCHEMA, namespace)
    exec(f"def keeps(r):\n    return True if {source} else False", namespace)
    value = record_function(column, SCHEMA)
    for record in records:
        try:
            expected = value(record)
        except (ArithmeticFailed, BadRecord):
            continue
        assert namespace["keeps"](record) is (expected is True)


_PIECES = [
    "a",
    "b",
    ".",
    r"\d",
    r"\W",
    r"\s",
    "[^a]",
    "[a-b]",
    "|",
    "(",
    ")",
    "*",
    "+",
    "?",
    "{1,2}",
    "^",
    "$",
    r"\.",
    "é",
    "\n",
]


@_EXAMPLES
@given(
    pattern=st.lists(st.sampled_from(_PIECES), max_size=6).map("".join),
    texts=st.lists(st.text(st.sampled_from("abé.1 \n\v\x85"), max_size=5), min_size=1, max_size=6),
)
def test_translated_patterns_find_what_python_finds(pattern: str, texts: list[str]) -> None:
    try:
        search = re.compile(pattern, re.ASCII).search
    except re.error:
        return
    if to_re2(pattern) is None:
        return
    schema = Schema.parse("text string")
    found = vectorise(col("text").rlike(pattern), schema)(
        schema.to_batch(list(map(schema.record_type, texts)))
    )
    assert found.to_pylist() == [search(text) is not None for text in texts]
