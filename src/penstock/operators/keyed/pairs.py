"""Aggregates of two columns, and of how often values come: covariance and correlation, max_by of any type, mode.

Pure functions for `folding.Fold`: partials are made of what MessagePack keeps as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec

from penstock.errors import ArithmeticFailed
from penstock.operators.keyed.folding import VALUES_MAX, too_many
from penstock.types import DataType, python_type

_encode = msgspec.msgpack.encode
Comoments = list[float]
"""Count, both means, the sum of products of differences from them, and the sums of their squares."""


def pair(x: Any, y: Any) -> Comoments:
    """The partial of one record; nothing where a value is null."""
    return [] if x is None or y is None else [1.0, float(x), float(y), 0.0, 0.0, 0.0]


def paired(left: Comoments, right: Comoments) -> Comoments:
    """The co-moments of two groups together, as Spark computes them."""
    if not left or not right:
        return left or right
    n, x, y, c, xx, yy = left
    k, ox, oy, oc, oxx, oyy = right
    total = n + k
    dx, dy = ox - x, oy - y
    sx, sy = dx / total, dy / total
    left[:] = [
        total,
        x + sx * k,
        y + sy * k,
        c + oc + dx * sy * n * k,
        xx + oxx + dx * sx * n * k,
        yy + oyy + dy * sy * n * k,
    ]
    return left


def covariance(fewer: int) -> Callable[[Comoments], float | None]:
    """The sum of products by the count, or by one less."""

    def finish(moments: Comoments) -> float | None:
        return None if not moments or moments[0] <= fewer else moments[3] / (moments[0] - fewer)

    return finish


def correlation(moments: Comoments) -> float | None:
    """Pearson's; none of a single record."""
    if not moments or moments[0] == 1:
        return None
    _, _, _, c, xx, yy = moments
    root = math.sqrt(xx * yy)
    if not root:
        raise ArithmeticFailed(what="corr of a column whose values are all equal divides by zero.")
    return c / root


Counted = dict[bytes, int]


def counted_packed(value: Any) -> Counted:
    """The partial of a mode."""
    return {} if value is None else {_encode(value + 0.0 if type(value) is float else value): 1}


def added_packed(left: Counted, right: Counted) -> Counted:
    """Counts of two groups together."""
    for value, count in right.items():
        left[value] = left.get(value, 0) + count
    if len(left) > VALUES_MAX:
        raise too_many("mode", VALUES_MAX)
    return left


def most_frequent(kind: DataType) -> Callable[[Counted], Any]:
    """The value that came most often, of several the smallest."""
    decode = msgspec.msgpack.Decoder(python_type(kind)).decode

    def finish(counts: Counted) -> Any:
        if not counts:
            return None
        most = max(counts.values())
        return min((decode(value) for value, count in counts.items() if count == most), key=ranked)

    return finish


def ranked(value: Any) -> tuple[bool, Any]:
    """What values are ordered by: NaN is larger than any number."""
    return (value != value, value)


By = list[bytes]
"""What decides, and what is kept with it."""


def kept_by(value: Any, by: Any) -> By:
    """The partial of max_by and min_by."""
    return [] if by is None else [_encode(by), _encode(value)]


def further(kind: DataType, *, largest: bool) -> Callable[[By, By], By]:
    """The partial whose deciding value is larger, or smaller; of equal ones the first."""
    decode = msgspec.msgpack.Decoder(python_type(kind)).decode

    def combine(left: By, right: By) -> By:
        if not left or not right:
            return left or right
        one, other = ranked(decode(left[0])), ranked(decode(right[0]))
        return right if (other > one if largest else other < one) else left

    return combine


def kept_value(kind: DataType) -> Callable[[By], Any]:
    """The value that was kept."""
    decode = msgspec.msgpack.Decoder(python_type(kind) | None).decode
    return lambda held: decode(held[1]) if held else None


def bits(operator: Callable[[int, int], int]) -> Callable[[list[int], list[int]], list[int]]:
    """Bits of two groups together."""

    def combine(left: list[int], right: list[int]) -> list[int]:
        return [operator(left[0], right[0])] if left and right else left or right

    return combine
