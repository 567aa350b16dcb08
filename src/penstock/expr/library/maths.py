"""Functions of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ArithmeticFailed, BadRecord, TypeMismatch
from penstock.expr.column import Op
from penstock.expr.functions import INT64_MAX, INT64_MIN, float_remainder, overflow, remainder, zero_divisor
from penstock.expr.numbers import (
    CONTEXT,
    NEGATED_DIGITS_MAX,
    arithmetic_type,
    common_number,
    negated,
    positive,
    rounded,
)
from penstock.expr.table import define, same
from penstock.expr.typed import Typed
from penstock.types import BIGINT, BINARY, DOUBLE, FLOAT, INT, STRING, DataType, TypeKind, decimal_of, float32

add = define("numbers")
_NAN = math.nan
_NUMERALS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _safe(function: Callable[..., float], outside: float = _NAN) -> Callable[..., float]:
    """A function of doubles that gives NaN or infinity where Python raises."""

    def call(*values: float) -> float:
        try:
            return function(*values)
        except ValueError:
            return outside
        except OverflowError:
            return math.inf

    return call


def _log(value: float) -> float | None:
    return math.log(value) if value > 0 else None if value <= 0 else value


def _logarithm(function: Callable[[float], float], least: float = 0.0) -> Callable[[float], float | None]:
    """A logarithm: null where there is none, NaN of NaN."""
    return lambda value: None if value <= least else function(value)


def _log_base(base: float, value: float | None = None) -> float | None:
    if value is None:
        return _log(base)
    if base <= 0 or value <= 0:
        return None
    if base == 1:
        return _NAN if value == 1 else math.inf if value > 1 else -math.inf
    return math.log(value) / math.log(base)


def power(base: float, exponent: float) -> float:
    """Java's power: NaN and infinities where Python raises."""
    try:
        if base == 1 and exponent != exponent:
            return _NAN
        if abs(base) == 1 and math.isinf(exponent):
            return _NAN
        return math.pow(base, exponent)
    except ValueError:
        if base == 0:
            odd = exponent == int(exponent) and exponent % 2 == 1
            return -math.inf if odd and math.copysign(1, base) < 0 else math.inf
        return _NAN
    except OverflowError:
        odd = exponent == int(exponent) and exponent % 2 == 1
        return -math.inf if base < 0 and odd else math.inf


def _rounding(mode: str) -> Callable[[Typed], Callable[..., Any]]:
    def make(node: Typed) -> Callable[..., Any]:
        kind, result = node.args[0].type, node.type

        def of_fraction(value: float, places: int = 0) -> float:
            if not math.isfinite(value):
                return value
            shown = repr(value) if kind.kind is TypeKind.DOUBLE else str(float(f"{value:.9g}"))
            made = float(_quantized(Decimal(shown), places, mode))
            return made if kind.kind is TypeKind.DOUBLE else float32(made)

        def of_integer(value: int, places: int = 0) -> int:
            if places >= 0:
                return value
            made = int(_quantized(Decimal(value), places, mode))
            low, high = kind.bounds()
            return made if low <= made <= high else overflow(value, kind.ddl)

        def of_decimal(value: Decimal, places: int = 0) -> Decimal:
            return rounded(_quantized(value, places, mode), result)

        return of_decimal if kind.kind is TypeKind.DECIMAL else of_integer if kind.is_integer else of_fraction

    return make


def _quantized(value: Decimal, places: int, mode: str) -> Decimal:
    return value.quantize(Decimal((0, (1,), -places)), rounding=mode, context=CONTEXT)


def _rounded_type(args: Sequence[Typed]) -> DataType:
    kind = args[0].type
    if kind.kind is not TypeKind.DECIMAL:
        return kind
    places = args[1].payload if len(args) > 1 and isinstance(args[1].payload, int) else 0
    whole = kind.precision - kind.scale + 1
    if places < 0:
        return decimal_of(max(whole, -places + 1), 0)
    scale = min(kind.scale, places)
    return decimal_of(whole + scale, scale)


def _whole_type(args: Sequence[Typed]) -> DataType:
    kind = args[0].type
    if len(args) > 1:
        return _placed_type(args)
    if kind.kind is TypeKind.DECIMAL:
        return decimal_of(kind.precision - kind.scale + 1, 0) if kind.scale else kind
    return BIGINT


def _placed_type(args: Sequence[Typed]) -> DataType:
    kind = args[0].type
    digits = {TypeKind.TINYINT: 3, TypeKind.SMALLINT: 5, TypeKind.INT: 10, TypeKind.BIGINT: 20}
    precision, scale = (kind.precision, kind.scale) if kind.kind is TypeKind.DECIMAL else (digits.get(kind.kind, 30), 0)
    if kind.kind is TypeKind.DOUBLE:
        precision, scale = 30, 15
    elif kind.kind is TypeKind.FLOAT:
        precision, scale = 14, 7
    places = args[1].payload
    if not args[1].is_literal or not isinstance(places, int):
        raise TypeMismatch(what="the number of places is a constant.")
    whole = precision - scale + 1
    return (
        decimal_of(max(whole, -places + 1), 0)
        if places < 0
        else decimal_of(whole + min(scale, places), min(scale, places))
    )


