"""Values of a column in both forms: a list as records hold it, and an Arrow array; nested ones level by level.

Records hold times and dates as numbers, decimals as `decimal.Decimal`, arrays as lists, maps as dicts and structs as
records of a class of their own (`struct_type`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from operator import attrgetter
from struct import Struct
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.types.datatypes import DataType, TypeKind
from penstock.types.names import attribute

_FLOAT = Struct("f")


def float32(value: float) -> float:
    """The nearest number that a column of type float can hold."""
    try:
        rounded: float = _FLOAT.unpack(_FLOAT.pack(value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return rounded


def numbers(data_type: DataType) -> pa.DataType:
    """The Arrow type with times and dates as the numbers that records hold."""
    return {TypeKind.TIMESTAMP: pa.int64(), TypeKind.DATE: pa.int32()}.get(data_type.kind, data_type.arrow)


def to_array(values: Sequence[Any], data_type: DataType) -> pa.Array:
    """Turn values as records hold them into an Arrow array."""
    kind, element = data_type.kind, data_type.element
    if kind is TypeKind.STRUCT:
        mask = np.fromiter((value is None for value in values), np.bool_, len(values))
        children = []
        for field in data_type.fields:
            member = attrgetter(attribute(field.name))
            held = [None if value is None else member(value) for value in values]
            children.append(to_array(held, field.type))
        fields = list(data_type.arrow)
        if not mask.any():
            return pa.StructArray.from_arrays(children, fields=fields)
        fields = [field.with_nullable(True) for field in fields]
        made = pa.StructArray.from_arrays(children, fields=fields, mask=pa.array(mask))
        return pa.Array.from_buffers(data_type.arrow, len(made), made.buffers()[:1], made.null_count, children=children)
    if element is None or not _is_deep(data_type):
        return pa.array(values, data_type.arrow)
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum([0 if value is None else len(value) for value in values], out=ends[1:])
    offsets = pa.array(ends, mask=np.fromiter((*(value is None for value in values), False), np.bool_, len(ends)))
    present = [value for value in values if value is not None]
    if data_type.key is None:
        items = to_array(list(chain.from_iterable(present)), element)
        return pa.ListArray.from_arrays(offsets, items, type=data_type.arrow)
    keys = to_array(list(chain.from_iterable(present)), data_type.key)
    items = to_array(list(chain.from_iterable(value.values() for value in present)), element)
    return pa.MapArray.from_arrays(offsets, keys, items, type=data_type.arrow)


def to_values(column: pa.Array, data_type: DataType) -> list[Any]:
    """Turn an Arrow array into values as records hold them."""
    kind, element = data_type.kind, data_type.element
    if kind is TypeKind.STRUCT:
        from penstock.types.schema import struct_type

        children = [to_values(child, f.type) for child, f in zip(column.flatten(), data_type.fields, strict=True)]
        made = list(map(struct_type(data_type), *children))
        if column.null_count:
            valid = column.is_valid().to_pylist()
            return [value if there else None for value, there in zip(made, valid, strict=True)]
        return made
    if element is None or not _is_deep(data_type):
        wanted = numbers(data_type)
        values: list[Any] = (column if wanted == column.type else column.view(wanted)).to_pylist()
        return values
    ends = np.asarray(column.offsets).tolist()
    first, last = (ends[0], ends[-1]) if ends else (0, 0)
    valid = column.is_valid().to_pylist() if column.null_count else None
    if data_type.key is None:
        flat = to_values(column.values.slice(first, last - first), element)
        parts: list[Any] = [flat[a - first : b - first] for a, b in pairwise(ends)]
    else:
        keys = to_values(column.keys.slice(first, last - first), data_type.key)
        items = to_values(column.items.slice(first, last - first), element)
        pairs = list(zip(keys, items, strict=True))
        parts = [dict(pairs[a - first : b - first]) for a, b in pairwise(ends)]
    return parts if valid is None else [p if there else None for p, there in zip(parts, valid, strict=True)]


def _is_deep(data_type: DataType) -> bool:
    """Whether Arrow's own conversion would not do: maps, structs, and arrays of anything that is converted."""
    if data_type.kind in (TypeKind.MAP, TypeKind.STRUCT, TypeKind.TIMESTAMP, TypeKind.DATE):
        return True
    return data_type.element is not None and _is_deep(data_type.element)
