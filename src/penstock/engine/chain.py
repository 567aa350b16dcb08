"""A unit's chain of operations in record form, with the figures of each and the sinks at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.connectors.base import SinkWriter, WriterContext
from penstock.engine.guard import Guard
from penstock.engine.lineage import Lineage, Place, Reread
from penstock.engine.passed import Passed
from penstock.engine.snapshot import OpCounters, UnitSnapshot
from penstock.engine.stage import Stage, errors_of
from penstock.engine.state import restore_state
from penstock.errors import OperationFailed, PenstockError, PoisonRecord, SinkFailed
from penstock.metrics.message import StatsMessage
from penstock.operators import DEAD_LETTERS, Operator, Result, StatefulOperator
from penstock.operators.base import result_of
from penstock.operators.errors import ErrorCounts, describe_error, placed, user_traceback
from penstock.pipeline.plan import OpSpec, Plan, UnitSpec
from penstock.pipeline.ranges import Range
from penstock.types import Record, Schema

if TYPE_CHECKING:
    from penstock.engine.state.moving import Ahead

ROOM_US = 5_000
ClockNs = Callable[[], int]
Origin = tuple[Place, int]
"""A place in a source, and which of its records."""


class SinkOperator(Operator):
    """The sink at the end of a chain, as one more operation."""

    def __init__(self, name: str, kind: str, writer: SinkWriter, schema: Schema) -> None:
        super().__init__(self._write, schema=schema, output=schema)
        self.name = name
        self.writer: Any = writer
        """A writer of somebody else's may answer with what only counts as a list, or as true."""
        self.schema = schema
        self._kind = kind

    def _write(self, rows: list[Record]) -> Result:
        self._call(self.writer.write, rows)
        return Result(rows)

    def prepare(self, epoch: int) -> None:
        """Make the epoch's output durable."""
        self._call(self.writer.prepare, epoch)

    def adopt(self, staged: bytes) -> None:
        """Take what a slot has made ready for the writer."""
        self._call(lambda packed: self.writer.adopt(packed, self.schema), staged)

    def commit(self, epoch: int) -> list[Record]:
        """Make the epoch's output visible; return what the driver shall take."""
        return list(self._call(self.writer.commit, epoch) or ())

    def uploads(self) -> list[Callable[[], None]]:
        """What is left to do until the prepared output is durable."""
        return [partial(self._call, upload) for upload in self.writer.uploads()]

    def finish(self) -> None:
        """Wait until everything that was committed is visible."""
        self._call(self.writer.finish)

    def _call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return method(*arguments)
        except PenstockError as error:
            raise error.at(self.name) from None
        except Exception as error:
            raise SinkFailed(
                sink=self._kind,
                cause=f"{type(error).__name__}: {error}",
                operation=self.name,
                hint="Nothing after the last committed epoch is visible.",
            ) from error