def _whole(mode: str, function: Callable[[float], int]) -> Callable[[Typed], Callable[..., Any]]:
    def make(node: Typed) -> Callable[..., Any]:
        kind, result = node.args[0].type, node.type
        if len(node.args) > 1:

            def placed(value: Any, places: int) -> Decimal | None:
                if value != value or abs(value) == math.inf:
                    return None
                exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
                return rounded(_quantized(exact, places, mode), result)

            return placed
        if kind.kind is TypeKind.DECIMAL:
            return lambda value: rounded(_quantized(value, 0, mode), result)
        if kind.is_integer:
            return lambda value: value

        def of_fraction(value: float) -> int:
            if value != value:
                return 0  # as Java converts it
            if not -(2.0**63) <= value < 2.0**63:
                overflow(value)
            return function(value)

        return of_fraction

    return make


def _whole_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(value: Any, places: Any = None) -> Any:
        if places is not None or not pa.types.is_floating(value.type):
            return None
        made = function(value)
        return pc.cast(made, pa.int64()) if pc.all(pc.less(pc.abs(made), 2.0**62)).as_py() is not False else None

    return kernel


def _sign(value: Any) -> float:
    return _NAN if value != value else math.copysign(float(value != 0), value) if value else float(value)


def pmod(node: Typed) -> Callable[..., Any]:
    """A remainder that is not negative where the divisor is positive."""
    kind = node.type
    if kind.kind is TypeKind.DECIMAL:
        return _decimal_pmod(kind)
    modulo = float_remainder if kind.is_fractional else remainder
    convert = float if kind.is_fractional else int

    def compute(dividend: Any, divisor: Any) -> Any:
        dividend, divisor = convert(dividend), convert(divisor)
        if not divisor:
            zero_divisor(dividend)
        rest = modulo(dividend, divisor)
        return modulo(rest + divisor, divisor) if rest < 0 else rest

    return compute


def _decimal_pmod(kind: DataType) -> Callable[..., Any]:
    def compute(dividend: Any, divisor: Any) -> Decimal:
        if not divisor:
            zero_divisor(dividend)
        by = Decimal(divisor)
        rest = CONTEXT.remainder(Decimal(dividend), by)
        return rounded(CONTEXT.remainder(CONTEXT.add(rest, by), by) if rest < 0 else rest, kind)

    return compute


def _common(args: Sequence[Typed]) -> DataType:
    return common_number(args[0].type, args[1].type)


def _hex(value: Any) -> str:
    if isinstance(value, int):
        return f"{value & 0xFFFFFFFFFFFFFFFF:X}"
    return (value.encode() if isinstance(value, str) else value).hex().upper()


def _unhex(text: str) -> bytes | None:
    try:
        return bytes.fromhex("0" + text if len(text) % 2 else text) if text.isalnum() or not text else None
    except ValueError:
        return None


def conv(text: str, source: int, target: int) -> str | None:
    """A number from one base in another; digits that do not belong end it."""
    if not (2 <= source <= 36 and 2 <= abs(target) <= 36) or not text.strip():
        return None
    text = text.strip()
    negative, digits = text.startswith("-"), text.lstrip("-").upper() if text.startswith("-") else text.upper()
    value = 0
    for digit in digits:
        at = _NUMERALS.find(digit)
        if not 0 <= at < source:
            break
        value = value * source + at
        if value >= 1 << 64:
            overflow(value, "conv")
    if negative and target > 0:
        value = (-value) & 0xFFFFFFFFFFFFFFFF
    shown_negative = target < 0 and (negative or value >= 1 << 63)
    if target < 0 and not negative and value >= 1 << 63:
        value = (1 << 64) - value
    base, made = abs(target), ""
    while value:
        value, digit_at = divmod(value, base)
        made = _NUMERALS[digit_at] + made
    return ("-" if shown_negative and made else "") + (made or "0")


def factorial(value: int) -> int | None:
    """Product of the numbers up to one; null outside of 0 to 20."""
    return math.factorial(value) if 0 <= value <= 20 else None


def _bits(node: Typed) -> int:
    return 64 if node.args[0].type == BIGINT else 32


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _shift(kind: str) -> Callable[[Typed], Callable[[int, int], int]]:
    def make(node: Typed) -> Callable[[int, int], int]:
        bits = _bits(node)
        if kind == "left":
            return lambda value, by: _signed(value << (by % bits), bits)
        if kind == "right":
            return lambda value, by: value >> (by % bits)
        return lambda value, by: _signed((value & ((1 << bits) - 1)) >> (by % bits), bits)

    return make


