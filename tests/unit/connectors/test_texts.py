"""Values as JSON and as text: what any sink writes is read back, and what cannot be written is refused at the start."""

from __future__ import annotations

import io
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock as ps
from penstock.connectors.file_formats import FileFormat, formatted, json_lines_stager
from penstock.connectors.kafka.encoding import RECORD_BYTES_MAX, Layout
from penstock.connectors.plain import check_json
from penstock.connectors.texts import json_writer, plain_decoder, plain_reader, reader_of, text_of
from penstock.errors import BadRecord, TypeMismatch
from penstock.expr.library.json_text import writer as to_json
from penstock.operators.errors import Errors
from penstock.operators.stateless.parse import ParseJson
from penstock.spark.datasource import read_parts
from penstock.types import Record, Schema, attribute, float32, parse_type

SCHEMA = Schema.parse(
    "id bigint, `user id` string, flag boolean, small float, number double, price decimal(20,2), tiny decimal(38,20),"
    " at timestamp, day date, tags array<string>, parts array<binary>, sizes map<string, decimal(20,2)>,"
    " flags map<boolean, int>, prices map<decimal(5,2), timestamp>, days map<date, float>, `a map` map<int, double>,"
    " inner struct<`a b`: bigint, price: decimal(20,2), at: timestamp, deep: array<struct<day: date, raw: binary>>>"
)
AT_US = 1_700_000_000_000_001
FULL = SCHEMA.coerce(
    {
        "id": -7,
        "user id": 'näïve 🦆\n"',
        "flag": True,
        "small": 0.1,
        "number": 0.1,
        "price": Decimal("12345678901234567.20"),
        "tiny": Decimal("1E-20"),
        "at": AT_US,
        "day": 19_000,
        "tags": ["a", None, ""],
        "parts": [b"\x00\xff", None],
        "sizes": {"s": Decimal("0.50"), "": None},
        "flags": {True: 1, False: None},
        "prices": {Decimal("-1.20"): AT_US},
        "days": {19_000: 0.1},
        "a map": {-3: 1.5},
        "inner": {"a b": 1, "price": Decimal("0.30"), "at": AT_US, "deep": [{"day": 1, "raw": b"\xff"}, None]},
    }
)
EMPTY = SCHEMA.coerce({})
ROWS = [FULL, EMPTY]


def parsed(lines: list[bytes], schema: Schema = SCHEMA) -> list[Record]:
    source = Schema.parse("value binary")
    operator = ParseJson(schema).build(source, Errors("parse"))
    return operator.process([source.record_type(line) for line in lines]).rows


def lines_of_every_sink() -> dict[str, list[bytes]]:
    file = io.BytesIO()
    formatted(FileFormat.JSONL, file, SCHEMA).write(ROWS)
    staged = json_lines_stager(SCHEMA)(SCHEMA.to_batch(ROWS))
    kafka = Layout().encoder(SCHEMA, RECORD_BYTES_MAX)(ROWS)
    return {
        "webhook, pages, Redis": list(map(json_writer(SCHEMA), ROWS)),
        "files": file.getvalue().splitlines(),
        "files, staged": staged.splitlines(),
        "Kafka": [value for _, value, _, _ in kafka if value is not None],
    }


def test_all_sinks_write_the_same_json_and_parse_json_reads_it_back() -> None:
    written = lines_of_every_sink()
    first = written["files"]
    for sink, lines in written.items():
        assert lines == first, sink
        assert parsed(lines) == ROWS, sink
    assert b'"price":12345678901234567.20' in first[0], "a decimal is a number, with all its digits"


def test_decimals_are_what_to_json_makes_of_them() -> None:
    schema = Schema.parse("one decimal(20,2), many array<decimal(5,2)>, named map<string, decimal(5,2)>")
    row = schema.coerce({"one": Decimal("1.20"), "many": [Decimal(-1)], "named": {"a": Decimal("0.05")}})
    text = json_writer(schema)(row).decode()
    assert text == to_json(parse_type(f"struct<{schema.ddl}>"))(row)
    assert text == '{"one":1.20,"many":[-1.00],"named":{"a":0.05}}'


def test_what_the_files_sink_has_written_is_read_by_spark_also_of_earlier_versions(tmp_path: Path) -> None:
    path = tmp_path / "part-0.jsonl"
    now = lines_of_every_sink()["files"]
    path.write_bytes(b"\n".join(now))
    assert [row for batch in read_parts([str(path)], SCHEMA) for row in SCHEMA.to_rows(batch)] == ROWS
    schema = Schema.parse("price decimal(5,2), prices array<decimal(5,2)>")
    path.write_bytes(b'{"price":"1.20","prices":["1.30"]}\n')
    (row,) = schema.to_rows(next(read_parts([str(path)], schema)))
    assert (row.price, row.prices) == (Decimal("1.20"), [Decimal("1.30")])


