"""Functions of JSON text."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

import msgspec

from penstock.errors import PenstockError, TypeMismatch
from penstock.expr.functions import MICROSECONDS, double_to_text, float_to_text, text_to_date, text_to_timestamp
from penstock.expr.numbers import rounded
from penstock.expr.table import define
from penstock.expr.typed import Typed
from penstock.types import (
    INT,
    STRING,
    DataType,
    Schema,
    TypeKind,
    array_of,
    attribute,
    float32,
    parse_type,
    struct_of,
    struct_type,
)

add = define("JSON")
_PATH = re.compile(r"\.([^.\[]+)|\[(\d+)\]|\[\*\]|\['([^']*)'\]|\.\*|\[\"([^\"]*)\"\]")
_ALL = object()
_decode = msgspec.json.Decoder(float_hook=Decimal).decode
_BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


@lru_cache(maxsize=1024)
def _path(text: str) -> tuple[Any, ...] | None:
    if not text.startswith("$"):
        return None
    steps: list[Any] = []
    at = 1
    while at < len(text):
        found = _PATH.match(text, at)
        if found is None:
            return None
        name, index, quoted, double = found.groups()
        steps.append(name or quoted or double or (int(index) if index is not None else _ALL))
        at = found.end()
    return tuple(steps)


def _write(value: Any) -> str:
    """JSON as Jackson writes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return msgspec.json.encode(value).decode()
    if isinstance(value, Decimal):
        return double_to_text(float(value))
    if isinstance(value, dict):
        return "{" + ",".join(f"{_write(key)}:{_write(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_write, value)) + "]"
    return str(value)


def get_json_object(text: str, path: str) -> str | None:
    """What a path finds in JSON, as text; null where there is nothing or the text is no JSON."""
    steps = _path(path)
    if steps is None:
        return None
    try:
        value = _decode(text)
    except _BROKEN:
        return None
    found = [value]
    many = False
    for step in steps:
        if step is _ALL:
            many = True
            found = [item for each in found if isinstance(each, list) for item in each]
        elif isinstance(step, int):
            found = [each[step] for each in found if isinstance(each, list) and step < len(each)]
        else:
            found = [item for each in found for item in _members(each, step)]
    found = [each for each in found if each is not None]
    if not found:
        return None
    if many and len(found) > 1:
        return _write(found)
    return found[0] if isinstance(found[0], str) and not many else _write(found[0])


def _members(value: Any, name: str) -> list[Any]:
    if isinstance(value, dict):
        return [value[name]] if name in value else []
    if isinstance(value, list):
        return [item for each in value for item in _members(each, name)]
    return []


class _NoFit(Exception):
    """A value of another type than the schema says: null, in Spark's permissive mode."""


def _reader(kind: DataType) -> Callable[[Any], Any]:
    """How a decoded value becomes one of a type."""
    word = kind.kind
    if word is TypeKind.STRUCT:
        make = struct_type(kind)
        parts = [(f.name, _lenient(_reader(f.type))) for f in kind.fields]

        def of_object(value: Any) -> Any:
            if not isinstance(value, dict):
                raise _NoFit
            return make(*[part(value.get(name)) for name, part in parts])

        return of_object
    if word is TypeKind.MAP:
        if kind.key != STRING or kind.element is None:
            raise TypeMismatch(what=f"the keys of JSON are strings, not those of {kind.ddl}.")
        item = _nullable(_reader(kind.element))
        return lambda value: {key: item(each) for key, each in _expect(value, dict).items()}
    if word is TypeKind.ARRAY:
        assert kind.element is not None
        each_item = _nullable(_reader(kind.element))
        return lambda value: [each_item(each) for each in _expect(value, list)]
    return _SCALARS.get(word) or _number_reader(kind)


def _expect(value: Any, wanted: type) -> Any:
    if type(value) is not wanted:
        raise _NoFit
    return value


