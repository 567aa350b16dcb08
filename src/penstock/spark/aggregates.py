"""Aggregates as Spark columns: one table from class to column. What has no entry runs through our own operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.operators.keyed.aggregates import Aggregate, Count, First, Last, Max, Mean, Min, Sum
from penstock.spark.columns import NotNative, Sql
from penstock.spark.types import spark_type
from penstock.types import Schema, TypeKind

Entry = Callable[[Aggregate, Schema, Sql | None], Sql]
"""Of the aggregate, its input and the time by which records are ordered, if there is one."""


def spark_aggregates(aggregates: Sequence[tuple[str, Aggregate]], schema: Schema, time: Sql | None) -> list[Sql]:
    """Translate aggregates, or raise `NotNative`."""
    return [translate(aggregate, schema, time).alias(name) for name, aggregate in aggregates]


def translate(aggregate: Aggregate, schema: Schema, time: Sql | None) -> Sql:
    """Translate one aggregate, or raise `NotNative`."""
    entry = TABLE.get(type(aggregate))
    if entry is None:
        raise NotNative(f"{aggregate} has no entry in the table of Spark's aggregates")
    return entry(aggregate, schema, time).cast(spark_type(aggregate.output(schema)))


def _column(aggregate: Aggregate) -> Sql:
    from pyspark.sql import functions as F

    return F.col(str(aggregate.column))


def _count(aggregate: Aggregate, _: Schema, __: Sql | None) -> Sql:
    from pyspark.sql import functions as F

    return F.count(_column(aggregate) if aggregate.column else F.lit(1))


def _sum(aggregate: Aggregate, _: Schema, __: Sql | None) -> Sql:
    from pyspark.sql import functions as F

    return F.sum(_column(aggregate))


def _mean(aggregate: Aggregate, _: Schema, __: Sql | None) -> Sql:
    from pyspark.sql import functions as F

    # Spark's own mean of whole numbers adds doubles up.
    column = _column(aggregate)
    return F.sum(column).cast("double") / F.count(column).cast("double")


def _extreme(name: str) -> Entry:
    def entry(aggregate: Aggregate, schema: Schema, _: Sql | None) -> Sql:
        from pyspark.sql import functions as F

        function, column = getattr(F, name), _column(aggregate)
        if schema.field(str(aggregate.column)).type.kind is not TypeKind.DOUBLE:
            return function(column)
        # To Spark NaN is the largest number; here it is the result only if there is no number.
        return F.coalesce(function(F.when(~F.isnan(column), column)), function(column))

    return entry


def _ordered(name: str, by: str) -> Entry:
    def entry(aggregate: Aggregate, _: Schema, time: Sql | None) -> Sql:
        from pyspark.sql import functions as F

        column = _column(aggregate)
        if time is None:
            return getattr(F, name)(column, ignorenulls=True)
        return getattr(F, by)(column, F.when(column.isNotNull(), time))

    return entry


TABLE: dict[type[Aggregate], Entry] = {
    Count: _count,
    Sum: _sum,
    Mean: _mean,
    Min: _extreme("min"),
    Max: _extreme("max"),
    First: _ordered("first", "min_by"),
    Last: _ordered("last", "max_by"),
}
"""What every kind of aggregate is in Spark."""