def _bit_count(node: Typed) -> Callable[[Any], int]:
    del node
    return lambda value: (int(value) & 0xFFFFFFFFFFFFFFFF).bit_count()


def _bit_get(node: Typed) -> Callable[[int, int], int]:
    bits = node.args[0].type.bounds()[1].bit_length() + 1

    def get(value: int, at: int) -> int:
        if not 0 <= at < bits:
            raise BadRecord(f"there is no bit {at} in {bits} bits.")
        return (value >> at) & 1

    return get


def width_bucket(value: float, low: float, high: float, count: int) -> int | None:
    """Which of equal parts of a range a number is in."""
    if count <= 0 or count == INT64_MAX or low == high or not all(map(math.isfinite, (low, high))) or value != value:
        return None
    if low < high:
        if value < low:
            return 0
        return count + 1 if value >= high else int(count * (value - low) / (high - low)) + 1
    if value > low:
        return 0
    return count + 1 if value <= high else int(count * (low - value) / (low - high)) + 1


def _div(left: int, right: int) -> int:
    if not right:
        zero_divisor(left)
    made = abs(left) // abs(right)
    made = made if (left < 0) is (right < 0) else -made
    return made if INT64_MIN <= made <= INT64_MAX else overflow(made)


_SYMBOLS = {"+": Op.ADD, "-": Op.SUB, "*": Op.MUL, "/": Op.DIV}


def _attempt_type(symbol: str) -> Callable[[Sequence[Typed]], DataType]:
    return lambda args: arithmetic_type(_SYMBOLS[symbol], args[0], args[1])


def _attempt(symbol: str) -> Callable[[Typed], Callable[[Any, Any], Any]]:
    def make(node: Typed) -> Callable[[Any, Any], Any]:
        kind = node.type
        if kind.kind is TypeKind.DECIMAL:
            return _attempt_decimal(symbol, kind)
        convert = float if kind.is_fractional else int
        if kind == FLOAT:
            return _attempt_float(symbol)

        def compute(a: Any, b: Any) -> Any:
            a, b = convert(a), convert(b)
            if symbol == "/" and not b:
                return None
            made = a + b if symbol == "+" else a - b if symbol == "-" else a * b if symbol == "*" else a / b
            if not kind.is_integer:
                return float(made)
            low, high = kind.bounds()
            return made if low <= made <= high else None

        return compute

    return make


def _attempt_decimal(symbol: str, kind: DataType) -> Callable[[Any, Any], Any]:
    operate = {"+": CONTEXT.add, "-": CONTEXT.subtract, "*": CONTEXT.multiply, "/": CONTEXT.divide}[symbol]

    def compute(a: Any, b: Any) -> Any:
        try:
            return None if symbol == "/" and not b else rounded(operate(Decimal(a), Decimal(b)), kind)
        except ArithmeticFailed:
            return None

    return compute


def _attempt_float(symbol: str) -> Callable[[Any, Any], Any]:
    def compute(a: Any, b: Any) -> Any:
        return float32(a + b if symbol == "+" else a - b if symbol == "-" else a * b)

    return compute


