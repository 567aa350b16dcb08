"""The join of two streams by key and event time as users see it.

Both sides are brought to one schema (`Tag`, stateless, one for each side) and meet, dealt out by key, in `Match`,
which owns the state.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from penstock.checks import OneOf
from penstock.durations import format_us, parse_us
from penstock.errors import InvalidGraph, InvalidOption, SchemaError, TypeMismatch
from penstock.expr import Column
from penstock.expr.text import expr
from penstock.operators.base import Expansion, Lateness, Operation
from penstock.operators.keyed.bounds import UNBOUNDED_US, Bounds, Timed, read_condition
from penstock.operators.keyed.match import Match, Pairing, bucket_us
from penstock.operators.keyed.tag import JoinHow, Side, Tag
from penstock.operators.keyed.windows import check_time
from penstock.operators.keys import check_keys
from penstock.types import BOOLEAN, TIMESTAMP, Field, Schema


@dataclass(frozen=True)
class Join(Operation):
    """Pairs of records with equal keys whose times are as far apart as the ``bounds`` allow.

    Between its parts a record has generated names, so that no user's column can clash: ``_side`` (true on the right),
    the key ``_k…``, the time ``_t``, and the other columns ``_l…`` of the left and ``_r…`` of the right side.
    """

    keys: tuple[str, ...]
    left_time: str
    right_time: str
    bounds: Bounds
    lateness_us: int = 0
    how: JoinHow = JoinHow.INNER
    match: Pairing = Pairing.ALL
    as_of: bool = False
    """Whether a left record is paired with the latest right one only."""
    kind = "join"
    stateful = True

    def bind(self, *schemas: Schema) -> Schema:
        if len(schemas) != 2:
            raise InvalidGraph(f"a join has two inputs, not {len(schemas)}.")
        left, right = schemas
        for side, schema, time in ((Side.LEFT, left, self.left_time), (Side.RIGHT, right, self.right_time)):
            check_keys(schema, self.keys)
            check_time(schema, time, f"the {side.value} time column")
        for key in self.keys:
            mine, theirs = left.field(key).type, right.field(key).type
            if mine != theirs:
                raise TypeMismatch(
                    what=f"the key '{key}' is {mine.ddl} on the left and {theirs.ddl} on the right.",
                    hint="Cast one of them with select().",
                )
        added = self._added(right)
        clash = [field.name for field in added if field.name in left]
        if clash:
            raise SchemaError(
                ddl=left.ddl,
                problem=f"the other side of the join has a column '{clash[0]}' as well",
                hint="Rename or leave out one of them with select().",
            )
        return Schema((*(self._kept(field, right) for field in left.fields), *added))

    def _kept(self, field: Field, right: Schema) -> Field:
        """A column of the left side as pairs have it: null where a right record is alone, unless both have it."""
        if not self.how.keeps_right:
            return field
        if field.name in self.keys:
            outer = right.field(field.name).nullable or (self.how.keeps_left and field.nullable)
            return Field(field.name, field.type, outer)
        if field.name == self.left_time == self.right_time:
            return Field(field.name, field.type, field.nullable or right.field(field.name).nullable)
        return Field(field.name, field.type)

    @property
    def readers_of_time(self) -> tuple[tuple[str, Lateness], ...]:
        lateness = Lateness(delay_us=self.lateness_us)
        return (self.left_time, lateness), (self.right_time, lateness)

    @property
    def delays_us(self) -> dict[str, int]:
        if self.as_of:
            # Records of the left side leave in the order of time; how old what they meet may be nobody knows.
            return {self.left_time: self.lateness_us}
        # A pair is made when the second of its records is there, which is not late; the first is within reach of it.
        # One without a partner is let go by buckets of time.
        one_us = bucket_us(self.bounds)
        left_us, right_us = (
            self.lateness_us + held_us + one_us * self.how.keeps(side)
            for side, held_us in zip(Side, self.bounds.held_us, strict=True)
        )
        if self.left_time != self.right_time:
            return {self.left_time: left_us, self.right_time: right_us}
        alone_us = (left_us * self.how.keeps_left, right_us * self.how.keeps_right)
        return {self.left_time: max(self.lateness_us, *alone_us)}

    def expand(self, schemas: Sequence[Schema], read: Collection[str]) -> Expansion:
        del read
        left, right = schemas
        tags = tuple((side.value, Tag(self, left, right, side)) for side in Side)
        return Expansion(tags, Match(self, left, right), self.tagged_keys, self.keys)

    def _added(self, right: Schema) -> list[Field]:
        """Columns that the right side adds."""
        outer = self.how.keeps_left
        known = self.keys if self.left_time != self.right_time else (*self.keys, self.right_time)
        return [Field(f.name, f.type, f.nullable or outer) for f in right.fields if f.name not in known]

    def plain_columns(self, schema: Schema, side: Side) -> list[Field]:
        """Columns of a side that are neither its key nor its time."""
        time = self.left_time if side is Side.LEFT else self.right_time
        return [field for field in schema.fields if field.name != time and field.name not in self.keys]

    @property
    def tagged_keys(self) -> tuple[str, ...]:
        """Names of the key columns between the parts."""
        return tuple(f"_k{i}" for i in range(len(self.keys)))

    def tagged(self, left: Schema, right: Schema) -> Schema:
        """The one schema that both sides have between the parts."""
        fields = [Field("_side", BOOLEAN, False)]
        fields += [Field(name, left.field(key).type) for name, key in zip(self.tagged_keys, self.keys, strict=True)]
        fields.append(Field("_t", TIMESTAMP, False))
        for letter, schema, side in (("l", left, Side.LEFT), ("r", right, Side.RIGHT)):
            fields += [Field(f"_{letter}{i}", f.type) for i, f in enumerate(self.plain_columns(schema, side))]
        return Schema(tuple(fields))

    def output_source(self, left: Schema, right: Schema) -> tuple[str, str, str]:
        """Arguments of an output record: of the pair ``x`` (left) and ``y`` (right), of ``x`` alone, of ``y`` alone."""
        keys = {key: f"x.{name}" for name, key in zip(self.tagged_keys, self.keys, strict=True)}
        lefts = {f.name: f"x._l{i}" for i, f in enumerate(self.plain_columns(left, Side.LEFT))}
        rights = {f.name: f"y._r{i}" for i, f in enumerate(self.plain_columns(right, Side.RIGHT))}
        one_time = self.left_time == self.right_time
        later = "x._t if x._t > y._t else y._t" if one_time else "x._t"
        added = [rights.get(field.name, "y._t") for field in self._added(right)]
        pair = [keys.get(name) or lefts.get(name, later) for name in left.names]
        alone = [keys.get(name) or lefts.get(name, "x._t") for name in left.names]
        others = {key: source.replace("x.", "y.") for key, source in keys.items()}
        if one_time:
            others[self.right_time] = "y._t"
        alone_right = [others.get(name, "None") for name in left.names]
        return ", ".join(pair + added), ", ".join(alone + ["None"] * len(added)), ", ".join(alone_right + added)

    def describe(self) -> str:
        lateness = format_us(self.lateness_us) if self.lateness_us else "0"
        times = f"{self.left_time} {self.bounds} {self.right_time}"
        which = ", each once" if self.match is Pairing.ONCE else ", the latest" if self.as_of else ""
        return f"{self.how.value} on {', '.join(self.keys)}; {times}, lateness {lateness}{which}"


def join(
    on: str | Sequence[str],
    *sides: Schema,
    within: str | float | Column,
    time: str | None = None,
    left_time: str | None = None,
    right_time: str | None = None,
    lateness: str | float = 0,
    how: str = "inner",
    match: str = "all",
) -> Join:
    """Read the options of `Stream.join`, which has the words on them."""
    keys = _keys(on)
    pairing = OneOf(Pairing).read("match", match)
    if isinstance(within, Column) or (isinstance(within, str) and is_condition(within)):
        timed = _condition(within, sides, (time, left_time, right_time))
        if pairing is Pairing.ONCE and not timed.bounds.is_even:
            raise InvalidOption(option="within", given=str(within), allowed="a duration, where match is 'once'")
    else:
        bounds = Bounds.within(parse_us(within, option="within", allow_zero=True))
        timed = Timed(*_times(time, left_time, right_time), bounds)
    lateness_us = parse_us(lateness, option="lateness", allow_zero=True)
    return Join(keys, timed.left_time, timed.right_time, timed.bounds, lateness_us, JoinHow.read(how), pairing)


def join_asof(
    on: str | Sequence[str],
    *,
    tolerance: str | float | None = None,
    time: str | None = None,
    left_time: str | None = None,
    right_time: str | None = None,
    lateness: str | float = 0,
    how: str = "left",
) -> Join:
    """Read the options of `Stream.join_asof`, which has the words on them."""
    keys = _keys(on)
    kind = JoinHow.read(how)
    if kind.keeps_right:
        raise InvalidOption(option="how", given=how, allowed="left, inner: the other side is a table")
    low_us = UNBOUNDED_US if tolerance is None else -parse_us(tolerance, option="tolerance", allow_zero=True)
    times = _times(time, left_time, right_time)
    lateness_us = parse_us(lateness, option="lateness", allow_zero=True)
    return Join(keys, *times, Bounds(low_us, 0), lateness_us, kind, as_of=True)


def _keys(on: str | Sequence[str]) -> tuple[str, ...]:
    if not isinstance(on, str | list | tuple):
        raise InvalidOption(
            option="on", given=on, allowed="the name of a column that both sides have, or a list of them"
        )
    return (on,) if isinstance(on, str) else tuple(on)


def _times(time: str | None, left_time: str | None, right_time: str | None) -> tuple[str, str]:
    """The time columns of both sides."""
    for option, column in (("left_time", left_time), ("right_time", right_time)):
        if (time is None) == (column is None):
            allowed = f"either time or {option}: the timestamp column"
            raise InvalidOption(option=option, given=column, allowed=allowed)
    return left_time or time or "", right_time or time or ""


def is_condition(given: object) -> bool:
    """Whether a bound is a condition and not a duration, right or wrong: it compares something."""
    if isinstance(given, str):
        return any(sign in given.upper() for sign in ("<", ">", "=", " BETWEEN "))
    return isinstance(given, Column)


def _condition(within: str | Column, sides: Sequence[Schema], named: tuple[str | None, ...]) -> Timed:
    """Read a condition, which names the time columns itself."""
    if any(each is not None for each in named):
        given = next(each for each in named if each is not None)
        raise InvalidOption(option="time", given=given, allowed="left out, where within is a condition on the times")
    condition = expr(within) if isinstance(within, str) else within
    left, right = sides
    return read_condition(condition, left, right, str(within))
