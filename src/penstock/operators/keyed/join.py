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
from penstock.operators.base import Expansion, Lateness, Operation
from penstock.operators.keyed.match import Match, Pairing, bucket_us
from penstock.operators.keyed.tag import Side, Tag
from penstock.operators.keyed.windows import check_time
from penstock.operators.keys import check_keys
from penstock.operators.stateless.lookup import How
from penstock.types import BOOLEAN, TIMESTAMP, Field, Schema


@dataclass(frozen=True)
class Join(Operation):
    """Pairs of records with equal keys whose times are at most ``within_us`` apart.

    Between its parts a record has generated names, so that no user's column can clash: ``_side`` (true on the right),
    the key ``_k…``, the time ``_t``, and the other columns ``_l…`` of the left and ``_r…`` of the right side.
    """

    keys: tuple[str, ...]
    left_time: str
    right_time: str
    within_us: int
    lateness_us: int = 0
    how: How = How.INNER
    match: Pairing = Pairing.ALL
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
        return Schema((*left.fields, *added))

    @property
    def readers_of_time(self) -> tuple[tuple[str, Lateness], ...]:
        lateness = Lateness(delay_us=self.lateness_us)
        return (self.left_time, lateness), (self.right_time, lateness)

    @property
    def delays_us(self) -> dict[str, int]:
        # A pair is made when the second of its records is there, which is not late; the first is within reach of it.
        first_us = self.lateness_us + self.within_us
        if self.how is How.LEFT:
            # One without a partner is let go by buckets of time.
            first_us += bucket_us(self.within_us)
        if self.left_time == self.right_time:
            return {self.left_time: self.lateness_us if self.how is How.INNER else first_us}
        return {self.left_time: first_us, self.right_time: first_us}

    def expand(self, schemas: Sequence[Schema], read: Collection[str]) -> Expansion:
        del read
        left, right = schemas
        tags = tuple((side.value, Tag(self, left, right, side)) for side in Side)
        return Expansion(tags, Match(self, left, right), self.tagged_keys, self.keys)

    def _added(self, right: Schema) -> list[Field]:
        """Columns that the right side adds."""
        outer = self.how is How.LEFT
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

    def output_source(self, left: Schema, right: Schema) -> tuple[str, str]:
        """Arguments of an output record: of the pair ``x`` (left) and ``y`` (right), and of ``x`` without a partner."""
        keys = {key: f"x.{name}" for name, key in zip(self.tagged_keys, self.keys, strict=True)}
        lefts = {f.name: f"x._l{i}" for i, f in enumerate(self.plain_columns(left, Side.LEFT))}
        rights = {f.name: f"y._r{i}" for i, f in enumerate(self.plain_columns(right, Side.RIGHT))}
        later = "x._t if x._t > y._t else y._t" if self.left_time == self.right_time else "x._t"
        added = [rights.get(field.name, "y._t") for field in self._added(right)]
        pair = [keys.get(name) or lefts.get(name, later) for name in left.names]
        alone = [keys.get(name) or lefts.get(name, "x._t") for name in left.names]
        return ", ".join(pair + added), ", ".join(alone + ["None"] * len(added))

    def describe(self) -> str:
        lateness = format_us(self.lateness_us) if self.lateness_us else "0"
        within = format_us(self.within_us) if self.within_us else "0"
        times = f"{self.left_time} within {within} of {self.right_time}"
        once = ", each once" if self.match is Pairing.ONCE else ""
        return f"{self.how.value} on {', '.join(self.keys)}; {times}, lateness {lateness}{once}"


def join(
    on: str | Sequence[str],
    *,
    within: str | float,
    time: str | None = None,
    left_time: str | None = None,
    right_time: str | None = None,
    lateness: str | float = 0,
    how: str = "inner",
    match: str = "all",
) -> Join:
    """Read the options of `Stream.join`, which has the words on them."""
    if not isinstance(on, str | list | tuple):
        raise InvalidOption(
            option="on", given=on, allowed="the name of a column that both sides have, or a list of them"
        )
    keys = (on,) if isinstance(on, str) else tuple(on)
    sides = {"left_time": left_time, "right_time": right_time}
    for option, column in sides.items():
        if (time is None) == (column is None):
            allowed = f"either time or {option}: the timestamp column"
            raise InvalidOption(option=option, given=column, allowed=allowed)
    return Join(
        keys,
        left_time or time or "",
        right_time or time or "",
        parse_us(within, option="within", allow_zero=True),
        parse_us(lateness, option="lateness", allow_zero=True),
        OneOf(How).read("how", how),
        OneOf(Pairing).read("match", match),
    )
