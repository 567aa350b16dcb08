"""Random expressions over random records, from the table of functions itself; tests compare them with Spark's values."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

from penstock.errors import PenstockError
from penstock.expr import Column, call, coalesce, col, infer, lit, when
from penstock.expr.column import Op
from penstock.expr.table import FUNCTIONS, KINDS, Function, Parameter
from penstock.types import BOOLEAN, DataType, Record, Schema, TypeKind

DDL = (
    "id int, n tinyint, h smallint, i int, j int, b bigint, c bigint, d double, e double, x float, p decimal(10,2), q decimal(18,6), "
    "r decimal(38,10), s string, u string, num string, iso string, js string, bin binary, t timestamp, t2 timestamp, day date, "
    "day2 date, f boolean, g boolean, ws array<string>, is_ array<int>, ds array<double>, ps array<decimal(6,2)>, m map<string, int>, "
    "st struct<x: int, y: string, z: double>, sts array<struct<k: string, v: int>>"
)
SCHEMA = Schema.parse(DDL)
NAN, INF = float("nan"), float("inf")
TEXTS = [
    "",
    "a",
    "Ab",
    "hello World",
    " x ",
    "a,b,,c",
    "ß",
    "é",
    "日本",
    "😀x",
    "12",
    "-7.5",
    "1e3",
    "abcabc",
    "a\tb",
    "%_",
    "X.Y",
]
NUMBERS = ["0", " 42 ", "-1", "3.75", "1e2", "x", "", "2147483648", "NaN", "+7", ".5", "5."]
MOMENTS = [
    "2024-02-29",
    "2024-02-29 12:30:00.5",
    "2026-03-29T01:30:00Z",
    "1999-12-31 23:59:59+02:00",
    "2024-1-2",
    "no",
    "",
    "1582-10-15",
]
JSONS = [
    '{"a":1,"b":[1,2,{"c":null}]}',
    '{"a":{"b":"x"}}',
    "[1,2,3]",
    "null",
    "oops",
    '{"a":1.50,"d":"2024-01-01"}',
    '""',
    '{"a":true}',
]
PLAIN = {
    "string": [*TEXTS[:8], "[a-z]+", "(a)(b)?", ",", "yyyy-MM-dd", "HH:mm:ss", "month", "day", "hour", "week", "$.a", "$.b[1]", "UTC", "Asia/Tokyo", "+02:00", "MON"],
    "int": [0, 1, 2, 3, -1, -2, 5, 10, 31, 256],
    "bigint": [0, 1, -1, 1000, 1 << 33],
    "double": [0.0, 1.0, 0.5, -2.5, 1e10],
    "number": [0, 1, 2, -3, 2.5, Decimal("1.25"), Decimal("-0.5")],
    "integer": [0, 1, 2, 7, -1],
    "boolean": [True, False],
}  # fmt: skip


def value(random: Random, kind: DataType, name: str) -> Any:
    """A value of a column; a quarter is null."""
    if name == "id" or random.random() > 0.2:
        return _value(random, kind, name)
    return None


def _value(random: Random, kind: DataType, name: str = "") -> Any:
    word = kind.kind
    if kind.is_integer:
        low, high = kind.bounds()
        return random.choice(
            [0, 1, 2, 3, 5, -1, -7, 12, 100, random.choice([low, high, low + 1, random.randint(low, high)])]
        )
    if kind.is_fractional:
        made = random.choice(
            [
                0.0,
                -0.0,
                1.0,
                2.5,
                -1.25,
                0.1,
                3.0,
                1e-5,
                12345.678,
                random.choice([NAN, INF, -INF, 1e300, 1e18, 2.0**53]),
            ]
        )
        return made if word is TypeKind.DOUBLE or abs(made) < 1e30 or made != made else INF
    if word is TypeKind.DECIMAL:
        digits = random.choice([1, 3, kind.precision - 2])
        return Decimal(random.randint(-(10**digits), 10**digits)).scaleb(-kind.scale)
    if word is TypeKind.STRING:
        return random.choice({"num": NUMBERS, "iso": MOMENTS, "js": JSONS}.get(name, TEXTS))
    if word is TypeKind.BINARY:
        return random.choice([b"", b"abc", b"\x00\xff", "é".encode()])
    if word is TypeKind.BOOLEAN:
        return random.random() < 0.5
    if word is TypeKind.TIMESTAMP:
        return datetime(2024, 2, 29, 23, 59, tzinfo=UTC) + timedelta(
            microseconds=random.choice([0, 1, -1, 10**6, 86_400_000_000, random.randint(-(10**16), 10**16)])
        )
    if word is TypeKind.DATE:
        return date(2024, 2, 29) + timedelta(days=random.choice([0, 1, -1, 31, 366, random.randint(-90000, 90000)]))
    if word is TypeKind.STRUCT:
        return {each.name: value(random, each.type, each.name) for each in kind.fields}
    assert kind.element is not None
    many = range(random.choice([0, 1, 2, 3, 4]))
    if kind.key is not None:
        return {random.choice("klm"): value(random, kind.element, "") for _ in many}
    return [value(random, kind.element, "") for _ in many]


def rows(random: Random, count: int) -> list[Record]:
    """Records, numbered by the column ``id``."""
    return [
        SCHEMA.coerce({each.name: n if each.name == "id" else value(random, each.type, each.name) for each in SCHEMA})
        for n in range(count)
    ]


Drawn = tuple[Column, DataType]
BINARY = [Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.MOD, Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE, Op.EQ_NULL_SAFE]
CASTS = "boolean tinyint smallint int bigint float double decimal(10,2) decimal(20,6) decimal(38,18) string binary timestamp date".split()
SKIPPED = {
    "raise_error",
    "printf",
    "format_string",
    "repeat",
    "lpad",
    "rpad",
    "space",
    "array_repeat",
    "sequence",
    "factorial",
    "format_number",
}
"""What makes huge values, or is compared elsewhere."""


class Drawer:
    """Makes expressions of those that it has made before."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.pool: list[Drawn] = [(col(each.name), each.type) for each in SCHEMA]
        self._functions = sorted(
            name for name in FUNCTIONS if not name.startswith("_") and name not in SKIPPED and name not in ("getItem",)
        )
        self.refused: list[tuple[str, str]] = []

    def draw(self, count: int) -> list[Column]:
        """So many new expressions."""
        made: list[Column] = []
        tries = 0
        while len(made) < count and tries < count * 40:
            tries += 1
            column = self._one()
            if column is None or len(str(column)) > 300:
                continue
            try:
                kind = infer(column, SCHEMA).type
            except PenstockError as error:
                self.refused.append((str(column), str(error)))
                continue
            made.append(column)
            self.pool.append((column, kind))
        return made

    def _any(self, fits: Any) -> Column | None:
        pool = self.pool[: len(SCHEMA)] if self._random.random() < 0.6 else self.pool
        found = [column for column, kind in pool if fits(kind)]
        return self._random.choice(found) if found else None

    def _one(self) -> Column | None:
        way = self._random.random()
        if way < 0.15:
            return self._binary()
        if way < 0.25:
            return self._cast()
        if way < 0.33:
            return self._choice()
        return self._call(FUNCTIONS[self._random.choice(self._functions)])

    def _binary(self) -> Column | None:
        op = self._random.choice(BINARY)
        left = self._any(lambda kind: kind.is_numeric if op in BINARY[:5] else not kind.is_nested)
        if left is None:
            return None
        kind = infer(left, SCHEMA).type
        right = self._any(lambda other: other.is_numeric if kind.is_numeric else other == kind)
        return None if right is None else Column(op, (left, right))

    def _cast(self) -> Column | None:
        given = self._any(lambda kind: not kind.is_nested)
        if given is None:
            return None
        to = self._random.choice(CASTS)
        return given.try_cast(to) if self._random.random() < 0.6 else given.cast(to)

    def _choice(self) -> Column | None:
        condition = self._any(lambda kind: kind == BOOLEAN)
        one = self._any(lambda _: True)
        if condition is None or one is None:
            return None
        kind = infer(one, SCHEMA).type
        other = self._any(lambda found: found == kind or (found.is_numeric and kind.is_numeric))
        if other is None:
            return None
        way = self._random.randrange(5)
        if way == 0:
            return when(condition, one).otherwise(other)
        if way == 1:
            return coalesce(one, other)
        if way == 2:
            return ~condition
        second = self._any(lambda found: found == BOOLEAN)
        assert second is not None
        return condition & second if way == 3 else condition | second

    def _call(self, function: Function) -> Column | None:
        args: list[Column] = []
        for parameter in function.parameters:
            if parameter.is_function:
                return None
            times = self._random.randrange(1, 4) if parameter.repeated else 1
            if parameter.optional and self._random.random() < 0.5:
                break
            for _ in range(times):
                arg = self._argument(parameter)
                if arg is None:
                    return None
                args.append(arg)
        return call(function.name, *args)

    def _argument(self, parameter: Parameter) -> Column | None:
        if not parameter.is_column or self._random.random() < 0.1:
            values = PLAIN.get(parameter.kind)
            if values is not None and self._random.random() < 0.85:
                return lit(self._random.choice(values))
        return self._any(KINDS[parameter.kind])
