"""The columns and values that sinks are tried with, and whether what a place shows is what was written."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from penstock.connectors.base import Sink
from penstock.connectors.texts import plain_reader, reader_of
from penstock.errors import PenstockError
from penstock.types import DataType, Record, Schema, TypeKind, attribute, fit

SCHEMA = "id bigint, text string, number double, flag boolean, `user id` string"
"""What every sink gets; one of the names is no identifier of Python."""
TYPES = (
    "small float",
    "price decimal(20,2)",
    "at timestamp",
    "day date",
    "tags array<string>",
    "sizes map<string, decimal(10,2)>",
    "inner struct<`a b`: bigint, at: timestamp, price: decimal(20,2)>",
)
"""What a sink also gets where it does not refuse it."""
_AT_US = 1_700_000_000_000_001
_EACH_US = 1_000_003


def supported(make: Callable[[], Sink]) -> tuple[Schema, dict[str, str]]:
    """The columns that a sink takes, and why it refuses the others."""
    schema, refused = Schema.parse(SCHEMA), {}
    for ddl in TYPES:
        more = Schema.parse(ddl)
        try:
            make().check(Schema(schema.fields + more.fields))
        except PenstockError as error:
            refused[f"a column '{ddl}'"] = str(error)
        else:
            schema = Schema(schema.fields + more.fields)
    return schema, refused


def row_of(schema: Schema, number: int, text: str | None) -> Record:
    """The record with that id."""
    price, at_us = Decimal(number) + Decimal("0.20"), _AT_US + number * _EACH_US
    values = {
        "id": number,
        "text": text,
        "number": number / 2,
        "flag": number % 2 == 0,
        "user id": f"user {number}",
        "small": number + 0.1,
        "price": price,
        "at": at_us,
        "day": 19_000 + number % 1_000,
        "tags": ["a", None, f'"{number}"'],
        "sizes": {"s": Decimal("0.50"), "näïve": None},
        "inner": {"a b": number, "at": at_us, "price": price},
    }
    return schema.coerce({name: values[name] for name in schema.names})


def differing(schema: Schema, record: Record, shown: Any) -> str | None:
    """Name the first column whose value a place shows as another one; columns that it does not show do not count."""
    for field in schema.fields:
        if field.name in shown:
            value, given = getattr(record, attribute(field.name)), shown[field.name]
            if not _is_same(given, value, field.type):
                return f"column '{field.name}' ({field.type.ddl}): {_short(value)} has become {_short(given)}"
    return None


def _is_same(given: Any, value: object, data_type: DataType) -> bool:
    """Whether a place shows a value: as Python has it, as JSON, or as text."""
    if value is None or value == "":
        return not given  # a place that has no null may show an empty text for it
    if isinstance(given, bytes) and data_type.kind is not TypeKind.BINARY:
        given = given.decode()
    return given == value or any(_reads(each, given, value, data_type) for each in (_as_value, _as_json, _as_text))


def _reads(read: Callable[[Any, DataType], Any], given: Any, value: object, data_type: DataType) -> bool:
    try:
        return bool(fit(read(given, data_type), data_type) == value)
    except (PenstockError, ValueError, TypeError, ArithmeticError, AttributeError):
        return False


def _as_value(given: Any, data_type: DataType) -> Any:
    return _pairs(given, data_type)


def _as_json(given: Any, data_type: DataType) -> Any:
    return plain_reader(data_type)(_exact(given))


def _as_text(given: Any, data_type: DataType) -> Any:
    return reader_of(data_type)(given)


def _pairs(given: Any, data_type: DataType) -> Any:
    """Arrow gives maps as lists of pairs."""
    return dict(given) if data_type.kind is TypeKind.MAP and isinstance(given, list) else given


def _exact(given: Any) -> Any:
    """JSON with numbers as they are written there."""
    if isinstance(given, float):
        return Decimal(repr(given))
    if isinstance(given, dict):
        return {name: _exact(item) for name, item in given.items()}
    return [_exact(item) for item in given] if isinstance(given, list) else given


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) < 100 else f"{shown[:50]}… ({len(shown)} characters)"
