"""Expressions beside the Spark SQL that says what they mean. To add one, add a line; `test_expressions` does the rest.

A case is evaluated over rows of awkward values: nulls, ends of ranges, NaN, both zeros, texts that almost are numbers.
Where we mean something else than Spark, the case says why (``deviates``): such a line is a deviation that we know of.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from penstock.expr import Column, coalesce, col, when
from penstock.types import Schema

SCHEMA = Schema.parse(
    "b boolean, t tinyint, i int, l bigint, m bigint, d double, e double, x string, z string, y binary, "
    "at timestamp, day date, words array<string>, n string, f string"
)
_DAY = 86_400_000_000
VALUES: dict[str, list[Any]] = {
    "b": [True, False, None],
    "t": [0, 1, -1, 127, -128, None, 7],
    "i": [0, 1, -1, 3, 2**31 - 1, -(2**31), None, 10, -7],
    "l": [0, 1, -1, 7, -7, 2**63 - 1, -(2**63), None, 10**15, 2**53 + 1, 100],
    "m": [3, -3, 0, 1, None, 2**62, -(2**63), -1],
    "d": [
        0.0,
        -0.0,
        0.5,
        -1.5,
        2.5,
        1e15 + 0.3,
        math.nan,
        math.inf,
        -math.inf,
        None,
        1.7e-6,
        123456.789,
        -3.0,
        2.0**53,
    ],
    "e": [1.0, math.nan, 0.0, -2.0, None, 0.1, math.inf, 3.5, -0.5],
    "x": ["", "a", "Ab", "aB,c,", " ab ", None, "ß", "ΑΣ", "é😀b", "a\n", "İ", "b", ",", "\tab", "a.b$", "ŉ"],
    "z": ["a", "", "b", None, "AB", "é", "ab"],
    "y": [b"", b"a", b"ab", None, b"\xff\x00", "é".encode()],
    "at": [0, 1, -1, 1_700_000_000_123_456, -_DAY - 1, None, _DAY, 951_782_400_000_000, 1_711_846_800_000_000],
    "day": [0, -1, 19_000, None, 11_016, -719_162],
    "words": [[], ["a"], ["a", None, "b"], None],
    "n": ["0", "12", "-7", "+3", " 4 ", None, "007", "\t5\n", str(2**63 - 1)],
    "f": ["1.5", "-0", "1e3", ".5", "2.", "NaN", "Infinity", "-inf", " 7 ", None, "\t1.25", "+1E-2"],
}
ROWS = [{name: values[i % len(values)] for name, values in VALUES.items()} for i in range(16 * 13)]


@dataclass(frozen=True)
class Case:
    """An expression, and the Spark SQL that it stands for."""

    sql: str
    column: Column
    deviates: str = ""

    def __str__(self) -> str:
        return self.sql


b, t, i, l, m, d, e, x, z, y, at, day, words, n, f = map(col, SCHEMA.names)  # noqa: E741
_NAN = "to Spark NaN equals itself and is the largest number; here, as in IEEE 754, it equals and exceeds nothing"

CASES = [
    # comparisons
    Case("l = m", l == m),
    Case("l <> m", l != m),
    Case("l < i", l < i),
    Case("i <= l", i <= l),
    Case("x > z", x > z),
    Case("x >= 'a'", x >= "a"),
    Case("y = X'61'", y == b"a"),
    Case("at > TIMESTAMP_MICROS(0)", at > datetime(1970, 1, 1)),
    Case("day = DATE'2000-02-29'", day == date(2000, 2, 29)),
    Case("d = e", d == e, deviates=_NAN),
    Case("d < e", d < e, deviates=_NAN),
    Case("d > 0.5D", d > 0.5, deviates=_NAN),
    Case("d <= 0.5D", d <= 0.5),
    Case("l = d", l == d),
    Case("i < d", i < d, deviates=_NAN),
    Case("b = true", b == True),  # noqa: E712
    # arithmetic
    Case("CAST(i AS BIGINT) + t", i + t),
    Case("l + m", l + m),
    Case("l - m", l - m),
    Case("l * m", l * m),
    Case("l % m", l % m),
    Case("l % 3", l % 3),
    Case("CAST(i AS BIGINT) * i", i * i),
    Case("-l", -l),
    Case("abs(l)", l.abs()),
    Case("abs(d)", d.abs()),
    Case("-d", -d),
    Case("d + e", d + e),
    Case("d * l", d * l),
    Case("d / e", d / e),
    Case("i / t", i / t),
    Case("l / m", l / m),
    Case("d % e", d % e),
    Case("i % 2.5D", i % 2.5),
    # logic and nulls
    Case("b AND x = 'a'", b & (x == "a")),
    Case("b OR z = 'b'", b | (z == "b")),
    Case("NOT b", ~b),
    Case("l IS NULL", l.is_null()),
    Case("l IS NOT NULL", l.is_not_null()),
    Case("coalesce(l, m, 0)", coalesce(l, m, 0)),
    Case("coalesce(x, z)", coalesce(x, z)),
    Case("CASE WHEN b THEN x WHEN l > 0 THEN z END", when(b, x).when(l > 0, z)),
    Case("CASE WHEN l > 0 THEN l ELSE 0 END", when(l > 0, l).otherwise(0)),
    Case("CASE WHEN m <> 0 THEN l % m ELSE -1 END", when(m != 0, l % m).otherwise(-1)),
    Case("l IN (0, 7, 100)", l.isin(0, 7, 100)),
    Case("x IN ('a', 'b')", x.isin("a", "b")),
    Case("d IN (0.5D, 0.0D)", d.isin(0.5, 0.0)),
    Case("i BETWEEN 0 AND 10", i.between(0, 10)),
    Case("d BETWEEN -2.0D AND e", d.between(-2.0, e), deviates=_NAN),
    # texts
    Case("contains(x, 'a')", x.contains("a")),
    Case("startswith(x, 'a')", x.startswith("a")),
    Case("endswith(x, 'b')", x.endswith("b")),
    Case("contains(y, X'00')", y.contains(b"\x00")),
    Case("lower(x)", x.lower()),
    Case("upper(x)", x.upper()),
    Case("trim(x)", x.trim()),
    Case("length(x)", x.length()),
    Case("length(y)", y.length()),
    Case("size(words)", words.length()),
    Case("substr(x, 2, 2)", x.substr(2, 2)),
    Case("substr(x, 1, 0)", x.substr(1, 0)),
    Case("split(x, ',')", x.split(",")),
    Case("split(x, '[.]')", x.split(".")),
    Case("split(x, '[$]')", x.split("$")),
    Case("rlike(x, '^a')", x.rlike("^a")),
    Case("rlike(x, '[ab]{2}')", x.rlike("[ab]{2}")),
    Case("rlike(x, 'b$')", x.rlike("b$")),
    # casts
    Case("CAST(b AS BIGINT)", b.cast("bigint")),
    Case("CAST(b AS STRING)", b.cast("string")),
    Case("CAST(b AS DOUBLE)", b.cast("double")),
    Case("CAST(l AS BOOLEAN)", l.cast("boolean")),
    Case("CAST(l AS INT)", l.cast("int")),
    Case("CAST(i AS TINYINT)", i.cast("tinyint")),
    Case("CAST(l AS DOUBLE)", l.cast("double")),
    Case("CAST(l AS STRING)", l.cast("string")),
    Case("CAST(i AS TIMESTAMP)", i.cast("timestamp")),
    Case("CAST(d AS BOOLEAN)", d.cast("boolean")),
    Case("CAST(d AS BIGINT)", d.cast("bigint")),
    Case("CAST(d AS INT)", d.cast("int")),
    Case("CAST(d AS STRING)", d.cast("string"), deviates="Spark writes 1.0E15 as Java does; here as Python does"),
    Case("CAST(d AS TIMESTAMP)", d.cast("timestamp"), deviates="Spark cuts a microsecond's fraction off; here rounded"),
    Case("CAST(n AS BIGINT)", n.cast("bigint")),
    Case("CAST(n AS INT)", n.cast("int")),
    Case("CAST(f AS DOUBLE)", f.cast("double")),
    Case("CAST(x AS BINARY)", x.cast("binary")),
    Case("CAST(b AS STRING) = 'true'", b.cast("string") == "true"),
    Case("CAST(CASE WHEN b THEN 'Yes' ELSE ' f ' END AS BOOLEAN)", when(b, "Yes").otherwise(" f ").cast("boolean")),
    Case("CAST(at AS BIGINT)", at.cast("bigint")),
    Case("CAST(at AS DOUBLE)", at.cast("double")),
    Case("CAST(at AS DATE)", at.cast("date")),
    Case("CAST(at AS STRING)", at.cast("string")),
    Case("CAST(day AS TIMESTAMP)", day.cast("timestamp")),
    Case("CAST(day AS STRING)", day.cast("string")),
    Case("CAST(CAST(at AS STRING) AS TIMESTAMP)", at.cast("string").cast("timestamp")),
    Case("CAST(CAST(day AS STRING) AS DATE)", day.cast("string").cast("date")),
]
