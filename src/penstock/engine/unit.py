"""What every unit is: a chain of operations, its outputs, its epoch, its snapshots. Pure: the clock is handed in."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.dataset import Mark
from penstock.engine.chain import Chain, ClockNs
from penstock.engine.edges import EdgeOutput, Span
from penstock.engine.snapshot import Compaction, InputState, OpCounters, UnitSnapshot
from penstock.metrics.stats import StatsMessage
from penstock.pipeline.plan import Plan, UnitSpec
from penstock.types import Record

BLOCK_RECORDS_MAX = 8_192


def fit_records(records_max: int, count: int, took_ns: int, work_us: int) -> int:
    """How many records to take at once, so that they are about ``work_us`` of work; learned from the last ``count``."""
    if took_ns <= 0:
        return records_max
    fitting = count * work_us * 1000 // took_ns
    if count * 2 >= records_max:
        return max(1, min(fitting, 2 * records_max, BLOCK_RECORDS_MAX))
    return max(1, (records_max + fitting) // 2) if fitting < records_max else records_max


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

    @property
    def has_room(self) -> bool:
        """Whether every output can take more."""
        return all(output.has_room for output in self.outputs)

    def _emit(self, rows: list[Record]) -> None:
        chain, span = self.chain, self._span
        for output in self.outputs:
            output.emit(span, chain.side(output.edge.op_index, output.edge.port, rows))
        chain.clear_sides()

    def _mark(self, mark: Mark, first: int, last: int, rows: list[Record]) -> None:
        """Send a marker on, after what belongs before it."""
        span = self._span
        span.first, span.last, span.mark = first, last, mark
        epoch = span.epoch
        for sink in self.chain.sinks:
            sink.prepare(epoch)
        self._emit(rows)
        span.mark = Mark.NONE
        self.done_epoch = epoch
        span.epoch = epoch + 1
        self.finished = mark is Mark.END
        self.snapshots.append(self._snapshot(epoch, last + 1))

    def _snapshot(self, epoch: int, next_id: int) -> UnitSnapshot:
        stateful, full, state = self.chain.stateful, True, None
        if stateful is not None:
            full = self._compaction.wants_full()
            state = stateful.snapshot(full)
            self._compaction.wrote(full, len(state))
        sinks = {sink.name: sink.writer.snapshot(epoch) for sink in self.chain.sinks}
        written = [output.records_written for output in self.outputs]
        return UnitSnapshot(
            epoch,
            full,
            self.finished,
            next_id,
            self._input_states(),
            written,
            self._offsets(),
            self._counters(),
            sinks,
            state,
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
