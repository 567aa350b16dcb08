"""The fields of a generated message: its value `timestamp,random[a-z]{N}` and its id; `sources` draws them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.connectors.draws import ArrowColumn, Column, Draw, FieldSpec, below, random_words, stream_keys
from penstock.connectors.rendering import Made, Piece, Places, integer_texts
from penstock.types import BIGINT, STRING, DataType, Schema
from penstock_bench.files.distributions import Discrete
from penstock_bench.foreign.programs.chance import PRIME

MESSAGE = Schema.parse("key string not null, value string not null, time timestamp not null, id bigint not null")
"""What flows in every stream of a workload file."""
_POOL_LETTERS = 1 << 20
_VIEW_BYTES, _SHORT_BYTES = 16, 12
"""Of Arrow's string views: each one's size, and the longest text that it holds itself."""


@cache
def _pool() -> str:
    """A million random letters: the text of a message is a piece of them, as drawing each letter would cost more than
    many a pipeline does. The first letters follow the last, so that every piece has its full length.
    """
    keys = np.array(stream_keys(0, "letters", 1), dtype=np.uint64)
    drawn = random_words(keys, np.arange(_POOL_LETTERS, dtype=np.uint64))[0]
    letters = (below(drawn, 26) + ord("a")).astype(np.uint8).tobytes().decode("ascii")
    return letters + letters


def _look(
    views: npt.NDArray[np.uint8],
    text: npt.NDArray[np.uint8],
    buffer: int,
    first: npt.NDArray[Any],
    length: npt.NDArray[Any],
) -> None:
    """Let Arrow's views, all zero as yet, show parts of a text that is so many-th among the buffers.

    A view is a length, then either the part itself, if it is short enough, or its first four letters, its buffer and
    its place there.
    """
    views[:, :4] = length.astype("<i4")[:, None].view(np.uint8)
    views[:, 4:8] = text[np.minimum(first[:, None] + np.arange(4), text.size - 1)]
    views[:, 8] = buffer
    views[:, 12:] = first.astype("<i4")[:, None].view(np.uint8)
    short = np.flatnonzero(length <= _SHORT_BYTES)
    if short.size:
        places = np.minimum(first[short, None] + np.arange(_SHORT_BYTES), text.size - 1)
        views[short, 4:] = np.where(np.arange(_SHORT_BYTES) < length[short, None], text[places], 0)


class Message(FieldSpec):
    """The value of a message: when it is scheduled, in microseconds since the epoch, and random letters."""

    words = 2

    def __init__(self, lengths: Discrete) -> None:
        self._low = lengths.low
        self._picker = lengths.picker

    @property
    def type(self) -> DataType:
        return STRING

    def values(self) -> Column:
        low, picker, pool = self._low, self._picker, _pool()

        def column(draw: Draw) -> list[str]:
            first = below(draw.words[1], _POOL_LETTERS)
            ends = first + picker(draw.words[0]) + low
            return [
                f"{time_us},{pool[at:end]}"
                for time_us, at, end in zip(draw.times_us.tolist(), first.tolist(), ends.tolist(), strict=True)
            ]

        return column

    def arrow(self) -> ArrowColumn:
        low, picker = self._low, self._picker
        pool = _pool().encode("ascii")
        letters, pool_buffer = np.frombuffer(pool, dtype=np.uint8), pa.py_buffer(pool)

        def array(draw: Draw) -> pa.Array:
            count = draw.offsets.size
            _, ends, digits = integer_texts(draw.times_us).buffers()
            ends = np.frombuffer(ends, dtype=np.int32)[: count + 1]
            # Time, comma and letters of each message as views of texts that are there: one cast copies them all.
            views = np.zeros((count, 3, _VIEW_BYTES), dtype=np.uint8)
            _look(views[:, 0], np.frombuffer(digits, dtype=np.uint8), 0, ends[:-1], np.diff(ends))
            views[:, 1, 0], views[:, 1, 4] = 1, ord(",")
            _look(views[:, 2], letters, 1, below(draw.words[1], _POOL_LETTERS), picker(draw.words[0]) + low)
            parts = [None, pa.py_buffer(views), digits, pool_buffer]
            _, ends, text = pa.Array.from_buffers(pa.string_view(), 3 * count, parts).cast(pa.string()).buffers()
            ends = np.ascontiguousarray(np.frombuffer(ends, dtype=np.int32)[: 3 * count + 1 : 3])
            return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), text])

        return array

    def json(self) -> tuple[Piece, ...]:
        array = self.arrow()
        return (b'"', Made(lambda draw: (array(draw).cast(pa.binary()), np.arange(draw.offsets.size))), b'"')


class Identity(FieldSpec):
    """The id of a message, different for all messages of a workload: its number, dealt out over the sources."""

    words = 0

    def __init__(self, place: int, sources: int) -> None:
        self._place = place
        self._sources = sources

    @property
    def type(self) -> DataType:
        return BIGINT

    def _numbers(self, draw: Draw) -> npt.NDArray[np.int64]:
        numbers = (draw.offsets * np.uint64(self._sources) + np.uint64(self._place)) % np.uint64(PRIME)
        return numbers.astype(np.int64)

    def values(self) -> Column:
        return lambda draw: self._numbers(draw).tolist()

    def arrow(self) -> ArrowColumn:
        return lambda draw: pa.array(self._numbers(draw))

    def json(self) -> tuple[Piece, ...]:
        return (Made(self._texts),)

    def _texts(self, draw: Draw) -> tuple[pa.Array, Places]:
        return integer_texts(self._numbers(draw)), np.arange(draw.offsets.size)
