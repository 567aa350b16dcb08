"""A unit that reads other units: pieces of blocks, event time, alignment of markers.

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

from penstock.dataset import Block, Mark
from penstock.engine.chain import ClockNs, Passed
from penstock.engine.detour import Detour, Item, Marker
from penstock.engine.edges import EdgeInput, EdgeOutput
from penstock.engine.pool import SlotPool
from penstock.engine.rerouting import ReroutableUnit
from penstock.engine.snapshot import InputState, UnitSnapshot
from penstock.engine.unit import BLOCK_RECORDS_MAX, Capture, fit_records
from penstock.metrics.stats import StatsMessage
from penstock.pipeline.plan import Plan, UnitSpec
from penstock.types import Record


@dataclass(slots=True)
class _Begun:
    """A block that is being worked on, piece by piece."""

    source: EdgeInput
    block: Block
    rows: list[Record]
    at: int = 0
    passed: Passed = field(default_factory=lambda: Passed([]))


class InputUnit(ReroutableUnit):
    """A unit that reads other units."""

    def __init__(
        self,
        spec: UnitSpec,
        instance: int,
        plan: Plan,
        inputs: list[EdgeInput],
        outputs: list[EdgeOutput],
        clock_ns: ClockNs,
        pool: SlotPool,
        owner: tuple[int, int],
    ) -> None:
        super().__init__(spec, instance, plan, outputs, clock_ns, pool, owner)
        self.inputs = inputs
        self._open = len(inputs)
        self._begun: _Begun | None = None
        self._piece_records = BLOCK_RECORDS_MAX
        self._work_us = plan.options.block_work_us
        self._idle_us = plan.options.idle_us
        self._shown_us = 0
        self._turn = 0
        self._next_id = 0
        # With one input and no state, block i of the input is block i of the output.
        self._same_ids = len(inputs) == 1 and self.chain.stateful is None
        if not inputs:
            # An instance that nobody sends to (fewer producers than instances) has nothing to wait for.
            self._mark(Mark.END, 0, 0, Passed([]))

    def step(self) -> bool:
        """Handle one block, if there is one and room for its results."""
        if self.finished or not self.has_room:
            return False
        if self._begun is not None:
            self._go_on(self._begun)
            return True
        if self._order is not None:
            self._settle(self._clock_ns() // 1000)
        if self.detour is not None:
            return self._step_detour(self.detour, self._clock_ns() // 1000)
        if self._take_block():
            return True
        if self._hand_over is not None:
            self._nothing_to_do(self._clock_ns() // 1000)
        return False

    def _take_block(self) -> bool:
        """Handle the next block of the input whose turn it is."""
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
        until = self.detour.route.first if self.detour is not None else None
        begun.passed.add(self.chain.push(piece, begun.block.due_us, 0, until))
        self._piece_records = fit_records(count, len(piece), self._clock_ns() - before_ns, self._work_us)
        if begun.at >= len(begun.rows):
            self._begun = None
            self._span.event_time_us_max = begun.passed.event_time_us_max
            self._finish_block(begun.source, begun.block, begun.passed)

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
        if self.detour is not None and self.detour.route.first == 0:
            # Nothing is before the range: the block goes there as it is.
            self._enter(self.detour, source, block, block, Passed([]))
        elif block.count:
            self._begun = begun = _Begun(source, block, block.as_rows(self.spec.schema))
            if self._tapped is not None:
                self._tapped += begun.rows
            self._go_on(begun)
        else:
            self._span.event_time_us_max = None
            self._finish_block(source, block, Passed([]))

    def _finish_block(self, source: EdgeInput, block: Block, passed: Passed) -> None:
        """Let event time pass, and send the block's results or its marker on."""
        chain, span = self.chain, self._span
        now_us = self._clock_ns() // 1000
        if self.detour is not None:
            self._leave_chain(self.detour, source, block, passed)
            return
        source.idle = block.idle
        if chain.stateful is not None:
            source.saw_event_time(block.event_time_us_max)
            reached = self._event_time_us(now_us)
            if reached is not None:
                # Results that go into another window have brought event time of their own.
                passed.add(chain.advance(reached, block.due_us))
                span.event_time_us_max = passed.event_time_us_max
        elif chain.has_event_time:
            if span.event_time_us_max is not None:
                source.shown_us = now_us
            source.saw_event_time(span.event_time_us_max)
            span.event_time_us_max = self._event_time_us(now_us)
        self._show_idle(now_us)
        first, last = self._ids(block)
        if block.mark is Mark.NONE:
            span.first, span.last = first, last
            self._emit(passed)
        else:
            self._note_mark(source, block)
            self._align(first, last, passed)
        if self._hand_over is not None and block.count:
            self._output(block.due_us, self._clock_ns() // 1000)

    def _show_idle(self, now_us: int) -> None:
        span, detour = self._span, self.detour
        # What is still under way on a detour came before its input fell silent.
        span.idle = all(
            (each.idle or each.ended) and not (detour is not None and detour.holds(each)) for each in self.inputs
        )
        if self.chain.has_event_time:
            # Whoever waits for this unit's event time must not wait for ever when filters or keys leave it none.
            if span.event_time_us_max is not None or not self._shown_us:
                self._shown_us = now_us
            span.idle = span.idle or now_us - self._shown_us >= self._idle_us

    def _note_mark(self, source: EdgeInput, block: Block) -> None:
        if block.mark is Mark.END:
            source.ended = True
            self._open -= 1
        else:
            source.aligned = True

    def _ids(self, block: Block) -> tuple[int, int]:
        if self._same_ids:
            return block.first, block.last
        self._next_id += 1
        return self._next_id - 1, self._next_id - 1

    def _event_time_us(self, now_us: int) -> int | None:
        """Least event time of the inputs that count; None while one of them has shown none."""
        reached: int | None = None
        tells = self.chain.stateful is None
        detour = self.detour
        for each in self.inputs:
            if (each.ended or each.idle) and not (detour is not None and detour.holds(each)):
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

    def _align(self, first: int, last: int, passed: Passed) -> None:
        if self._open == 0:
            if self.chain.stateful is not None:
                passed.add(self.chain.advance(None, self._span.due_us))
            self._mark(Mark.END, first, last, passed)
        elif all(each.aligned or each.ended for each in self.inputs):
            for each in self.inputs:
                each.aligned = False
            self._mark(Mark.EPOCH, first, last, passed)
        else:
            self._span.first, self._span.last = first, last
            self._emit(passed)

    # --- the detour ---------------------------------------------------------------------------------------------------

    def _step_detour(self, detour: Detour, now_us: int) -> bool:
        worked = self._release(detour, now_us)
        if self.finished or self._ending:
            return worked
        for key in detour.ripe(now_us):
            if detour.room > 0 or detour.closing:
                self._cut(detour, key, now_us)
                worked = True
        full = any(held.count >= detour.records_max for held in detour.gathering.values())
        if not detour.closing and not full and self._take_block():
            worked = True
        if self._hand_over is not None and not worked:
            self._nothing_to_do(now_us)
        return worked

    def _leave_chain(self, detour: Detour, source: EdgeInput, block: Block, passed: Passed) -> None:
        """Let event time pass before the range, and gather what the operations there have left of a block."""
        chain, first, now_us = self.chain, detour.route.first, self._clock_ns() // 1000
        if chain.stateful is not None:
            source.idle = block.idle
            source.saw_event_time(block.event_time_us_max)
            reached = self._event_time_us(now_us)
            if reached is not None:
                passed.add(chain.advance(reached, block.due_us, first))
        rows = passed.rows
        left = Block(block.first, block.last, 0, rows or None, None, len(rows), block.due_us)
        self._enter(detour, source, block, left, passed)

    def _enter(self, detour: Detour, source: EdgeInput, came: Block, block: Block, passed: Passed) -> None:
        """Gather a block for the range; behind its marker comes nothing before the marker is through."""
        now_us = self._clock_ns() // 1000
        if self.chain.stateful is None:
            source.idle = came.idle
        # Behind an operation with state there is one stream, whose order counts, whatever its inputs were.
        key, origin = (self.inputs.index(source), source) if self.chain.stateful is None else (0, None)
        detour.gather(key, origin, block, self._sides(passed, detour.route.first), now_us)
        if came.mark is Mark.NONE:
            return
        self._note_mark(source, came)
        if self._open == 0:
            mark = Mark.END
            if self.chain.stateful is not None:
                ended = self.chain.advance(None, came.due_us, detour.route.first)
                last = Block(0, 0, 0, ended.rows or None, None, len(ended.rows), came.due_us)
                detour.gather(key, origin, last, self._sides(ended, detour.route.first), now_us)
        elif all(each.aligned or each.ended for each in self.inputs):
            mark = Mark.EPOCH
            for each in self.inputs:
                each.aligned = False
        else:
            return
        for other in [each for each in detour.gathering if each != key]:
            self._cut(detour, other, now_us)
        if self._same_ids:
            # The marker and its block's records have one id.
            capture = self._capture(self._before(detour.route))
            self._cut(detour, key, now_us, Marker(mark, block.last, block.last, capture))
            self._ending = mark is Mark.END
        else:
            self._cut(detour, key, now_us)
            self._next_id += 1
            self._in_line(detour, mark, (self._next_id - 1, self._next_id - 1))

    def _cut(self, detour: Detour, key: int, now_us: int, marker: Marker | None = None) -> None:
        if self._same_ids:
            blocks = detour.gathering[key].blocks
            ids = blocks[0].first, blocks[-1].last
        else:
            ids = self._next_id, self._next_id
            self._next_id += 1
        detour.cut(key, ids, self.spec.schema_at(detour.route.first), now_us, marker)

    def _passed(self, item: Item, event_time_us_max: int | None, now_us: int) -> None:
        span = self._span
        span.event_time_us_max = event_time_us_max
        if self.chain.stateful is None and self.chain.has_event_time:
            assert isinstance(item.origin, EdgeInput)
            if event_time_us_max is not None:
                item.origin.shown_us = now_us
            item.origin.saw_event_time(event_time_us_max)
            span.event_time_us_max = self._event_time_us(now_us)
        self._show_idle(now_us)

    def _end_mark(self, mark: Mark, capture: Capture) -> None:
        if self.detour is not None and self.chain.stateful is None:
            # Event time passes where records come back, which is later than the marker came.
            for state, each in zip(capture.inputs, self.inputs, strict=True):
                state.event_time_us = each.event_time_us
        super()._end_mark(mark, capture)

    def _came_back(self, now_us: int) -> None:
        self._shown_us = self._shown_us and now_us
        for each in self.inputs:
            each.shown_us = each.shown_us and now_us

    def waiting_records(self, now_us: int) -> int:
        del now_us
        return self.queued_records()

    def arrived_records(self, now_us: int) -> int:
        return sum(each.records_read for each in self.inputs) + self.waiting_records(now_us)

    def wake_us(self) -> int | None:
        """When a micro-batch has gathered long enough; None: only a message brings work."""
        if self.detour is None or self.finished or self._ending or not self.has_room:
            return None
        return self.detour.wake_us() if self.detour.room > 0 else None

    def figures(self) -> list[StatsMessage]:
        if self.chain.stages:
            self.chain.stages[0].stats.queue_records = self.queued_records()
        return super().figures()
