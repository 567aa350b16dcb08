"""Both forms of an operation over the same records: random ones, and whether anything tells the forms apart."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from penstock.errors import OperationFailed, PenstockError
from penstock.operators import (
    DEAD_LETTERS,
    BatchResult,
    ErrorPolicy,
    Errors,
    Operation,
    Result,
)
from penstock.operators.errors import ErrorCounts
from penstock.types import DataType, Record, Schema, TypeKind, record_dict

POLICIES = st.sampled_from(ErrorPolicy)
FORMS = ["record", "batch"]

_SCALARS: dict[TypeKind, st.SearchStrategy[Any]] = {
    TypeKind.BOOLEAN: st.booleans(),
    TypeKind.DOUBLE: st.floats(width=64) | st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf]),
    TypeKind.STRING: st.text(max_size=4) | st.sampled_from(["", "a", "view", "é", "😀"]),
    TypeKind.BINARY: st.binary(max_size=4),
    # Half of the range, so that a window's bounds are times as well.
    TypeKind.TIMESTAMP: st.integers(-(1 << 61), 1 << 61) | st.integers(-25_000_000, 25_000_000),
}


def values_of(data_type: DataType) -> st.SearchStrategy[Any]:
    """Values of a type, not null."""
    if data_type.element is not None:
        return st.lists(st.none() | values_of(data_type.element), max_size=3)
    if data_type.kind in _SCALARS:
        return _SCALARS[data_type.kind]
    low, high = data_type.bounds()
    return st.integers(low, high) | st.sampled_from([low, high, 0, 1, -1]) | st.integers(-3, 3)


def rows_of(schema: Schema, max_size: int = 12, **special: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Record]]:
    """Lists of records of a schema, columns drawn from ``special`` where given."""
    columns = [
        (st.none() | values if field.nullable else values)
        for field in schema.fields
        for values in [special.get(field.name, values_of(field.type))]
    ]
    return st.lists(st.builds(schema.record_type, *columns), max_size=max_size)


def exact(value: Any) -> Any:
    """A value that compares as exactly as its text does: 1 is not 1.0, NaN is NaN, -0.0 is not 0.0."""
    if isinstance(value, list | tuple):
        return tuple(map(exact, value))
    return (type(value).__name__, repr(value))


def exact_rows(rows: list[Record]) -> list[Any]:
    return [tuple((name, exact(value)) for name, value in record_dict(row).items()) for row in rows]


def _columns(schema: Schema, rows: list[Record], form: str) -> pa.RecordBatch:
    """Return the rows as columns, for the form "slice" as a part of longer ones."""
    if form == "batch":
        return schema.to_batch(rows)
    return schema.to_batch([*rows[-1:], *rows, *rows[:1]]).slice(len(rows[-1:]), len(rows))


class Outcome:
    """Everything that one form of an operation did with a list of rows."""

    def __init__(self, operation: Operation, schema: Schema, rows: list[Record], policy: ErrorPolicy, form: str):
        errors = Errors("under test", policy)
        output = operation.bind(schema)
        operator = operation.build(schema, errors)
        self.failure: str | None = None
        self.rows: list[Record] = []
        done: Result | BatchResult | None = None
        try:
            if form == "record":
                done = operator.process(rows)
                self.rows = done.rows
            else:
                done = operator.process_batch(_columns(schema, rows, form))
                done.columns.validate(full=True)
                assert done.columns.schema == output.arrow
                self.rows = output.to_rows(done.columns)
        except PenstockError as error:
            at = error.at_index if isinstance(error, OperationFailed) else None
            self.failure = f"{type(error).__name__} at {at}: {error}"
        failures = done.failures if done is not None else None
        self.sides = (done.sides or {}) if done is not None else {}
        assert all(self.sides.values()), "only ports that have records"
        self.counts = failures.counts if failures is not None else ErrorCounts()
        self.dead_letters = self.sides.get(DEAD_LETTERS, [])
        self.dead = [(each.at, exact_rows([each.record])) for each in failures.dead] if failures is not None else []

    def effects(self) -> Any:
        """All but the rows."""
        return (
            self.failure,
            {port: exact_rows(held) for port, held in self.sides.items()},
            self.counts,
            self.dead,
        )


def agree(operation: Operation, schema: Schema, rows: list[Record], policy: ErrorPolicy = ErrorPolicy.FAIL) -> Outcome:
    """Run both forms and require that nothing tells them apart; return what the record form did."""
    record, batch, part = (Outcome(operation, schema, rows, policy, form) for form in (*FORMS, "slice"))
    assert record.effects() == batch.effects() == part.effects()
    assert exact_rows(record.rows) == exact_rows(batch.rows) == exact_rows(part.rows)
    return record
