"""Avro and Protobuf by schema: columns, values there and back, a registry, and everything that is refused."""

from __future__ import annotations

import io
import json
import math
import pickle
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.connectors.formats import registry as registry_module
from penstock.connectors.formats.base import Format, Parse
from penstock.connectors.formats.registry import head
from penstock.connectors.kafka.encoding import Layout
from penstock.errors import BadRecord, InvalidOption, KafkaFailed, PenstockError, TypeMismatch
from penstock.operators.errors import ErrorPolicy, Errors
from penstock.types import Schema
from services.registry import RegistryServer

AD = {
    "type": "record",
    "name": "Ad",
    "fields": [
        {"name": "ad", "type": "string"},
        {"name": "price", "type": ["null", "double"], "default": None},
        {"name": "clicks", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "cost", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "place", "type": {"type": "record", "name": "Place", "fields": [{"name": "x", "type": "int"}]}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
    ],
}
SECRET = "registry-user:registry-password"


@pytest.fixture(scope="module")
def server() -> Iterator[RegistryServer]:
    server = RegistryServer(SECRET)
    yield server
    server.shutdown()
    server.server_close()


def make_message() -> Any:
    """An equivalent of what protoc makes: a message with all that maps to columns, the second of its file."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    file.enum_type.add(name="Kind").value.add(name="A", number=0)
    file.enum_type[0].value.add(name="B", number=1)
    file.message_type.add(name="Place").field.add(name="x", number=1, type=field.TYPE_INT32, label=1)
    ad = file.message_type.add(name="Ad")
    plain = [("ad", field.TYPE_STRING), ("clicks", field.TYPE_UINT64), ("raw", field.TYPE_BYTES)]
    plain += [("ratio", field.TYPE_DOUBLE), ("live", field.TYPE_BOOL)]
    for number, (name, kind) in enumerate(plain, start=1):
        ad.field.add(name=name, number=number, type=kind, label=1)
    ad.field.add(name="kind", number=6, type=field.TYPE_ENUM, type_name=".shop.Kind", label=1)
    for number, name, of in (
        (7, "at", "google.protobuf.Timestamp"),
        (8, "limit", "google.protobuf.Int64Value"),
        (9, "place", "shop.Place"),
    ):
        ad.field.add(name=name, number=number, type=field.TYPE_MESSAGE, type_name=f".{of}", label=1)
    ad.field.add(name="tags", number=10, type=field.TYPE_STRING, label=3)
    ad.field.add(name="places", number=11, type=field.TYPE_MESSAGE, type_name=".shop.Place", label=3)
    ad.field.add(name="note", number=12, type=field.TYPE_STRING, label=1, proto3_optional=True, oneof_index=0)
    ad.oneof_decl.add(name="_note")
    entry = ad.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=field.TYPE_INT64, label=1)
    ad.field.add(name="counts", number=13, type=field.TYPE_MESSAGE, type_name=".shop.Ad.CountsEntry", label=3)
    pool = descriptor_pool.DescriptorPool()
    for each in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(each.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Ad"))


Ad = make_message()


def written(format: Format, schema: Schema, row: Any) -> bytes:
    (value,) = format.encoding(schema, "ads").encoder()([row])
    return value


def test_columns_of_a_schema_of_avro() -> None:
    found = ps.avro(AD).columns()
    assert found.ddl == (
        "ad string not null, price double, clicks bigint not null, at timestamp not null, day date, "
        "tags array<string> not null, kind string not null, cost decimal(9,2) not null, "
        "place struct<x: int not null> not null, counts map<string, bigint> not null"
    )


texts = st.text(max_size=4)
rows = st.builds(
    dict,
    ad=texts,
    price=st.none() | st.floats(allow_nan=False),
    clicks=st.integers(-(1 << 63), (1 << 63) - 1),
    at=st.integers(-(10**9), 10**12).map(lambda ms: ms * 1000),
    day=st.none() | st.integers(-10_000, 100_000),
    tags=st.lists(texts, max_size=3),
    kind=st.sampled_from("AB"),
    cost=st.decimals(-9_999_999, 9_999_999, places=2),
    place=st.builds(dict, x=st.integers(-(1 << 31), (1 << 31) - 1)),
    counts=st.dictionaries(texts, st.integers(0, 9), max_size=2),
)


@settings(max_examples=25)
@given(rows)
def test_what_fastavro_writes_comes_as_columns_and_equal_in_both_forms(row: dict[str, Any]) -> None:
    format = ps.avro(AD)
    record = format.columns().coerce(row)
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(AD), {**row, "at": row["at"] // 1000})
    operator = Parse(format).build(Schema.parse("value binary"), Errors("parse", ErrorPolicy.FAIL))
    source = Schema.parse("value binary")
    given_rows = [source.record_type(data.getvalue())]
    assert operator.process(given_rows).rows == [record]
    batch = operator.process_batch(source.to_batch(given_rows)).columns
    assert format.columns().to_rows(batch) == [record]


def test_flat_columns_go_out_by_a_schema_of_their_own_and_come_back() -> None:
    schema = Schema.parse(
        "t tinyint, i int, n bigint, d double, f float, s string, b binary, at timestamp, day date, "
        "l array<timestamp>, m map<string, int>, c decimal(5,1), yes boolean"
    )
    full = schema.coerce(
        {
            "t": 1,
            "i": 2,
            "n": 3,
            "d": 0.5,
            "f": 0.25,
            "s": "ä",
            "b": b"\0",
            "at": -1,
            "day": -1,
            "l": [0, None],
            "m": {"k": 1},
            "c": Decimal("1.5"),
            "yes": True,
        }
    )
    empty = schema.record_type(*[None] * len(schema))
    encoding = ps.avro().encoding(schema, "ads")
    read = ps.avro(encoding.text).reader()  # type: ignore[attr-defined]
    for row, value in zip((full, empty), encoding.encoder()([full, empty]), strict=True):
        assert schema.record_type(*read(value)) == row


def test_a_message_of_protobuf_is_columns_there_and_back() -> None:
    format = pickle.loads(pickle.dumps(ps.protobuf(Ad)))
    schema = format.columns()
    assert schema.ddl == (
        "ad string not null, clicks bigint not null, raw binary not null, ratio double not null, "
        "live boolean not null, kind string not null, at timestamp, limit bigint, "
        "place struct<x: int not null>, tags array<string>, places array<struct<x: int not null>>, "
        "note string, counts map<string, bigint>"
    )
    full = schema.coerce(
        {
            "ad": "a",
            "clicks": 7,
            "raw": b"\0",
            "ratio": math.inf,
            "live": True,
            "kind": "B",
            "at": 1_500_001,
            "limit": 0,
            "place": {"x": -1},
            "tags": ["t"],
            "places": [{"x": 1}, {"x": 2}],
            "note": "",
            "counts": {"k": 5},
        }
    )
    read = format.reader()
    assert schema.record_type(*read(written(format, schema, full))) == full
    bare = schema.record_type(*read(b""))
    assert (bare.ad, bare.kind, bare.at, bare.limit, bare.place, bare.note, bare.tags) == (
        "",
        "A",
        None,
        None,
        None,
        None,
        [],
    )
    with pytest.raises(BadRecord, match="more than a bigint"):
        read(Ad(clicks=1 << 63).SerializeToString())
    assert schema.record_type(*read(Ad(kind=9).SerializeToString())).kind == "9"
    with pytest.raises(BadRecord, match="'C' is not in"):
        written(format, schema, schema.coerce({**{n: getattr(full, n) for n in schema.names}, "kind": "C"}))


def test_the_registry_says_what_a_value_was_written_by(server: RegistryServer) -> None:
    older = {
        "type": "record",
        "name": "V",
        "fields": [{"name": "n", "type": "int"}, {"name": "gone", "type": "string"}],
    }
    newer = {
        "type": "record",
        "name": "V",
        "fields": [{"name": "n", "type": "long"}, {"name": "more", "type": "string", "default": "-"}],
    }
    sink = ps.avro(older, registry=server.url)
    value = written(sink, sink.columns(), sink.columns().coerce({"n": 5, "gone": "x"}))
    number = server.subjects["ads-value"][-1]
    assert value.startswith(head(number))
    server.register("v-value", {"schema": json.dumps(newer)})
    reading = ps.avro(registry=server.url, subject="v-value").resolved()
    read = reading.reader()
    assert read(value) == [5, "-"]
    asked = len(server.requests)
    assert read(value) == [5, "-"]
    assert len(server.requests) == asked, "a number is asked for once"
    for bad, cause in (
        (b"", "number of a schema"),
        (b"\1\0\0\0\1x", "number of a schema"),
        (head(999) + b"x", "number 999, is not in the registry"),
        (head(number), "not a record of the schema of Avro"),
        (value + b"x", "bytes behind"),
        (None, "null"),
    ):
        with pytest.raises(BadRecord, match=cause):
            read(bad)  # type: ignore[arg-type]


def test_protobuf_by_a_registry(server: RegistryServer) -> None:
    format = ps.protobuf(Ad, registry=server.url)
    schema = Schema.parse("ad string, clicks bigint")
    value = written(format, schema, schema.record_type("a", 3))
    number = server.subjects["ads-value"][-1]
    assert server.schemas[number - 1]["schemaType"] == "PROTOBUF"
    assert value.startswith(head(number) + b"\2\2"), "one index, and it is 1: the second message of the file"
    assert format.reader()(value)[:2] == ["a", 3]
    for bad, cause in (
        (head(1) + b"\0", "another message"),
        (head(1), "ends before"),
        (head(1) + b"\2\2\xff", "shop.Ad"),
    ):
        with pytest.raises(BadRecord, match=cause):
            format.reader()(bad)


def test_a_registry_that_refuses_or_is_away_is_one_clear_error(
    server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_module, "RETRY_S", 0.3)
    wrong = server.url.replace("registry-password", "wrong-password")
    cases = [
        (wrong, "answered 401", "user and password"),
        (server.url, "no subject 'nobody'", "Register a schema"),
        ("http://user:hidden-password@127.0.0.1:9", "cannot connect", ""),
        ("http://user:hidden-password@no.such.host.invalid", "cannot connect", ""),
    ]
    for url, cause, hint in cases:
        with pytest.raises(KafkaFailed) as caught:
            ps.avro(registry=url, subject="nobody").resolved()
        text = str(caught.value)
        assert cause in text
        assert hint in text
        assert "\n" not in text
        assert not any(secret in text for secret in ("registry-password", "wrong-password", "hidden-password", "user:"))
        assert "password" not in repr(ps.avro(registry=url, subject="nobody"))
    monkeypatch.undo()
    server.answers = [500, 503]
    ps.avro(AD, registry=server.url).encoding(ps.avro(AD).columns(), "ads")
    assert server.answers == [], "it was asked again"


AVRO_REFUSED: list[tuple[Any, str]] = [
    ("no json", "not a schema of Avro"),
    ({"type": "string"}, "not a record"),
    ({"type": "record", "name": "R", "fields": [{"name": "u", "type": ["int", "string"]}]}, "'u' is a union of 2"),
    (
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": "t", "type": {"type": "int", "logicalType": "time-millis"}}],
        },
        "'t' is time-millis",
    ),
    ({"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}, "'r' is R"),
]


@pytest.mark.parametrize(("schema", "cause"), AVRO_REFUSED)
def test_schemas_of_avro_that_are_no_columns_are_refused_where_they_are_written(schema: Any, cause: str) -> None:
    with pytest.raises(TypeMismatch, match=cause):
        ps.avro(schema)


def test_wrong_options() -> None:
    refused: list[Any] = [
        lambda: ps.avro(5),  # type: ignore[arg-type]
        lambda: ps.avro(subject="s"),
        lambda: ps.avro(AD, registry="ftp://host"),
        lambda: ps.avro(AD, registry="http://user:secret@"),
        lambda: ps.avro(AD, registry="http://h", subject=""),
        lambda: ps.avro().resolved(),
        lambda: ps.protobuf("Ad"),
        lambda: ps.protobuf(Ad(ad="instance")),
        lambda: ps.protobuf(Ad, subject=1),  # type: ignore[arg-type]
        lambda: ps.kafka("h:1", "t", format="avro"),  # type: ignore[arg-type]
        lambda: ps.kafka("h:1", "t", format=ps.avro(AD), value="v"),
        lambda: ps.kafka("h:1", "t", text="yes"),  # type: ignore[arg-type]
        lambda: ps.stream("s", ps.records([], schema="value binary")).parse("avro"),  # type: ignore[arg-type]
    ]
    for each in refused:
        with pytest.raises(InvalidOption) as caught:
            each()
        assert "secret" not in str(caught.value)
    with pytest.raises(TypeMismatch, match="'value' is string"):
        ps.stream("s", ps.records([], schema="value string")).parse(ps.avro(AD))


@pytest.mark.parametrize(
    ("format", "schema", "cause"),
    [
        (ps.avro(AD), "ad string", "has a field 'clicks'"),
        (ps.avro({**AD, "fields": AD["fields"][:1]}), "ad bigint", "'ad' is bigint, and in the schema of Avro string"),
        (ps.avro({**AD, "fields": AD["fields"][:1]}), "ad string, other int", "'other' is not in the schema"),
        (ps.avro(), "s struct<x: int>", "which maps to no type of Avro"),
        (ps.protobuf(Ad), "ad bigint", "'ad' is bigint, and in the message shop.Ad string"),
        (ps.protobuf(Ad), "other int", "'other' is not in the message"),
    ],
)
def test_a_stream_that_a_format_does_not_take_is_refused_before_anything_starts(
    format: Format, schema: str, cause: str
) -> None:
    with pytest.raises(TypeMismatch, match=cause):
        Layout(format=format).settled(Schema.parse(schema), "ads")


def test_a_sink_writes_all_columns_but_those_of_headers_and_partition() -> None:
    schema = Schema.parse("ad string, h string, p int")
    layout = Layout(key="ad", headers="h", partition="p", format=ps.avro()).settled(schema, "ads")
    ((key, value, headers, partition),) = layout.encoder(schema, 1_000)([schema.record_type("a", '[["k", "v"]]', 2)])
    assert (key, headers, partition) == (b"a", [("k", b"v")], 2)
    assert ps.avro(layout.encoding.text).reader()(value or b"") == ["a"]  # type: ignore[union-attr]


def test_bad_values_go_where_the_policy_says() -> None:
    format = ps.avro({**AD, "fields": AD["fields"][:1]})
    stream = ps.stream("s", ps.records([{"value": b"\x02a"}, {"value": b"\xff"}], schema="value binary"))
    parsed = stream.parse(format, on_error="skip")
    harness = ps.testing.Harness(parsed.to(ps.memory()))
    harness.run()
    assert harness.rows() == [{"ad": "a"}]
    with pytest.raises(PenstockError, match="not a record of the schema of Avro"):
        ps.testing.Harness(stream.parse(format).to(ps.memory())).run()


def test_what_confluents_own_clients_write_is_read_and_the_other_way_round() -> None:
    server = RegistryServer()
    client = SchemaRegistryClient({"url": server.url})
    context = SerializationContext("ads", MessageField.VALUE)
    schema = {
        "type": "record",
        "name": "V",
        "fields": [{"name": "n", "type": "long"}, {"name": "s", "type": ["null", "string"], "default": None}],
    }
    theirs = AvroSerializer(client, json.dumps(schema))({"n": 5, "s": "x"}, context)
    ours = ps.avro(schema, registry=server.url)
    assert ours.reader()(theirs or b"") == [5, "x"]
    mine = written(ours, ours.columns(), ours.columns().record_type(7, None))
    assert AvroDeserializer(client)(mine, context) == {"n": 7, "s": None}
    message = ps.protobuf(Ad, registry=server.url)
    assert message.reader()(ProtobufSerializer(Ad, client)(Ad(ad="a", clicks=3), context) or b"")[:2] == ["a", 3]
    columns = Schema.parse("ad string, clicks bigint")
    mine = written(message, columns, columns.record_type("b", 4))
    assert ProtobufDeserializer(Ad, {"use.deprecated.format": False})(mine, context) == Ad(ad="b", clicks=4)
    server.shutdown()
    server.server_close()
