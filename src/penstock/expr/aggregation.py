"""Aggregates as columns: ``F.sum("price")`` and its like; ``group_by(…).agg(…)`` makes operations of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.errors import InvalidOption, TypeMismatch
from penstock.expr.column import Column, Op, col, lit


@dataclass(frozen=True)
class AggregateCall:
    """Which aggregate, and its options; the node's arguments are what it reads."""

    name: str
    options: tuple[object, ...] = ()

    def render(self, args: list[str]) -> str:
        """The aggregate in Spark's SQL."""
        if self.name == "count_distinct":
            return f"count(DISTINCT {', '.join(args)})"
        if self.name == "sum_distinct":
            return f"sum(DISTINCT {', '.join(args)})"
        options = [_told(option) for option in self.options]
        return f"{self.name}({', '.join([*args, *options]) or '*'})"


def _told(option: object) -> str:
    if isinstance(option, tuple):
        return f"array({', '.join(map(_told, option))})"
    return str(option).upper() if isinstance(option, bool) else str(option)


def _column(given: object) -> Column:
    return col(given) if isinstance(given, str) else lit(given)


def _made(name: str, columns: tuple[object, ...], *options: object) -> Column:
    args = tuple(map(_column, columns))
    for arg in args:
        if has_aggregate(arg):
            raise TypeMismatch(what=f"{name} of {arg} is an aggregate of an aggregate.")
    return Column(Op.AGGREGATE, args, AggregateCall(name, options))


def has_aggregate(column: Column) -> bool:
    """Whether there is an aggregate in an expression."""
    return column.op is Op.AGGREGATE or any(has_aggregate(arg) for arg in column.args)


def count(column: object = "*") -> Column:
    """Count records, or those in which a column is not null."""
    if (isinstance(column, str) and column == "*") or (isinstance(column, Column) and column.op is Op.LITERAL):
        return _made("count", ())
    return _made("count", (column,))


def count_distinct(column: object, *columns: object) -> Column:
    """Count different values, or combinations of them; those with a null do not count."""
    return _made("count_distinct", (column, *columns))


def approx_count_distinct(column: object, rsd: object = 0.05) -> Column:
    """Estimate the number of different values in little memory; ``rsd`` is the relative error, 0.05 by default."""
    value = rsd.payload if isinstance(rsd, Column) else rsd
    if not isinstance(value, int | float) or not 0.005 <= float(value) <= 0.39:
        try:
            value = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            value = 0
        if not 0.005 <= value <= 0.39:
            raise InvalidOption(option="rsd", given=rsd, allowed="0.005 to 0.39")
    return _made("approx_count_distinct", (column,), float(value))


def percentile_approx(column: object, percentage: object, accuracy: int = 10_000) -> Column:
    """A value of the column below which about so many of its values are; exact for small groups.

    Several shares, ``[0.5, 0.9]``, give an array.
    """
    return _made("percentile_approx", (column,), _share(percentage), _plain(accuracy))


def percentile(column: object, percentage: object) -> Column:
    """Exact percentile, between two values where it has to be; of several shares an array."""
    return _made("percentile", (column,), _share(percentage))


def median(column: object) -> Column:
    """Exact median."""
    return _made("median", (column,))


def first(column: object, ignorenulls: object = False) -> Column:
    """First value to arrive."""
    return _made("first", (column,), bool(_plain(ignorenulls)))


def last(column: object, ignorenulls: object = False) -> Column:
    """Last value to arrive."""
    return _made("last", (column,), bool(_plain(ignorenulls)))


def collect_list(column: object) -> Column:
    """All values that are not null, as they arrive; at most 10,000 in a group."""
    return _made("collect_list", (column,))


def collect_set(column: object) -> Column:
    """All different values that are not null, in no order; at most 10,000 in a group."""
    return _made("collect_set", (column,))


def max_by(column: object, by: object) -> Column:
    """The value of a column in the record in which another one is largest."""
    return _made("max_by", (column, by))


def min_by(column: object, by: object) -> Column:
    """The value of a column in the record in which another one is smallest."""
    return _made("min_by", (column, by))


