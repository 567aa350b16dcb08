"""Which types map, in both directions: what a column of the server is here, and what a column of ours is made as."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.connectors.postgres import values as v
from penstock.types import DataType, TypeKind, array_of, decimal_of
from penstock.types.datatypes import DECIMAL_DIGITS_MAX

UNBOUNDED = decimal_of(38, 18)
"""What a numeric without precision is, as for Spark."""
_NUMERIC = 1700
# By the numbers that PostgreSQL gives its types: what they are here, and what reads their binary form.
_READ: dict[int, tuple[TypeKind, Callable[[bytes], Any]]] = {
    16: (TypeKind.BOOLEAN, v.boolean),
    17: (TypeKind.BINARY, bytes),
    20: (TypeKind.BIGINT, v.big),
    21: (TypeKind.SMALLINT, v.short),
    23: (TypeKind.INT, v.integer),
    26: (TypeKind.BIGINT, v.unsigned),
    700: (TypeKind.DOUBLE, v.single),
    701: (TypeKind.DOUBLE, v.double),
    1082: (TypeKind.DATE, v.date),
    1114: (TypeKind.TIMESTAMP, v.timestamp),
    1184: (TypeKind.TIMESTAMP, v.timestamp),
    # Types that have no place here are the text that the server writes for them.
    650: (TypeKind.STRING, v.network),
    774: (TypeKind.STRING, v.hardware),
    829: (TypeKind.STRING, v.hardware),
    869: (TypeKind.STRING, v.network),
    1083: (TypeKind.STRING, v.time),
    1186: (TypeKind.STRING, v.interval),
    1266: (TypeKind.STRING, v.time),
    1560: (TypeKind.STRING, v.bits),
    1562: (TypeKind.STRING, v.bits),
    2950: (TypeKind.STRING, v.uuid),
    3802: (TypeKind.STRING, v.jsonb),
    **dict.fromkeys((18, 19, 25, 114, 142, 1042, 1043), (TypeKind.STRING, bytes.decode)),
}
_MADE = {
    TypeKind.BOOLEAN: "boolean",
    TypeKind.TINYINT: "smallint",
    TypeKind.SMALLINT: "smallint",
    TypeKind.INT: "integer",
    TypeKind.BIGINT: "bigint",
    TypeKind.FLOAT: "real",
    TypeKind.DOUBLE: "double precision",
    TypeKind.STRING: "text",
    TypeKind.BINARY: "bytea",
    TypeKind.TIMESTAMP: "timestamp with time zone",
    TypeKind.DATE: "date",
}
# What a column of a table that is there may be, beside what we would make it: nothing is lost in it.
_WIDER = {
    TypeKind.TINYINT: ("integer", "bigint", "numeric", "double precision"),
    TypeKind.SMALLINT: ("integer", "bigint", "numeric", "double precision"),
    TypeKind.INT: ("bigint", "numeric", "double precision"),
    TypeKind.BIGINT: ("numeric",),
    TypeKind.FLOAT: ("double precision", "numeric"),
    TypeKind.DOUBLE: ("numeric",),
    TypeKind.STRING: ("character varying", "character", "citext", "json", "jsonb", "uuid", "name"),
    TypeKind.TIMESTAMP: ("timestamp without time zone",),
}
_WHOLE_DIGITS = {"smallint": 4, "integer": 9, "bigint": 18}
_DIGITS = re.compile(r"\(([^)]*)\)")


# --- from the server --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PgType:
    """A type of the server: a domain is what it is made of.

    Attributes
    ----------
    element : PgType or None
        Of arrays: what they hold, in ``dimensions``.
    precision, scale : int or None
        Of numerics that have them.
    """

    oid: int
    name: str
    is_enum: bool = False
    element: PgType | None = None
    dimensions: int = 1
    precision: int | None = None
    scale: int = 0

    @property
    def data_type(self) -> DataType | None:
        """What it is here; None where it does not map."""
        if self.element is not None:
            held = self.element.data_type
            for _ in range(self.dimensions if held is not None else 0):
                assert held is not None
                held = array_of(held)
            return held
        if self.oid == _NUMERIC:
            return self._decimal
        if self._is_text:
            return DataType(TypeKind.STRING)
        return DataType(_READ[self.oid][0]) if self.oid in _READ else None

    @property
    def _is_text(self) -> bool:
        return self.is_enum or self.name == "citext"

    @property
    def _decimal(self) -> DataType:
        if self.precision is None:
            return UNBOUNDED
        # numeric(5,-2) holds hundreds, and numeric(3,5) has zeros behind the point.
        scale = max(self.scale, 0)
        precision = max(self.precision - min(self.scale, 0), scale)
        return decimal_of(precision, scale) if precision <= DECIMAL_DIGITS_MAX else DataType(TypeKind.STRING)

    def reader(self) -> Callable[[bytes], Any]:
        """What reads a value's binary form; it raises `BadRecord`."""
        if self.element is not None:
            return v.array(self.element.reader(), self.dimensions)
        if self.oid == _NUMERIC:
            wanted = self._decimal
            if wanted.kind is TypeKind.STRING:
                return v.numeric_text
            return v.numeric(wanted.precision, wanted.scale, rounds=self.precision is None)
        return bytes.decode if self._is_text else _READ[self.oid][1]