@pytest.mark.parametrize("field", SCHEMA.fields, ids=lambda field: field.type.ddl)
def test_a_value_is_read_back_from_its_text_and_from_json(field: Any) -> None:
    value, schema = getattr(FULL, attribute(field.name)), Schema((field,))
    text = text_of(value, field.type)
    shown = text if isinstance(text, str) else text.decode()
    assert "Decimal" not in shown
    assert reader_of(field.type)(shown) == value
    plain = plain_decoder([field.type])(json_writer(schema)(schema.record_type(value)))[field.name]
    assert plain_reader(field.type)(plain) == value


def test_decimals_and_floats_are_text_as_people_write_them() -> None:
    assert text_of(Decimal("1.20"), parse_type("decimal(5,2)")) == "1.20"
    assert text_of(Decimal("1E-20"), parse_type("decimal(38,20)")) == "0.00000000000000000001"
    assert reader_of(parse_type("decimal(5,2)"))("1.2") == Decimal("1.20")
    assert reader_of(parse_type("decimal(5,2)"))("1e2") == 100
    assert reader_of(parse_type("float"))("0.1") == float32(0.1) != 0.1
    assert reader_of(parse_type("float"))("1e300") == float("inf")


@pytest.mark.parametrize(
    ("ddl", "text", "words"),
    [
        ("float", "x", "'x' is not a number"),
        ("decimal(5,2)", "x", "'x' is not a number"),
        ("decimal(5,2)", "", "'' is not a number"),
        ("decimal(5,2)", "1.234", "1.234 does not fit decimal"),
        ("decimal(5,2)", "1000", "1000 does not fit"),
        ("decimal(5,2)", "NaN", "NaN does not fit"),
        ("decimal(5,2)", "Infinity", "does not fit"),
        ("array<int>", "{}", "is not array<int>"),
        ("array<decimal(5,2)>", "[1.234]", "does not fit"),
        ("array<decimal(5,2)>", '["x"]', "not a number"),
        ("array<binary>", '["?"]', "not base64"),
        ("map<string, int>", "[1]", "is not map<string, int>"),
        ("map<int, int>", '{"x": 1}', "'x' is not a whole number"),
        ("map<tinyint, int>", '{"300": 1}', "out of range"),
        ("struct<a: int>", "[1]", "is not struct<a: int>"),
        ("struct<a: int>", "{", "is not JSON"),
        ("struct<a: timestamp>", '{"a": "soon"}', "ISO-8601"),
    ],
)
def test_a_text_that_does_not_fit_is_a_bad_record(ddl: str, text: str, words: str) -> None:
    with pytest.raises(BadRecord, match=words):
        reader_of(parse_type(ddl))(text)


@pytest.mark.parametrize(
    "ddl",
    ["map<struct<a: int>, int>", "array<map<array<int>, int>>", "struct<m: map<string, map<struct<a: int>, int>>>"],
)
def test_keys_that_are_no_text_are_refused_before_anything_starts(tmp_path: Path, ddl: str) -> None:
    schema = Schema.parse(f"k string, m {ddl}")
    sinks = [
        ps.files(tmp_path / "out"),
        ps.files("memory://texts/out"),
        ps.kafka("localhost:1", "t").sink(),
        ps.webhook("http://127.0.0.1:1/"),
        ps.sse(port=1, token="a token of the test"),
    ]
    for sink in sinks:
        with pytest.raises(TypeMismatch, match=r"column 'm' is .*cannot be nested"):
            sink.check(schema)
    with pytest.raises(TypeMismatch, match="column 'm'"):
        ps.csv_files(tmp_path, schema=schema)
    ps.files(tmp_path / "out", format="parquet").check(schema)
    check_json(SCHEMA)


def test_columns_of_any_name_become_parts_of_a_record_of_kafka() -> None:
    schema = Schema.parse("`the key` bigint, `the value` string, `the head` string, `the place` int, `class` binary")
    row = schema.record_type(7, "text", '[["a","b"]]', 2, b"raw")
    names = {"headers": "the head", "partition": "the place"}
    for layout, entry in (
        (Layout("the key", "the value", **names), (b"7", b"text", [("a", b"b")], 2)),
        (Layout("the value", "class", **names), (b"text", b"raw", [("a", b"b")], 2)),
        (Layout("class", **names), (b"raw", b'{"the key":7,"the value":"text","class":"cmF3"}', [("a", b"b")], 2)),
    ):
        layout.check(schema)
        assert layout.encoder(schema, RECORD_BYTES_MAX)([row]) == [entry]
    assert msgspec.json.decode(json_writer(schema)(row))["the head"] == '[["a","b"]]'
