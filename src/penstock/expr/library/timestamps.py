"""Functions of timestamps; all of them in UTC, unless a zone is named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import BadRecord, TypeMismatch
from penstock.expr.functions import (
    DAY_US,
    EPOCH_DAYS,
    INT64_MAX,
    INT64_MIN,
    MICROSECONDS,
    date_to_timestamp,
    local_to_utc,
    overflow,
    text_to_date,
    text_to_timestamp,
    utc_to_local,
)
from penstock.expr.library.dates import trunc
from penstock.expr.library.patterns import day_of, formatter, reader
from penstock.expr.table import define, find
from penstock.expr.typed import Typed
from penstock.types import BIGINT, DATE, INT, STRING, TIMESTAMP, DataType, TypeKind, decimal_of

add = define("times")
_FORMAT = "yyyy-MM-dd HH:mm:ss"
_STEPS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": MICROSECONDS,
    "MINUTE": 60 * MICROSECONDS,
    "HOUR": 3600 * MICROSECONDS,
    "DAY": DAY_US,
    "DD": DAY_US,
}
_INT64, _NAIVE = pa.int64(), pa.timestamp("us")


def _in_range(time_us: int) -> int:
    return time_us if INT64_MIN <= time_us <= INT64_MAX else overflow(time_us, "timestamp")


def date_trunc(unit: str, time_us: int) -> int | None:
    """Beginning of the unit that a time is in; null for a unit that is none."""
    step = _STEPS.get(unit.upper())
    if step is not None:
        return time_us - time_us % step
    days = trunc(time_us // DAY_US, unit)
    return None if days is None else days * DAY_US


def _trunc_of(node: Typed) -> Callable[[str, int], int | None]:
    unit = node.args[0].payload if node.args[0].is_literal else None
    step = _STEPS.get(unit.upper()) if isinstance(unit, str) else None
    return date_trunc if step is None else lambda _unit, time_us: time_us - time_us % step


def _trunc_kernel(unit: Any, time: Any) -> Any:
    step = _STEPS.get(unit.as_py().upper()) if isinstance(unit, pa.Scalar) and unit.is_valid else None
    if step is None or isinstance(time, pa.Scalar):
        return None
    micros = time.view(_INT64)
    rest = pc.subtract(micros, pc.multiply(pc.divide(micros, step), step))
    rest = pc.if_else(pc.less(rest, 0), pc.add(rest, step), rest)
    return pc.subtract(micros, rest).view(TIMESTAMP.arrow)


def _clock(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def kernel(time: Any) -> Any:
        return None if isinstance(time, pa.Scalar) else pc.cast(function(time.view(_INT64).view(_NAIVE)), pa.int32())

    return kernel


def _as_timestamp(node: Typed, at: int = 0) -> Callable[[int], int]:
    return (lambda days: days * DAY_US) if node.args[at].type == DATE else (lambda time_us: time_us)


def _date_format(node: Typed) -> Callable[[Any, str], str]:
    convert = _as_timestamp(node)
    return lambda value, pattern: formatter(pattern)(convert(value))


def _to_timestamp(node: Typed) -> Callable[..., int | None]:
    if node.args[0].type == TIMESTAMP:
        return lambda value, _pattern=None: value
    if node.args[0].type == DATE:
        return lambda value, _pattern=None: date_to_timestamp(value)
    return lambda text, pattern=None: text_to_timestamp(text) if pattern is None else reader(pattern)(text)


def _to_date(node: Typed) -> Callable[..., int | None]:
    if node.args[0].type == DATE:
        return lambda value, _pattern=None: value
    if node.args[0].type == TIMESTAMP:
        return lambda value, _pattern=None: value // DAY_US
    return lambda text, pattern=None: text_to_date(text) if pattern is None else reader(pattern)(text) // DAY_US


def _seconds_of(time_us: int) -> int:
    """Whole seconds, cut towards zero."""
    return -(-time_us // MICROSECONDS) if time_us < 0 else time_us // MICROSECONDS


def _unix_timestamp(node: Typed) -> Callable[..., int]:
    if node.args[0].type == STRING:
        return lambda text, pattern=_FORMAT: reader(pattern)(text) // MICROSECONDS
    convert = _as_timestamp(node)
    return lambda value, _pattern=None: _seconds_of(convert(value))


def _from_unixtime(seconds: int, pattern: str = _FORMAT) -> str:
    return formatter(pattern)(seconds * MICROSECONDS)


def _seconds(node: Typed) -> Callable[[Any], int]:
    if node.args[0].type.is_fractional:

        def of_fraction(value: float) -> int | None:
            if value != value or abs(value) == float("inf"):
                return None
            return max(min(int(value * MICROSECONDS), INT64_MAX), INT64_MIN)  # as Java converts to a long

        return of_fraction  # type: ignore[return-value]
    if node.args[0].type.kind is TypeKind.DECIMAL:
        return lambda value: _in_range(int(value * MICROSECONDS))
    return lambda value: _in_range(value * MICROSECONDS)


def make_timestamp(
    year: int, month: int, day: int, hour: int, minute: int, seconds: Any, zone: str | None = None
) -> int | None:
    """A timestamp from its parts; none where the seconds are no number."""
    if seconds != seconds or abs(seconds) == float("inf"):
        return None
    micros = int(Decimal(str(seconds)).quantize(Decimal("0.000001")) * MICROSECONDS)
    try:
        days = date(year, month, day).toordinal() - EPOCH_DAYS
    except ValueError as error:
        raise BadRecord(f"{year}-{month}-{day} is not a date: {error}.") from None
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= micros <= 60 * MICROSECONDS):
        raise BadRecord(f"{hour}:{minute}:{seconds} is not a time.")
    local_us = (days * 24 + hour) * 3600 * MICROSECONDS + minute * 60 * MICROSECONDS + micros
    return local_us if zone is None else local_to_utc(local_us, zone)


_PARTS = {
    "YEAR": "year",
    "Y": "year",
    "YEARS": "year",
    "YR": "year",
    "YRS": "year",
    "QUARTER": "quarter",
    "QTR": "quarter",
    "MONTH": "month",
    "MON": "month",
    "MONTHS": "month",
    "MONS": "month",
    "WEEK": "weekofyear",
    "W": "weekofyear",
    "WEEKS": "weekofyear",
    "DAY": "day",
    "D": "day",
    "DAYS": "day",
    "DAYOFWEEK": "dayofweek",
    "DOW": "dayofweek",
    "DOY": "dayofyear",
    "HOUR": "hour",
    "H": "hour",
    "HOURS": "hour",
    "HR": "hour",
    "HRS": "hour",
    "MINUTE": "minute",
    "M": "minute",
    "MIN": "minute",
    "MINS": "minute",
    "MINUTES": "minute",
}
_SECONDS = ("SECOND", "S", "SEC", "SECONDS", "SECS")


def _part_type(args: Sequence[Typed]) -> DataType:
    if not args[0].is_literal:
        raise TypeMismatch(what="which part of a time is wanted is a constant.")
    unit = str(args[0].payload).upper()
    if unit in _SECONDS:
        return decimal_of(8, 6)
    if unit not in _PARTS:
        raise TypeMismatch(what=f"{unit!r} is not a part of a time.", hint=f"Parts: {', '.join(_PARTS)}, SECOND.")
    return INT


def _date_part(node: Typed) -> Callable[[str, int], Any]:
    unit = str(node.args[0].payload).upper()
    convert = _as_timestamp(node, 1)
    if unit in _SECONDS:
        return lambda _unit, value: (Decimal(convert(value) % (60 * MICROSECONDS)) / MICROSECONDS).quantize(
            Decimal("0.000001")
        )
    function = find(_PARTS[unit])
    of_date = function.parameters[0].kind == "date"
    helper = function.helper
    assert helper is not None
    return lambda _unit, value: helper(convert(value) // DAY_US if of_date else convert(value))


_ADD_UNITS = {**_STEPS, "WEEK": 7 * DAY_US}
_ADD_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}


def _by_unit(result: DataType) -> Callable[[Sequence[Typed]], DataType]:
    """The result, where the unit is known: Spark has it as a word, not as a value."""

    def check(args: Sequence[Typed]) -> DataType:
        unit = args[0].payload if args[0].is_literal else None
        if not isinstance(unit, str) or unit.upper() not in (*_ADD_UNITS, *_ADD_MONTHS):
            known = ", ".join((*_ADD_UNITS, *_ADD_MONTHS))
            raise TypeMismatch(what=f"{unit!r} is not a unit of time.", hint=f"Units: {known}.")
        return result

    return check


def _timestamp_add(unit: str, count: int, time_us: int) -> int:
    word = unit.upper()
    if word in _ADD_UNITS:
        return _in_range(time_us + count * _ADD_UNITS[word])
    if word not in _ADD_MONTHS:
        raise BadRecord(f"{unit!r} is not a unit of time.")
    days, rest = divmod(time_us, DAY_US)
    from penstock.expr.library.dates import plus_months

    return plus_months(days, count * _ADD_MONTHS[word]) * DAY_US + rest


def _timestamp_diff(unit: str, start_us: int, end_us: int) -> int:
    word = unit.upper()
    if word in _ADD_UNITS:
        made = abs(end_us - start_us) // _ADD_UNITS[word]
        return made if end_us >= start_us else -made
    if word not in _ADD_MONTHS:
        raise BadRecord(f"{unit!r} is not a unit of time.")
    early, late = min(start_us, end_us), max(start_us, end_us)
    a, b = day_of(early // DAY_US), day_of(late // DAY_US)
    months = (b.year - a.year) * 12 + b.month - a.month
    if (b.day, late % DAY_US) < (a.day, early % DAY_US):
        months -= 1
    made = months // _ADD_MONTHS[word]
    return made if end_us >= start_us else -made


add("hour", "c:timestamp", INT, lambda t: t // 3_600_000_000 % 24, kernel=_clock(pc.hour))
add("minute", "c:timestamp", INT, lambda t: t // 60_000_000 % 60, kernel=_clock(pc.minute))
add("second", "c:timestamp", INT, lambda t: t // 1_000_000 % 60, kernel=_clock(pc.second))
add("date_trunc", "l:string c:timestamp", TIMESTAMP, make=_trunc_of, nullable=True, kernel=_trunc_kernel)
add("date_format", "c:time l:string", STRING, make=_date_format)
add("to_timestamp", "c:timely l:string?", TIMESTAMP, make=_to_timestamp, coerce="timely")
add("to_date", "c:timely l:string?", DATE, make=_to_date, coerce="timely")
add("unix_timestamp to_unix_timestamp", "c:timely l:string?", BIGINT, make=_unix_timestamp, coerce="timely")
add("from_unixtime", "c:bigint l:string?", STRING, _from_unixtime)
add("from_utc_timestamp", "c:timestamp l:string", TIMESTAMP, utc_to_local)
add("to_utc_timestamp", "c:timestamp l:string", TIMESTAMP, local_to_utc)
add("timestamp_seconds", "c:number", TIMESTAMP, make=_seconds, nullable=True)
add("timestamp_millis", "c:bigint", TIMESTAMP, lambda value: _in_range(value * 1000))
add("timestamp_micros", "c:bigint", TIMESTAMP, source="{0}")
add("unix_seconds", "c:timestamp", BIGINT, source="{0} // 1000000")
add("unix_millis", "c:timestamp", BIGINT, source="{0} // 1000")
add(
    "unix_micros",
    "c:timestamp",
    BIGINT,
    source="{0}",
    kernel=lambda t: t.view(_INT64) if isinstance(t, pa.Array) else None,
)
add("make_timestamp", "c:int c:int c:int c:int c:int c:number l:string?", TIMESTAMP, make_timestamp, nullable=True)
add("extract date_part datepart", "l:string c:time", _part_type, make=_date_part, sql="date_part")
add(
    "timestamp_add timestampadd",
    "l:string c:bigint c:timestamp",
    _by_unit(TIMESTAMP),
    _timestamp_add,
    sql="timestampadd",
)
add(
    "timestamp_diff timestampdiff",
    "l:string c:timestamp c:timestamp",
    _by_unit(BIGINT),
    _timestamp_diff,
    sql="timestampdiff",
)
add(
    "_plus_us",
    "c:timestamp l:bigint",
    TIMESTAMP,
    lambda t, by: _in_range(t + by),
    kernel=lambda t, by: pc.add_checked(t.view(_INT64), by).view(TIMESTAMP.arrow) if isinstance(t, pa.Array) else None,
)
