"""The kinds of fields a generator can draw; ``fields`` builds them for the user."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.connectors.draws import ArrowColumn, Column, Draw, FieldSpec, Picker, Times, Words, below, unit
from penstock.connectors.rendering import (
    Made,
    Picked,
    Piece,
    Places,
    Renderer,
    fixed_texts,
    float_texts,
    integer_texts,
)
from penstock.errors import InvalidOption
from penstock.types import BIGINT, BINARY, BOOLEAN, DOUBLE, STRING, TIMESTAMP, DataType, array_of

_HEX = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), dtype=np.uint16)
# A list of texts that is chosen from is copied for every chunk, unless it is longer than this.
_KNOWN_BYTES_MAX = 128 * 1024


def _objects(values: Sequence[object]) -> npt.NDArray[np.object_]:
    table = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        table[i] = value
    return table


class _Numbers(FieldSpec):
    """A field whose values are numbers in an array."""

    @abstractmethod
    def numbers(self, draw: Draw) -> npt.NDArray[Any]:
        """Draw the column."""

    def values(self) -> Column:
        return lambda draw: self.numbers(draw).tolist()

    def arrow(self) -> ArrowColumn:
        return lambda draw: pa.array(self.numbers(draw))

    def json(self) -> tuple[Piece, ...]:
        return (Made(self._texts),)

    def _texts(self, draw: Draw) -> tuple[pa.Array, Places]:
        numbers = self.numbers(draw)
        texts = float_texts(numbers) if numbers.dtype == np.float64 else integer_texts(numbers)
        return texts, np.arange(numbers.size)


def python_field_type(values: Sequence[object], *, option: str) -> DataType:
    """Return the type of a column that holds these Python values (nulls aside)."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int}:
        if not all(-(1 << 63) <= value < 1 << 63 for value in values if isinstance(value, int)):
            raise InvalidOption(option=option, given=list(values[:5]), allowed="whole numbers of 64 bits")
        return BIGINT
    if kinds == {float} or kinds == {int, float}:
        return DOUBLE
    if kinds == {list}:
        return array_of(
            python_field_type([x for value in values if isinstance(value, list) for x in value], option=option)
        )
    known = {bool: BOOLEAN, str: STRING, bytes: BINARY}
    if len(kinds) != 1 or not kinds <= known.keys():
        raise InvalidOption(
            option=option,
            given=list(values[:5]),
            allowed="values of one type: bool, int, float, str, bytes or list",
        )
    return known[kinds.pop()]


class Choice(FieldSpec):
    """One of several values."""

    def __init__(self, values: Sequence[object], picker: Picker) -> None:
        self._type = python_field_type(values, option="values")
        if self._type is DOUBLE:
            values = [None if value is None else float(value) for value in values]  # type: ignore[arg-type]
        self._values = list(values)
        self._picker = picker
        self.nullable = None in self._values

    @property
    def type(self) -> DataType:
        return self._type

    def _places(self, draw: Draw) -> Places:
        return self._picker(draw.words[0])

    def values(self) -> Column:
        table = _objects(self._values)
        return lambda draw: table[self._places(draw)].tolist()

    def arrow(self) -> ArrowColumn:
        table = pa.array(self._values, self._type.arrow)
        return lambda draw: table.take(pa.array(self._places(draw)))

    def json(self) -> tuple[Piece, ...]:
        texts = [msgspec.json.encode(value) for value in self._values]
        if sum(map(len, texts)) <= _KNOWN_BYTES_MAX:
            return (Picked(texts, self._places),)
        table = pa.array(texts, pa.binary())
        return (Made(lambda draw: (table.take(pa.array(self._places(draw))), np.arange(draw.offsets.size))),)


class Phrase(FieldSpec):
    """Words of a vocabulary, joined by spaces."""

    def __init__(self, vocabulary: Sequence[str], count: int, picker: Picker) -> None:
        self.words = count
        self._vocabulary = list(vocabulary)
        self._picker = picker

    @property
    def type(self) -> DataType:
        return STRING

    def values(self) -> Column:
        table, picker = _objects(self._vocabulary), self._picker
        return lambda draw: [" ".join(row) for row in table[picker(draw.words.T)].tolist()]

    def arrow(self) -> ArrowColumn:
        render = Renderer([(0, self._pieces([word.encode() for word in self._vocabulary]))], pa.string())
        return lambda draw: render([draw], draw.offsets.size)

    def json(self) -> tuple[Piece, ...]:
        return b'"', self._pieces([msgspec.json.encode(word)[1:-1] for word in self._vocabulary]), b'"'

    def _pieces(self, texts: list[bytes]) -> Picked:
        picker, spaced = self._picker, np.full(self.words, len(texts))
        spaced[0] = 0  # the first word has no space before it
        return Picked(
            [*texts, *(b" " + text for text in texts)], lambda draw: picker(draw.words.T) + spaced, self.words
        )


class Integers(_Numbers):
    """Whole numbers from ``low`` to ``high``."""

    def __init__(self, low: int, high: int) -> None:
        self._low, self._count = low, high - low + 1

    @property
    def type(self) -> DataType:
        return BIGINT

    def numbers(self, draw: Draw) -> npt.NDArray[np.int64]:
        # Wraps around as two's complement does where high - low exceeds an int64; the sum is right again.
        return below(draw.words[0], self._count) + np.int64(self._low)


