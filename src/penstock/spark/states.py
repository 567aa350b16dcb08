"""Operations with state up to a cut: Spark deals the records out as the live job would, and our operators take them.

All records of an instance come in the order of their event time, and the watermark follows them up to that of the cut.
Then the operator has what the stream's would have: results up to there have left it, the rest is its state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.engine.snapshot import OpCounters, UnitSnapshot, encode_snapshot
from penstock.engine.state import StateSnapshot
from penstock.operators import MAIN, Errors, Processing, Result, StatefulOperator
from penstock.operators.keyed.process.operation import ProcessState
from penstock.operators.keys import Partitioner
from penstock.pipeline.plan import UnitSpec
from penstock.spark.frames import DataFrame, Step
from penstock.spark.types import ours, spark_schema
from penstock.types import Record, Schema, attribute

INSTANCE = "_instance"
EPOCH = 1
STORED = "instance int, name string, crc long"

Write = Callable[[str, bytes], int]
"""Stores a snapshot under a name; returns its checksum."""


@dataclass(frozen=True)
class Held:
    """An operation with state at the cut.

    Attributes
    ----------
    step : Step
        What runs behind the shuffle.
    keys : tuple of str
        Key columns between the parts; none: one instance has all records.
    time : str or None
        The column whose order is that of event time, between the parts.
    watermark_us : int or None
        How far event time has come at the cut; None: nobody knows, so nothing is closed.
    last_by : tuple of str or None
        Of results that are sent again and again, only the last for each value of these columns counts; None: all do.
    """

    step: Step
    keys: tuple[str, ...]
    instances: int
    time: str | None
    watermark_us: int | None
    now_us: int
    last_by: tuple[str, ...] | None = None

    def dealt(self, df: DataFrame) -> DataFrame:
        """The records with their instances, those of an instance together and in order."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import IntegerType, StructField, StructType

        schema, keys, instances = self.step.schema, self.keys, self.instances
        if not keys or instances == 1:
            df = df.withColumn(INSTANCE, F.lit(0)).repartition(1)
        else:

            def deal(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
                partitioner = Partitioner(keys, instances)
                for batch in batches:
                    batch = ours(batch, schema)
                    if batch.num_rows:
                        owners = partitioner.owners([batch.column(key) for key in keys])
                        yield batch.append_column(INSTANCE, pa.array(owners, pa.int32()))

            fields = [*spark_schema(schema).fields, StructField(INSTANCE, IntegerType())]
            df = df.mapInArrow(deal, StructType(fields)).repartition(instances, INSTANCE)
        return df.sortWithinPartitions(INSTANCE, *([self.time] if self.time is not None else []))

    def results(self, dealt: DataFrame, port: str, schema: Schema) -> DataFrame:
        """What has left through a port until the cut."""

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for _, instance in self._instances(batches):
                for rows in instance.leaving(port):
                    if rows:
                        yield schema.to_batch(rows)

        return dealt.mapInArrow(run, spark_schema(schema))

    def states(self, dealt: DataFrame, unit: UnitSpec, write: Write) -> DataFrame:
        """Write the states at the cut: a row for each instance that has had a record."""

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from pyspark import TaskContext

            context = TaskContext.get()
            attempt = context.taskAttemptId() if context is not None else 0
            for number, instance in self._instances(batches):
                for _ in instance.leaving(MAIN):
                    pass
                # Of two attempts of a task each has files of its own.
                name = f"u{unit.id}-i{number}-e{EPOCH:08d}-bootstrap-{attempt}"
                crc = write(name, instance.snapshot(unit))
                yield pa.RecordBatch.from_arrays(
                    [pa.array([number], pa.int32()), pa.array([name]), pa.array([crc], pa.int64())],
                    names=["instance", "name", "crc"],
                )

        return dealt.mapInArrow(run, STORED)

    def empty(self, unit: UnitSpec) -> bytes:
        """The snapshot of an instance that has had no record."""
        instance = Instance(self, iter(()))
        for _ in instance.leaving(MAIN):
            pass
        return instance.snapshot(unit)

    def _instances(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, Instance]]:
        """The instances of a partition, one after the other; each must be gone through before the next."""
        pieces = _pieces(batches, self.step.schema)
        for number, held in groupby(pieces, key=lambda piece: piece[0]):
            yield number, Instance(self, (batch for _, batch in held))


