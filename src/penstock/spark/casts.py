"""Casts as Spark columns, by kind of type: those that mean the same to Spark, or can be written so that they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.expr.functions import DAY_US, MICROSECONDS
from penstock.expr.infer import wide
from penstock.spark.columns import Dialect, NotNative, Sql
from penstock.spark.types import spark_type
from penstock.types import DataType, TypeKind

Conversion = Callable[[Sql, Any, Dialect], Sql]
"""Of a column, Spark's target type and the session's settings."""


def convert(source: DataType, target: DataType, column: Sql, dialect: Dialect) -> Sql:
    """Convert a column, or raise `NotNative`."""
    if source.is_integer and target.is_integer:
        return column.cast(spark_type(target))
    conversion = CONVERSIONS.get((wide(source).kind, wide(target).kind))
    if conversion is None:
        raise NotNative(f"Spark converts {source.ddl} to {target.ddl} differently")
    return conversion(column, spark_type(target), dialect)


def _plain(column: Sql, target: Any, _: Dialect) -> Sql:
    return column.cast(target)


def _in_utc(column: Sql, target: Any, dialect: Dialect) -> Sql:
    if not dialect.is_utc:
        raise NotNative("Spark would write times in the session's zone")
    return column.cast(target)


def _seconds_to_timestamp(column: Sql, _: Any, __: Dialect) -> Sql:
    from pyspark.sql import functions as F

    # Spark's own cast goes to the end of time where a product overflows.
    return F.timestamp_micros(column.cast("long") * F.lit(MICROSECONDS).cast("long"))


def _double_to_timestamp(column: Sql, _: Any, __: Dialect) -> Sql:
    from pyspark.sql import functions as F

    # Spark's own cast cuts the fraction of a microsecond off.
    return F.timestamp_micros(F.rint(column * F.lit(float(MICROSECONDS))).cast("long"))


def _timestamp_to_date(column: Sql, _: Any, __: Dialect) -> Sql:
    from pyspark.sql import functions as F

    micros, day = F.unix_micros(column), F.lit(DAY_US).cast("long")
    return F.date_from_unix_date(F.call_function("div", micros - F.pmod(micros, day), day).cast("int"))


def _date_to_timestamp(column: Sql, _: Any, __: Dialect) -> Sql:
    from pyspark.sql import functions as F

    return F.timestamp_micros(F.unix_date(column).cast("long") * F.lit(DAY_US).cast("long"))


def _binary_to_text(column: Sql, target: Any, _: Dialect) -> Sql:
    from pyspark.sql import functions as F

    return F.validate_utf8(column.cast(target))


_B, _I, _D, _S = TypeKind.BOOLEAN, TypeKind.BIGINT, TypeKind.DOUBLE, TypeKind.STRING
_T, _DATE, _BYTES = TypeKind.TIMESTAMP, TypeKind.DATE, TypeKind.BINARY
CONVERSIONS: dict[tuple[TypeKind, TypeKind], Conversion] = {
    (_B, _I): _plain,
    (_B, _D): _plain,
    (_B, _S): _plain,
    (_I, _B): _plain,
    (_I, _D): _plain,
    (_I, _S): _plain,
    (_I, _T): _seconds_to_timestamp,
    (_D, _B): _plain,
    (_D, _I): _plain,
    (_D, _T): _double_to_timestamp,
    (_S, _B): _plain,
    (_S, _I): _plain,
    (_S, _D): _plain,
    (_S, _BYTES): _plain,
    (_BYTES, _S): _binary_to_text,
    (_T, _I): _plain,
    (_T, _D): _plain,
    (_T, _DATE): _timestamp_to_date,
    (_T, _S): _in_utc,
    (_DATE, _T): _date_to_timestamp,
    (_DATE, _S): _plain,
}
"""Not there: double to string (Spark writes 1.0E10), string to time and date (Spark reads fewer forms of ISO 8601)."""
