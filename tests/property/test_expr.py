"""Random expressions over random rows: the record form and the Arrow form give exactly the same values."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import given, note, settings
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

WORDS = array_of(STRING)
TYPES = [BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, DOUBLE, STRING, BINARY, TIMESTAMP, DATE, WORDS]
COMPARABLE = [kind for kind in TYPES if kind != WORDS]
NUMBERS = [TINYINT, SMALLINT, INT, BIGINT, DOUBLE]
# Two columns of every type, one of which may be null.
SCHEMA = Schema(
    tuple(Field(f"{kind.kind.value}{i}", kind, i == 0) for kind in TYPES for i in range(2)),
)
ROWS_MAX = 6
EXPRESSIONS = 20
EXAMPLES = settings(deadline=None, max_examples=400)

_USUAL: dict[DataType, list[Any]] = {
    BOOLEAN: [True, False],
    DOUBLE: [0.0, -0.0, 0.5, -1.5, 2.0, 3.0, 7.0],
    STRING: ["", "a", "ab", "ABC", "a,b,", ",", " ab ", "12", "-7", "1.5", "true", "a\n", "b"],
    BINARY: [b"", b"a", b"ab", b"ba"],
}
_RARE: dict[DataType, list[Any]] = {
    BOOLEAN: [True, False],
    DOUBLE: [math.nan, math.inf, -math.inf, 2.0**53, 2.0**63, -(2.0**63), 1e308, 5e-324, 1e15 + 0.3],
    STRING: [
        *["2024-02-29", "2024-02-29 12:30:00.5", " 3 ", "+1e3", "NaN", "9" * 19, "0x1F", "1_0", "٣"],
        *["ß", "İ", "ΑΣ", "é😀", "\uffff", "\v", "\x85", "\u00a0a"],
    ],
    BINARY: [b"\xff", "é".encode(), b"\x00", b"\xed\xa0\x80"],
}
_PATTERNS = [
    "a",
    "^a",
    "a$",
    r"\d+",
    "[^a]b",
    r"\w",
    r"\W",
    r"\s",
    "(?i)A",
    "a|,",
    r"\bab\b",
    "a.b",
    r"^\s*$",
]


def random_value(random: Random, kind: DataType) -> Any:
    """A value as records hold it; extremes are rare so that most rows get through arithmetic."""
    if kind.element is not None:
        return [random_value(random, kind.element) for _ in range(random.randrange(4))]
    usual = random.random() < 0.75
    if kind in _USUAL:
        return random.choice((_USUAL if usual else _RARE)[kind])
    if usual:
        return random.randrange(-9, 10)
    low, high = kind.bounds()
    choices = [low, high, low + 1, 2**31, 2**53 + 1, 10**15, random.randint(low, high)]
    return random.choice([value for value in choices if value <= high])


def random_rows(random: Random) -> list[Any]:
    def value(field: Field) -> Any:
        return None if field.nullable and random.random() < 0.25 else random_value(random, field.type)

    return [SCHEMA.record_type(*map(value, SCHEMA)) for _ in range(random.randrange(ROWS_MAX + 1))]


def random_literal(random: Random, kind: DataType) -> Any:
    """A constant as users write it."""
    value = random_value(random, kind)
    if kind == TIMESTAMP:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value % 10**15)
    return date.fromordinal(719163 + value % 10**4) if kind == DATE else value


class Grammar:
    """Draws expressions; Hypothesis gives the seed only, because drawing every node with it is slow."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def any(self, depth: int, kinds: list[DataType] = TYPES) -> Column:
        """An expression of one of these types."""
        return self.of(self._random.choice(kinds), depth)

    def of(self, kind: DataType, depth: int) -> Column:
        """An expression of exactly this type."""
        if depth == 0:
            return self._leaf(kind)
        makers: list[Callable[[], Column]] = [lambda: self._leaf(kind), lambda: self._choice(kind, depth - 1)]
        if kind != WORDS:
            sources = [source for source in TYPES if convertible(source, kind)]
            makers.append(lambda: self.any(depth - 1, sources).cast(kind))
        if kind == BOOLEAN:
            makers += [lambda: self.condition(depth)] * 3
        elif kind in (BIGINT, DOUBLE):
            makers += [lambda: self.arithmetic(depth).cast(kind)] * 3
        elif kind == INT:
            makers.append(lambda: self.any(depth - 1, [STRING, BINARY]).length())
        elif kind == STRING:
            makers += [lambda: self._text(depth - 1)] * 2
        elif kind == WORDS:
            makers.append(lambda: self.of(STRING, depth - 1).split(self._random.choice([",", "a", "ab", "é"])))
        return self._random.choice(makers)()

    def arithmetic(self, depth: int) -> Column:
        left = self.any(depth - 1, NUMBERS)
        right: Any = self.any(depth - 1, NUMBERS)
        if self._random.random() < 0.4:
            right = self._random.choice([0, 1, 3, -3, 10, 0.5, -2.0, 2**40])
        operators = [operator.add, operator.sub, operator.mul, operator.truediv, operator.mod]
        column: Column = self._random.choice([*operators, lambda a, _: -a, lambda a, _: a.abs()])(left, right)
        return column

    def condition(self, depth: int) -> Column:
        makers = [
            self._comparison,
            self._comparison,
            self._membership,
            self._match,
            self._logic,
            self._null_test,
        ]
        return self._random.choice(makers)(depth - 1)

    def _leaf(self, kind: DataType) -> Column:
        odds = self._random.random()
        if odds < 0.05:
            return lit(None).cast(kind)
        if odds < 0.15 and kind != WORDS:
            return lit(random_literal(self._random, kind)).cast(kind)
        return col(f"{kind.kind.value}{self._random.randrange(2)}")

    def _choice(self, kind: DataType, depth: int) -> Column:
        odds = self._random.random()
        if odds < 0.4:
            return coalesce(self.of(kind, depth), self.of(kind, depth))
        begun = when(self.of(BOOLEAN, depth), self.of(kind, depth))
        return begun if odds < 0.6 else begun.otherwise(self.of(kind, depth))

    def _text(self, depth: int) -> Column:
        text = self.of(STRING, depth)
        return self._random.choice([text.lower(), text.upper(), text.trim(), text.substr(2, 2), text.substr(1, 0)])

    def _comparison(self, depth: int) -> Column:
        kind = self._random.choice(COMPARABLE)
        kinds = NUMBERS if kind in NUMBERS else [kind]
        left = self.any(depth, kinds)
        right, third = (
            random_literal(self._random, kind) if self._random.random() < 0.4 else self.any(depth, kinds)
            for _ in range(2)
        )
        if self._random.random() < 0.2:
            return left.between(right, third)
        operators = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
        column: Column = self._random.choice(operators)(left, right)
        return column

    def _membership(self, depth: int) -> Column:
        kind = self._random.choice(COMPARABLE)
        members = [random_literal(self._random, kind) for _ in range(self._random.randrange(4))]
        return self.any(depth, NUMBERS if kind in NUMBERS else [kind]).isin(members)

    def _match(self, depth: int) -> Column:
        if self._random.random() < 0.4:
            return self.of(STRING, depth).rlike(self._random.choice(_PATTERNS))
        kind = self._random.choice([STRING, BINARY])
        column, part = self.of(kind, depth), random_value(self._random, kind)
        return self._random.choice([column.contains, column.startswith, column.endswith])(part)

    def _logic(self, depth: int) -> Column:
        left, right = self.of(BOOLEAN, depth), self.of(BOOLEAN, depth)
        return self._random.choice([left & right, left | right, ~left])

    def _null_test(self, depth: int) -> Column:
        column = self.any(depth)
        return self._random.choice([column.is_null(), column.is_not_null()])


