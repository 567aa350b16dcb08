"""transform: a function from DataFrame to DataFrame, as a Spark SQL job for each micro-batch; batch form only.

The operation itself asks a *query service* for the result and waits for it, in whichever process it runs: mostly a
slot. The runtime says how to reach the service; the function stays with the driver, where the session is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.errors import OperationFailed, PenstockError
from penstock.operators.base import BatchKind, BatchResult, Operation, Operator, Result
from penstock.operators.errors import Errors
from penstock.types import Record, Schema

Query = Callable[[str, pa.RecordBatch], Iterator[pa.RecordBatch | None]]
"""Has the transformation of an operation applied to a batch: None while it waits, then the result, or an error."""

_service: Query | None = None


def use_service(service: Query | None) -> None:
    """Say how this process reaches the query service."""
    global _service
    _service = service


@dataclass(frozen=True)
class Transform(Operation):
    """Apply a DataFrame function to micro-batches; ``function`` stays with the driver."""

    function: Any
    schema: Schema
    kind = "transform"
    batch_kind = BatchKind.ONLY
    is_pure = False
    is_whole = True

    def bind(self, schema: Schema) -> Schema:
        del schema
        return self.schema

    def build(self, schema: Schema, errors: Errors) -> Operator:
        return _TransformOperator(self.schema, schema, errors)

    def __getstate__(self) -> dict[str, object]:
        # DataFrames that the function refers to cannot leave the driver.
        return {"function": None, "schema": self.schema}

    def __setstate__(self, state: dict[str, object]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, value)

    def describe(self) -> str:
        return "a Spark SQL job for each micro-batch, some tenths of a second"


class WaitingOperator(Operator):
    """An operation whose batch form waits for somebody else; a slot looks up meanwhile."""

    def waiting(self, batch: pa.RecordBatch) -> Iterator[BatchResult | None]:
        """Give None while the result is waited for, and then the result."""
        raise NotImplementedError

    def process_batch(self, batch: pa.RecordBatch) -> BatchResult:
        return next(done for done in self.waiting(batch) if done is not None)


class _TransformOperator(WaitingOperator):
    def __init__(self, output: Schema, schema: Schema, errors: Errors) -> None:
        super().__init__(self._rows, schema=schema, output=output)
        self._errors = errors

    def waiting(self, batch: pa.RecordBatch) -> Iterator[BatchResult | None]:
        if _service is None:
            raise PenstockError("this process does not know the query service.", operation=self._errors.operation)
        try:
            for made in _service(self._errors.operation, batch):
                yield None if made is None else BatchResult(made)
        except PenstockError:
            raise
        except Exception as error:
            raise OperationFailed(
                operation=self._errors.operation,
                cause=str(error),
                record=f"a micro-batch of {batch.num_rows} records",
                user_traceback="",
            ) from None

    def _rows(self, rows: list[Record]) -> Result:
        done = self.process_batch(self._schema.to_batch(rows))
        return Result(self._output.to_rows(done.columns))
