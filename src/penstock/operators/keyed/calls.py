"""From ``F.sum("price")`` to the aggregate that runs: which class, for which types."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from penstock.errors import TypeMismatch
from penstock.expr.aggregation import AggregateCall
from penstock.expr.library.hashes import hash64
from penstock.operators.keyed import folding, pairs
from penstock.operators.keyed import statistics as stats
from penstock.operators.keyed.aggregates import Aggregate, Count, First, Last, Max, Mean, Min, Sum
from penstock.operators.keyed.folding import Fold
from penstock.operators.keyed.tops import Top
from penstock.types import BIGINT, BOOLEAN, DATE, DOUBLE, TIMESTAMP, DataType, Schema, TypeKind, array_of

_MOMENTS = ("variance", "var_pop", "stddev", "stddev_pop", "skewness", "kurtosis")


def aggregate_of(call: AggregateCall, columns: tuple[str, ...], schema: Schema) -> Aggregate:
    """Return the aggregate over columns that the schema has, or raise TypeMismatch."""
    name = call.name
    kinds = [schema.field(column).type for column in columns]
    if name == "count":
        return Count(columns[0] if columns else None)
    if name == "count_distinct":
        return Fold(name, columns, BIGINT, folding.marked, folding.united, len)
    of, kind = columns[0], kinds[0]
    if name in ("sum", "avg", "sum_distinct", "percentile", "median", *_MOMENTS):
        _need(name, of, kind, kind.is_numeric, "a number")
    if name in ("bool_and", "bool_or", "count_if"):
        _need(name, of, kind, kind == BOOLEAN, "a condition")
        return {"bool_and": stats.Every, "bool_or": stats.Some, "count_if": stats.CountIf}[name](of, kind)
    if name in _MOMENTS:
        return stats.Moments(of, kind, name)
    if name in ("max_by", "min_by"):
        return _extreme_by(name, columns, kind, kinds[1])
    if name in _PAIRS:
        for column, each in zip(columns, kinds, strict=True):
            _need(name, column, each, each.is_numeric, "numbers")
        return Fold(name, columns, DOUBLE, pairs.pair, pairs.paired, _PAIRS[name])
    if name in ("min", "max"):
        _need(name, of, kind, not kind.is_nested, "values with an order")
    return _MAKERS[name](call, of, kind)


_PAIRS = {"covar_pop": pairs.covariance(0), "covar_samp": pairs.covariance(1), "corr": pairs.correlation}
_BITS = {"bit_and": operator.and_, "bit_or": operator.or_, "bit_xor": operator.xor}


def _extreme_by(name: str, columns: tuple[str, ...], kind: DataType, by: DataType) -> Aggregate:
    _need(name, columns[1], by, not by.is_nested, "values with an order")
    if _is_plain(kind) and _is_plain(by):
        return stats.ExtremeBy(columns[0], columns[1], kind, by, name == "max_by")
    combine = pairs.further(by, largest=name == "max_by")
    return Fold(name, columns, kind, pairs.kept_by, combine, pairs.kept_value(kind))


_WORDS: dict[type[Aggregate], str] = {Sum: "sum", Mean: "avg", Min: "min", Max: "max", First: "first", Last: "last"}


def fitting(aggregate: Aggregate, schema: Schema) -> Aggregate:
    """What computes an aggregate of ``ps.agg`` over values that only others can hold: decimals, nested ones."""
    if isinstance(aggregate, Top):
        aggregate.check(schema)
        return aggregate.over(schema)
    word = _WORDS.get(type(aggregate))
    if word is None or not isinstance(aggregate.column, str) or aggregate.column not in schema:
        return aggregate
    if _is_plain(schema.field(aggregate.column).type):
        return aggregate
    ignores_nulls = (True,) if word in ("first", "last") else ()
    return aggregate_of(AggregateCall(word, ignores_nulls), (aggregate.column,), schema)


def _need(name: str, of: str, kind: DataType, fits: bool, wanted: str) -> None:
    if not fits:
        raise TypeMismatch(what=f"{name} needs {wanted}, but '{of}' is {kind.ddl}.")


def _sum(_call: AggregateCall, of: str, kind: DataType) -> Aggregate:
    return stats.DecimalSum(of, kind) if kind.kind is TypeKind.DECIMAL else Sum(of)


def _mean(_call: AggregateCall, of: str, kind: DataType) -> Aggregate:
    return stats.DecimalMean(of, kind) if kind.kind is TypeKind.DECIMAL else Mean(of)


def _max(call: AggregateCall, of: str, kind: DataType) -> Aggregate:
    if not _is_plain(kind):
        return _packed_extreme(call, of, kind)
    return stats.SparkMax(of, kind) if kind.is_fractional else Max(of)


def _min(call: AggregateCall, of: str, kind: DataType) -> Aggregate:
    return Min(of) if _is_plain(kind) else _packed_extreme(call, of, kind)


def _packed_extreme(call: AggregateCall, of: str, kind: DataType) -> Aggregate:
    combine = folding.extreme(kind, largest=call.name == "max")
    return Fold(call.name, (of,), kind, folding.packed, combine, folding.chosen(kind, last=False))


def _is_plain(kind: DataType) -> bool:
    """Whether values come out of a snapshot as they went in."""
    return kind.kind is not TypeKind.DECIMAL and not kind.is_nested


def _first(call: AggregateCall, of: str, kind: DataType) -> Aggregate:
    return _ordered(call, of, kind, last=False)


def _last(call: AggregateCall, of: str, kind: DataType) -> Aggregate:
    return _ordered(call, of, kind, last=True)


def _ordered(call: AggregateCall, of: str, kind: DataType, *, last: bool) -> Aggregate:
    skips_nulls = call.options == (True,)
    if _is_plain(kind):
        if skips_nulls:
            return Last(of) if last else First(of)
        return stats.LastOrNull(of, kind) if last else stats.FirstOrNull(of, kind)
    made = folding.packed if skips_nulls else folding.kept
    combine = folding.later if last else folding.earlier
    return Fold(call.name, (of,), kind, made, combine, folding.chosen(kind, last=last), ordered=True)


def _sum_distinct(call: AggregateCall, of: str, kind: DataType) -> Aggregate:
    def finish(counts: dict[Any, int]) -> Any:
        return sum(counts) if counts else None

    _need(call.name, of, kind, kind.kind is not TypeKind.DECIMAL, "a whole number or a double")
    result = DOUBLE if kind.is_fractional else BIGINT
    return Fold(call.name, (of,), result, folding.counted, folding.added, finish)


def _approx(call: AggregateCall, of: str, kind: DataType) -> Aggregate:
    (rsd,) = call.options
    bits = max(math.ceil(2 * math.log2(1.106 / float(str(rsd)))), 4)
    made = folding.registers_of(hash64(kind), bits)
    return Fold(call.name, (of,), BIGINT, made, folding.larger, folding.estimate(bits))


def _percentile_approx(call: AggregateCall, of: str, kind: DataType) -> Aggregate:
    share, accuracy = call.options
    fits = kind.is_integer or kind.is_fractional or kind in (DATE, TIMESTAMP)
    _need(call.name, of, kind, fits, "a whole number, a double or a time")
    if not isinstance(accuracy, int) or accuracy < 1:
        raise TypeMismatch(what=f"the accuracy of percentile_approx is a number above 0, not {accuracy!r}.")
    made, finish = _of_shares(share, kind, folding.approximate)
    return Fold(call.name, (of,), made, folding.weighed, folding.sketch(accuracy), finish)


def _percentile(call: AggregateCall, of: str, _kind: DataType) -> Aggregate:
    made, finish = _of_shares(call.options[0] if call.options else 0.5, DOUBLE, folding.percentile)
    return Fold(call.name, (of,), made, folding.counted, folding.added, finish)


def _of_shares(
    share: object, kind: DataType, finisher: Callable[[float], Callable[[Any], Any]]
) -> tuple[DataType, Callable[[Any], Any]]:
    """The result for one share, or for several: an array."""
    if not isinstance(share, tuple):
        return kind, finisher(float(str(share)))
    each = [finisher(float(one)) for one in share]
    return array_of(kind), lambda held: [finish(held) for finish in each] if held else None


def _mode(call: AggregateCall, of: str, kind: DataType) -> Aggregate:
    _need(call.name, of, kind, not kind.is_nested, "values with an order")
    return Fold(call.name, (of,), kind, pairs.counted_packed, pairs.added_packed, pairs.most_frequent(kind))


def _bits(call: AggregateCall, of: str, kind: DataType) -> Aggregate:
    def held(value: int | None) -> list[int]:
        return [] if value is None else [value]

    _need(call.name, of, kind, kind.is_integer, "a whole number")
    combine = pairs.bits(_BITS[call.name])
    return Fold(call.name, (of,), kind, held, combine, lambda held: held[0] if held else None)


def _collect_list(call: AggregateCall, of: str, kind: DataType) -> Aggregate:
    finish = folding.opened(kind)
    return Fold(call.name, (of,), array_of(kind), folding.packed, folding.collected, finish, ordered=True)


def _collect_set(call: AggregateCall, of: str, kind: DataType) -> Aggregate:
    return Fold(call.name, (of,), array_of(kind), folding.packed_set, folding.collected_set, folding.opened(kind))


_MAKERS: dict[str, Callable[[AggregateCall, str, DataType], Aggregate]] = {
    "sum": _sum,
    "avg": _mean,
    "min": _min,
    "max": _max,
    "first": _first,
    "last": _last,
    "sum_distinct": _sum_distinct,
    "approx_count_distinct": _approx,
    "percentile_approx": _percentile_approx,
    "percentile": _percentile,
    "median": _percentile,
    "collect_list": _collect_list,
    "collect_set": _collect_set,
    "mode": _mode,
    **dict.fromkeys(_BITS, _bits),
}
