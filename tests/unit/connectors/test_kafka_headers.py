"""Which columns can be headers, and what becomes of their values."""

from __future__ import annotations

import pytest

from penstock.connectors.kafka.headers import HEADERS, columns_of, is_headers, writer
from penstock.errors import BadRecord
from penstock.types import parse_type, struct_type, to_array, to_values


def test_headers_are_the_same_as_a_column_in_both_forms_and_as_they_are_written() -> None:
    given = [[("a", b"\xff\x00"), ("a", None), ("b", b"")], None, [("c", b"1")]]
    held = columns_of([*given, []])
    assert to_values(to_array(held, HEADERS), HEADERS) == held
    assert list(map(writer(HEADERS), held)) == [*given, None]


@pytest.mark.parametrize(
    ("ddl", "fits"),
    [
        ("string", True),
        ("array<struct<key: string, value: binary>>", True),
        ("array<struct<name: string, text: string>>", True),
        ("array<struct<key: binary, value: binary>>", False),
        ("array<struct<key: string>>", False),
        ("array<string>", False),
        ("map<string, binary>", False),
        ("binary", False),
    ],
)
def test_columns_that_can_be_headers(ddl: str, fits: bool) -> None:
    assert is_headers(parse_type(ddl)) is fits


def test_text_becomes_utf_8_and_a_header_without_a_key_is_a_bad_record() -> None:
    kind = parse_type("array<struct<`the key`: string, text: string>>")
    assert kind.element is not None
    make, write = struct_type(kind.element), writer(kind)
    assert write([make("a", "é"), make("b", None)]) == [("a", "é".encode()), ("b", None)]
    assert write(None) is None
    for bad in ([make(None, "x")], [None]):
        with pytest.raises(BadRecord, match="a header has no key"):
            write(bad)
    with pytest.raises(BadRecord, match="are no headers"):
        writer(parse_type("string"))('{"a":"b"}')
