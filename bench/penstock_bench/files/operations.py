"""What the transformations of a workload file do to messages, in both forms; `build` puts them into pipelines."""

from __future__ import annotations

from math import ceil, floor
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import penstock as ps
from penstock.operators import Function
from penstock.types import TIMESTAMP, Record
from penstock_bench.files.chance import PRIME, Chance, Combined, Relabel, limit
from penstock_bench.files.messages import MESSAGE

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


class Resize:
    """Cuts or repeats values to ``floor(length · ratio)`` letters, and gives the message its new id."""

    __name__ = "resize"

    def __init__(self, ratio: float, relabel: Relabel) -> None:
        self._ratio = ratio
        self._times = ceil(ratio)
        self._relabel = relabel

    def value(self, value: str) -> str:
        """Return the value resized."""
        return (value * self._times)[: int(len(value) * self._ratio)]

    def __call__(self, record: Any) -> Record:
        return _Message(record.key, self.value(record.value), record.time, self._relabel.id(record.id))

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch form."""
        ids = self._relabel.id(_ids(batch, "id"))
        return _messages(batch.column("key"), self.values(batch.column("value")), batch.column("time"), ids)

    def values(self, column: pa.Array) -> pa.Array:
        """Return a column of values resized."""
        if self._ratio == 1:
            return column
        times, ratio = self._times, self._ratio
        return pa.array([(value * times)[: int(len(value) * ratio)] for value in column.to_pylist()], pa.string())


class Modify:
    """Resizes a message and repeats it ``floor(rate_ratio)`` times, and once more with the probability that is left."""

    __name__ = "modify"

    def __init__(self, seed: int, name: str, size_ratio: float, rate_ratio: float) -> None:
        self._resize = Resize(size_ratio, Relabel.of(seed, name, 0))
        self._chance = Chance.of(seed, name)
        self._whole = floor(rate_ratio)
        self._limit = limit(rate_ratio - self._whole)
        self._copies = [Relabel.of(seed, name, i) for i in range(self._whole + 1)]

    def __call__(self, record: Any) -> list[Record]:
        value = self._resize.value(record.value)
        count = self._whole + (self._chance.draw(record.id) < self._limit)
        return [_Message(record.key, value, record.time, copy.id(record.id)) for copy in self._copies[:count]]

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch form."""
        ids = _ids(batch, "id")
        counts = self._whole + (self._chance.draw(ids) < self._limit)
        rows = np.repeat(np.arange(batch.num_rows), counts)
        copies = np.arange(rows.size) - np.repeat(np.cumsum(counts) - counts, counts)
        factors = np.array([copy.a for copy in self._copies])[copies]
        terms = np.array([copy.b for copy in self._copies])[copies]
        resized = pa.RecordBatch.from_arrays(
            [batch.column("key"), self._resize.values(batch.column("value")), batch.column("time")],
            names=["key", "value", "time"],
        ).take(pa.array(rows))
        keys, values, times = resized.columns
        return _messages(keys, values, times, (factors * ids[rows] + terms) % PRIME)


class Count:
    """Makes a message of a window: the number as its value, the last moment of the window as its time."""

    __name__ = "count"

    def __init__(self, seed: int, name: str, slide_us: int, *, is_session: bool = False) -> None:
        self._combined = Combined.of(seed, name)
        self._slide_us = slide_us
        # A message at the very end of a session would still be in it, one at the end of another window would not.
        self._rest_us = 0 if is_session else 1

    def __call__(self, record: Any) -> Record:
        number = record.window_start // self._slide_us % PRIME
        id_ = self._combined.id(record.id, number)
        return _Message(record.key, str(record.count), record.window_end - self._rest_us, id_)

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch form."""
        starts_us = batch.column("window_start").cast(pa.int64()).to_numpy()
        ends_us = batch.column("window_end").cast(pa.int64()).to_numpy()
        ids = self._combined.id(_ids(batch, "id"), starts_us // self._slide_us % PRIME)
        times = pa.array(ends_us - self._rest_us).cast(TIMESTAMP.arrow)
        return _messages(batch.column("key"), batch.column("count").cast(pa.string()), times, ids)


class Pair:
    """Makes a message of a pair: both values, the later of the two times."""

    __name__ = "pair"

    def __init__(self, seed: int, name: str) -> None:
        self._combined = Combined.of(seed, name)

    def __call__(self, record: Any) -> Record:
        id = self._combined.id(record.id, record.right_id)
        return _Message(record.key, record.value + record.right_value, record.time, id)

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch form."""
        lefts, rights = batch.column("value").to_pylist(), batch.column("right_value").to_pylist()
        values = pa.array([left + right for left, right in zip(lefts, rights, strict=True)], pa.string())
        ids = self._combined.id(_ids(batch, "id"), _ids(batch, "right_id"))
        return _messages(batch.column("key"), values, batch.column("time"), ids)


def _ids(batch: pa.RecordBatch, column: str) -> npt.NDArray[np.int64]:
    ids: npt.NDArray[np.int64] = batch.column(column).to_numpy()
    return ids


def _messages(keys: pa.Array, values: pa.Array, times: pa.Array, ids: npt.NDArray[np.int64]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([keys, values, times, pa.array(ids)], schema=MESSAGE.arrow)
