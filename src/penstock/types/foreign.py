"""Schemas that were declared elsewhere: Spark's StructType, dataclasses, msgspec structs; `Schema.parse` reads them."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import msgspec

from penstock.errors import SchemaError
from penstock.types.datatypes import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    STRING,
    TIMESTAMP,
    DataType,
    DdlReader,
    Field,
    array_of,
    decimal_of,
    map_of,
    struct_of,
)

_PLAIN: dict[Any, DataType] = {
    bool: BOOLEAN,
    int: BIGINT,
    float: DOUBLE,
    str: STRING,
    bytes: BINARY,
    datetime: TIMESTAMP,
    date: DATE,
    Decimal: decimal_of(38, 18),
}
"""Spark's own choice for each Python type."""


def read_fields(given: object) -> tuple[Field, ...]:
    """Read the columns of anything that describes a record."""
    to_ddl = getattr(given, "simpleString", None)
    if callable(to_ddl) and hasattr(given, "fields"):
        return tuple(_spark_field(field) for field in given.fields)
    if isinstance(given, type) and (dataclasses.is_dataclass(given) or issubclass(given, msgspec.Struct)):
        return _class_fields(given)
    raise SchemaError(
        ddl=repr(given),
        problem="describes no schema",
        hint='Give DDL such as "ad_id string, price double", a StructType, a dataclass or a msgspec.Struct.',
    )


def _spark_field(field: Any) -> Field:
    return Field(field.name, _spark_type(field.dataType), field.nullable)


def _spark_type(kind: Any) -> DataType:
    if hasattr(kind, "fields"):
        return struct_of(_spark_field(field) for field in kind.fields)
    if hasattr(kind, "keyType"):
        return map_of(_spark_type(kind.keyType), _spark_type(kind.valueType))
    if hasattr(kind, "elementType"):
        return array_of(_spark_type(kind.elementType))
    return DdlReader(kind.simpleString()).data_type()


def _class_fields(given: type) -> tuple[Field, ...]:
    names = [field.name for field in dataclasses.fields(given)] if dataclasses.is_dataclass(given) else None
    hints = typing.get_type_hints(given, include_extras=True)
    wanted = names if names is not None else given.__struct_fields__  # type: ignore[attr-defined]
    fields = []
    for name in wanted:
        hint, nullable = _without_none(hints[name])
        fields.append(Field(name, _python_type(hint, f"{given.__name__}.{name}"), nullable))
    return tuple(fields)


def _without_none(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        rest = [each for each in typing.get_args(hint) if each is not type(None)]
        if len(rest) == 1:
            return rest[0], True
    return hint, False


def _python_type(hint: Any, where: str) -> DataType:
    hint, _ = _without_none(hint)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        if isinstance(args[1], str):
            return DdlReader(args[1]).data_type()
        return _python_type(args[0], where)
    if hint in _PLAIN:
        return _PLAIN[hint]
    if origin in (list, Sequence, tuple) and args:
        return array_of(_python_type(args[0], where))
    if origin in (dict, Mapping) and len(args) == 2:
        return map_of(_python_type(args[0], where), _python_type(args[1], where))
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or issubclass(hint, msgspec.Struct)):
        return struct_of(_class_fields(hint))
    raise SchemaError(
        ddl=where,
        problem=f"has the type {hint!r}, which no column type stands for",
        hint='Use Annotated[int, "smallint"] to name a column type.',
    )


def members_of(value: object) -> dict[str, Any] | None:
    """An instance of a user's class as a dict; None: it is none."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if isinstance(value, msgspec.Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    return None