def exact(value: object) -> object:
    """Make values comparable bit by bit (any NaN is the same NaN)."""
    return ("double", repr(value)) if isinstance(value, float) else (type(value), value)


def by_record(column: Column, records: list[Any]) -> list[object] | None:
    """Values of the record form, or None where it raises."""
    try:
        return list(map(record_function(column, SCHEMA), records))
    except (ArithmeticFailed, BadRecord):
        return None


def by_batch(column: Column, batch: pa.RecordBatch) -> list[object] | None:
    """Values of the Arrow form, or None where it raises."""
    field = infer(column, SCHEMA)
    evaluate = vectorise(column, SCHEMA)
    try:
        array = evaluate(batch)
    except (ArithmeticFailed, BadRecord, pa.ArrowInvalid):
        return None
    assert array.type == field.type.arrow
    result = Schema((Field("value", field.type),))
    found = [record.value for record in result.to_rows(pa.RecordBatch.from_arrays([array], schema=result.arrow))]
    assert field.nullable or None not in found
    return found


def check_agreement(column: Column, records: list[Any], batch: pa.RecordBatch) -> None:
    found = by_batch(column, batch)
    if found is not None:
        expected = by_record(column, records)
        assert expected is not None, f"the Arrow form went on where the record form raised: {records}"
        assert list(map(exact, found)) == list(map(exact, expected)), records
    elif len(records) > 1:
        for i, record in enumerate(records):
            check_agreement(column, [record], batch.slice(i, 1))


