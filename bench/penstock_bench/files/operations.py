"""What the transformations of a workload file do to messages, in both forms; `build` puts them into pipelines."""

from __future__ import annotations

from math import ceil, floor
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock import functions as F
from penstock.operators import Function
from penstock.types import Record
from penstock_bench.files.chance import drawing, limit, relabelling
from penstock_bench.files.messages import MESSAGE
from penstock_bench.foreign.programs.chance import draw, relabel

_Message = MESSAGE.record_type


class TwoForms(Protocol):
    """A function of one record, and the same of a batch."""

    def __call__(self, record: Any) -> Any: ...

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch form."""


def as_operation(forms: TwoForms) -> Function:
    """Declare both forms as an operation that makes messages."""
    made = ps.op(MESSAGE, pure=True)(forms)
    made.batch(forms.batch)
    return made


def resized(ratio: float) -> Any:
    """The value as a column, cut or repeated to ``floor(length · ratio)`` letters."""
    value = ps.col("value")
    if ratio == 1:
        return value
    made = F.substring(F.repeat(value, ceil(ratio)), 1, F.floor(F.length(value) * ratio).cast("int"))
    return ps.coalesce(made, "")  # never null, which the length's type does not say


class Modify:
    """Resizes a message and repeats it ``floor(rate_ratio)`` times, and once more with the probability that is left."""

    __name__ = "modify"

    def __init__(self, seed: int, name: str, size_ratio: float, rate_ratio: float) -> None:
        self._ratio, self._times = size_ratio, ceil(size_ratio)
        self._draw = drawing(seed, name)
        self._whole = floor(rate_ratio)
        self._limit = limit(rate_ratio - self._whole)
        self._copies = [relabelling(seed, name, i) for i in range(self._whole + 1)]

    def value(self, value: str) -> str:
        """Return a value resized."""
        return (value * self._times)[: int(len(value) * self._ratio)]

    def __call__(self, record: Any) -> list[Record]:
        value = self.value(record.value)
        count = self._whole + (draw(self._draw, record.id) < self._limit)
        return [_Message(record.key, value, record.time, relabel(copy, record.id)) for copy in self._copies[:count]]

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch form."""
        ids = batch.column("id").to_numpy()
        counts = self._whole + (draw(self._draw, ids) < self._limit)
        rows = np.repeat(np.arange(batch.num_rows), counts)
        copies = np.arange(rows.size) - np.repeat(np.cumsum(counts) - counts, counts)
        values = batch.column("value")
        if self._ratio != 1:
            values = pa.array(map(self.value, values.to_pylist()), pa.string())
        whole = [batch.column("key"), values, batch.column("time"), pa.array(ids)]
        taken = pa.RecordBatch.from_arrays(whole, schema=MESSAGE.arrow).take(pa.array(rows))
        new_ids = pa.array(relabel(np.array(self._copies)[copies].T, ids[rows]))
        return pa.RecordBatch.from_arrays([*taken.columns[:3], new_ids], schema=MESSAGE.arrow)
