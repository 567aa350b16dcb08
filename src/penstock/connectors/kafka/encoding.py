"""Records as a topic has them: key, value, headers and partition, from columns; sinks and their stagers encode here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from penstock.connectors.formats.base import Encoding, Format
from penstock.connectors.kafka.headers import HEADERS, Headers, is_headers, writer
from penstock.connectors.plain import check_json, json_encoder, plain_dicts
from penstock.errors import BadRecord, TypeMismatch
from penstock.types import Record, Schema, TypeKind, attribute

Entry = tuple[bytes | None, bytes | None, Headers | None, int]
"""Key, value, headers, and the partition or -1: what goes to the topic."""
RECORD_BYTES_MAX = 1_000_000
_OVERHEAD_BYTES = 200
_json = json_encoder()
_WHOLE = (TypeKind.TINYINT, TypeKind.SMALLINT, TypeKind.INT, TypeKind.BIGINT)


@dataclass(frozen=True)
class Layout:
    """Which columns make up a record of the topic.

    Attributes
    ----------
    key, headers, partition : str or None
        Columns.
    value : str or None
        The column with the value; None: a JSON object of all columns but those of headers and partition.
    """

    key: str | None = None
    value: str | None = None
    headers: str | None = None
    partition: str | None = None
    format: Format | None = None
    """How the value is written, where that is not JSON."""
    encoding: Encoding | None = None
    """The same, settled."""

    def settled(self, schema: Schema, topic: str) -> Layout:
        """Check the columns, and settle how the value is written; before anything starts."""
        self.check(schema)
        if self.format is None:
            return self
        return replace(self, encoding=self.format.encoding(self._written(schema), topic))

    def _written(self, schema: Schema) -> Schema:
        """The columns that the value is made of."""
        return Schema(tuple(each for each in schema.fields if each.name not in (self.headers, self.partition)))

    def check(self, schema: Schema) -> None:
        """Refuse columns that are not there, or of another type."""
        if self.headers is not None and not is_headers(found := schema.field(self.headers).type):
            what = f"headers='{self.headers}' is {found.ddl}, and has to be {HEADERS.ddl}, or string."
            raise TypeMismatch(what=what)
        for option, column, kinds in (
            ("key", self.key, None),
            ("value", self.value, (TypeKind.STRING, TypeKind.BINARY)),
            ("partition", self.partition, _WHOLE),
        ):
            if column is None:
                continue
            found = schema.field(column).type
            if kinds is not None and found.kind not in kinds:
                words = " or ".join(kind.value for kind in kinds)
                raise TypeMismatch(what=f"{option}='{column}' is {found.ddl}, and has to be {words}.")
            if found.kind is TypeKind.ARRAY:
                raise TypeMismatch(what=f"{option}='{column}' is {found.ddl}, which cannot be a key.")
        if self.value is None and self.format is None:
            check_json(self._written(schema))

    def encoder(self, schema: Schema, record_bytes_max: int) -> Callable[[list[Record]], list[Entry]]:
        """Return what turns records into entries."""
        key, value = self._texts(schema, self.key), self._value(schema)
        top_of, place_of = self._tops(schema), _reading(self.partition)
        limit = record_bytes_max - _OVERHEAD_BYTES

        def encode(rows: list[Record]) -> list[Entry]:
            keys, values = key(rows), value(rows)
            tops = list(map(top_of, rows)) if top_of is not None else [None] * len(rows)
            places = list(map(_partition, map(place_of, rows))) if place_of is not None else [-1] * len(rows)
            for each, own in zip(values, keys, strict=True):
                size_bytes = len(each or b"") + len(own or b"")
                if size_bytes > limit:
                    raise BadRecord(
                        f"a record of {size_bytes} bytes is larger than the {limit} that the client sends.",
                        hint='Raise it: options={"message.max.bytes": …}, and max.message.bytes of the topic.',
                    )
            return list(zip(keys, values, tops, places, strict=True))

        return encode

    def _tops(self, schema: Schema) -> Callable[[Record], Headers | None] | None:
        """What makes the headers of a record, if a column has them."""
        if self.headers is None:
            return None
        of, make = attrgetter(attribute(self.headers)), writer(schema.field(self.headers).type)
        return lambda row: make(of(row))

    def _value(self, schema: Schema) -> Callable[[list[Record]], list[bytes | None]]:
        if self.value is not None:
            return self._texts(schema, self.value)
        if self.encoding is not None:
            return self.encoding.encoder()  # type: ignore[return-value]  # lists of bytes, none of them None
        apart: list[str] = [each for each in (self.headers, self.partition) if each is not None]
        dicts, encode = plain_dicts(schema), _json.encode

        def objects(rows: list[Record]) -> list[bytes | None]:
            found = dicts(rows)
            for each in found if apart else ():
                for name in apart:
                    del each[name]
            return [encode(each) for each in found]

        return objects

    @staticmethod
    def _texts(schema: Schema, column: str | None) -> Callable[[list[Record]], list[bytes | None]]:
        if column is None:
            return lambda rows: [None] * len(rows)
        kind = schema.field(column).type.kind
        of = attrgetter(attribute(column))
        if kind is TypeKind.BINARY:
            return lambda rows: list(map(of, rows))
        if kind is TypeKind.STRING:
            return lambda rows: [None if (each := of(row)) is None else each.encode() for row in rows]
        if kind in _WHOLE:
            return lambda rows: [None if (each := of(row)) is None else b"%d" % each for row in rows]
        dicts, encode = plain_dicts(Schema((schema.field(column),))), _json.encode

        def plain(rows: list[Record]) -> list[bytes | None]:
            found = (each[column] for each in dicts(rows))
            return [None if each is None else encode(each).strip(b'"') for each in found]

        return plain


def _reading(column: str | None) -> Callable[[Record], Any] | None:
    return None if column is None else attrgetter(attribute(column))


def _partition(value: Any) -> int:
    if value is None:
        return -1
    if not 0 <= value < 1 << 31:
        raise BadRecord(f"{value!r} is no partition.")
    return int(value)


def weight(entries: list[Entry]) -> int:
    """About how many bytes some entries are."""
    return sum(len(key or b"") + len(value or b"") + 64 for key, value, _, _ in entries)
