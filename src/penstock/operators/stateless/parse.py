"""parse_json: text or bytes to typed records, strictly."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import BadRecord, TypeMismatch
from penstock.operators.base import BatchForm, BatchResult, Operation, Operator
from penstock.operators.errors import Errors
from penstock.operators.loop import compile_loop
from penstock.types import BINARY, STRING, Field, Schema, TypeKind, python_type

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_TIMESTAMP_US_MAX = 1 << 62
_BATCH_RECORDS = 8192
"""Records decoded at once: few enough that what is decoded is still in the cache when it goes into columns."""


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
    keep: tuple[str, ...] = ()
    """Columns of the input that stay, behind those of the JSON."""
    kind = "parse_json"

    def bind(self, schema: Schema) -> Schema:
        found = schema.field(self.column).type
        if found not in (STRING, BINARY):
            raise TypeMismatch(what=f"column '{self.column}' is {found.ddl}; JSON is read from string or binary.")
        return Schema((*self.schema.fields, *map(schema.field, self.keep)))

    def build(self, schema: Schema, errors: Errors) -> Operator:
        names: dict[str, object] = {
            "decode": _decoder(self.schema).decode,
            "T": self.bind(schema).record_type,
            "time_us": timestamp_us,
            "days": date_days,
            "unit": self.timestamp_unit.us,
            "MAX": _TIMESTAMP_US_MAX // self.timestamp_unit.us,
        }
        values = [_converted(field.name, field.type.kind) for field in self.schema.fields]
        values += [f"r.{name}" for name in self.keep]
        body = [f"j = decode(r.{self.column})", f"append(T({', '.join(values)}))"]
        process = compile_loop(errors.operation, body, names, errors)
        return Operator(process, schema=schema, output=self.bind(schema), vectorised=self._vectorised(schema))

    def _vectorised(self, schema: Schema) -> BatchForm:
        at = schema.names.index(self.column)
        decode_lines, output = _decoder(self.schema).decode_lines, self.schema
        columns = [_column(field, self.timestamp_unit.us) for field in output.fields]
        whole = self.bind(schema).arrow

        def part(values: pa.Array) -> pa.RecordBatch:
            objects = decode_lines(_lines(values))
            if len(objects) != len(values):
                raise BadRecord("not one JSON object per record.")
            return pa.RecordBatch.from_arrays([column(objects) for column in columns], schema=output.arrow)

        def vectorised(batch: pa.RecordBatch) -> BatchResult:
            values = batch.column(at)
            parts = [part(values.slice(first, _BATCH_RECORDS)) for first in range(0, len(values), _BATCH_RECORDS)]
            parsed = pa.concat_batches(parts) if parts else output.to_batch([])
            if not self.keep:
                return BatchResult(parsed)
            kept = [batch.column(name) for name in self.keep]
            return BatchResult(pa.RecordBatch.from_arrays([*parsed.columns, *kept], schema=whole))

        return vectorised

    def describe(self) -> str:
        return self.schema.ddl + (f", beside {', '.join(self.keep)}" if self.keep else "")


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


def _lines(values: pa.Array) -> memoryview:
    """One text with a line per value, or BadRecord if decoding the lines could differ from decoding each value alone.

    Objects that begin and end with their line cannot run on into the next: between ``}`` and ``{`` the decoder
    takes no line break, neither inside an object nor in a string.
    """
    if values.null_count:
        raise BadRecord("a value is null.")
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[values.offset : values.offset + len(values) + 1]
    text = np.frombuffer(data, dtype=np.uint8) if data is not None else np.zeros(0, dtype=np.uint8)
    if (ends[1:] == ends[:-1]).any():
        raise BadRecord("a value is empty.")
    if not ((text[ends[:-1]] == ord("{")) & (text[ends[1:] - 1] == ord("}"))).all():
        raise BadRecord("a value is not an object.")
    if (text[ends[0] : ends[-1]] == ord("\n")).any():
        raise BadRecord("a value has several lines.")
    one_list = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values.view(pa.binary()))
    return memoryview(pc.binary_join(one_list, b"\n").buffers()[2])


def _column(field: Field, unit_us: int) -> Callable[[list[Any]], pa.Array]:
    """Return the function that turns a member of decoded objects into a column."""
    member, kind, data_type = attrgetter(field.name), field.type.kind, field.type.arrow
    limit = _TIMESTAMP_US_MAX // unit_us

    def times(objects: list[Any]) -> pa.Array:
        values = list(map(member, objects))
        if set(map(type, values)) == {int}:
            numbers = np.array(values, dtype=np.int64)
            if -limit < numbers.min() and numbers.max() < limit:
                return pa.array(numbers * unit_us).view(data_type)
        micros = [None if value is None else timestamp_us(value, unit_us) for value in values]
        return pa.array(micros, pa.int64()).view(data_type)

    def dates(objects: list[Any]) -> pa.Array:
        days = [None if value is None else date_days(value) for value in map(member, objects)]
        return pa.array(days, pa.int32()).view(data_type)

    converters = {TypeKind.TIMESTAMP: times, TypeKind.DATE: dates}
    return converters.get(kind) or (lambda objects: pa.array(list(map(member, objects)), data_type))
