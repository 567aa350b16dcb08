"""Avro: columns of a schema, values by fastavro, with the writer's schema from a registry where there is one."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import Any

from penstock.connectors.extras import installed
from penstock.connectors.formats.base import Encoding, Format, Read, Write
from penstock.connectors.formats.registry import HEAD_BYTES, Registry, head, number_of
from penstock.errors import BadRecord, InvalidOption, TypeMismatch
from penstock.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    TIMESTAMP,
    DataType,
    Field,
    Record,
    Schema,
    TypeKind,
    array_of,
    attribute,
    decimal_of,
    fit,
    map_of,
    struct_of,
)

_PLAIN = {
    "boolean": BOOLEAN,
    "int": INT,
    "long": BIGINT,
    "float": FLOAT,
    "double": DOUBLE,
    "bytes": BINARY,
    "string": STRING,
    "fixed": BINARY,
    "enum": STRING,
}
_LOGICAL = {"timestamp-millis": TIMESTAMP, "timestamp-micros": TIMESTAMP, "date": DATE}
_WRITTEN = {
    TypeKind.BOOLEAN: "boolean",
    TypeKind.TINYINT: "int",
    TypeKind.SMALLINT: "int",
    TypeKind.INT: "int",
    TypeKind.BIGINT: "long",
    TypeKind.FLOAT: "float",
    TypeKind.DOUBLE: "double",
    TypeKind.STRING: "string",
    TypeKind.BINARY: "bytes",
    TypeKind.TIMESTAMP: {"type": "long", "logicalType": "timestamp-micros"},
    TypeKind.DATE: {"type": "int", "logicalType": "date"},
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PASSED = (BOOLEAN, INT, BIGINT, DOUBLE, STRING, BINARY)
"""What comes out of the decoder as records hold it."""


@dataclass(frozen=True)
class Avro(Format):
    """Avro by a schema; build it with :func:`avro`."""

    text: str | None
    registry: Registry | None
    subject: str | None
    kind = "avro"

    def resolved(self) -> Avro:
        """Without a schema: that of the subject in the registry."""
        if self.text is not None:
            return self
        subject = self.subject
        if self.registry is None or subject is None:
            raise InvalidOption(option="schema", given=None, allowed="a schema of Avro, or registry= and subject=")
        found = self.registry.latest(subject)
        if found.kind != "AVRO":
            what = f"subject '{subject}' of registry {self.registry.shown} is {found.kind}, not AVRO."
            raise TypeMismatch(what=what, hint="Use the format that its values have.")
        return replace(self, text=found.text)

    @cached_property
    def _parsed(self) -> Any:
        fastavro = installed("fastavro", "kafka")
        try:
            return fastavro.parse_schema(json.loads(self.text or ""))
        except Exception as error:
            raise TypeMismatch(what=f"not a schema of Avro: {type(error).__name__}: {error}.") from None

    def columns(self) -> Schema:
        return self._columns

    @cached_property
    def _columns(self) -> Schema:
        parsed = self._parsed
        if not isinstance(parsed, dict) or parsed.get("type") != "record":
            raise TypeMismatch(what="the schema of Avro is not a record.", hint="Columns are the fields of a record.")
        return Schema(_fields(parsed, {}))

    def reader(self) -> Read:
        fastavro = installed("fastavro", "kafka")
        decode, own, registry = fastavro.schemaless_reader, self._parsed, self.registry
        names = self._columns.names
        fits = [_fitting(each.type) for each in self._columns.fields]
        converts = any(each is not None for each in fits)
        writers: dict[int, Any] = {}

        def writer_of(value: bytes) -> Any:
            number = number_of(value)
            found = writers.get(number)
            if found is None:
                assert registry is not None
                found = writers[number] = fastavro.parse_schema(json.loads(registry.by_id(number).text))
            return found

        def read(value: bytes | None) -> list[object]:
            if value is None:
                raise BadRecord("the value is null.")
            written = own if registry is None else writer_of(value)
            data = io.BytesIO(value)
            if registry is not None:
                data.seek(HEAD_BYTES)
            try:
                found = decode(data, written, own)
            except BadRecord:
                raise
            except Exception as error:
                cause = f"{type(error).__name__}: {error}".rstrip(". ")
                raise BadRecord(f"it is not a record of the schema of Avro: {cause}.") from None
            if data.tell() != len(value):
                raise BadRecord("there are bytes behind the record.", hint="Values of a registry need registry=.")
            row = [found[name] for name in names]
            if converts:
                row = [
                    each if convert is None or each is None else convert(each)
                    for each, convert in zip(row, fits, strict=True)
                ]
            return row

        return read

    def encoding(self, schema: Schema, topic: str) -> Encoding:
        text, begin = self.text, b""
        if text is None:
            text = json.dumps(_record(schema))
        else:
            self._check(schema)
        if self.registry is not None:
            begin = head(self.registry.register(self.subject or f"{topic}-value", "AVRO", text))
        return _AvroEncoding(text, begin, schema)

    def _check(self, schema: Schema) -> None:
        """Refuse a stream that the schema does not take."""
        mine = {each.name: each for each in schema.fields}
        for wanted in self._columns.fields:
            found = mine.get(wanted.name)
            if found is None and not wanted.nullable:
                raise TypeMismatch(what=f"the schema of Avro has a field '{wanted.name}', and the stream has none.")
            if found is not None and not _takes(wanted.type, found.type):
                what = f"column '{wanted.name}' is {found.type.ddl}, and in the schema of Avro {wanted.type.ddl}."
                raise TypeMismatch(what=what)
        for name in mine:
            if name not in self._columns.names:
                what = f"column '{name}' is not in the schema of Avro."
                raise TypeMismatch(what=what, hint="Leave it out with select().")

    def describe(self) -> str:
        return "avro" + (f" by {self.registry.shown}" if self.registry is not None else "")


def _fields(record: Mapping[str, Any], known: dict[str, DataType]) -> tuple[Field, ...]:
    found = []
    for each in record["fields"]:
        data_type, nullable = _type(each["type"], known, each["name"])
        found.append(Field(each["name"], data_type, nullable=nullable))
    return tuple(found)


def _type(avro: Any, known: dict[str, DataType], where: str) -> tuple[DataType, bool]:
    """The type of a field, and whether it may be null."""
    if isinstance(avro, list):
        rest = [each for each in avro if each != "null"]
        if len(rest) != 1:
            raise TypeMismatch(
                what=f"field '{where}' is a union of {len(rest)} types, which maps to no column.",
                hint="One type, or a type and null, does.",
            )
        return _type(rest[0], known, where)[0], len(rest) < len(avro)
    if isinstance(avro, str):
        plain = _PLAIN.get(avro) or known.get(avro)
        if plain is None:
            raise TypeMismatch(what=f"field '{where}' is {avro}, which maps to no column.")
        return plain, False
    kind, logical = avro["type"], avro.get("logicalType")
    if logical == "decimal":
        return decimal_of(avro["precision"], avro.get("scale", 0)), False
    if logical in _LOGICAL:
        return _LOGICAL[logical], False
    if logical == "uuid":
        return STRING, False
    if logical in ("time-millis", "time-micros", "duration", "local-timestamp-millis", "local-timestamp-micros"):
        raise TypeMismatch(
            what=f"field '{where}' is {logical}, which maps to no column.", hint="Leave it out of the schema."
        )
    if kind == "array":
        return array_of(_type(avro["items"], known, f"{where}[]")[0]), False
    if kind == "map":
        return map_of(STRING, _type(avro["values"], known, f"{where}[]")[0]), False
    if kind in ("record", "error"):
        made = struct_of(_fields(avro, known))
        known[avro["name"]] = made
        return made, False
    if isinstance(kind, dict | list):
        return _type(kind, known, where)
    found = _type(kind, known, where)
    if "name" in avro:
        known[avro["name"]] = found[0]
    return found


def _fitting(data_type: DataType) -> Callable[[Any], Any] | None:
    return None if data_type in _PASSED else lambda value: fit(value, data_type)


def _record(schema: Schema) -> dict[str, Any]:
    """A schema of Avro for the columns of a stream."""
    fields = []
    for each in schema.fields:
        kind = _written(each.type, each.name)
        null: dict[str, Any] = {"type": ["null", kind], "default": None} if each.nullable else {"type": kind}
        fields.append({"name": each.name, **null})
    return {"type": "record", "name": "Record", "fields": fields}


def _written(data_type: DataType, where: str) -> Any:
    if data_type.kind is TypeKind.ARRAY and data_type.element is not None:
        return {"type": "array", "items": ["null", _written(data_type.element, where)]}
    if data_type.kind is TypeKind.MAP and data_type.element is not None and data_type.key == STRING:
        return {"type": "map", "values": ["null", _written(data_type.element, where)]}
    if data_type.kind is TypeKind.DECIMAL:
        return {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": data_type.precision,
            "scale": data_type.scale,
        }
    found = _WRITTEN.get(data_type.kind)
    if found is None:
        what = f"column '{where}' is {data_type.ddl}, which maps to no type of Avro here."
        raise TypeMismatch(what=what, hint="Select members of it, or cast it to string.")
    return found


def _takes(wanted: DataType, given: DataType) -> bool:
    """Whether a field takes the values of a column: the same type, or a wider one."""
    if wanted.is_integer and given.is_integer:
        return wanted.bounds()[0] <= given.bounds()[0]
    if wanted.is_fractional and (given.is_integer or given.is_fractional):
        return wanted.kind is TypeKind.DOUBLE or given.kind is TypeKind.FLOAT
    if wanted.kind is TypeKind.ARRAY and given.kind is TypeKind.ARRAY and wanted.element and given.element:
        return _takes(wanted.element, given.element)
    return wanted == given


@dataclass(frozen=True)
class _AvroEncoding(Encoding):
    text: str
    begin: bytes
    """What every value begins with."""
    schema: Schema

    def encoder(self) -> Write:
        fastavro = installed("fastavro", "kafka")
        encode, parsed, begin = fastavro.schemaless_writer, fastavro.parse_schema(json.loads(self.text)), self.begin
        names = [(each.name, attribute(each.name), _plain(each.type)) for each in self.schema.fields]

        def write(rows: list[Record]) -> list[bytes]:
            found = []
            for row in rows:
                data = io.BytesIO()
                data.write(begin)
                values = {name: getattr(row, at) for name, at, _ in names}
                for name, _, plain in names:
                    if plain is not None and values[name] is not None:
                        values[name] = plain(values[name])
                try:
                    encode(data, parsed, values)
                except Exception as error:
                    cause = f"{type(error).__name__}: {error}".rstrip(". ")
                    raise BadRecord(f"it does not fit the schema of Avro: {cause}.") from None
                found.append(data.getvalue())
            return found

        return write


def _plain(data_type: DataType) -> Callable[[Any], Any] | None:
    """How a value is handed to the encoder, where that is not as records hold it: times of any unit, dates."""
    if data_type.kind is TypeKind.TIMESTAMP:
        return lambda us: _EPOCH + timedelta(microseconds=us)
    if data_type.kind is TypeKind.DATE:
        return lambda days: date.fromordinal(_EPOCH.toordinal() + days)
    if data_type.element is not None and data_type.key is None and (plain := _plain(data_type.element)) is not None:
        return lambda items: [None if each is None else plain(each) for each in items]
    return None


def avro(
    schema: str | Mapping[str, Any] | None = None, *, registry: str | None = None, subject: str | None = None
) -> Avro:
    """Values in Avro, for ``stream.parse(…)`` and ``ps.kafka(…, format=…)``.

    Parameters
    ----------
    schema : str or dict, optional
        The schema: reading, what the columns are (values that were written by another one are resolved to it);
        writing, what is written. Without it, that of the subject in the registry; writing, one made of the columns.
    registry : str, optional
        Address of a schema registry, ``"http://host:8081"``; with a user ``"https://user:password@host"``, which is
        never shown. Values then begin with the number of the schema that they were written by.
    subject : str, optional
        The subject in the registry, mostly ``"<topic>-value"``, which is what a sink takes where none is given.

    Examples
    --------
    >>> import penstock as ps
    >>> ads = ps.stream("ads", ps.kafka("localhost:9092", "ads"))
    >>> AD = {"type": "record", "name": "Ad", "fields": [{"name": "ad", "type": "string"}]}
    >>> ads.parse(ps.avro(AD)).schema.ddl
    'ad string not null'
    """
    if schema is not None and not isinstance(schema, str | Mapping):
        raise InvalidOption(option="schema", given=schema, allowed="a schema of Avro: JSON text or a dict")
    if subject is not None and (not isinstance(subject, str) or not subject):
        raise InvalidOption(option="subject", given=subject, allowed="the name of a subject")
    text = schema if schema is None or isinstance(schema, str) else json.dumps(schema)
    found = Avro(text, None if registry is None else Registry(registry), subject)
    if text is not None:
        found.columns()  # refused here, where it is written
    elif registry is None and subject is not None:
        raise InvalidOption(option="subject", given=subject, allowed="with registry=")
    return found
