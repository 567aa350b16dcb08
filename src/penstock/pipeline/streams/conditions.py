"""What a join is given: keys and bounds on the times, or one condition that says both, as Spark writes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from penstock.errors import InvalidOption, TypeMismatch
from penstock.expr import Column, col
from penstock.expr.column import Op
from penstock.expr.text import expr
from penstock.operators import JoinHow
from penstock.operators.keyed.join import is_condition
from penstock.pipeline.streams.base import plain_names
from penstock.types import TIMESTAMP, quoted

if TYPE_CHECKING:
    from penstock.pipeline.streams.stream import Stream


@dataclass(frozen=True)
class Sides:
    """Both sides of a join, with the key under one name, and how far apart their times may be.

    Attributes
    ----------
    made : tuple of str
        Columns that are only there for the join.
    rest : Column or None
        What else a pair has to fulfil.
    is_timed : bool
        Whether the bounds name the time columns.
    """

    left: Stream
    right: Stream
    keys: tuple[str, ...]
    within: str | float | Column
    made: tuple[str, ...] = ()
    rest: Column | None = None
    is_timed: bool = False


def settle(
    left: Stream,
    right: Stream,
    on: str | Column | Sequence[str | Column],
    within: str | float | Column | None,
    how: JoinHow,
) -> Sides:
    """Read the key and the bounds of `Stream.join`."""
    condition = _condition(on)
    if condition is None:
        keys = plain_names(on if isinstance(on, list | tuple) else (on,))
        if not all(isinstance(each, str) for each in keys):
            allowed = "the name of a column that both sides have, a list of them, or a condition"
            raise InvalidOption(option="on", given=on, allowed=allowed)
        return Sides(left, right, keys, _bound(within), is_timed=is_condition(within))
    pairs: dict[str, str] = {}
    times: list[Column] = []
    rest: list[Column] = []
    for each in conjuncts(condition):
        pair = equal(each, lambda name: name in left.schema, lambda name: name in right.schema)
        if pair is not None and left.schema.field(pair[0]).type != TIMESTAMP:
            pairs[pair[0]] = pair[1]
        elif _is_about_times(each, left, right):
            times.append(each)
        else:
            rest.append(each)
    if rest and how is not JoinHow.INNER:
        raise TypeMismatch(
            what=f"{rest[0]} compares neither a key nor times.",
            hint="Only an inner join takes such a condition. Filter the streams before, or the pairs behind.",
        )
    if not pairs:
        raise TypeMismatch(
            what=f"{condition} has no equal columns of both sides.",
            hint='A join needs a key: "ad = shown AND clicked BETWEEN viewed AND viewed + INTERVAL 1 HOUR".',
        )
    if times and within is not None:
        raise InvalidOption(
            option="within", given=str(within), allowed="left out, where the condition bounds the times"
        )
    bound = _all(times) if times else _bound(within)
    left, right, keys, made = _keyed(left, right, pairs, how)
    return Sides(left, right, keys, bound, made, _all(rest) if rest else None, bool(times) or is_condition(within))


def _all(conditions: Sequence[Column]) -> Column:
    return reduce(lambda one, other: one & other, conditions)


def _is_about_times(condition: Column, *sides: Stream) -> bool:
    """Whether it names columns of times only."""
    if condition.op is not Op.REF:
        return all(_is_about_times(arg, *sides) for arg in condition.args)
    name = str(condition.payload).strip("`")
    return any(name in side.schema and side.schema.field(name).type == TIMESTAMP for side in sides)


def _keyed(
    left: Stream, right: Stream, pairs: dict[str, str], how: JoinHow
) -> tuple[Stream, Stream, tuple[str, ...], tuple[str, ...]]:
    """Bring keys of different names under one. Both columns stay, each null where its side is missing."""
    keys: list[str] = []
    made: list[str] = []
    for mine, theirs in pairs.items():
        if mine == theirs:
            keys.append(mine)
        elif how.keeps_right or mine in right.schema:
            key = f"_key_{mine}"
            left, right = left.with_column(key, col(quoted(mine))), right.with_column(key, col(quoted(theirs)))
            keys.append(key)
            made.append(key)
        else:
            right = right.with_column(mine, col(quoted(theirs)))
            keys.append(mine)
    return left, right, tuple(keys), tuple(made)


def _condition(on: object) -> Column | None:
    """A condition where one is given; None: names of columns."""
    if isinstance(on, Column):
        return on if on.op is not Op.REF else None
    if isinstance(on, str):
        return expr(on) if is_condition(on) else None
    if isinstance(on, list | tuple) and on and all(isinstance(each, Column) for each in on):
        return _all(on)
    return None


def _bound(within: str | float | Column | None) -> str | float | Column:
    if within is None:
        allowed = 'how far apart the times of a pair may be, such as "10m": a stream has no end to wait for'
        raise InvalidOption(option="within", given=within, allowed=allowed)
    return within


def conjuncts(condition: Column) -> list[Column]:
    """The conditions that AND joins."""
    if condition.op is Op.AND:
        return [each for arg in condition.args for each in conjuncts(arg)]
    return [condition]


def equal(column: Column, mine: Callable[[str], bool], theirs: Callable[[str], bool]) -> tuple[str, str] | None:
    """The names in ``left = right``, whichever stands first."""
    if column.op is not Op.EQ or any(arg.op is not Op.REF for arg in column.args):
        return None
    one, other = (str(arg.payload).strip("`") for arg in column.args)
    if mine(one) and theirs(other):
        return one, other
    return (other, one) if mine(other) and theirs(one) else None
