"""Expressions as Spark columns: one table from node to column; whoever adds a node to the language adds a line here.

An entry gives a column with the value that the record form has, wherever that has one. Where Spark means something else
by the same words, the entry says so (`NotNative`), and the operation runs through its own batch form instead: slower,
and equal. A node without an entry is treated like that too; a test sees to it that each has one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, cast

from penstock.expr.column import Column, Op
from penstock.expr.infer import Typed, common_number, elaborate
from penstock.expr.regex import to_java
from penstock.spark.types import spark_type
from penstock.types import BOOLEAN, DOUBLE, DataType, Schema, TypeKind

Sql = Any
"""A pyspark Column."""


class NotNative(Exception):
    """Spark has no column that is equal to an expression; the text says why."""


@dataclass(frozen=True)
class Dialect:
    """What of a session's settings expressions depend on.

    Attributes
    ----------
    is_utc : bool
        Whether the session writes times in UTC, as we do.
    """

    is_utc: bool


Entry = Callable[[Typed, Sequence[Sql], Dialect], Sql]


def spark_column(column: Column, schema: Schema, dialect: Dialect) -> Sql:
    """Translate an expression over records of ``schema``, or raise `NotNative`."""
    return translate(elaborate(column, schema), dialect)


def translate(node: Typed, dialect: Dialect) -> Sql:
    """Translate a typed tree, or raise `NotNative`."""
    entry = TABLE.get(node.op)
    if entry is None:
        raise NotNative(f"{node.op.name} has no entry in the table of Spark's columns")
    return entry(node, [translate(arg, dialect) for arg in node.args], dialect)


def _reference(node: Typed, _: Sequence[Sql], __: Dialect) -> Sql:
    from pyspark.sql import functions as F

    return F.col(cast(str, node.payload))


def literal(data_type: DataType, value: object) -> Sql:
    """A constant as records hold it: times in microseconds, dates in days."""
    from pyspark.sql import functions as F

    if value is None:
        return F.lit(None).cast(spark_type(data_type))
    if data_type.kind is TypeKind.TIMESTAMP:
        return F.timestamp_micros(F.lit(value).cast("long"))
    if data_type.kind is TypeKind.DATE:
        return F.date_from_unix_date(F.lit(value).cast("int"))
    return F.lit(value).cast(spark_type(data_type))


def _literal(node: Typed, _: Sequence[Sql], __: Dialect) -> Sql:
    return literal(node.type, node.payload)


def _as(node: Typed, column: Sql, data_type: DataType) -> Sql:
    """A number as one of a wider type."""
    return column if node.type == data_type else column.cast(spark_type(data_type))


def _comparison(node: Typed, args: Sequence[Sql], _: Dialect) -> Sql:
    left, right = node.args
    kind = common_number(left.type, right.type) if left.type.is_numeric else left.type
    a, b = _as(left, args[0], kind), _as(right, args[1], kind)
    plain = _COMPARE[node.op](a, b)
    return _with_nan(node.op, left, right, a, b, plain) if kind == DOUBLE else plain


def _with_nan(op: Op, left: Typed, right: Typed, a: Sql, b: Sql, plain: Sql) -> Sql:
    """To Spark NaN is the largest number and equals itself; to us, as in IEEE 754, it is no number to compare with."""
    from pyspark.sql import functions as F

    literals = [each for each in (left, right) if each.op is Op.LITERAL]
    if len(literals) == 1 and literals[0].payload == literals[0].payload:
        # A constant is not NaN. What is left is one condition more where Spark takes NaN for large.
        column, is_left = (b, False) if left.op is Op.LITERAL else (a, True)
        large = {Op.GT, Op.GE} if is_left else {Op.LT, Op.LE}
        return plain & ~F.isnan(column) if op in large else plain
    unordered = (F.isnan(a) | F.isnan(b)) & a.isNotNull() & b.isNotNull()
    return F.when(unordered, F.lit(op is Op.NE)).otherwise(plain)


def _arithmetic(node: Typed, args: Sequence[Sql], _: Dialect) -> Sql:
    a, b = (_as(arg, column, node.type) for arg, column in zip(node.args, args, strict=True))
    return _ARITHMETIC[node.op](a, b)


def _negative(node: Typed, args: Sequence[Sql], _: Dialect) -> Sql:
    return -_as(node.args[0], args[0], node.type)


def _absolute(node: Typed, args: Sequence[Sql], _: Dialect) -> Sql:
    from pyspark.sql import functions as F

    return F.abs(_as(node.args[0], args[0], node.type))


def _is_in(node: Typed, args: Sequence[Sql], dialect: Dialect) -> Sql:
    from pyspark.sql import functions as F

    value, members = node.args[0], node.args[1:]
    if not members:
        return F.when(args[0].isNotNull(), F.lit(False))
    if not value.type.is_numeric:
        return args[0].isin(*args[1:])
    # One by one, as comparisons: doubles have two zeros, and numbers of several types meet in a wider one.
    pairs = (Typed(Op.EQ, BOOLEAN, value.nullable, (value, each)) for each in members)
    if all(each.type == value.type for each in members) and value.type != DOUBLE:
        return args[0].isin(*args[1:])
    return reduce(or_, (_comparison(pair, (args[0], b), dialect) for pair, b in zip(pairs, args[1:], strict=True)))


def _between(node: Typed, args: Sequence[Sql], dialect: Dialect) -> Sql:
    value, low, high = node.args
    above = _comparison(Typed(Op.GE, BOOLEAN, value.nullable, (value, low)), (args[0], args[1]), dialect)
    return above & _comparison(Typed(Op.LE, BOOLEAN, value.nullable, (value, high)), (args[0], args[2]), dialect)


def _case(_: Typed, args: Sequence[Sql], __: Dialect) -> Sql:
    from pyspark.sql import functions as F

    begun = F.when(args[0], args[1])
    for i in range(2, len(args) - 1, 2):
        begun = begun.when(args[i], args[i + 1])
    return begun.otherwise(args[-1])


def _function(name: str) -> Entry:
    """A function of Spark's that takes the arguments as they are."""

    def entry(_: Typed, args: Sequence[Sql], __: Dialect) -> Sql:
        from pyspark.sql import functions as F

        return getattr(F, name)(*args)

    return entry


