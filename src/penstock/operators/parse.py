"""parse_json: text or bytes to typed records, strictly."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as paj

from penstock.errors import BadRecord, TypeMismatch
from penstock.operators.base import BatchForm, Operation, Operator
from penstock.operators.errors import Errors
from penstock.operators.loop import compile_loop
from penstock.types import BINARY, STRING, Schema, TypeKind, python_type

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_TIMESTAMP_US_MAX = 1 << 62
# Arrow reads these although they are not JSON, and any depth; the strict decoder does not.
_NOT_JSON = re.compile(rb"[:,\[][ \t\r]*-?(?:NaN|Inf)")
_BRACKETS_MAX = 100
_FAST_KINDS = {
    TypeKind.BOOLEAN,
    TypeKind.BIGINT,
    TypeKind.INT,
    TypeKind.SMALLINT,
    TypeKind.TINYINT,
    TypeKind.DOUBLE,
    TypeKind.STRING,
    TypeKind.TIMESTAMP,
}


class TimeUnit(Enum):
    """What a number in a timestamp column counts."""

    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"

    @property
    def us(self) -> int:
        """Microseconds in one unit."""
        return {"s": 1_000_000, "ms": 1_000, "us": 1}[self.value]


def timestamp_us(value: int | float | str, unit_us: int) -> int:
    """Read a timestamp: a number in the given unit, or ISO-8601 text (UTC when it names no zone)."""
    if isinstance(value, str):
        try:
            parsed = datetime.fromisoformat(value)
        except ValueError:
            raise BadRecord(f"{value!r} is not an ISO-8601 time.") from None
        if parsed.tzinfo is None:
            parsed = parsed.replace(tzinfo=UTC)
        return (parsed - _EPOCH) // timedelta(microseconds=1)
    if isinstance(value, float) and not math.isfinite(value):
        raise BadRecord(f"{value!r} is not a time.")
    micros = round(value * unit_us)
    if not -_TIMESTAMP_US_MAX < micros < _TIMESTAMP_US_MAX:
        raise BadRecord(f"{value!r} is out of range for a timestamp.")
    return micros


def date_days(value: str) -> int:
    """Read a date in ISO-8601 form."""
    try:
        return date.fromisoformat(value).toordinal() - _EPOCH_DAY
    except ValueError:
        raise BadRecord(f"{value!r} is not an ISO-8601 date.") from None


@dataclass(frozen=True)
class ParseJson(Operation):
    """Decode one JSON object per record; unknown members are ignored, missing ones are null, types must fit."""

    schema: Schema
    column: str = "value"
    timestamp_unit: TimeUnit = TimeUnit.MILLISECONDS
    kind = "parse_json"

    def bind(self, schema: Schema) -> Schema:
        found = schema.field(self.column).type
        if found not in (STRING, BINARY):
            raise TypeMismatch(what=f"column '{self.column}' is {found.ddl}; JSON is read from string or binary.")
        return self.schema

    def build(self, schema: Schema, errors: Errors) -> Operator:
        names: dict[str, object] = {
            "decode": _decoder(self.schema).decode,
            "T": self.schema.record_type,
            "time_us": timestamp_us,
            "days": date_days,
            "unit": self.timestamp_unit.us,
            "MAX": _TIMESTAMP_US_MAX // self.timestamp_unit.us,
        }
        values = ", ".join(_converted(field.name, field.type.kind) for field in self.schema.fields)
        body = [f"j = decode(r.{self.column})", f"append(T({values}))"]
        process = compile_loop(errors.operation, body, names, errors)
        return Operator(process, schema=schema, output=self.schema, vectorised=self._vectorised(schema))

    def _vectorised(self, schema: Schema) -> BatchForm | None:
        if any(field.type.kind not in _FAST_KINDS for field in self.schema.fields):
            return None
        at = schema.names.index(self.column)
        unit_us, output = self.timestamp_unit.us, self.schema
        read_as = pa.schema(
            (f.name, pa.int64() if f.type.kind is TypeKind.TIMESTAMP else f.type.arrow) for f in output.fields
        )
        options = paj.ParseOptions(explicit_schema=read_as, unexpected_field_behavior="ignore")

        def vectorised(batch: pa.RecordBatch) -> pa.RecordBatch:
            text = _lines(batch.column(at))
            read = paj.ReadOptions(use_threads=False, block_size=max(len(text) + 1, 1024))
            table = paj.read_json(pa.BufferReader(text), read_options=read, parse_options=options)
            if table.num_rows != batch.num_rows:
                raise BadRecord("not one JSON object per record.")
            columns = []
            for field in output.fields:
                column = table.column(field.name).combine_chunks()
                if not field.nullable and column.null_count:
                    raise BadRecord(f"column '{field.name}' is null.")
                if field.type.kind is TypeKind.STRING:
                    column.validate(full=True)
                elif field.type.kind is TypeKind.DOUBLE:
                    if not pc.all(pc.is_finite(column), min_count=0).as_py():
                        raise BadRecord("a number is out of range.")
                elif field.type.kind is TypeKind.TIMESTAMP:
                    limit = _TIMESTAMP_US_MAX // unit_us
                    if pc.any(pc.greater_equal(pc.abs_checked(column), limit), min_count=0).as_py():
                        raise BadRecord("a time is out of range.")
                    column = pc.multiply_checked(column, unit_us).cast(field.type.arrow)
                columns.append(column)
            return pa.RecordBatch.from_arrays(columns, schema=output.arrow)

        return vectorised

    def describe(self) -> str:
        return self.schema.ddl


def _decoder(schema: Schema) -> msgspec.json.Decoder[Any]:
    members: list[Any] = []
    for field in schema.fields:
        wanted: Any = python_type(field.type)
        if field.type.kind is TypeKind.TIMESTAMP:
            wanted = int | float | str
        elif field.type.kind is TypeKind.DATE:
            wanted = str
        members.append((field.name, wanted | None, None) if field.nullable else (field.name, wanted))
    members.sort(key=len)  # msgspec wants required members first; the order does not matter for JSON
    return msgspec.json.Decoder(msgspec.defstruct("Json", members, gc=False))


def _converted(name: str, kind: TypeKind) -> str:
    value = f"j.{name}"
    if kind is TypeKind.TIMESTAMP:
        # Whole numbers, the common case, are converted in line.
        fast = f"{value} * unit if type({value}) is int and -MAX < {value} < MAX"
        return f"{fast} else None if {value} is None else time_us({value}, unit)"
    if kind is TypeKind.DATE:
        return f"None if {value} is None else days({value})"
    return value


def _lines(column: pa.Array) -> bytes:
    """One text with a line per value, or BadRecord if the values are not obviously one object each."""
    if column.null_count:
        raise BadRecord("a value is null.")
    if not len(column):
        raise BadRecord("no values.")
    lines = column.cast(pa.binary()).to_pylist()
    text = b"\n".join(lines)
    if text.count(b"\n") != len(lines) - 1 or b"\\" in text:
        # A line break inside a value would shift the rows; escapes are left to the strict decoder.
        raise BadRecord("values with line breaks or escapes.")
    if _NOT_JSON.search(text):
        raise BadRecord("a number that is not JSON.")
    nested = text.count(b"[") + text.count(b"{") > len(lines) + _BRACKETS_MAX
    if nested and any(line.count(b"[") + line.count(b"{") > _BRACKETS_MAX for line in lines):
        raise BadRecord("a value may be nested deeply.")
    if not all(line[:1] == b"{" and line[-1:] == b"}" for line in lines):
        raise BadRecord("a value is not an object.")
    return text
