"""Groups of rows in a batch of columns: numbered, counted and aggregated; for `Combine` and for dealing out by key."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Codes = npt.NDArray[np.int32]


class Groups:
    """The groups of rows that are alike in some columns, numbered in the order of their first row, as a dict would be.

    Attributes
    ----------
    codes : array
        The group of each row.
    """

    def __init__(self, columns: Sequence[pa.Array], records: int) -> None:
        self._columns = columns
        self._records = records
        self._distinct: pa.Array | None = None
        codes = np.zeros(records, dtype=np.int32)
        for i, column in enumerate(columns):
            encoded = column.dictionary_encode(null_encoding="encode")
            more: Codes = encoded.indices.to_numpy()
            if i == 0:
                codes, self._distinct = more, encoded.dictionary
            elif len(encoded.dictionary) > 1:
                pairs = pa.array(codes.astype(np.int64) * len(encoded.dictionary) + more)
                codes = pairs.dictionary_encode().indices.to_numpy()
        self.codes = codes
        self._count = int(codes.max(initial=-1)) + 1

    @cached_property
    def keys(self) -> list[pa.Array]:
        """The columns' values in each group."""
        if len(self._columns) == 1:
            return [self._distinct]
        rows = np.zeros(self._count, dtype=np.int64)
        rows[self.codes] = np.arange(self._records)
        return [column.take(pa.array(rows)) for column in self._columns]

    @cached_property
    def sizes(self) -> pa.Array:
        """How many rows each group has."""
        return pa.array(np.bincount(self.codes, minlength=self._count))

    def counts(self, column: pa.Array | None = None) -> pa.Array:
        """Count the rows of each group, or those in which ``column`` is not null."""
        if column is None or not column.null_count:
            return self.sizes
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        return pa.array(np.bincount(self.codes[valid], minlength=self._count))

    def aggregate(self, wanted: Sequence[tuple[pa.Array, str]]) -> list[pa.Array]:
        """Apply Arrow's grouped functions to columns."""
        columns = {f"_{i}": column for i, (column, _) in enumerate(wanted)}
        functions = [(f"_{i}", function) for i, (_, function) in enumerate(wanted)]
        grouped = pa.table({**columns, "group": self.codes}).group_by("group", use_threads=False).aggregate(functions)
        grouped = grouped.take(pc.sort_indices(grouped.column("group")))  # Arrow promises no order of groups
        return [grouped.column(f"{name}_{function}").combine_chunks() for name, function in functions]
