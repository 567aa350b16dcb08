"""The logs of other units as an input: pieces of blocks, alignment of epoch markers, event time of the producers.

==========  =================================================  =====================================================
mark        when                                               then
==========  =================================================  =====================================================
none        always                                             event time advances to the least of those not idle
epoch n     some other input has not brought its marker        this input waits (its blocks stay in their log)
epoch n     every input has brought it or ended                the marker of the unit; all inputs go on behind it
end         other inputs are still open                        the input no longer counts; where there is no state,
                                                               its lanes are told to be idle
end         it was the last one                                the end of the unit
==========  =================================================  =====================================================
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.dataset import Block, Mark
from penstock.engine.edges import EdgeInput
from penstock.engine.event_time import Origin
from penstock.engine.inputs.base import Input, IsFull, Taken
from penstock.engine.snapshot import InputState, UnitSnapshot
from penstock.types import Record, Schema

BLOCKS_PER_TURN = 64


class Logs(Input):
    """Reads the instances of other units."""

    turns = BLOCKS_PER_TURN

    def __init__(self, logs: list[EdgeInput], schema: Schema, *, keeps_state: bool) -> None:
        self.logs = logs
        self._schema = schema
        self._keeps_state = keeps_state
        self._turn = 0
        self._rest: tuple[int, Block, list[Record]] | None = None
        """Input, block and records of a block of which a part was taken."""
        self._at = 0
        # An instance that nobody sends to (fewer producers than instances) has nothing to wait for.
        self._mark = Mark.END if not logs else Mark.NONE
        self._open = len(logs)
        self._was_idle = self.is_idle
        self._over_lanes: list[Origin] = []
        """Lanes of inputs that have ended, of which those behind are to be told."""
        self._may_idle = False
        """Something was told of an input that may make all of them idle, or no longer so."""

    # --- records and markers ------------------------------------------------------------------------------------------

    def marker(self, now_us: int) -> tuple[Mark, int | None] | None:
        del now_us
        mark = self._mark
        if mark is Mark.NONE:
            return None
        self._mark = Mark.NONE
        for each in self.logs:
            each.aligned = False
        return mark, None

    def take(self, now_us: int, records_max: int, is_full: IsFull | None, *, open_blocks: bool) -> Taken | None:
        del now_us
        if self._rest is not None:
            return self._take_rest(*self._rest, records_max)
        logs = self.logs
        count = len(logs)
        for i in range(self._turn, self._turn + count):
            index = i % count
            each = logs[index]
            if each.aligned or each.ended or each.peek() is None or (is_full is not None and is_full(index)):
                continue
            self._turn = (index + 1) % count
            block = each.pop()
            each.audit(block)
            if not open_blocks:
                return Taken([], block.due_us, self._over(index, block), block=block)
            rows = block.as_rows(self._schema) if block.count else []
            if len(rows) > records_max:
                self._rest, self._at = (index, block, rows), 0
                return self._take_rest(index, block, rows, records_max)
            return Taken(rows, block.due_us, self._over(index, block))
        return None

    def _take_rest(self, index: int, block: Block, rows: list[Record], records_max: int) -> Taken:
        """Take the next piece of a long block, so that the worker stays responsive between pieces."""
        piece = rows[self._at : self._at + records_max]
        self._at += len(piece)
        if self._at < len(rows):
            return Taken(piece, block.due_us, Origin(index, block.lane, straggler_us=block.straggler_us))
        self._rest = None
        return Taken(piece, block.due_us, self._over(index, block))

    def watch(self, now_us: int) -> Sequence[Origin]:
        del now_us
        over, self._over_lanes = self._over_lanes, []
        return over if self._open else ()  # the end of all says it itself

    @property
    def is_empty(self) -> bool:
        if self._rest is not None or self._mark is not Mark.NONE:
            return False
        for each in self.logs:  # noqa: SIM110 (asked at every step: no generator)
            if each.peek() is not None:
                return False
        return True

    def _over(self, index: int, block: Block) -> Origin:
        """All of a block is taken: what its origin says holds from now on."""
        if block.mark is not Mark.NONE:
            self._take_mark(self.logs[index], block)
        ends = block.mark is Mark.END
        return Origin(index, block.lane, block.event_time_us, block.straggler_us, block.idle, ends)

    def _take_mark(self, source: EdgeInput, block: Block) -> None:
        if block.mark is Mark.END:
            source.ended = True
            self._open -= 1
            if not self._keeps_state:
                index = self.logs.index(source)
                self._over_lanes += [Origin(index, lane, idle=True) for lane in sorted(source.lanes)]
        else:
            source.aligned = True
        if self._open == 0:
            self._mark = Mark.END
        elif all(each.aligned or each.ended for each in self.logs):
            self._mark = Mark.EPOCH

    # --- event time ---------------------------------------------------------------------------------------------------

    def enter(self, origin: Origin) -> int | None:
        source = self.logs[origin.input]
        before_us = source.event_time_us
        source.hear(origin)
        if origin.idle is not None or origin.ends:
            self._may_idle = True
        elif source.event_time_us == before_us:
            return None
        reached_us: int | None = None
        for each in self.logs:
            if each.is_idle:
                continue
            if each.event_time_us is None:
                return None
            watermark_us = each.event_time_us - each.delay_us
            if reached_us is None or watermark_us < reached_us:
                reached_us = watermark_us
        return reached_us

    @property
    def is_idle(self) -> bool:
        return all(each.is_idle for each in self.logs)

    @property
    def idle_lanes(self) -> list[tuple[int, int]]:
        return [
            (index, lane)
            for index, source in enumerate(self.logs)
            for lane in sorted(source.lanes)
            if all(each.is_silent(lane) for each in self.logs if lane in each.lanes)
        ]

    def tell_idle(self) -> None:
        self._was_idle = False

    def idle_change(self) -> bool | None:
        if not self._may_idle:
            return None
        self._may_idle, is_idle = False, self.is_idle and self._open > 0
        if is_idle is self._was_idle:
            return None
        self._was_idle = is_idle
        return is_idle

    def leave(self, origin: Origin) -> int | None:
        source = self.logs[origin.input]
        if origin.idle is not None:
            origin.idle = self._lane_change(source, origin)
        source.hear(origin)
        if len(self.logs) == 1:
            return source.event_time_us
        reached_us: int | None = None
        for each in self.logs:
            if each.is_idle:
                continue
            if each.event_time_us is None:
                return None
            if reached_us is None or each.event_time_us < reached_us:
                reached_us = each.event_time_us
        return reached_us

    def _lane_change(self, source: EdgeInput, origin: Origin) -> bool | None:
        """What is to be told of a lane: it may come by several inputs, and is idle when it is so on all of them."""
        lane = origin.lane
        others = [each.is_silent(lane) for each in self.logs if each is not source and lane in each.lanes]
        was_idle = lane in source.idle_lanes and all(others)
        source.hear(origin)
        is_idle = lane in source.idle_lanes and all(others)
        return None if is_idle is was_idle else is_idle

    # --- snapshots and figures ----------------------------------------------------------------------------------------

    def waiting_records(self, now_us: int) -> int:
        del now_us
        rest = len(self._rest[2]) - self._at if self._rest is not None else 0
        return sum(each.queued_records() for each in self.logs) + rest

    def arrived_records(self, now_us: int) -> int:
        queued = sum(each.queued_records() for each in self.logs)
        return sum(each.records_read for each in self.logs) + queued

    def states(self) -> list[InputState]:
        return [each.state() for each in self.logs]

    def refresh(self, states: list[InputState]) -> None:
        if not self._keeps_state:
            for state, each in zip(states, self.logs, strict=True):
                state.event_time_us, state.idle_lanes = each.event_time_us, sorted(each.idle_lanes)

    def restore(self, snapshots: Sequence[UnitSnapshot]) -> None:
        self._open = sum(not each.ended for each in self.logs)
        self._was_idle = self.is_idle
