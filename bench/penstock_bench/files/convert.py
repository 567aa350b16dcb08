"""Turns plain values into the structs of `model`, and what msgspec finds wrong into problems with paths; for `load`."""

from __future__ import annotations

import re
from enum import Enum
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from penstock_bench.files.problems import Problem, not_allowed, unknown_word

S = TypeVar("S", bound=msgspec.Struct)

_AT = re.compile(r" - at `\$(.*)`$")
_UNKNOWN = re.compile(r"^Object contains unknown field `(.*)`$")
_MISSING = re.compile(r"^Object missing required field `(.*)`$")
_PART = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")


def convert(kind: type[S], raw: object, path: str, problems: list[Problem]) -> S | None:
    """Return ``raw`` as a struct, or add to the problems why it is none."""
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        problems.append(_told(kind, raw, path, str(error)))
        return None


def field_names(kind: type[msgspec.Struct]) -> list[str]:
    """Names of a struct's fields as they are written in a file."""
    tag = kind.__struct_config__.tag_field
    return [*([tag] if tag else []), *kind.__struct_encode_fields__]


def inner_names(kind: type[msgspec.Struct], field: str) -> list[str]:
    """Names of the fields of the struct that a field holds."""
    inner = _struct(_field(kind, field))
    return field_names(inner) if inner else []


def _told(kind: type[msgspec.Struct], raw: object, path: str, message: str) -> Problem:
    found = _AT.search(message)
    inside = found[1] if found else ""
    text = message[: found.start()] if found else message
    at = (path + inside).removeprefix(".")
    hint: Any = kind
    given: Any = raw
    for name, index in _PART.findall(inside):
        hint, given = (_field(hint, name), given[name]) if name else (_element(hint), given[int(index)])
    inner = _struct(hint)
    if inner is not None and (unknown := _UNKNOWN.match(text)):
        return unknown_word(_join(at, unknown[1]), "field", unknown[1], field_names(inner))
    if inner is not None and (missing := _MISSING.match(text)):
        allowed = _description(_field(inner, missing[1]))
        return Problem(_join(at, missing[1]), f"missing. Allowed: {allowed}." if allowed else "missing.")
    if words := _words(hint):
        return unknown_word(at, at.rpartition(".")[2], given, words)
    return not_allowed(at, given, _description(hint) or text[0].lower() + text[1:].replace("`", ""))


def _join(path: str, field: str) -> str:
    return f"{path}.{field}" if path else field


def _field(kind: Any, encoded: str) -> Any:
    """Type of a struct's field by the name it has in a file."""
    struct = _struct(kind)
    assert struct is not None
    names = dict(zip(struct.__struct_encode_fields__, struct.__struct_fields__, strict=True))
    return get_type_hints(struct, include_extras=True)[names[encoded]]


def _element(kind: Any) -> Any:
    """Type of a list's elements."""
    return next(get_args(part)[0] for part in _parts(kind) if get_origin(part) is list)


def _struct(kind: Any) -> type[msgspec.Struct] | None:
    for part in _parts(kind):
        if isinstance(part, type) and issubclass(part, msgspec.Struct):
            return part
    return None


def _words(kind: Any) -> list[str]:
    """The words that a field may hold, where it holds one of a few."""
    return [each.value for part in _parts(kind) if isinstance(part, type) and issubclass(part, Enum) for each in part]


def _parts(kind: Any) -> list[Any]:
    """What a type is made of, without its annotations and alternatives."""
    if get_origin(kind) is Annotated:
        return _parts(get_args(kind)[0])
    if get_origin(kind) in (UnionType, Union):
        return [part for each in get_args(kind) for part in _parts(each)]
    return [kind]


def _description(kind: Any) -> str:
    """What the model says about a type."""
    if get_origin(kind) is Annotated:
        _, *notes = get_args(kind)
        return next((note.description for note in notes if isinstance(note, msgspec.Meta) and note.description), "")
    if get_origin(kind) in (UnionType, Union):
        return next(filter(None, map(_description, get_args(kind))), "")
    return ""