def corr(column: object, other: object) -> Column:
    """Pearson's correlation of two columns."""
    return _made("corr", (column, other))


def covar_pop(column: object, other: object) -> Column:
    """Covariance of two columns, over all records."""
    return _made("covar_pop", (column, other))


def covar_samp(column: object, other: object) -> Column:
    """Covariance of two columns, of a sample."""
    return _made("covar_samp", (column, other))


def _plain(value: object) -> object:
    return value.payload if isinstance(value, Column) else value


def _share(value: object) -> float | tuple[float, ...]:
    if isinstance(value, Column) and value.op is Op.CALL and value.payload == "array":
        value = value.args
    if isinstance(value, list | tuple):
        if not value:
            raise InvalidOption(option="percentage", given=value, allowed="0 to 1, or several of them")
        return tuple(_one_share(each) for each in value)
    return _one_share(value)


def _one_share(value: object) -> float:
    plain = _plain(value)
    try:
        share = float(plain)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        share = -1.0
    if not 0 <= share <= 1:
        raise InvalidOption(option="percentage", given=plain, allowed="0 to 1")
    return share


def _simple(name: str) -> Callable[[object], Column]:
    def function(column: object) -> Column:
        return _made(name, (column,))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Spark's ``{name}`` of a column (aggregates)."
    return function


_SIMPLE = {
    "sum": "sum", "avg": "avg", "mean": "avg", "min": "min", "max": "max", "stddev": "stddev", "std": "stddev",
    "stddev_samp": "stddev", "stddev_pop": "stddev_pop", "variance": "variance", "var_samp": "variance",
    "var_pop": "var_pop",
    "bool_and": "bool_and", "every": "bool_and", "bool_or": "bool_or", "some": "bool_or", "count_if": "count_if",
    "sum_distinct": "sum_distinct", "sumDistinct": "sum_distinct", "skewness": "skewness", "kurtosis": "kurtosis",
    "mode": "mode", "bit_and": "bit_and", "bit_or": "bit_or", "bit_xor": "bit_xor",
}  # fmt: skip
FUNCTIONS: dict[str, Callable[..., Column]] = {
    **{name: _simple(target) for name, target in _SIMPLE.items()},
    "count": count,
    "count_distinct": count_distinct,
    "countDistinct": count_distinct,
    "approx_count_distinct": approx_count_distinct,
    "percentile_approx": percentile_approx,
    "approx_percentile": percentile_approx,
    "percentile": percentile,
    "median": median,
    "first": first,
    "first_value": first,
    "any_value": first,
    "last": last,
    "last_value": last,
    "collect_list": collect_list,
    "array_agg": collect_list,
    "collect_set": collect_set,
    "max_by": max_by,
    "min_by": min_by,
    "corr": corr,
    "covar_pop": covar_pop,
    "covar_samp": covar_samp,
}


def window(column: object, size: str, slide: str | None = None, startTime: str | None = None) -> Column:
    """Group by windows of event time: ``group_by("ad", F.window("at", "10 seconds", "2 seconds"))``."""
    if startTime is not None:
        allowed = "left out: windows begin at multiples of their slide"
        raise InvalidOption(option="startTime", given=startTime, allowed=allowed)
    given = _column(column)
    if given.op is not Op.REF:
        raise TypeMismatch(what=f"the time of a window is a column, not {given}.", hint="Use with_columns() before.")
    return Column(Op.WINDOW, (given,), (size,) if slide is None or slide == size else (size, slide))


@dataclass(frozen=True, slots=True)
class Gap:
    """What a session window has in place of a size."""

    duration: str


def session_window(column: object, gap: str) -> Column:
    """Group by sessions, as Spark has them: ``group_by("user", F.session_window("at", "5 minutes"))``.

    Records that are less than the gap apart are in one session, which ends the gap after its last record.
    """
    given = _column(column)
    if given.op is not Op.REF:
        raise TypeMismatch(what=f"the time of a session is a column, not {given}.", hint="Use with_columns() before.")
    return Column(Op.WINDOW, (given,), Gap(gap))
