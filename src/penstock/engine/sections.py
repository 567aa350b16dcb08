"""A range of a unit's operations in record form: what a replica runs for an item. Pure; keeps nothing between two."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import msgspec

from penstock.dataset import cut_rows
from penstock.engine.chain import ClockNs
from penstock.engine.event_time import reading_in
from penstock.engine.lineage import Lineage, Place
from penstock.engine.slices import PIECE_NS, Outcome
from penstock.engine.stage import Stage
from penstock.errors import OperationFailed, PenstockError
from penstock.operators import DEAD_LETTERS, MAIN, Result
from penstock.operators.errors import ErrorCounts, Failure, describe_error, placed, user_traceback
from penstock.pipeline.plan import Plan, UnitSpec
from penstock.protocol.messages import MESSAGE_BYTES_MAX
from penstock.protocol.slots import Side, StageFigures
from penstock.types import Record, Schema

pack_rows = msgspec.msgpack.Encoder().encode


def rows_opener(schema: Schema) -> Any:
    """What makes rows of a schema of the bytes that they travelled as."""
    return msgspec.msgpack.Decoder(list[schema.record_type]).decode  # type: ignore[name-defined]


class Section:
    """Operations ``first`` to ``last`` of a unit, both included, which keep no state and are no sinks."""

    def __init__(self, plan: Plan, unit: UnitSpec, first: int, last: int, clock_ns: ClockNs) -> None:
        self.open = rows_opener(unit.schema_at(first))
        self._unit = unit
        self._first = first
        self._clock_ns = clock_ns
        self._stages = [Stage.of(spec) for spec in unit.ops[first : last + 1]]
        self._lineage = Lineage(unit, plan.start_us, self._stages, first) if unit.source is not None else None
        self._sources = plan.sources_of(unit.id)
        self._reading = reading_in(unit, first, last)
        self._read_at = self._reading.index - first if self._reading is not None else -1
        """Before which of the operations here event time is read."""
        self._block_bytes = min(plan.options.block_bytes, MESSAGE_BYTES_MAX)
        outputs = plan.outputs(unit.id)
        self._read_sides = {(e.op_index, e.port) for e in outputs if e.port != MAIN and first <= e.op_index <= last}
        """Side outputs that somebody reads."""

    def run(self, rows: list[Record], due_us: int, origin: Place, skip: int) -> Generator[None, None, Outcome]:
        """Run an item through the operations; ``origin`` is where its source records are, if it has any.

        Parameters
        ----------
        skip : int
            How many of those that came from there are in items before this one.

        Yields
        ------
        None
            Between two operations, if the one before has taken long.

        Raises
        ------
        PenstockError
            As the operations would where the unit is.
        """
        outcome, entered, clock_ns = Outcome(due_us), rows, self._clock_ns
        before_ns = clock_ns()
        for position, stage in enumerate(self._stages):
            if position == self._read_at and self._reading is not None:
                outcome.times = self._reading.read_rows(rows)
            count = len(rows)
            if not count:
                idle = StageFigures(records_in=0, records_out=0, busy_ns=0, done_us=before_ns // 1000)
                outcome.stages.append(idle)
                continue
            result = self._process(position, stage, rows, origin, entered, skip)
            rows = result.rows
            after_ns = clock_ns()
            found = result.failures.counts if result.failures is not None else ErrorCounts()
            outcome.stages.append(
                StageFigures(
                    records_in=count,
                    records_out=len(rows),
                    busy_ns=after_ns - before_ns,
                    done_us=after_ns // 1000,
                    skipped=found.skipped,
                    retried=found.retried,
                    dead_letters=found.dead_letters,
                )
            )
            if result.sides is not None:
                self._put_aside(outcome, position, result, origin, entered, skip)
            if after_ns - before_ns > PIECE_NS:
                yield
            before_ns = clock_ns()
        if self._read_at == len(self._stages) and self._reading is not None:
            outcome.times = self._reading.read_rows(rows)
        outcome.carried = list(cut_rows(rows, self._block_bytes)) if rows else []
        return outcome

    def _process(
        self, position: int, stage: Stage, rows: list[Record], origin: Place, entered: list[Record], skip: int
    ) -> Result:
        try:
            return stage.process(rows)
        except PenstockError as error:
            if isinstance(error, OperationFailed) and error.at_index is not None and self._lineage and origin.runs:
                failure = [Failure(error.at_index, error.on_record)]
                self._lineage.name(error, origin, *self._lineage.spots_within(position, failure, origin, entered, skip))
            raise error.at(stage.stats.name) from None
        except Exception as error:
            raise OperationFailed(
                operation=stage.stats.name,
                cause=describe_error(error),
                record="(a result of several records)",
                user_traceback=user_traceback(error),
            ) from error

    def _put_aside(
        self, outcome: Outcome, position: int, result: Result, origin: Place, entered: list[Record], skip: int
    ) -> None:
        """Take what an operation has put aside, if somebody reads it; dead letters with the places they came from."""
        for port, held in (result.sides or {}).items():
            index = self._first + position
            if (index, port) not in self._read_sides:
                continue
            if port == DEAD_LETTERS and result.failures is not None:
                held = self._placed(position, result, origin, entered, skip)
            for count, packed in cut_rows(held, self._block_bytes) if held else ():
                outcome.sides.append((Side(index=index, port=port, count=count), packed))

    def _placed(self, position: int, result: Result, origin: Place, entered: list[Record], skip: int) -> list[Record]:
        failures, lineage, name = result.failures, self._lineage, self._unit.name
        assert failures is not None
        if lineage is None or not origin.runs:
            return [placed(each, self._sources) for each in failures.letters]
        spots = lineage.spots_within(position, failures.dead, origin, entered, skip)
        return [
            placed(letter, name, origin.partition) if spot is None else lineage.placed(letter, origin, spot)
            for letter, spot in zip(failures.letters, spots, strict=True)
        ]

    def close(self) -> None:
        """There is nothing to close: sources are read by the worker."""
