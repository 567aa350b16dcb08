"""JSON with a registry: values behind the number of a JSON Schema, which gives the columns or is made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from json import dumps, loads
from operator import attrgetter
from typing import Any

import msgspec

from penstock.checks import OneOf
from penstock.connectors.formats.base import Encoding, Format, Read, Write
from penstock.connectors.formats.registry import HEAD_BYTES, Registry, head, number_of
from penstock.connectors.plain import check_json, json_encoder, plain_dicts
from penstock.errors import BadRecord, InvalidOption, TypeMismatch
from penstock.operators.stateless.parse import TimeUnit
from penstock.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    STRING,
    TIMESTAMP,
    DataType,
    Field,
    Schema,
    TypeKind,
    array_of,
    attribute,
    map_of,
    struct_of,
)
from penstock.types.json import json_reader, json_type

_DRAFT = "http://json-schema.org/draft-07/schema#"
_DEPTH_MAX = 20
_PLAIN = {"boolean": BOOLEAN, "integer": BIGINT, "number": DOUBLE, "string": STRING}
_WRITTEN: dict[TypeKind, dict[str, str]] = {
    TypeKind.BOOLEAN: {"type": "boolean"},
    TypeKind.TINYINT: {"type": "integer"},
    TypeKind.SMALLINT: {"type": "integer"},
    TypeKind.INT: {"type": "integer"},
    TypeKind.BIGINT: {"type": "integer"},
    TypeKind.FLOAT: {"type": "number"},
    TypeKind.DOUBLE: {"type": "number"},
    TypeKind.STRING: {"type": "string"},
    TypeKind.DECIMAL: {"type": "number"},
    TypeKind.BINARY: {"type": "string", "contentEncoding": "base64"},
    TypeKind.TIMESTAMP: {"type": "string", "format": "date-time"},
    TypeKind.DATE: {"type": "string", "format": "date"},
}


@dataclass(frozen=True)
class Json(Format):
    """JSON objects; build it with :func:`json`."""

    schema: Schema | None
    registry: Registry | None
    subject: str | None
    unit: TimeUnit
    kind = "json"

    def resolved(self) -> Json:
        """Without columns: those of the subject in the registry."""
        if self.schema is not None:
            return self
        subject = self.subject
        if self.registry is None or subject is None:
            raise InvalidOption(option="schema", given=None, allowed="columns, or registry= and subject=")
        found = self.registry.latest(subject)
        if found.kind != "JSON":
            what = f"subject '{subject}' of registry {self.registry.shown} is {found.kind}, not JSON."
            raise TypeMismatch(what=what, hint="Use the format that its values have.")
        return replace(self, schema=columns_of(found.text))

    def columns(self) -> Schema:
        assert self.schema is not None
        return self.schema

    def reader(self) -> Read:
        columns, unit_us = self.columns(), self.unit.us
        decode = msgspec.json.Decoder(json_type(struct_of(columns.fields))).decode
        parts = [(attrgetter(attribute(f.name)), json_reader(f.type, unit_us)) for f in columns.fields]
        is_framed = self.registry is not None

        def read(value: bytes | None) -> list[object]:
            if value is None:
                raise BadRecord("the value is null.")
            if is_framed:
                number_of(value)
            try:
                found = decode(memoryview(value)[HEAD_BYTES:] if is_framed else value)
            except msgspec.MsgspecError as error:
                raise BadRecord(f"it is not a JSON object of these columns: {error}".rstrip(".") + ".") from None
            members = ((convert, member(found)) for member, convert in parts)
            return [each if convert is None or each is None else convert(each) for convert, each in members]

        return read

    def encoding(self, schema: Schema, topic: str) -> Encoding:
        if self.schema is not None and {each.name: each.type for each in self.schema} != {
            each.name: each.type for each in schema
        }:
            what = f"the stream has the columns {schema.ddl}, and the format {self.schema.ddl}."
            raise TypeMismatch(what=what, hint="Use select(), or leave the columns of the format out.")
        check_json(schema)
        begin = b""
        if self.registry is not None:
            text = dumps(_object(schema.fields, {"$schema": _DRAFT, "title": "Record"}))
            begin = head(self.registry.register(self.subject or f"{topic}-value", "JSON", text))
        return _JsonEncoding(begin, schema)

    def describe(self) -> str:
        return "json" + (f" by {self.registry.shown}" if self.registry is not None else "")


@dataclass(frozen=True)
class _JsonEncoding(Encoding):
    begin: bytes
    """What every value begins with."""
    schema: Schema

    def encoder(self) -> Write:
        dicts, encode = plain_dicts(self.schema), json_encoder().encode
        begin = self.begin
        return lambda rows: [begin + encode(each) for each in dicts(rows)]


# --- columns to JSON Schema, and back ---------------------------------------------------------------------------------


def _object(fields: tuple[Field, ...], first: Mapping[str, Any] | None = None) -> dict[str, Any]:
    properties = {each.name: _written(each.type, each.name, nullable=each.nullable) for each in fields}
    required = [each.name for each in fields if not each.nullable]
    found = {**(first or {}), "type": "object", "properties": properties, "additionalProperties": False}
    return {**found, "required": required} if required else found


def _written(data_type: DataType, where: str, *, nullable: bool) -> dict[str, Any]:
    """The schema of a column; as registries' own clients do, one that may be null is one of two."""
    if data_type.kind is TypeKind.STRUCT:
        found = _object(data_type.fields)
    elif data_type.element is not None:
        item = _written(data_type.element, where, nullable=True)
        key = "items" if data_type.key is None else "additionalProperties"
        found = {"type": "array" if data_type.key is None else "object", key: item}
    elif data_type.kind in _WRITTEN:
        found = dict(_WRITTEN[data_type.kind])
    else:
        raise TypeMismatch(what=f"column '{where}' is {data_type.ddl}, which maps to no type of JSON Schema.")
    return {"oneOf": [{"type": "null"}, found]} if nullable else found


