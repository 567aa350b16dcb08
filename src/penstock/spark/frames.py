"""A stream as a DataFrame, and how operations that Spark has no words for run in it: their batch form, over Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.operators import DEAD_LETTER_SCHEMA, DEAD_LETTERS, MAIN, ErrorPolicy, Errors, Operation
from penstock.spark.types import ours, spark_schema
from penstock.types import Schema

DataFrame = Any
"""A pyspark DataFrame."""
ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class Step:
    """An operation that runs through its own batch form."""

    name: str
    operation: Operation
    schema: Schema
    output: Schema
    on_error: ErrorPolicy = ErrorPolicy.FAIL


@dataclass(frozen=True)
class Frame:
    """What flows on one edge: a DataFrame with the columns of ``schema``, and operations that are still to run on it.

    Operations in a row that run through their own batch form share one hand-over to Python.
    """

    base: DataFrame
    schema: Schema
    """Schema of what leaves the last of the steps."""
    steps: tuple[Step, ...] = ()

    def then(self, step: Step) -> Frame:
        """Run one more operation through its own batch form."""
        return Frame(self.base, step.output, (*self.steps, step))

    @property
    def df(self) -> DataFrame:
        """The DataFrame that Spark goes on with."""
        return self.port(MAIN, self.schema)

    def port(self, port: str, schema: Schema) -> DataFrame:
        """What leaves the last of the steps through a port."""
        if not self.steps:
            return self.base
        return self.base.mapInArrow(stepping(self.steps, port, schema), spark_schema(schema))

    @property
    def dead_letters(self) -> DataFrame | None:
        """What the steps could not handle, if they are to keep it."""
        if not any(step.on_error is ErrorPolicy.DEAD_LETTER for step in self.steps):
            return None
        return self.port(DEAD_LETTERS, DEAD_LETTER_SCHEMA)


def stepping(steps: tuple[Step, ...], port: str, schema: Schema) -> ArrowFunction:
    """The function that runs operations over the batches of a partition, and gives what leaves through a port."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        operators = [each.operation.build(each.schema, Errors(each.name, each.on_error)) for each in steps]
        for batch in batches:
            columns, letters = ours(batch, steps[0].schema), []
            for operator in operators:
                done = operator.process_batch(columns)
                columns, sides = done.columns, done.sides or {}
                letters += sides.get(DEAD_LETTERS, [])
            if port == DEAD_LETTERS:
                columns = schema.to_batch(letters)
            elif port != MAIN:
                columns = schema.to_batch(sides.get(port, []))
            if columns.num_rows:
                yield columns

    return run
