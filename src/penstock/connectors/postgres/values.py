"""Values in PostgreSQL's binary format, which the log of changes and queries give; `types` says what reads which.

What has no type here becomes the text that the server itself writes for it; an interval in ISO form.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from decimal import Context, Decimal
from itertools import islice
from struct import Struct, unpack_from
from typing import Any
from uuid import UUID

from penstock.errors import BadRecord

_EPOCH_US = 946_684_800_000_000
"""PostgreSQL counts from the year 2000."""
_EPOCH_DAYS = 10_957
_SHORT, _INT, _BIG, _UNSIGNED = Struct(">h"), Struct(">i"), Struct(">q"), Struct(">I")
_FLOAT, _DOUBLE = Struct(">f"), Struct(">d")
_INFINITE = (-(1 << 63), (1 << 63) - 1, -(1 << 31), (1 << 31) - 1)
_SECOND_US, _HOUR_S = 1_000_000, 3_600
_NEGATIVE = 0x4000
_SPECIAL = {0xC000: "NaN", 0xD000: "Infinity", 0xF000: "-Infinity"}
_EXACT = Context(prec=150_000)
"""More digits than any numeric has."""
_IPV4, _ADDRESS_BITS = 2, {4: 32, 16: 128}


def boolean(data: bytes) -> bool:
    return data == b"\x01"


def short(data: bytes) -> int:
    value: int = _SHORT.unpack(data)[0]
    return value


def integer(data: bytes) -> int:
    value: int = _INT.unpack(data)[0]
    return value


def big(data: bytes) -> int:
    value: int = _BIG.unpack(data)[0]
    return value


def unsigned(data: bytes) -> int:
    value: int = _UNSIGNED.unpack(data)[0]
    return value


def single(data: bytes) -> float:
    value: float = _FLOAT.unpack(data)[0]
    return value


def double(data: bytes) -> float:
    value: float = _DOUBLE.unpack(data)[0]
    return value


def timestamp(data: bytes) -> int:
    value: int = _BIG.unpack(data)[0]
    if value in _INFINITE[:2] or value + _EPOCH_US > _INFINITE[1]:
        raise BadRecord("an infinite timestamp has no place in a column of time.")
    return value + _EPOCH_US


def date(data: bytes) -> int:
    value: int = _INT.unpack(data)[0]
    if value in _INFINITE[2:] or value + _EPOCH_DAYS > _INFINITE[3]:
        raise BadRecord("an infinite date has no place in a column of dates.")
    return value + _EPOCH_DAYS


def uuid(data: bytes) -> str:
    return str(UUID(bytes=data))


def jsonb(data: bytes) -> str:
    return data[1:].decode()


# --- numerics ---------------------------------------------------------------------------------------------------------


def _digits(data: bytes) -> tuple[int, int, int]:
    """A finite numeric: all of its digits as one number, the power of ten of the last one, and how many are shown."""
    count, weight, sign, shown = unpack_from(">hhHH", data)
    if sign in _SPECIAL:
        raise BadRecord(f"{_SPECIAL[sign]} has no place in a column of decimals.")
    number = 0
    for part in unpack_from(f">{count}H", data, 8):
        number = number * 10_000 + part
    return -number if sign == _NEGATIVE else number, 4 * (weight - count + 1), shown


def numeric(precision: int, scale: int, *, rounds: bool) -> Callable[[bytes], Decimal]:
    """What reads numerics as decimals; digits behind the scale are rounded, half up, or else refused."""
    limit = 10**precision

    def read(data: bytes) -> Decimal:
        number, power, _ = _digits(data)
        power += scale
        if power >= 0:
            held = number * 10**power
        else:
            unit = 10**-power
            held, rest = divmod(abs(number), unit)
            if rest and not rounds:
                raise BadRecord(f"a number with more than {scale} digits behind the point has no place in it.")
            held += 2 * rest >= unit
            held = -held if number < 0 else held
        if not -limit < held < limit:
            raise BadRecord(f"a number with more than {precision - scale} digits before the point has no place in it.")
        return Decimal(held).scaleb(-scale, _EXACT)

    return read


def numeric_text(data: bytes) -> str:
    """A numeric of more digits than a decimal can have, as the server writes it."""
    sign = unpack_from(">H", data, 4)[0]
    if sign in _SPECIAL:
        return _SPECIAL[sign]
    number, power, shown = _digits(data)
    return f"{Decimal(number).scaleb(power, _EXACT).quantize(Decimal((0, (1,), -shown)), context=_EXACT):f}"


# --- times ------------------------------------------------------------------------------------------------------------


def _fraction(us: int) -> str:
    return f".{us:06d}".rstrip("0") if us else ""


def time(data: bytes) -> str:
    """A time of day, with its zone if it has one: ``08:30:00.5+02``."""
    us = unpack_from(">q", data)[0]
    s, us = divmod(us, _SECOND_US)
    text = f"{s // _HOUR_S:02d}:{s // 60 % 60:02d}:{s % 60:02d}{_fraction(us)}"
    if len(data) == _BIG.size:
        return text
    west_s = unpack_from(">i", data, _BIG.size)[0]
    zone = abs(west_s)
    parts = [zone // _HOUR_S, zone // 60 % 60, zone % 60]
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return text + ("-" if west_s > 0 else "+") + ":".join(f"{each:02d}" for each in parts)


def interval(data: bytes) -> str:
    """An interval in ISO form: ``P1Y2M3DT4H5M6.7S``."""
    us, days, months = unpack_from(">qii", data)
    if (us, days, months) in ((_INFINITE[0], *_INFINITE[2:3] * 2), (_INFINITE[1], *_INFINITE[3:] * 2)):
        return "infinity" if us > 0 else "-infinity"
    # Signs go with the numbers, which are cut towards zero.
    s, rest_us = divmod(abs(us), _SECOND_US)
    sign = -1 if us < 0 else 1
    years, rest_months = divmod(abs(months), 12)
    turn = -1 if months < 0 else 1
    dated = [(turn * years, "Y"), (turn * rest_months, "M"), (days, "D")]
    timed = [(sign * (s // _HOUR_S), "H"), (sign * (s // 60 % 60), "M")]
    text = "P" + "".join(f"{number}{unit}" for number, unit in dated if number)
    clock = "".join(f"{number}{unit}" for number, unit in timed if number)
    if s % 60 or rest_us:
        clock += f"{'-' if us < 0 else ''}{s % 60}{_fraction(rest_us)}S"
    if clock:
        return f"{text}T{clock}"
    return text if len(text) > 1 else "PT0S"


# --- addresses, bits --------------------------------------------------------------------------------------------------


def network(data: bytes) -> str:
    """An ``inet`` or ``cidr``: ``10.0.0.1``, ``10.0.0.0/8``."""
    family, bits, is_cidr, _ = data[:4]
    address = data[4:]
    text = socket.inet_ntop(socket.AF_INET if family == _IPV4 else socket.AF_INET6, address)
    return f"{text}/{bits}" if is_cidr or bits != _ADDRESS_BITS[len(address)] else text


def hardware(data: bytes) -> str:
    """A ``macaddr``."""
    return data.hex(":")


def bits(data: bytes) -> str:
    """A ``bit`` or ``varbit``: ``0101``."""
    (size,) = unpack_from(">i", data)
    return "".join(f"{each:08b}" for each in data[4:])[:size]


# --- arrays -----------------------------------------------------------------------------------------------------------


def array(element: Callable[[bytes], Any], dimensions: int) -> Callable[[bytes], list[Any]]:
    """What reads arrays of so many dimensions."""

    def read(data: bytes) -> list[Any]:
        (found,) = unpack_from(">i", data)
        if not found:
            return []
        if found != dimensions:
            raise BadRecord(
                f"an array of {found} dimensions has no place in a column that is declared with {dimensions}."
            )
        sizes = [unpack_from(">i", data, 12 + 8 * each)[0] for each in range(found)]
        at, values = 12 + 8 * found, list[Any]()
        while at < len(data):
            (size,) = unpack_from(">i", data, at)
            at += 4
            values.append(None if size < 0 else element(data[at : at + size]))
            at += max(size, 0)
        for size in reversed(sizes[1:]):
            rest = iter(values)
            values = [list(islice(rest, size)) for _ in range(len(values) // size)]
        return values

    return read
