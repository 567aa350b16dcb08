"""Data types of columns and the DDL they are written in; everything that carries a schema uses them."""

from __future__ import annotations

import re
from collections.abc import Iterable
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
    FLOAT = "float"
    DOUBLE = "double"
    DECIMAL = "decimal"
    STRING = "string"
    BINARY = "binary"
    TIMESTAMP = "timestamp"
    DATE = "date"
    ARRAY = "array"
    MAP = "map"
    STRUCT = "struct"
    INTERVAL = "interval"
    """What is added to times; only inside of expressions."""


INTEGER_BITS = {TypeKind.TINYINT: 8, TypeKind.SMALLINT: 16, TypeKind.INT: 32, TypeKind.BIGINT: 64}

_ARROW = {
    TypeKind.BOOLEAN: pa.bool_(),
    TypeKind.TINYINT: pa.int8(),
    TypeKind.SMALLINT: pa.int16(),
    TypeKind.INT: pa.int32(),
    TypeKind.BIGINT: pa.int64(),
    TypeKind.FLOAT: pa.float32(),
    TypeKind.DOUBLE: pa.float64(),
    TypeKind.STRING: pa.string(),
    TypeKind.BINARY: pa.binary(),
    TypeKind.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    TypeKind.DATE: pa.date32(),
}

_NESTED = (TypeKind.ARRAY, TypeKind.MAP, TypeKind.STRUCT, TypeKind.DECIMAL, TypeKind.INTERVAL)
# Spark's own synonyms.
_WORDS = {
    **{kind.value: kind for kind in TypeKind if kind not in _NESTED},
    "bool": TypeKind.BOOLEAN,
    "byte": TypeKind.TINYINT,
    "short": TypeKind.SMALLINT,
    "integer": TypeKind.INT,
    "long": TypeKind.BIGINT,
    "real": TypeKind.FLOAT,
}
_DECIMALS = ("decimal", "dec", "numeric")
_UNSUPPORTED = ("interval", "variant", "timestamp_ntz", "varchar", "char", "void", "time", "geometry", "geography")
DECIMAL_DIGITS_MAX = 38


@dataclass(frozen=True, slots=True, repr=False)
class DataType:
    """Type of a column.

    Attributes
    ----------
    element : DataType or None
        Of arrays: what they hold; of maps: the values.
    key : DataType or None
        Of maps: the keys.
    fields : tuple of Field
        Of structs.
    precision, scale : int
        Of decimals: how many digits, and how many of them behind the point.
    """

    kind: TypeKind
    element: DataType | None = None
    key: DataType | None = None
    fields: tuple[Field, ...] = ()
    precision: int = 0
    scale: int = 0

    def __repr__(self) -> str:
        return f"DataType({self.ddl})"

    @property
    def ddl(self) -> str:
        """The type in Spark's DDL."""
        if self.kind is TypeKind.DECIMAL:
            return f"decimal({self.precision},{self.scale})"
        if self.kind is TypeKind.STRUCT:
            inner = (f"{quoted(f.name)}: {f.type.ddl}{'' if f.nullable else ' not null'}" for f in self.fields)
            return f"struct<{', '.join(inner)}>"
        if self.key is not None and self.element is not None:
            return f"map<{self.key.ddl}, {self.element.ddl}>"
        return f"array<{self.element.ddl}>" if self.element else self.kind.value

    @property
    def is_integer(self) -> bool:
        """Whether values are whole numbers."""
        return self.kind in INTEGER_BITS

    @property
    def is_fractional(self) -> bool:
        """Whether values are floating-point numbers."""
        return self.kind in (TypeKind.FLOAT, TypeKind.DOUBLE)

    @property
    def is_numeric(self) -> bool:
        """Whether arithmetic is defined."""
        return self.is_integer or self.is_fractional or self.kind is TypeKind.DECIMAL

    @property
    def is_nested(self) -> bool:
        """Whether values are made of values: arrays, maps, structs."""
        return self.kind in (TypeKind.ARRAY, TypeKind.MAP, TypeKind.STRUCT)

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type."""
        if self.kind is TypeKind.DECIMAL:
            return pa.decimal128(self.precision, self.scale)
        if self.kind is TypeKind.STRUCT:
            return pa.struct([pa.field(f.name, f.type.arrow, f.nullable) for f in self.fields])
        if self.key is not None and self.element is not None:
            return pa.map_(self.key.arrow, self.element.arrow)
        return pa.list_(self.element.arrow) if self.element else _ARROW[self.kind]

    def bounds(self) -> tuple[int, int]:
        """Smallest and largest value of a whole-number type (timestamps and dates included)."""
        bits = 64 if self.kind is TypeKind.TIMESTAMP else 32 if self.kind is TypeKind.DATE else INTEGER_BITS[self.kind]
        return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


@dataclass(frozen=True, slots=True)
class Field:
    """One column, or one member of a struct."""

    name: str
    type: DataType
    nullable: bool = True

    @property
    def ddl(self) -> str:
        """The column in Spark's DDL."""
        return f"{quoted(self.name)} {self.type.ddl}{'' if self.nullable else ' not null'}"


