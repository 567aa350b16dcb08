"""Casts of single values between any two types, as Spark's ANSI mode has them; both compilers call them."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

from penstock.errors import BadRecord
from penstock.expr import functions
from penstock.expr.functions import CONVERSIONS, INT64_MAX, INT64_MIN, MICROSECONDS
from penstock.expr.numbers import CONTEXT, rounded
from penstock.types import BIGINT, DOUBLE, DataType, TypeKind, attribute, float32, struct_type

Converter = Callable[[Any], Any]


def wide(kind: DataType) -> DataType:
    """Return BIGINT for all whole-number types, DOUBLE for float, any other type unchanged."""
    return BIGINT if kind.is_integer else DOUBLE if kind.kind is TypeKind.FLOAT else kind


def convertible(source: DataType, target: DataType) -> bool:
    """Whether a cast is defined."""
    if source == target:
        return True
    if source.kind is target.kind and source.is_nested:
        parts = [*zip(_parts(source), _parts(target), strict=False)]
        return len(_parts(source)) == len(_parts(target)) and all(convertible(a, b) for a, b in parts)
    if target.kind is TypeKind.STRING:
        return source.kind is not TypeKind.INTERVAL
    a, b = wide(source), wide(target)
    if TypeKind.DECIMAL in (a.kind, b.kind):
        other = b if a.kind is TypeKind.DECIMAL else a
        if other.kind in (TypeKind.DECIMAL, TypeKind.BIGINT, TypeKind.DOUBLE, TypeKind.BOOLEAN, TypeKind.TIMESTAMP):
            return True
        return a.kind is TypeKind.STRING
    return a == b or (a.kind, b.kind) in CONVERSIONS


def may_be_null(source: DataType, target: DataType) -> bool:
    """Whether a cast makes null of a value that is there: NaN as a decimal."""
    return target.kind is TypeKind.DECIMAL and source.is_fractional


def _parts(kind: DataType) -> list[DataType]:
    if kind.kind is TypeKind.STRUCT:
        return [f.type for f in kind.fields]
    return [part for part in (kind.key, kind.element) if part is not None]


def converter(source: DataType, target: DataType) -> Converter:
    """The function that casts a value that is not null."""
    if source == target:
        return lambda value: value
    if target.kind is TypeKind.STRING:
        return text_of(source)
    if source.is_nested:
        return _nested(source, target)
    if target.kind is TypeKind.DECIMAL:
        return _to_decimal(source, target)
    if source.kind is TypeKind.DECIMAL:
        return _in_range(_from_decimal(target), target)
    a, b = wide(source), wide(target)
    plain: Converter = (lambda value: value) if a == b else CONVERSIONS[a.kind, b.kind]
    if target.kind is TypeKind.FLOAT:
        return lambda value: float32(plain(value))
    return _in_range(plain, target)


def _in_range(function: Converter, target: DataType) -> Converter:
    if not target.is_integer:
        return function
    low, high = target.bounds()

    def check(value: Any) -> int:
        made: int = function(value)
        return made if low <= made <= high else functions.overflow(value, target.ddl)

    return check


def _nullable(function: Converter) -> Converter:
    return lambda value: None if value is None else function(value)


def _nested(source: DataType, target: DataType) -> Converter:
    parts = [_nullable(converter(a, b)) for a, b in zip(_parts(source), _parts(target), strict=True)]
    if source.kind is TypeKind.STRUCT:
        names, make = [attribute(f.name) for f in source.fields], struct_type(target)
        return lambda value: make(*[part(getattr(value, n)) for part, n in zip(parts, names, strict=True)])
    if source.kind is TypeKind.MAP:
        key, item = parts
        return lambda value: {key(k): item(v) for k, v in value.items()}
    (each,) = parts
    return lambda value: [each(item) for item in value]


def _to_decimal(source: DataType, target: DataType) -> Converter:
    kind = wide(source).kind
    if kind is TypeKind.STRING:
        return lambda text: rounded(_text_to_decimal(text), target)
    if kind is TypeKind.TIMESTAMP:
        return lambda us: rounded(CONTEXT.divide(Decimal(us), Decimal(MICROSECONDS)), target)
    if kind is TypeKind.DOUBLE:
        text = functions.float_to_text if source.kind is TypeKind.FLOAT else repr
        return lambda value: rounded(Decimal(text(value)), target) if math.isfinite(value) else None
    return lambda value: rounded(Decimal(value), target)


def _text_to_decimal(text: str) -> Decimal:
    try:
        value = Decimal(text.strip().replace("_", "x"))
    except InvalidOperation:
        raise BadRecord(f"{text!r} is not a number.") from None
    if not value.is_finite():
        raise BadRecord(f"{text!r} is not a number.")
    return value


def _from_decimal(target: DataType) -> Converter:
    kind = wide(target).kind
    if kind is TypeKind.BOOLEAN:
        return bool
    if kind is TypeKind.TIMESTAMP:
        return _decimal_to_timestamp
    if target.kind is TypeKind.FLOAT:
        return lambda value: float32(float(value))
    if kind is TypeKind.DOUBLE:
        return float
    return int


def _decimal_to_timestamp(value: Decimal) -> int:
    time_us = int(CONTEXT.multiply(value, Decimal(MICROSECONDS)))
    return time_us if INT64_MIN <= time_us <= INT64_MAX else functions.overflow(time_us, "timestamp")


def text_of(source: DataType) -> Converter:
    """The function that writes a value as text, as a cast to string does."""
    kind = source.kind
    if kind is TypeKind.FLOAT:
        return functions.float_to_text
    if kind is TypeKind.DECIMAL:
        return lambda value: format(value, "f")
    if kind is TypeKind.STRING:
        return lambda value: value
    if not source.is_nested:
        return CONVERSIONS[wide(source).kind, TypeKind.STRING]
    parts = [text_of(part) for part in _parts(source)]

    def shown(part: Converter, value: Any) -> str:
        return "null" if value is None else part(value)

    if kind is TypeKind.STRUCT:
        names = [attribute(f.name) for f in source.fields]
        return lambda value: (
            "{" + ", ".join(shown(p, getattr(value, n)) for p, n in zip(parts, names, strict=True)) + "}"
        )
    if kind is TypeKind.MAP:
        return lambda value: (
            "{" + ", ".join(f"{shown(parts[0], k)} -> {shown(parts[1], v)}" for k, v in value.items()) + "}"
        )
    return lambda value: "[" + ", ".join(shown(parts[0], each) for each in value) + "]"
