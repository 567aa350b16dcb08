"""Casts as Arrow kernels, and the loop that stands in where no kernel agrees with the record form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.expr import functions
from penstock.expr.conversions import converter, wide
from penstock.expr.functions import DAY_US, MICROSECONDS
from penstock.types import BIGINT, DOUBLE, STRING, DataType, TypeKind, to_array, to_values

Datum = Any
"""An Arrow array, or a scalar that stands for an array of equal values."""

Conversion = Callable[[Datum], Datum]

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_INT64 = pa.int64()


def convert(source: DataType, target: DataType) -> Conversion:
    """Return the kernel for a cast that ``infer.convertible`` allows."""
    if source.is_integer and target.is_integer:
        return lambda datum: pc.cast(datum, target.arrow)
    if source.is_integer and target.is_fractional:
        return lambda datum: pc.cast(datum, target.arrow, safe=False)
    if source.kind is TypeKind.FLOAT and target.kind is TypeKind.DOUBLE:
        return lambda datum: pc.cast(datum, target.arrow)
    key = (wide(source).kind, wide(target).kind)
    kernel = _KERNELS.get(key)
    if kernel is None:
        function = converter(source, target)
        return lambda datum: loop(function, datum, source, target)
    if target != wide(target):
        to_wide = kernel
        return lambda datum: pc.cast(to_wide(datum), target.arrow)
    return kernel


def loop(function: Callable[..., object], datum: Datum, source: DataType, target: DataType) -> Datum:
    """Apply a function of the record form to every value that is not null."""
    if isinstance(datum, pa.Scalar):
        (value,) = to_values(pa.repeat(datum, 1), source)
        return to_array([None if value is None else function(value)], target)[0]
    values = [None if value is None else function(value) for value in to_values(datum, source)]
    return to_array(values, target)


def _in_int64(datum: Datum) -> Datum:
    """Refuse doubles beyond 64 bits here: what Arrow's own check makes of 2**63 depends on the processor."""
    if pc.any(pc.invert(pc.and_(pc.less(datum, 2.0**63), pc.greater_equal(datum, -(2.0**63))))).as_py():
        functions.overflow(float("nan"))
    return pc.cast(datum, _INT64)


def _floor_divide(datum: Datum, divisor: int) -> Datum:
    quotient = pc.divide(datum, divisor)
    rest = pc.subtract(datum, pc.multiply(quotient, divisor))
    return pc.subtract(quotient, pc.cast(pc.less(rest, 0), _INT64))


def _double_to_integer(datum: Datum) -> Datum:
    return _in_int64(pc.trunc(datum))


def _double_to_timestamp(datum: Datum) -> Datum:
    time_us = pc.trunc(pc.multiply(datum, float(MICROSECONDS)))
    return pc.cast(_in_int64(time_us), _TIMESTAMP)


def _integer_to_timestamp(datum: Datum) -> Datum:
    return pc.cast(pc.multiply_checked(pc.cast(datum, _INT64), MICROSECONDS), _TIMESTAMP)


def _date_to_timestamp(datum: Datum) -> Datum:
    days = pc.cast(pc.cast(datum, pa.int32()), _INT64)
    return pc.cast(pc.multiply_checked(days, DAY_US), _TIMESTAMP)


def _text_to_number(plain: str, function: Callable[[str], object], target: DataType) -> Conversion:
    """Use Arrow's parser for texts of the ``plain`` pattern only: in others it accepts what SQL does not."""

    def read(datum: Datum) -> Datum:
        if pc.all(pc.match_substring_regex(datum, pattern=plain)).as_py() is False:
            return loop(function, datum, STRING, target)
        return pc.cast(datum, target.arrow)

    return read


def _to(kind: pa.DataType) -> Conversion:
    return lambda datum: pc.cast(datum, kind)


_KERNELS: dict[tuple[TypeKind, TypeKind], Conversion] = {
    (TypeKind.BOOLEAN, TypeKind.BIGINT): _to(_INT64),
    (TypeKind.BOOLEAN, TypeKind.DOUBLE): _to(pa.float64()),
    (TypeKind.BOOLEAN, TypeKind.STRING): _to(pa.string()),
    (TypeKind.BIGINT, TypeKind.BOOLEAN): lambda datum: pc.not_equal(datum, 0),
    (TypeKind.BIGINT, TypeKind.STRING): _to(pa.string()),
    (TypeKind.BIGINT, TypeKind.TIMESTAMP): _integer_to_timestamp,
    (TypeKind.DOUBLE, TypeKind.BOOLEAN): lambda datum: pc.not_equal(datum, 0.0),
    (TypeKind.DOUBLE, TypeKind.BIGINT): _double_to_integer,
    (TypeKind.DOUBLE, TypeKind.TIMESTAMP): _double_to_timestamp,
    (TypeKind.STRING, TypeKind.BIGINT): _text_to_number(r"^-?[0-9]{1,18}$", functions.text_to_integer, BIGINT),
    (TypeKind.STRING, TypeKind.DOUBLE): _text_to_number(
        r"^-?[0-9]{1,15}(\.[0-9]{1,15})?$", functions.text_to_double, DOUBLE
    ),
    (TypeKind.STRING, TypeKind.BINARY): _to(pa.binary()),
    (TypeKind.BINARY, TypeKind.STRING): _to(pa.string()),
    (TypeKind.TIMESTAMP, TypeKind.BIGINT): lambda datum: _floor_divide(pc.cast(datum, _INT64), MICROSECONDS),
    (TypeKind.TIMESTAMP, TypeKind.DOUBLE): lambda datum: pc.divide(
        pc.cast(pc.cast(datum, _INT64), pa.float64(), safe=False), float(MICROSECONDS)
    ),
    (TypeKind.TIMESTAMP, TypeKind.DATE): _to(pa.date32()),
    (TypeKind.DATE, TypeKind.TIMESTAMP): _date_to_timestamp,
}
