"""Records that a source unit drops because too many wait, or because they have waited for too long (PS-5).

Off unless the job says ``event_timeout`` or ``queue_bound``. What is dropped goes to the dead letters, where an
operation of the unit has them, and is counted at the source in any case: as a dead letter, or as skipped. It is dropped
once: the letters take a place in the line, and the counts are in the snapshot, like those of every other record. Which
ones are dropped depends on the clock, so after a recovery it may be others; each record is either handled or dropped,
never both and never neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.inputs.base import Taken
from penstock.engine.inputs.readers import Readers
from penstock.engine.line import Item, Range
from penstock.engine.passed import Passed
from penstock.engine.ways.here import Here
from penstock.operators import DEAD_LETTER_SCHEMA, DEAD_LETTERS, ErrorPolicy
from penstock.operators.errors import placed, record_text
from penstock.pipeline.plan import Plan, UnitSpec
from penstock.types import Record

if TYPE_CHECKING:
    from penstock.engine.unit import Unit


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
        source = unit.input
        why = self._why(taken, source.waiting_records(now_us) if self._queue_bound else 0, now_us)
        if why is None or not taken.rows:
            return False
        assert isinstance(source, Readers)
        source.count_dropped(len(taken.rows), dead=self._letters_at is not None)
        sides = {}
        if self._letters_at is not None:
            sides = {(self._letters_at, DEAD_LETTERS): self._letters(taken, why)}
        if isinstance(unit.way, Here):
            unit.way.take(Taken([], taken.due_us, taken.origin), Passed([], sides), now_us)
        else:
            behind = Range(len(self._spec.ops), len(self._spec.ops) - 1)
            unit.line.append(Item(behind, 0, taken.due_us, now_us, now_us, taken.origin, None, sides))
        return True

    def _why(self, taken: Taken, waiting: int, now_us: int) -> str | None:
        waited_us = now_us - taken.due_us
        if self._timeout_us and taken.due_us and waited_us > self._timeout_us:
            return (
                f"EventTimeout: waited {waited_us / 1e6:.3f} s, longer than event_timeout={self._timeout_us / 1e6:g} s"
            )
        if self._queue_bound and waiting > self._queue_bound:
            return f"QueueFull: {waiting:,} records waited behind it, more than queue_bound={self._queue_bound:,}"
        return None

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
