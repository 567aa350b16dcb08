"""limit: so many records and no more, over all partitions; `Head` runs before the gather, `Limited` counts behind."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.operators.base import BatchKind, BatchResult, Expansion, Operation, Operator, Result, StatefulOperator
from penstock.operators.errors import Errors
from penstock.operators.keyed.state import KeyedState
from penstock.types import Record, Schema


@dataclass(frozen=True)
class Limit(Operation):
    """Let the first ``count`` records pass, in the order in which they come."""

    count: int
    kind = "limit"
    stateful = True

    def bind(self, schema: Schema) -> Schema:
        return schema

    def expand(self, schemas: Sequence[Schema], read: Collection[str]) -> Expansion:
        del schemas, read
        return Expansion((("head", Head(self.count)),), Limited(self.count), (), ())

    def describe(self) -> str:
        return f"{self.count} records"


@dataclass(frozen=True)
class Head(Operation):
    """Before the gather: of a block no more than all that are wanted."""

    count: int
    kind = "head"

    def bind(self, schema: Schema) -> Schema:
        return schema

    def column_of(self, column: str, schema: Schema) -> str:
        del schema
        return column

    def build(self, schema: Schema, errors: Errors) -> Operator:
        del errors
        count = self.count

        def process(rows: list[Record]) -> Result:
            return Result(rows[:count])

        def vectorised(batch: pa.RecordBatch) -> BatchResult:
            return BatchResult(batch.slice(0, count))

        return Operator(process, schema=schema, output=schema, vectorised=vectorised)

    def describe(self) -> str:
        return f"at most {self.count} of a block"


@dataclass(frozen=True)
class Limited(Operation):
    """Behind the gather: knows how many have passed; always on the record path."""

    count: int
    kind = "limit"
    stateful = True
    batch_kind = BatchKind.NONE

    def bind(self, schema: Schema) -> Schema:
        return schema

    def build(self, schema: Schema, errors: Errors) -> Operator:
        return LimitOperator(self.count, schema, errors)

    @property
    def passes_max(self) -> int:
        return self.count

    def describe(self) -> str:
        return f"{self.count} records"

    @property
    def state_signature(self) -> str:
        return "records that have passed"

    @property
    def remembers_us(self) -> int | None:
        return None


class LimitOperator(StatefulOperator):
    """The only instance; how many records have passed is all that it knows."""

    def __init__(self, count: int, schema: Schema, errors: Errors) -> None:
        self._count = count
        self.passed = 0
        self.state = KeyedState(errors.operation, several=True)
        super().__init__(self._pass, schema=schema, output=schema)

    def _pass(self, rows: list[Record]) -> Result:
        let = rows[: max(self._count - self.passed, 0)]
        self.passed += len(let)
        return Result(let)

    def advance(self, watermark_us: int) -> Result:
        del watermark_us
        return Result([])

    def finish(self) -> Result:
        return Result([])

    def header(self) -> Any:
        return self.passed

    def restored(self, headers: Sequence[Any]) -> None:
        self.passed = sum(headers)
