"""A unit instance: takes records from its input, has them computed one way or another, lets results out in order.

`Unit` joins an input (`engine/inputs`), the line (`engine/line.py`), a way (`engine/ways`) and the outputs
(`engine/edges.py`). Ids, epoch markers, event time and snapshots are settled here, once for all ways. Pure: the time
and the clock are handed in.

A switch to another way takes effect when the line is empty, or at once where both ways begin at the same operation:

=========  ============================================  ======================================================
way        event                                         effect
=========  ============================================  ======================================================
any        records come, the line is empty, way is here  the whole chain, outputs
any        records come                                  operations before the range; the way gathers them
any        a marker comes                                what has gathered is cut; the marker goes into the line
any        a switch to a way that begins elsewhere       nothing is taken; when the line is empty: the new way
any        a switch to a way that begins there too       the new way takes what comes next
any        the instance is rolled back                   the line is forgotten, results are refused
=========  ============================================  ======================================================
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.dataset import Mark, unpack
from penstock.engine.chain import Chain, ClockNs, Passed, SinkOperator
from penstock.engine.edges import EdgeInput, EdgeOutput, Span
from penstock.engine.figures import count_away
from penstock.engine.inputs import Input, Logs, Readers, Taken
from penstock.engine.inputs.base import BLOCK_RECORDS_MAX, fit_records
from penstock.engine.inspect import InputView, UnitView
from penstock.engine.line import Item, Line, Marker
from penstock.engine.samples import Tap
from penstock.engine.snapshot import Capture, Compaction, OpCounters, UnitSnapshot
from penstock.engine.switch import Switch, Switches
from penstock.engine.ways import Here, Slots, Way
from penstock.engine.ways.pool import SlotPool
from penstock.metrics.stats import StatsMessage
from penstock.operators import MAIN, Form
from penstock.pipeline.plan import Plan, UnitSpec
from penstock.types import Record

_FIRST_READ_RECORDS = 64


class Unit:
    """One instance of a unit.

    Parameters
    ----------
    logs : list of EdgeInput or None
        The producers that it reads; None: it reads its source.
    """

    def __init__(
        self,
        spec: UnitSpec,
        instance: int,
        plan: Plan,
        logs: list[EdgeInput] | None,
        outputs: list[EdgeOutput],
        clock_ns: ClockNs,
        pool: SlotPool,
    ) -> None:
        self.spec = spec
        self.instance = instance
        self.outputs = outputs
        self.chain = chain = Chain(spec, instance, plan, clock_ns)
        self.line = Line()
        self.done_epoch = 0
        """Last epoch whose marker has passed through."""
        self.finished = False
        self.snapshots: list[UnitSnapshot] = []
        """Taken and not yet handed over to be stored."""
        self.input: Input
        if logs is None:
            self.input = Readers(spec, instance, plan, self._holds, tells=chain.has_event_time)
        else:
            tells, keeps_state = chain.has_event_time, chain.stateful is not None
            idle_us = plan.options.idle_us
            self.input = Logs(logs, spec.schema, idle_us, self._holds, tells=tells, keeps_state=keeps_state)
        self._ports = [
            (each, None if each.edge.port == MAIN else (each.edge.op_index, each.edge.port)) for each in outputs
        ]
        """The outputs, and which side output each of them is, if it is one."""
        self._logs = [log for output in outputs for log in output.logs]
        self._here = Here(len(spec.ops), self._leave)
        self.way: Way = self._here
        self.switches = Switches()
        self._pool = pool
        self._span = Span()
        self._compaction = Compaction()
        self._clock_ns = clock_ns
        self._work_us = plan.options.block_work_us
        self._records_max = _FIRST_READ_RECORDS if logs is None else BLOCK_RECORDS_MAX
        self.is_blocked = False
        """An output had no room at the last step."""
        self._ending = False
        """The end is in the line: nothing more is taken."""
        self.tap: Tap | None = None
        """Keeps some of what comes to the unit, while a sample of it is wanted."""

    # --- work ---------------------------------------------------------------------------------------------------------

    def step(self, now_us: int) -> bool:
        """Let out what is complete, and take the next portion of the input; say whether there was any of it."""
        if self.finished:
            return False
        self.input.wake_up(now_us)
        if self.switches.wanted is not None:
            self._switch(self.switches.wanted, now_us)
        worked = self._release(now_us) if self.line else False
        if self._ending or self.finished:
            return worked
        marker = self.input.marker(now_us)
        if marker is not None:
            self._take_marker(*marker, now_us)
            return True
        if self.switches.wanted is not None and self.chain.guard is None:
            # The way before finishes what it has.
            self.way.flush(now_us)
            return self._release(now_us) or worked
        self.is_blocked = not self.has_room
        if self.is_blocked:
            self.input.block(now_us)
            return worked
        return self._take(now_us) or worked

    def _take(self, now_us: int) -> bool:
        """Take the next portion of the input."""
        way, source = self.way, self.input
        if way is self._here or way.has_room:
            source.unblock(now_us)
        else:
            source.block(now_us)
        worked = way.cut(now_us)
        if way.range.first < 0:
            worked |= self._take_stretches(now_us)
        else:
            open_blocks = way.until is None or way.until > 0
            before_ns = self._clock_ns()
            taken = source.take(now_us, self._records_max, self._is_full, open_blocks=open_blocks)
            if taken is not None:
                self._enter(taken, before_ns, now_us)
                worked = True
        if not self._is_away:
            if source.watch(now_us):
                self._announce_idle()
            if self.switches.is_measuring and not worked and not source.waiting_records(now_us):
                self.switches.nothing_to_do()
        return worked

    def _enter(self, taken: Taken, before_ns: int, now_us: int) -> None:
        """Run a portion through the operations before the range, and hand it to the way."""
        chain, way, rows = self.chain, self.way, taken.rows
        count = len(rows)
        if isinstance(self.input, Readers):
            read_ns = self._clock_ns()
            self.input.count_read(count, read_ns - before_ns, taken.due_us, read_ns // 1000)
        if self.tap is not None:
            self.tap.rows += rows
        passed = chain.push(rows, taken.due_us, 0, way.until, taken.place) if rows else Passed([])
        reached = self.input.entered(taken, now_us)
        if reached is not None:
            passed.add(chain.advance(reached, taken.due_us, way.until))
        if chain.stateful is not None:
            taken.origin = 0  # behind state there is one stream, whose order counts, whatever its inputs were
        way.take(taken, passed, now_us)
        if count:
            self._records_max = fit_records(self._records_max, count, self._clock_ns() - before_ns, self._work_us)

    def _leave(self, taken: Taken, passed: Passed, now_us: int) -> None:
        """Let out what has passed the whole chain here."""
        span = self._span
        span.first = span.last = self.line.number()
        span.due_us = taken.due_us
        self.input.passed(taken.origin, passed.event_time_us_max, self.input.clock_us(now_us), span)
        self._emit(passed.rows, passed.sides)
        if self.switches.is_measuring and taken.rows:
            self.switches.output(taken.due_us, self._clock_ns() // 1000)

    def _emit(self, rows: list[Record], sides: dict[tuple[int, str], list[Record]]) -> None:
        span = self._span
        for output, side in self._ports:
            output.emit(span, rows if side is None else sides.get(side, []))

    def _take_stretches(self, now_us: int) -> bool:
        way, source = self.way, self.input
        assert isinstance(way, Slots)
        assert isinstance(source, Readers)
        stretches = source.stretches(now_us, way.records_max, way.interval_us, way.slots, way.room)
        for stretch in stretches:
            way.take_stretch(stretch, now_us)
        return bool(stretches)

    def _announce_idle(self) -> None:
        """Tell those behind the unit that its input is silent."""
        span = self._span
        span.idle = True
        span.first = span.last = self.line.number()
        span.event_time_us_max = None
        self._emit([], {})

    @property
    def has_room(self) -> bool:
        """Whether every output can take more."""
        for log in self._logs:  # noqa: SIM110 (asked at every step: no generator)
            if not log.has_room:
                return False
        return True

    @property
    def _is_away(self) -> bool:
        """Whether anything is under way in the unit."""
        return bool(self.line) or self.way.gathers

    def _is_full(self, origin: int) -> bool:
        return self.way.is_full(0 if self.chain.stateful is not None else origin)

    def _holds(self, origin: int) -> bool:
        """Whether records of an input are still under way."""
        return self.line.holds(origin) or self.way.holds(origin)

    # --- markers ------------------------------------------------------------------------------------------------------

    def _take_marker(self, mark: Mark, epoch: int | None, now_us: int) -> None:
        """Put a marker into the line, behind everything that came before it."""
        way = self.way
        if mark is Mark.END and self.chain.stateful is not None:
            rest = self.chain.advance(None, self._span.due_us, way.until)
            if rest.rows or rest.sides:
                way.take(Taken([], self._span.due_us, 0), rest, now_us)
        way.flush(now_us)
        counters = self._counters()
        before = len(counters)
        if way is not self._here:
            before = max(way.range.first, 0) + (len(self.input.counters()) if way.range.first >= 0 else 0)
        self.line.append(Marker(self.line.number(), mark, epoch, self._capture(counters, before)))
        self._ending = mark is Mark.END
        self._release(now_us)

    def _capture(self, counters: list[OpCounters], before: int) -> Capture:
        """Take what the marker finds."""
        stateful, full, state = self.chain.stateful, True, None
        if stateful is not None:
            full = self._compaction.wants_full()
            state = stateful.snapshot(full)
            self._compaction.wrote(full, len(state))
        return Capture(full, state, self.input.states(), self.input.positions(), counters, before)

    def _let_marker_out(self, marker: Marker) -> None:
        """Have sinks prepare, send the marker on, and take the snapshot."""
        span = self._span
        span.first = span.last = marker.id
        span.mark = marker.mark
        if marker.epoch is not None:
            span.epoch = marker.epoch
        if not self.chain.has_event_time:
            span.event_time_us_max = None
        for sink in self.chain.sinks:
            sink.prepare(span.epoch)
        self._emit([], {})
        span.mark = Mark.NONE
        epoch = self.done_epoch = span.epoch
        span.epoch = epoch + 1
        self.input.refresh(marker.capture.inputs)
        if marker.mark is Mark.END:
            self.finished = True
            self.input.close()
            self.switches.end()
        self.snapshots.append(self._snapshot(epoch, marker))

    def _snapshot(self, epoch: int, marker: Marker) -> UnitSnapshot:
        capture = marker.capture
        return UnitSnapshot(
            epoch,
            capture.full,
            self.finished,
            marker.id + 1,
            capture.inputs,
            [output.records_written for output in self.outputs],
            capture.positions,
            capture.operations[: capture.before] + self._counters()[capture.before :],
            {sink.name: sink.writer.snapshot(epoch) for sink in self.chain.sinks},
            capture.state,
        )

    def _counters(self) -> list[OpCounters]:
        return [*self.input.counters(), *self.chain.counters()]

    # --- what comes back ----------------------------------------------------------------------------------------------

    def _release(self, now_us: int) -> bool:
        """Let out what is complete, as far as it is its turn and there is room; markers need none."""
        worked = False
        while (head := self.line.head) is not None:
            if isinstance(head, Marker):
                self.line.pop()
                self._let_marker_out(head)
            elif not head.is_complete:
                break
            elif self.has_room:
                self.line.pop()
                self._let_item_out(head, now_us)
            else:
                self.is_blocked = True
                break
            worked = True
        return worked

    def _let_item_out(self, item: Item, now_us: int) -> None:
        """Run an item through the operations behind its range, and write what comes out of it."""
        span, done = self._span, item.result.done if item.result is not None else None
        parts: dict[int, dict[int, tuple[int, bytes]]] = {}
        passed = Passed([])
        if item.given_back:
            passed = self._run_here(item)
        elif item.result is not None and done is not None:
            payloads = list(item.result.payloads)
            item.due_us = item.due_us or done.due_us
            count_away(self.chain, self.input, item, done, now_us)
            for part in done.parts:
                parts.setdefault(part.edge, {})[part.consumer] = (part.count, payloads.pop(0))
            passed.event_time_us_max = done.event_time_us_max
            after = item.range.last + 1
            if done.carried:
                schema = self.spec.schema_at(after)
                came = schema.to_rows(unpack(payloads.pop(0), schema))
                passed = self.chain.push(came, item.due_us, after, origin=item.place)
            if done.staged:
                sink = self.chain.stages[item.range.last].operator
                assert isinstance(sink, SinkOperator)
                sink.adopt(payloads.pop(0))
        span.first = span.last = item.id
        span.due_us = item.due_us
        self.input.passed(item.origin, passed.event_time_us_max, item.seen_us, span)
        for output, side in self._ports:
            if not item.given_back and output.edge.op_index in item.range:
                output.emit_parts(span, parts.get(output.edge.id, {}))
            elif side is None:
                output.emit(span, passed.rows)
            else:
                output.emit(span, (item.sides if side[0] < item.range.first else passed.sides).get(side, []))
        if item.count:
            self.switches.output(item.due_us, now_us)

    def _run_here(self, item: Item) -> Passed:
        """Run an item that was given back: should it kill this process too, careful mode will find the record."""
        schema = self.spec.schema_at(item.range.first)
        if item.payload is not None:
            columns = unpack(item.payload, schema)
        else:
            assert isinstance(self.input, Readers)
            assert item.place is not None
            before_ns = self._clock_ns()
            columns, due_us = self.input.read_again(item.place)
            after_ns = self._clock_ns()
            item.due_us = due_us or item.cut_us
            self.input.count_read(item.count, after_ns - before_ns, item.due_us, after_ns // 1000)
        return self.chain.push(schema.to_rows(columns), item.due_us, max(item.range.first, 0), origin=item.place)

    # --- switches -----------------------------------------------------------------------------------------------------

    def switch(self, switch: Switch) -> None:
        """Want another form; it is taken up between two portions."""
        self.switches.wanted = switch
        if self.finished:
            self.switches.end()

    def _switch(self, switch: Switch, now_us: int) -> None:
        """Have the new way take over, if it can now; in careful mode everything stays here."""
        if self.chain.guard is not None:
            return
        present = self.way
        if isinstance(present, Slots) and switch.range == present.range:
            present.interval_us = switch.interval_us
        elif self._is_away or self._ending:
            present.recall()
            return
        else:
            if present is not self._here:
                self.input.came_back(now_us)
            self.way = self._slots(switch) if switch.range else self._here
            self._show_forms()
        self.switches.begin(switch, now_us, self.input.waiting_records(now_us))

    def _slots(self, switch: Switch) -> Slots:
        stages = [each.stats for each in self.chain.stages[max(switch.range.first, 0) : switch.range.last + 1]]
        came = stages[0].records_in if stages else 0
        record_ns = sum(each.busy_ns for each in stages) / came if came else 0.0
        return Slots(
            switch.range,
            switch.interval_us,
            self._pool,
            self.line,
            self.spec.schema_at(switch.range.first),
            (self.spec.id, self.instance),
            self.input.clock_us,
            record_ns,
        )

    def _show_forms(self) -> None:
        for index, stage in enumerate(self.chain.stages):
            stage.stats.form = self._form(index).value
        if isinstance(self.input, Readers):
            self.input.stats.form = self._form(-1).value

    def _form(self, index: int) -> Form:
        return Form.BATCH if index in self.way.range else Form.RECORD

    # --- time ---------------------------------------------------------------------------------------------------------

    def wake_us(self, now_us: int) -> int | None:
        """When there is something to do without a message; None: only a message, or room, brings work."""
        wake_us = self._soonest_us(now_us)
        self.input.awaits(wake_us, now_us)
        return wake_us

    def _soonest_us(self, now_us: int) -> int | None:
        if self.finished or self._ending:
            return None
        away = self._is_away
        if self.input.has_marker:
            return now_us
        if self.switches.wanted is not None and self.chain.guard is None:
            return None if away else now_us  # results bring the next step
        if not self.has_room:
            return None
        wakes: list[int | None] = [self.way.wake_us()]
        if self.way.has_room:
            interval_us = self.way.interval_us if isinstance(self.way, Slots) and self.way.range.first < 0 else None
            wakes.append(self.input.wake_us(now_us, interval_us))
        if not away:
            wakes.append(self.input.idle_us(now_us))
        return min((wake for wake in wakes if wake is not None), default=None)

    # --- recovery -----------------------------------------------------------------------------------------------------

    def restore(self, snapshots: Sequence[UnitSnapshot]) -> None:
        """Go on from the last of these snapshots."""
        last = snapshots[-1]
        self.chain.restore(snapshots)
        self.input.restore(snapshots)
        self.snapshots.clear()
        self.done_epoch = last.epoch
        self.finished = last.finished
        for output, written in zip(self.outputs, last.written or [0] * len(self.outputs), strict=True):
            output.records_written = written
        self._span.epoch = last.epoch + 1
        self.line.next_id = last.next_id

    def begin_after(self, epoch: int) -> None:
        """Begin with nothing in a job that goes on after ``epoch``: a unit that the last run did not have."""
        self.chain.restore_sinks(epoch, {})
        self.input.begin_after(epoch)
        self.done_epoch = epoch
        self._span.epoch = epoch + 1

    def commit(self, epoch: int) -> None:
        """Forget what was kept for replay up to ``epoch``."""
        for output in self.outputs:
            for log in output.logs:
                log.commit(epoch)

    def forget(self) -> None:
        """The instance is built anew: whatever comes back is refused."""
        self.way.forget()
        self.line.clear()

    def close(self) -> None:
        """Free what the unit holds."""
        self.chain.close()
        self.input.close()

    def inspect(self) -> UnitView:
        """A read-only view of the instance."""
        logs = self.input.logs if isinstance(self.input, Logs) else []
        return UnitView(
            self.spec.name,
            (self.spec.id, self.instance),
            self.done_epoch,
            self.finished,
            self.chain.guard is not None,
            self.way.range,
            self.switches.wanted is not None,
            list(self.line),
            self.way.gathers,
            [InputView(each.state(), each.aligned, each.peek() is not None, each.disordered_blocks) for each in logs],
            [log.inspect() for output in self.outputs for log in output.logs],
        )

    def figures(self) -> list[StatsMessage]:
        """Figures of the input and of the operations."""
        now_us = self._clock_ns() // 1000
        if self.chain.stages and not isinstance(self.input, Readers):
            self.chain.stages[0].stats.queue_records = self.input.waiting_records(now_us)
        return [*self.input.figures(now_us), *self.chain.figures()]
