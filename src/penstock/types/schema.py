"""Schemas: columns in order, the record class generated from them, and rows to columns and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec
import pyarrow as pa

from penstock.errors import BadRecord, SchemaError, TypeMismatch, UnknownColumn
from penstock.types.datatypes import DataType, DdlReader, Field, TypeKind
from penstock.types.foreign import members_of, read_fields
from penstock.types.names import attribute
from penstock.types.values import float32, to_array, to_values

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DECIMALS = Context(prec=80)


class Record(msgspec.Struct, gc=False):
    """A row: `Schema.record_type` has the generated subclass, whose attributes are the schema's columns."""

    if TYPE_CHECKING:

        def __init__(self, *values: Any, **columns: Any) -> None: ...

        def __getattr__(self, column: str) -> Any: ...

        def __getitem__(self, column: str) -> Any: ...


_PYTHON = {
    TypeKind.BOOLEAN: bool,
    TypeKind.DOUBLE: float,
    TypeKind.FLOAT: float,
    TypeKind.DECIMAL: Decimal,
    TypeKind.STRING: str,
    TypeKind.BINARY: bytes,
}
_COLUMNS_MAX = 500
_NAME_MAX = 1000


@dataclass(frozen=True, repr=False)
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
            if not isinstance(field.name, str) or not field.name or len(field.name) > _NAME_MAX:
                raise SchemaError(
                    ddl=self.ddl,
                    problem=f"{field.name!r} cannot be a column name",
                    hint=f"Use 1 to {_NAME_MAX} characters.",
                )
            if field.name in seen:
                raise SchemaError(ddl=self.ddl, problem=f"column '{field.name}' is there twice")
            seen.add(field.name)

    def __repr__(self) -> str:
        return f"Schema({self.ddl})"

    @staticmethod
    def parse(given: object) -> Schema:
        """Read a schema: Spark's DDL, a Spark ``StructType``, a dataclass or a ``msgspec.Struct``.

        Examples
        --------
        >>> Schema.parse("ad_id string, price decimal(10,2), at timestamp not null").names
        ('ad_id', 'price', 'at')
        """
        if isinstance(given, Schema):
            return given
        if not isinstance(given, str):
            return Schema(read_fields(given))
        reader = DdlReader(given)
        return Schema(reader.fields())

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
        columns = [to_array(list(map(attrgetter(attribute(f.name)), rows)), f.type) for f in self.fields]
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow)

    def to_rows(self, batch: pa.RecordBatch) -> list[Record]:
        """Turn columns into rows."""
        columns = [to_values(batch.column(i), field.type) for i, field in enumerate(self.fields)]
        return list(map(self.record_type, *columns))

    @cached_property
    def check(self) -> Callable[[Record], Record]:
        """A function that returns a record that fits this schema, or raises BadRecord naming the wrong column."""
        return _checker(self)

    def coerce(self, value: object) -> Record:
        """Build a checked record from a dict, a dataclass, a tuple or list in column order, or a record of any schema.

        Of a record of another schema the columns are taken by their names. A single-column schema also takes the bare
        value.
        """
        record_type = self.record_type
        if type(value) is record_type:
            return self.check(value)
        try:
            if isinstance(value, Record) and (len(self.fields) != 1 or value._columns == self.names):
                value = record_dict(value)
            if isinstance(value, dict):
                record = record_type(**{attribute(str(name)): item for name, item in value.items()})
            elif isinstance(value, (tuple, list)):
                if len(value) != len(self.fields):
                    raise BadRecord(f"{value!r} has {len(value)} values, not {len(self.fields)} as ({self.ddl}).")
                record = record_type(*value)
            elif not isinstance(value, Record) and (members := members_of(value)) is not None:
                record = record_type(**{attribute(name): item for name, item in members.items()})
            elif len(self.fields) == 1:
                record = record_type(value)
            else:
                raise BadRecord(f"{value!r} is not a record of ({self.ddl}).", hint="Give a dict, a tuple or a record.")
        except TypeError as error:
            raise BadRecord(f"{value!r} does not fit ({self.ddl}): {error}.") from None
        return self.check(record)


def record_dict(record: Record) -> dict[str, object]:
    """Return a record's columns as a dict."""
    return {name: getattr(record, attribute(name)) for name in record._columns}


def nested_dict(record: Record) -> dict[str, object]:
    """Return a record's columns as a dict, and structs within it as dicts too."""
    return {name: _nested(value) for name, value in record_dict(record).items()}


def _nested(value: Any) -> object:
    if isinstance(value, list):
        return [_nested(each) for each in value]
    if isinstance(value, dict):
        return {key: _nested(each) for key, each in value.items()}
    return nested_dict(value) if hasattr(value, "_columns") else value


def record_getitem(record: Record, name: str) -> object:
    """Read a column of any name: ``record["user id"]``."""
    if name not in record._columns:
        raise UnknownColumn(column=name, available=record._columns)
    return getattr(record, attribute(name))


