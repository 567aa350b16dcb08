"""Functions that take functions: transform, filter, exists, aggregate and their like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cmp_to_key
from itertools import zip_longest
from typing import Any

from penstock.expr.library.arrays import element_type
from penstock.expr.library.maps import checked
from penstock.expr.order import order_key
from penstock.expr.table import define, same
from penstock.expr.typed import Typed
from penstock.types import BOOLEAN, INT, DataType, array_of, map_of

add = define("functions of functions")
Function = Callable[..., Any]


def _of_element(args: Sequence[Typed]) -> list[DataType]:
    return [element_type(args), INT]


def _of_entry(args: Sequence[Typed]) -> list[DataType]:
    assert args[0].type.key is not None
    return [args[0].type.key, element_type(args)]


def _arity(node: Typed, at: int = 1) -> int:
    names = node.args[at].payload
    assert isinstance(names, tuple)
    return len(names)


def _transform(node: Typed) -> Function:
    if _arity(node) == 1:
        return lambda values, function: [function(value) for value in values]
    return lambda values, function: [function(value, at) for at, value in enumerate(values)]


def _filter(node: Typed) -> Function:
    if _arity(node) == 1:
        return lambda values, function: [value for value in values if function(value)]
    return lambda values, function: [value for at, value in enumerate(values) if function(value, at)]


def _exists(values: list[Any], function: Function) -> bool | None:
    unknown = False
    for value in values:
        found = function(value)
        if found:
            return True
        unknown = unknown or found is None
    return None if unknown else False


def _forall(values: list[Any], function: Function) -> bool | None:
    unknown = False
    for value in values:
        found = function(value)
        if found is False:
            return False
        unknown = unknown or found is None
    return None if unknown else True


def _aggregate(values: list[Any], start: Any, merge: Function, finish: Function | None = None) -> Any:
    for value in values:
        start = merge(start, value)
    return start if finish is None else finish(start)


def _aggregate_types(args: Sequence[Typed]) -> list[DataType]:
    if len(args) == 2:
        return [args[1].type, element_type(args)]
    return [args[2].type]


def _aggregate_type(args: Sequence[Typed]) -> DataType:
    return args[-1].type


def _zip_with(left: list[Any], right: list[Any], function: Function) -> list[Any]:
    return [function(a, b) for a, b in zip_longest(left, right)]


def _array_sort(node: Typed) -> Function:
    key = order_key(element_type(node.args))

    def compute(values: list[Any], compare: Function | None = None) -> list[Any]:
        if compare is not None:
            return sorted(values, key=cmp_to_key(compare))
        there = sorted((value for value in values if value is not None), key=key)
        return there + [None] * (len(values) - len(there))

    return compute


def _pair(args: Sequence[Typed]) -> list[DataType]:
    return [element_type(args), element_type(args)]


add("transform", "c:array f:any", lambda args: array_of(args[1].type), make=_transform, variables=_of_element)
add("filter", "c:array f:any", same(), make=_filter, variables=_of_element)
add("exists", "c:array f:any", BOOLEAN, _exists, nullable=True, variables=_of_element)
add("forall", "c:array f:any", BOOLEAN, _forall, nullable=True, variables=_of_element)
add(
    "aggregate reduce",
    "c:array c:any f:any f:any?",
    _aggregate_type,
    _aggregate,
    nullable=True,
    variables=_aggregate_types,
)
add(
    "zip_with",
    "c:array c:array f:any",
    lambda args: array_of(args[2].type),
    _zip_with,
    variables=lambda args: [element_type(args), element_type(args[1:])],
)
add("array_sort", "c:array f:any?", same(), make=_array_sort, variables=_pair)
add(
    "transform_values",
    "c:map f:any",
    lambda args: map_of(_of_entry(args)[0], args[1].type),
    lambda held, function: {key: function(key, value) for key, value in held.items()},
    variables=_of_entry,
)
add(
    "transform_keys",
    "c:map f:any",
    lambda args: map_of(args[1].type, element_type(args)),
    lambda held, function: checked((function(key, value), value) for key, value in held.items()),
    variables=_of_entry,
)
add(
    "map_filter",
    "c:map f:any",
    same(),
    lambda held, function: {key: value for key, value in held.items() if function(key, value)},
    variables=_of_entry,
)