def columns_of(text: str) -> Schema:
    """The columns of a JSON Schema; raises where it is none of an object, or has what maps to no column."""
    try:
        whole = loads(text)
    except ValueError as error:
        raise TypeMismatch(what=f"not a JSON Schema: {error}.") from None
    found, _ = _type(whole, whole, "the whole", 0)
    if found.kind is not TypeKind.STRUCT:
        raise TypeMismatch(what="the JSON Schema is not that of an object.", hint="Columns are its properties.")
    return Schema(found.fields)


def _type(schema: Any, whole: Any, where: str, depth: int) -> tuple[DataType, bool]:
    """The type of a property, and whether it may be null."""
    if depth > _DEPTH_MAX:
        raise TypeMismatch(what=f"property '{where}' contains itself, which maps to no column.")
    if isinstance(schema, dict) and "$ref" in schema:
        return _type(_referred(schema["$ref"], whole, where), whole, where, depth + 1)
    if not isinstance(schema, dict):
        raise _unmapped(where, dumps(schema))
    for many in ("oneOf", "anyOf"):
        if many in schema:
            return _one_of(schema[many], whole, where, depth)
    kind = schema.get("type", "string" if "enum" in schema else "object" if "properties" in schema else None)
    if isinstance(kind, list):
        return _one_of([{**schema, "type": each} for each in kind], whole, where, depth)
    if kind == "object" and "properties" in schema:
        required = schema.get("required", ())
        fields = []
        for name, each in schema["properties"].items():
            data_type, nullable = _type(each, whole, name, depth + 1)
            fields.append(Field(name, data_type, nullable=nullable or name not in required))
        return struct_of(fields), False
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return map_of(STRING, _type(schema["additionalProperties"], whole, f"{where}[]", depth + 1)[0]), False
    if kind == "array" and isinstance(schema.get("items"), dict):
        return array_of(_type(schema["items"], whole, f"{where}[]", depth + 1)[0]), False
    if kind == "string":
        if schema.get("contentEncoding") == "base64":
            return BINARY, False
        return {"date-time": TIMESTAMP, "date": DATE}.get(schema.get("format", ""), STRING), False
    if kind not in _PLAIN:
        raise _unmapped(where, str(kind) if kind is not None else "of no type")
    return _PLAIN[kind], False


def _one_of(given: Any, whole: Any, where: str, depth: int) -> tuple[DataType, bool]:
    rest = [each for each in given if each != {"type": "null"} and not _is_null(each)]
    if len(rest) != 1:
        raise _unmapped(where, f"one of {len(rest)} types", " One type, or a type and null, does.")
    found, nullable = _type(rest[0], whole, where, depth + 1)
    return found, nullable or len(rest) < len(given)


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "null"


def _referred(reference: Any, whole: Any, where: str) -> Any:
    found = whole
    if not isinstance(reference, str) or not reference.startswith("#/"):
        raise _unmapped(where, f"in another document ({reference})")
    for step in reference[2:].split("/"):
        found = found.get(step) if isinstance(found, dict) else None
    if found is None:
        raise _unmapped(where, f"{reference}, which is not there")
    return found


def _unmapped(where: str, what: str, hint: str = "") -> TypeMismatch:
    hint = hint or ' Name the columns yourself: ps.json("name string, …", registry=…).'
    return TypeMismatch(what=f"property '{where}' of the JSON Schema is {what}, which maps to no column.", hint=hint)


def json(
    schema: object = None,
    *,
    registry: str | None = None,
    subject: str | None = None,
    timestamp_unit: str = "ms",
) -> Json:
    """Values in JSON that a schema registry knows, for ``stream.parse(…)`` and ``ps.kafka(…, format=…)``.

    Without a registry ``parse_json`` reads JSON, and a sink writes it unless it is told otherwise.

    Parameters
    ----------
    schema : str, Schema or class, optional
        The columns, as for ``parse_json``: members that are not named are ignored, missing ones are null. Without it
        the properties of the subject's JSON Schema in the registry; writing, the stream's.
    registry : str, optional
        Address of a schema registry, ``"http://host:8081"``; with a user ``"https://user:password@host"``, which is
        never shown. Values then begin with the number of their schema. Reading with ``schema`` asks it for nothing.
    subject : str, optional
        The subject in the registry, mostly ``"<topic>-value"``, which is what a sink takes where none is given. A sink
        registers a JSON Schema of its columns there.
    timestamp_unit : {"s", "ms", "us"}
        Reading: what a number counts where a timestamp is wanted; text is ISO-8601.

    Examples
    --------
    >>> import penstock as ps
    >>> ads = ps.stream("ads", ps.kafka("localhost:9092", "ads"))
    >>> ads.parse(ps.json("ad string, price double", registry="http://localhost:8081")).schema.ddl
    'ad string, price double'
    """
    if subject is not None and (not isinstance(subject, str) or not subject or registry is None):
        raise InvalidOption(option="subject", given=subject, allowed="the name of a subject, with registry=")
    columns = None if schema is None else Schema.parse(schema)
    unit = OneOf(TimeUnit).read("timestamp_unit", timestamp_unit)
    return Json(columns, None if registry is None else Registry(registry), subject, unit)
