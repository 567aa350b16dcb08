"""Patterns of dates and times such as ``yyyy-MM-dd HH:mm:ss``: writers and readers, made once for each pattern."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, timedelta
from functools import lru_cache

from penstock.errors import BadRecord, InvalidOption
from penstock.expr.functions import EPOCH_DAYS, MICROSECONDS, local_to_utc, overflow

_EPOCH = datetime(1970, 1, 1)
_TOKEN = re.compile(r"''|'((?:[^']|'')*)'|([A-Za-z])\2*|(\[|\])|[^A-Za-z'\[\]]+")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def moment_of(time_us: int) -> datetime:
    """A timestamp as a datetime without a zone, in UTC."""
    try:
        return _EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        overflow(time_us, "the years 1 to 9999")


def day_of(days: int) -> date:
    """A date as Python has it."""
    try:
        return date.fromordinal(EPOCH_DAYS + days)
    except (OverflowError, ValueError):
        overflow(days, "the years 1 to 9999")


def _refuse(pattern: str, part: str) -> InvalidOption:
    return InvalidOption(
        option="format",
        given=pattern,
        allowed=f"Java's letters y M d D E a H h k K m s S Q X x Z and text in ' ({part!r} is none)",
    )


def _tokens(pattern: str) -> list[tuple[str, int, str]]:
    """Letters with how often they come, and text as it is."""
    found, at = [], 0
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            raise _refuse(pattern, pattern[at:])
        text = token.group()
        if token.group(2):
            found.append((text[0], len(text), ""))
        elif text == "''":
            found.append(("", 0, "'"))
        elif token.group(1) is not None:
            found.append(("", 0, token.group(1).replace("''", "'")))
        else:
            found.append((text if token.group(3) else "", 0, "" if token.group(3) else text))
        at = token.end()
    return found


def _writer(letter: str, count: int, pattern: str) -> Callable[[datetime], str]:
    numbers: dict[str, Callable[[datetime], int]] = {
        "M": lambda t: t.month,
        "L": lambda t: t.month,
        "d": lambda t: t.day,
        "D": lambda t: t.timetuple().tm_yday,
        "H": lambda t: t.hour,
        "h": lambda t: (t.hour - 1) % 12 + 1,
        "k": lambda t: (t.hour - 1) % 24 + 1,
        "K": lambda t: t.hour % 12,
        "m": lambda t: t.minute,
        "s": lambda t: t.second,
        "Q": lambda t: (t.month + 2) // 3,
        "q": lambda t: (t.month + 2) // 3,
    }
    if letter in "yu":
        return lambda t: f"{t.year % 100:02d}" if count == 2 else f"{t.year:0{count}d}"
    if letter in "ML" and count >= 3:
        return lambda t: MONTHS[t.month - 1][: 3 if count == 3 else None]
    if letter == "E" and count <= 4:
        return lambda t: DAYS[t.weekday()][: None if count == 4 else 3]
    if letter == "a" and count == 1:
        return lambda t: "AM" if t.hour < 12 else "PM"
    if letter == "S" and count <= 9:
        return lambda t: f"{t.microsecond:06d}000"[:count]
    if letter in "Qq" and count > 2:
        raise _refuse(pattern, letter * count)
    if letter in "Xx":
        zero = "Z" if letter == "X" else {1: "+00", 2: "+0000", 3: "+00:00"}.get(count, "+0000")
        return lambda _t: zero
    if letter == "Z" and count <= 3:
        return lambda _t: "+0000"
    if letter in "zV":
        return lambda _t: "UTC"
    if letter not in numbers or count > (3 if letter == "D" else 2):
        raise _refuse(pattern, letter * count)
    number = numbers[letter]
    return lambda t: f"{number(t):0{count}d}"


@lru_cache(maxsize=256)
def formatter(pattern: str) -> Callable[[int], str]:
    """The function that writes a timestamp by a pattern."""
    parts: list[Callable[[datetime], str]] = []
    for letter, count, text in _tokens(pattern):
        if letter in ("[", "]"):
            continue
        parts.append(_writer(letter, count, pattern) if letter else (lambda _t, text=text: text))  # type: ignore[misc]

    def write(time_us: int) -> str:
        moment = moment_of(time_us)
        return "".join([part(moment) for part in parts])

    return write


_READ: dict[str, Callable[[int], str]] = {
    "y": lambda n: r"(?P<y>[0-9]{2})" if n == 2 else rf"(?P<y>[+-]?[0-9]{{{n if n > 1 else 1},{max(n, 6)}}})",
    "M": lambda n: {1: r"(?P<M>[0-9]{1,2})", 2: r"(?P<M>[0-9]{2})", 3: r"(?P<b>[A-Za-z]{3})"}.get(
        n, r"(?P<b>[A-Za-z]+)"
    ),
    "d": lambda n: r"(?P<d>[0-9]{1,2})" if n == 1 else r"(?P<d>[0-9]{2})",
    "D": lambda n: r"(?P<D>[0-9]{1,3})" if n == 1 else rf"(?P<D>[0-9]{{{n}}})",
    "H": lambda n: r"(?P<H>[0-9]{1,2})" if n == 1 else r"(?P<H>[0-9]{2})",
    "h": lambda n: r"(?P<h>[0-9]{1,2})" if n == 1 else r"(?P<h>[0-9]{2})",
    "m": lambda n: r"(?P<m>[0-9]{1,2})" if n == 1 else r"(?P<m>[0-9]{2})",
    "s": lambda n: r"(?P<s>[0-9]{1,2})" if n == 1 else r"(?P<s>[0-9]{2})",
    "S": lambda n: rf"(?P<S>[0-9]{{1,{n}}})",
    "a": lambda _n: r"(?P<a>[AaPp][Mm])",
    "E": lambda n: r"[A-Za-z]{3}" if n < 4 else r"[A-Za-z]+",
    "X": lambda _n: r"(?P<X>Z|[+-][0-9]{2}:?(?:[0-9]{2})?)",
    "x": lambda _n: r"(?P<X>[+-][0-9]{2}:?(?:[0-9]{2})?)",
    "Z": lambda _n: r"(?P<X>[+-][0-9]{4})",
    "V": lambda _n: r"(?P<X>[A-Za-z_/+:0-9-]+)",
    "z": lambda _n: r"(?P<X>[A-Za-z_/+:0-9-]+)",
}


@lru_cache(maxsize=256)
def reader(pattern: str) -> Callable[[str], int]:
    """The function that reads a timestamp by a pattern; what does not fit raises."""
    source = ""
    for letter, count, text in _tokens(pattern):
        if letter == "[":
            source += "(?:"
        elif letter == "]":
            source += ")?"
        elif letter:
            letter = {"u": "y", "L": "M"}.get(letter, letter)
            if letter not in _READ:
                raise _refuse(pattern, letter * count)
            source += _READ[letter](count)
        else:
            source += re.escape(text)
    try:
        compiled = re.compile(source)
    except re.error:
        raise _refuse(pattern, pattern) from None
    short_year = "yy" in pattern and "yyy" not in pattern

    def read(text: str) -> int:
        found = compiled.fullmatch(text)
        if found is None:
            raise BadRecord(f"{text!r} does not fit the format {pattern!r}.")
        return _moment(found.groupdict(), text, short_year)

    return read


def _moment(parts: dict[str, str | None], text: str, short_year: bool) -> int:
    def number(name: str, default: int) -> int:
        given = parts.get(name)
        return default if given is None else int(given)

    year = number("y", 1970) + (2000 if short_year else 0)
    month = number("M", 1)
    if parts.get("b"):
        names = [name[: len(parts["b"] or "")].lower() for name in MONTHS]
        if (parts["b"] or "").lower() not in names:
            raise BadRecord(f"{text!r} has no month.")
        month = names.index((parts["b"] or "").lower()) + 1
    hour = number("H", 0)
    if parts.get("h") is not None:
        hour = number("h", 12) % 12 + (12 if (parts.get("a") or "").upper() == "PM" else 0)
    minute, second = number("m", 0), number("s", 0)
    try:
        day = date(year, month, number("d", 1)).toordinal() - EPOCH_DAYS
        if parts.get("D"):
            day = date(year, 1, 1).toordinal() - EPOCH_DAYS + number("D", 1) - 1
    except ValueError:
        raise BadRecord(f"{text!r} is not a date.") from None
    if hour > 23 or minute > 59 or second > 59:
        raise BadRecord(f"{text!r} is not a time.")
    micros = int(((parts.get("S") or "") + "000000")[:6])
    local_us = (((day * 24 + hour) * 60 + minute) * 60 + second) * MICROSECONDS + micros
    zone = parts.get("X")
    return local_us if zone is None else local_to_utc(local_us, zone)