def python_type(data_type: DataType) -> Any:
    """The type msgspec decodes and validates for a column of ``data_type`` (nulls aside)."""
    if data_type.kind is TypeKind.STRUCT:
        return struct_type(data_type)
    if data_type.element is not None:
        element: Any = python_type(data_type.element) | None
        return list[element] if data_type.key is None else dict[python_type(data_type.key), element]  # type: ignore[misc]
    if data_type.kind in _PYTHON:
        return _PYTHON[data_type.kind]
    low, high = data_type.bounds()
    return Annotated[int, msgspec.Meta(ge=low, le=high)]


def struct_type(data_type: DataType) -> type[Record]:
    """The record class that values of a struct are of."""
    return _record_type(Schema(data_type.fields))


@lru_cache(maxsize=4096)
def _record_type(schema: Schema) -> type[Record]:
    # Every column has a default so that a dict may leave out what is null; gc=False because records
    # never form cycles and the collector's passes over them would show in the latency tail.
    members = [
        (attribute(field.name), python_type(field.type) | None if field.nullable else python_type(field.type), None)
        for field in schema.fields
    ]
    made = msgspec.defstruct(
        "Record",
        members,
        bases=(Record,),
        array_like=True,
        gc=False,
        frozen=True,  # a record may be read by several branches: a function that changed it would change it for all
        namespace={
            "_asdict": record_dict,
            "_columns": schema.names,
            "__getitem__": record_getitem,
            # The class cannot be imported elsewhere: there it is made anew, once.
            "__reduce__": lambda record: (_record_of, (schema, *msgspec.structs.astuple(record))),
        },
        module="penstock.records",
    )
    return cast(type[Record], made)


def _record_of(schema: Schema, *values: Any) -> Record:
    return schema.record_type(*values)


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
        value = f"r.{attribute(field.name)}"
        null = f"{value} is not None and " if field.nullable else ""
        if field.type.kind in _EXACT:
            lines.append(f"    if {null}type({value}) is not {_EXACT[field.type.kind]}: r = explain(schema, {i}, r)")
        elif field.type.is_nested or field.type.kind in (TypeKind.DECIMAL, TypeKind.FLOAT):
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
    value = getattr(record, attribute(field.name))
    if value is None:
        raise BadRecord(f"column '{field.name}' is null, but it is declared not null.")
    try:
        converted = fit(value, field.type)
    except (msgspec.ValidationError, TypeError, ValueError, OverflowError, ArithmeticError, BadRecord) as error:
        unit = {TypeKind.TIMESTAMP: " (microseconds since the epoch)", TypeKind.DATE: " (days since the epoch)"}
        told = error.what if isinstance(error, BadRecord) else str(error)
        raise BadRecord(
            f"column '{field.name}' is declared {field.type.ddl}, but the value is {value!r}: "
            f"{told.rstrip('.')}{unit.get(field.type.kind, '')}."
        ) from None
    return msgspec.structs.replace(record, **{attribute(field.name): converted})


def fit(value: Any, data_type: DataType) -> Any:
    """Return a value as records hold it, or raise; what a person would write for it is taken too.

    A ``datetime`` is taken for a timestamp (UTC where it has no zone), a ``date`` for a date, an int for a double, a
    dict for a struct. "1" for an int is a mistake to be told about, not to be repaired.
    """
    kind = data_type.kind
    if isinstance(value, datetime) and kind is TypeKind.TIMESTAMP:
        return ((value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1)
    if isinstance(value, date) and not isinstance(value, datetime) and kind is TypeKind.DATE:
        return value.toordinal() - _EPOCH.toordinal()
    value = _plain(value)
    if data_type.is_fractional and isinstance(value, int | float) and not isinstance(value, bool):
        return float32(float(value)) if kind is TypeKind.FLOAT else float(value)
    if kind is TypeKind.DECIMAL:
        return _decimal(value, data_type)
    if kind is TypeKind.STRUCT:
        return Schema(data_type.fields).coerce(value)
    if kind is TypeKind.ARRAY and data_type.element is not None and isinstance(value, list | tuple):
        return [None if item is None else fit(item, data_type.element) for item in value]
    if data_type.key is not None and data_type.element is not None and isinstance(value, dict):
        return {
            fit(key, data_type.key): None if item is None else fit(item, data_type.element)
            for key, item in value.items()
        }
    # bytes count as built in, or else text for a binary column would be decoded as base64.
    return msgspec.convert(value, python_type(data_type), builtin_types=(bytes,))


def _decimal(value: Any, data_type: DataType) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, Decimal | int):
        raise TypeError(f"a decimal.Decimal or int is expected, not {type(value).__name__}")
    exact = Decimal(value)
    if not exact.is_finite():
        raise ValueError("it is not finite")
    fitted = exact.quantize(Decimal((0, (1,), -data_type.scale)), context=_DECIMALS)
    if fitted != exact or len(fitted.as_tuple().digits) > data_type.precision:
        raise ValueError("it does not fit")
    return fitted


def _plain(value: object) -> object:
    """Turn NumPy scalars and arrays, which users' functions return, into Python values."""
    to_python = getattr(value, "tolist", None)
    return to_python() if callable(to_python) else value
