"""Groups of rows in a batch of columns: numbered, counted and aggregated; for `Combine` and for dealing out by key."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ArithmeticFailed
from penstock.operators.aggregates import Aggregate
from penstock.types import Schema

Codes = npt.NDArray[np.int32]


class Groups:
    """The groups of rows that are alike in some columns, numbered in the order of their first row, as a dict would be.

    Attributes
    ----------
    codes : array
        The group of each row.
    rows : pyarrow.Array
        A row of each group, from which its key can be taken.
    """

    def __init__(self, columns: Sequence[pa.Array], records: int) -> None:
        codes = np.zeros(records, dtype=np.int32)
        for i, column in enumerate(columns):
            more = _codes(column)
            width = int(more.max(initial=0)) + 1
            if i == 0:
                codes = more
            elif width > 1:
                codes = _codes(pa.array(codes.astype(np.int64) * width + more))
        self.codes = codes
        self._count = int(codes.max(initial=-1)) + 1
        rows = np.zeros(self._count, dtype=np.int64)
        rows[codes] = np.arange(records)
        self.rows = pa.array(rows)

    def counts(self, column: pa.Array | None = None) -> pa.Array:
        """Count the rows of each group, or those in which ``column`` is not null."""
        codes = self.codes
        if column is not None and column.null_count:
            codes = codes[column.is_valid().to_numpy(zero_copy_only=False)]
        return pa.array(np.bincount(codes, minlength=self._count))

    def aggregate(self, wanted: Sequence[tuple[pa.Array, str]]) -> list[pa.Array]:
        """Apply Arrow's grouped functions to columns."""
        columns = {f"_{i}": column for i, (column, _) in enumerate(wanted)}
        functions = [(f"_{i}", function) for i, (_, function) in enumerate(wanted)]
        grouped = pa.table({**columns, "group": self.codes}).group_by("group", use_threads=False).aggregate(functions)
        grouped = grouped.take(pc.sort_indices(grouped.column("group")))  # Arrow promises no order of groups
        return [grouped.column(f"{name}_{function}").combine_chunks() for name, function in functions]


def _codes(column: pa.Array) -> Codes:
    """Number the distinct values of a column, a null among them, in the order in which they come."""
    codes: Codes = column.dictionary_encode(null_encoding="encode").indices.to_numpy()
    return codes


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
        *(column.take(groups.rows) for column in by),
        groups.counts(),
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
