"""Texts of generated records, put together for a whole chunk at once; fields give the pieces, the generator calls.

A record's text is a row of pieces, and every piece is a place in one table of texts: those that are known beforehand
(the values of a choice with what stands around them), and those made for the chunk (numbers). A single `take` then
writes the text of the whole chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.draws import Draw

Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Picked:
    """Pieces that are chosen from a list: one for a record, or ``count`` in a row."""

    texts: list[bytes]
    places: Callable[[Draw], Places]
    count: int = 1


@dataclass(frozen=True, slots=True)
class Made:
    """A piece that is made for the chunk: texts, and the place of each record's one among them."""

    texts: Callable[[Draw], tuple[pa.Array, Places]]


Piece = bytes | Picked | Made
"""Bytes are the same in every record."""


class Renderer:
    """Makes the texts of a chunk.

    Parameters
    ----------
    pieces : sequence of (int, Piece)
        What a text is made of, each with the place of its field among the draws of a call.
    data_type : pyarrow.DataType
        Binary or string.
    """

    def __init__(self, pieces: Sequence[tuple[int, Piece]], data_type: pa.DataType) -> None:
        self._type = data_type
        slots = _absorb(pieces)
        known: list[bytes] = []
        self._picked: list[tuple[int, slice, int, Picked]] = []
        self._made: list[tuple[int, int, Made]] = []
        self._width = 0
        for field, piece in slots:
            if isinstance(piece, Made):
                self._made.append((field, self._width, piece))
                self._width += 1
            else:
                columns = slice(self._width, self._width + piece.count)
                self._picked.append((field, columns, len(known), piece))
                known += piece.texts
                self._width += piece.count
        self._known = pa.array(known, pa.binary())

    def __call__(self, draws: Sequence[Draw], records: int) -> pa.Array:
        """Return one text for each record."""
        places = np.empty((records, self._width), dtype=np.int64)
        for field, columns, base, piece in self._picked:
            drawn = piece.places(draws[field])
            places[:, columns] = (drawn if drawn.ndim == 2 else drawn[:, None]) + base
        tables, base = [self._known], len(self._known)
        for field, column, made in self._made:
            texts, at = made.texts(draws[field])
            places[:, column] = at + base
            tables.append(texts)
            base += len(texts)
        table = pa.concat_arrays(tables) if self._made else self._known
        taken = pc.take(table, pa.array(places.ravel()), boundscheck=False)
        _, offsets, text = taken.buffers()
        ends = np.ascontiguousarray(np.frombuffer(offsets, dtype=np.int32)[: places.size + 1 : self._width])
        return pa.Array.from_buffers(self._type, records, [None, pa.py_buffer(ends), text])


def _absorb(pieces: Sequence[tuple[int, Piece]]) -> list[tuple[int, Picked | Made]]:
    """Put text that is always the same into the list that is chosen from beside it: a piece less for every record."""
    slots: list[tuple[int, Picked | Made]] = []
    pending = b""

    def settle() -> None:
        nonlocal pending
        if not pending:
            return
        text, pending = pending, b""
        field, before = slots[-1] if slots else (0, None)
        if isinstance(before, Picked) and before.count == 1:
            slots[-1] = field, Picked([each + text for each in before.texts], before.places)
        else:
            slots.append((0, Picked([text], _first)))

    for field, piece in pieces:
        if isinstance(piece, bytes):
            pending += piece
        elif isinstance(piece, Picked) and piece.count == 1:
            slots.append((field, Picked([pending + each for each in piece.texts], piece.places)))
            pending = b""
        else:
            settle()
            slots.append((field, piece))
    settle()
    return slots


def _first(draw: Draw) -> Places:
    return np.zeros(draw.offsets.size, dtype=np.int64)


def byte_strings(texts: pa.Array) -> list[bytes]:
    """Return the texts of a `Renderer` as Python has them; Arrow's own way takes twice as long."""
    _, offsets, data = texts.buffers()
    text = data.to_pybytes()
    return [text[start:end] for start, end in pairwise(np.frombuffer(offsets, dtype=np.int32).tolist())]


def integer_texts(numbers: npt.NDArray[Any]) -> pa.Array:
    """Return whole numbers in JSON."""
    return pa.array(numbers).cast(pa.string()).view(pa.binary())


def float_texts(numbers: npt.NDArray[np.float64]) -> pa.Array:
    """Return floats in JSON, as the encoder writes them."""
    # One call for the column, cut at its commas, is much faster than a call per number.
    text = msgspec.json.encode(numbers.tolist())[1:-1]
    commas = np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == ord(","))
    ends = np.zeros(numbers.size + 1, dtype=np.int32)
    ends[1:-1] = commas - np.arange(commas.size)
    ends[-1] = len(text) - commas.size
    return pa.Array.from_buffers(
        pa.binary(), numbers.size, [None, pa.py_buffer(ends), pa.py_buffer(text.replace(b",", b""))]
    )


def fixed_texts(letters: npt.NDArray[np.uint8], data_type: pa.DataType) -> pa.Array:
    """Return texts of one width from a row of characters for each."""
    records, width = letters.shape
    ends = np.arange(0, (records + 1) * width, width, dtype=np.int32)
    return pa.Array.from_buffers(
        data_type, records, [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(letters))]
    )
