"""Random draws of the generator, column by column, and the interface of a field, which ``specs`` implements.

Every draw is a hash of (seed, field name, offset), as a counter-based generator makes it: a record is the
same whatever was read before, however the source is partitioned, and whatever other fields there are.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import InvalidOption
from penstock.types import DataType

if TYPE_CHECKING:
    from penstock.connectors.rendering import Piece

Words = npt.NDArray[np.uint64]
Times = npt.NDArray[np.int64]

_VALUES_MAX = 10_000_000
_CELL_BITS = 16


@dataclass(frozen=True, slots=True)
class Draw:
    """What a chunk of records is made from.

    Attributes
    ----------
    offsets : array of uint64
        Global offsets of the records.
    times_us : array of int64
        When each of them is scheduled, since the epoch.
    words : array of uint64
        Random bits: one row for each of the field's :attr:`FieldSpec.words`, one column per record.
    """

    offsets: Words
    times_us: Times
    words: Words


Column = Callable[[Draw], list[Any]]
ArrowColumn = Callable[[Draw], pa.Array]


class FieldSpec(ABC):
    """How one field of a generated record is drawn."""

    words: int = 1
    """How many random 64-bit words a record takes."""

    nullable: bool = False

    @property
    @abstractmethod
    def type(self) -> DataType:
        """Type of the field in format "columns"."""

    @abstractmethod
    def values(self) -> Column:
        """Return the function that draws the field as Python values."""

    @abstractmethod
    def arrow(self) -> ArrowColumn:
        """Return the function that draws the same values as an array."""

    @abstractmethod
    def json(self) -> tuple[Piece, ...]:
        """Return the pieces of the field's text in JSON."""


def random_words(keys: Words, offsets: Words) -> Words:
    """Return one row of random words per key, one column per offset (SplitMix64 at the place ``offset``)."""
    # Operations in place on one array: temporaries would cost as much as the arithmetic.
    z = offsets * np.uint64(0x9E3779B97F4A7C15) + keys[:, None]
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def stream_keys(seed: int, name: str, words: int) -> list[int]:
    """Return the keys of a field's random words."""
    return [
        int.from_bytes(hashlib.blake2b(f"{seed}/{name}/{i}".encode(), digest_size=8).digest(), "little")
        for i in range(words)
    ]


def below(words: Words, limit: int) -> npt.NDArray[np.int64]:
    """Spread random words evenly over 0 … limit-1."""
    if limit <= 1 << 32:
        return ((words >> np.uint64(32)) * np.uint64(limit) >> np.uint64(32)).view(np.int64)
    if limit == 1 << 64:
        return words.view(np.int64)
    return (words % np.uint64(limit)).view(np.int64)


def unit(words: Words) -> npt.NDArray[np.float64]:
    """Turn random words into floats from 0 up to, not including, 1."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


class Picker:
    """Picks places in a list of values, evenly or by weight."""

    def __init__(self, count: int, weights: Sequence[float] | None, zipf: float | None) -> None:
        if not 1 <= count <= _VALUES_MAX:
            raise InvalidOption(option="values", given=f"{count} values", allowed=f"1 to {_VALUES_MAX} values")
        if weights is not None and zipf is not None:
            raise InvalidOption(option="zipf", given=zipf, allowed="either weights or zipf, not both")
        self.count = count
        self.cumulative: npt.NDArray[np.float64] | None = None
        if zipf is not None:
            if isinstance(zipf, bool) or not isinstance(zipf, int | float) or not 0 <= zipf <= 100:
                raise InvalidOption(option="zipf", given=zipf, allowed="an exponent from 0 to 100")
            self.cumulative = _cumulative(np.arange(1, count + 1, dtype=np.float64) ** -float(zipf))
        elif weights is not None:
            given = np.asarray(weights, dtype=np.float64)
            if given.shape != (count,) or not np.isfinite(given).all() or (given < 0).any() or not given.sum() > 0:
                raise InvalidOption(
                    option="weights",
                    given=list(weights),
                    allowed=f"{count} numbers from 0, not all of them 0",
                )
            self.cumulative = _cumulative(given)

    def __call__(self, words: Words) -> npt.NDArray[np.int64]:
        if self.cumulative is None:
            return below(words, self.count)
        places: npt.NDArray[np.int64] = self._cells[words >> np.uint64(64 - _CELL_BITS)]
        unsure = places < 0
        if unsure.any():
            places[unsure] = np.searchsorted(self.cumulative, unit(words[unsure]), side="right")
        return places

    @cached_property
    def _cells(self) -> npt.NDArray[np.int64]:
        """The place of all draws that begin with the same bits, or -1; a search for each would cost ten times more."""
        assert self.cumulative is not None
        first = np.arange(1 << _CELL_BITS, dtype=np.uint64) << np.uint64(64 - _CELL_BITS)
        last = first | np.uint64((1 << 64 - _CELL_BITS) - 1)
        low, high = (np.searchsorted(self.cumulative, unit(words), side="right") for words in (first, last))
        return np.where(low == high, low, -1)

    def __getstate__(self) -> dict[str, object]:
        return {"count": self.count, "cumulative": self.cumulative}


def _cumulative(weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    total = np.cumsum(weights)
    total /= total[-1]
    # A draw just below 1 must not fall behind the last value that has a weight.
    total[np.flatnonzero(weights)[-1] :] = 1.0
    return total
