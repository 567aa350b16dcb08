"""Functions of single values behind the operators, called by generated source and by the Arrow form."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import NoReturn

from penstock.errors import ArithmeticFailed, BadRecord
from penstock.types import BIGINT, TypeKind

INT64_MIN, INT64_MAX = BIGINT.bounds()
MICROSECONDS = 1_000_000
DAY_US = 86_400 * MICROSECONDS
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_DAYS = EPOCH.toordinal()

_BLANK = "".join(map(chr, range(33))) + "\x7f"
"""What may stand around a value in a text: space and control characters, as in Spark."""
_INTEGER = re.compile(r"[+-]?[0-9]{1,64}")
_DOUBLE = re.compile(
    r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(inf|infinity)|nan", re.IGNORECASE | re.ASCII
)
_BOOLEANS = {
    **dict.fromkeys(("true", "t", "yes", "y", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "0"), False),
}


def overflow(value: int | float, type_name: str = "bigint") -> NoReturn:
    """Refuse a number that its type cannot hold."""
    raise ArithmeticFailed(what=f"{value} is out of the range of {type_name}.")


def zero_divisor(value: object = None) -> NoReturn:
    """Refuse a division by zero."""
    raise ArithmeticFailed(what=f"division {'' if value is None else f'of {value} '}by zero.")


def remainder(dividend: int, divisor: int) -> int:
    """Whole-number remainder with the dividend's sign."""
    if divisor == 0:
        zero_divisor(dividend)
    rest = abs(dividend) % abs(divisor)
    return rest if dividend >= 0 else -rest


def float_remainder(dividend: float, divisor: float) -> float:
    """Remainder of doubles with the dividend's sign; an infinite dividend gives NaN."""
    if divisor == 0:
        zero_divisor(dividend)
    return math.nan if math.isinf(dividend) else math.fmod(dividend, divisor)


def text_to_integer(text: str) -> int:
    """Read a whole number of 64 bits."""
    stripped = text.strip(_BLANK)
    if _INTEGER.fullmatch(stripped) is None:
        _unreadable(text, "a whole number")
    value = int(stripped)
    return value if INT64_MIN <= value <= INT64_MAX else overflow(value)


def text_to_double(text: str) -> float:
    """Read a decimal number, an infinity or NaN."""
    stripped = text.strip(_BLANK)
    if _DOUBLE.fullmatch(stripped) is None:
        _unreadable(text, "a number")
    return float(stripped)


def text_to_boolean(text: str) -> bool:
    """Read a truth value in one of Spark's spellings."""
    value = _BOOLEANS.get(text.strip(_BLANK).lower())
    return _unreadable(text, "a boolean") if value is None else value


def text_to_timestamp(text: str) -> int:
    """Read an ISO-8601 time as microseconds since the epoch; without a zone it is UTC."""
    try:
        return datetime_us(datetime.fromisoformat(text.strip(_BLANK)))
    except ValueError:
        _unreadable(text, "a timestamp in ISO form")


def text_to_date(text: str) -> int:
    """Read an ISO-8601 date as days since the epoch."""
    try:
        return date_days(date.fromisoformat(text.strip(_BLANK)))
    except ValueError:
        _unreadable(text, "a date in ISO form")


def text_to_bytes(text: str) -> bytes:
    """Encode as UTF-8."""
    return text.encode()


