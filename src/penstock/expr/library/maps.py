"""Functions of maps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from penstock.errors import BadRecord, TypeMismatch
from penstock.expr.calls import common_type
from penstock.expr.column import Column, Op
from penstock.expr.table import define, same
from penstock.expr.typed import Typed
from penstock.types import (
    BOOLEAN,
    STRING,
    DataType,
    Field,
    TypeKind,
    array_of,
    attribute,
    map_of,
    struct_of,
    struct_type,
)

add = define("maps")


def checked(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """A map of pairs; a null key or one that is there twice raises."""
    made: dict[Any, Any] = {}
    for key, value in pairs:
        if key is None:
            raise BadRecord("a key of a map is null.")
        if key in made:
            raise BadRecord(f"the key {key!r} is twice in a map.")
        made[key] = value
    return made


def _key(args: Sequence[Typed]) -> DataType:
    assert args[0].type.key is not None
    return args[0].type.key


def _value(args: Sequence[Typed]) -> DataType:
    assert args[0].type.element is not None
    return args[0].type.element


def _entry(kind: DataType) -> DataType:
    assert kind.key is not None
    assert kind.element is not None
    return struct_of((Field("key", kind.key, False), Field("value", kind.element)))


def _entries(node: Typed) -> Callable[[dict[Any, Any]], list[Any]]:
    assert node.type.element is not None
    make = struct_type(node.type.element)
    return lambda held: [make(key, value) for key, value in held.items()]


def _map_type(args: Sequence[Typed]) -> DataType:
    if len(args) % 2 or not args:
        raise TypeMismatch(what="a map is made of keys and values in turn.")
    where = Column(Op.CALL, (), "create_map")
    kinds = [arg.type for arg in args]
    return _map(common_type(where, kinds[::2]), common_type(where, kinds[1::2]))


def _map(key: DataType, value: DataType) -> DataType:
    if key.is_nested:
        raise TypeMismatch(what=f"a key of a map is a plain value, not {key.ddl}.")
    return map_of(key, value)


def _create_map(node: Typed) -> Callable[..., dict[Any, Any]]:
    from penstock.expr.conversions import converter

    def change(kind: DataType, target: DataType | None) -> Callable[[Any], Any]:
        made = converter(kind, target or kind)
        return lambda value: None if value is None else made(value)

    steps = [change(arg.type, node.type.element if i % 2 else node.type.key) for i, arg in enumerate(node.args)]

    def compute(*values: Any) -> dict[Any, Any]:
        made = [step(value) for step, value in zip(steps, values, strict=True)]
        return checked(zip(made[::2], made[1::2], strict=True))

    return compute


def _from_arrays(keys: list[Any], values: list[Any]) -> dict[Any, Any]:
    if len(keys) != len(values):
        raise BadRecord(f"{len(keys)} keys and {len(values)} values make no map.")
    return checked(zip(keys, values, strict=True))


def _from_arrays_type(args: Sequence[Typed]) -> DataType:
    return _map(_value(args[:1]), _value(args[1:]))


def _entries_map(args: Sequence[Typed]) -> DataType:
    entry = args[0].type.element
    if entry is None or entry.kind is not TypeKind.STRUCT or len(entry.fields) != 2:
        raise TypeMismatch(what=f"map_from_entries takes an array of structs of two, not {args[0].type.ddl}.")
    return _map(entry.fields[0].type, entry.fields[1].type)


def _from_entries(node: Typed) -> Callable[[list[Any]], dict[Any, Any] | None]:
    entry = node.args[0].type.element
    assert entry is not None
    key, value = (attribute(f.name) for f in entry.fields)
    return lambda entries: (
        None if None in entries else checked((getattr(each, key), getattr(each, value)) for each in entries)
    )


def _concat(*held: dict[Any, Any]) -> dict[Any, Any]:
    return checked(pair for each in held for pair in each.items())


def str_to_map(text: str, between: str = ",", inside: str = ":") -> dict[str, str | None]:
    """Read a map from text; of both separators the regular expressions are literal texts mostly."""
    from penstock.expr.library.strings import split

    made: dict[str, str | None] = {}
    for part in split(text, between):
        pair = split(part, inside, 2)
        if pair[0] in made:
            raise BadRecord(f"the key {pair[0]!r} is twice in a map.")
        made[pair[0]] = pair[1] if len(pair) > 1 else None
    return made


add("create_map map", "c:any*", _map_type, make=_create_map, strict=False, sql="map")
add("map_keys", "c:map", lambda args: array_of(_key(args)), source="list({0})")
add("map_values", "c:map", lambda args: array_of(_value(args)), source="list({0}.values())")
add("map_entries", "c:map", lambda args: array_of(_entry(args[0].type)), make=_entries)
add("map_contains_key", "c:map l:any", BOOLEAN, source="({1} in {0})", coerce="element")
add("map_from_arrays", "c:array c:array", _from_arrays_type, _from_arrays)
add("map_from_entries", "c:array", _entries_map, make=_from_entries, nullable=True)
add("map_concat", "c:map*", same(), _concat, coerce="common")
add("str_to_map", "c:string c:string? c:string?", map_of(STRING, STRING), str_to_map)
