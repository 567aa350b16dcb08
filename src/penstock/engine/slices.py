"""A range of a unit's operations in batch form: what a slot runs for a micro-batch. Pure; keeps nothing between two."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.connectors.base import Sink, SourceReader, Stager
from penstock.dataset import pack
from penstock.engine.chain import ClockNs
from penstock.engine.lineage import Lineage, Place
from penstock.engine.stage import Stage
from penstock.errors import OperationFailed, PenstockError, SinkFailed
from penstock.metrics.times import later
from penstock.operators import DEAD_LETTERS, MAIN
from penstock.operators.errors import ErrorCounts, Errors, describe_error, user_traceback
from penstock.operators.keys import Partitioner
from penstock.pipeline.plan import EdgeSpec, Mode, OpSpec, Plan, UnitSpec
from penstock.protocol.slots import Part, StageFigures
from penstock.types import Record

PROBE_RECORDS = 8
SAMPLE_ROUNDS = 5
SAMPLE_NS = 50_000_000
PIECE_RECORDS_FIRST = 64
"""Of an operation that has not been timed yet, so many records are processed at once."""
PIECE_NS = 500_000_000
"""About so long an operation is at work before the slot looks up; workers give up on one that is silent for long."""
_FAR_FUTURE_US = 1 << 60


@dataclass(slots=True)
class Outcome:
    """What came of a micro-batch; columns are packed."""

    due_us: int
    source_ns: int = 0
    event_time_us_max: int | None = None
    stages: list[StageFigures] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    """Of the parts, in their order."""
    carried: pa.RecordBatch | None = None
    staged: bytes | None = None
    staged_records: int = 0


@dataclass(slots=True)
class Sample:
    """What both forms cost on some records: nanoseconds in all and records in, by index in the chain."""

    record_ns: dict[int, int] = field(default_factory=dict)
    batch_ns: dict[int, int] = field(default_factory=dict)
    records_in: dict[int, int] = field(default_factory=dict)


class Slice:
    """Operations ``first`` to ``last`` of a unit, both included; -1 is the source."""

    def __init__(self, plan: Plan, unit: UnitSpec, instance: int, first: int, last: int, clock_ns: ClockNs) -> None:
        self._unit = unit
        self._first = first
        self._last = last
        self._clock_ns = clock_ns
        self._start_us = plan.start_us
        self._readers: dict[int, SourceReader] = {}
        self._sink: OpSpec | None = None
        self._stage: Stager | None = None
        self._stages: list[Stage] = []
        for spec in unit.ops[max(first, 0) : last + 1]:
            if isinstance(spec.operation, Sink):
                self._sink, self._stage = spec, spec.operation.stager(spec.schema, spec.name)
            else:
                self._stages.append(Stage.of(spec))
        self._piece_records = [PIECE_RECORDS_FIRST] * len(self._stages)
        """How many records of each operation are about as much work as a piece should be."""
        self._lineage = Lineage(unit, plan.start_us, self._stages, max(first, 0)) if unit.source is not None else None
        whole = last == len(unit.ops) - 1
        self._event_time = self._stages[-1].operator.event_time if whole and self._stages else None
        self._carries = not whole
        self._edges: list[tuple[EdgeSpec, Partitioner | None]] = []
        for edge in plan.outputs(unit.id):
            if first <= edge.op_index <= last and (edge.port != MAIN or whole):
                consumers = len(edge.consumers(plan, instance))
                dealt = edge.mode is Mode.SHUFFLE and consumers > 1
                self._edges.append((edge, Partitioner(edge.keys, consumers) if dealt else None))

    def read(self, partition: int, offset: int, count: int) -> tuple[pa.RecordBatch, int]:
        """Read a stretch of the unit's source: its columns, and when the oldest record was due."""
        reader = self._readers.get(partition)
        if reader is None:
            assert self._unit.source is not None
            reader = self._unit.source.reader(partition, self._unit.partitions, self._start_us)
            self._readers[partition] = reader
        reader.seek(offset)
        read = reader.read(count)
        return read.columns, read.due_us

    def run(self, batch: pa.RecordBatch, due_us: int, origin: Place) -> Generator[None, None, Outcome]:
        """Run a micro-batch through the operations; ``origin`` is where its source records begin, if it has any.

        Yields
        ------
        None
            Between two pieces of work that takes long; most micro-batches are run in one go.

        Raises
        ------
        PenstockError
            As the record form would on the same records.
        """
        outcome, entered = Outcome(due_us), batch
        clock_ns = self._clock_ns
        for stage in self._stages:
            self._forget(stage)  # what a run or a sample that was broken off has left
        if self._event_time is not None:
            self._event_time.us_max = None
        before_ns = clock_ns()
        for position, stage in enumerate(self._stages):
            count = batch.num_rows
            if not count:
                outcome.stages.append(StageFigures(0, 0, 0, before_ns // 1000, 0, 0, 0, 0))
                continue
            counts, fallbacks = stage.errors.counts, stage.operator.batch_fallbacks
            stage.errors.counts = found = ErrorCounts()
            try:
                if count <= self._piece_records[position]:
                    batch = self._process(stage, batch)
                else:
                    batch = yield from self._in_pieces(position, stage, batch)
            except PenstockError as error:
                if self._lineage is not None:
                    self._lineage.placed(error, stage, origin, partial(self._source_rows, entered, origin))
                raise
            after_ns = clock_ns()
            if count <= self._piece_records[position]:
                self._piece_records[position] = _fitting(count, after_ns - before_ns)
            outcome.stages.append(
                StageFigures(
                    count,
                    batch.num_rows,
                    after_ns - before_ns,
                    after_ns // 1000,
                    found.skipped,
                    found.retried,
                    found.dead_letters,
                    stage.operator.batch_fallbacks - fallbacks,
                )
            )
            stage.errors.counts = counts
            before_ns = after_ns
        if self._lineage is not None:
            self._lineage.place_letters(origin, partial(self._source_rows, entered, origin))
        if self._sink is not None and self._stage is not None:
            outcome.staged_records = batch.num_rows
            if batch.num_rows:
                outcome.staged = self._make_ready(self._sink, self._stage, batch)
            done_ns = clock_ns()
            figures = StageFigures(batch.num_rows, batch.num_rows, done_ns - before_ns, done_ns // 1000, 0, 0, 0, 0)
            outcome.stages.append(figures)
        if self._event_time is not None:
            outcome.event_time_us_max = self._event_time.us_max
        self._deal(batch, outcome)
        if self._carries:
            outcome.carried = batch
        return outcome

    def _in_pieces(self, position: int, stage: Stage, batch: pa.RecordBatch) -> Generator[None, None, pa.RecordBatch]:
        """Process a micro-batch that may be long work, as the record form does a block: piece by piece."""
        done: list[pa.RecordBatch] = []
        event_time_us_max: int | None = None
        at, event_time = 0, stage.operator.event_time
        while at < batch.num_rows:
            piece = batch.slice(at, self._piece_records[position])
            before_ns, letters = self._clock_ns(), len(stage.errors.unplaced)
            try:
                done.append(self._process(stage, piece))
            finally:
                _move(stage.errors, letters, at)
            self._piece_records[position] = _fitting(piece.num_rows, self._clock_ns() - before_ns)
            at += piece.num_rows
            if event_time is not None:
                event_time_us_max = event_time.us_max = later(event_time_us_max, event_time.us_max)
            if at < batch.num_rows:
                yield
        return pa.concat_batches(done)

    def _source_rows(self, entered: pa.RecordBatch, origin: Place) -> Iterable[Record]:
        """The source records of a micro-batch: itself, unless operations before the range have run it."""
        assert self._lineage is not None
        return self._lineage.read(origin) if self._first > 0 else self._unit.schema.to_rows(entered)

    def _process(self, stage: Stage, batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            return stage.operator.process_batch(batch)
        except PenstockError as error:
            raise error.at(stage.stats.name) from None
        except Exception as error:
            raise OperationFailed(
                operation=stage.stats.name,
                cause=describe_error(error),
                record="(a result of several records)",
                user_traceback=user_traceback(error),
            ) from error

    @staticmethod
    def _make_ready(sink: OpSpec, stage: Stager, batch: pa.RecordBatch) -> bytes:
        try:
            return stage(batch)
        except PenstockError as error:
            raise error.at(sink.name) from None
        except Exception as error:
            raise SinkFailed(
                sink=sink.operation.kind,
                cause=f"{type(error).__name__}: {error}",
                operation=sink.name,
                hint="Nothing after the last committed epoch is visible.",
            ) from error

    def _deal(self, batch: pa.RecordBatch, outcome: Outcome) -> None:
        """Deal what leaves the operations out to the readers of their edges, and forget what was put aside."""
        for edge, partitioner in self._edges:
            if edge.port == MAIN:
                columns = batch
            else:
                held = self._held(edge)
                if not held:
                    continue
                columns = edge.schema.to_batch(held)
            if not columns.num_rows:
                continue
            for consumer, part in enumerate(partitioner.columns(columns) if partitioner is not None else [columns]):
                if part.num_rows:
                    outcome.parts.append(Part(edge.id, consumer, part.num_rows))
                    outcome.payloads.append(pack(part))
        for stage in self._stages:
            stage.errors.forget()
            for rows in stage.operator.ports.values():
                rows.clear()

    def _held(self, edge: EdgeSpec) -> list[Record]:
        stage = self._stages[edge.op_index - max(self._first, 0)]
        return stage.errors.dead_letters if edge.port == DEAD_LETTERS else stage.operator.ports[edge.port]

    def sample(self, batch: pa.RecordBatch, partition: int, offset: int) -> Sample:
        """Measure both forms of every operation on the same records; sinks are left alone."""
        found = Sample()
        if self._first < 0:
            count, reader = batch.num_rows, self._readers[partition]

            def poll() -> None:
                reader.seek(offset)
                left = count
                while left and (polled := reader.poll(_FAR_FUTURE_US, left)) is not None:
                    left -= len(polled.rows)

            found.record_ns[-1], _ = self._fastest(poll)
            found.batch_ns[-1], _ = self._fastest(lambda: self.read(partition, offset, count))
            found.records_in[-1] = count
        for index, stage in enumerate(self._stages, start=max(self._first, 0)):
            if not batch.num_rows:
                break
            rows = self._unit.ops[index].schema.to_rows(batch)
            rows = rows[: self._affordable(stage, rows)]
            batch = batch.slice(0, len(rows))
            found.records_in[index] = batch.num_rows
            found.record_ns[index], _ = self._fastest(stage.process, rows)
            self._forget(stage)
            found.batch_ns[index], batch = self._fastest(self._process, stage, batch)
            self._forget(stage)
        return found

    def _affordable(self, stage: Stage, rows: list[Record]) -> int:
        """How many records of a sample a slow operation can be given: the slot has other work."""
        few = rows[:PROBE_RECORDS]
        taken_ns, _ = self._fastest(stage.process, few)
        self._forget(stage)
        return max(len(few), len(few) * SAMPLE_NS // max(1, taken_ns))

    def _fastest(self, action: Callable[..., Any], *arguments: Any) -> tuple[int, Any]:
        """Run something some times, as long as that does not take long; what else the machine does only adds time."""
        began_ns = self._clock_ns()
        fastest: int | None = None
        for _ in range(SAMPLE_ROUNDS):
            before_ns = self._clock_ns()
            result = action(*arguments)
            after_ns = self._clock_ns()
            fastest = after_ns - before_ns if fastest is None else min(fastest, after_ns - before_ns)
            if after_ns - began_ns > SAMPLE_NS:
                break
        return fastest or 0, result

    @staticmethod
    def _forget(stage: Stage) -> None:
        stage.errors.counts = ErrorCounts()
        stage.errors.dead_letters.clear()
        for rows in stage.operator.ports.values():
            rows.clear()

    def close(self) -> None:
        """Close the source's readers."""
        for reader in self._readers.values():
            reader.close()


def _move(errors: Errors, letters: int, by: int) -> None:
    """Count the places of what a piece could not handle from the begin of its micro-batch on."""
    errors.unplaced[letters:] = [each._replace(at=each.at + by) for each in errors.unplaced[letters:]]
    if errors.fatal is not None:
        errors.fatal = errors.fatal._replace(at=errors.fatal.at + by)


def _fitting(count: int, took_ns: int) -> int:
    """How many records are a piece of work, where ``count`` took so long."""
    return max(1, count * PIECE_NS // max(1, took_ns))