def bytes_to_text(value: bytes) -> str:
    """Decode UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise BadRecord(f"binary value is not UTF-8 text: {error}.") from None


def boolean_to_text(value: bool) -> str:
    """Write as in SQL."""
    return "true" if value else "false"


def double_to_text(value: float) -> str:
    """Write the shortest text that reads back as the same double."""
    if math.isfinite(value):
        return repr(value)
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def double_to_integer(value: float) -> int:
    """Cut towards zero."""
    if not -(2.0**63) <= value < 2.0**63:
        overflow(value)
    return int(value)


def double_to_timestamp(seconds: float) -> int:
    """Microseconds since the epoch, rounded to the nearest."""
    time_us = seconds * MICROSECONDS
    if not -(2.0**63) <= time_us < 2.0**63:
        overflow(seconds, "timestamp")
    return round(time_us)


def integer_to_timestamp(seconds: int) -> int:
    """Microseconds since the epoch."""
    time_us = seconds * MICROSECONDS
    return time_us if INT64_MIN <= time_us <= INT64_MAX else overflow(seconds, "timestamp")


def timestamp_to_integer(time_us: int) -> int:
    """Whole seconds since the epoch."""
    return time_us // MICROSECONDS


def timestamp_to_double(time_us: int) -> float:
    """Seconds since the epoch."""
    return time_us / 1e6


def timestamp_to_date(time_us: int) -> int:
    """Day, in UTC."""
    return time_us // DAY_US


def timestamp_to_text(time_us: int) -> str:
    """Write as Spark does, in UTC, with as many decimals as needed."""
    try:
        moment = EPOCH.replace(tzinfo=None) + timedelta(microseconds=time_us)
    except OverflowError:
        overflow(time_us, "timestamps that can be written as text")
    return moment.isoformat(sep=" ", timespec="microseconds").rstrip("0").rstrip(".")


def date_to_timestamp(days: int) -> int:
    """Midnight, in UTC."""
    time_us = days * DAY_US
    return time_us if INT64_MIN <= time_us <= INT64_MAX else overflow(days, "timestamp")


def date_to_text(days: int) -> str:
    """Write in ISO form."""
    try:
        return date.fromordinal(EPOCH_DAYS + days).isoformat()
    except (ValueError, OverflowError):
        overflow(days, "dates that can be written as text")


def datetime_us(value: datetime) -> int:
    """Microseconds since the epoch; a value without a zone is UTC."""
    return ((value if value.tzinfo else value.replace(tzinfo=UTC)) - EPOCH) // timedelta(microseconds=1)


def date_days(value: date) -> int:
    """Days since the epoch."""
    return value.toordinal() - EPOCH_DAYS


def _unreadable(text: str, wanted: str) -> NoReturn:
    raise BadRecord(f"{text!r} is not {wanted}.")


# Whole-number types narrower than 64 bits convert by way of BIGINT, with a range check.
CONVERSIONS: dict[tuple[TypeKind, TypeKind], Callable[..., object]] = {
    (TypeKind.BOOLEAN, TypeKind.BIGINT): int,
    (TypeKind.BOOLEAN, TypeKind.DOUBLE): float,
    (TypeKind.BOOLEAN, TypeKind.STRING): boolean_to_text,
    (TypeKind.BIGINT, TypeKind.BOOLEAN): bool,
    (TypeKind.BIGINT, TypeKind.DOUBLE): float,
    (TypeKind.BIGINT, TypeKind.STRING): str,
    (TypeKind.BIGINT, TypeKind.TIMESTAMP): integer_to_timestamp,
    (TypeKind.DOUBLE, TypeKind.BOOLEAN): bool,
    (TypeKind.DOUBLE, TypeKind.BIGINT): double_to_integer,
    (TypeKind.DOUBLE, TypeKind.STRING): double_to_text,
    (TypeKind.DOUBLE, TypeKind.TIMESTAMP): double_to_timestamp,
    (TypeKind.STRING, TypeKind.BOOLEAN): text_to_boolean,
    (TypeKind.STRING, TypeKind.BIGINT): text_to_integer,
    (TypeKind.STRING, TypeKind.DOUBLE): text_to_double,
    (TypeKind.STRING, TypeKind.TIMESTAMP): text_to_timestamp,
    (TypeKind.STRING, TypeKind.DATE): text_to_date,
    (TypeKind.STRING, TypeKind.BINARY): text_to_bytes,
    (TypeKind.BINARY, TypeKind.STRING): bytes_to_text,
    (TypeKind.TIMESTAMP, TypeKind.BIGINT): timestamp_to_integer,
    (TypeKind.TIMESTAMP, TypeKind.DOUBLE): timestamp_to_double,
    (TypeKind.TIMESTAMP, TypeKind.DATE): timestamp_to_date,
    (TypeKind.TIMESTAMP, TypeKind.STRING): timestamp_to_text,
    (TypeKind.DATE, TypeKind.TIMESTAMP): date_to_timestamp,
    (TypeKind.DATE, TypeKind.STRING): date_to_text,
}
