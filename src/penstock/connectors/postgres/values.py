"""Values of columns in PostgreSQL's binary format; the log of changes and queries give them."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any
from uuid import UUID

from penstock.errors import BadRecord

_EPOCH_US = 946_684_800_000_000
"""PostgreSQL counts from the year 2000."""
_EPOCH_DAYS = 10_957
_SHORT, _INT, _BIG = Struct(">h"), Struct(">i"), Struct(">q")
_FLOAT, _DOUBLE = Struct(">f"), Struct(">d")
_INFINITE = (-(1 << 63), (1 << 63) - 1, -(1 << 31), (1 << 31) - 1)


def _timestamp(data: bytes) -> int:
    value: int = _BIG.unpack(data)[0]
    if value in _INFINITE[:2] or value + _EPOCH_US > _INFINITE[1]:
        raise BadRecord("an infinite timestamp has no place in a column of time.")
    return value + _EPOCH_US


def _date(data: bytes) -> int:
    value: int = _INT.unpack(data)[0]
    if value in _INFINITE[2:] or value + _EPOCH_DAYS > _INFINITE[3]:
        raise BadRecord("an infinite date has no place in a column of dates.")
    return value + _EPOCH_DAYS


DECODERS: dict[int, Callable[[bytes], Any]] = {
    16: lambda data: data == b"\x01",
    17: bytes,
    20: lambda data: _BIG.unpack(data)[0],
    21: lambda data: _SHORT.unpack(data)[0],
    23: lambda data: _INT.unpack(data)[0],
    700: lambda data: _FLOAT.unpack(data)[0],
    701: lambda data: _DOUBLE.unpack(data)[0],
    1082: _date,
    1114: _timestamp,
    1184: _timestamp,
    2950: lambda data: str(UUID(bytes=data)),
    3802: lambda data: data[1:].decode(),
    **dict.fromkeys((19, 25, 114, 1042, 1043), bytes.decode),
}
"""By the number of the type."""
