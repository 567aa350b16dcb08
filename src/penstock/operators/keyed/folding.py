"""Aggregates whose partial is one value of any shape: distinct counts, sketches, percentiles, lists.

A `Fold` is three pure functions: the partial of a record, two partials together, the result. Partials are made of what
MessagePack keeps as it is (numbers, texts, bytes, lists, dicts), because they are packed in snapshots too;
values of other types are held as their bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.errors import ArithmeticFailed
from penstock.operators.keyed.aggregates import Opaque
from penstock.types import DataType, Schema, attribute, python_type

COLLECTED_MAX = 10_000
"""Values that a group may collect."""
VALUES_MAX = 1_000_000
"""Different values that a group may hold for an exact percentile or a distinct count."""
_encode = msgspec.msgpack.encode


@dataclass(frozen=True)
class Fold(Opaque):
    """An aggregate of three functions over the columns ``of``.

    Attributes
    ----------
    of : tuple of str
        The columns.
    of_values : callable
        The partial of the values of one record.
    combine : callable
        Merges a partial into another, which it may change.
    finish : callable
        The result.
    """

    word: str  # type: ignore[misc]
    of: tuple[str, ...]
    type: DataType
    of_values: Callable[..., Any] = field(repr=False)
    combine: Callable[[Any, Any], Any] = field(repr=False)
    finish: Callable[[Any], Any] = field(repr=False)
    ordered: bool = False  # type: ignore[misc]

    def check(self, schema: Schema) -> None:
        for name in self.of:
            schema.field(name)

    def output(self, schema: Schema) -> DataType:
        return self.type

    @property
    def _name(self) -> str:
        return f"fold_{self.word}_{'_'.join(map(attribute, self.of))}_{id(self)}"

    def of_record(self) -> tuple[str, ...]:
        return (f"{self._name}_of({', '.join(f'r.{attribute(name)}' for name in self.of)})",)

    def before_absorb(self, slots: tuple[str, ...], other: tuple[str, ...]) -> list[str]:
        return [f"{other[0]} = {self._name}_together({slots[0]}, {other[0]})"]

    def result(self, slots: tuple[str, ...]) -> str:
        return f"{self._name}_result({slots[0]})"

    def pack(self, slot: str) -> str:
        return f"fold_encode({slot})"

    def unpack(self, slot: str) -> str:
        return f"{self._name}_decode({slot})"

    @property
    def names(self) -> dict[str, object]:
        return {
            f"{self._name}_of": self.of_values,
            f"{self._name}_together": self.combine,
            f"{self._name}_result": self.finish,
            f"{self._name}_decode": msgspec.msgpack.decode,
            "fold_encode": _encode,
        }

    def __str__(self) -> str:
        return f"{self.word}({', '.join(self.of)})"


def too_many(word: str, most: int) -> ArithmeticFailed:
    """The error for a group that would hold too much."""
    return ArithmeticFailed(what=f"{word} has more than {most} values in one group.")


def united(left: dict[bytes, int], right: dict[bytes, int]) -> dict[bytes, int]:
    """Two sets as one."""
    left.update(right)
    if len(left) > VALUES_MAX:
        raise too_many("a distinct count", VALUES_MAX)
    return left


def marked(*values: Any) -> dict[bytes, int]:
    """What stands for different values: nothing where one is null."""
    if None in values:
        return {}
    return {_encode([value + 0.0 if type(value) is float else value for value in values]): 1}


Counts = dict[Any, int]


def counted(value: Any) -> Counts:
    """The partial of an exact percentile, or of a sum of different values."""
    if value is None:
        return {}
    return {value if type(value) is int else float(value) + 0.0: 1}


def added(left: Counts, right: Counts) -> Counts:
    """Counts of two groups together."""
    for value, count in right.items():
        left[value] = left.get(value, 0) + count
    if len(left) > VALUES_MAX:
        raise too_many("an exact percentile", VALUES_MAX)
    return left


def percentile(share: float) -> Callable[[Counts], float | None]:
    """The exact percentile, between two values where it has to be."""

    def finish(counts: Counts) -> float | None:
        if not counts:
            return None
        values = sorted(counts, key=lambda value: (value != value, value))
        place = (sum(counts.values()) - 1) * share
        low, high = math.floor(place), math.ceil(place)
        found: list[Any] = []
        seen = 0
        for value in values:
            seen += counts[value]
            while len(found) < 2 and seen > (low, high)[len(found)]:
                found.append(value)
        a, b = float(found[0]), float(found[1])
        return a if low == high or a == b else (high - place) * a + (place - low) * b

    return finish


Weighted = list[Any]
"""Pairs of a value and how many it stands for."""


def weighed(value: Any) -> Weighted:
    """The partial of an approximate percentile."""
    return [] if value is None else [(value, 1)]


def sketch(accuracy: int) -> Callable[[Weighted, Weighted], Weighted]:
    """Merge values with weights; above twice the accuracy, neighbours are taken together."""

    def combine(left: Weighted, right: Weighted) -> Weighted:
        left.extend(right)
        while len(left) > 2 * accuracy:
            left.sort(key=lambda entry: (entry[0] != entry[0], entry[0]))
            paired = [(b, m + n) for (_, m), (b, n) in zip(left[::2], left[1::2], strict=False)]
            left[:] = paired + (left[-1:] if len(left) % 2 else [])
        return left

    return combine


def approximate(share: float) -> Callable[[Weighted], Any]:
    """The first value at or below which at least the share of all values is."""

    def finish(entries: Weighted) -> Any:
        if not entries:
            return None
        ordered = sorted(entries, key=lambda entry: (entry[0] != entry[0], entry[0]))
        wanted = max(math.ceil(share * sum(count for _, count in entries)), 1)
        seen = 0
        for value, count in ordered:
            seen += count
            if seen >= wanted:
                return value
        return ordered[-1][0]

    return finish


def packed(value: Any) -> list[bytes]:
    """The partial of a list."""
    return [] if value is None else [_encode(value)]


def packed_set(value: Any) -> dict[bytes, int]:
    """The partial of a set."""
    return {} if value is None else {_encode(value + 0.0 if type(value) is float else value): 1}


def collected(left: list[bytes], right: list[bytes]) -> list[bytes]:
    """Two lists as one."""
    left += right
    if len(left) > COLLECTED_MAX:
        raise too_many("collect_list", COLLECTED_MAX)
    return left


def collected_set(left: dict[bytes, int], right: dict[bytes, int]) -> dict[bytes, int]:
    """Two sets as one."""
    left.update(right)
    if len(left) > COLLECTED_MAX:
        raise too_many("collect_set", COLLECTED_MAX)
    return left


def opened(kind: DataType) -> Callable[[Iterable[bytes]], list[Any]]:
    """The values that a list or set of them holds."""
    decode = msgspec.msgpack.Decoder(python_type(kind)).decode
    return lambda held: [decode(each) for each in held]


def chosen(kind: DataType, *, last: bool) -> Callable[[list[bytes]], Any]:
    """The first or the last value of a list that keeps one."""
    decode = msgspec.msgpack.Decoder(python_type(kind) | None).decode
    return lambda held: decode(held[-1 if last else 0]) if held else None


def kept(value: Any) -> list[bytes]:
    """The partial of a value of any type, null or not."""
    return [_encode(value)]


def earlier(left: list[bytes], right: list[bytes]) -> list[bytes]:
    """The first of two."""
    return left or right


def later(left: list[bytes], right: list[bytes]) -> list[bytes]:
    """The last of two."""
    return right or left


def extreme(kind: DataType, *, largest: bool) -> Callable[[list[bytes], list[bytes]], list[bytes]]:
    """The smaller or larger of two packed values."""
    decode = msgspec.msgpack.Decoder(python_type(kind)).decode

    def combine(left: list[bytes], right: list[bytes]) -> list[bytes]:
        if not left or not right:
            return left or right
        return right if (decode(right[0]) > decode(left[0])) is largest else left

    return combine


Registers = dict[int, int]
"""Of a HyperLogLog: which have seen a value, and the longest run of zeros that each has seen."""


def registers_of(hashed: Callable[[Any], int], bits: int) -> Callable[[Any], Registers]:
    """The partial of an estimate with ``2**bits`` registers."""

    def of_value(value: Any) -> Registers:
        if value is None:
            return {}
        number = hashed(value) & _BITS
        rest = (number << bits) & _BITS | (1 << (bits - 1))
        return {number >> (64 - bits): 65 - rest.bit_length()}

    return of_value


_BITS = 0xFFFFFFFFFFFFFFFF


def larger(left: Registers, right: Registers) -> Registers:
    """Registers of two groups together."""
    for place, run in right.items():
        if left.get(place, 0) < run:
            left[place] = run
    return left


def estimate(bits: int) -> Callable[[Registers], int]:
    """How many different values the registers have seen; counted linearly where few are set."""
    size = 1 << bits
    alpha = 0.7213 / (1 + 1.079 / size)

    def finish(registers: Registers) -> int:
        zeros = size - len(registers)
        if zeros and size * math.log(size / zeros) <= 2.5 * size:
            return round(size * math.log(size / zeros))
        return round(alpha * size * size / (zeros + sum(2.0**-run for run in registers.values())))

    return finish
