"""JSON of nested values to values as records hold them: what to decode, and what is converted afterwards."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from operator import attrgetter
from typing import Any

import msgspec

from penstock.errors import BadRecord
from penstock.types.datatypes import DataType, TypeKind
from penstock.types.names import attribute
from penstock.types.schema import fit, python_type, struct_type
from penstock.types.values import float32

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
TIMESTAMP_US_MAX = 1 << 62


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
    if not -TIMESTAMP_US_MAX < micros < TIMESTAMP_US_MAX:
        raise BadRecord(f"{value!r} is out of range for a timestamp.")
    return micros


def date_days(value: str) -> int:
    """Read a date in ISO-8601 form."""
    try:
        return date.fromisoformat(value).toordinal() - _EPOCH_DAY
    except ValueError:
        raise BadRecord(f"{value!r} is not an ISO-8601 date.") from None


def json_type(data_type: DataType) -> Any:
    """The type msgspec decodes a value of ``data_type`` as."""
    kind, element = data_type.kind, data_type.element
    if kind is TypeKind.TIMESTAMP:
        return int | float | str
    if kind is TypeKind.DATE:
        return str
    if kind is TypeKind.DECIMAL:
        return Decimal
    if kind is TypeKind.STRUCT:
        members: list[Any] = []
        for f in data_type.fields:
            wanted = json_type(f.type)
            members.append((attribute(f.name), wanted | None, None) if f.nullable else (attribute(f.name), wanted))
        members.sort(key=len)  # msgspec wants required members first; the order does not matter for JSON
        rename = {attribute(f.name): f.name for f in data_type.fields if attribute(f.name) != f.name}
        return msgspec.defstruct("Json", members, gc=False, rename=rename or None)
    if element is not None:
        inner: Any = json_type(element) | None
        # The keys of JSON objects are texts, whatever the keys of the map are.
        return list[inner] if data_type.key is None else dict[str, inner]
    return python_type(data_type)


def json_reader(data_type: DataType, unit_us: int) -> Callable[[Any], Any] | None:
    """The function that turns what `json_type` decodes into a value of a record; None where it is one."""
    kind, element = data_type.kind, data_type.element
    if kind is TypeKind.TIMESTAMP:
        return lambda value: timestamp_us(value, unit_us)
    if kind is TypeKind.DATE:
        return date_days
    if kind is TypeKind.FLOAT:
        return float32
    if kind is TypeKind.DECIMAL:
        return lambda value: _decimal(value, data_type)
    if kind is TypeKind.STRUCT:
        make = struct_type(data_type)
        parts = [(attrgetter(attribute(f.name)), _nullable(json_reader(f.type, unit_us))) for f in data_type.fields]
        return lambda value: make(*[read(member(value)) for member, read in parts])
    if element is None:
        return None
    read_item = json_reader(element, unit_us)
    item = _nullable(read_item)
    if data_type.key is None:
        return None if read_item is None else lambda value: [item(each) for each in value]
    key = _key_reader(data_type.key, unit_us)
    return lambda value: {key(name): item(each) for name, each in value.items()}


def _key_reader(key: DataType, unit_us: int) -> Callable[[str], Any]:
    if key.kind is TypeKind.STRING:
        return lambda name: name
    read = json_reader(key, unit_us)
    wanted = json_type(key)

    def convert(name: str) -> Any:
        value = msgspec.convert(name, wanted, strict=False)
        return value if read is None else read(value)

    return convert


def _nullable(read: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    if read is None:
        return lambda value: value
    return lambda value: None if value is None else read(value)


def _decimal(value: Decimal, data_type: DataType) -> Decimal:
    try:
        held: Decimal = fit(value, data_type)
    except (ValueError, TypeError, ArithmeticError):
        raise BadRecord(f"{value} does not fit {data_type.ddl}.") from None
    return held
