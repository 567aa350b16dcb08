"""Static tables and the operation that enriches a stream from one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidOption, SchemaError, TypeMismatch
from penstock.operators.base import BatchForm, BatchResult, Operation, Operator
from penstock.operators.errors import Errors
from penstock.operators.keys import check_keys, key_values
from penstock.operators.loop import compile_loop
from penstock.types import Field, Record, Schema, attribute

TABLE_ROWS_MAX = 10_000_000


class How(Enum):
    """What a lookup does with a record whose key is not in the table."""

    INNER = "inner"
    LEFT = "left"


class Table:
    """A static table with a unique key, sent to every worker."""

    def __init__(self, rows: Iterable[object], schema: str | Schema, key: str) -> None:
        self.schema = Schema.parse(schema)
        (self.key,) = check_keys(self.schema, (key,))
        self._rows = [tuple(self._coerce(row)) for row in rows]
        if len(self._rows) > TABLE_ROWS_MAX:
            raise InvalidOption(
                option="rows", given=len(self._rows), allowed=f"at most {TABLE_ROWS_MAX} rows in a table"
            )
        at = self.schema.names.index(key)
        keys = [row[at] for row in self._rows]
        if len(set(keys)) != len(keys):
            twice = next(key for key, times in Counter(keys).items() if times > 1)
            raise InvalidOption(
                option="key", given=key, allowed=f"a column without duplicates ({twice!r} is there twice)"
            )

    def _coerce(self, row: object) -> list[object]:
        record = self.schema.coerce(row)
        return [getattr(record, attribute(name)) for name in self.schema.names]

    def __len__(self) -> int:
        return len(self._rows)

    def index(self) -> dict[object, Record]:
        """Return the rows as records by key; a null key matches nothing."""
        record_type = self.schema.record_type
        at = self.schema.names.index(self.key)
        return {row[at]: record_type(*row) for row in self._rows if row[at] is not None}

    def batch(self) -> pa.RecordBatch:
        """Return the rows as columns."""
        return self.schema.to_batch([self.schema.record_type(*row) for row in self._rows])


def table(rows: Iterable[object], *, schema: str | Schema, key: str) -> Table:
    """Make a static table for :meth:`Stream.lookup`.

    Parameters
    ----------
    rows : iterable of dict or tuple
        The table's rows.
    schema : str
        Columns in Spark's DDL.
    key : str
        The column that is looked up; its values are unique.
    """
    return Table(rows, schema, key)


@dataclass(frozen=True)
class Lookup(Operation):
    """Add a table's columns to each record, found by key."""

    table: Table = field(repr=False)
    on: str
    how: How = How.INNER
    kind = "lookup"

    def bind(self, schema: Schema) -> Schema:
        mine, theirs = schema.field(self.on).type, self.table.schema.field(self.table.key).type
        if mine != theirs:
            raise TypeMismatch(
                what=f"'{self.on}' is {mine.ddl}, but the table's key '{self.table.key}' is {theirs.ddl}."
            )
        return self._output(schema)

    def _added(self) -> list[Field]:
        added = [f for f in self.table.schema.fields if f.name != self.table.key]
        return [Field(f.name, f.type, True) for f in added] if self.how is How.LEFT else added

    def _output(self, schema: Schema) -> Schema:
        clash = [f.name for f in self._added() if f.name in schema]
        if clash:
            raise SchemaError(
                ddl=schema.ddl,
                problem=f"the table has a column '{clash[0]}' as well",
                hint="Rename or leave out one of them.",
            )
        return Schema((*schema.fields, *self._added()))

    def column_of(self, column: str, schema: Schema) -> str | None:
        return column if column in schema else None

    def build(self, schema: Schema, errors: Errors) -> Operator:
        output = self._output(schema)
        added = [f.name for f in self._added()]
        mine = "".join(f"r.{attribute(name)}, " for name in schema.names)
        found = mine + "".join(f"m.{name}, " for name in added)
        body = [f"m = get(r.{attribute(self.on)})", f"if m is not None: append(T({found}))"]
        if self.how is How.LEFT:
            body.append(f"else: append(T({mine}{'None, ' * len(added)}))")
        names = {"get": self.table.index().get, "T": output.record_type}
        process = compile_loop(errors.operation, body, names, errors)
        return Operator(process, schema=schema, output=output, vectorised=self._vectorised(output))

    def _vectorised(self, output: Schema) -> BatchForm:
        rows = self.table.batch()
        find = _Places(rows.column(self.table.key))
        added = [rows.column(f.name) for f in self._added()]
        on, inner = self.on, self.how is How.INNER

        def vectorised(batch: pa.RecordBatch) -> BatchResult:
            places = find(batch.column(on))
            if inner and places.null_count:
                hit = places.is_valid()
                batch, places = batch.filter(hit), places.filter(hit)
            columns = [*batch.columns, *(c.take(places) for c in added)]
            return BatchResult(pa.RecordBatch.from_arrays(columns, schema=output.arrow))

        return vectorised

    def describe(self) -> str:
        return f"{self.how.value} on {self.on}, {len(self.table)} rows"


class _Places:
    """Finds the rows of a table that columns of keys refer to."""

    def __init__(self, keys: pa.Array) -> None:
        self._keys = keys

    def __call__(self, column: pa.Array) -> pa.Array:
        """Return the place of each key in the table, null where it is not there; a null key finds nothing."""
        if len(self._keys) <= len(column):
            return pc.index_in(column, self._keys, skip_nulls=True)
        # Arrow would index the whole table anew for every batch: few keys are looked up one by one instead.
        coded = column.dictionary_encode()
        found = [self._index.get(key) for key in key_values(coded.dictionary)]
        return pa.array(found, pa.int32()).take(coded.indices)

    @cached_property
    def _index(self) -> dict[object, int]:
        return {key: place for place, key in enumerate(key_values(self._keys)) if key is not None}