@dataclass(frozen=True)
class TypeRow:
    """A row of ``pg_type``."""

    oid: int
    name: str
    kind: str
    base: int
    base_modifier: int
    dimensions: int
    element: int
    category: str


def type_of(oid: int, modifier: int, dimensions: int, rows: Mapping[int, TypeRow]) -> PgType:
    """Put a column's type together from the rows that it is made of."""
    row = rows[oid]
    if row.kind == "d":
        return type_of(row.base, row.base_modifier if modifier < 0 else modifier, row.dimensions or dimensions, rows)
    if row.category == "A" and row.element:
        return PgType(oid, row.name, element=type_of(row.element, modifier, 0, rows), dimensions=max(dimensions, 1))
    if oid == _NUMERIC and modifier >= 0:
        digits = modifier - 4
        return PgType(oid, row.name, precision=(digits >> 16) & 0xFFFF, scale=((digits & 0x7FF) ^ 1024) - 1024)
    return PgType(oid, row.name, row.kind == "e")


# --- to the server ----------------------------------------------------------------------------------------------------


def is_json(data_type: DataType) -> bool:
    """Whether values are stored as JSON: structs, maps, and arrays of anything that is made of values."""
    return (
        data_type.key is not None
        or data_type.kind is TypeKind.STRUCT
        or (data_type.element is not None and data_type.element.is_nested)
    )


def made(data_type: DataType) -> str:
    """The type that a column is made with."""
    if is_json(data_type):
        return "jsonb"
    if data_type.element is not None:
        return f"{made(data_type.element)}[]"
    if data_type.kind is TypeKind.DECIMAL:
        return f"numeric({data_type.precision},{data_type.scale})"
    return _MADE[data_type.kind]


def fits(data_type: DataType, declared: str) -> bool:
    """Whether a column that is declared like that takes all values of a type."""
    digits = _DIGITS.search(declared)
    plain = " ".join(_DIGITS.sub("", declared).split())
    if is_json(data_type):
        return plain in ("jsonb", "json", "text")
    if data_type.element is not None:
        return declared.endswith("[]") and fits(data_type.element, declared.removesuffix("[]"))
    if data_type.kind is TypeKind.DECIMAL:
        whole = data_type.precision - data_type.scale
        if plain != "numeric":
            return data_type.scale == 0 and whole <= _WHOLE_DIGITS.get(plain, 0)
        if digits is None:
            return True
        precision, _, scale = digits[1].partition(",")
        return data_type.scale <= int(scale or 0) and whole <= int(precision) - int(scale or 0)
    return plain == _MADE[data_type.kind] or plain in _WIDER.get(data_type.kind, ())
