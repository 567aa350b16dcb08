"""Fields of generated records, as users build them: ``ps.fields.choice([…])``, ``ps.fields.text(20)`` …"""

from __future__ import annotations

import math
from collections.abc import Sequence

from penstock.checks import Whole
from penstock.connectors.draws import FieldSpec, Picker
from penstock.connectors.specs import (
    Choice,
    Counter,
    EventTime,
    HexId,
    Integers,
    Letters,
    Normal,
    Phrase,
    Uniform,
    python_field_type,
)
from penstock.durations import parse_us
from penstock.errors import InvalidOption
from penstock.types import STRING

_LENGTH_MAX = 100_000
_UNITS_US = {"us": 1, "ms": 1_000, "s": 1_000_000}


def choice(values: Sequence[object], *, weights: Sequence[float] | None = None, zipf: float | None = None) -> FieldSpec:
    """Pick one of ``values``.

    Parameters
    ----------
    values : sequence
        Values of one type; None among them gives nulls.
    weights : sequence of float, optional
        How often each is picked relative to the others; evenly where not given.
    zipf : float, optional
        Instead of weights: the i-th value has the weight ``1 / i ** zipf``.
    """
    return Choice(values, Picker(_count("values", values), weights, zipf))


def words(vocabulary: Sequence[str], n: int, *, zipf: float | None = None) -> FieldSpec:
    """Join ``n`` words of a vocabulary by spaces, picked evenly or by Zipf's law (see :func:`choice`)."""
    picker = Picker(_count("vocabulary", vocabulary), None, zipf)
    if python_field_type(vocabulary, option="vocabulary") is not STRING or None in vocabulary:
        raise InvalidOption(option="vocabulary", given=list(vocabulary[:5]), allowed="strings")
    return Phrase(vocabulary, _length("n", n), picker)


def integers(low: int, high: int) -> FieldSpec:
    """Draw whole numbers from ``low`` to ``high``, both included."""
    for option, bound in (("low", low), ("high", high)):
        Whole(-(1 << 63), (1 << 63) - 1).read(option, bound)
    if low > high:
        raise InvalidOption(option="high", given=high, allowed=f"from low={low}")
    return Integers(low, high)


def uniform(low: float, high: float) -> FieldSpec:
    """Draw floats evenly from ``low`` up to ``high``."""
    low, high = _number("low", low), _number("high", high)
    if low > high or not math.isfinite(high - low):
        raise InvalidOption(option="high", given=high, allowed=f"from low={low}")
    return Uniform(low, high)


def normal(mean: float, std: float) -> FieldSpec:
    """Draw floats from a normal distribution."""
    if _number("std", std) < 0:
        raise InvalidOption(option="std", given=std, allowed="a number from 0")
    return Normal(_number("mean", mean), float(std))


def text(length: int) -> FieldSpec:
    """Draw ``length`` letters a to z."""
    return Letters(_length("length", length))


def hexid(length: int) -> FieldSpec:
    """Draw an identifier of ``length`` hexadecimal digits."""
    return HexId(_length("length", length))


def sequence() -> FieldSpec:
    """Number the records: the global offset, from 0."""
    return Counter()


def event_time(*, unit: str = "ms", jitter: str | int | float = 0) -> FieldSpec:
    """Give the time the record is scheduled for.

    Parameters
    ----------
    unit : {"s", "ms", "us"}
        Unit since the epoch in JSON; in columns the field is a timestamp, cut to the unit.
    jitter : str or float
        A duration; up to that much is taken off at random, so that records come out of order.
    """
    if unit not in _UNITS_US:
        raise InvalidOption(option="unit", given=unit, allowed=", ".join(map(repr, _UNITS_US)))
    return EventTime(_UNITS_US[unit], parse_us(jitter, option="jitter", allow_zero=True))


def _count(option: str, values: object) -> int:
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise InvalidOption(option=option, given=values, allowed="a list of values")
    return len(values)


def _length(option: str, length: object) -> int:
    return Whole(1, _LENGTH_MAX).read(option, length)


def _number(option: str, number: object) -> float:
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        raise InvalidOption(option=option, given=number, allowed="a finite number")
    return float(number)
