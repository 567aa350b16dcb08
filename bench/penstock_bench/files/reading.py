"""From bytes to plain values, JSON or YAML, without what either lets pass silently, and on to the structs of `model`.

What msgspec finds wrong becomes a problem with its path; `load` calls both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec
import yaml
from msgspec import inspect

from penstock_bench.files.problems import Problem, WorkloadRefused, not_allowed, unknown_word

S = TypeVar("S", bound=msgspec.Struct)

FILE_BYTES_MAX = 10_000_000
YAML_ENDINGS = (".yaml", ".yml")
WANTED = "it must hold an object with sources, transformations and sinks: docs/workloads.md has an example."


def read_plain(path: Path) -> dict[str, Any]:
    """Return the object that a file holds: YAML where its name ends so, JSON otherwise."""
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        reason = {FileNotFoundError: "it does not exist.", IsADirectoryError: "it is a directory."}
        _refuse(path, reason.get(type(error), f"it cannot be read: {error.strerror}."))
    if len(content) > FILE_BYTES_MAX:
        _refuse(path, f"it is larger than {FILE_BYTES_MAX:,} bytes.")
    is_yaml = path.suffix.lower() in YAML_ENDINGS
    try:
        text = content.decode("utf-8-sig")
        if not text.strip():
            _refuse(path, f"it is empty; {WANTED}")
        if is_yaml:
            raw = yaml.load(text, _Loader)
        else:
            raw = json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except UnicodeDecodeError:
        _refuse(path, "it is not UTF-8 text.")
    except json.JSONDecodeError as error:
        other = " The name of a file in YAML ends with .yaml or .yml." if path.suffix.lower() != ".json" else ""
        # What begins with neither an object nor a list is no JSON that went wrong somewhere.
        other = other or (" If it is YAML, call it .yaml or .yml." if text.lstrip()[0] not in "{[" else "")
        _refuse(path, f"line {error.lineno}, column {error.colno}: not valid JSON: {error.msg}.{other}")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        _refuse(path, f"{where}not valid YAML: {error.problem or error.context}.")
    except yaml.YAMLError as error:
        _refuse(path, f"not valid YAML: {' '.join(str(error).split())}.")
    except RecursionError:
        _refuse(path, "it is nested too deeply.")
    except _Doubled as error:
        _refuse(path, str(error))
    if not isinstance(raw, dict):
        _refuse(path, WANTED)
    return dict(_whole(raw))


def _refuse(path: Path, what: str) -> NoReturn:
    raise WorkloadRefused(path=str(path), problems=[Problem("", what)]) from None


class _Doubled(Exception):
    """A name that stands twice in one object, or a number that is none."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Doubled(f"'{next(name for name in names if names.count(name) > 1)}' stands twice in one object.")
    return made


def _constant(word: str) -> object:
    raise _Doubled(f"{word} is not a number.")


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML's plain values; of two equal names in a map the second would win silently."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        names = [self.construct_object(key, deep=True) for key, _ in node.value]
        for i, name in enumerate(names):
            if name in names[:i]:
                raise _Doubled(f"'{name}' stands twice in one map (line {node.start_mark.line + 1}).")
        return super().construct_mapping(node, deep=deep)


def _whole(value: Any) -> Any:
    """Write 2.0 as 2, as JSON Schema has it: tools that know one kind of number only write whole ones so."""
    if isinstance(value, dict):
        return {str(key): _whole(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_whole(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


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


def _told(kind: type[msgspec.Struct], given: Any, path: str, message: str) -> Problem:
    text, _, inside = message.partition(" - at `$")
    inside = inside.removesuffix("`")
    at = (path + inside).removeprefix(".")
    hint = inspect.type_info(kind)
    for name, index in _PART.findall(inside):
        hint = _field(hint, name) if name else _first(hint, inspect.ListType).item_type
        given = given[name or int(index)]
    struct = _first(hint, inspect.StructType)
    if struct is not None and (unknown := _UNKNOWN.match(text)):
        return unknown_word(f"{at}.{unknown[1]}".removeprefix("."), "field", unknown[1], field_names(struct.cls))
    if struct is not None and (missing := _MISSING.match(text)):
        allowed = _description(_field(struct, missing[1]))
        return Problem(
            f"{at}.{missing[1]}".removeprefix("."), f"missing. Allowed: {allowed}." if allowed else "missing."
        )
    if (words := _first(hint, inspect.EnumType)) is not None:
        return unknown_word(at, at.rpartition(".")[2], given, [each.value for each in words.cls])
    return not_allowed(at, given, _description(hint) or text[0].lower() + text[1:].replace("`", ""))


def _parts(kind: inspect.Type) -> Iterator[inspect.Type]:
    """A type, or its alternatives, each with what is noted on it and without."""
    yield kind
    for each in kind.types if isinstance(kind, inspect.UnionType) else ():
        yield from _parts(each)
    if isinstance(kind, inspect.Metadata):
        yield from _parts(kind.type)


def _first(kind: inspect.Type, wanted: type[inspect.Type]) -> Any:
    return next((part for part in _parts(kind) if isinstance(part, wanted)), None)


def _field(kind: inspect.Type, encoded: str) -> Any:
    struct = _first(kind, inspect.StructType)
    return next(field.type for field in struct.fields if field.encode_name == encoded)


def _description(kind: inspect.Type) -> str:
    found = _first(kind, inspect.Metadata)
    return "" if found is None else str(found.extra_json_schema.get("description", ""))