def _signed_kernel(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Arrow keeps all digits of a decimal where the record form, as Spark, keeps fewer."""
    return lambda value: None if is_long(value.type) else function(value)


def is_long(kind: pa.DataType) -> bool:
    """Whether it is a decimal of which some digits may be lost with its sign."""
    return bool(pa.types.is_decimal(kind)) and kind.precision > NEGATED_DIGITS_MAX


def _absolute(node: Typed) -> Callable[[Any], Any]:
    kind = node.type
    if kind.kind is TypeKind.DECIMAL:
        return positive
    if not kind.is_integer:
        return abs
    low, high = kind.bounds()
    return lambda value: abs(value) if value > low else overflow(-value, kind.ddl) if high else value


def _negative(node: Typed) -> Callable[[Any], Any]:
    kind = node.type
    if kind.kind is TypeKind.DECIMAL:
        return negated
    if not kind.is_integer:
        return lambda value: -value
    low, _ = kind.bounds()
    return lambda value: -value if value > low else overflow(-value, kind.ddl)


_DOUBLES: dict[str, Callable[..., float]] = {
    "sin": _safe(math.sin),
    "cos": _safe(math.cos),
    "tan": _safe(math.tan),
    "asin": _safe(math.asin),
    "acos": _safe(math.acos),
    "atan": math.atan,
    "sinh": lambda v: math.copysign(math.inf, v) if abs(v) > 710.4758600739439 else math.sinh(v),
    "cosh": _safe(math.cosh),
    "tanh": math.tanh,
    "exp": _safe(math.exp),
    "expm1": _safe(math.expm1),
    "rint": lambda v: math.copysign(round(v), v) if math.isfinite(v) else v,
    "cbrt": math.cbrt,
}
for _name, _function in _DOUBLES.items():
    add(_name, "c:double", DOUBLE, _function)
add("sqrt", "c:double", DOUBLE, _safe(math.sqrt), kernel=pc.sqrt)
add("degrees toDegrees", "c:double", DOUBLE, lambda v: v * 57.29577951308232)
add("radians toRadians", "c:double", DOUBLE, lambda v: v * 0.017453292519943295)
add("cot", "c:double", DOUBLE, lambda v: 1 / _safe(math.tan)(v) if v else math.copysign(math.inf, v))
add("sec", "c:double", DOUBLE, lambda v: 1 / _safe(math.cos)(v))
add("csc", "c:double", DOUBLE, lambda v: 1 / _safe(math.sin)(v) if v else math.copysign(math.inf, v))
add("atan2", "c:double c:double", DOUBLE, lambda y, x: math.atan2(y + 0.0, x + 0.0))
add("hypot", "c:double c:double", DOUBLE, _safe(math.hypot))
add("pow power", "c:double c:double", DOUBLE, power)
add("ln", "c:double", DOUBLE, _log, nullable=True)
add("log", "c:double c:double?", DOUBLE, _log_base, nullable=True)
add("log10", "c:double", DOUBLE, _logarithm(math.log10), nullable=True)
add("log2", "c:double", DOUBLE, _logarithm(lambda v: math.log(v) / math.log(2.0)), nullable=True)
add("log1p", "c:double", DOUBLE, _logarithm(math.log1p, -1.0), nullable=True)
add("abs", "c:number", same(), make=_absolute, kernel=_signed_kernel(pc.abs_checked))
add("negative", "c:number", same(), make=_negative, kernel=_signed_kernel(pc.negate_checked))
add("positive", "c:number", same(), source="{0}")
add("sign signum", "c:double", DOUBLE, _sign)
add("round", "c:number l:int?", _rounded_type, make=_rounding(ROUND_HALF_UP))
add("bround", "c:number l:int?", _rounded_type, make=_rounding(ROUND_HALF_EVEN))
add(
    "ceil ceiling",
    "c:number l:int?",
    _whole_type,
    make=_whole(ROUND_CEILING, math.ceil),
    nullable=True,
    kernel=_whole_kernel(pc.ceil),
)
add(
    "floor",
    "c:number l:int?",
    _whole_type,
    make=_whole(ROUND_FLOOR, math.floor),
    nullable=True,
    kernel=_whole_kernel(pc.floor),
)
add("pmod", "c:number c:number", lambda args: arithmetic_type(Op.MOD, *args), make=pmod)
add("div", "l:bigint l:bigint", BIGINT, _div, sql="div")
add("factorial", "c:int", BIGINT, factorial, nullable=True)
add("hex", "c:hexable", STRING, _hex)
add("unhex", "c:string", BINARY, _unhex, nullable=True)
add("bin", "c:bigint", STRING, lambda value: f"{value & 0xFFFFFFFFFFFFFFFF:b}")
add("conv", "c:string l:int l:int", STRING, conv, nullable=True)
add("shiftleft", "c:wide l:int", same(), make=_shift("left"))
add("shiftright", "c:wide l:int", same(), make=_shift("right"))
add("shiftrightunsigned", "c:wide l:int", same(), make=_shift("unsigned"))
add("bitwise_not", "c:integer", same(), source="~{0}", sql="~")
add("bitwiseAND", "c:integer l:integer", _common, source="({0} & {1})")
add("bitwiseOR", "c:integer l:integer", _common, source="({0} | {1})")
add("bitwiseXOR", "c:integer l:integer", _common, source="({0} ^ {1})")
add("bit_count", "c:integer", INT, make=_bit_count)
add("bit_get getbit", "c:integer l:int", DataType(TypeKind.TINYINT), make=_bit_get)
add("width_bucket", "c:double c:double c:double c:bigint", BIGINT, width_bucket, nullable=True)
add("isnan", "c:double", "boolean", lambda v: v is not None and v != v, strict=False)
add(
    "nanvl", "c:double c:double", DOUBLE, lambda a, b: b if a is not None and a != a else a, strict=False, nullable=True
)
add("try_add", "c:number c:number", _attempt_type("+"), make=_attempt("+"), nullable=True)
add("try_subtract", "c:number c:number", _attempt_type("-"), make=_attempt("-"), nullable=True)
add("try_multiply", "c:number c:number", _attempt_type("*"), make=_attempt("*"), nullable=True)
add("try_divide", "c:number c:number", _attempt_type("/"), make=_attempt("/"), nullable=True)
add("e", "", DOUBLE, lambda: math.e)
add("pi", "", DOUBLE, lambda: math.pi)
