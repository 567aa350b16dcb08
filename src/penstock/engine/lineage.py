"""Which record of a source a bad one was made of; chains and slices ask when they have met one, and only then.

The operations before the bad record are run once more, record by record, without any consequence. They keep nothing, so
the same records come out of them; where they do not, because a user's function is not a function of its record alone,
nothing is named rather than something wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile

import msgspec
import pyarrow as pa

from penstock.connectors.base import Run, SourceColumns, SourceReader, Spot
from penstock.engine.stage import Stage
from penstock.errors import OperationFailed, PenstockError
from penstock.operators.base import MAIN
from penstock.operators.errors import Failure, Failures, placed
from penstock.operators.members import traced
from penstock.pipeline.plan import EdgeSpec, Mode, Plan, UnitSpec
from penstock.types import Record

Reread = Callable[[], Iterable[Record]]
"""Returns the source records from a place on."""


class Place(msgspec.Struct, array_like=True):
    """Where some consecutive records of a source are: runs of one partition."""

    partition: int
    runs: list[Run]

    @property
    def count(self) -> int:
        """How many they are."""
        return sum(run.count for run in self.runs)

    def few(self, records: int) -> Place:
        """Name its first records, about so many."""
        return Place(self.partition, [Run(run.at, min(run.count, records)) for run in self.runs[:1]])

    def extend(self, other: Place, *, follows: bool) -> None:
        """Take in the records that come next; those that follow the last one go on with its run."""
        runs = list(other.runs)
        if follows and self.runs and runs:
            self.runs[-1] = Run(self.runs[-1].at, self.runs[-1].count + runs.pop(0).count)
        self.runs += runs


def source_behind(plan: Plan, edge: EdgeSpec) -> UnitSpec | None:
    """The unit whose source records an edge brings, where those who call functions for them may have to name one."""
    before, behind = plan.units[edge.producer], plan.units[edge.consumer]
    calls = bool(behind.ops) and behind.ops[0].waits
    whole = edge.mode is Mode.FORWARD and edge.port == MAIN and edge.op_index == len(before.ops) - 1
    return before if calls and whole and before.source is not None else None


def read_place(reader: SourceReader, runs: Sequence[Run]) -> SourceColumns:
    """Read runs of a partition as one batch of columns; with when the oldest record was due."""
    parts = [reader.read(run) for run in runs]
    columns = parts[0].columns if len(parts) == 1 else pa.concat_batches([part.columns for part in parts])
    return SourceColumns(columns, min((int(part.due_us) for part in parts if part.due_us), default=0))


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

    @staticmethod
    def of(unit: UnitSpec, plan: Plan, stages: list[Stage]) -> Lineage | None:
        """That of a unit that reads a source, or calls a function for what the unit before it has read."""
        if unit.source is not None:
            return Lineage(unit, plan.start_us, stages)
        edges = plan.inputs(unit.id)
        before = source_behind(plan, edges[0]) if len(edges) == 1 else None
        return Lineage(before, plan.start_us, [], len(before.ops)) if before is not None else None

    def letters(self, at: int, failures: Failures, origin: Place, rows: Reread) -> list[Record]:
        """The dead letters of the stage at ``at``, with the source records that they were made of."""
        found = self.spots(origin, self._trace(at, failures.dead, rows))
        return [
            placed(letter, self._unit.name, origin.partition) if spot is None else self.placed(letter, origin, spot)
            for letter, spot in zip(failures.letters, found, strict=True)
        ]

    def placed(self, letter: Record, origin: Place, spot: Spot) -> Record:
        """A dead letter that says which record of the source it was made of."""
        return placed(letter, self._unit.name, origin.partition, spot.offset, spot.file, spot.line)

    def place(self, error: PenstockError, at: int, origin: Place, rows: Reread) -> None:
        """Write into the error of the stage at ``at`` which source record it is about."""
        if isinstance(error, OperationFailed) and error.at_index is not None:
            traced = self._trace(at, [Failure(error.at_index, error.on_record)], rows)
            self.name(error, origin, *self.spots(origin, traced))

    def spots_within(
        self, at: int, failures: Sequence[Failure], origin: Place, entered: list[Record], skip: int
    ) -> list[Spot | None]:
        """Where the records are that failures of the stage at ``at`` were made of.

        Of the records at the place only some have ``entered`` the first stage: ``skip`` of them went before these.
        """
        numbers: Iterable[int] = (failure.at for failure in failures)
        if at and failures:
            numbers = traced([stage.process for stage in self._stages[:at]], failures, entered)
        came = [Failure(skip + number, entered[number]) for number in takewhile(lambda each: each >= 0, numbers)]
        found = self.spots(origin, self._trace(0, came, lambda: self.read(origin)) if came else [])
        return found + [None] * (len(failures) - len(found))

    def name(self, error: OperationFailed, origin: Place, spot: Spot | None) -> None:
        """Write the source record into the error."""
        if spot is not None:
            error.place(self._unit.name, origin.partition, spot.offset, spot.file, spot.line)

    def read(self, origin: Place) -> Iterator[Record]:
        """Read the source once more at a place."""
        assert self._unit.source is not None
        reader = self._unit.source.reader(origin.partition, self._unit.partitions, self._start_us)
        try:
            for run in origin.runs:
                yield from reader.rows(run)
        finally:
            reader.close()

    def spots(self, origin: Place, indexes: Sequence[int | None]) -> list[Spot | None]:
        """Say where some records of a place are, given by their numbers in it, in rising order."""
        found: list[Spot | None] = []
        known = [index for index in indexes if index is not None]
        source, first = self._unit.source, 0
        assert source is not None
        for run in origin.runs if known else []:
            here = [index - first for index in known if first <= index < first + run.count]
            found += source.spots(run, here) if here else []
            first += run.count
        return found + [None] * (len(indexes) - len(found))

    def _trace(self, at: int, failures: Sequence[Failure], rows: Reread) -> list[int | None]:
        """The number of the source record that each failure was made of; None for those from one on that is not."""
        if self._lead is None:
            self._lead = [Stage.of(spec) for spec in self._unit.ops[: self._first]]
        before = [*self._lead, *self._stages[:at]]
        if not before:
            return [failure.at if failure.at >= 0 else None for failure in failures]
        found: list[int | None] = list(traced([stage.process for stage in before], failures, rows()))
        return found + [None] * (len(failures) - len(found))
