"""Schemas found out from a sample of JSON lines: ``ps.infer("events.json")``."""

from __future__ import annotations

import gzip
from datetime import date, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from penstock.errors import BadRecord, InvalidOption, SchemaError
from penstock.types.datatypes import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    STRING,
    TIMESTAMP,
    DataType,
    Field,
    TypeKind,
    array_of,
    struct_of,
)
from penstock.types.schema import Schema

_LINES_MAX = 100_000


def infer(path: str | Path, *, lines: int = 1000) -> Schema:
    """Find out the schema of JSON lines from the first ones of a file, or of the files of a directory.

    Numbers are bigint or double, texts in ISO-8601 form timestamps or dates, objects structs; members that differ in
    type from line to line are strings. Show it (``print(schema.ddl)``) and put it into the program: the next sample may
    lack a member.

    Parameters
    ----------
    path : str
        A file or directory; files that end in ``.gz`` are read as such.
    lines : int
        How many lines to look at, at most.

    Examples
    --------
    >>> events.parse_json(ps.infer("events.json"))  # doctest: +SKIP
    """
    if not isinstance(lines, int) or not 1 <= lines <= _LINES_MAX:
        raise InvalidOption(option="lines", given=lines, allowed=f"1 to {_LINES_MAX}")
    place = Path(path)
    files = sorted(each for each in place.iterdir() if each.is_file()) if place.is_dir() else [place]
    if not files or not files[0].exists():
        raise InvalidOption(option="path", given=str(path), allowed="a file, or a directory with files")
    found: DataType | None = None
    left = lines
    for file in files:
        with gzip.open(file, "rb") if file.suffix == ".gz" else file.open("rb") as stream:
            for line in islice(stream, left):
                left -= 1
                if line.strip():
                    found = _met(found, _kind(_decoded(line, file)))
        if left <= 0:
            break
    if found is None or found.kind is not TypeKind.STRUCT or not found.fields:
        raise SchemaError(ddl=str(path), problem="has no JSON objects to find columns in")
    return Schema(_settled(found).fields)


def _decoded(line: bytes, file: Path) -> Any:
    try:
        return msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise BadRecord(f"{file.name} has a line that is no JSON: {error}.") from None


def _kind(value: Any) -> DataType | None:
    """The type of one value; None where it is null."""
    if value is None:
        return None
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, int):
        return BIGINT
    if isinstance(value, float):
        return DOUBLE
    if isinstance(value, dict):
        return struct_of(Field(name, _kind(item) or _UNKNOWN) for name, item in value.items())
    if isinstance(value, list):
        element: DataType | None = None
        for item in value:
            element = _met(element, _kind(item))
        return array_of(element or _UNKNOWN)
    return _text_kind(value)


_UNKNOWN = DataType(TypeKind.INTERVAL)
"""Stands for the type of nulls; no JSON value has it."""


def _text_kind(text: str) -> DataType:
    try:
        if len(text) == 10:
            date.fromisoformat(text)
            return DATE
        if len(text) >= 16 and text[10] in "T ":
            datetime.fromisoformat(text)
            return TIMESTAMP
    except ValueError:
        pass
    return STRING


def _met(left: DataType | None, right: DataType | None) -> DataType | None:
    if left is None or right is None or left == right:
        return left or right
    if _UNKNOWN in (left, right):
        return right if left == _UNKNOWN else left
    if {left, right} == {BIGINT, DOUBLE}:
        return DOUBLE
    if {left, right} == {DATE, TIMESTAMP}:
        return TIMESTAMP
    if left.kind is right.kind is TypeKind.ARRAY:
        return array_of(_met(left.element, right.element) or _UNKNOWN)
    if left.kind is right.kind is TypeKind.STRUCT:
        fields = {field.name: field.type for field in left.fields}
        for field in right.fields:
            fields[field.name] = _met(fields.get(field.name), field.type) or _UNKNOWN
        return struct_of(Field(name, kind) for name, kind in fields.items())
    return STRING


def _settled(kind: DataType) -> DataType:
    """Members that were always null are strings, and an object without members is one too."""
    if kind == _UNKNOWN or (kind.kind is TypeKind.STRUCT and not kind.fields):
        return STRING
    if kind.kind is TypeKind.STRUCT:
        return struct_of(Field(field.name, _settled(field.type)) for field in kind.fields)
    return array_of(_settled(kind.element)) if kind.element is not None else kind
