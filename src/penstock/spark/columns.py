"""Expressions as Spark columns: the text of an expression is Spark SQL for the same value, so there is no table here.

What Spark would compute otherwise in this session is refused (`NotNative`), and the operation runs through its own
batch form instead: slower, and equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.expr.column import Column, Op
from penstock.expr.infer import elaborate
from penstock.expr.typed import Typed
from penstock.spark.types import spark_type
from penstock.types import DATE, TIMESTAMP, Schema

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
        Whether the session reads and writes times in UTC, as we do.
    is_ansi : bool
        Whether what cannot be computed fails, as it does here.
    """

    is_utc: bool
    is_ansi: bool = True


def spark_column(column: Column, schema: Schema, dialect: Dialect) -> Sql:
    """Translate an expression over records of ``schema``, or raise `NotNative`."""
    from pyspark.sql import functions as F

    typed = elaborate(column, schema)
    if not dialect.is_ansi:
        raise NotNative("the session is not in ANSI mode")
    if not dialect.is_utc and any(node.type in (TIMESTAMP, DATE) for node in _nodes(typed)):
        raise NotNative("the session's time zone is not UTC")
    plain = column.args[0] if column.op is Op.ALIAS else column
    return F.expr(str(plain)).cast(spark_type(typed.type))


def _nodes(node: Typed) -> Iterator[Typed]:
    yield node
    for each in node.args:
        yield from _nodes(each)
