"""Schemas: columns in order, the record class generated from them, and rows to columns and back."""

from __future__ import annotations

import keyword
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec
import pyarrow as pa

from penstock.errors import BadRecord, SchemaError, TypeMismatch, UnknownColumn
from penstock.types.datatypes import DataType, DdlReader, TypeKind


class Record(msgspec.Struct, gc=False):
    """A row: `Schema.record_type` has the generated subclass, whose attributes are the schema's columns."""

    if TYPE_CHECKING:

        def __init__(self, *values: Any, **columns: Any) -> None: ...

        def __getattr__(self, column: str) -> Any: ...


_PYTHON = {
    TypeKind.BOOLEAN: bool,
    TypeKind.DOUBLE: float,
    TypeKind.STRING: str,
    TypeKind.BINARY: bytes,
}
_COLUMNS_MAX = 500


@dataclass(frozen=True, slots=True)
class Field:
    """One column."""

    name: str
    type: DataType
    nullable: bool = True

    @property
    def ddl(self) -> str:
        """The column in Spark's DDL."""
        return f"{self.name} {self.type.ddl}{'' if self.nullable else ' not null'}"


@dataclass(frozen=True)
class Schema:
    """Columns in order; the same object describes rows and Arrow batches."""

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        if not self.fields:
            raise SchemaError(ddl="", problem="has no columns")
        if len(self.fields) > _COLUMNS_MAX:
            raise SchemaError(ddl="…", problem=f"has {len(self.fields)} columns; the limit is {_COLUMNS_MAX}")
        seen: set[str] = set()
        for field in self.fields:
            if not _is_column_name(field.name):
                raise SchemaError(
                    ddl=self.ddl,
                    problem=f"'{field.name}' cannot be a column name",
                    hint="Use letters, digits and _, and no Python keyword.",
                )
            if field.name in seen:
                raise SchemaError(ddl=self.ddl, problem=f"column '{field.name}' is there twice")
            seen.add(field.name)

    @staticmethod
    def parse(ddl: str | Schema) -> Schema:
        """Read Spark's DDL, such as ``"ad_id string, event_time timestamp not null"``."""
        if isinstance(ddl, Schema):
            return ddl
        if not isinstance(ddl, str):
            raise SchemaError(ddl=repr(ddl), problem="is not a DDL text", hint='Example: "ad_id string, price double".')
        reader = DdlReader(ddl)
        fields = []
        while reader.peek() is not None:
            name = reader.take().strip("`")
            if reader.peek() == ":":
                reader.take()
            data_type = reader.data_type()
            nullable = True
            if (reader.peek() or "").lower() == "not":
                reader.take()
                if reader.take().lower() != "null":
                    raise reader.fail("'not' must be followed by 'null'")
                nullable = False
            fields.append(Field(name, data_type, nullable))
            if reader.peek() is not None:
                reader.take(",")
                if reader.peek() is None:
                    raise reader.fail("ends after a comma")
        if not fields:
            raise reader.fail("has no columns")
        return Schema(tuple(fields))

    @property
    def ddl(self) -> str:
        """The schema in Spark's DDL."""
        return ", ".join(field.ddl for field in self.fields)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Column names in order."""
        return tuple(field.name for field in self.fields)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def field(self, name: str) -> Field:
        """Return the column of that name or raise UnknownColumn."""
        if not isinstance(name, str):
            raise TypeMismatch(what=f"a column is given by its name here, not as {name}.", hint='Write "x".')
        for field in self.fields:
            if field.name == name:
                return field
        raise UnknownColumn(column=name, available=self.names)

    def __getstate__(self) -> dict[str, object]:
        # What is generated from the columns is made anew where they arrive: there, too, equal schemas share one class.
        return {"fields": self.fields}

    @cached_property
    def record_type(self) -> type[Record]:
        """The record class; equal schemas share one."""
        return _record_type(self)

    @cached_property
    def arrow(self) -> pa.Schema:
        """The Arrow schema."""
        return pa.schema([pa.field(f.name, f.type.arrow, f.nullable) for f in self.fields])

    def to_batch(self, rows: list[Record]) -> pa.RecordBatch:
        """Turn rows into columns."""
        columns = [pa.array(list(map(attrgetter(f.name), rows)), type=f.type.arrow) for f in self.fields]
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow)

    def to_rows(self, batch: pa.RecordBatch) -> list[Record]:
        """Turn columns into rows."""
        columns = [_values(batch.column(i), field.type) for i, field in enumerate(self.fields)]
        return list(map(self.record_type, *columns))

    @cached_property
    def check(self) -> Callable[[Record], Record]:
        """A function that returns a record that fits this schema, or raises BadRecord naming the wrong column."""
        return _checker(self)

    def coerce(self, value: object) -> Record:
        """Build a checked record from a dict, a tuple or list in column order, or a record of this schema.

        A single-column schema also takes the bare value.
        """
        record_type = self.record_type
        if type(value) is record_type:
            return self.check(value)
        try:
            if isinstance(value, dict):
                record = record_type(**value)
            elif isinstance(value, (tuple, list)):
                if len(value) != len(self.fields):
                    raise BadRecord(f"{value!r} has {len(value)} values, not {len(self.fields)} as ({self.ddl}).")
                record = record_type(*value)
            elif len(self.fields) == 1:
                record = record_type(value)
            else:
                raise BadRecord(f"{value!r} is not a record of ({self.ddl}).", hint="Give a dict, a tuple or a record.")
        except TypeError as error:
            raise BadRecord(f"{value!r} does not fit ({self.ddl}): {error}.") from None
        return self.check(record)


def _is_column_name(name: str) -> bool:
    # Generated source names columns as attributes, and Python reads identifiers in their normal form only.
    plain = name.isidentifier() and not keyword.iskeyword(name) and unicodedata.normalize("NFKC", name) == name
    return plain and not name.startswith("__") and name != "_asdict"


def record_dict(record: Record) -> dict[str, object]:
    """Return a record's columns as a dict."""
    return {name: getattr(record, name) for name in record.__struct_fields__}


