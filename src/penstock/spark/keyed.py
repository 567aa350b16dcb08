"""Operations with state as DataFrames: Spark's own plans where they are equal, else our operators over sorted groups.

A stream has an order, a DataFrame has none. Where the order matters (first, last, a user's aggregate, which of two
duplicates passes), records are taken in the order of their event time. Nothing is late: all of history is there.

===================  ==========================================================================================
operation            plan
===================  ==========================================================================================
tumbling, sliding    ``window`` and ``groupBy``; sorted groups for aggregates that Spark does not have
session              ``session_window`` with a gap that is one microsecond longer: Spark's ends are exclusive
by number            sorted groups, in the order of a time column; without one there is no order to go by
running, global      ``groupBy``: the last value of each key; with ``emit="every"`` sorted groups
join, match="all"    an equi-join by key and bucket of time, each as long as the join reaches
join, match="once"   sorted groups; so is an as-of join
limit                ``limit``
drop_duplicates      ``dropDuplicates``; with a time, sorted groups
any other            sorted groups
===================  ==========================================================================================

Sorted groups: what runs before the shuffle, a shuffle by key, a sort by key and time, and our operator over each key.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidGraph, PenstockError
from penstock.operators import (
    DEAD_LETTER_SCHEMA,
    DEAD_LETTERS,
    LATE,
    Aggregation,
    DropDuplicates,
    Emit,
    ErrorPolicy,
    Errors,
    Expansion,
    Global,
    Join,
    JoinHow,
    Limit,
    Operation,
    Pairing,
    Session,
    Sliding,
    StatefulOperator,
    Window,
)
from penstock.spark.aggregates import spark_aggregates
from penstock.spark.columns import NotNative, Sql
from penstock.spark.frames import ArrowFunction, DataFrame, Frame, Step
from penstock.spark.types import ours, spark_schema
from penstock.types import Record, Schema, attribute


def compile_keyed(
    name: str, operation: Operation, inputs: Sequence[Frame], output: Schema, on_error: ErrorPolicy
) -> DataFrame:
    """The DataFrame of an operation with state."""
    plain = on_error in (ErrorPolicy.FAIL, ErrorPolicy.RETRY)
    if plain:
        try:
            if isinstance(operation, Aggregation):
                return _aggregation(operation, inputs[0], output)
            if isinstance(operation, Join):
                return _join(operation, inputs, output)
            if isinstance(operation, Limit):
                return inputs[0].df.limit(operation.count)
            if isinstance(operation, DropDuplicates):
                return _distinct(operation, inputs[0])
        except NotNative:
            pass
        except PenstockError as error:
            raise error.at(name) from None
    return sorted_groups(name, operation, inputs, output, on_error)


def dead_letters(name: str, operation: Operation, inputs: Sequence[Frame], output: Schema) -> list[DataFrame]:
    """What the parts of an operation could not handle."""
    policy = ErrorPolicy.DEAD_LETTER
    before = [each.dead_letters for each in parts_before(name, operation, inputs, policy)]
    return [*before, sorted_groups(name, operation, inputs, output, policy, letters=True)]


def parts_before(name: str, operation: Operation, inputs: Sequence[Frame], on_error: ErrorPolicy) -> list[Frame]:
    """What an operation in parts runs before its shuffle, on each of its inputs."""
    expansion = expanded([each.schema for each in inputs], _closing(operation))
    return [
        frame.then(Step(f"{name}.{word}", part, frame.schema, part.bind(frame.schema), on_error))
        for frame, (word, part) in zip(inputs, expansion.before, strict=True)
    ]


def _timed(frame: DataFrame, column: str, what: str) -> DataFrame:
    """Refuse records without a time, as the streaming operation does."""
    from pyspark.sql import functions as F

    message = F.lit(f"{what} '{column}' is null.")
    return frame.withColumn(column, F.when(F.col(column).isNull(), F.raise_error(message)).otherwise(F.col(column)))


def _aggregation(of: Aggregation, frame: Frame, output: Schema) -> DataFrame:
    from pyspark.sql import functions as F

    window, df = of.window, frame.df
    if of.emit is Emit.EVERY or of.ttl is not None:
        raise NotNative("Spark has no results for every record, and none that begin anew")
    if of.counts is not None and of.counts.size is not None:
        if of.counts.on is None:
            raise InvalidGraph(
                "a backfill cannot know in which order records came.",
                hint="Give the window a time column: ps.count_window(…, on=…).",
            )
        raise NotNative("Spark has no windows by number")
    time = F.col(window.on) if window is not None else None
    made = spark_aggregates(of.aggregates, frame.schema, time)
    keys = [F.col(key) for key in of.keys]
    if window is None:
        if keys:
            return df.groupBy(*keys).agg(*made).select(*output.names)
        # An empty stream has no value so far; Spark would give one of nothing.
        return df.groupBy(F.lit(0).alias("_all")).agg(*made).select(*output.names)
    df = _timed(df, window.on, "the window's time column")
    if isinstance(window, Global):
        # The last firing of a key is the first one after its newest record.
        every, newest = F.lit(window.size_us).cast("long"), F.max(F.unix_micros(F.col(window.on)))
        last = F.timestamp_micros(newest - F.pmod(newest, every) + every)
        return (
            df.groupBy(*(keys or [F.lit(0).alias("_all")])).agg(last.alias("window_end"), *made).select(*output.names)
        )
    longer = int(isinstance(window, Session))
    grouped = df.groupBy(*keys, _window(window).alias("_window")).agg(*made)
    end = F.col("_window.end")
    if longer:
        end = F.timestamp_micros(F.unix_micros(end) - F.lit(longer))
    columns = {"window_start": F.col("_window.start"), "window_end": end}
    return grouped.select(*(columns.get(name, F.col(name)).alias(name) for name in output.names))


def _window(window: Window) -> Sql:
    from pyspark.sql import functions as F

    def duration(micros: int) -> str:
        return f"{micros} microseconds"

    if isinstance(window, Session):
        return F.session_window(window.on, duration(window.size_us + 1))
    slide_us = window.slide_us if isinstance(window, Sliding) else window.size_us
    return F.window(window.on, duration(window.size_us), duration(slide_us))


def _join(of: Join, inputs: Sequence[Frame], output: Schema) -> DataFrame:
    from pyspark.sql import functions as F

    if of.match is not Pairing.ALL or of.as_of:
        raise NotNative("Spark has no join that chooses among partners by time")
    left = _timed(inputs[0].df, of.left_time, "the join's time column")
    right = _timed(inputs[1].df, of.right_time, "the join's time column")
    left = left.select(*(F.col(name).alias(f"_l_{name}") for name in inputs[0].schema.names))
    right = right.select(*(F.col(name).alias(f"_r_{name}") for name in inputs[1].schema.names))
    a, b = F.unix_micros(F.col(f"_l_{of.left_time}")), F.unix_micros(F.col(f"_r_{of.right_time}"))
    low, high = (F.lit(each).cast("long") for each in (of.bounds.low_us, of.bounds.high_us))
    same = (b - a >= low) & (b - a <= high)
    for key in of.keys:
        same = same & (F.col(f"_l_{key}") == F.col(f"_r_{key}"))
    if of.how is not JoinHow.FULL:
        # Buckets as long as a partner's time may vary: it is in one or two of them. Records of the side whose records
        # are all sent on are in one, or they would come several times.
        step = F.lit(max(of.bounds.width_us, 1)).cast("long")

        def bucket(time: Sql) -> Sql:
            return time - F.pmod(time, step)

        if of.how is JoinHow.RIGHT:
            right = right.withColumn("_bucket", bucket(b))
            near = F.array(bucket(a + low), bucket(a + high))
            left = left.withColumn("_near", F.explode(F.array_distinct(near)))
        else:
            left = left.withColumn("_bucket", bucket(a))
            near = F.array(bucket(b - high), bucket(b - low))
            right = right.withColumn("_near", F.explode(F.array_distinct(near)))
        same = same & (F.col("_bucket") == F.col("_near"))
    joined = left.join(right, same, of.how.value)
    columns = {name: F.col(f"_l_{name}") for name in inputs[0].schema.names}
    columns |= {name: F.col(f"_r_{name}") for name in inputs[1].schema.names if name not in columns}
    if of.how.keeps_right:
        columns |= {key: F.coalesce(F.col(f"_l_{key}"), F.col(f"_r_{key}")) for key in of.keys}
    if of.left_time == of.right_time:
        # The later of the two; Spark's greatest leaves out the null of a record without a partner.
        columns[of.left_time] = F.greatest(F.col(f"_l_{of.left_time}"), F.col(f"_r_{of.right_time}"))
    return joined.select(*(columns[name].alias(name) for name in output.names))


def _distinct(of: DropDuplicates, frame: Frame) -> DataFrame:
    if of.on is not None:
        raise NotNative("Spark has no duplicates within a time")
    return frame.df.dropDuplicates(list(of.keys))


def expanded(schemas: Sequence[Schema], operation: Operation, read: Collection[str] = ()) -> Expansion:
    """The parts of an operation; where its results depend on the order of records, these travel whole, with their time.

    Parts of an aggregate that come from several tasks have no order.
    """
    if isinstance(operation, Aggregation) and operation.window is not None:
        is_ordered = any(aggregate.ordered for _, aggregate in operation.aggregates)
        read = {*read, LATE} if is_ordered else read
    expansion = operation.expand(schemas, read)
    if expansion is None:
        raise NotNative(f"{operation.kind} has state and no parts")
    return expansion


def _closing(operation: Operation) -> Operation:
    """The operation as it runs over history: a window's result comes once, whenever the stream would send it."""
    if isinstance(operation, Aggregation) and operation.window is not None and operation.emit is not Emit.EVERY:
        closing = replace(operation.window, emit=Emit.CLOSE, allowed_lateness_us=0, early_us=0)
        return replace(operation, window=closing)
    return operation


