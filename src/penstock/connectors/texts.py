"""Values as text, and back: what Redis keeps in fields and what CSV files have between commas."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import msgspec

from penstock.connectors.plain import json_encoder, plain_value
from penstock.errors import BadRecord
from penstock.types import DataType, Schema, TypeKind, attribute, fit, float32, struct_type
from penstock.types.json import date_days, timestamp_us

_encode = json_encoder().encode
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


def _decimal(data_type: DataType) -> Callable[[str], Decimal]:
    def read(text: str) -> Decimal:
        try:
            value = Decimal(text)
        except ArithmeticError:
            raise BadRecord(f"{text!r} is not a number.") from None
        return _fitted(value, data_type)

    return read


def _fitted(value: Decimal | int, data_type: DataType) -> Decimal:
    try:
        held: Decimal = fit(value, data_type)
    except (TypeError, ValueError, ArithmeticError):
        raise BadRecord(f"{value} does not fit {data_type.ddl}.") from None
    return held


def reader_of(data_type: DataType) -> Callable[[str], Any]:
    """What reads a value of that type from its text; it raises `BadRecord`.

    Times are in ISO form, or microseconds since the epoch; dates in ISO form, or days since then; arrays, maps and
    structs are JSON.
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
        case TypeKind.FLOAT:
            return lambda text: float32(_double(text))
        case TypeKind.DECIMAL:
            return _decimal(data_type)
        case TypeKind.TIMESTAMP:
            return _timestamp
        case TypeKind.DATE:
            return _date
        case TypeKind.ARRAY | TypeKind.MAP | TypeKind.STRUCT:
            decode, read = plain_decoder((data_type,)), plain_reader(data_type)
            return lambda text: read(_json(decode, text))
        case _:
            return _number(data_type)


def _json(decode: Callable[[str], object], text: str) -> object:
    try:
        return decode(text)
    except msgspec.DecodeError as error:
        raise BadRecord(f"{text!r} is not JSON: {error}.") from None


def plain_decoder(types: Iterable[DataType]) -> Callable[[str | bytes], Any]:
    """What decodes JSON for `plain_reader`: decimals lose no digit on the way."""
    if any(map(_has_decimals, types)):
        return msgspec.json.Decoder(float_hook=Decimal).decode
    return msgspec.json.Decoder().decode


def _has_decimals(data_type: DataType) -> bool:
    inner = (data_type.key, data_type.element, *(each.type for each in data_type.fields))
    return data_type.kind is TypeKind.DECIMAL or any(each is not None and _has_decimals(each) for each in inner)


def plain_reader(data_type: DataType) -> Callable[[Any], Any]:
    """What reads a value as JSON has it, the way `plain_value` writes it: `plain_decoder` decodes it.

    Times and dates are text or numbers, decimals numbers or text, maps and structs objects. What is of another type
    stays as it is, for the schema to refuse.
    """
    match data_type.kind:
        case TypeKind.TIMESTAMP:
            return lambda value: timestamp_us(float(value) if isinstance(value, Decimal) else value, 1)
        case TypeKind.DATE:
            return lambda value: date_days(value) if isinstance(value, str) else value
        case TypeKind.BINARY:
            return lambda value: value.encode() if isinstance(value, str) else value
        case TypeKind.DOUBLE:
            return lambda value: float(value) if isinstance(value, Decimal) else value
        case TypeKind.FLOAT:
            return lambda value: float32(float(value)) if isinstance(value, Decimal | float) else value
        case TypeKind.DECIMAL:
            return _plain_decimal(data_type)
        case TypeKind.STRUCT:
            return _struct_reader(data_type)
    if data_type.element is None:
        return lambda value: value
    item = _item_reader(data_type.element)
    if data_type.key is None:
        return lambda values: [item(each) for each in _expected(values, list, data_type)]
    key = _base64 if data_type.key.kind is TypeKind.BINARY else reader_of(data_type.key)
    return lambda values: {key(name): item(each) for name, each in _expected(values, dict, data_type).items()}


def _item_reader(data_type: DataType) -> Callable[[Any], Any]:
    """The same for what is within another value, and may be null; binary is base64 there, as in all JSON of ours."""
    read = _base64 if data_type.kind is TypeKind.BINARY else plain_reader(data_type)
    return lambda value: None if value is None else read(value)


def _base64(value: Any) -> Any:
    try:
        return b64decode(value, validate=True) if isinstance(value, str) else value
    except ValueError:
        raise BadRecord(f"{value!r} is not base64.") from None


def _plain_decimal(data_type: DataType) -> Callable[[Any], Any]:
    from_text = _decimal(data_type)

    def read(value: Any) -> Any:
        if isinstance(value, str):
            return from_text(value)
        return _fitted(value, data_type) if isinstance(value, Decimal | int) else value

    return read


def _struct_reader(data_type: DataType) -> Callable[[Any], Any]:
    make = struct_type(data_type)
    parts = [(each.name, _item_reader(each.type)) for each in data_type.fields]

    def read(value: Any) -> Any:
        members = _expected(value, dict, data_type)
        return make(*[part(members.get(name)) for name, part in parts])

    return read


def _expected(value: Any, kind: type, data_type: DataType) -> Any:
    if not isinstance(value, kind):
        raise BadRecord(f"{value!r} is not {data_type.ddl}.")
    return value


def text_of(value: object, data_type: DataType) -> str | bytes:
    """Write a value that is not null as `reader_of` reads it."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return format(value, "f")
    plain = plain_value(value, data_type)
    if data_type.is_nested:
        return _encode(plain)
    return plain if isinstance(plain, str) else repr(plain)


def json_writer(schema: Schema) -> Callable[[Any], bytes]:
    """What writes a record as a JSON object, with times and dates in ISO form and decimals as numbers.

    Examples
    --------
    >>> from penstock.connectors import Schema, json_writer
    >>> schema = Schema.parse("`user id` bigint, at timestamp")
    >>> json_writer(schema)(schema.coerce((7, 0)))
    b'{"user id":7,"at":"1970-01-01T00:00:00.000000Z"}'
    """
    parts = [(each.name, attribute(each.name), each.type) for each in schema.fields]

    def write(row: Any) -> bytes:
        return _encode({name: plain_value(getattr(row, at), data_type) for name, at, data_type in parts})

    return write
