"""Event time in a unit instance: it comes with records, passes the chain with them, and leaves with results.

================  ==================================================  ==============================================
unit              where records enter                                 where results leave
================  ==================================================  ==============================================
reads it          records are cut before stragglers, once they come   their lane has come so far; the least of the
                  to the operation before which their time is known   lanes that are waited for
keeps state       the watermark of the inputs advances the state;     the watermark that the state has reached; one
                  stragglers are judged by that of their lane         lane, idle when all inputs are
neither           nothing                                             the least of the inputs that are not idle
================  ==================================================  ==============================================

A state may have more to give for a watermark than fits into a turn. The unit is BEHIND then:

==========  ==============================  =======================================  ===========================
state       event                           effect                                   next
==========  ==============================  =======================================  ===========================
CAUGHT UP   a watermark                     a part of what it completes leaves; if   CAUGHT UP, or BEHIND if not
                                            that was all, the watermark is told
BEHIND      a turn, and there is room       the next part leaves                     as above
BEHIND      records, a watermark            as ever, but nothing is told of event    BEHIND
                                            time and idleness: none of the rest may
                                            be late for those behind
BEHIND      a marker                        the snapshot has what is left            BEHIND
any         the end                         a part of all that the state holds       BEHIND, or CAUGHT UP: then the
                                            leaves, as for a watermark               end takes its place in the line
any         restored, and the state has     the watermark is told after the last     BEHIND
            some of that left               part
==========  ==============================  =======================================  ===========================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.dataset import Mark
from penstock.engine.chain import Chain
from penstock.engine.edges import Span
from penstock.engine.event_time import Lanes, Origin, Reading, reading_in
from penstock.engine.inputs import Input, Taken
from penstock.engine.lineage import Place
from penstock.engine.passed import Passed
from penstock.engine.snapshot import LaneState, UnitSnapshot
from penstock.pipeline.plan import Plan, UnitSpec
from penstock.pipeline.ranges import Range
from penstock.protocol.slots import TimesRead

if TYPE_CHECKING:
    from penstock.engine.ways import Way

Pieces = Sequence[tuple[Passed, Origin]]


class Times:
    """Runs records through a chain, and lets event time pass with them."""

    def __init__(self, plan: Plan, spec: UnitSpec, instance: int, chain: Chain, source: Input) -> None:
        self._chain = chain
        self._spec = spec
        self._input = source
        self._state = source if chain.stateful is not None and not source.is_source else None
        self._clocked = chain.stateful if chain.stateful is not None and chain.stateful.follows_clock else None
        """The state, where it waits for times of the clock."""
        self.waits = chain.stateful is not None
        """Whether there is a state, which may wait for the clock or have more to give."""
        self._own_lane = spec.lane + instance
        self._reached_us: int | None = None
        self._told_us: int | None = None
        """How far the state has come, and how far those behind the unit have been told that it has."""
        self.is_behind, self._due_us = False, 0
        """Whether the state has more to give for what it has reached, and the due time of what led to that."""
        self.end: tuple[Mark, int | None] | None = None
        """The end of the input, which takes its place in the line when the state has given everything."""
        self._reading = Reading(spec.timing) if spec.timing is not None else None
        self._lanes: Lanes | None = None
        if self._reading is not None:
            if self._state is not None:
                ids = [(0, self._own_lane)]
            elif source.is_source:
                ids = [(lane - spec.lane, lane) for lane in plan.lanes(spec.id, instance)]
            else:
                ids = [(index, lane) for index, each in enumerate(source.logs) for lane in each.lanes]
            options = plan.options
            self._lanes = Lanes(ids, epochs_max=1 + -(-options.idle_us // options.epoch_us))
        self.keeps_lanes = plan.keeps_lanes(spec.id)
        """Whether portions of different lanes must not be mixed."""

    def enter(self, taken: Taken, until: int | None) -> Pieces:
        """Run records through the operations before ``until``; return what came of them, cut before stragglers."""
        rows, origin, state = taken.rows, taken.origin, self._state
        if state is None:
            if self._reading is not None:  # what came with the records is of another event time
                origin.event_time_us = origin.straggler_us = None
            head = Passed(rows)
            return self.run(head, taken.due_us, origin, 0, until, taken.place) if rows else [(Passed([]), origin)]
        chain, stop = self._chain, self._stop(0, until)
        assert chain.stateful is not None
        head = Passed([])
        if rows:
            if origin.straggler_us is not None:
                chain.stateful.straggler_us = origin.straggler_us - state.logs[origin.input].delay_us
            if self._clocked is not None:
                self._clocked.now_us = chain.now_us
            head = chain.push(rows, taken.due_us, 0, stop)
            chain.stateful.straggler_us = None
        reached_us = state.enter(origin)
        if reached_us is not None and (self._reached_us is None or reached_us > self._reached_us):
            self._reached_us = reached_us
            head.add(chain.advance(reached_us, taken.due_us, stop))
            if not self.is_behind:
                self.is_behind, self._due_us = chain.stateful.behind_us is not None, taken.due_us
        return self._run_on(head, taken.due_us, self._come(), stop, until)

    def _come(self) -> Origin:
        """What is to be told of how far the state has come: nothing as long as it is behind."""
        if self.is_behind or self._state is None:
            return Origin(0, self._own_lane)
        reached_us = self._reached_us if self._reached_us != self._told_us else None
        self._told_us = self._reached_us
        if self._reading is not None:
            reached_us = None  # what follows the state is of another event time
        return Origin(0, self._own_lane, reached_us, None, self._state.idle_change())

    def wake_us(self, way: Way) -> int | None:
        """When the state has something to give, or is to be told the time, although no record comes."""
        if self.is_behind:
            return 0 if way.has_room else None
        return self._clocked.wake_us if self._clocked is not None else None

    def fire(self, now_us: int, until: int | None) -> tuple[int, Pieces]:
        """The state is behind, or the clock has come to what it waited for; return what came, and its due time."""
        chain, stop = self._chain, self._stop(0, until)
        if not self.is_behind:
            fired = chain.fire(now_us, stop)
            return now_us, self._run_on(fired, now_us, Origin(0, self._own_lane), stop, until)
        assert chain.stateful is not None
        due_us = self._due_us or now_us
        went = chain.go_on(due_us, stop)
        self.is_behind = chain.stateful.behind_us is not None
        return due_us, self._run_on(went, due_us, self._come(), stop, until)

    def finish(self, end: tuple[Mark, int | None], due_us: int, until: int | None) -> Pieces:
        """The input has ended: return what the state still had, or a first part of that."""
        self.end, stop = end, self._stop(0, until)
        rest = self._chain.advance(None, due_us, stop)
        assert self._chain.stateful is not None
        self.is_behind, self._due_us = self._chain.stateful.behind_us is not None, due_us
        if not rest.rows and not rest.sides:
            return []
        return self._run_on(rest, due_us, Origin(0, self._own_lane), stop, until)

    @property
    def is_over(self) -> bool:
        """Whether the end has come, and all that the state held has left."""
        return self.end is not None and not self.is_behind

    def run(
        self, head: Passed, due_us: int, origin: Origin, first: int, until: int | None, place: Place | None
    ) -> Pieces:
        """Run records that have come to operation ``first`` on, up to ``until``."""
        stop = self._stop(first, until)
        if stop is None or stop > first:
            head = self._chain.push(head.rows, due_us, first, stop, place)
        return self._run_on(head, due_us, origin, stop, until, place)

    def _stop(self, first: int, until: int | None) -> int | None:
        """Where to stop to read times, between two operations; ``until`` if they are not read between them."""
        at = self._reading.index if self._reading is not None else -1
        return at if at >= first and (until is None or at < until) else until

    def _run_on(
        self,
        head: Passed,
        due_us: int,
        origin: Origin,
        stop: int | None,
        until: int | None,
        place: Place | None = None,
    ) -> Pieces:
        """Read times of what has come to operation ``stop``, cut it before stragglers, and run it on."""
        reading, lanes = self._reading, self._lanes
        if reading is None or lanes is None or stop is None or stop != reading.index or stop == until:
            return [(head, origin)]
        origin.event_time_us = None
        if not head.rows:
            return [(head, origin)]
        lane = lanes.lane(origin)
        pieces, newest_us = reading.cut(head.rows, lane.entered_us)
        lane.entered_us = newest_us
        results: list[tuple[Passed, Origin]] = []
        for i, (straggler_us, rows) in enumerate(pieces):
            # Where the records of a piece begin is not known, unless it is the first.
            passed = self._chain.push(rows, due_us, stop, until, None if i else place)
            reached_us = pieces[i + 1][0] if i + 1 < len(pieces) else newest_us
            if not i:
                passed.sides = {**head.sides, **passed.sides}
            told = Origin(origin.input, origin.lane, reached_us, straggler_us, None if i else origin.idle)
            results.append((passed, told))
        results[-1][1].ends = origin.ends
        return results

    def are_read_in(self, operations: Range) -> bool:
        """Whether times are read where a range of operations is computed."""
        return reading_in(self._spec, operations.first, operations.last) is not None

    def read_away(self, origin: Origin, times: TimesRead | None) -> bool:
        """Take what a slot has read off an item's records; False: there are stragglers, so it must be run here."""
        if self._lanes is None or times is None:
            return True
        lane = self._lanes.lane(origin)
        if times.straggles or (lane.entered_us is not None and times.late_at_us <= lane.entered_us):
            return False
        if lane.entered_us is None or times.newest_us > lane.entered_us:
            lane.entered_us = times.newest_us
        origin.event_time_us = lane.entered_us
        return True

    def leave(self, origin: Origin, span: Span) -> None:
        """Let some records leave the unit: say what goes with them."""
        if self._lanes is not None:
            span.event_time_us = self._lanes.leave(origin)
        elif self._state is not None:
            span.event_time_us = origin.event_time_us
        else:
            span.event_time_us = self._input.leave(origin)
        span.lane, span.straggler_us, span.idle = origin.lane, origin.straggler_us, origin.idle

    @property
    def event_time_us(self) -> int | None:
        """How far the unit has come, where it reads that itself."""
        return self._lanes.event_time_us if self._lanes is not None else None

    def on_marker(self, mark: Mark) -> Sequence[Origin]:
        """A marker is about to leave the unit: return what is to be told before."""
        return self._lanes.on_marker() if self._lanes is not None and mark is Mark.EPOCH else ()

    def state(self) -> list[LaneState]:
        """How far the lanes have come, at a marker that leaves the unit."""
        return self._lanes.state() if self._lanes is not None else []

    def restore(self, snapshot: UnitSnapshot) -> Sequence[Origin]:
        """Go on from a snapshot; return what is to be told of idle lanes, which those behind wait for again."""
        source = self._input
        if self._state is not None:
            assert self._chain.stateful is not None
            self._reached_us = self._chain.stateful.behind_us
            self.is_behind = self._reached_us is not None
            if self.is_behind:
                self._state.tell_idle()
            own = [(0, self._own_lane)] if self._state.is_idle and not self.is_behind else []
            if self._lanes is not None:
                return self._lanes.restore(snapshot.lanes, own)
            return [Origin(*lane, idle=True) for lane in own]
        idle = source.idle_lanes
        if self._lanes is not None:
            return self._lanes.restore(snapshot.lanes, idle)
        return [Origin(origin, lane, idle=True) for origin, lane in idle]
