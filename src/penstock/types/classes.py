"""Records as instances of a user's class: what a function is given whose parameter is annotated with one.

``def f(click: Click)`` takes a `Click`, a dataclass or a `msgspec.Struct`, instead of a record. Its members are the
columns of those names; one that is annotated as a ``datetime`` or a ``date`` is given as one, in UTC.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import msgspec

from penstock.errors import TypeMismatch
from penstock.types.datatypes import DataType, TypeKind
from penstock.types.names import attribute
from penstock.types.schema import Record, Schema

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_0 = date(1970, 1, 1).toordinal()


def wanted_class(function: Callable[..., Any]) -> type | None:
    """The class that a function wants its record to be of, where it says so."""
    hints = _hints(function)
    try:
        first = next(iter(inspect.signature(function).parameters), None)
    except (TypeError, ValueError):
        return None
    found = hints.get(first or "")
    return found if is_record_class(found) else None


def returned_class(function: Callable[..., Any], *, many: bool) -> type | None:
    """The class of a function's results, where it says so; with ``many``, of the members of what it returns."""
    found = _hints(function).get("return")
    if many:
        origin, args = typing.get_origin(found), typing.get_args(found)
        found = args[0] if args and isinstance(origin, type) and issubclass(origin, Iterable) else None
    return found if is_record_class(found) else None


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except Exception:  # annotations are the user's, and may name anything
        return {}


def is_record_class(found: object) -> bool:
    """Whether it is a class that a record can be made an instance of."""
    if not isinstance(found, type) or issubclass(found, Record):
        return False
    return dataclasses.is_dataclass(found) or issubclass(found, msgspec.Struct)


def maker(kind: type, schema: Schema) -> Callable[[Record], Any]:
    """Return the function from records of ``schema`` to instances of a class, or raise TypeMismatch."""
    scope: dict[str, Any] = {"C": kind}
    parts = []
    for name, hint, required in _members(kind):
        if name not in schema:
            if required:
                raise TypeMismatch(
                    what=f"{kind.__name__} needs '{name}', which is no column.",
                    hint=f"Columns here: {', '.join(schema.names)}.",
                )
            continue
        parts.append(f"{name}={_source(f'r.{attribute(name)}', hint, schema.field(name).type, scope)}")
    exec(compile(f"def make(r): return C({', '.join(parts)})", f"<penstock {kind.__name__}>", "exec"), scope)
    made: Callable[[Record], Any] = scope["make"]
    return made


def _members(kind: type) -> list[tuple[str, Any, bool]]:
    """Name, annotation, and whether it has to be given, of each member of a class."""
    hints = _hints(kind)
    if issubclass(kind, msgspec.Struct):
        return [(each.name, hints.get(each.name), each.required) for each in msgspec.structs.fields(kind)]
    missing = dataclasses.MISSING
    return [
        (each.name, hints.get(each.name), each.default is missing and each.default_factory is missing)
        for each in dataclasses.fields(kind)  # type: ignore[arg-type]
        if each.init
    ]


def _source(value: str, hint: Any, data_type: DataType, scope: dict[str, Any]) -> str:
    """Source of a value as an annotation asks for it."""
    asked = [each for each in (typing.get_args(hint) or (hint,)) if each is not types.NoneType]
    if data_type.kind is TypeKind.TIMESTAMP and datetime in asked:
        scope |= {"epoch": _EPOCH, "micros": timedelta}
        return f"None if {value} is None else epoch + micros(microseconds={value})"
    if data_type.kind is TypeKind.DATE and date in asked:
        scope |= {"day_0": _DAY_0, "date_of": date.fromordinal}
        return f"None if {value} is None else date_of(day_0 + {value})"
    inner = next((each for each in asked if is_record_class(each)), None)
    if data_type.kind is TypeKind.STRUCT and inner is not None:
        name = f"make_{len(scope)}"
        scope[name] = maker(inner, Schema(data_type.fields))
        return f"None if {value} is None else {name}({value})"
    return value
