"""Keyed aggregation as users see it; `Combine` runs before the shuffle, `Reduce` behind it, where the state is.

What both halves have in common is here: the schema between them, and the source of how values go into accumulators.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import msgspec

from penstock.errors import InvalidOption
from penstock.operators.base import Expansion, Lateness, Operation
from penstock.operators.keyed.aggregates import Aggregate, Custom
from penstock.operators.keyed.combine import Combine
from penstock.operators.keyed.counting import CountWindow
from penstock.operators.keyed.expiring import TimeToLive
from penstock.operators.keyed.reduce import LATE, Reduce
from penstock.operators.keyed.windows import Emit, Session, Sliding, Window, check_time
from penstock.operators.keys import check_keys
from penstock.types import BIGINT, TIMESTAMP, Field, Record, Schema


@dataclass(frozen=True)
class Aggregation(Operation):
    """A keyed aggregation, in windows or running; the planner runs its two halves."""

    keys: tuple[str, ...]
    aggregates: tuple[tuple[str, Aggregate], ...]
    window: Window | None = None
    running: Emit = Emit.CHANGE
    """What a running aggregate sends on."""
    ttl: TimeToLive | None = None
    """How long a running aggregate keeps a key of which nothing comes."""
    counts: CountWindow | None = None
    """Windows by number of records, instead of ``window``."""
    kind = "aggregate"
    stateful = True

    def bind(self, schema: Schema) -> Schema:
        if not self.aggregates:
            raise InvalidOption(option="aggregates", given={}, allowed="at least one, such as n=ps.agg.count()")
        if self.keys:
            check_keys(schema, self.keys)
        if self.window:
            self.window.check(schema)
        if self.counts:
            self.counts.check(schema)
        if self.ttl:
            check_time(schema, self.ttl.on, "the time column")
        for _, aggregate in self.aggregates:
            aggregate.check(schema)
        return Schema(
            (
                *(schema.field(key) for key in self.keys),
                *(self.window.fields if self.window else ()),
                *(self.counts.fields if self.counts else ()),
                *(Field(name, aggregate.output(schema)) for name, aggregate in self.aggregates),
            )
        )

    @property
    def readers_of_time(self) -> tuple[tuple[str, Lateness], ...]:
        if self.ttl:
            return ((self.ttl.on, Lateness()),)
        if self.counts and self.counts.on is not None:
            return ((self.counts.on, Lateness(delay_us=self.counts.lateness_us)),)
        return ((self.window.on, self.window.lateness),) if self.window else ()

    @property
    def delays_us(self) -> dict[str, int]:
        return self.window.delays_us if self.window else {}

    @property
    def emit(self) -> Emit:
        """When results are sent on."""
        if self.counts:
            return Emit.CLOSE
        return self.window.emit if self.window else self.running

    @property
    def needed_time(self) -> str | None:
        """A time column, other than the window's, that must not be null."""
        return self.ttl.on if self.ttl else self.counts.on if self.counts else None

    def side_ports(self, schema: Schema) -> dict[str, Schema]:
        return {LATE: schema} if self.window else {}

    @property
    def required_ports(self) -> tuple[str, ...]:
        return ()  # its late records may be all that is wanted of it

    def partials(self, schema: Schema) -> Schema:
        """Schema of what travels between the halves; generated names, so that no user's column can clash."""
        fields = [Field(f"_k{i}", schema.field(key).type) for i, key in enumerate(self.keys)]
        if self.window:
            fields.append(Field("_w", TIMESTAMP, False))
        fields.append(Field("_n", BIGINT, False))
        for i, (_, aggregate) in enumerate(self.aggregates):
            fields += [Field(f"_p{i}_{j}", slot) for j, slot in enumerate(aggregate.slots(schema))]
        return Schema(tuple(fields))

    def partial_keys(self) -> tuple[str, ...]:
        """Names of the key columns in the partials."""
        return tuple(f"_k{i}" for i in range(len(self.keys)))

    @property
    def needs_records(self) -> bool:
        """Whether the records themselves must travel.

        A session is known where all of a key's records meet, and so are the results for every record, how many there
        have been, and whether one comes too long after the one before it. Of sliding windows, panes of a block would
        tell only the order within each.
        """
        if isinstance(self.window, Session) or self.emit is Emit.EVERY or self.ttl or self.counts:
            return True
        return isinstance(self.window, Sliding) and any(aggregate.ordered for _, aggregate in self.aggregates)

    def expand(self, schemas: Sequence[Schema], read: Collection[str]) -> Expansion:
        whole = self.needs_records or LATE in read
        combine, reduce = Combine(self, whole), Reduce(self, schemas[0], whole)
        between = self.keys if whole else self.partial_keys()
        return Expansion((("combine", combine),), reduce, between, self.keys)

    def describe(self) -> str:
        what = ", ".join(f"{name}={aggregate}" for name, aggregate in self.aggregates)
        by = f" by {', '.join(self.keys)}" if self.keys else ""
        return "; ".join([f"{what}{by}", *(str(each) for each in (self.window, self.counts, self.ttl) if each)])

    def slot_places(self, first: int, name: str = "a") -> list[tuple[str, ...]]:
        """Places in an accumulator list that each aggregate's slots take, counted from ``first``."""
        return self._places(lambda slot: f"{name}[{first + slot}]")

    @property
    def kept_places(self) -> list[tuple[str, ...]]:
        """Places of each aggregate's slots in an accumulator that is kept."""
        return self._places(lambda slot: f"a.s{slot}")

    def _places(self, place: Callable[[int], str]) -> list[tuple[str, ...]]:
        slots = count()
        return [tuple(place(next(slots)) for _ in aggregate.of_record()) for _, aggregate in self.aggregates]

    def accumulator(self, *more: str) -> type[msgspec.Struct]:
        """What is kept of a key: its slots, and ``more``. The collector does not track it, and so makes no pause."""
        names = [f"s{i}" for i in range(sum(map(len, self.kept_places)))]
        return msgspec.defstruct("Accumulator", [*names, *more], array_like=True, gc=False)

    @property
    def row_source(self) -> str:
        """Source of the result of a key ``k``, a window's start ``w`` and an accumulator ``a``; see `row_names`."""
        parts = []
        if self.keys:
            parts.append("k" if len(self.keys) == 1 else "*k")
        if self.window:
            parts.append(self.window.shown)
        parts += [each.result(slots) for (_, each), slots in zip(self.aggregates, self.kept_places, strict=True)]
        made = f"T({', '.join(parts)})"
        return f"check({made})" if any(isinstance(aggregate, Custom) for _, aggregate in self.aggregates) else made

    def row_names(self, output: Schema) -> dict[str, Any]:
        """What `row_source` refers to."""
        return {**self.names, "T": output.record_type, "check": output.check}

    def compile_row(self, output: Schema, operation: str) -> Callable[[Any, int | None, Any], Record]:
        """Make a function from a key, a window's start and an accumulator to the result."""
        scope = self.row_names(output)
        exec(compile(f"def row(k, w, a): return {self.row_source}", f"<penstock {operation}>", "exec"), scope)
        row: Callable[[Any, int | None, Any], Record] = scope["row"]
        return row

    def of_record(self) -> list[tuple[str, ...]]:
        """Expressions of the partial of a whole record."""
        return [aggregate.of_record() for _, aggregate in self.aggregates]

    def of_partial(self) -> list[tuple[str, ...]]:
        """Expressions of a partial that came over the shuffle."""
        return [
            tuple(aggregate.unpack(f"r._p{i}_{j}") for j in range(len(aggregate.of_record())))
            for i, (_, aggregate) in enumerate(self.aggregates)
        ]

    def accumulate(self, find: str, store: str, values: list[tuple[str, ...]], *, kept: bool = False) -> list[str]:
        """Statements by which the group's accumulator absorbs ``values``.

        One that is ``kept`` is an `accumulator` in the space ``s``, which notes that it is new. Otherwise it is a list,
        in whose first place records are counted.
        """
        body, names = [], []
        for i, expressions in enumerate(values):
            names.append(tuple(f"x{i}_{j}" for j in range(len(expressions))))
            body += [f"x{i}_{j} = {e}" for j, e in enumerate(expressions)]
        body += [f"a = {find}", "if a is None:"]
        flat = ", ".join(name for group in names for name in group)
        body += (
            [f"    {store} = a = A({flat})", "    s.fresh.append(k)"] if kept else [f"    {store} = a = [1, {flat}]"]
        )
        body.append("else:")
        places = self.kept_places if kept else self.slot_places(1)
        absorbing = list(zip((each for _, each in self.aggregates), places, names, strict=True))
        body += [f"    {line}" for each, slots, other in absorbing for line in each.before_absorb(slots, other)]
        if not kept:
            body.append("    a[0] += 1")
        body += [f"    {line}" for each, slots, other in absorbing for line in each.absorb(slots, other)]
        return body

    @property
    def names(self) -> dict[str, object]:
        """What the aggregates' expressions refer to."""
        return {k: v for _, aggregate in self.aggregates for k, v in aggregate.names.items()}