class Chain:
    """Runs records through the operations of one unit instance."""

    def __init__(
        self, unit: UnitSpec, instance: int, plan: Plan, clock_ns: ClockNs, ahead: Ahead | None = None
    ) -> None:
        self._clock_ns = clock_ns
        self._unit = unit
        self._instance = instance
        self.guard: Guard | None = None
        """Set in careful mode."""
        self._ahead = ahead
        self.stages = [ahead.stage if ahead and not i else self._stage(spec, plan) for i, spec in enumerate(unit.ops)]
        self.sinks = [s.operator for s in self.stages if isinstance(s.operator, SinkOperator)]
        self._waits = [wait for s in self.stages if (wait := s.operator.waited_ns) is not None]
        first = self.stages[0].operator if self.stages else None
        self.stateful = first if isinstance(first, StatefulOperator) else None
        if self.stateful is not None:
            self.stateful.rows_max = max(1, plan.options.state_slice // 4)
        self._lineage = Lineage.of(unit, plan, self.stages)
        self._sources = plan.sources_of(unit.id)

    def waited_ns(self) -> int:
        """Take how long operations have waited for others, since it was last asked: that is not the records' work."""
        return sum([waited_ns() for waited_ns in self._waits])

    def _stage(self, spec: OpSpec, plan: Plan) -> Stage:
        if spec.sink is None:
            return Stage.of(spec)
        instances, options = self._unit.instances, plan.options
        context = WriterContext(
            options.name, spec.name, self._instance, instances, plan.job_id, is_resumable=options.durable
        )
        writer = spec.sink.writer(spec.schema, context)
        return Stage(spec.name, SinkOperator(spec.name, spec.sink.kind, writer, spec.schema), errors_of(spec))

    def push(
        self,
        rows: list[Record],
        due_us: int,
        first: int = 0,
        until: int | None = None,
        origin: Place | None = None,
    ) -> Passed:
        """Run records through the chain from operation ``first`` on, up to ``until``; return what came of them.

        ``origin`` is where the source records begin that they are, or were made of.
        """
        if self.guard is not None:
            return self._push_carefully(self.guard, rows, first, until, origin)
        clock_ns, entered = self._clock_ns, rows
        aside: list[tuple[int, Result]] | None = None
        before_ns = clock_ns()
        entered_us = before_ns // 1000 - due_us
        for stage in self.stages[first:until] if first or until is not None else self.stages:
            if not rows:
                break
            stats = stage.stats
            count = len(rows)
            try:
                result = stage.process(rows)
            except PenstockError as error:
                if self._lineage is not None and origin is not None:
                    source_rows = partial(self._source_rows, entered, first, origin)
                    self._lineage.place(error, self.stages.index(stage), origin, source_rows)
                raise error.at(stats.name) from None
            except Exception as error:
                # Not on one record, which the policy would have had: a result or a partial that cannot be made.
                raise OperationFailed(
                    operation=stats.name,
                    cause=describe_error(error),
                    record="(a result of several records)",
                    user_traceback=user_traceback(error),
                ) from error
            rows = result.rows
            after_ns = clock_ns()
            stats.records_in += count
            stats.records_out += len(rows)
            stats.blocks += 1
            stats.busy_ns += after_ns - before_ns
            if due_us:
                # Every record is charged with the wait of the block's oldest one: an upper bound, never flattering.
                latency_us = after_ns // 1000 - due_us
                stats.latency_us.record(latency_us, count)
                stats.entered_us += entered_us * count
                stats.left_us += latency_us * count
                entered_us = latency_us
            before_ns = after_ns
            if result.sides is not None:
                aside = aside or []
                aside.append((self.stages.index(stage), result))
        passed = Passed(rows)
        if aside is not None:
            for index, each in aside:
                self.put_aside(passed, index, each, origin, partial(self._source_rows, entered, first, origin))
        return passed

    def put_aside(self, passed: Passed, index: int, result: Result, origin: Place | None, rows: Reread) -> None:
        """Count what an operation could not handle, and take what it has put aside; dead letters get their places."""
        self.stages[index].stats.late_records += result.late
        for port, held in (result.sides or {}).items():
            passed.sides[index, port] = held
        failures = result.failures
        if failures is not None:
            self.stages[index].counts.add(failures.counts)
            if failures.letters and origin is not None and self._lineage is not None:
                passed.sides[index, DEAD_LETTERS] = self._lineage.letters(index, failures, origin, rows)
            elif failures.letters:
                passed.sides[index, DEAD_LETTERS] = [placed(each, self._sources) for each in failures.letters]

    def reread(self, origin: Place) -> Iterable[Record]:
        """The source records at a place, once more."""
        return self._source_rows([], 1, origin)

    def name_source(self, error: OperationFailed, origin: Place | None) -> None:
        """Write into an error of the first operation which source record it is about, if that is known."""
        if origin is not None and self._lineage is not None:
            self._lineage.place(error, 0, origin, partial(self.reread, origin))

    def _source_rows(self, entered: list[Record], first: int, origin: Place | None) -> Iterable[Record]:
        """The source records of a block: what entered the chain, unless operations before ``first`` have run it."""
        if not first:
            return entered
        assert self._lineage is not None
        assert origin is not None
        return self._lineage.read(origin)

    def _push_carefully(
        self, guard: Guard, rows: list[Record], first: int, until: int | None, origin: Place | None
    ) -> Passed:
        """Run one record at a time through each operation, noted before; quarantined ones go to the error policy."""
        passed = Passed([])
        places: list[Origin | None] = [None] * len(rows)
        if origin is not None and not first:
            places = [(origin, i) for i in range(len(rows))]
        for index, stage in enumerate(self.stages[first:until], start=first):
            results: list[Record] = []
            result_places: list[Origin | None] = []
            for row, place in zip(rows, places, strict=True):
                stage.stats.records_in += 1
                result = self._handle_carefully(guard, stage, row, place)
                stage.stats.late_records += result.late
                results += result.rows
                result_places += [place] * len(result.rows)
                for port, held in (result.sides or {}).items():
                    passed.sides.setdefault((index, port), []).extend(held)
            guard.done()
            stage.stats.records_out += len(results)
            rows, places = results, result_places
        passed.rows = rows
        return passed

    def _handle_carefully(self, guard: Guard, stage: Stage, row: Record, place: Origin | None) -> Result:
        try:
            losses = guard.losses(stage.stats.name, row)
            if losses:
                killed, failures = PoisonRecord(operation=stage.errors.operation, losses=losses), stage.errors.begin()
                while failures.handle(row, killed, 0):
                    pass
                result = result_of([], None, failures)
            else:
                result = stage.process([row])
        except OperationFailed as error:
            if place is not None and self._lineage is not None:
                self._lineage.name(error, place[0], *self._lineage.spots(place[0], [place[1]]))
            raise
        if result.failures is not None:
            stage.counts.add(result.failures.counts)
            letters = result.failures.letters
            if letters and place is not None and self._lineage is not None and result.sides is not None:
                (spot,) = self._lineage.spots(place[0], [place[1]])
                assert spot is not None
                result.sides[DEAD_LETTERS] = [self._lineage.placed(each, place[0], spot) for each in letters]
            elif letters and result.sides is not None:
                result.sides[DEAD_LETTERS] = [placed(each, self._sources) for each in letters]
        return result

    def advance(self, watermark_us: int | None, due_us: int, until: int | None = None) -> Passed:
        """Let the stateful operation reach a watermark, or end it (None); return what came of that."""
        assert self.stateful is not None
        before_ns = self._tell_time(self.stateful)
        came = self.stateful.finish() if watermark_us is None else self.stateful.advance(watermark_us)
        return self._run_on(came, before_ns, due_us, until)

    def go_on(self, due_us: int, until: int | None = None) -> Passed:
        """Let the stateful operation give the next part of what a watermark has completed; return what came of that."""
        assert self.stateful is not None
        before_ns = self._clock_ns()
        return self._run_on(self.stateful.go_on(), before_ns, due_us, until)

    def fire(self, now_us: int, until: int | None = None) -> Passed:
        """Let the stateful operation reach a time of the clock; return what came of that."""
        assert self.stateful is not None
        before_ns = self._tell_time(self.stateful)
        return self._run_on(self.stateful.fire(now_us), before_ns, now_us, until)

    @property
    def now_us(self) -> int:
        """The clock."""
        return self._clock_ns() // 1000

    def _tell_time(self, stateful: StatefulOperator) -> int:
        before_ns = self._clock_ns()
        if stateful.follows_clock:
            stateful.now_us = before_ns // 1000
        return before_ns

    def _run_on(self, result: Result, before_ns: int, due_us: int, until: int | None) -> Passed:
        """Run what the stateful operation gave without a record through the operations behind it."""
        if not result.rows and result.sides is None:
            return Passed(result.rows)
        stats = self.stages[0].stats
        stats.busy_ns += self._clock_ns() - before_ns
        stats.records_out += len(result.rows)
        passed = self.push(result.rows, due_us, 1, until)
        if result.sides is not None:
            self.put_aside(passed, 0, result, None, tuple)
        return passed

    @property
    def has_room(self) -> bool:
        """Whether its sinks can take more."""
        for sink in self.sinks:  # noqa: SIM110 (asked at every step: no generator)
            if sink.writer.is_blocked:
                return False
        return True

    def room_us(self, now_us: int) -> int | None:
        """When to look whether its sinks have room again: unlike a log that has, they do not ring."""
        return None if self.has_room else now_us + ROOM_US

    def adopt(self, index: int, staged: bytes) -> None:
        """Have the sink at ``index`` take what a slot has made ready for it."""
        sink = self.stages[index].operator
        assert isinstance(sink, SinkOperator)
        sink.adopt(staged)

    def record_ns(self, operations: Range) -> float:
        """What a record has cost in a range of operations so far; 0 where that is not known."""
        stages = [each.stats for each in self.stages[max(operations.first, 0) : operations.last + 1]]
        came = stages[0].records_in if stages else 0
        return sum(each.busy_ns for each in stages) / came if came else 0.0

    @property
    def busy_us(self) -> int:
        """How long its operations have taken so far."""
        return sum(each.stats.busy_ns for each in self.stages) // 1000

    def figures(self) -> list[StatsMessage]:
        """The figures of every operation."""
        return [
            each.stats.message(
                self._unit.id,
                self._instance,
                skipped=each.counts.skipped,
                retried=each.counts.retried,
                dead_letters=each.counts.dead_letters,
            )
            for each in self.stages
        ]

    def counters(self) -> list[OpCounters]:
        """Counters of every operation."""
        return [
            OpCounters(
                name=stage.stats.name,
                records_in=stage.stats.records_in,
                records_out=stage.stats.records_out,
                late=stage.stats.late_records,
                skipped=stage.counts.skipped,
                retried=stage.counts.retried,
                dead_letters=stage.counts.dead_letters,
            )
            for stage in self.stages
        ]

    def restore(self, snapshots: Sequence[UnitSnapshot]) -> None:
        """Go on from the last of these snapshots; all of them together hold the state."""
        last = snapshots[-1]
        by_name = {counters.name: counters for counters in last.operations}
        for stage in self.stages:
            counters = by_name.get(stage.stats.name)
            if counters is not None:
                stats = stage.stats
                stats.records_in, stats.records_out = counters.records_in, counters.records_out
                stats.late_records = counters.late
                stage.counts = ErrorCounts(counters.skipped, counters.retried, counters.dead_letters)
        if self.stateful is not None:
            (self._ahead.restore if self._ahead is not None else restore_state)(
                self.stateful, [each.state for each in snapshots if each.state is not None]
            )
            self._ahead = None
        self.restore_sinks(last.epoch, last.sinks)

    def restore_sinks(self, epoch: int, held: Mapping[str, bytes | None]) -> None:
        """Have the sinks go on after ``epoch``."""
        for sink in self.sinks:
            sink.writer.restore(epoch, held.get(sink.name))

    def uploads(self) -> tuple[Callable[[], None], ...]:
        """Take what is left to do until what the sinks have prepared is durable."""
        return tuple(upload for sink in self.sinks for upload in sink.uploads())

    @property
    def is_filling(self) -> bool:
        """Whether a sink has as much as it takes in an epoch."""
        return any(sink.writer.is_full for sink in self.sinks)

    def finish(self) -> None:
        """Wait until all that the sinks have committed is visible."""
        for sink in self.sinks:
            sink.finish()

    def close(self) -> None:
        """Close the sinks' writers, and what a user's functions have opened."""
        if self.stateful is not None:
            self.stateful.close()
        for sink in self.sinks:
            sink.writer.close()
