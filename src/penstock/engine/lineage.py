"""Which record of a source a bad one was made of; chains and slices ask when they have met one, and only then.

The operations before the bad record are run once more, record by record, without any consequence. They keep nothing, so
the same records come out of them; where they do not, because a user's function is not a function of its record alone,
nothing is named rather than something wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from penstock.engine.stage import Stage
from penstock.errors import OperationFailed, PenstockError
from penstock.operators.errors import Failure, Failures, placed
from penstock.pipeline.plan import UnitSpec
from penstock.types import Record

Place = tuple[int, int]
"""Where some consecutive records of a source begin: partition and offset."""
Reread = Callable[[], Iterable[Record]]
"""Returns the source records from a place on."""
_POLL_RECORDS = 1_024
_FAR_FUTURE_US = 1 << 60

_encode = msgspec.msgpack.Encoder().encode


class Lineage:
    """Names the source records of the bad ones in a unit that reads a source.

    Parameters
    ----------
    first : int
        Index in the unit's chain of the first of ``stages``; those before it are built when they are needed.
    """

    def __init__(self, unit: UnitSpec, start_us: int, stages: list[Stage], first: int = 0) -> None:
        self._unit = unit
        self._start_us = start_us
        self._stages = stages
        self._first = first
        self._lead: list[Stage] | None = None

    def letters(self, at: int, failures: Failures, origin: Place, rows: Reread) -> list[Record]:
        """The dead letters of the stage at ``at``, with the source records that they were made of."""
        offsets = self._trace(at, failures.dead, origin[1], rows)
        return [
            letter if offset is None else placed(letter, self._unit.name, origin[0], offset)
            for letter, offset in zip(failures.letters, offsets, strict=True)
        ]

    def place(self, error: PenstockError, at: int, origin: Place, rows: Reread) -> None:
        """Write into the error of the stage at ``at`` which source record it is about."""
        if isinstance(error, OperationFailed) and error.at_index is not None:
            (offset,) = self._trace(at, [Failure(error.at_index, error.on_record)], origin[1], rows)
            if offset is not None:
                error.place(self._unit.name, origin[0], offset)

    def read(self, origin: Place) -> Iterator[Record]:
        """Read the source once more from a place on."""
        assert self._unit.source is not None
        reader = self._unit.source.reader(origin[0], self._unit.partitions, self._start_us)
        try:
            reader.seek(origin[1])
            while (polled := reader.poll(_FAR_FUTURE_US, _POLL_RECORDS)) is not None:
                yield from polled.rows
        finally:
            reader.close()

    def _trace(self, at: int, failures: Sequence[Failure], offset: int, rows: Reread) -> list[int | None]:
        if self._lead is None:
            self._lead = [Stage.of(spec) for spec in self._unit.ops[: self._first]]
        before = [*self._lead, *self._stages[:at]]
        if not before:
            return [offset + failure.at for failure in failures]
        found = list(_traced(before, failures, offset, rows()))
        return found + [None] * (len(failures) - len(found))


def _traced(
    before: Sequence[Stage], failures: Sequence[Failure], offset: int, rows: Iterable[Record]
) -> Iterator[int | None]:
    """Yield the offset of each failure, in rising order, until one is not what it was."""
    waiting = iter(failures)
    wanted: Failure | None = next(waiting)
    made = 0
    for row in rows:
        results = [row]
        try:
            for stage in before:
                results = stage.process(results).rows
        except OperationFailed:
            return  # it did not raise then
        while wanted is not None and wanted.at < made + len(results):
            if _encode(results[wanted.at - made]) != _encode(wanted.record):
                return
            yield offset
            wanted = next(waiting, None)
        if wanted is None:
            return
        made += len(results)
        offset += 1
