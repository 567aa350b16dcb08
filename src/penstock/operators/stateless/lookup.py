"""Tables and the operation that enriches a stream from one; those of servers are in `connectors`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from penstock.checks import check_interface
from penstock.errors import InvalidOption, SchemaError, TypeMismatch
from penstock.operators.base import BatchForm, BatchResult, Operation, Operator
from penstock.operators.errors import Errors
from penstock.operators.keys import check_keys, key_values
from penstock.operators.loop import compile_loop
from penstock.types import Field, Record, Schema, attribute

TABLE_ROWS_MAX = 10_000_000
Given = TypeVar("Given")
Made = TypeVar("Made")


class How(Enum):
    """What a lookup does with a record whose key is not in the table."""

    INNER = "inner"
    LEFT = "left"


@dataclass(frozen=True)
class Finder:
    """A table at work.

    Attributes
    ----------
    get : callable
        Returns the record of a key; None where there is none. A null key is never asked for in vain: it has none.
    columns : callable
        Returns rows as columns, and for each of some keys the place of its row in them; null where there is none.
    many : callable, optional
        Asks for all keys of some records at once, where asking takes time, and returns a `get` for them.
    turn : callable, optional
        To be called before each block of records, where the rows may change between two of them.
    waited_ns : callable, optional
        Takes how long it has waited for answers since this was last called: that does not grow with the records.
    """

    get: Callable[[object], Record | None]
    columns: Callable[[pa.Array], tuple[pa.RecordBatch, pa.Array]]
    many: Callable[[list[object]], Callable[[object], Record | None]] | None = None
    turn: Callable[[], None] | None = None
    waited_ns: Callable[[], int] | None = None


class LookupTable(ABC):
    """What a stream can be enriched from: rows with a unique key, here or on a server. Configuration only."""

    interface = 1
    """The version of the interface that it is written for: `penstock.connectors.INTERFACE` when it was written."""
    schema: Schema
    key: str

    @abstractmethod
    def finder(self) -> Finder:
        """Open the table on a worker."""

    @abstractmethod
    def describe(self) -> str:
        """What it is, in a few words, for `penstock explain`."""

    def joined(self, lookup: Lookup, schema: Schema) -> Operation | None:
        """What takes the place of a lookup in records of a schema, where nobody is to open the table; None: nothing."""
        del lookup, schema
        return None


class TablePlace(ABC):
    """A place whose rows can be a table, such as one of a database."""

    @abstractmethod
    def table(self, key: str, refresh: str | float | None) -> LookupTable:
        """Return the table."""


class Table(LookupTable):
    """A static table with a unique key, sent to every worker."""

    def __init__(self, rows: Iterable[object], schema: str | Schema, key: str) -> None:
        self.schema = Schema.parse(schema)
        (self.key,) = check_keys(self.schema, (key,), decimals=False)
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

    def finder(self) -> Finder:
        rows = self.batch()
        find = Places(rows.column(self.key))
        return Finder(self.index().get, lambda keys: (rows, find(keys)))

    def describe(self) -> str:
        return f"{len(self)} rows"


def table(
    rows: Iterable[object] | TablePlace,
    *,
    key: str,
    schema: str | Schema | None = None,
    refresh: str | float | None = None,
) -> LookupTable:
    """Make a table of given rows, or of a place such as a database; `penstock.table` makes those of Spark too."""
    if isinstance(rows, TablePlace):
        if schema is not None:
            raise InvalidOption(option="schema", given=schema, allowed="none: the place knows its columns")
        return rows.table(key, refresh)
    if schema is None:
        raise InvalidOption(
            option="schema", given=None, allowed="the columns of the rows, such as 'id bigint, name string'"
        )
    if refresh is not None:
        raise InvalidOption(
            option="refresh", given=refresh, allowed="for a DataFrame, a path or a place: these rows stay as they are"
        )
    return Table(rows, schema, key)


@dataclass(frozen=True)
class Lookup(Operation):
    """Add a table's columns to each record, found by key."""

    table: LookupTable = field(repr=False)
    on: str
    how: How = How.INNER
    kind = "lookup"

    def bind(self, schema: Schema) -> Schema:
        check_interface(self.table, type(self.table).__name__)
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
        found = mine + "".join(f"m.{attribute(name)}, " for name in added)
        body = [f"m = get(r.{attribute(self.on)})", f"if m is not None: append(T({found}))"]
        if self.how is How.LEFT:
            body.append(f"else: append(T({mine}{'None, ' * len(added)}))")
        finder = self.table.finder()
        names: dict[str, object] = {"T": output.record_type}
        before: list[str] = []
        if finder.many is None:
            names["get"] = finder.get
        else:
            names["many"] = finder.many
            before = [f"get = many([r.{attribute(self.on)} for r in rows])"]
        process = compile_loop(errors.operation, body, names, errors, before=before)
        vectorised, turn = self._vectorised(output, finder), finder.turn
        if turn is not None:
            process, vectorised = _after(turn, process), _after(turn, vectorised)
        operator = Operator(process, schema=schema, output=output, vectorised=vectorised)
        operator.waited_ns = finder.waited_ns
        return operator

    def _vectorised(self, output: Schema, finder: Finder) -> BatchForm:
        added = [f.name for f in self._added()]
        on, inner, find = self.on, self.how is How.INNER, finder.columns

        def vectorised(batch: pa.RecordBatch) -> BatchResult:
            rows, places = find(batch.column(on))
            if inner and places.null_count:
                hit = places.is_valid()
                batch, places = batch.filter(hit), places.filter(hit)
            columns = [*batch.columns, *(rows.column(name).take(places) for name in added)]
            return BatchResult(pa.RecordBatch.from_arrays(columns, schema=output.arrow))

        return vectorised

    def describe(self) -> str:
        return f"{self.how.value} on {self.on}, {self.table.describe()}"


def _after(turn: Callable[[], None], form: Callable[[Given], Made]) -> Callable[[Given], Made]:
    def turned(given: Given) -> Made:
        turn()
        return form(given)

    return turned


class Places:
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
