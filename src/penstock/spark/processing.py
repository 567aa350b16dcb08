"""Process functions over history: the records of each key in the order of event time, with its timers among them.

Where there is an event time, timers up to the newest record of all keys fire in their turn; later ones fire at the end,
as they do where a stream ends. Without one the records of a key come in any order, and all timers fire at the end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from penstock.operators import MAIN, ErrorPolicy, Errors, Processing, Result, StatefulOperator
from penstock.spark.frames import DataFrame, Frame, Step
from penstock.spark.keyed import last_key_begins
from penstock.spark.types import ours, spark_schema
from penstock.types import Record, Schema

NEWEST = "_newest"


def process_groups(
    name: str, of: Processing, frame: Frame, port: str, schema: Schema, on_error: ErrorPolicy
) -> DataFrame:
    """What leaves a process function through a port, over all of history."""
    from pyspark.sql import functions as F

    if of.time is not None:
        of = replace(of, by_time=True)
    expansion = of.expand([frame.schema], ())
    ((word, part),) = expansion.before
    before = frame.then(Step(f"{name}.{word}", part, frame.schema, part.bind(frame.schema), on_error))
    df = before.df
    if of.time is not None:
        newest = df.agg(F.max(F.unix_micros(F.col(of.time))).alias(NEWEST))
        df = df.crossJoin(F.broadcast(newest))
    df = df.repartition(*of.keys).sortWithinPartitions(*of.keys, *([of.time] if of.time is not None else []))
    step = Step(name, expansion.behind, before.schema, of.output, on_error)
    keys, now_us = of.keys, time.time_ns() // 1000

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in _processed(step, keys, of.time, now_us, port, batches):
            if rows:
                yield schema.to_batch(rows)

    return df.mapInArrow(run, spark_schema(schema))


def _processed(
    step: Step, keys: Sequence[str], on: str | None, now_us: int, port: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[list[Record]]:
    """Run over a partition that is sorted by key and time; an operator has whole keys, or the one that goes on."""
    group, last, width = _Keys(step, now_us), None, len(step.schema.fields)
    newest_us: int | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        if on is not None:
            newest_us = batch.column(width)[0].as_py()
        batch = ours(pa.RecordBatch.from_arrays(batch.columns[:width], names=batch.schema.names[:width]), step.schema)
        columns = [batch.column(key) for key in keys]
        begins = last_key_begins(columns, batch.num_rows)
        first = tuple(column[0].as_py() for column in columns)
        if last is not None and first != last:
            yield from group.finish(newest_us, port)
            group = _Keys(step, now_us)
        if begins:
            yield from group.take(batch.slice(0, begins), port)
            yield from group.finish(newest_us, port)
            group = _Keys(step, now_us)
        yield from group.take(batch.slice(begins), port)
        if on is not None:
            reached_us = batch.column(on)[batch.num_rows - 1].value
            yield _leaving(group.operator.advance(reached_us), port)
        last = tuple(column[batch.num_rows - 1].as_py() for column in columns)
    yield from group.finish(newest_us, port)


class _Keys:
    """One or several keys that an operator works on."""

    def __init__(self, step: Step, now_us: int) -> None:
        built = step.operation.build(step.schema, Errors(step.name, step.on_error))
        assert isinstance(built, StatefulOperator)
        self.operator = built
        built.now_us = now_us
        self._schema = step.schema

    def take(self, batch: pa.RecordBatch, port: str) -> Iterator[list[Record]]:
        yield _leaving(self.operator.process(self._schema.to_rows(batch)), port)

    def finish(self, newest_us: int | None, port: str) -> Iterator[list[Record]]:
        if newest_us is not None:
            yield _leaving(self.operator.advance(newest_us), port)
        yield _leaving(self.operator.finish(), port)
        self.operator.close()


def _leaving(came: Result, port: str) -> list[Record]:
    """What leaves through a port."""
    return came.rows if port == MAIN else (came.sides or {}).get(port, [])
