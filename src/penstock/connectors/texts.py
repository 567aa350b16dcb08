"""Values as text, and back: what Redis keeps in fields and what CSV files have between commas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.connectors.plain import plain_value
from penstock.errors import BadRecord
from penstock.operators.stateless.parse import date_days, timestamp_us
from penstock.types import DataType, Schema, TypeKind

_BOOLEANS = {"true": True, "false": False, "1": True, "0": False, "t": True, "f": False}


def _boolean(text: str) -> bool:
    try:
        return _BOOLEANS[text.lower()]
    except KeyError:
        raise BadRecord(f"{text!r} is not true or false.") from None


def _number(data_type: DataType) -> Callable[[str], int]:
    low, high = data_type.bounds()

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise BadRecord(f"{text!r} is not a whole number.") from None
        if not low <= value <= high:
            raise BadRecord(f"{text!r} is out of range for {data_type.ddl}.")
        return value

    return read


def _double(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadRecord(f"{text!r} is not a number.") from None


def _is_number(text: str) -> bool:
    return text.lstrip("-").isdecimal()


def _timestamp(text: str) -> int:
    return timestamp_us(int(text) if _is_number(text) else text, 1)


def _date(text: str) -> int:
    return int(text) if _is_number(text) else date_days(text)


def reader_of(data_type: DataType) -> Callable[[str], Any]:
    """What reads a value of that type from its text; it raises `BadRecord`.

    Times are in ISO form, or microseconds since the epoch; dates in ISO form, or days since then; arrays are JSON.
    """
    match data_type.kind:
        case TypeKind.STRING:
            return str
        case TypeKind.BINARY:
            return str.encode
        case TypeKind.BOOLEAN:
            return _boolean
        case TypeKind.DOUBLE:
            return _double
        case TypeKind.TIMESTAMP:
            return _timestamp
        case TypeKind.DATE:
            return _date
        case TypeKind.ARRAY:
            return lambda text: plain_reader(data_type)(_json(text))
        case _:
            return _number(data_type)


def _json(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise BadRecord(f"{text!r} is not JSON: {error}.") from None


def plain_reader(data_type: DataType) -> Callable[[Any], Any]:
    """What reads a value as JSON has it: times and dates as text or numbers, the rest as it is."""
    if data_type.element is not None:
        each = plain_reader(data_type.element)
        return lambda values: [None if v is None else each(v) for v in values] if isinstance(values, list) else values
    if data_type.kind is TypeKind.TIMESTAMP:
        return lambda value: timestamp_us(value, 1)
    if data_type.kind is TypeKind.DATE:
        return lambda value: date_days(value) if isinstance(value, str) else value
    if data_type.kind is TypeKind.BINARY:
        return lambda value: value.encode() if isinstance(value, str) else value
    return lambda value: value


def text_of(value: object, data_type: DataType) -> str | bytes:
    """Write a value that is not null as `reader_of` reads it."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    plain = plain_value(value, data_type)
    return plain if isinstance(plain, str) else msgspec.json.encode(plain) if isinstance(plain, list) else repr(plain)


def json_writer(schema: Schema) -> Callable[[Any], bytes]:
    """What writes a record as a JSON object, with times and dates in ISO form."""
    encode, fields = msgspec.json.Encoder(decimal_format="number").encode, schema.fields

    def write(row: Any) -> bytes:
        return encode({each.name: plain_value(getattr(row, each.name), each.type) for each in fields})

    return write
