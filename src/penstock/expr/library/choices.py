"""Functions that choose between values, and those that look for nulls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow.compute as pc

from penstock.errors import BadRecord, TypeMismatch
from penstock.expr.order import order_key
from penstock.expr.table import define, same
from penstock.expr.typed import Typed
from penstock.types import BOOLEAN, STRING, DataType

add = define("choices")


def _extreme(choose: Callable[..., Any]) -> Callable[[Typed], Callable[..., Any]]:
    def make(node: Typed) -> Callable[..., Any]:
        key = order_key(node.args[0].type)

        def compute(*values: Any) -> Any:
            there = [value for value in values if value is not None]
            return choose(there, key=key) if there else None

        return compute

    return make


def _null_if(value: Any, other: Any) -> Any:
    """The value, unless both are equal; a whole number and a double are compared as doubles."""
    if type(other) is float and value is not None:
        return None if float(value) == other or (value != value and other != other) else value
    return None if other is not None and value == other else value


def _several(args: Sequence[Typed]) -> DataType:
    if len(args) < 2:
        raise TypeMismatch(what="greatest and least take two columns, at least.")
    return args[0].type


def _raise_error(message: str) -> Any:
    raise BadRecord(message)


add("isnull", "c:any", BOOLEAN, source="({0} is None)", kernel=pc.is_null, strict=False)
add("isnotnull", "c:any", BOOLEAN, source="({0} is not None)", kernel=pc.is_valid, strict=False)
add(
    "nvl ifnull",
    "c:any c:any",
    same(),
    lambda a, b: b if a is None else a,
    kernel=pc.coalesce,
    strict=False,
    nullable=True,
    coerce="common",
)
add(
    "nvl2",
    "c:value c:any c:any",
    same(1),
    lambda a, b, c: c if a is None else b,
    strict=False,
    nullable=True,
    coerce="common",
)
add("nullif", "c:any c:any", same(), _null_if, strict=False, nullable=True, coerce="compare")
add("equal_null", "c:any c:any", BOOLEAN, lambda a, b: a == b or (a != a and b != b), strict=False, coerce="common")
add("zeroifnull", "c:number", same(), source="{0}", strict=False)  # the typed tree has a coalesce in its place
add("nullifzero", "c:number", same(), lambda a: a or None, nullable=True)
add("greatest", "c:orderable c:orderable*", _several, make=_extreme(max), strict=False, nullable=True, coerce="plain")
add("least", "c:orderable c:orderable*", _several, make=_extreme(min), strict=False, nullable=True, coerce="plain")
add("if", "c:boolean l:any l:any", same(1), lambda c, a, b: a if c else b, strict=False, nullable=True, coerce="common")
add("raise_error", "l:string", STRING, _raise_error, nullable=True)
