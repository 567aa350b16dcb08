"""Records as people and JSON read them: dates and timestamps in ISO form; console and files use it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import msgspec

from penstock.errors import BadRecord, TypeMismatch
from penstock.types import DataType, Record, Schema, TypeKind, attribute

_EPOCH = datetime(1970, 1, 1)
_EPOCH_DAY = _EPOCH.toordinal()


def timestamp_text(time_us: int) -> str:
    """Write a timestamp in UTC, such as ``2026-01-31T08:00:00.000000Z``."""
    try:
        return (_EPOCH + timedelta(microseconds=time_us)).isoformat(timespec="microseconds") + "Z"
    except OverflowError:
        raise BadRecord(
            f"timestamp {time_us} us is outside of the years 1 to 9999.",
            hint="Was it read in the wrong unit?",
        ) from None


def date_text(day: int) -> str:
    """Write a date, such as ``2026-01-31``."""
    try:
        return date.fromordinal(_EPOCH_DAY + day).isoformat()
    except (OverflowError, ValueError):
        raise BadRecord(f"date of day {day} is outside of the years 1 to 9999.") from None


def plain_value(value: object, data_type: DataType) -> object:
    """Return a column's value with timestamps and dates as text, structs and maps as dicts."""
    return _converted(value, data_type, timestamp_text, date_text, _member)


def value_of(value: object, data_type: DataType) -> object:
    """Return a column's value with timestamps as ``datetime`` in UTC and dates as ``date``; what is neither stays."""
    return _converted(value, data_type, _moment, _day, lambda key: key)


def _member(key: object) -> object:
    """The key of a map as the name of a member of an object."""
    if isinstance(key, bool):
        return "true" if key else "false"
    return format(key, "f") if isinstance(key, Decimal) else key


def _moment(time_us: int) -> object:
    try:
        return _EPOCH.replace(tzinfo=UTC) + timedelta(microseconds=time_us)
    except OverflowError:
        return time_us


def _day(day: int) -> object:
    try:
        return date.fromordinal(_EPOCH_DAY + day)
    except (OverflowError, ValueError):
        return day


def _converted(
    value: object,
    data_type: DataType,
    moment: Callable[[int], object],
    day: Callable[[int], object],
    name: Callable[[object], object],
) -> object:
    if value is None:
        return None
    kind, element = data_type.kind, data_type.element
    if kind is TypeKind.TIMESTAMP and isinstance(value, int):
        return moment(value)
    if kind is TypeKind.DATE and isinstance(value, int):
        return day(value)
    if kind is TypeKind.STRUCT and isinstance(value, dict):
        return {f.name: _converted(value[f.name], f.type, moment, day, name) for f in data_type.fields}
    if kind is TypeKind.STRUCT:
        held = ((f, getattr(value, attribute(f.name))) for f in data_type.fields)
        return {f.name: _converted(each, f.type, moment, day, name) for f, each in held}
    if isinstance(value, dict) and data_type.key is not None and element is not None:
        keys = [name(_converted(key, data_type.key, moment, day, name)) for key in value]
        return dict(zip(keys, [_converted(item, element, moment, day, name) for item in value.values()], strict=True))
    if isinstance(value, list) and element is not None:
        return [_converted(item, element, moment, day, name) for item in value]
    return value


def plain_dicts(schema: Schema) -> Callable[[list[Record]], list[dict[str, object]]]:
    """Return a function that turns records into dicts of plain values."""
    names = schema.names
    timed = [field for field in schema if is_converted(field.type)]

    def dicts(rows: list[Record]) -> list[dict[str, object]]:
        plain: list[dict[str, object]] = [{name: getattr(row, attribute(name)) for name in names} for row in rows]
        for field in timed:
            for item in plain:
                item[field.name] = plain_value(item[field.name], field.type)
        return plain

    return dicts


def is_converted(data_type: DataType) -> bool:
    """Whether values of a type are not shown as records hold them."""
    if data_type.kind in (TypeKind.TIMESTAMP, TypeKind.DATE, TypeKind.STRUCT, TypeKind.MAP):
        return True
    return data_type.element is not None and is_converted(data_type.element)


def json_encoder() -> msgspec.json.Encoder:
    """What writes plain values as JSON, in all sinks alike: decimals are numbers, as in PySpark's ``to_json``."""
    return msgspec.json.Encoder(decimal_format="number")


def check_json(schema: Schema) -> None:
    """Refuse columns that JSON cannot hold, before anything starts."""
    for field in schema.fields:
        if _has_nested_keys(field.type):
            raise TypeMismatch(
                what=f"column '{field.name}' is {field.type.ddl}: the keys of a JSON object cannot be nested.",
                hint="Make it an array of structs.",
            )


def _has_nested_keys(data_type: DataType) -> bool:
    if data_type.key is not None and data_type.key.is_nested:
        return True
    inner = (data_type.element, *(each.type for each in data_type.fields))
    return any(each is not None and _has_nested_keys(each) for each in inner)