def quoted(name: str) -> str:
    """A name as SQL and DDL write it: in backticks where it is not a plain word."""
    return name if _PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`"


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
BOOLEAN = DataType(TypeKind.BOOLEAN)
TINYINT = DataType(TypeKind.TINYINT)
SMALLINT = DataType(TypeKind.SMALLINT)
INT = DataType(TypeKind.INT)
BIGINT = DataType(TypeKind.BIGINT)
FLOAT = DataType(TypeKind.FLOAT)
DOUBLE = DataType(TypeKind.DOUBLE)
INTERVAL = DataType(TypeKind.INTERVAL)
STRING = DataType(TypeKind.STRING)
BINARY = DataType(TypeKind.BINARY)
TIMESTAMP = DataType(TypeKind.TIMESTAMP)
DATE = DataType(TypeKind.DATE)


def array_of(element: DataType) -> DataType:
    """Type of an array of ``element``."""
    return DataType(TypeKind.ARRAY, element)


def map_of(key: DataType, value: DataType) -> DataType:
    """Type of a map."""
    return DataType(TypeKind.MAP, value, key)


def struct_of(fields: Iterable[Field]) -> DataType:
    """Type of a struct."""
    return DataType(TypeKind.STRUCT, fields=tuple(fields))


def decimal_of(precision: int, scale: int) -> DataType:
    """Type of a decimal, as near to what is asked for as 38 digits allow."""
    return DataType(
        TypeKind.DECIMAL, precision=min(precision, DECIMAL_DIGITS_MAX), scale=min(scale, DECIMAL_DIGITS_MAX)
    )


_TOKEN = re.compile(r"\s*(`(?:[^`]|``)*`|[A-Za-z_][A-Za-z0-9_]*|[<>,:()]|\d+|\S)")


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
        if word == "map":
            self.take("<")
            key = self.data_type()
            self.take(",")
            element = self.data_type()
            self.take(">")
            return map_of(key, element)
        if word == "struct":
            self.take("<")
            members = self.fields(">")
            self.take(">")
            return struct_of(members)
        if word in _DECIMALS:
            return self._decimal()
        if word in _UNSUPPORTED:
            raise self.fail(f"type '{word}' is not supported", hint=f"Supported: {_ALL}.")
        if word not in _WORDS:
            raise self.fail(f"'{word}' is not a type", hint=f"Types: {_ALL}.{nearest(word, _WORDS)}")
        return DataType(_WORDS[word])

    def _decimal(self) -> DataType:
        sizes = [10, 0]
        if self.peek() == "(":
            self.take()
            sizes[0] = self._number()
            if self.peek() == ",":
                self.take()
                sizes[1] = self._number()
            self.take(")")
        precision, scale = sizes
        if not 1 <= precision <= DECIMAL_DIGITS_MAX or scale > precision:
            raise self.fail(f"decimal({precision},{scale}) has no such size", hint="decimal(1,0) to decimal(38,38).")
        return decimal_of(precision, scale)

    def _number(self) -> int:
        token = self.take()
        if not token.isdecimal():
            raise self.fail(f"{token!r} found where a number was expected")
        return int(token)

    def fields(self, end: str | None = None) -> tuple[Field, ...]:
        """Read columns up to ``end``, which is not taken."""
        found = []
        while self.peek() not in (None, end):
            name = self.take()
            if name.startswith("`"):
                name = name[1:-1].replace("``", "`")
            if self.peek() == ":":
                self.take()
            data_type = self.data_type()
            nullable = True
            if (self.peek() or "").lower() == "not":
                self.take()
                if self.take().lower() != "null":
                    raise self.fail("'not' must be followed by 'null'")
                nullable = False
            found.append(Field(name, data_type, nullable))
            if self.peek() != end:
                self.take(",")
                if self.peek() is None:
                    raise self.fail("ends after a comma")
        if not found:
            raise self.fail("has no columns" if end is None else "a struct has no members")
        return tuple(found)


_ALL = f"{', '.join(_WORDS)}, decimal(p,s), array<…>, map<…>, struct<…>"


def parse_type(text: str) -> DataType:
    """Read a single type such as ``"bigint"`` or ``"array<string>"``; one of Spark's says its own text."""
    told = getattr(text, "simpleString", None)
    if callable(told) and not isinstance(text, type):
        text = told()
    if not isinstance(text, str):
        raise SchemaError(ddl=repr(text), problem="is not a type's text", hint='Example: "decimal(10,2)".')
    reader = DdlReader(text)
    parsed = reader.data_type()
    if reader.peek() is not None:
        raise reader.fail(f"unexpected {reader.peek()!r} after the type")
    return parsed