def sorted_groups(
    name: str,
    operation: Operation,
    inputs: Sequence[Frame],
    output: Schema,
    on_error: ErrorPolicy,
    *,
    letters: bool = False,
) -> DataFrame:
    """An operation through our own operators, key by key; its results, or what it could not handle."""
    operation = _closing(operation)
    expansion = expanded([each.schema for each in inputs], operation)
    frames = parts_before(name, operation, inputs, on_error)
    df, between = frames[0].df, frames[0].schema
    for other in frames[1:]:
        df = df.union(other.df)
    df = df.repartition(*expansion.keys) if expansion.keys else df.repartition(1)
    # Between the parts a join's time has a name of its own; an aggregation's and a deduplication's keep theirs.
    times = [column for column in ("_t", *(on for on, _ in operation.readers_of_time)) if column in between]
    order = [*expansion.keys, *times[:1]]
    if order:
        df = df.sortWithinPartitions(*order)
    is_running = isinstance(operation, Aggregation) and operation.emit is Emit.CHANGE
    step = Step(name, expansion.behind, between, output, on_error)
    last_by = operation.keys if isinstance(operation, Aggregation) and _never_ends(operation) else None
    function = grouping(step, expansion.keys, keeps_last=is_running, last_by=last_by, letters=letters)
    return df.mapInArrow(function, spark_schema(DEAD_LETTER_SCHEMA if letters else output))


