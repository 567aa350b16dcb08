"""The order of values: NaN after all numbers, arrays and structs by their parts, nulls first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.types import DataType, TypeKind, attribute

Key = Callable[[Any], Any]


def order_key(kind: DataType) -> Key | None:
    """The key by which Python sorts values of a type as Spark does; None where it does so by itself."""
    if kind.is_fractional:
        return lambda value: (value != value, value)
    if kind.kind is TypeKind.STRUCT:
        parts = [(attribute(f.name), null_first(f.type)) for f in kind.fields]
        return lambda value: tuple(part(getattr(value, name)) for name, part in parts)
    if kind.kind is TypeKind.ARRAY and kind.element is not None:
        part = null_first(kind.element)
        return lambda value: [part(each) for each in value]
    if kind.kind is TypeKind.STRING:
        return str.encode
    return None


def null_first(kind: DataType) -> Key:
    """A key that puts nulls before all values."""
    key = order_key(kind)
    if key is None:
        return lambda value: (True, value) if value is not None else (False,)
    return lambda value: (True, key(value)) if value is not None else (False,)
