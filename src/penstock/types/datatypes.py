"""Data types of columns and the DDL they are written in; everything that carries a schema uses them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from penstock.errors import SchemaError, nearest


class TypeKind(Enum):
    """Kinds of column types; the value is the DDL word."""

    BOOLEAN = "boolean"
    TINYINT = "tinyint"
    SMALLINT = "smallint"
    INT = "int"
    BIGINT = "bigint"
    DOUBLE = "double"
    STRING = "string"
    BINARY = "binary"
    TIMESTAMP = "timestamp"
    DATE = "date"
    ARRAY = "array"


INTEGER_BITS = {TypeKind.TINYINT: 8, TypeKind.SMALLINT: 16, TypeKind.INT: 32, TypeKind.BIGINT: 64}

_ARROW = {
    TypeKind.BOOLEAN: pa.bool_(),
    TypeKind.TINYINT: pa.int8(),
    TypeKind.SMALLINT: pa.int16(),
    TypeKind.INT: pa.int32(),
    TypeKind.BIGINT: pa.int64(),
    TypeKind.DOUBLE: pa.float64(),
    TypeKind.STRING: pa.string(),
    TypeKind.BINARY: pa.binary(),
    TypeKind.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    TypeKind.DATE: pa.date32(),
}

# Spark's own synonyms. `float` is held as a double: wider, never narrower, and equal in both forms.
_WORDS = {
    **{kind.value: kind for kind in TypeKind if kind is not TypeKind.ARRAY},
    "bool": TypeKind.BOOLEAN,
    "byte": TypeKind.TINYINT,
    "short": TypeKind.SMALLINT,
    "integer": TypeKind.INT,
    "long": TypeKind.BIGINT,
    "float": TypeKind.DOUBLE,
    "real": TypeKind.DOUBLE,
}
_UNSUPPORTED = (
    "decimal",
    "dec",
    "numeric",
    "map",
    "struct",
    "interval",
    "variant",
    "timestamp_ntz",
    "varchar",
    "char",
)


@dataclass(frozen=True, slots=True)
class DataType:
    """Type of a column; ``element`` is set for arrays only."""

    kind: TypeKind
    element: DataType | None = None

    @property
    def ddl(self) -> str:
        """The type in Spark's DDL."""
        return f"array<{self.element.ddl}>" if self.element else self.kind.value

    @property
    def is_integer(self) -> bool:
        """Whether this is one of the whole-number types."""
        return self.kind in INTEGER_BITS

    @property
    def is_numeric(self) -> bool:
        """Whether arithmetic is defined."""
        return self.is_integer or self.kind is TypeKind.DOUBLE

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of such a column."""
        return pa.list_(self.element.arrow) if self.element else _ARROW[self.kind]

    def bounds(self) -> tuple[int, int]:
        """Smallest and largest value of a whole-number type (timestamps and dates included)."""
        bits = 64 if self.kind is TypeKind.TIMESTAMP else 32 if self.kind is TypeKind.DATE else INTEGER_BITS[self.kind]
        return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


BOOLEAN = DataType(TypeKind.BOOLEAN)
TINYINT = DataType(TypeKind.TINYINT)
SMALLINT = DataType(TypeKind.SMALLINT)
INT = DataType(TypeKind.INT)
BIGINT = DataType(TypeKind.BIGINT)
DOUBLE = DataType(TypeKind.DOUBLE)
STRING = DataType(TypeKind.STRING)
BINARY = DataType(TypeKind.BINARY)
TIMESTAMP = DataType(TypeKind.TIMESTAMP)
DATE = DataType(TypeKind.DATE)


def array_of(element: DataType) -> DataType:
    """Type of an array of ``element``."""
    return DataType(TypeKind.ARRAY, element)


_TOKEN = re.compile(r"\s*(`[^`]*`|[A-Za-z_][A-Za-z0-9_]*|[<>,:()]|\d+|\S)")


class DdlReader:
    """Reads one DDL text, token by token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _TOKEN.findall(text)
        self._at = 0

    def fail(self, problem: str, hint: str = "") -> SchemaError:
        """Build the error for this text."""
        return SchemaError(ddl=self._text, problem=problem, hint=hint)

    def peek(self) -> str | None:
        """Return the next token without taking it."""
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def take(self, expected: str | None = None) -> str:
        """Take the next token, which must be ``expected`` where that is given."""
        token = self.peek()
        if token is None:
            raise self.fail(f"ends where {expected or 'more'!r} was expected")
        if expected is not None and token != expected:
            raise self.fail(f"{token!r} found where {expected!r} was expected")
        self._at += 1
        return token

    def data_type(self) -> DataType:
        """Read one type."""
        word = self.take().lower()
        if word == "array":
            self.take("<")
            element = self.data_type()
            self.take(">")
            return array_of(element)
        if word in _UNSUPPORTED:
            raise self.fail(f"type '{word}' is not supported", hint=f"Supported: {', '.join(_WORDS)}, array<…>.")
        if word not in _WORDS:
            raise self.fail(
                f"'{word}' is not a type",
                hint=f"Types: {', '.join(_WORDS)}, array<…>.{nearest(word, _WORDS)}",
            )
        return DataType(_WORDS[word])


def parse_type(text: str) -> DataType:
    """Read a single type such as ``"bigint"`` or ``"array<string>"``."""
    reader = DdlReader(text)
    parsed = reader.data_type()
    if reader.peek() is not None:
        raise reader.fail(f"unexpected {reader.peek()!r} after the type")
    return parsed