def _never_ends(of: Aggregation) -> bool:
    """Whether there is one window, of which values so far are sent on."""
    return isinstance(of.window, Global) or (of.counts is not None and of.counts.size is None)


def grouping(
    step: Step,
    keys: Sequence[str],
    *,
    keeps_last: bool,
    last_by: Sequence[str] | None = None,
    letters: bool = False,
) -> ArrowFunction:
    """The function that runs an operator with state over a partition that is sorted by key.

    Of a batch, all keys but the last are complete: their operator finishes, and with it goes what it held. The last key
    goes on with the next batch, in an operator of its own.

    Parameters
    ----------
    keeps_last : bool
        The operator gives the value so far whenever it takes records: only the last one of each key counts.
    last_by : sequence of str, optional
        The operator gives values so far at moments of its own: of each key, which these columns are, the last counts.
    letters : bool
        Give the dead letters in place of the results.
    """
    kind = _Letters if letters else _Group

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        group = kind(step, keeps_last, last_by)
        last: tuple[Any, ...] | None = None
        for batch in batches:
            batch = ours(batch, step.schema)
            if not batch.num_rows:
                continue
            columns = [batch.column(key) for key in keys]
            begins = last_key_begins(columns, batch.num_rows)
            first = tuple(column[0].as_py() for column in columns)
            if last is not None and first != last:
                yield from group.finish()
                group = kind(step, keeps_last, last_by)
            if begins:
                yield from group.take(batch.slice(0, begins))
                yield from group.finish()
                group = kind(step, keeps_last, last_by)
            yield from group.take(batch.slice(begins))
            last = tuple(column[batch.num_rows - 1].as_py() for column in columns)
        yield from group.finish()

    return run


class _Group:
    """One or several keys that an operator works on."""

    def __init__(self, step: Step, keeps_last: bool, last_by: Sequence[str] | None) -> None:
        built = step.operation.build(step.schema, Errors(step.name, step.on_error))
        assert isinstance(built, StatefulOperator)
        self._operator = built
        self._step = step
        self._keeps_last = keeps_last
        self._last_by = None if last_by is None else [attribute(name) for name in last_by]
        self._held: list[Record] = []

    def take(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        rows = self._operator.process(self._step.schema.to_rows(batch)).rows
        if self._keeps_last:
            self._held = rows  # a key that goes on was the only one before: its new value takes the old one's place
        elif self._last_by is not None:
            self._keep_last(rows)
        else:
            yield from self._batch(rows)

    def _keep_last(self, rows: Iterable[Record]) -> None:
        names = self._last_by or ()
        last = {tuple(getattr(row, name) for name in names): row for row in chain(self._held, rows)}
        self._held = list(last.values())

    def finish(self) -> Iterator[pa.RecordBatch]:
        rows = self._operator.finish().rows
        if self._last_by is not None:
            self._keep_last(rows)
            rows = []
        yield from self._batch([*self._held, *rows])

    def _batch(self, rows: list[Record]) -> Iterator[pa.RecordBatch]:
        if rows:
            yield self._step.output.to_batch(rows)


class _Letters(_Group):
    """The same for what could not be handled."""

    def take(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        sides = self._operator.process(self._step.schema.to_rows(batch)).sides or {}
        if DEAD_LETTERS in sides:
            yield DEAD_LETTER_SCHEMA.to_batch(sides[DEAD_LETTERS])

    def finish(self) -> Iterator[pa.RecordBatch]:
        yield from ()


def last_key_begins(columns: Sequence[pa.Array], rows: int) -> int:
    """Where the last key of a sorted batch begins."""
    begins = 0
    for column in columns:
        codes = column.dictionary_encode(null_encoding="encode").indices.to_numpy()
        others = np.flatnonzero(codes[:rows] != codes[rows - 1])
        begins = max(begins, int(others[-1]) + 1 if others.size else 0)
    return begins
