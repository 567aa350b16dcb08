"""Which instance owns a key: stable hashes into key groups, the same in every process and in both forms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from itertools import pairwise
from typing import Any
from zlib import crc32

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import InvalidOption, TypeMismatch
from penstock.operators.grouping import Groups
from penstock.types import Record, Schema, TypeKind, attribute

KEY_GROUPS = 4_096
"""State is kept and dealt out by these; a key's group never changes."""
PARALLELISM_MAX = 256
CACHED_KEYS_MAX = 100_000

_encode = msgspec.msgpack.Encoder().encode


def key_group(key: object) -> int:
    """Return the group of a key: a single value, or a tuple of several columns' values."""
    if type(key) is Decimal or (type(key) is tuple and Decimal in map(type, key)):
        key = _unsigned(key)
    return crc32(_encode(key)) % KEY_GROUPS


def _unsigned(key: Any) -> Any:
    """Decimals as columns have them: arithmetic of records knows a negative zero, which equals the other one."""
    if type(key) is tuple:
        return tuple(map(_unsigned, key))
    return abs(key) if type(key) is Decimal and not key else key


def owner(key: object, instances: int, routed: Mapping[int, int] | None = None) -> int:
    """Return the instance that owns a key; groups are dealt out in contiguous ranges, but for those in ``routed``."""
    group = key_group(key)
    first = group * instances // KEY_GROUPS
    return first if routed is None else routed.get(group, first)


def owned_groups(instance: int, instances: int) -> range:
    """Return the groups whose keys an instance owns."""
    first, end = (-(-each * KEY_GROUPS // instances) for each in (instance, instance + 1))
    return range(first, end)


def check_keys(schema: Schema, keys: Iterable[str], *, decimals: bool = True) -> tuple[str, ...]:
    """Check that columns can serve as a key; decimals can where nobody else has to understand it."""
    names = tuple(keys)
    if not names:
        raise InvalidOption(option="key", given=names, allowed="at least one column")
    for name in names:
        schema.field(name)
    if len(set(names)) != len(names):
        raise InvalidOption(option="key", given=names, allowed="distinct columns")
    for name in names:
        found = schema.field(name).type
        if found.is_nested or found.is_fractional or (found.kind is TypeKind.DECIMAL and not decimals):
            raise TypeMismatch(
                what=f"'{name}' is {found.ddl}, which cannot be a key.",
                hint="Cast it, or choose another column.",
            )
    return names


def key_source(names: tuple[str, ...], record: str = "r") -> str:
    """Source of the key of a record: the value itself for one column, a tuple for several."""
    if len(names) == 1:
        return f"{record}.{attribute(names[0])}"
    return f"({', '.join(f'{record}.{attribute(name)}' for name in names)})"


class Partitioner:
    """Deals records out to the instances that own their keys.

    Parameters
    ----------
    routed : mapping of int to int, optional
        Key groups that belong to another instance than they would at first, and to which.
    """

    def __init__(self, names: tuple[str, ...], instances: int, routed: Mapping[int, int] | None = None) -> None:
        self._names = names
        self._instances = instances
        self._routed = routed
        self._owners: dict[object, int] = {}
        lines = [
            "def deal(rows, parts, known, find):",
            "    for r in rows:",
            f"        k = {key_source(names)}",
        ]
        lines += [
            "        p = known.get(k)",
            "        if p is None: p = find(k)",
            "        parts[p].append(r)",
        ]
        scope: dict[str, Any] = {}
        exec(compile("\n".join(lines), f"<penstock key_by {names}>", "exec"), scope)
        self._deal: Callable[..., None] = scope["deal"]

    def _find(self, key: object) -> int:
        found = owner(key, self._instances, self._routed)
        if len(self._owners) < CACHED_KEYS_MAX:
            self._owners[key] = found
        return found

    def rows(self, rows: list[Record]) -> list[list[Record]]:
        """Return one list of records for each instance, in order."""
        parts: list[list[Record]] = [[] for _ in range(self._instances)]
        self._deal(rows, parts, self._owners, self._find)
        return parts

    def columns(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Return one batch for each instance, in order."""
        if self._instances == 1:
            return [batch]
        # A byte holds any instance, and NumPy sorts bytes in a single pass; equal ones keep their order.
        owners = self.owners([batch.column(name) for name in self._names])
        dealt = batch.take(pa.array(np.argsort(owners, kind="stable")))
        ends = np.cumsum(np.bincount(owners, minlength=self._instances)).tolist()
        return [dealt.slice(start, end - start) for start, end in pairwise([0, *ends])]

    def owners(self, columns: list[pa.Array]) -> npt.NDArray[np.uint8]:
        """Return each row's owner, found once for every key that is there."""
        groups = Groups(columns, len(columns[0]))
        values = [key_values(column) for column in groups.keys]
        keys = values[0] if len(values) == 1 else zip(*values, strict=True)
        return np.array([self._owner(key) for key in keys], dtype=np.uint8)[groups.codes]

    def _owner(self, key: object) -> int:
        found = self._owners.get(key)
        return self._find(key) if found is None else found


def key_values(column: pa.Array) -> list[object]:
    """Key values as the record form has them: times and dates as numbers."""
    if pa.types.is_timestamp(column.type):
        column = column.view(pa.int64())
    elif pa.types.is_date32(column.type):
        column = column.view(pa.int32())
    values: list[object] = column.to_pylist()
    return values
