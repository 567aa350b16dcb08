"""A unit instance: takes records from its input, has them computed one way or another, lets results out in order.

`Unit` joins an input (`engine/inputs`), the line (`engine/line.py`), a way (`engine/ways`) and the outputs
(`engine/edges.py`). Ids, epoch markers, event time and snapshots are settled here, once for all ways. Pure.

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

from penstock.dataset import NEVER_US, Bell, Mark, Scale, unpack
from penstock.engine.again import run_again
from penstock.engine.chain import Chain, ClockNs
from penstock.engine.edges import EdgeInput, EdgeOutput, Span
from penstock.engine.event_time import Origin
from penstock.engine.exchange import UnitExchanges
from penstock.engine.figures import Stopwatch, count_away, show_forms
from penstock.engine.inputs import Input, Logs, Readers, Taken
from penstock.engine.inputs.base import BLOCK_RECORDS_MAX, fit_records
from penstock.engine.line import Item, Line, Marker, Parts
from penstock.engine.passed import Passed
from penstock.engine.samples import Tap
from penstock.engine.shedding import Shedding, shed_unread
from penstock.engine.snapshot import Capture, OpCounters, UnitSnapshot
from penstock.engine.state import Copier
from penstock.engine.state.moving import Ahead
from penstock.engine.switch import Changes, at_first
from penstock.engine.times import Times
from penstock.engine.ways import Building, Way
from penstock.engine.ways.desk import Desk
from penstock.engine.ways.pool import TRIED_RECORDS, SlotPool
from penstock.metrics.message import StatsMessage
from penstock.metrics.times import sooner
from penstock.operators import MAIN
from penstock.pipeline.plan import Plan, UnitSpec
from penstock.protocol import messages as m
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
        desk: Desk | None = None,
        ahead: Ahead | None = None,
    ) -> None:
        self.spec, self.plan, self.instance = spec, plan, instance
        self.outputs = outputs
        self.chain = chain = Chain(spec, instance, plan, clock_ns, ahead)
        self.line = Line()
        self._next_id = 0  # of the next output block
        self.done_epoch = 0
        """Last epoch whose marker has passed through."""
        self.due_epoch = 0  # of the last marker that is on its way
        self.finished = False
        self.snapshots: list[UnitSnapshot] = []
        """Taken and not yet handed over to be stored."""
        self.input: Input
        if logs is None:
            self.input = Readers(spec, instance, plan)
        else:
            self.input = Logs(logs, spec.schema, keeps_state=chain.stateful is not None)
        self.times = Times(plan, spec, instance, chain, self.input)
        self._ports = [
            (each, None if each.edge.port == MAIN else (each.edge.op_index, each.edge.port)) for each in outputs
        ]
        """The outputs, and which side output each of them is, if it is one."""
        self._logs = [log for output in outputs for log in output.logs]
        self.bell = Bell()
        """Rung by what comes in, by room in an output that had none, and by whoever changes something here."""
        for log in self._logs:
            log.writer_bell = self.bell
        for each in logs or ():
            each.rings(self.bell)
        self._ways = Building(self, pool, desk, self._leave, self._let_item_out)
        self.way: Way = self._ways.base
        self.changes = Changes()
        self.exchanges = UnitExchanges(self, clock_ns)
        self._pool = pool
        self._span, self._shedding = Span(), Shedding.of(spec, plan)
        stateful = chain.stateful
        self.copier = Copier(stateful, plan.options.state_slice) if stateful is not None else None
        self._clock_ns = clock_ns
        self._work_us = plan.options.block_work_us
        self._block_bytes = plan.options.block_bytes
        self._scale = Scale()
        self._records_max = _FIRST_READ_RECORDS if logs is None else BLOCK_RECORDS_MAX
        self.next_us = 0
        """When there is something to do without a bell; 0: something is away, so it is looked at in every turn."""
        self.blocked = Stopwatch(clock_ns)
        """How long it has waited for room in its outputs: back-pressure, not its own load."""
        self._holds, self.held_us, self._ending = False, 0, False  # since when it holds; the end is in the line
        self.tap: Tap | None = None  # keeps some of what comes to the unit, while a sample of it is wanted
        if (first := at_first(plan, spec)) is not None:
            self.way = self._ways.build(first)

    # --- work ---------------------------------------------------------------------------------------------------------

    def step(self, now_us: int) -> bool:
        """Let out what is complete, and take the next portion of the input; say whether there was any of it."""
        if self.finished:
            return False
        self.input.wake_up(now_us)
        if not self.way.is_local:
            self.way.look(now_us)
        if self.changes.pending is not None:
            self._get_ready(self.changes.pending, now_us)
        if self.changes.wanted is not None:
            self._switch(self.changes.wanted, now_us)
        if self.exchanges.wanted and self.exchanges.step(now_us):
            self._records_max = 1  # what it costs is found out with few
        worked = self._release(now_us) if self.line.entries else False
        if self._ending or self.held_us or self.finished:
            return worked
        if self.copier is not None and now_us >= self.copier.due_us:
            self.copier.turn(now_us)
        marker = self.times.end if self.times.is_over else self.input.marker(now_us)
        if marker is not None:
            self._take_marker(*marker, now_us)
            return True
        if self.changes.wanted is not None and self.chain.guard is None:
            self.way.flush(now_us)  # the way before finishes what it has
            return self._release(now_us) or worked
        self.bell.blocked = not self.has_room
        if self.bell.blocked:
            self.input.block(now_us)
            self.blocked.begin()
            return worked
        if self.blocked.is_running:
            self.blocked.end()
        return self._take(now_us) or worked

    def _take(self, now_us: int) -> bool:
        """Take the next portion of the input."""
        way, source, worked = self.way, self.input, False
        if self.times.waits and (wake_us := self.times.wake_us(way)) is not None and wake_us <= now_us:
            worked = True
            due_us, pieces = self.times.fire(now_us, way.until)
            for passed, own in pieces:
                way.take(Taken([], due_us, own), passed, now_us)
        records_max, open_blocks, is_full = self._records_max, True, None
        if way.is_local:
            source.unblock(now_us)
        else:
            source.unblock(now_us) if way.has_room else source.block(now_us)
            worked = way.cut(now_us)
            records_max, open_blocks, is_full = min(records_max, way.records_room), way.opens_blocks, self._is_full
        if way.range.first < 0:
            worked |= way.take_stretches(source, now_us) or shed_unread(self._shedding, self, now_us)
        else:
            before_ns = self._clock_ns()
            taken = source.take(now_us, records_max, is_full, open_blocks=open_blocks)
            if taken is not None:
                if self._shedding is None or not self._shedding.shed(self, taken, now_us):
                    self._enter(taken, before_ns, now_us)
                worked = True
        for origin in source.watch(now_us):
            way.take(Taken([], 0, origin), Passed([]), now_us)
        if self.changes.measured and not worked and not self._is_away and not source.waiting_records(now_us):
            self.changes.nothing_to_do()
        return worked

    def _enter(self, taken: Taken, before_ns: int, now_us: int) -> None:
        """Run a portion through the operations before the range, and hand it to the way."""
        way, rows = self.way, taken.rows
        count = len(rows)
        if self.input.is_source:
            read_ns = self._clock_ns()
            self.input.count_read(count, read_ns - before_ns, taken.due_us, read_ns // 1000)
        if self.tap is not None:
            self.tap.add(rows)
        for passed, origin in self.times.enter(taken, way.until):
            taken.origin = origin
            way.take(taken, passed, now_us)
            taken.place = None
        if count:
            took_ns = self._clock_ns() - before_ns - self.chain.waited_ns()
            self._records_max = fit_records(self._records_max, count, took_ns, self._work_us)
            if self.input.is_source:
                self._records_max = self._scale.fit(self._records_max, rows, self._block_bytes)

    def _leave(self, taken: Taken, passed: Passed, now_us: int) -> None:
        """Let out what has passed the whole chain here."""
        span = self._span
        span.due_us, span.place = taken.due_us, taken.place
        self.times.leave(taken.origin, span)
        self._emit(passed.rows, passed.sides)
        if self.changes.measured and taken.rows:
            self.changes.output(taken.due_us, self._clock_ns() // 1000)

    def _emit(self, rows: list[Record], sides: dict[tuple[int, str], list[Record]]) -> None:
        span = self._span
        span.first = span.last = self._next_id
        for output, side in self._ports:
            output.emit(span, rows if side is None else sides.get(side, []))
        self._next_id = span.last + 1

    def _tell(self, origin: Origin) -> None:
        """Tell those behind the unit that a lane is idle, or that it no longer is."""
        span = self._span
        span.event_time_us, span.lane, span.idle = self.times.event_time_us, origin.lane, origin.idle
        span.straggler_us = None
        self._emit([], {})

    @property
    def has_room(self) -> bool:
        """Whether every output can take more, or has to because a marker is behind it."""
        if self.chain.sinks and self.due_epoch <= self.done_epoch and self.chain.is_filling:
            return False
        for log in self._logs:
            if not log.has_room and not (self.due_epoch > self.done_epoch and log.has_queue_room):
                return False
        return self.chain.has_room

    @property
    def _is_away(self) -> bool:
        """Whether anything is under way in the unit."""
        return bool(self.line.entries) or self.way.gathers

    def _is_full(self, origin: int) -> bool:
        return self.way.is_full(0 if self.chain.stateful is not None else origin)

    # --- markers ------------------------------------------------------------------------------------------------------

    def _take_marker(self, mark: Mark, epoch: int | None, now_us: int) -> None:
        """Put a marker into the line, behind everything that came before it."""
        way = self.way
        if mark is Mark.END and self.chain.stateful is not None and self.times.end is None:
            for passed, origin in self.times.finish((mark, epoch), self._span.due_us, way.until):
                way.take(Taken([], self._span.due_us, origin), passed, now_us)
            if self.times.is_behind:
                return
        way.flush(now_us)
        counters = self._counters()
        before = way.range.first + len(self.input.counters()) if way.range.first >= 0 else 0
        self.line.append(Marker(mark, epoch, self._capture(counters, before)))
        self._ending, self.held_us = mark is Mark.END, now_us if self._holds else 0
        self._release(now_us)

    def hold(self, *, holds: bool) -> None:
        """Take nothing behind the next marker, because the instance is to move; or go on after all."""
        self._holds, self.held_us = holds, self.held_us if holds else 0
        self.bell.rung = True

    def _capture(self, counters: list[OpCounters], before: int) -> Capture:
        """Take what the marker finds."""
        depth, state = self.copier.capture() if self.copier is not None else (0, None)
        return Capture(depth, state, self.input.states(), self.input.positions(), counters, before)

    def _let_marker_out(self, marker: Marker) -> None:
        """Have sinks prepare, send the marker on, and take the snapshot."""
        span = self._span
        for origin in self.times.on_marker(marker.mark):
            self._tell(origin)
        span.mark = marker.mark
        if marker.epoch is not None:
            span.epoch = marker.epoch
        span.lane, span.straggler_us, span.idle = -1, None, None
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
            self.exchanges.end()
        self.snapshots.append(self._snapshot(epoch, marker))

    def _snapshot(self, epoch: int, marker: Marker) -> UnitSnapshot:
        written = [output.records_written for output in self.outputs]
        sinks = {sink.name: sink.writer.snapshot(epoch) for sink in self.chain.sinks}
        rest = self.times.state(), self.exchanges.states()
        return marker.capture.at(epoch, self.finished, self._next_id, written, self._counters(), sinks, *rest)

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
                (self._let_item_out if head.passed is None else self.way.let_out)(head, now_us)
            else:
                self.bell.blocked = True
                self.blocked.begin()
                break
            worked = True
        return (self.has_room and self.way.let_out_early(now_us)) or worked

    def _let_item_out(self, item: Item, now_us: int) -> None:
        """Run an item through the operations behind its range, and write what comes out of it."""
        span, origin, after = self._span, item.origin, item.range.last + 1
        done = item.result.done if item.result is not None else None
        if done is not None and not self.times.read_away(origin, done.times):
            item.given_back = True  # some of its records are late by their lane, and a slot cannot know that
        parts: Parts = {}
        pieces: Sequence[tuple[Passed, Origin]] = [(Passed([]), origin)]
        if item.given_back:
            with self.exchanges.as_in(item.using):
                pieces = run_again(self.spec, self.input, self.times, item, self._clock_ns)
        elif item.result is not None and done is not None:
            parts, carried, staged = item.result.open()
            item.due_us = item.due_us or done.due_us
            count_away(self.chain, self.input, item, done, now_us)
            if carried:
                schema = self.spec.schema_at(after)
                came = [row for packed in carried for row in schema.to_rows(unpack(packed, schema))]
                pieces = self.times.run(Passed(came), item.due_us, origin, after, None, item.place)
            for packed in staged:
                self.chain.adopt(item.range.last, packed)
        span.due_us, span.place = item.due_us, None
        for passed, each in pieces:
            span.first = span.last = self._next_id
            self.times.leave(each, span)
            for output, side in self._ports:
                if not item.given_back and output.edge.op_index in item.range:
                    output.emit_parts(span, parts.pop(output.edge.id, {}))
                elif side is None:
                    output.emit(span, passed.rows)
                else:
                    output.emit(span, (item.sides if side[0] < item.range.first else passed.sides).pop(side, []))
            self._next_id = span.last + 1
        if item.count:
            self.changes.output(item.due_us, now_us)

    # --- switches -----------------------------------------------------------------------------------------------------

    def switch(self, switch: m.Switch) -> None:
        """Want another form; it is taken up between two portions."""
        self.bell.rung = True
        self.changes.prepare(switch)
        if self.finished:
            self.changes.end()

    def _get_ready(self, switch: m.Switch, now_us: int) -> None:
        """Go on as before until the slots are ready, so that nobody waits while they build the operations."""
        chosen = switch.range
        what, using = (self.spec.id, self.instance, chosen), self.exchanges.using(chosen)
        recent = self.input.recent(TRIED_RECORDS) if chosen.first < 0 and chosen else None
        ready = not chosen or self._pool.is_ready_for(what, now_us, using, switch.replicas, recent)
        ready &= not self.way.is_calling
        if ready or self.changes.has_waited(now_us):
            self.changes.pending, self.changes.wanted = None, switch

    def _switch(self, switch: m.Switch, now_us: int) -> None:
        """Have the new way take over, if it can now; in careful mode everything stays here."""
        if self.chain.guard is not None or self.exchanges.calls_in(switch.range):
            return
        if self.way.adapt(switch):
            pass
        elif self._is_away or self._ending:
            self.way.recall()
            return
        else:
            self.way = self._ways.build(switch)
            show_forms(self.input, self.chain, self.way.batched)
        self.changes.begin(switch, now_us, self.input.waiting_records(now_us))

    # --- time ---------------------------------------------------------------------------------------------------------

    def has_work(self, now_us: int) -> bool:
        """Whether a step may find something to do."""
        return self.bell.rung or now_us >= self.next_us or now_us >= self.input.ready_us

    def rest(self, now_us: int) -> None:
        """The last step of a turn is done: only the bell or the time brings the next one, unless something is away."""
        self.next_us = 0
        if self.way.is_local and self.changes.is_calm and not self.line.entries and not self.exchanges.wanted:
            wake_us = self.wake_us(now_us)
            self.next_us = NEVER_US if wake_us is None else wake_us

    def wake_us(self, now_us: int) -> int | None:
        """When there is something to do without a message; None: only a message, or room, brings work."""
        if self.next_us and not self.bell.rung:
            return self.next_us
        wake_us = sooner(self._soonest_us(now_us), self.way.look_us())
        self.input.awaits(wake_us, now_us)
        return wake_us

    def _soonest_us(self, now_us: int) -> int | None:
        source, way = self.input, self.way
        if self.finished or self._ending or self.held_us:
            return None
        if source.has_marker or self.times.is_over:
            return now_us
        if self.changes.wanted is not None and self.chain.guard is None:
            return None if self._is_away else now_us  # results bring the next step
        if self.bell.blocked and not self.has_room:
            self.blocked.begin()
            return self.chain.room_us(now_us)
        if way.is_local:
            wake_us = source.wake_us(now_us, None)
            return sooner(wake_us, self.times.wake_us(way)) if self.times.waits else wake_us
        wake_us = sooner(way.wake_us(), self.times.wake_us(way))
        if way.has_room:
            wake_us = sooner(wake_us, source.wake_us(now_us, way.stretch_us))
        return wake_us

    # --- recovery -----------------------------------------------------------------------------------------------------

    def restore(self, snapshots: Sequence[UnitSnapshot]) -> None:
        """Go on from the last of these snapshots."""
        last = snapshots[-1]
        self.chain.restore(snapshots)
        if self.copier is not None:
            self.copier.restored(last.depth + 1)
        self.input.restore(snapshots)
        self.exchanges.restore(last.alternatives)
        told = self.times.restore(last)
        self.snapshots.clear()
        self.done_epoch = last.epoch
        self.finished = last.finished
        for output, written in zip(self.outputs, last.written or [0] * len(self.outputs), strict=True):
            output.records_written = written
        self._span.epoch = last.epoch + 1
        self._next_id = last.next_id
        for origin in told if not self.finished else ():
            self._tell(origin)

    def begin_after(self, epoch: int) -> None:
        """Begin with nothing in a job that goes on after ``epoch``: a unit that the last run did not have."""
        self.chain.restore_sinks(epoch, {})
        self.input.begin_after(epoch)
        self.done_epoch = epoch
        self._span.epoch = epoch + 1

    def commit(self, epoch: int) -> None:
        """Forget what was kept for replay up to ``epoch``."""
        self.input.commit(epoch)
        for log in self._logs:
            log.commit(epoch)

    def forget(self) -> None:
        """The instance is built anew: whatever comes back is refused."""
        self.way.forget()
        self.line.clear()

    def close(self) -> None:
        """Free what the unit holds."""
        self.chain.close()
        self.input.close()

    def figures(self) -> list[StatsMessage]:
        """Figures of the input and of the operations."""
        now_us = self._clock_ns() // 1000
        if self.chain.stages and not self.input.is_source:
            self.chain.stages[0].stats.queue_records = self.input.waiting_records(now_us)
        return [*self.input.figures(now_us), *self.chain.figures()]
