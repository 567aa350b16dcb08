"""Units at work: a chain behind its inputs (`InputUnit`) or a source (`SourceUnit`). Pure: the clock is handed in.

How an input unit treats a block, after its records have gone through the chain:

==========  =================================================  =====================================================
mark        when                                               then
==========  =================================================  =====================================================
none        always                                             event time advances to the least of the active inputs
epoch n     some other input has not brought its marker        this input waits (its blocks stay in their log)
epoch n     every input has brought it or ended                sinks prepare n, the marker goes on, all inputs resume
end         other inputs are still open                        the input no longer counts
end         it was the last one                                windows close, sinks prepare, the end goes on
==========  =================================================  =====================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.connectors.base import SourceReader
from penstock.dataset import Block, Mark
from penstock.engine.chain import Chain, ClockNs
from penstock.engine.edges import EdgeInput, EdgeOutput, Span
from penstock.engine.snapshot import Compaction, InputState, OpCounters, UnitSnapshot
from penstock.metrics import OpStats
from penstock.metrics.stats import StatsMessage
from penstock.metrics.times import later
from penstock.pipeline.plan import Plan, UnitSpec
from penstock.types import Record

BLOCK_RECORDS_MAX = 8_192
_FIRST_BLOCK_RECORDS = 64


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


@dataclass(slots=True)
class _Begun:
    """A block that is being worked on, piece by piece."""

    source: EdgeInput
    block: Block
    rows: list[Record]
    at: int = 0
    results: list[Record] = field(default_factory=list)
    event_time_us_max: int | None = None


def fit_records(records_max: int, count: int, took_ns: int, work_us: int) -> int:
    """How many records to take at once, so that they are about ``work_us`` of work; learned from the last ``count``."""
    if took_ns <= 0:
        return records_max
    fitting = count * work_us * 1000 // took_ns
    if count * 2 >= records_max:
        return max(1, min(fitting, 2 * records_max, BLOCK_RECORDS_MAX))
    return max(1, (records_max + fitting) // 2) if fitting < records_max else records_max


class InputUnit(Unit):
    """A unit that reads other units."""

    def __init__(
        self,
        spec: UnitSpec,
        instance: int,
        plan: Plan,
        inputs: list[EdgeInput],
        outputs: list[EdgeOutput],
        clock_ns: ClockNs,
    ) -> None:
        super().__init__(spec, instance, plan, outputs, clock_ns)
        self.inputs = inputs
        self._open = len(inputs)
        self._begun: _Begun | None = None
        self._piece_records = BLOCK_RECORDS_MAX
        self._clock_ns = clock_ns
        self._work_us = plan.options.block_work_us
        self._idle_us = plan.options.idle_us
        self._shown_us = 0
        self._turn = 0
        self._next_id = 0
        # With one input and no state, block i of the input is block i of the output.
        self._same_ids = len(inputs) == 1 and self.chain.stateful is None
        if not inputs:
            # An instance that nobody sends to (fewer producers than instances) has nothing to wait for.
            self._mark(Mark.END, 0, 0, [])

    def step(self) -> bool:
        """Handle one block, if there is one and room for its results."""
        if self.finished or not self.has_room:
            return False
        if self._begun is not None:
            self._go_on(self._begun)
            return True
        inputs = self.inputs
        for i in range(self._turn, self._turn + len(inputs)):
            each = inputs[i % len(inputs)]
            if not each.aligned and not each.ended and each.peek() is not None:
                self._turn = (i + 1) % len(inputs)
                self._handle(each, each.pop())
                return True
        return False

    def _go_on(self, begun: _Begun) -> None:
        """Run the next piece of a block whose records take long, so that the worker stays responsive between pieces."""
        count, before_ns = self._piece_records, self._clock_ns()
        piece = begun.rows[begun.at : begun.at + count]
        begun.at += count
        begun.results += self.chain.push(piece, begun.block.due_us)
        begun.event_time_us_max = later(begun.event_time_us_max, self.chain.event_time_us_max)
        self._piece_records = fit_records(count, len(piece), self._clock_ns() - before_ns, self._work_us)
        if begun.at >= len(begun.rows):
            self._begun = None
            self._span.event_time_us_max = begun.event_time_us_max
            self._finish_block(begun.source, begun.block, begun.results)

    def _input_states(self) -> list[InputState]:
        return [each.state() for each in self.inputs]

    def restore(self, snapshots: Sequence[UnitSnapshot]) -> None:
        super().restore(snapshots)
        self._next_id = snapshots[-1].next_id
        self._open = sum(not each.ended for each in self.inputs)

    def queued_records(self) -> int:
        """Records that wait before the unit."""
        return sum(each.queued_records() for each in self.inputs)

    def _handle(self, source: EdgeInput, block: Block) -> None:
        self._span.due_us = block.due_us
        source.audit(block)
        if block.count:
            self._begun = begun = _Begun(source, block, block.as_rows(self.spec.schema))
            self._go_on(begun)
        else:
            self._span.event_time_us_max = None
            self._finish_block(source, block, [])

    def _finish_block(self, source: EdgeInput, block: Block, rows: list[Record]) -> None:
        """Let event time pass, and send the block's results or its marker on."""
        chain, span = self.chain, self._span
        now_us = self._clock_ns() // 1000
        source.idle = block.idle
        if chain.stateful is not None:
            source.saw_event_time(block.event_time_us_max)
            reached = self._event_time_us(now_us)
            if reached is not None:
                rows = rows + chain.advance(reached, block.due_us)
                # Results that go into another window have brought event time of their own.
                span.event_time_us_max = later(span.event_time_us_max, chain.event_time_us_max)
        elif chain.has_event_time:
            if span.event_time_us_max is not None:
                source.shown_us = now_us
            source.saw_event_time(span.event_time_us_max)
            span.event_time_us_max = self._event_time_us(now_us)
        span.idle = all(each.idle or each.ended for each in self.inputs)
        if chain.has_event_time:
            # Whoever waits for this unit's event time must not wait for ever when filters or keys leave it none.
            if span.event_time_us_max is not None or not self._shown_us:
                self._shown_us = now_us
            span.idle = span.idle or now_us - self._shown_us >= self._idle_us
        first, last = self._ids(block)
        if block.mark is Mark.NONE:
            span.first, span.last = first, last
            self._emit(rows)
            return
        if block.mark is Mark.END:
            source.ended = True
            self._open -= 1
        else:
            source.aligned = True
        self._align(first, last, rows)

    def _ids(self, block: Block) -> tuple[int, int]:
        if self._same_ids:
            return block.first, block.last
        self._next_id += 1
        return self._next_id - 1, self._next_id - 1

    def _event_time_us(self, now_us: int) -> int | None:
        """Least event time of the inputs that count; None while one of them has shown none."""
        reached: int | None = None
        tells = self.chain.stateful is None
        for each in self.inputs:
            if each.ended or each.idle:
                continue
            if tells:
                # Event time is read off the records here: an input whose records show none for a while does not count.
                each.shown_us = each.shown_us or now_us
                if now_us - each.shown_us >= self._idle_us:
                    continue
            if each.event_time_us is None:
                return None
            if reached is None or each.event_time_us < reached:
                reached = each.event_time_us
        return reached

    def _align(self, first: int, last: int, rows: list[Record]) -> None:
        if self._open == 0:
            if self.chain.stateful is not None:
                rows = rows + self.chain.advance(None, self._span.due_us)
            self._mark(Mark.END, first, last, rows)
        elif all(each.aligned or each.ended for each in self.inputs):
            for each in self.inputs:
                each.aligned = False
            self._mark(Mark.EPOCH, first, last, rows)
        else:
            self._span.first, self._span.last = first, last
            self._emit(rows)

    def figures(self) -> list[StatsMessage]:
        if self.chain.stages:
            self.chain.stages[0].stats.queue_records = self.queued_records()
        return super().figures()


