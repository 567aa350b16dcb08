"""The join of two streams by key and event time as users see it, and the half of it before the shuffle.

Both sides are brought to one schema (`Tag`, stateless, one for each side) and meet, dealt out by key, in `Match`,
which owns the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.durations import format_us, parse_us
from penstock.errors import BadRecord, InvalidOption, SchemaError, TypeMismatch, nearest
from penstock.operators.base import BatchForm, BatchResult, Operation, Operator
from penstock.operators.errors import Errors
from penstock.operators.keys import check_keys
from penstock.operators.lookup import How
from penstock.operators.loop import compile_loop
from penstock.operators.windows import check_time
from penstock.types import BOOLEAN, TIMESTAMP, Field, Schema

_LOW = -(1 << 63)


class Side(Enum):
    """Where a record of a join comes from."""

    LEFT = "left"
    RIGHT = "right"


class Pairing(Enum):
    """How many pairs of a join a record may be in: all that there are, or one, which uses it up."""

    ALL = "all"
    ONCE = "once"


@dataclass(frozen=True)
class Join:
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
    kind: ClassVar[str] = "join"

    def bind_sides(self, left: Schema, right: Schema) -> Schema:
        """Check the join against both of its inputs and return its output schema."""
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
        """The arguments in a few words."""
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
    try:
        kind = How(how)
    except ValueError:
        raise InvalidOption(option="how", given=how, allowed="inner, left") from None
    try:
        pairing = Pairing(match)
    except ValueError:
        hint = nearest(match, ["all", "once"]) if isinstance(match, str) else ""
        raise InvalidOption(option="match", given=match, allowed="all, once", hint=hint) from None
    return Join(
        keys,
        left_time or time or "",
        right_time or time or "",
        parse_us(within, option="within", allow_zero=True),
        parse_us(lateness, option="lateness", allow_zero=True),
        kind,
        pairing,
    )


def _no_time(column: str) -> None:
    raise BadRecord(f"the join's time column '{column}' is null.")


@dataclass(frozen=True)
class Tag(Operation):
    """Before the shuffle: brings one side to the schema of both, and leaves out what can match nothing."""

    of: Join
    left: Schema
    right: Schema
    side: Side
    kind = "tag"

    @property
    def _time(self) -> str:
        return self.of.left_time if self.side is Side.LEFT else self.of.right_time

    @property
    def _needed(self) -> list[str]:
        """Key columns whose nulls are left out here: a null equals nothing, but an outer side is shown anyway."""
        if self.side is Side.LEFT and self.of.how is How.LEFT:
            return []
        schema = self.left if self.side is Side.LEFT else self.right
        return [key for key in self.of.keys if schema.field(key).nullable]

    def bind(self, schema: Schema) -> Schema:
        del schema
        return self.of.tagged(self.left, self.right)

    def build(self, schema: Schema, errors: Errors) -> Operator:
        output = self.bind(schema)
        own = [f"r.{field.name}" for field in self.of.plain_columns(schema, self.side)]
        nulls = ["None"] * (len(output) - 2 - len(self.of.keys) - len(own))
        right = self.side is Side.RIGHT
        values = [str(right), *(f"r.{key}" for key in self.of.keys), "t", *(nulls + own if right else own + nulls)]
        body = [f"t = r.{self._time}", f"if t is None: no_time({self._time!r})", "if t > top: top = t"]
        body += [f"if r.{key} is None: continue" for key in self._needed]
        body.append(f"append(U({', '.join(values)}))")
        names = {"LOW": _LOW, "U": output.record_type, "no_time": _no_time}
        event_time = "None if top == LOW else top"
        process = compile_loop(errors.operation, body, names, errors, before=["top = LOW"], event_time=event_time)
        vectorised = self._vectorised(schema, output)
        return Operator(process, schema=schema, output=output, vectorised=vectorised, tells_event_time=True)

    def _vectorised(self, schema: Schema, output: Schema) -> BatchForm:
        time, needed, keys = self._time, self._needed, self.of.keys
        own = [field.name for field in self.of.plain_columns(schema, self.side)]
        right = self.side is Side.RIGHT
        others = output.fields[2 + len(keys) :]
        others = others[: len(others) - len(own)] if right else others[len(own) :]

        def vectorised(batch: pa.RecordBatch) -> BatchResult:
            event_time_us_max: int | None = None
            if batch.column(time).null_count:
                raise BadRecord("a join's time is null.")
            if batch.num_rows:
                event_time_us_max = pc.max(batch.column(time).cast(pa.int64())).as_py()
            for key in needed:
                if batch.column(key).null_count:
                    batch = batch.filter(pc.is_valid(batch.column(key)))
            count = batch.num_rows
            mine = [batch.column(name) for name in own]
            nulls = [pa.nulls(count, field.type.arrow) for field in others]
            tags = [pa.array(np.full(count, right)), *(batch.column(key) for key in keys), batch.column(time)]
            columns = [*tags, *(nulls + mine if right else mine + nulls)]
            made = pa.RecordBatch.from_arrays(columns, schema=output.arrow)
            return BatchResult(made, event_time_us_max=event_time_us_max)

        return vectorised

    def describe(self) -> str:
        return f"{self.side.value} side by {', '.join(self.of.keys)}, time {self._time}"