@EXAMPLES
@given(seed=st.integers(0, 1 << 48), depth=st.integers(1, 3))
def test_both_forms_agree(seed: int, depth: int) -> None:
    random = Random(seed)
    grammar = Grammar(random)
    records = random_rows(random)
    batch = SCHEMA.to_batch(records)
    for _ in range(EXPRESSIONS):
        column = random.choice([grammar.any, grammar.arithmetic, grammar.condition])(depth)
        note(str(column))
        check_agreement(column, records, batch)


@EXAMPLES
@given(seed=st.integers(0, 1 << 48), depth=st.integers(1, 3))
def test_predicate_is_truthy_exactly_where_the_value_is_true(seed: int, depth: int) -> None:
    random = Random(seed)
    records = random_rows(random)
    for _ in range(EXPRESSIONS):
        column = Grammar(random).condition(depth)
        note(str(column))
        namespace: dict[str, Any] = {}
        source = predicate_source(column, SCHEMA, namespace)
        exec(f"def keeps(r):\n    return [r] == [r for r in [r] if {source}]", namespace)
        for record in records:
            expected = by_record(column, [record])
            if expected is not None:
                assert namespace["keeps"](record) is (expected[0] is True), record


_PIECES = [*"ab.|()*+?^$é\n", r"\d", r"\W", r"\s", r"\.", "[^a]", "[a-b]", "{1,2}"]


@settings(deadline=None, max_examples=1000)
@given(
    pattern=st.lists(st.sampled_from(_PIECES), min_size=1, max_size=6).map("".join),
    texts=st.lists(st.text(st.sampled_from("abé.1 \n\v\x85"), max_size=4), min_size=4, max_size=8),
)
def test_translated_patterns_find_what_python_finds(pattern: str, texts: list[str]) -> None:
    try:
        search = re.compile(pattern, re.ASCII).search
    except re.error:
        return
    if to_re2(pattern) is None:
        return
    schema = Schema.parse("text string")
    found = vectorise(col("text").rlike(pattern), schema)(schema.to_batch(list(map(schema.record_type, texts))))
    assert found.to_pylist() == [search(text) is not None for text in texts]


def test_a_bound_that_is_not_a_number_is_above_all_others() -> None:
    schema = Schema.parse("n smallint not null, x double not null")
    records = [schema.record_type(9, float("nan")), schema.record_type(9, 1.0)]
    for column, expected in (
        (col("n").between(col("n"), col("x")), [True, False]),
        (col("x").between(0.0, float("nan")), [True, True]),
    ):
        assert list(map(record_function(column, schema), records)) == expected
        assert vectorise(column, schema)(schema.to_batch(records)).to_pylist() == expected