class Uniform(_Numbers):
    """Floats spread evenly."""

    def __init__(self, low: float, high: float) -> None:
        self._low, self._span = low, high - low

    @property
    def type(self) -> DataType:
        return DOUBLE

    def numbers(self, draw: Draw) -> npt.NDArray[np.float64]:
        return unit(draw.words[0]) * self._span + self._low


class Normal(_Numbers):
    """Floats of a normal distribution."""

    words = 2

    def __init__(self, mean: float, std: float) -> None:
        self._mean, self._std = mean, std

    @property
    def type(self) -> DataType:
        return DOUBLE

    def numbers(self, draw: Draw) -> npt.NDArray[np.float64]:
        # Box-Muller takes a fixed number of words, which rejection methods do not; 1 - u is never 0.
        radius = np.sqrt(-2.0 * np.log(1.0 - unit(draw.words[0])))
        return radius * np.cos(2.0 * math.pi * unit(draw.words[1])) * self._std + self._mean


class Counter(_Numbers):
    """The global offset."""

    words = 0

    @property
    def type(self) -> DataType:
        return BIGINT

    def numbers(self, draw: Draw) -> npt.NDArray[np.int64]:
        return draw.offsets.view(np.int64)


class EventTime(_Numbers):
    """The scheduled time, less some jitter."""

    def __init__(self, unit_us: int, jitter_us: int) -> None:
        self.words = 1 if jitter_us else 0
        self._unit_us, self._jitter_us = unit_us, jitter_us

    @property
    def type(self) -> DataType:
        return TIMESTAMP

    def numbers(self, draw: Draw) -> Times:
        times_us = draw.times_us
        if self._jitter_us:
            times_us = times_us - below(draw.words[0], self._jitter_us + 1)
        return times_us // self._unit_us

    def values(self) -> Column:
        # A timestamp is in microseconds whatever the unit, which only sets how fine it is.
        return lambda draw: (self.numbers(draw) * self._unit_us).tolist()

    def arrow(self) -> ArrowColumn:
        data_type = self.type.arrow
        return lambda draw: pa.array(self.numbers(draw) * self._unit_us).view(data_type)

    def _texts(self, draw: Draw) -> tuple[pa.Array, Places]:
        # Many records follow each other within a millisecond: each time is written once.
        numbers = self.numbers(draw)
        changes = np.empty(numbers.size, dtype=np.bool_)
        changes[:1] = True
        np.not_equal(numbers[1:], numbers[:-1], out=changes[1:])
        return integer_texts(numbers[changes]), np.cumsum(changes) - 1


class _Fixed(FieldSpec):
    """Fixed-width ASCII text."""

    def __init__(self, length: int) -> None:
        self._length = length

    @property
    def type(self) -> DataType:
        return STRING

    @abstractmethod
    def letters(self, words: Words) -> npt.NDArray[np.uint8]:
        """Return one row of characters per record."""

    def values(self) -> Column:
        length = self._length

        def column(draw: Draw) -> list[str]:
            text = np.ascontiguousarray(self.letters(draw.words)).tobytes().decode("ascii")
            return [text[at : at + length] for at in range(0, len(text), length)]

        return column

    def arrow(self) -> ArrowColumn:
        return lambda draw: fixed_texts(self.letters(draw.words), pa.string())

    def json(self) -> tuple[Piece, ...]:
        made = Made(lambda draw: (fixed_texts(self.letters(draw.words), pa.binary()), np.arange(draw.offsets.size)))
        return b'"', made, b'"'


class Letters(_Fixed):
    """Letters a to z."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.words = -(-length // 4)

    def letters(self, words: Words) -> npt.NDArray[np.uint8]:
        # Sixteen bits per letter leave no visible bias; a byte would favour some letters by a tenth.
        parts = np.ascontiguousarray(words.T).view(np.uint16)[:, : self._length]
        return (parts.astype(np.uint32) * np.uint32(26) >> np.uint32(16)).astype(np.uint8) + np.uint8(ord("a"))


class HexId(_Fixed):
    """Hexadecimal digits."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.words = -(-length // 16)

    def letters(self, words: Words) -> npt.NDArray[np.uint8]:
        parts = np.ascontiguousarray(words.T).view(np.uint8)[:, : (self._length + 1) // 2]
        return _HEX[parts].view(np.uint8)[:, : self._length]


class Constant(FieldSpec):
    """The same value in every record; plain Python values among the fields become this."""

    words = 0

    def __init__(self, name: str, value: object) -> None:
        self._name, self.value = name, value
        self.nullable = value is None

    @property
    def type(self) -> DataType:
        return python_field_type([self.value], option=self._name)

    def values(self) -> Column:
        return lambda draw: [self.value] * draw.offsets.size

    def arrow(self) -> ArrowColumn:
        value = pa.array([self.value], self.type.arrow)
        return lambda draw: value.take(pa.array(np.zeros(draw.offsets.size, dtype=np.int64)))

    def json(self) -> tuple[Piece, ...]:
        return (msgspec.json.encode(self.value),)
