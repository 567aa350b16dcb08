"""JSON behind the number of a schema: columns of JSON Schemas and back, values in both forms, what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

import penstock as ps
from penstock.connectors.formats import registry
from penstock.connectors.formats.json_schema import columns_of
from penstock.connectors.formats.registry import head
from penstock.connectors.kafka.encoding import Layout
from penstock.errors import BadRecord, InvalidOption, KafkaFailed, TypeMismatch
from penstock.types import INTERVAL, Field, Schema
from services.registry import RegistryServer

COLUMNS = Schema.parse(
    "id bigint not null, price double, name string, live boolean, at timestamp, day date, raw binary, "
    "tags array<string>, counts map<string, bigint>, place struct<x: bigint not null, y: timestamp>"
)


@pytest.fixture(scope="module")
def server() -> Iterator[RegistryServer]:
    server = RegistryServer()
    yield server
    server.shutdown()
    server.server_close()


def written(format: Any, schema: Schema, *rows: Any, topic: str = "ads") -> list[bytes]:
    layout = Layout(format=format).settled(schema, topic)
    return [value for _, value, _, _ in layout.encoder(schema, 10_000)([schema.coerce(each) for each in rows])]


FULL = {
    "id": 7, "price": 1.5, "name": "é", "live": True, "at": datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
    "day": datetime(2026, 1, 2).date(), "raw": b"\x00\xff", "tags": ["a", None], "counts": {"k": 3, "n": None},
    "place": {"x": 1, "y": datetime(2026, 1, 2, tzinfo=UTC)},
}  # fmt: skip


def test_what_a_sink_writes_by_a_registry_is_read_by_the_schema_that_it_has_registered(server: RegistryServer) -> None:
    empty = {"id": 8}
    values = written(ps.json(registry=server.url), COLUMNS, FULL, empty)
    number = server.subjects["ads-value"][-1]
    assert server.schemas[number - 1]["schemaType"] == "JSON"
    assert [each[:5] for each in values] == [head(number)] * 2
    assert json.loads(values[1][5:]) == {**dict.fromkeys(COLUMNS.names), "id": 8}
    reading = ps.json(registry=server.url, subject="ads-value").resolved()
    assert reading.columns() == COLUMNS
    read = reading.reader()
    for value, row in zip(values, (FULL, empty), strict=True):
        record = COLUMNS.coerce(row)
        assert read(value) == [getattr(record, name) for name in COLUMNS.names]


def test_decimals_are_numbers_that_named_columns_read_exactly(server: RegistryServer) -> None:
    columns = Schema.parse("cost decimal(38,2)")
    (value,) = written(ps.json(registry=server.url), columns, {"cost": Decimal("123456789012345678901234567890.10")})
    assert value[5:] == b'{"cost":123456789012345678901234567890.10}'
    assert columns_of(server.schemas[server.subjects["ads-value"][-1] - 1]["schema"]) == Schema.parse("cost double")
    assert ps.json(columns, registry=server.url).reader()(value) == [Decimal("123456789012345678901234567890.10")]


def test_columns_that_are_named_ask_the_registry_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "RETRY_S", 0.2)
    format = ps.json("id bigint, at timestamp", registry="http://127.0.0.1:1", timestamp_unit="s").resolved()
    rows = [{"value": head(5) + b'{"more": 1, "at": 2, "id": 3}'}, {"value": b'{"id": 4}'}, {"value": head(5) + b"[]"}]
    stream = ps.stream("s", ps.records(rows, schema="value binary"))
    harness = ps.testing.Harness(stream.parse(format, on_error="skip").to(ps.memory()))
    harness.run()
    assert harness.rows() == [{"id": 3, "at": 2_000_000}]
    for bad, cause in (
        (None, "null"),
        (b'{"id": 4}', "number of a schema"),
        (head(5) + b'{"id": "4"}', r"not a JSON object of these columns: Expected `int"),
        (head(5) + b"{", "not a JSON object of these columns: "),
    ):
        with pytest.raises(BadRecord, match=cause):
            format.reader()(bad)  # type: ignore[arg-type]
    assert ps.json("id bigint").reader()(b'{"id": 4}') == [4]
    with pytest.raises(KafkaFailed, match="cannot connect"):
        ps.json(registry="http://127.0.0.1:1", subject="s").resolved()


def test_a_json_schema_of_somebody_else_is_columns() -> None:
    schema = {
        "type": "object",
        "required": ["id", "kind"],
        "properties": {
            "id": {"type": "integer"},
            "kind": {"enum": ["a", "b"]},
            "maybe": {"type": ["null", "number"]},
            "either": {"anyOf": [{"type": "null"}, {"type": "boolean"}]},
            "places": {"type": "array", "items": {"$ref": "#/definitions/Place"}},
            "at": {"type": "string", "format": "date-time"},
        },
        "definitions": {"Place": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}},
    }
    expected = "id bigint not null, kind string not null, maybe double, either boolean, "
    expected += "places array<struct<x: bigint not null>>, at timestamp"
    assert columns_of(json.dumps(schema)) == Schema.parse(expected)


@pytest.mark.parametrize(
    ("schema", "cause"),
    [
        ("{", "not a JSON Schema"),
        ({"type": "string"}, "not that of an object"),
        ({"properties": {"a": {"oneOf": [{"type": "string"}, {"type": "integer"}]}}}, "'a' .* is one of 2 types"),
        ({"properties": {"a": {"$ref": "other.json"}}}, "in another document"),
        ({"properties": {"a": {"$ref": "#/definitions/B"}}}, "#/definitions/B, which is not there"),
        ({"properties": {"a": {"$ref": "#"}}}, "in another document"),
        ({"properties": {"a": {"$ref": "#/properties/a"}}}, "contains itself"),
        ({"properties": {"a": True}}, "'a' of the JSON Schema is true"),
        ({"properties": {"a": {}}}, "of no type"),
        ({"properties": {"a": {"type": "array"}}}, "is array"),
    ],
)
def test_a_json_schema_that_is_no_columns_is_refused(schema: Any, cause: str) -> None:
    with pytest.raises(TypeMismatch, match=cause):
        columns_of(schema if isinstance(schema, str) else json.dumps(schema))


def test_wrong_options_and_streams_that_differ_are_refused_before_anything_starts(server: RegistryServer) -> None:
    for each in (
        lambda: ps.json().resolved(),
        lambda: ps.json("a int", subject="s"),
        lambda: ps.json("a int", registry="ftp://host"),
        lambda: ps.json("a int", timestamp_unit="h"),
        lambda: ps.json(registry=server.url, subject=""),
    ):
        with pytest.raises(InvalidOption):
            each()
    server.register("avro-value", {"schema": "{}"})
    with pytest.raises(TypeMismatch, match="is AVRO, not JSON"):
        ps.json(registry=server.url, subject="avro-value").resolved()
    with pytest.raises(TypeMismatch, match="the stream has the columns a int, and the format a int, b int"):
        written(ps.json("a int, b int"), Schema.parse("a int"))
    with pytest.raises(TypeMismatch, match="maps to no type of JSON Schema"):
        written(ps.json(registry=server.url), Schema((Field("a", INTERVAL),)))
