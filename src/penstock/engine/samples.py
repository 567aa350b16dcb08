"""Samples of what comes to a unit, for slots that measure both forms of its operations on them.

A sample is run several times and its results are thrown away. So only operations that may be repeated are in it
(`UnitSpec.repeatable`): no function of a user's that is not declared pure, and nothing behind one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.dataset import Scale, cut_columns
from penstock.engine.ways.pool import SlotPool
from penstock.pipeline.ranges import Range
from penstock.protocol import messages as m
from penstock.protocol import slots as s
from penstock.types import Record

if TYPE_CHECKING:
    from penstock.engine.unit import Unit

TAP_RECORDS = 512
"""Records of a sample that has to be kept for it."""
TAP_BYTES = 4 << 20
"""About what they may weigh."""


@dataclass(slots=True)
class Tap:
    """Keeps the next records that come to a unit."""

    wanted: int
    rows: list[Record] = field(default_factory=list)
    scale: Scale = field(default_factory=Scale)

    def add(self, rows: list[Record]) -> None:
        """Keep some of these, unless there are enough."""
        if rows and len(self.rows) < self.wanted:
            self.wanted = self.scale.fit(self.wanted, rows, TAP_BYTES)
            self.rows += rows[: max(0, self.wanted - len(self.rows))]


def calibrate(unit: Unit, pool: SlotPool, records: int) -> None:
    """Send a sample of what comes to the unit to a slot; where it cannot be read again, keep some of it first."""
    repeatable = unit.spec.repeatable
    if not repeatable:
        return
    worker, incarnation = pool.owner
    chosen = Range(0, repeatable.stop - 1)
    do = s.Do(
        slot=0,
        worker=worker,
        incarnation=incarnation,
        item=0,
        attempt=0,
        unit=unit.spec.id,
        instance=unit.instance,
        range=chosen,
        partition=0,
        runs=[],
        count=records,
        due_us=0,
        sample=True,
        using=unit.exchanges.using(chosen),
    )
    if repeatable.start < 0:
        place = unit.input.recent(records)
        if place is not None:
            do.range = Range(-1, chosen.last)
            do.partition, do.runs, do.count = place.partition, place.runs, place.count
            pool.sample(do, None)
        return
    if unit.tap is None:
        unit.tap = Tap(min(records, TAP_RECORDS))
    elif len(unit.tap.rows) >= unit.tap.wanted:
        sample, unit.tap = unit.tap.rows[: unit.tap.wanted], None
        # No more than fits into one message, whatever the records weigh.
        do.count, packed = next(cut_columns(unit.spec.schema.to_batch(sample), 2 * TAP_BYTES))
        if len(packed) <= m.MESSAGE_BYTES_MAX:
            pool.sample(do, packed)