def _nullable(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Of arrays and maps one value that does not fit makes the whole null."""
    return lambda value: None if value is None else read(value)


def _lenient(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def call(value: Any) -> Any:
        if value is None:
            return None
        try:
            return read(value)
        except (_NoFit, PenstockError, ValueError):
            return None

    return call


def _number_reader(kind: DataType) -> Callable[[Any], Any]:
    def of_number(value: Any) -> Any:
        if isinstance(value, bool):
            raise _NoFit
        if kind.is_integer:
            low, high = kind.bounds()
            if type(value) is not int or not low <= value <= high:
                raise _NoFit
            return value
        if kind.kind is TypeKind.DECIMAL:
            if not isinstance(value, int | Decimal | str):
                raise _NoFit
            return rounded(Decimal(value), kind)
        if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity", "INF", "-INF", "+INF", "+Infinity"):
            return float(value)
        if not isinstance(value, int | Decimal):
            raise _NoFit
        return float32(float(value)) if kind.kind is TypeKind.FLOAT else float(value)

    return of_number


def _read_time(value: Any) -> int:
    if type(value) is int:
        return value * MICROSECONDS
    return text_to_timestamp(_expect(value, str))


_SCALARS: dict[TypeKind, Callable[[Any], Any]] = {
    TypeKind.STRING: lambda value: value if isinstance(value, str) else _write(value),
    TypeKind.BOOLEAN: lambda value: _expect(value, bool),
    TypeKind.BINARY: lambda value: base64.b64decode(_expect(value, str)),
    TypeKind.DATE: lambda value: text_to_date(_expect(value, str)),
    TypeKind.TIMESTAMP: _read_time,
}


def _json_type(args: Sequence[Typed]) -> DataType:
    text = args[1].payload
    if not args[1].is_literal or not isinstance(text, str):
        raise TypeMismatch(what="from_json takes its schema as DDL text, not as a column.")
    try:
        return parse_type(text)
    except PenstockError:
        return struct_of(Schema.parse(text).fields)


def from_json(node: Typed) -> Callable[..., Any]:
    """Read JSON by a schema; members that do not fit are null, and so are all where the text is no JSON."""
    kind = node.type
    read = _reader(kind)
    broken = struct_type(kind)(*[None] * len(kind.fields)) if kind.kind is TypeKind.STRUCT else None

    def compute(text: str, _schema: str) -> Any:
        if not text.strip():
            return None
        try:
            value = _decode(text)
        except _BROKEN:
            return broken
        if value is None:
            return None
        try:
            return read(value)
        except (_NoFit, PenstockError, ValueError):
            return broken

    return compute


def writer(kind: DataType) -> Callable[[Any], str]:
    """How values of a type are written as JSON."""
    word = kind.kind
    if word is TypeKind.STRUCT:
        parts = [(_write(f.name), attribute(f.name), writer(f.type)) for f in kind.fields]

        def of_struct(value: Any) -> str:
            there = [(name, part, getattr(value, at)) for name, at, part in parts]
            return "{" + ",".join(f"{name}:{part(each)}" for name, part, each in there if each is not None) + "}"

        return of_struct
    if word is TypeKind.MAP and kind.element is not None and kind.key is not None:
        from penstock.expr.conversions import text_of

        item, key = writer(kind.element), text_of(kind.key)
        return lambda value: (
            "{" + ",".join(f"{_write(key(k))}:{'null' if v is None else item(v)}" for k, v in value.items()) + "}"
        )
    if word is TypeKind.ARRAY and kind.element is not None:
        each_item = writer(kind.element)
        return lambda value: "[" + ",".join("null" if each is None else each_item(each) for each in value) + "]"
    return _WRITERS.get(word, str)


def _write_double(text: Callable[[float], str]) -> Callable[[float], str]:
    return lambda value: text(value) if abs(value) < float("inf") else f'"{text(value)}"'


def _write_time(time_us: int) -> str:
    from penstock.expr.library.patterns import formatter

    return f'"{formatter(_TIME_FORMAT)(time_us)}"'


def _write_date(days: int) -> str:
    from penstock.expr.functions import date_to_text

    return f'"{date_to_text(days)}"'


_TIME_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"
_WRITERS: dict[TypeKind, Callable[[Any], str]] = {
    TypeKind.STRING: _write,
    TypeKind.BOOLEAN: _write,
    TypeKind.DOUBLE: _write_double(double_to_text),
    TypeKind.FLOAT: _write_double(float_to_text),
    TypeKind.DECIMAL: lambda value: format(value, "f"),
    TypeKind.BINARY: lambda value: f'"{base64.b64encode(value).decode()}"',
    TypeKind.TIMESTAMP: _write_time,
    TypeKind.DATE: _write_date,
}


def _to_json(node: Typed) -> Callable[[Any], str]:
    if not node.args[0].type.is_nested:
        raise TypeMismatch(what=f"to_json takes a struct, a map or an array, not {node.args[0].type.ddl}.")
    return writer(node.args[0].type)


def _array_length(text: str) -> int | None:
    try:
        value = _decode(text)
    except _BROKEN:
        return None
    return len(value) if isinstance(value, list) else None


def _object_keys(text: str) -> list[str] | None:
    try:
        value = _decode(text)
    except _BROKEN:
        return None
    return list(value) if isinstance(value, dict) else None


add("get_json_object", "c:string l:string", STRING, get_json_object, nullable=True)
add("from_json", "c:string l:string", _json_type, make=from_json, nullable=True)
add("to_json", "c:nested", STRING, make=_to_json)
add("json_array_length", "c:string", INT, _array_length, nullable=True)
add("json_object_keys", "c:string", array_of(STRING), _object_keys, nullable=True)
