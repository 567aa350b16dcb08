"""Functions of single values behind the operators, called by generated source and by the Arrow form."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from functools import lru_cache
from typing import Any, NoReturn
from zoneinfo import ZoneInfo

import numpy as np

from penstock.errors import ArithmeticFailed, BadRecord, PenstockError
from penstock.expr.numbers import CONTEXT, rounded
from penstock.types import BIGINT, DataType, TypeKind

INT64_MIN, INT64_MAX = BIGINT.bounds()
MICROSECONDS = 1_000_000
DAY_US = 86_400 * MICROSECONDS
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_DAYS = EPOCH.toordinal()

_SPACE = "".join(map(chr, range(33))) + "\x7f"
_INTEGER = re.compile(r"[+-]?[0-9]{1,64}")
_DOUBLE = re.compile(
    r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?|[+-]?(inf|infinity)|nan", re.IGNORECASE | re.ASCII
)
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_TIME = re.compile(
    r"([+-]?[0-9]{4,6})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:(?:[ T]([0-9]{1,2}):([0-9]{1,2})"
    r"(?::([0-9]{1,2})(?:\.([0-9]{0,9}))?)?)?"
    r"( ?(?:Z|UTC|GMT|[+-][0-9]{1,2}(?::?[0-9]{2})?|[A-Za-z_]+/[A-Za-z_/]+))?)?)?)?"
)
_DATE = re.compile(r"([+-]?[0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_OFFSET = re.compile(r"([+-])([0-9]{1,2})(?::?([0-9]{2}))?")
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


def decimal_operation(symbol: str, kind: DataType) -> Callable[[Decimal, Decimal], Decimal]:
    """An operator between decimals whose result has a type of its own."""
    operation = {
        "+": CONTEXT.add,
        "-": CONTEXT.subtract,
        "*": CONTEXT.multiply,
        "/": CONTEXT.divide,
        "%": CONTEXT.remainder,
    }[symbol]
    divides = symbol in "/%"

    def compute(left: Decimal, right: Decimal) -> Decimal:
        if divides and not right:
            zero_divisor(left)
        return rounded(operation(left, right), kind)

    return compute


def equal_or_null(left: object, right: object) -> bool:
    """Whether two values are equal, both null or both NaN."""
    return left == right or (left != left and right != right)


def attempt(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that gives null where another one raises."""

    def call(value: Any) -> Any:
        try:
            return function(value)
        except (PenstockError, ArithmeticError, ValueError):
            return None

    return call


def text_to_integer(text: str) -> int:
    """Read a whole number of 64 bits."""
    stripped = text.strip(_SPACE)
    if _INTEGER.fullmatch(stripped) is None:
        _unreadable(text, "a whole number")
    value = int(stripped)
    return value if INT64_MIN <= value <= INT64_MAX else overflow(value)


def text_to_double(text: str) -> float:
    """Read a decimal number, an infinity or NaN."""
    stripped = text.strip(_SPACE)
    if _DOUBLE.fullmatch(stripped) is None:
        _unreadable(text, "a number")
    return float(stripped if stripped[-1:] not in "dDfF" or stripped[-3:].lower() == "inf" else stripped[:-1])


def text_to_boolean(text: str) -> bool:
    """Read a truth value in one of Spark's spellings."""
    value = _BOOLEANS.get(text.strip(_SPACE).lower())
    return _unreadable(text, "a boolean") if value is None else value


def text_to_timestamp(text: str) -> int:
    """Read a time as microseconds since the epoch, in any of the shapes that Spark reads; without a zone it is UTC."""
    found = _TIME.fullmatch(text.strip(_SPACE))
    if found is None:
        _unreadable(text, "a timestamp in ISO form")
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    try:
        # Days since the epoch, without the overhead of a datetime with a zone.
        days = date(int(year), int(month or 1), int(day or 1)).toordinal() - EPOCH_DAYS
    except ValueError:
        _unreadable(text, "a timestamp in ISO form")
    h, m, s = int(hour or 0), int(minute or 0), int(second or 0)
    if h > 23 or m > 59 or s > 59:
        _unreadable(text, "a timestamp in ISO form")
    micros = int(((fraction or "") + "000000")[:6])
    local_us = (((days * 24 + h) * 60 + m) * 60 + s) * MICROSECONDS + micros
    return local_us if zone is None else local_to_utc(local_us, zone.strip())


def text_to_date(text: str) -> int:
    """Read a date as days since the epoch, in any of the shapes that Spark reads."""
    found = _DATE.fullmatch(text.strip(_SPACE))
    if found is None:
        _unreadable(text, "a date in ISO form")
    try:
        return date_days(date(int(found[1]), int(found[2] or 1), int(found[3] or 1)))
    except ValueError:
        _unreadable(text, "a date in ISO form")


@lru_cache(maxsize=1024)
def zone_of(name: str) -> tzinfo:
    """The time zone of that name: a region, an offset such as +02:00, or UTC."""
    if name in ("Z", "UTC", "GMT"):
        return UTC
    offset = _OFFSET.fullmatch(name.removeprefix("UTC").removeprefix("GMT"))
    if offset is not None and int(offset[2]) <= 18:
        span = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
        return timezone(-span if offset[1] == "-" else span)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise BadRecord(f"{name!r} is not a time zone.", hint="Write Europe/Berlin or +02:00.") from None


def local_to_utc(local_us: int, zone: str) -> int:
    """The moment at which clocks of a zone show a local time."""
    found = zone_of(zone)
    if found is UTC:
        return local_us
    local = (EPOCH + timedelta(microseconds=local_us)).replace(tzinfo=found)
    # A time that clocks skip is read as if they had not yet been changed.
    return (local.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)


def utc_to_local(time_us: int, zone: str) -> int:
    """What clocks of a zone show at a moment, as if it were UTC."""
    found = zone_of(zone)
    if found is UTC:
        return time_us
    moment = EPOCH + timedelta(microseconds=time_us)
    offset = found.utcoffset(moment.astimezone(found))
    return time_us + (offset or timedelta()) // timedelta(microseconds=1)


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
    """Write as Java does: the shortest digits that read back as the same double, with an exponent beyond 10**7."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    if not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return _scientific(repr(value))


def float_to_text(value: float) -> str:
    """Write a float, by the shortest digits that read back as the same float."""
    if not math.isfinite(value):
        return double_to_text(value)
    text = str(np.float32(value))
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return text if "e" not in text else np.format_float_positional(np.float32(value), trim="0")
    return _scientific(text)


def _scientific(text: str) -> str:
    sign, digits, exponent = Decimal(text).as_tuple()
    plain = "".join(map(str, digits))
    shown = plain.rstrip("0") or "0"
    power = int(exponent) + len(plain) - 1
    return f"{'-' if sign else ''}{shown[0]}.{shown[1:] or '0'}E{power}"


def double_to_integer(value: float) -> int:
    """Cut towards zero."""
    if not -(2.0**63) <= value < 2.0**63:
        overflow(value)
    return int(value)


def double_to_timestamp(seconds: float) -> int:
    """Microseconds since the epoch, cut towards zero."""
    time_us = seconds * MICROSECONDS
    if not -(2.0**63) <= time_us < 2.0**63:
        overflow(seconds, "timestamp")
    return int(time_us)


def integer_to_timestamp(seconds: int) -> int:
    """Microseconds since the epoch."""
    # Beyond the ends of time it is the end, to Spark.
    return max(min(seconds * MICROSECONDS, INT64_MAX), INT64_MIN)


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
    text = moment.isoformat(sep=" ")
    return text.rstrip("0") if moment.microsecond else text


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
