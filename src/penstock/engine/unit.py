"""What every unit is: a chain of operations, its outputs, its epoch, its snapshots. Pure: the clock is handed in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.dataset import Mark
from penstock.engine.chain import Chain, ClockNs, Passed
from penstock.engine.edges import EdgeOutput, Span
from penstock.engine.snapshot import Compaction, InputState, OpCounters, UnitSnapshot
from penstock.metrics.stats import StatsMessage
from penstock.pipeline.plan import Plan, UnitSpec

BLOCK_RECORDS_MAX = 8_192


def fit_records(records_max: int, count: int, took_ns: int, work_us: int) -> int:
    """How many records to take at once, so that they are about ``work_us`` of work; learned from the last ``count``."""
    if took_ns <= 0:
        return records_max
    fitting = count * work_us * 1000 // took_ns
    if count * 2 >= records_max:
        return max(1, min(fitting, 2 * records_max, BLOCK_RECORDS_MAX))
    return max(1, (records_max + fitting) // 2) if fitting < records_max else records_max


@dataclass(slots=True)
class Capture:
    """What a snapshot takes when the marker comes to a unit; the rest is taken when the marker leaves it."""

    full: bool
    state: bytes | None
    inputs: list[InputState]
    offsets: dict[int, int]
    operations: list[OpCounters]
    before: int
    """How many of the operations are as they were then; the others have handled what came before the marker later."""


class Unit:
    """What both kinds of unit share: the chain, the outputs, the epoch."""

    def __init__(self, spec: UnitSpec, instance: int, plan: Plan, outputs: list[EdgeOutput], clock_ns: ClockNs) -> None:
        self.spec = spec
        self.instance = instance
        self.outputs = outputs
        self.chain = Chain(spec, instance, plan, clock_ns)
        self.done_epoch = 0
        """Last epoch whose marker has passed through."""
        self.finished = False
        self.snapshots: list[UnitSnapshot] = []
        """Taken and not yet handed over to be stored."""
        self._span = Span()
        self._compaction = Compaction()
        self._clock_ns = clock_ns

    @property
    def has_room(self) -> bool:
        """Whether every output can take more."""
        return all(output.has_room for output in self.outputs)

    def _emit(self, passed: Passed) -> None:
        span = self._span
        for output in self.outputs:
            output.emit(span, passed.at(output.edge.op_index, output.edge.port))

    def _mark(self, mark: Mark, first: int, last: int, passed: Passed) -> None:
        """Send a marker on, after what belongs before it."""
        capture = self._capture()
        self._begin_mark(mark, first, last)
        self._emit(passed)
        self._end_mark(mark, capture)

    def _begin_mark(self, mark: Mark, first: int, last: int) -> None:
        span = self._span
        span.first, span.last, span.mark = first, last, mark
        for sink in self.chain.sinks:
            sink.prepare(span.epoch)

    def _end_mark(self, mark: Mark, capture: Capture) -> None:
        span = self._span
        span.mark = Mark.NONE
        epoch = self.done_epoch = span.epoch
        span.epoch = epoch + 1
        self.finished = mark is Mark.END
        self.snapshots.append(self._snapshot(epoch, span.last + 1, capture))

    def _capture(self, before: int | None = None) -> Capture:
        """Take what the marker finds; ``before``: only so many operations have handled all that came before it."""
        stateful, full, state = self.chain.stateful, True, None
        if stateful is not None:
            full = self._compaction.wants_full()
            state = stateful.snapshot(full)
            self._compaction.wrote(full, len(state))
        operations = self._counters()
        before = len(operations) if before is None else before
        return Capture(full, state, self._input_states(), self._offsets(), operations, before)

    def _snapshot(self, epoch: int, next_id: int, capture: Capture) -> UnitSnapshot:
        sinks = {sink.name: sink.writer.snapshot(epoch) for sink in self.chain.sinks}
        written = [output.records_written for output in self.outputs]
        operations = capture.operations[: capture.before] + self._counters()[capture.before :]
        return UnitSnapshot(
            epoch,
            capture.full,
            self.finished,
            next_id,
            capture.inputs,
            written,
            capture.offsets,
            operations,
            sinks,
            capture.state,
        )

    def _input_states(self) -> list[InputState]:
        return []

    def _offsets(self) -> dict[int, int]:
        return {}

    def _counters(self) -> list[OpCounters]:
        return self.chain.counters()

    def restore(self, snapshots: Sequence[UnitSnapshot]) -> None:
        """Go on from the last of these snapshots."""
        last = snapshots[-1]
        self.chain.restore(snapshots)
        self.snapshots.clear()
        self.done_epoch = last.epoch
        self.finished = last.finished
        for output, written in zip(self.outputs, last.written or [0] * len(self.outputs), strict=True):
            output.records_written = written
        self._span.epoch = last.epoch + 1

    def begin_after(self, epoch: int) -> None:
        """Begin with nothing in a job that goes on after ``epoch``: a unit that the last run did not have."""
        self.chain.restore_sinks(epoch, {})
        self.done_epoch = epoch
        self._span.epoch = epoch + 1

    def close(self) -> None:
        """Free what the unit holds."""
        self.chain.close()

    def commit(self, epoch: int) -> None:
        """Forget what was kept for replay up to ``epoch``."""
        for output in self.outputs:
            for log in output.logs:
                log.commit(epoch)

    def figures(self) -> list[StatsMessage]:
        """Figures of the unit's operations."""
        return self.chain.figures()
