"""A join outside any unit: both halves of it, the snapshots that it has taken, and the rows that have come out."""

from __future__ import annotations

from typing import Any

from states import restore, snapshot

from penstock.operators import Errors, Join, Match, Side, StatefulOperator, Tag
from penstock.types import Schema, record_dict

Row = tuple[Any, ...]


class Joining:
    """Rows of either side go in, in any order; results are kept in ``out``."""

    def __init__(self, of: Join, left: Schema, right: Schema) -> None:
        self.of = of
        self.schemas = {Side.LEFT: left, Side.RIGHT: right}
        self.tags = {side: Tag(of, left, right, side).build(self.schemas[side], Errors("join")) for side in Side}
        self.match: Any = self._new()
        self.out: list[Row] = []
        self.late = 0
        self._chain = [snapshot(self.match, True)]

    def _new(self) -> StatefulOperator:
        left, right = self.schemas.values()
        match = Match(self.of, left, right).build(self.of.tagged(left, right), Errors("join"))
        assert isinstance(match, StatefulOperator)
        return match

    def add(self, side: Side, rows: list[Row]) -> None:
        records = [self.schemas[side].record_type(*row) for row in rows]
        made = self.match.process(self.tags[side].process(records).rows)
        self.late += made.late
        self._keep(made.rows)

    def advance(self, event_time_us: int) -> None:
        self._keep(self.match.advance(event_time_us).rows)

    def finish(self) -> list[Row]:
        self._keep(self.match.finish().rows)
        assert self.match.held_records == 0
        return self.out

    def _keep(self, rows: list[Any]) -> None:
        self.out += [tuple(record_dict(row).values()) for row in rows]

    def snapshot(self, full: bool) -> None:
        packed = snapshot(self.match, full)
        self._chain = [packed] if full else [*self._chain, packed]

    def restart(self, full: bool) -> None:
        """Store everything, and go on with what was stored, as after a crash right behind it."""
        self.snapshot(full)
        again: Any = self._new()
        restore(again, self._chain)
        assert again.held_records == self.match.held_records
        self.match = again
