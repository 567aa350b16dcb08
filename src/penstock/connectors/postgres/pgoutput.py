"""Messages of logical replication (pgoutput, version 1, binary values), decoded; pure."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct, unpack_from

UNCHANGED = object()
"""A large value that an update left as it was, and that the log does not repeat."""
Tuple = list[object]
"""Bytes, None, or `UNCHANGED` for each column."""
_TUPLE, _LENGTH = Struct(">H"), Struct(">I")


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction begins: where its commit is, and when that was."""

    lsn: int
    time_us: int


@dataclass(frozen=True, slots=True)
class Commit:
    """It ends; what comes next lies behind ``end_lsn``."""

    end_lsn: int


@dataclass(frozen=True, slots=True)
class Relation:
    """How the rows of a table look from here on: name, number of the type, and whether it names the row."""

    oid: int
    schema: str
    name: str
    columns: tuple[tuple[str, int, bool], ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A row of a table; ``old`` is its key, or all of it, where that was sent."""

    oid: int
    op: str
    old: Tuple | None
    new: Tuple | None


@dataclass(frozen=True, slots=True)
class Truncate:
    """All rows of some tables are gone."""

    oids: tuple[int, ...]


Message = Begin | Commit | Relation | Change | Truncate | None
_EPOCH_US = 946_684_800_000_000


def decode(data: bytes) -> Message:
    """Decode one message; None for those that say nothing of rows."""
    kind = data[:1]
    if kind == b"B":
        lsn, time_us = unpack_from(">qq", data, 1)
        return Begin(lsn, time_us + _EPOCH_US)
    if kind == b"C":
        return Commit(unpack_from(">q", data, 10)[0])
    if kind == b"I":
        new, _ = _tuple(data, 6)
        return Change(_LENGTH.unpack_from(data, 1)[0], "insert", None, new)
    if kind == b"U":
        old, at = _tuple(data, 6) if data[5:6] in b"KO" else (None, 5)
        new, _ = _tuple(data, at + 1)
        return Change(_LENGTH.unpack_from(data, 1)[0], "update", old, new)
    if kind == b"D":
        old, _ = _tuple(data, 6)
        return Change(_LENGTH.unpack_from(data, 1)[0], "delete", old, None)
    if kind == b"R":
        return _relation(data)
    if kind == b"T":
        (count,) = _LENGTH.unpack_from(data, 1)
        return Truncate(unpack_from(f">{count}I", data, 6))
    return None


def _tuple(data: bytes, at: int) -> tuple[Tuple, int]:
    (count,) = _TUPLE.unpack_from(data, at)
    at += 2
    values: Tuple = []
    for _ in range(count):
        kind = data[at]
        at += 1
        if kind in b"bt":
            (size,) = _LENGTH.unpack_from(data, at)
            at += 4
            values.append(data[at : at + size])
            at += size
        else:
            values.append(None if kind == ord("n") else UNCHANGED)
    return values, at


def _relation(data: bytes) -> Relation:
    (oid,) = _LENGTH.unpack_from(data, 1)
    schema_end = data.index(0, 5)
    name_end = data.index(0, schema_end + 1)
    (count,) = _TUPLE.unpack_from(data, name_end + 2)
    at, columns = name_end + 4, []
    for _ in range(count):
        end = data.index(0, at + 1)
        columns.append((data[at + 1 : end].decode(), _LENGTH.unpack_from(data, end + 1)[0], bool(data[at] & 1)))
        at = end + 9
    return Relation(oid, data[5:schema_end].decode(), data[schema_end + 1 : name_end].decode(), tuple(columns))
