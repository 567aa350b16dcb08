"""Types of numbers that meet, by Spark's rules, and arithmetic of decimals."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal
from functools import lru_cache

from penstock.errors import ArithmeticFailed
from penstock.expr.column import Op
from penstock.expr.typed import Typed
from penstock.types import DOUBLE, DataType, TypeKind, decimal_of
from penstock.types.datatypes import DECIMAL_DIGITS_MAX, INTEGER_BITS

_DIGITS = {TypeKind.TINYINT: 3, TypeKind.SMALLINT: 5, TypeKind.INT: 10, TypeKind.BIGINT: 20}
_SCALE_KEPT = 6
CONTEXT = Context(prec=120, rounding=ROUND_HALF_UP)


def as_decimal(node: Typed) -> DataType:
    """The decimal type that a whole number is held in; of a literal, just as wide as it is."""
    if node.type.kind is TypeKind.DECIMAL:
        return node.type
    if node.is_literal and isinstance(node.payload, int):
        return decimal_of(max(len(str(abs(node.payload))), 1), 0)
    return decimal_of(_DIGITS[node.type.kind], 0)


def common_number(left: DataType, right: DataType) -> DataType:
    """Return the type in which two numbers meet."""
    if left == right:
        return left
    if left.is_integer and right.is_integer:
        return max(left, right, key=lambda kind: INTEGER_BITS[kind.kind])
    if TypeKind.DECIMAL in (left.kind, right.kind) and not (left.is_fractional or right.is_fractional):
        a, b = (kind if kind.kind is TypeKind.DECIMAL else decimal_of(_DIGITS[kind.kind], 0) for kind in (left, right))
        scale = max(a.scale, b.scale)
        return _bounded(max(a.precision - a.scale, b.precision - b.scale) + scale, scale)
    return DOUBLE


def arithmetic_type(op: Op, left: Typed, right: Typed) -> DataType:
    """Type of a sum, product, quotient …"""
    kinds = (left.type, right.type)
    has_decimal = any(kind.kind is TypeKind.DECIMAL for kind in kinds)
    if not has_decimal or any(kind.is_fractional for kind in kinds):
        if op is Op.DIV or has_decimal:
            return DOUBLE
        return common_number(*kinds)
    a, b = as_decimal(left), as_decimal(right)
    scale = max(a.scale, b.scale)
    if op is Op.MUL:
        return _adjusted(a.precision + b.precision + 1, a.scale + b.scale)
    if op is Op.DIV:
        scale = max(_SCALE_KEPT, a.scale + b.precision + 1)
        return _adjusted(a.precision - a.scale + b.scale + scale, scale)
    if op is Op.MOD:
        return _adjusted(min(a.precision - a.scale, b.precision - b.scale) + scale, scale)
    return _adjusted(max(a.precision - a.scale, b.precision - b.scale) + scale + 1, scale)


def _adjusted(precision: int, scale: int) -> DataType:
    """Digits before the point are worth more than those behind it, of which six are kept."""
    if precision <= DECIMAL_DIGITS_MAX:
        return decimal_of(precision, scale)
    whole = precision - scale
    return decimal_of(DECIMAL_DIGITS_MAX, max(DECIMAL_DIGITS_MAX - whole, min(scale, _SCALE_KEPT)))


def _bounded(precision: int, scale: int) -> DataType:
    return _adjusted(precision, scale) if precision > DECIMAL_DIGITS_MAX else decimal_of(precision, scale)


@lru_cache(maxsize=64)
def _quantum(scale: int) -> Decimal:
    return Decimal((0, (1,), -scale))


@lru_cache(maxsize=64)
def _limit(precision: int, scale: int) -> Decimal:
    return Decimal((0, (1,), precision - scale))


def negated(value: Decimal) -> Decimal:
    """The decimal with the other sign, of which Spark keeps 34 digits, and Python's own context fewer."""
    if not value:
        return value.copy_abs()
    if len(value.as_tuple().digits) <= NEGATED_DIGITS_MAX:
        return value.copy_negate()
    return _NEGATION.minus(value).quantize(Decimal((0, (1,), int(value.as_tuple().exponent))), context=CONTEXT)


def positive(value: Decimal) -> Decimal:
    """The decimal without its sign, by way of `negated`."""
    return negated(value) if value < 0 else value.copy_abs()


NEGATED_DIGITS_MAX = 34
_NEGATION = Context(prec=NEGATED_DIGITS_MAX, rounding=ROUND_HALF_EVEN)


def rounded(value: Decimal, kind: DataType) -> Decimal:
    """A decimal of a type, rounded half up; too many digits raise."""
    made = value.quantize(_quantum(kind.scale), context=CONTEXT) if value.is_finite() else value
    if not abs(made) < _limit(kind.precision, kind.scale):
        raise ArithmeticFailed(what=f"{value} is out of the range of {kind.ddl}.")
    return made or made.copy_abs()  # there is no negative zero among decimals
