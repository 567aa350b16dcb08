"""A range of a unit's operations in batch form: what a slot runs for a micro-batch. Pure; keeps nothing between two."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.connectors.base import SourceReader, Stager
from penstock.dataset import cut_columns
from penstock.engine.chain import ClockNs
from penstock.engine.event_time import reading_in
from penstock.engine.lineage import Lineage, Place, Reread, read_place
from penstock.engine.stage import Stage
from penstock.errors import OperationFailed, PenstockError, SinkFailed
from penstock.operators import DEAD_LETTERS, MAIN, BatchResult
from penstock.operators.errors import ErrorCounts, describe_error, placed, user_traceback
from penstock.operators.keys import Partitioner
from penstock.operators.stateless.transform import WaitingOperator
from penstock.pipeline.plan import EdgeSpec, Mode, OpSpec, Plan, UnitSpec
from penstock.protocol.messages import MESSAGE_BYTES_MAX
from penstock.protocol.slots import Part, Side, StageFigures, TimesRead
from penstock.types import Record

PROBE_RECORDS = 8
SAMPLE_ROUNDS = 5
SAMPLE_NS = 50_000_000
PIECE_RECORDS_FIRST = 64
"""Of an operation that has not been timed yet, so many records are processed at once."""
PIECE_NS = 500_000_000
"""About so long an operation is at work before the slot looks up; workers give up on one that is silent for long."""


@dataclass(slots=True)
class Outcome:
    """What came of a micro-batch; columns are packed."""

    due_us: int
    source_ns: int = 0
    times: TimesRead | None = None
    stages: list[StageFigures] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    """Of the parts, in their order."""
    carried: list[tuple[int, bytes]] = field(default_factory=list)
    """Columns that go on, in pieces: how many records, and their bytes."""
    staged: list[tuple[int, bytes]] = field(default_factory=list)
    """What was made ready for the sink, likewise."""
    sides: list[tuple[Side, bytes]] = field(default_factory=list)
    """Of an item in rows: what operations have put aside."""
    cpu_ns: int = 0


@dataclass(slots=True)
class Sample:
    """What both forms cost on some records: nanoseconds in all and records in, by index in the chain."""

    record_ns: dict[int, int] = field(default_factory=dict)
    batch_ns: dict[int, int] = field(default_factory=dict)
    records_in: dict[int, int] = field(default_factory=dict)


class Slice:
    """Operations ``first`` to ``last`` of a unit, both included; -1 is the source."""

    def __init__(
        self,
        plan: Plan,
        unit: UnitSpec,
        instance: int,
        first: int,
        last: int,
        clock_ns: ClockNs,
        using: Mapping[int, str] | None = None,
    ) -> None:
        self._unit = unit
        self._first = first
        self._last = last
        self._clock_ns = clock_ns
        self._start_us = plan.start_us
        self._block_bytes = min(plan.options.block_bytes, MESSAGE_BYTES_MAX)
        self._readers: dict[int, SourceReader] = {}
        self._is_tried = False
        """Whether it has computed something, so that nothing is done for the first time any more."""
        self._sink: OpSpec | None = None
        self._stage: Stager | None = None
        self._stages: list[Stage] = []
        for index, spec in enumerate(unit.ops[max(first, 0) : last + 1], start=max(first, 0)):
            if spec.sink is not None:
                self._sink, self._stage = spec, spec.sink.stager(spec.schema, spec.name)
            else:
                self._stages.append(Stage.of(spec, (using or {}).get(index)))
        self._piece_records = [PIECE_RECORDS_FIRST] * len(self._stages)
        """How many records of each operation are about as much work as a piece should be."""
        self._lineage = Lineage(unit, plan.start_us, self._stages, max(first, 0)) if unit.source is not None else None
        self._sources = plan.sources_of(unit.id)
        whole = last == len(unit.ops) - 1
        self._carries = not whole
        self._reading = reading_in(unit, first, last)
        self._read_at = self._reading.index - max(first, 0) if self._reading is not None else -1
        """Before which of the operations here event time is read."""
        self._edges: list[tuple[EdgeSpec, Partitioner | None]] = []
        for edge in plan.outputs(unit.id):
            if first <= edge.op_index <= last and (edge.port != MAIN or whole):
                consumers = len(edge.consumers(plan, instance))
                dealt = edge.mode is Mode.SHUFFLE and consumers > 1
                self._edges.append((edge, Partitioner(edge.keys, consumers) if dealt else None))

    def read(self, place: Place) -> tuple[pa.RecordBatch, int]:
        """Read a stretch of the unit's source: its columns, and when the oldest record was due."""
        reader = self._readers.get(place.partition)
        if reader is None:
            assert self._unit.source is not None
            reader = self._unit.source.reader(place.partition, self._unit.partitions, self._start_us)
            self._readers[place.partition] = reader
        read = read_place(reader, place.runs)
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
        self._is_tried = True
        clock_ns, source_rows = self._clock_ns, partial(self._source_rows, entered, origin)
        sides: dict[tuple[int, str], list[Record]] = {}
        before_ns = clock_ns()
        for position, stage in enumerate(self._stages):
            count = batch.num_rows
            if position == self._read_at and self._reading is not None:
                outcome.times = self._reading.read(batch)
            if not count:
                idle = StageFigures(records_in=0, records_out=0, busy_ns=0, done_us=before_ns // 1000)
                outcome.stages.append(idle)
                continue
            try:
                if isinstance(stage.operator, WaitingOperator):
                    result = yield from self._waited(stage.operator, batch)
                elif count <= self._piece_records[position]:
                    result = self._process(stage, batch)
                else:
                    result = yield from self._in_pieces(position, stage, batch)
            except PenstockError as error:
                if self._lineage is not None:
                    self._lineage.place(error, position, origin, source_rows)
                raise
            batch = result.columns
            found = result.failures.counts if result.failures is not None else ErrorCounts()
            after_ns = clock_ns()
            if count <= self._piece_records[position]:
                self._piece_records[position] = _fitting(count, after_ns - before_ns)
            outcome.stages.append(
                StageFigures(
                    records_in=count,
                    records_out=batch.num_rows,
                    busy_ns=after_ns - before_ns,
                    done_us=after_ns // 1000,
                    skipped=found.skipped,
                    retried=found.retried,
                    dead_letters=found.dead_letters,
                    fallbacks=result.fallbacks,
                    failures=stage.take_failures(),
                )
            )
            self._put_aside(sides, position, result, origin, source_rows)
            before_ns = clock_ns()
        if self._read_at == len(self._stages) and self._reading is not None:
            outcome.times = self._reading.read(batch)
        if self._sink is not None and self._stage is not None:
            if batch.num_rows:
                outcome.staged = self._make_ready(self._sink, self._stage, batch)
            done_ns = clock_ns()
            figures = StageFigures(
                records_in=batch.num_rows,
                records_out=batch.num_rows,
                busy_ns=done_ns - before_ns,
                done_us=done_ns // 1000,
            )
            outcome.stages.append(figures)
        self._deal(batch, sides, outcome)
        if self._carries and batch.num_rows:
            outcome.carried = list(cut_columns(batch, self._block_bytes))
        return outcome

    @staticmethod
    def _waited(operator: WaitingOperator, batch: pa.RecordBatch) -> Generator[None, None, BatchResult]:
        """Have a micro-batch computed elsewhere, and look up while that lasts."""
        for done in operator.waiting(batch):
            if done is not None:
                return done
            yield
        raise AssertionError("whoever waits comes to an end")

    def _in_pieces(self, position: int, stage: Stage, batch: pa.RecordBatch) -> Generator[None, None, BatchResult]:
        """Process a micro-batch that may be long work, as the record form does a block: piece by piece."""
        done: list[pa.RecordBatch] = []
        sides: dict[str, list[Record]] = {}
        failures, at = stage.errors.begin(), 0
        whole = BatchResult(batch, sides, failures)
        while at < batch.num_rows:
            piece = batch.slice(at, self._piece_records[position])
            before_ns = self._clock_ns()
            try:
                result = self._process(stage, piece)
            except OperationFailed as error:
                if error.at_index is not None:
                    error.at_index += at
                raise
            self._piece_records[position] = _fitting(piece.num_rows, self._clock_ns() - before_ns)
            done.append(result.columns)
            for port, held in (result.sides or {}).items():
                sides.setdefault(port, []).extend(held)
            if result.failures is not None:
                failures.add(result.failures, at)
            whole.fallbacks += result.fallbacks
            at += piece.num_rows
            if at < batch.num_rows:
                yield
        whole.columns = pa.concat_batches(done)
        return whole

    def _put_aside(
        self,
        sides: dict[tuple[int, str], list[Record]],
        position: int,
        result: BatchResult,
        origin: Place,
        rows: Reread,
    ) -> None:
        """Take what an operation has put aside, by its index in the chain and the port; dead letters with places."""
        index, failures = position + max(self._first, 0), result.failures
        for port, held in (result.sides or {}).items():
            sides[index, port] = held
        if failures is not None and failures.letters and self._lineage is not None:
            sides[index, DEAD_LETTERS] = self._lineage.letters(position, failures, origin, rows)
        elif failures is not None and failures.letters:
            sides[index, DEAD_LETTERS] = [placed(each, self._sources) for each in failures.letters]

    def _source_rows(self, entered: pa.RecordBatch, origin: Place) -> Iterable[Record]:
        """The source records of a micro-batch: itself, unless operations before the range have run it."""
        assert self._lineage is not None
        return self._lineage.read(origin) if self._first > 0 else self._unit.schema.to_rows(entered)

    def _process(self, stage: Stage, batch: pa.RecordBatch) -> BatchResult:
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

    def _make_ready(self, sink: OpSpec, stage: Stager, batch: pa.RecordBatch) -> list[tuple[int, bytes]]:
        # What it is made into weighs about as much; a stager is called once for each piece, and not to try.
        each = max(1, batch.num_rows * self._block_bytes // max(1, batch.nbytes))
        try:
            pieces = [batch.slice(at, each) for at in range(0, batch.num_rows, each)]
            return [(piece.num_rows, stage(piece)) for piece in pieces]
        except PenstockError as error:
            raise error.at(sink.name) from None
        except Exception as error:
            raise SinkFailed(
                sink=sink.operation.kind,
                cause=f"{type(error).__name__}: {error}",
                operation=sink.name,
                hint="Nothing after the last committed epoch is visible.",
            ) from error

    def _deal(self, batch: pa.RecordBatch, sides: Mapping[tuple[int, str], list[Record]], outcome: Outcome) -> None:
        """Deal what leaves the operations out to the readers of their edges."""
        for edge, partitioner in self._edges:
            columns = batch
            if edge.port != MAIN:
                held = sides.get((edge.op_index, edge.port))
                if held is None:
                    continue
                columns = edge.schema.to_batch(held)
            if not columns.num_rows:
                continue
            for consumer, part in enumerate(partitioner.columns(columns) if partitioner is not None else [columns]):
                for count, packed in cut_columns(part, self._block_bytes) if part.num_rows else ():
                    outcome.parts.append(Part(edge=edge.id, consumer=consumer, count=count))
                    outcome.payloads.append(packed)

    def try_out(self, place: Place) -> None:
        """Read a few records, and throw away what comes of them: what is slow the first time is so before it matters.

        As with samples, no function of a user's sees them that is not declared pure, and nothing behind one.
        """
        if self._is_tried:
            return
        self._is_tried = True
        batch, _ = self.read(place)
        for index, stage in enumerate(self._stages, start=max(self._first, 0)):
            if not batch.num_rows or index not in self._unit.repeatable:
                return
            batch = self._process(stage, batch).columns
            stage.take_failures()
        self._deal(batch, {}, Outcome(0))

    def sample(self, batch: pa.RecordBatch, place: Place) -> Generator[None, None, Sample]:
        """Measure both forms of every operation on the same records; sinks are left alone.

        Yields
        ------
        None
            Behind every measurement: who has something else to do does that first.
        """
        found = Sample()
        if self._first < 0:
            reader = self._readers[place.partition]
            found.record_ns[-1], _ = yield from self._fastest(lambda: [reader.rows(run) for run in place.runs])
            found.batch_ns[-1], _ = yield from self._fastest(self.read, place)
            found.records_in[-1] = batch.num_rows
        for index, stage in enumerate(self._stages, start=max(self._first, 0)):
            if not batch.num_rows:
                break
            rows = self._unit.ops[index].schema.to_rows(batch)
            few = rows[:PROBE_RECORDS]
            taken_ns, _ = yield from self._fastest(stage.process, few)
            # Of a slow operation only so many: the slot has other work.
            rows = rows[: max(len(few), len(few) * SAMPLE_NS // max(1, taken_ns))]
            batch = batch.slice(0, len(rows))
            found.records_in[index] = batch.num_rows
            found.record_ns[index], _ = yield from self._fastest(stage.process, rows)
            found.batch_ns[index], result = yield from self._fastest(self._process, stage, batch)
            batch = result.columns
        return found

    def _fastest(self, action: Callable[..., Any], *arguments: Any) -> Generator[None, None, tuple[int, Any]]:
        """Run something some times, as long as that does not take long; what else the machine does only adds time."""
        fastest, in_all_ns = None, 0
        for _ in range(SAMPLE_ROUNDS):
            before_ns = self._clock_ns()
            result = action(*arguments)
            after_ns = self._clock_ns()
            fastest = after_ns - before_ns if fastest is None else min(fastest, after_ns - before_ns)
            in_all_ns += after_ns - before_ns
            yield
            if in_all_ns > SAMPLE_NS:
                break
        return fastest or 0, result

    def close(self) -> None:
        """Close the source's readers."""
        for reader in self._readers.values():
            reader.close()


def _fitting(count: int, took_ns: int) -> int:
    """How many records are a piece of work, where ``count`` took so long."""
    return max(1, count * PIECE_NS // max(1, took_ns))