def python_type(data_type: DataType) -> Any:
    """The type msgspec decodes and validates for a column of ``data_type`` (nulls aside)."""
    if data_type.element is not None:
        element: Any = python_type(data_type.element) | None
        return list[element]
    if data_type.kind in _PYTHON:
        return _PYTHON[data_type.kind]
    low, high = data_type.bounds()
    return Annotated[int, msgspec.Meta(ge=low, le=high)]


@lru_cache(maxsize=4096)
def _record_type(schema: Schema) -> type[Record]:
    # Every column has a default so that a dict may leave out what is null; gc=False because records
    # never form cycles and the collector's passes over them would show in the latency tail.
    members = [
        (field.name, python_type(field.type) | None if field.nullable else python_type(field.type), None)
        for field in schema.fields
    ]
    made = msgspec.defstruct(
        "Record",
        members,
        bases=(Record,),
        array_like=True,
        gc=False,
        frozen=True,  # a record may be read by several branches: a function that changed it would change it for all
        namespace={"_asdict": record_dict},
        module="penstock.records",
    )
    return cast(type[Record], made)


def _numbers(data_type: DataType) -> pa.DataType:
    """The Arrow type with times and dates as the numbers that records hold."""
    if data_type.element is not None:
        return pa.list_(_numbers(data_type.element))
    return {TypeKind.TIMESTAMP: pa.int64(), TypeKind.DATE: pa.int32()}.get(data_type.kind, data_type.arrow)


def _values(column: pa.Array, data_type: DataType) -> list[Any]:
    numbers = _numbers(data_type)
    if numbers != column.type:
        # A view costs nothing, but there is none into lists.
        column = column.cast(numbers) if data_type.element else column.view(numbers)
    values: list[Any] = column.to_pylist()
    return values


_EXACT = {
    TypeKind.BOOLEAN: "bool",
    TypeKind.DOUBLE: "float",
    TypeKind.STRING: "str",
    TypeKind.BINARY: "bytes",
}


def _checker(schema: Schema) -> Callable[[Record], Record]:
    """Compile one function with an inline test per column; the general case is left to ``_explain``."""
    namespace: dict[str, Any] = {"explain": _explain, "schema": schema}
    lines = ["def check(r):"]
    for i, field in enumerate(schema.fields):
        value = f"r.{field.name}"
        null = f"{value} is not None and " if field.nullable else ""
        if field.type.kind in _EXACT:
            lines.append(f"    if {null}type({value}) is not {_EXACT[field.type.kind]}: r = explain(schema, {i}, r)")
        elif field.type.kind is TypeKind.ARRAY:
            lines.append(f"    if {null}True: r = explain(schema, {i}, r)")
        else:
            low, high = field.type.bounds()
            lines.append(
                f"    if {null}(type({value}) is not int or not {low} <= {value} <= {high}):"
                f" r = explain(schema, {i}, r)"
            )
    lines.append("    return r")
    exec(compile("\n".join(lines), f"<check {schema.ddl}>", "exec"), namespace)
    check: Callable[[Record], Record] = namespace["check"]
    return check


def _explain(schema: Schema, index: int, record: Record) -> Record:
    """Repair what only looks different (an int for a double, a str subclass), or raise BadRecord."""
    field = schema.fields[index]
    value = getattr(record, field.name)
    if value is None:
        raise BadRecord(f"column '{field.name}' is null, but it is declared not null.")
    kind = field.type.kind
    try:
        if kind is TypeKind.DOUBLE and isinstance(value, int | float) and not isinstance(value, bool):
            return msgspec.structs.replace(record, **{field.name: float(value)})
        # strict=False is not used: "1" for an int is a mistake to be told about, not to be repaired.
        # bytes count as built in, or else text for a binary column would be decoded as base64.
        converted = msgspec.convert(_plain(value), python_type(field.type), builtin_types=(bytes,))
    except (msgspec.ValidationError, TypeError, OverflowError) as error:
        unit = {TypeKind.TIMESTAMP: " (microseconds since the epoch)", TypeKind.DATE: " (days since the epoch)"}
        raise BadRecord(
            f"column '{field.name}' is declared {field.type.ddl}, but the value is {value!r}: "
            f"{error}{unit.get(kind, '')}."
        ) from None
    return msgspec.structs.replace(record, **{field.name: converted})


def _plain(value: object) -> object:
    """Turn NumPy scalars and arrays, which users' functions return, into Python values."""
    to_python = getattr(value, "tolist", None)
    return to_python() if callable(to_python) else value