def _with_payload(name: str) -> Entry:
    """A function of Spark's of a column and a constant."""

    def entry(node: Typed, args: Sequence[Sql], _: Dialect) -> Sql:
        from pyspark.sql import functions as F

        return getattr(F, name)(args[0], F.lit(node.payload))

    return entry


def _rlike(node: Typed, args: Sequence[Sql], _: Dialect) -> Sql:
    pattern = to_java(cast(str, node.payload))
    if pattern is None:
        raise NotNative(f"the pattern {node.payload!r} may mean something else to Java")
    return args[0].rlike(pattern)


def _length(node: Typed, args: Sequence[Sql], _: Dialect) -> Sql:
    from pyspark.sql import functions as F

    kind = node.args[0].type.kind
    length = F.array_size if kind is TypeKind.ARRAY else F.octet_length if kind is TypeKind.BINARY else F.char_length
    return length(args[0])


def _substr(node: Typed, args: Sequence[Sql], _: Dialect) -> Sql:
    start, length = cast(tuple[int, int], node.payload)
    return args[0].substr(start, length)


def _split(node: Typed, args: Sequence[Sql], _: Dialect) -> Sql:
    from pyspark.sql import functions as F

    # Spark takes a regular expression: every character that could mean something in one is put into a set of its own.
    quoted = "".join(f"\\{each}" if each in "\\^[]" else f"[{each}]" for each in cast(str, node.payload))
    return F.split(args[0], quoted, -1)


def _cast(node: Typed, args: Sequence[Sql], dialect: Dialect) -> Sql:
    from penstock.spark.casts import convert

    return convert(node.args[0].type, node.type, args[0], dialect)


_COMPARE: dict[Op, Callable[[Sql, Sql], Sql]] = {
    Op.EQ: lambda a, b: a == b,
    Op.NE: lambda a, b: a != b,
    Op.LT: lambda a, b: a < b,
    Op.LE: lambda a, b: a <= b,
    Op.GT: lambda a, b: a > b,
    Op.GE: lambda a, b: a >= b,
}
_ARITHMETIC: dict[Op, Callable[[Sql, Sql], Sql]] = {
    Op.ADD: lambda a, b: a + b,
    Op.SUB: lambda a, b: a - b,
    Op.MUL: lambda a, b: a * b,
    Op.DIV: lambda a, b: a / b,
    Op.MOD: lambda a, b: a % b,
}
TABLE: dict[Op, Entry] = {
    Op.REF: _reference,
    Op.LITERAL: _literal,
    Op.ALIAS: lambda _, args, __: args[0],
    **dict.fromkeys(_COMPARE, _comparison),
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    Op.NEG: _negative,
    Op.ABS: _absolute,
    Op.AND: lambda _, args, __: args[0] & args[1],
    Op.OR: lambda _, args, __: args[0] | args[1],
    Op.NOT: lambda _, args, __: ~args[0],
    Op.IS_NULL: lambda _, args, __: args[0].isNull(),
    Op.IS_IN: _is_in,
    Op.BETWEEN: _between,
    Op.CAST: _cast,
    Op.CASE: _case,
    Op.COALESCE: _function("coalesce"),
    Op.CONTAINS: _with_payload("contains"),
    Op.STARTS_WITH: _with_payload("startswith"),
    Op.ENDS_WITH: _with_payload("endswith"),
    Op.RLIKE: _rlike,
    Op.LOWER: _function("lower"),
    Op.UPPER: _function("upper"),
    Op.TRIM: _function("trim"),
    Op.LENGTH: _length,
    Op.SUBSTR: _substr,
    Op.SPLIT: _split,
}
"""What every kind of node is in Spark."""