def _pieces(batches: Iterator[pa.RecordBatch], schema: Schema) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches of one instance each."""
    width = len(schema.fields)
    for batch in batches:
        if not batch.num_rows:
            continue
        numbers = batch.column(width).to_numpy()
        plain = ours(pa.RecordBatch.from_arrays(batch.columns[:width], names=batch.schema.names[:width]), schema)
        starts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), batch.num_rows]
        for start, end in pairwise(starts):
            yield int(numbers[start]), plain.slice(start, end - start)


class Instance:
    """One instance of an operation with state, up to the cut."""

    def __init__(self, held: Held, batches: Iterator[pa.RecordBatch]) -> None:
        step = held.step
        built = step.operation.build(step.schema, Errors(step.name, step.on_error))
        assert isinstance(built, StatefulOperator)
        built.now_us = held.now_us
        self._operator = built
        self._held = held
        self._batches = batches
        self._time_of: Callable[[Record], int] | None = None
        if held.time is not None:
            self._time_of = attrgetter(attribute(held.time))
        of = step.operation.of if isinstance(step.operation, ProcessState) else None
        self._one_time_at_once = isinstance(of, Processing) and not of.by_time and self._time_of is not None

    def leaving(self, port: str) -> Iterator[list[Record]]:
        """Take all records, and give what leaves through a port."""
        last: dict[Any, Record] = {}
        by = self._held.last_by if port == MAIN else None
        key: Callable[[Record], Any] | None = None
        if by is not None:
            key = attrgetter(*map(attribute, by)) if by else lambda _: None
        for came in self._run():
            rows = _leaving(came, port)
            if key is None:
                yield rows
            else:
                last.update((key(row), row) for row in rows)
        yield list(last.values())

    def _run(self) -> Iterator[Any]:
        operator, time_of = self._operator, self._time_of
        for batch in self._batches:
            rows = self._held.step.schema.to_rows(batch)
            if time_of is not None and self._one_time_at_once:
                # Timers have their turn between records, as in the order of event time.
                for time_us, together in groupby(rows, key=time_of):
                    yield from self._reach(time_us)
                    yield operator.process(list(together))
                continue
            yield operator.process(rows)
            if time_of is not None:
                yield from self._reach(time_of(rows[-1]))
        if self._held.watermark_us is not None:
            yield operator.advance(self._held.watermark_us)

    def _reach(self, time_us: int) -> Iterator[Any]:
        """What follows has no earlier time: event time has come so far, but never further than at the cut."""
        if self._held.watermark_us is not None:
            yield self._operator.advance(min(time_us, self._held.watermark_us))

    def snapshot(self, unit: UnitSpec) -> bytes:
        """The instance at the cut, as a marker would find it."""
        operator = self._operator
        state = StateSnapshot(operator.header(), [operator.state.whole()])
        operator.close()
        return encode_snapshot(empty_snapshot(unit, state=state))


def empty_snapshot(
    unit: UnitSpec, *, state: StateSnapshot | None = None, positions: dict[int, Any] | None = None, records: int = 0
) -> UnitSnapshot:
    """An instance at a marker behind which nothing is under way."""
    source = [OpCounters(name=unit.name, records_in=records, records_out=records)] if unit.source is not None else []
    return UnitSnapshot(
        epoch=EPOCH,
        depth=0,
        finished=False,
        next_id=0,
        inputs=[],
        written=[],
        positions=positions or {},
        operations=[
            *source,
            *(OpCounters(name=op.name) for op in unit.ops),
        ],
        sinks={},
        state=state,
        lanes=[],
    )


def _leaving(came: Any, port: str) -> list[Record]:
    if not isinstance(came, Result):
        return list(came) if port == MAIN else []
    return came.rows if port == MAIN else (came.sides or {}).get(port, [])


def ordered_by(between: Schema, times: Sequence[str]) -> str | None:
    """The column between the parts of an operation whose order is that of event time; a join's and a partial's have
    names of their own.
    """
    return next((column for column in ("_t", *times, "_w") if column in between), None)
