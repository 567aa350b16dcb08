"""Headers of Kafka records as a column: arrays of structs, or JSON text; sources read them here, sinks write them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from penstock.errors import BadRecord
from penstock.types import BINARY, STRING, DataType, Field, TypeKind, array_of, attribute, struct_of, struct_type

Headers = list[tuple[str, bytes | None]]
HEADER = struct_of((Field("key", STRING, nullable=False), Field("value", BINARY)))
HEADERS = array_of(HEADER)
"""What the source gives, as Spark's does."""
_pairs = msgspec.json.Decoder(list[tuple[str, str | None]])


def columns_of(given: Iterable[Any]) -> list[list[Any] | None]:
    """Return the headers of records as a column holds them; null where there are none."""
    make = struct_type(HEADER)
    return [[make(key, _bytes(value)) for key, value in each] if each else None for each in given]


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def is_headers(data_type: DataType) -> bool:
    """Whether a column of the type can be headers."""
    if data_type.kind is TypeKind.STRING:
        return True
    struct = data_type.element if data_type.kind is TypeKind.ARRAY else None
    kinds = [each.type.kind for each in struct.fields] if struct is not None else []
    return kinds in ([TypeKind.STRING, TypeKind.BINARY], [TypeKind.STRING, TypeKind.STRING])


def writer(data_type: DataType) -> Callable[[Any], Headers | None]:
    """Return what makes headers of the values of a column."""
    if data_type.kind is TypeKind.STRING:
        return _of_text
    assert data_type.element is not None
    key, value = (each.name for each in data_type.element.fields)
    return lambda given: None if given is None else [_pair(each, key, value) for each in given]


def _pair(header: Any, key: str, value: str) -> tuple[str, bytes | None]:
    pair = (getattr(header, attribute(key)), getattr(header, attribute(value))) if header is not None else (None, None)
    if pair[0] is None:
        raise BadRecord("a header has no key.")
    return pair[0], _bytes(pair[1])


def _of_text(text: str | None) -> Headers | None:
    if text is None:
        return None
    try:
        return [(name, None if value is None else value.encode()) for name, value in _pairs.decode(text)]
    except msgspec.DecodeError:
        raise BadRecord(f"{text!r} are no headers.", hint='They are JSON: [["name", "value"], …].') from None
