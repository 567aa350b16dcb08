"""Functions of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import BadRecord, TypeMismatch
from penstock.expr.order import order_key
from penstock.expr.table import define, same
from penstock.expr.typed import Typed
from penstock.types import BIGINT, BOOLEAN, INT, STRING, DataType, Field, TypeKind, array_of, struct_of, struct_type

add = define("arrays")
_ELEMENTS_MAX = 10_000_000


def element_type(args: Sequence[Typed]) -> DataType:
    """What the first argument, an array or map, holds."""
    assert args[0].type.element is not None
    return args[0].type.element


def _mark(kind: DataType) -> Callable[[Any], Any]:
    """What stands for a value in a set: values that Spark takes for equal have the same."""
    if kind.is_nested:
        return repr
    if kind.is_fractional:
        return lambda value: "NaN" if value != value else value
    return lambda value: value


def _set_function(combine: Callable[[Any, Any, Callable[[Any], Any]], Any]) -> Callable[[Typed], Callable[..., Any]]:
    def make(node: Typed) -> Callable[..., Any]:
        mark = _mark(element_type(node.args))
        return lambda *arrays: combine(arrays[0], arrays[1] if len(arrays) > 1 else [], mark)

    return make


def _distinct(left: list[Any], right: list[Any], mark: Callable[[Any], Any]) -> list[Any]:
    found: dict[Any, Any] = {}
    for value in (*left, *right):
        found.setdefault((value is None, None if value is None else mark(value)), value)
    return list(found.values())


def _marks(values: list[Any], mark: Callable[[Any], Any]) -> set[Any]:
    return {(value is None, None if value is None else mark(value)) for value in values}


def _intersect(left: list[Any], right: list[Any], mark: Callable[[Any], Any]) -> list[Any]:
    there = _marks(right, mark)
    return [v for v in _distinct(left, [], mark) if (v is None, None if v is None else mark(v)) in there]


def _except(left: list[Any], right: list[Any], mark: Callable[[Any], Any]) -> list[Any]:
    there = _marks(right, mark)
    return [v for v in _distinct(left, [], mark) if (v is None, None if v is None else mark(v)) not in there]


def _overlap(left: list[Any], right: list[Any], mark: Callable[[Any], Any]) -> bool | None:
    if any(not null for null, _ in _marks(left, mark) & _marks(right, mark)):
        return True
    return None if left and right and (None in left or None in right) else False


def _equal(a: Any, b: Any) -> bool:
    return bool(a == b or (a != a and b != b))


def array_contains(values: list[Any], value: Any) -> bool | None:
    """Whether a value is in an array; null where it may be one of its nulls."""
    if any(each is not None and _equal(each, value) for each in values):
        return True
    return None if None in values else False


def array_position(values: list[Any], value: Any) -> int:
    """Place of the first such value, from 1; 0 where there is none."""
    return next((i for i, each in enumerate(values, 1) if each is not None and _equal(each, value)), 0)


def _sorted(values: list[Any], key: Any, *, ascending: bool, nulls_first: bool) -> list[Any]:
    there = sorted((value for value in values if value is not None), key=key, reverse=not ascending)
    nulls = [None] * (len(values) - len(there))
    return nulls + there if nulls_first else there + nulls


def _sort_array(node: Typed) -> Callable[..., Any]:
    key = order_key(element_type(node.args))
    return lambda values, ascending=True: _sorted(values, key, ascending=ascending, nulls_first=ascending)


def _extreme(choose: Callable[..., Any]) -> Callable[[Typed], Callable[..., Any]]:
    def make(node: Typed) -> Callable[..., Any]:
        key = order_key(element_type(node.args))
        return lambda values: choose((v for v in values if v is not None), key=key, default=None)

    return make


def slice_of(values: list[Any], start: int, length: int) -> list[Any]:
    """Part of an array from a place that counts from 1, or from the end."""
    if start == 0 or length < 0:
        raise BadRecord(f"slice begins at 1 or -1 and has a length, not {start} and {length}.")
    first = start - 1 if start > 0 else len(values) + start
    return values[first : first + length] if 0 <= first < len(values) else []


def element_at(node: Typed) -> Callable[..., Any]:
    """An element by its place from 1 or from the end, or the value of a key."""
    if node.args[0].type.kind is TypeKind.MAP:
        return lambda held, key: held.get(key)

    def of_array(values: list[Any], at: int) -> Any:
        if at == 0 or abs(at) > len(values):
            raise BadRecord(f"there is no element {at} in an array of {len(values)}.")
        return values[at - 1 if at > 0 else at]

    return of_array


def _try_element_at(node: Typed) -> Callable[..., Any]:
    if node.args[0].type.kind is TypeKind.MAP:
        return lambda held, key: held.get(key)

    def of_array(values: list[Any], at: int) -> Any:
        if at == 0:
            raise BadRecord("elements count from 1, or from -1 at the end.")
        return None if abs(at) > len(values) else values[at - 1 if at > 0 else at]

    return of_array


def _element(values: list[Any], at: int) -> Any:
    if not 0 <= at < len(values):
        raise BadRecord(f"there is no element {at} in an array of {len(values)}.", hint="F.get() gives null then.")
    return values[at]


def _insert(values: list[Any], at: int, value: Any) -> list[Any] | None:
    if values is None or at is None:
        return None
    if at == 0:
        raise BadRecord("array_insert counts from 1, or from -1 at the end.")
    if abs(at) > _ELEMENTS_MAX:
        raise BadRecord(f"an array of {abs(at)} elements is too long.")
    if at > 0:
        padded = values + [None] * (at - 1 - len(values))
        return [*padded[: at - 1], value, *padded[at - 1 :]]
    place = len(values) + at + 1
    if place >= 0:
        return [*values[:place], value, *values[place:]]
    return [value, *[None] * -place, *values]


def flatten(values: list[Any]) -> list[Any] | None:
    """Arrays of an array as one; null where one of them is."""
    return None if None in values else [each for part in values for each in part]


def sequence(start: int, stop: int, step: int | None = None) -> list[int]:
    """Numbers from one to another."""
    by = step if step is not None else 1 if stop >= start else -1
    if (by == 0 and start != stop) or (stop - start) * by < 0:
        raise BadRecord(f"a sequence from {start} to {stop} cannot go by {by}.")
    count = 1 if not by else (stop - start) // by + 1
    if count > _ELEMENTS_MAX:
        raise BadRecord(f"a sequence of {count} numbers is too long.")
    return list(range(start, stop + (1 if by > 0 else -1), by)) if by else [start]


def array_join(values: list[Any], separator: str, instead: str | None = None) -> str:
    """Texts of an array with a separator between them; nulls are left out, or something stands for them."""
    return separator.join(each for each in (instead if v is None else v for v in values) if each is not None)


def _zip_type(args: Sequence[Typed]) -> DataType:
    names = [_zip_name(arg, i) for i, arg in enumerate(args)]
    if len(set(names)) < len(names):
        raise TypeMismatch(what=f"arrays_zip would have two members of one name: {', '.join(names)}.")
    return array_of(struct_of(Field(_zip_name(arg, i), element_type([arg])) for i, arg in enumerate(args)))


def _zip_name(arg: Typed, at: int) -> str:
    return str(arg.payload) if isinstance(arg.payload, str) else str(at)


def _arrays_zip(node: Typed) -> Callable[..., Any]:
    assert node.type.element is not None
    make = struct_type(node.type.element)

    def compute(*arrays: list[Any]) -> list[Any]:
        longest = max(map(len, arrays))
        return [make(*[array[i] if i < len(array) else None for array in arrays]) for i in range(longest)]

    return compute


def _array_type(args: Sequence[Typed]) -> DataType:
    return array_of(args[0].type) if args else array_of(STRING)


def _size_kernel(value: Any) -> Any:
    if pa.types.is_list(value.type):
        return pc.list_value_length(value)
    return None


def _same_elements(args: Sequence[Typed]) -> DataType:
    kind = args[0].type
    if not args[1].type == kind.element and args[1].op is not None:
        raise TypeMismatch(what=f"an array of {kind.ddl} takes no {args[1].type.ddl}.", hint="Use cast().")
    return kind


def _append(values: list[Any] | None, value: Any) -> list[Any] | None:
    return None if values is None else [*values, value]


def _prepend(values: list[Any] | None, value: Any) -> list[Any] | None:
    return None if values is None else [value, *values]


def _repeat_type(args: Sequence[Typed]) -> DataType:
    return array_of(args[0].type)


def _struct_type(args: Sequence[Typed]) -> DataType:
    if not args or len(args) % 2 or not all(name.is_literal and isinstance(name.payload, str) for name in args[::2]):
        raise TypeMismatch(what="a struct is made of names, as texts, and values in turn.")
    return struct_of(Field(str(n.payload), v.type, v.nullable) for n, v in zip(args[::2], args[1::2], strict=True))


def _make_struct(node: Typed) -> Callable[..., Any]:
    make = struct_type(node.type)
    return lambda *values: make(*values[1::2])


add("array", "c:any*", _array_type, lambda *values: list(values), strict=False, coerce="common")
add("array_contains", "c:array l:any", BOOLEAN, array_contains, nullable=True, coerce="element")
add("array_position", "c:array l:any", BIGINT, array_position, coerce="element")
add(
    "array_remove",
    "c:array l:any",
    same(),
    lambda vs, v: [x for x in vs if x is None or not _equal(x, v)],
    coerce="element",
)
add("array_append", "c:array l:any", _same_elements, _append, strict=False, nullable=True, coerce="element")
add("array_prepend", "c:array l:any", _same_elements, _prepend, strict=False, nullable=True, coerce="element")
add("array_insert", "c:array l:int l:any", same(), _insert, strict=False, nullable=True, coerce="element")
add("array_compact", "c:array", same(), lambda values: [value for value in values if value is not None])
add("array_distinct", "c:array", same(), make=_set_function(_distinct))
add("array_union", "c:array c:array", same(), make=_set_function(_distinct), coerce="common")
add("array_intersect", "c:array c:array", same(), make=_set_function(_intersect), coerce="common")
add("array_except", "c:array c:array", same(), make=_set_function(_except), coerce="common")
add("arrays_overlap", "c:array c:array", BOOLEAN, make=_set_function(_overlap), nullable=True, coerce="common")
add("arrays_zip", "c:array*", _zip_type, make=_arrays_zip)
add("array_join", "c:strings l:string l:string?", STRING, array_join)
add("array_max", "c:array", element_type, make=_extreme(max), nullable=True)
add("array_min", "c:array", element_type, make=_extreme(min), nullable=True)
add(
    "array_repeat",
    "c:any l:int",
    _repeat_type,
    lambda v, n: None if n is None else [v] * n,
    strict=False,
    nullable=True,
)
add("array_size", "c:array", INT, source="len({0})", kernel=pc.list_value_length)
add("size cardinality", "c:sized", INT, source="len({0})", kernel=_size_kernel)
add("sort_array", "c:array l:boolean?", same(), make=_sort_array)
add("slice", "c:array c:int c:int", same(), slice_of)
add("element_at", "c:sized l:any", element_type, make=element_at, nullable=True, coerce="place")
add("try_element_at", "c:sized l:any", element_type, make=_try_element_at, nullable=True, coerce="place")
add(
    "get",
    "c:array l:int",
    element_type,
    lambda values, at: values[at] if 0 <= at < len(values) else None,
    nullable=True,
)
add("flatten", "c:arrays", element_type, flatten, nullable=True)
add("sequence", "c:integer c:integer l:integer?", lambda args: array_of(args[0].type), sequence)
add("named_struct", "l:any*", _struct_type, make=_make_struct, strict=False)
add("_element", "c:array l:int", element_type, _element, nullable=True)
add("_value", "c:map l:any", element_type, lambda held, key: held.get(key), nullable=True)
