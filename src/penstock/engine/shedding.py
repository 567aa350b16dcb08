"""Records that a source unit drops because too many wait, or because they have waited for too long (PS-5).

Off unless the job says ``event_timeout`` or ``queue_bound``. What is dropped goes to the dead letters, where an
operation of the unit has them, and is counted at the source by its cause in any case. It is dropped once: the letters
take a place in the line, and the counts are in the snapshot, like those of every other record. Which ones are dropped
depends on the clock, so after a recovery it may be others; each record is either handled or dropped, never both and
never neither.

Where slots read the source, what slots have no room for waits unread. Of that the worker reads, and drops, what is more
than the bound; how long records have waited is not known before they are read, so none of them time out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.inputs.base import Taken
from penstock.engine.inputs.dropped import Cause
from penstock.engine.line import Item
from penstock.engine.passed import Passed
from penstock.operators import DEAD_LETTER_SCHEMA, DEAD_LETTERS, ErrorPolicy
from penstock.operators.errors import placed, record_text
from penstock.pipeline.plan import Plan, UnitSpec
from penstock.pipeline.ranges import Range
from penstock.types import Record

if TYPE_CHECKING:
    from penstock.engine.unit import Unit


PORTION_RECORDS_MAX = 4_096
"""So many are read in a turn to be dropped, where slots read the others."""


class Shedding:
    """Decides which records of a source unit are dropped."""

    def __init__(self, spec: UnitSpec, timeout_us: int, queue_bound: int) -> None:
        self._spec = spec
        self._timeout_us = timeout_us
        self._queue_bound = queue_bound
        policies = [op.on_error for op in spec.ops]
        self._letters_at = policies.index(ErrorPolicy.DEAD_LETTER) if ErrorPolicy.DEAD_LETTER in policies else None

    @staticmethod
    def of(spec: UnitSpec, plan: Plan) -> Shedding | None:
        """What a unit drops; None: nothing."""
        options = plan.options
        if spec.source is None or not (options.event_timeout_us or options.queue_bound):
            return None
        return Shedding(spec, options.event_timeout_us, options.queue_bound)

    def shed(self, unit: Unit, taken: Taken, now_us: int) -> bool:
        """Drop a portion that a source has given, if it must be; say whether it was."""
        waiting = unit.input.waiting_records(now_us) if self._queue_bound else 0
        cause = self._cause(taken, waiting, now_us)
        if cause is None or not taken.rows:
            return False
        self._drop(unit, taken, cause, waiting, now_us)
        return True

    def shed_unread(self, unit: Unit, now_us: int) -> bool:
        """Read and drop some of what slots have no room to read, if too much waits; say whether it was."""
        waiting = unit.input.waiting_records(now_us) if self._queue_bound else 0
        if waiting <= self._queue_bound:
            return False
        records_max = min(waiting - self._queue_bound, PORTION_RECORDS_MAX)
        taken = unit.input.take(now_us, records_max, None, open_blocks=False)
        if taken is None or not taken.rows:
            return False
        self._drop(unit, taken, Cause.BOUND, waiting, now_us)
        return True

    def _drop(self, unit: Unit, taken: Taken, cause: Cause, waiting: int, now_us: int) -> None:
        unit.input.count_dropped(cause, len(taken.rows), dead=self._letters_at is not None)
        sides = {}
        if self._letters_at is not None:
            why = f"{cause.value}: {self._told(taken, cause, waiting, now_us)}"
            sides = {(self._letters_at, DEAD_LETTERS): self._letters(taken, why)}
        if unit.way.is_local:
            unit.way.take(Taken([], taken.due_us, taken.origin), Passed([], sides), now_us)
        else:
            behind = Range(len(self._spec.ops), len(self._spec.ops) - 1)
            unit.line.append(Item(behind, 0, taken.due_us, now_us, now_us, taken.origin, None, sides))

    def _cause(self, taken: Taken, waiting: int, now_us: int) -> Cause | None:
        if self._timeout_us and taken.due_us and now_us - taken.due_us > self._timeout_us:
            return Cause.TIMEOUT
        return Cause.BOUND if self._queue_bound and waiting > self._queue_bound else None

    def _told(self, taken: Taken, cause: Cause, waiting: int, now_us: int) -> str:
        if cause is Cause.TIMEOUT:
            waited_s = (now_us - taken.due_us) / 1e6
            return f"waited {waited_s:.3f} s, longer than event_timeout={self._timeout_us / 1e6:g} s"
        return f"{waiting:,} records waited, more than queue_bound={self._queue_bound:,}"

    def _letters(self, taken: Taken, why: str) -> list[Record]:
        name, place = self._spec.name, taken.place
        assert place is not None
        assert self._spec.source is not None
        spots = [spot for run in place.runs for spot in self._spec.source.spots(run, list(range(run.count)))]
        bare = [DEAD_LETTER_SCHEMA.record_type(name, why, "", record_text(row), *[None] * 5) for row in taken.rows]
        return [
            placed(letter, name, place.partition, spot.offset, spot.file, spot.line)
            for letter, spot in zip(bare, spots, strict=True)
        ]


def shed_unread(shedding: Shedding | None, unit: Unit, now_us: int) -> bool:
    """Drop what waits unread beyond the bound, where a unit drops anything."""
    return shedding is not None and shedding.shed_unread(unit, now_us)
