"""Aggregates with native partials: moments, decimals, conditions, first and last, extremes as Spark has them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from penstock.expr.numbers import CONTEXT, rounded
from penstock.operators.keyed.aggregates import Aggregate
from penstock.types import BIGINT, BOOLEAN, DOUBLE, DataType, Schema, attribute, decimal_of

Places = tuple[str, ...]


@dataclass(frozen=True)
class _Typed(Aggregate):
    """An aggregate of one column whose type is known."""

    of: str
    kind: DataType

    @property
    def column(self) -> str | None:
        return self.of

    @property
    def _value(self) -> str:
        return f"r.{attribute(self.of)}"

    def check(self, schema: Schema) -> None:
        schema.field(self.of)

    def output(self, schema: Schema) -> DataType:
        return self.kind

    def slots(self, schema: Schema) -> tuple[DataType, ...]:
        return (self.kind,)

    def of_record(self) -> Places:
        return (self._value,)

    def result(self, slots: Places) -> str:
        return slots[0]


@dataclass(frozen=True)
class Moments(_Typed):
    """Count, mean and the sums of powers of differences from it; two of them are added without loss of digits."""

    word: str = "variance"  # type: ignore[misc]

    def output(self, schema: Schema) -> DataType:
        return DOUBLE

    def slots(self, schema: Schema) -> tuple[DataType, ...]:
        return DOUBLE, DOUBLE, DOUBLE, DOUBLE, DOUBLE

    def of_record(self) -> Places:
        value = self._value
        return f"0.0 if {value} is None else 1.0", f"0.0 if {value} is None else float({value})", "0.0", "0.0", "0.0"

    def absorb(self, slots: Places, other: Places) -> list[str]:
        places = ", ".join(slots)
        return [f"{places} = moments_together({places}, {', '.join(other)})"]

    @property
    def names(self) -> dict[str, object]:
        return {"moments_together": together, **{f"moments_{name}": function for name, function in _RESULTS.items()}}

    def result(self, slots: Places) -> str:
        return f"moments_{self.word}({', '.join(slots)})"


def together(
    n: float, mean: float, m2: float, m3: float, m4: float, k: float, other: float, o2: float, o3: float, o4: float
) -> tuple[float, float, float, float, float]:
    """The moments of two groups together."""
    total = n + k
    if not k:
        return n, mean, m2, m3, m4
    if not n:
        return k, other, o2, o3, o4
    delta = other - mean
    step = delta / total
    square = step * step
    joined4 = m4 + o4 + step * square * delta * n * k * (n * n - n * k + k * k)
    joined4 += 6 * square * (n * n * o2 + k * k * m2) + 4 * step * (n * o3 - k * m3)
    joined3 = m3 + o3 + delta * step * step * n * k * (n - k) + 3 * step * (n * o2 - k * m2)
    return total, mean + step * k, m2 + o2 + delta * step * n * k, joined3, joined4


def _variance(n: float, _mean: float, m2: float, *_more: float) -> float | None:
    return m2 / (n - 1) if n > 1 else None


def _var_pop(n: float, _mean: float, m2: float, *_more: float) -> float | None:
    return m2 / n if n else None


def _root(value: float | None) -> float | None:
    return None if value is None else math.sqrt(value) if value >= 0 else math.nan


def _skewness(n: float, _mean: float, m2: float, m3: float, _m4: float) -> float | None:
    return None if not n or not m2 else math.sqrt(n) * m3 / math.sqrt(m2 * m2 * m2)


def _kurtosis(n: float, _mean: float, m2: float, _m3: float, m4: float) -> float | None:
    return None if not n or not m2 else n * m4 / (m2 * m2) - 3.0


_RESULTS = {
    "variance": _variance,
    "var_pop": _var_pop,
    "stddev": lambda *moments: _root(_variance(*moments)),
    "stddev_pop": lambda *moments: _root(_var_pop(*moments)),
    "skewness": _skewness,
    "kurtosis": _kurtosis,
}


class DecimalSum(_Typed):
    """Sum of decimals, ten digits wider than they are."""

    word = "sum"

    def output(self, schema: Schema) -> DataType:
        return decimal_of(self.kind.precision + 10, self.kind.scale)

    def slots(self, schema: Schema) -> tuple[DataType, ...]:
        return (self.output(schema),)

    def absorb(self, slots: Places, other: Places) -> list[str]:
        (s,), (x,) = slots, other
        return [f"if {x} is not None: {s} = {x} if {s} is None else decimal_added({s}, {x})"]

    def result(self, slots: Places) -> str:
        return f"decimal_fits({slots[0]}, {min(self.kind.precision + 10, 38)}, {self.kind.scale})"

    @property
    def names(self) -> dict[str, object]:
        return {"decimal_added": _added, "decimal_fits": _fits, "decimal_divided": _divided}


class DecimalMean(DecimalSum):
    """Mean of decimals, four digits longer than they are."""

    word = "avg"

    def output(self, schema: Schema) -> DataType:
        return decimal_of(self.kind.precision + 4, self.kind.scale + 4)

    def slots(self, schema: Schema) -> tuple[DataType, ...]:
        return decimal_of(self.kind.precision + 10, self.kind.scale), BIGINT

    def of_record(self) -> Places:
        return self._value, f"0 if {self._value} is None else 1"

    def absorb(self, slots: Places, other: Places) -> list[str]:
        return [*super().absorb(slots[:1], other[:1]), f"{slots[1]} += {other[1]}"]

    def result(self, slots: Places) -> str:
        made = decimal_of(self.kind.precision + 4, self.kind.scale + 4)
        return f"decimal_divided({slots[0]}, {slots[1]}, {made.precision}, {made.scale})"


def _added(left: Decimal, right: Decimal) -> Decimal:
    # A snapshot holds decimals as text.
    return CONTEXT.add(Decimal(left), Decimal(right))


def _fits(value: Decimal | None, precision: int, scale: int) -> Decimal | None:
    return None if value is None else rounded(Decimal(value), decimal_of(precision, scale))


def _divided(value: Decimal | None, count: int, precision: int, scale: int) -> Decimal | None:
    return (
        None if value is None or not count else _fits(CONTEXT.divide(Decimal(value), Decimal(count)), precision, scale)
    )


class Condition(_Typed):
    """Whether all conditions are true, or one of them is; nulls do not count."""

    _word = "and"

    def absorb(self, slots: Places, other: Places) -> list[str]:
        (s,), (x,) = slots, other
        return [f"if {x} is not None: {s} = {x} if {s} is None else ({s} {self._word} {x})"]


class Every(Condition):
    """Whether all conditions are true."""

    word = "bool_and"


class Some(Condition):
    """Whether one condition is true."""

    word = "bool_or"
    _word = "or"


class CountIf(_Typed):
    """How many conditions are true."""

    word = "count_if"

    def output(self, schema: Schema) -> DataType:
        return BIGINT

    def slots(self, schema: Schema) -> tuple[DataType, ...]:
        return (BIGINT,)

    def of_record(self) -> Places:
        return (f"1 if {self._value} else 0",)

    def absorb(self, slots: Places, other: Places) -> list[str]:
        return [f"{slots[0]} += {other[0]}"]


class Ordered(_Typed):
    """The first or last value to arrive, null or not."""

    ordered = True

    def slots(self, schema: Schema) -> tuple[DataType, ...]:
        return BOOLEAN, self.kind

    def of_record(self) -> Places:
        return "True", self._value

    def result(self, slots: Places) -> str:
        return slots[1]


class FirstOrNull(Ordered):
    """The first value to arrive."""

    word = "first"

    def absorb(self, slots: Places, other: Places) -> list[str]:
        return [f"if not {slots[0]}: {slots[0]}, {slots[1]} = {other[0]}, {other[1]}"]


class LastOrNull(Ordered):
    """The last value to arrive."""

    word = "last"

    def absorb(self, slots: Places, other: Places) -> list[str]:
        return [f"if {other[0]}: {slots[0]}, {slots[1]} = {other[0]}, {other[1]}"]


@dataclass(frozen=True)
class ExtremeBy(Aggregate):
    """A value of the record in which another column is largest or smallest."""

    of: str
    by: str
    kind: DataType
    by_kind: DataType
    largest: bool

    @property
    def word(self) -> str:  # type: ignore[override]
        return "max_by" if self.largest else "min_by"

    def check(self, schema: Schema) -> None:
        schema.field(self.of)
        schema.field(self.by)

    def output(self, schema: Schema) -> DataType:
        return self.kind

    def slots(self, schema: Schema) -> tuple[DataType, ...]:
        return self.by_kind, self.kind

    def of_record(self) -> Places:
        return f"r.{attribute(self.by)}", f"r.{attribute(self.of)}"

    def absorb(self, slots: Places, other: Places) -> list[str]:
        (b, v), (y, x) = slots, other
        sign = ">" if self.largest else "<"
        return [f"if {y} is not None and ({b} is None or nan_last({y}) {sign} nan_last({b})): {b}, {v} = {y}, {x}"]

    def result(self, slots: Places) -> str:
        return slots[1]

    @property
    def names(self) -> dict[str, object]:
        return {"nan_last": nan_last}

    def __str__(self) -> str:
        return f"{self.word}({self.of}, {self.by})"


def nan_last(value: Any) -> tuple[bool, Any]:
    """What values are compared by: NaN is larger than any number."""
    return (value != value, value)


class SparkMax(_Typed):
    """Largest value; NaN is larger than any number."""

    word = "max"

    def absorb(self, slots: Places, other: Places) -> list[str]:
        (s,), (x,) = slots, other
        return [f"if {x} is not None and ({s} is None or ({s} == {s} and not {x} <= {s})): {s} = {x}"]