class SourceUnit(Unit):
    """A unit that reads its share of a source's partitions and cuts them into blocks."""

    def __init__(self, spec: UnitSpec, instance: int, plan: Plan, outputs: list[EdgeOutput], clock_ns: ClockNs) -> None:
        super().__init__(spec, instance, plan, outputs, clock_ns)
        assert spec.source is not None
        self.readers: dict[int, SourceReader] = {
            p: spec.source.reader(p, spec.partitions, plan.start_us)
            for p in range(spec.partitions)
            if p % spec.instances == instance
        }
        self.stats = OpStats(spec.name, "record")
        self._options = plan.options
        self._clock_ns = clock_ns
        self._next_id = 0
        self._marker: int | None = None
        self._drain = False
        self._paused = False
        self._not_before_us = 0
        self._active_us = 0
        # By partition: when it last showed an event time (the start counts), and the largest one.
        self._shown: dict[int, tuple[int, int | None]] = dict.fromkeys(self.readers, (plan.start_us, None))
        self._records_max = _FIRST_BLOCK_RECORDS

    @property
    def offsets(self) -> dict[int, int]:
        """Next offset of each partition."""
        return {partition: reader.offset for partition, reader in self.readers.items()}

    def _offsets(self) -> dict[int, int]:
        return self.offsets

    def _counters(self) -> list[OpCounters]:
        own = OpCounters(self.stats.name, self.stats.records_in, self.stats.records_out, 0, 0, 0)
        return [own, *super()._counters()]

    def restore(self, snapshots: Sequence[UnitSnapshot]) -> None:
        last = snapshots[-1]
        own = last.operations[0]
        self.stats.records_in, self.stats.records_out = own.records_in, own.records_out
        super().restore(snapshots)
        self._next_id = last.next_id
        for partition, offset in last.offsets.items():
            self.readers[partition].seek(offset)

    def close(self) -> None:
        super().close()
        for reader in self.readers.values():
            reader.close()

    def begin_epoch(self, epoch: int) -> None:
        """Put the marker of ``epoch`` into the output at the next step, unless it has been there."""
        if epoch > self.done_epoch:
            self._marker = epoch

    def drain(self) -> None:
        """Read nothing more and end."""
        self._drain = True

    def pause(self) -> None:
        """Read nothing more, but pass markers on."""
        self._paused = True

    def step(self, now_us: int) -> bool:
        """Send a marker, or read what is due and run it through the chain."""
        if self.finished:
            return False
        if self._marker is not None:
            self._span.epoch, self._marker = self._marker, None
            self._mark(Mark.EPOCH, self._next_id, self._next_id, [])
            self._next_id += 1
            return True
        if self._drain:
            return self._end()
        if self._paused or now_us < self._not_before_us or not self.has_room:
            return False
        if not self._active_us:
            # Partitions are waited for from the first read on: a restored source has been silent for its recovery.
            self._shown = {p: (max(now_us, shown_us), seen_us) for p, (shown_us, seen_us) in self._shown.items()}
        worked = False
        open_partitions = False
        for partition, reader in self.readers.items():
            wake_us = reader.wake_us(now_us)
            if wake_us is None:
                continue
            open_partitions = True
            if wake_us <= now_us and self._read(partition, reader, now_us):
                worked = True
        if not open_partitions:
            return self._end()
        if not self._span.idle and now_us - (self._active_us or now_us) >= self._options.idle_us:
            self._announce_idle()
        self._active_us = self._active_us or now_us
        return worked

    def _event_time_us(self, partition: int, now_us: int) -> int | None:
        """Least event time of the partitions that have shown one lately; None while one may still show its first."""
        newest = self.chain.event_time_us_max
        if len(self.readers) == 1 or not self.chain.has_event_time:
            return newest
        if newest is not None:
            self._shown[partition] = now_us, later(self._shown[partition][1], newest)
        reached: int | None = None
        for each, (shown_us, event_time_us) in self._shown.items():
            if now_us - shown_us >= self._options.idle_us or self.readers[each].wake_us(now_us) is None:
                continue
            if event_time_us is None:
                return None
            reached = event_time_us if reached is None else min(reached, event_time_us)
        return reached

    def _read(self, partition: int, reader: SourceReader, now_us: int) -> bool:
        batch = reader.poll(now_us, self._records_max)
        if batch is None:
            return False
        count, span, stats = len(batch.rows), self._span, self.stats
        before_ns = self._clock_ns()
        rows = self.chain.push(batch.rows, batch.due_us)
        span.first = span.last = self._next_id
        self._next_id += 1
        span.due_us = batch.due_us
        if not self.chain.has_event_time or self.chain.event_time_us_max is not None:
            # Records that a filter takes out before the window tell no event time, and must not hold it back for ever.
            self._active_us = now_us
            span.idle = False
        span.event_time_us_max = self._event_time_us(partition, now_us)
        self._emit(rows)
        after_ns = self._clock_ns()
        stats.records_in += count
        stats.records_out += count
        stats.blocks += 1
        stats.busy_ns += before_ns - now_us * 1000
        stats.latency_us.record(before_ns // 1000 - batch.due_us, count)
        full = count == self._records_max
        self._records_max = fit_records(self._records_max, count, after_ns - now_us * 1000, self._options.block_work_us)
        # A full block means that more is due: read on at once. Otherwise let a little gather.
        self._not_before_us = 0 if full else now_us + self._options.linger_us
        return True

    def _announce_idle(self) -> None:
        self._span.idle = True
        self._span.first = self._span.last = self._next_id
        self._next_id += 1
        self._span.event_time_us_max = None
        self._emit([])

    def _end(self) -> bool:
        self._mark(Mark.END, self._next_id, self._next_id, [])
        for reader in self.readers.values():
            reader.close()
        return True

    def wake_us(self, now_us: int) -> int | None:
        """When the source has something to do; None if only room, or nothing, is awaited."""
        if self.finished:
            return None
        if self._marker is not None or self._drain:
            return now_us
        if self._paused or not self.has_room:
            return None
        wakes = [wake for reader in self.readers.values() if (wake := reader.wake_us(now_us)) is not None]
        if not wakes:
            return max(now_us, self._not_before_us)
        soonest = max(min(wakes), self._not_before_us)
        if not self._span.idle:
            soonest = min(soonest, max(self._active_us + self._options.idle_us, now_us + 1))
        return soonest

    def figures(self) -> list[StatsMessage]:
        now_us = self._clock_ns() // 1000
        stats = self.stats
        stats.queue_records = sum(reader.backlog_records(now_us) for reader in self.readers.values())
        own = StatsMessage(
            stats.name, self.spec.id, self.instance, stats.form, stats.records_in, stats.records_out, stats.blocks,
            stats.busy_ns, stats.queue_records, 0, 0, 0, 0, stats.latency_us.counts, stats.latency_us.maximum,
        )  # fmt: skip
        return [own, *super().figures()]
