"""The half of an aggregation before the shuffle: partials for each key and window of a block; keeps nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ArithmeticFailed, BadRecord
from penstock.operators.base import BatchForm, BatchKind, BatchResult, Operation, Operator
from penstock.operators.errors import Errors
from penstock.operators.grouping import Groups
from penstock.operators.keyed.aggregates import Aggregate, Custom
from penstock.operators.keyed.panes import no_time, pane_source
from penstock.operators.loop import compile_loop
from penstock.types import TIMESTAMP, Schema, attribute

if TYPE_CHECKING:
    from penstock.operators.keyed.aggregation import Aggregation


@dataclass(frozen=True)
class Combine(Operation):
    """Before the shuffle: partials for each key and window of a block, or the records themselves (``whole``)."""

    of: Aggregation
    whole: bool = False
    kind = "combine"

    @property
    def batch_kind(self) -> BatchKind:  # type: ignore[override]
        fast = self.whole or all(aggregate.arrow_functions for _, aggregate in self.of.aggregates)
        return BatchKind.VECTORISED if fast else BatchKind.LOOP

    @property
    def is_pure(self) -> bool:  # type: ignore[override]
        return self.whole or not any(isinstance(aggregate, Custom) for _, aggregate in self.of.aggregates)

    def bind(self, schema: Schema) -> Schema:
        return schema if self.whole else self.of.partials(schema)

    def build(self, schema: Schema, errors: Errors) -> Operator:
        output = self.bind(schema)
        window = self.of.window
        before, body, after = [], [], []
        if window:
            body += pane_source(window)
        if (time := self.of.needed_time) is not None:
            body.append(f"if r.{attribute(time)} is None: no_time({time!r})")
        if self.whole:
            body.append("append(r)")
        else:
            before.append("groups = {}")
            group = ", ".join([*(f"r.{attribute(key)}" for key in self.of.keys), *(["w"] if window else [])])
            body.append(f"g = ({group}{',' if group else ''})")
            body += self.of.accumulate("groups.get(g)", "groups[g]", self.of.of_record())
            after.append(f"for g, a in groups.items(): append(P(*g, a[0], {self._packed()}))")
        names = {**self.of.names, "no_time": no_time, "P": output.record_type}
        process = compile_loop(errors.operation, body, names, errors, before=before, after=after)
        return Operator(process, schema=schema, output=output, vectorised=self._vectorised(output))

    def _packed(self) -> str:
        places = self.of.slot_places(1)
        return ", ".join(
            aggregate.pack(slot)
            for (_, aggregate), slots in zip(self.of.aggregates, places, strict=True)
            for slot in slots
        )

    def _vectorised(self, output: Schema) -> BatchForm | None:
        if self.batch_kind is not BatchKind.VECTORISED:
            return None
        window, keys, whole, time = self.of.window, self.of.keys, self.whole, self.of.needed_time
        aggregates = [aggregate for _, aggregate in self.of.aggregates]

        def vectorised(batch: pa.RecordBatch) -> BatchResult:
            by = [batch.column(key) for key in keys]
            if window:
                times = batch.column(window.on)
                if times.null_count:
                    raise BadRecord("a window time is null.")
                micros = times.view(pa.int64()).to_numpy()
                by.append(pa.array(micros - micros % window.pane_us).view(TIMESTAMP.arrow))
            if time is not None and batch.column(time).null_count:
                raise BadRecord("a time is null.")
            return BatchResult(batch if whole else partials(by, aggregates, batch, output))

        return vectorised

    def describe(self) -> str:
        return "records pass whole" if self.whole else "partial aggregates per block"


def partials(
    by: Sequence[pa.Array], aggregates: Sequence[Aggregate], batch: pa.RecordBatch, output: Schema
) -> pa.RecordBatch:
    """Aggregate a batch: a row for each group of rows that are alike in ``by``, with its count and the slots."""
    groups = Groups(by, batch.num_rows)
    slots: list[pa.Array | None] = []
    rest: list[tuple[pa.Array, str]] = []
    for aggregate in aggregates:
        column = batch.column(aggregate.column) if aggregate.column else None
        for function in aggregate.arrow_functions:
            if function == "count":
                slots.append(groups.counts(column))
            else:
                if function == "sum":
                    _check_sum(column)
                slots.append(None)
                rest.append((column, function))
    others = iter(groups.aggregate(rest) if rest else ())
    arrays = [
        *groups.keys,
        groups.sizes,
        *(next(others) if slot is None else slot for slot in slots),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=output.arrow)


def _check_sum(column: pa.Array) -> None:
    """Arrow's grouped sum wraps around silently; leave anything that could overflow to the loop."""
    if pa.types.is_integer(column.type) and len(column):
        extremes = pc.min_max(column)
        low, high = extremes["min"].as_py() or 0, extremes["max"].as_py() or 0
        if max(abs(low), abs(high)) * len(column) >= 1 << 63:
            raise ArithmeticFailed(what="a sum may overflow.")
