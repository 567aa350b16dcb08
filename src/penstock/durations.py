"""Durations as users write them (``"500ms"``, ``"10s"``, ``"1m"``, seconds as a number), in microseconds."""

from __future__ import annotations

import math
import re

from penstock.errors import InvalidOption

_UNITS_US = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_WORDS = {"microsecond": "us", "millisecond": "ms", "second": "s", "minute": "m", "hour": "h", "day": "d"}
"""As Spark writes them, also with an s."""
_PATTERN = re.compile(rf"\s*(\d+(?:\.\d+)?)\s*(us|ms|s|m|h|d|(?:{'|'.join(_WORDS)})s?)\s*")
_DURATION_US_MAX = 366 * _UNITS_US["d"]


def parse_us(value: str | int | float, *, option: str, allow_zero: bool = False, operation: str | None = None) -> int:
    """Read a duration.

    Parameters
    ----------
    value : str, int or float
        ``"500ms"``, ``"10s"``, ``"1m"``, ``"2h"``, ``"1d"``; a plain number is seconds.
    option : str
        Name of the option, for the error.
    allow_zero : bool
        Whether zero is a sensible value here.

    Returns
    -------
    int
        Microseconds.
    """
    allowed = f"a duration such as '500ms', '10s' or '1m', {'from 0' if allow_zero else 'above 0'} to 366d"
    duration_us: float
    if isinstance(value, str):
        match = _PATTERN.fullmatch(value)
        if match is None:
            raise InvalidOption(option=option, given=value, allowed=allowed, operation=operation)
        unit = match[2]
        duration_us = float(match[1]) * _UNITS_US[_WORDS.get(unit.removesuffix("s"), unit)]
    elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        duration_us = float(value) * 1_000_000
    else:
        raise InvalidOption(option=option, given=value, allowed=allowed, operation=operation)
    rounded = round(min(duration_us, 2.0 * _DURATION_US_MAX))
    if not (0 if allow_zero else 1) <= rounded <= _DURATION_US_MAX:
        raise InvalidOption(option=option, given=value, allowed=allowed, operation=operation)
    return rounded


def format_us(duration_us: int) -> str:
    """Write a duration the way :func:`parse_us` reads it, in the largest whole unit."""
    for unit in ("d", "h", "m", "s", "ms"):
        if duration_us and duration_us % _UNITS_US[unit] == 0:
            return f"{duration_us // _UNITS_US[unit]}{unit}"
    return f"{duration_us}us"
