"""How far apart in time the records of a pair may be: from a duration, or from a condition such as a BETWEEN."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.durations import format_us
from penstock.errors import InvalidOption, TypeMismatch
from penstock.expr import Column
from penstock.expr.column import Interval, Op
from penstock.types import Schema

_REACH_US = 1 << 60
"""No bound is further away than that: some 36,000 years."""
_MIRRORED = {Op.LE: Op.GE, Op.GE: Op.LE, Op.LT: Op.GT, Op.GT: Op.LT, Op.EQ: Op.EQ}


@dataclass(frozen=True)
class Bounds:
    """The right time less the left time of a pair: at least ``low_us``, at most ``high_us``.

    Examples
    --------
    >>> str(Bounds.within(10_000_000))
    'within 10s of'
    >>> str(Bounds(0, 60_000_000))
    '0 to 1m before'
    """

    low_us: int
    high_us: int

    @staticmethod
    def within(us: int) -> Bounds:
        """As far to one side as to the other."""
        return Bounds(-us, us)

    @property
    def width_us(self) -> int:
        """From the first to the last time that a partner may have."""
        return self.high_us - self.low_us

    @property
    def is_even(self) -> bool:
        """Whether they reach as far to one side as to the other."""
        return self.low_us == -self.high_us

    @property
    def held_us(self) -> tuple[int, int]:
        """How long after their own times the records of the left and of the right side can find a partner."""
        return max(self.high_us, 0), max(-self.low_us, 0)

    def __str__(self) -> str:
        """What the left time is, in relation to the right one."""
        if self.is_even:
            return f"within {_told(self.high_us)} of"
        if self.low_us <= -_REACH_US:
            return "any time after"
        if self.low_us >= 0:
            return f"{_told(self.low_us)} to {_told(self.high_us)} before"
        if self.high_us <= 0:
            return f"{_told(-self.high_us)} to {_told(-self.low_us)} after"
        return f"at most {_told(self.high_us)} before or {_told(-self.low_us)} after"


UNBOUNDED_US = -_REACH_US


def _told(us: int) -> str:
    return format_us(us) if us else "0"


@dataclass(frozen=True)
class Timed:
    """What a condition says: the time columns of both sides, and the bounds."""

    left_time: str
    right_time: str
    bounds: Bounds


def read_condition(condition: Column, left: Schema, right: Schema, given: object) -> Timed:
    """Read ``clicked BETWEEN viewed AND viewed + INTERVAL 10 MINUTES`` and the like.

    Comparisons of a time of one side with a time of the other, each with intervals added or taken away, joined by AND;
    together they must say how far before and how far after a partner may be.
    """
    low_us, high_us = -_REACH_US, _REACH_US
    times: set[tuple[str, str]] = set()
    for op, one, other in _comparisons(condition):
        (name, plus_us), (partner, partner_plus_us) = _moment(one), _moment(other)
        mine, theirs = name in left and name not in right, partner in right and partner not in left
        if not (mine and theirs):
            if not (name in right and name not in left and partner in left and partner not in right):
                raise TypeMismatch(
                    what=f"{one} and {other} are not a time of one side and a time of the other.",
                    hint="Rename columns that both sides have.",
                )
            # right + a op left + b: mirrored, so that the left one stands first.
            name, plus_us, partner, partner_plus_us, op = partner, partner_plus_us, name, plus_us, _MIRRORED[op]
        times.add((name, partner))
        # left + a op right + b, so right - left against a - b.
        apart_us = plus_us - partner_plus_us
        if op in (Op.LE, Op.LT, Op.EQ):
            low_us = max(low_us, apart_us + (op is Op.LT))
        if op in (Op.GE, Op.GT, Op.EQ):
            high_us = min(high_us, apart_us - (op is Op.GT))
    if len(times) != 1:
        raise TypeMismatch(what=f"{condition} compares more than one pair of times.")
    if low_us <= -_REACH_US or high_us >= _REACH_US:
        raise InvalidOption(
            option="within",
            given=given,
            allowed="a bound on both sides, such as clicked BETWEEN viewed AND viewed + INTERVAL 10 MINUTES",
        )
    if low_us > high_us:
        raise InvalidOption(option="within", given=given, allowed="bounds that some pair of times can meet")
    ((left_time, right_time),) = times
    return Timed(left_time, right_time, Bounds(low_us, high_us))


def _comparisons(condition: Column) -> list[tuple[Op, Column, Column]]:
    """The comparisons that a condition is made of."""
    if condition.op is Op.AND:
        return [each for arg in condition.args for each in _comparisons(arg)]
    if condition.op is Op.BETWEEN:
        value, low, high = condition.args
        return [(Op.GE, value, low), (Op.LE, value, high)]
    if condition.op in _MIRRORED:
        one, other = condition.args
        return [(condition.op, one, other)]
    raise TypeMismatch(
        what=f"{condition} is not a bound on times.", hint="Use BETWEEN, <=, <, >=, > and AND between two times."
    )


def _moment(column: Column) -> tuple[str, int]:
    """The time column of an expression, and what is added to it."""
    if column.op is Op.REF:
        return str(column.payload).strip("`"), 0
    if column.op in (Op.ADD, Op.SUB):
        one, other = column.args
        if column.op is Op.ADD and one.op is Op.LITERAL:
            one, other = other, one
        if other.op is Op.LITERAL and isinstance(other.payload, Interval) and not other.payload.months:
            name, plus_us = _moment(one)
            return name, plus_us + (other.payload.us if column.op is Op.ADD else -other.payload.us)
    raise TypeMismatch(
        what=f"{column} is not a time column, with an interval added or taken away.",
        hint="Months and years have no fixed length: use days.",
    )
