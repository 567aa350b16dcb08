"""The logs of other units as an input: pieces of blocks, alignment of epoch markers, event time of the producers.

==========  =================================================  =====================================================
mark        when                                               then
==========  =================================================  =====================================================
none        always                                             event time advances to the least of the active inputs
epoch n     some other input has not brought its marker        this input waits (its blocks stay in their log)
epoch n     every input has brought it or ended                the marker of the unit; all inputs go on behind it
end         other inputs are still open                        the input no longer counts
end         it was the last one                                the end of the unit
==========  =================================================  =====================================================
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.dataset import Block, Mark
from penstock.engine.edges import EdgeInput, Span
from penstock.engine.inputs.base import Holds, Input, IsFull, Taken
from penstock.engine.snapshot import InputState, UnitSnapshot
from penstock.types import Record, Schema

BLOCKS_PER_TURN = 64


class Logs(Input):
    """Reads the instances of other units.

    Parameters
    ----------
    tells : bool
        Event time is read off the records in this unit, which is before a shuffle.
    keeps_state : bool
        The unit's first operation keeps state: event time passes where records enter.
    """

    turns = BLOCKS_PER_TURN

    def __init__(
        self, logs: list[EdgeInput], schema: Schema, idle_us: int, holds: Holds, *, tells: bool, keeps_state: bool
    ) -> None:
        self.logs = logs
        self._schema = schema
        self._idle_us = idle_us
        self._holds = holds
        self._tells = tells
        self._keeps_state = keeps_state
        self._turn = 0
        self._rest: tuple[int, Block, list[Record]] | None = None
        """Input, block and records of a block of which a part was taken."""
        self._at = 0
        # An instance that nobody sends to (fewer producers than instances) has nothing to wait for.
        self._mark = Mark.END if not logs else Mark.NONE
        self._open = len(logs)
        self._shown_us = 0

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

    def take(self, now_us: int, records_max: int, is_full: IsFull, *, open_blocks: bool) -> Taken | None:
        del now_us
        if self._rest is not None:
            return self._take_rest(*self._rest, records_max)
        logs = self.logs
        for i in range(self._turn, self._turn + len(logs)):
            index = i % len(logs)
            each = logs[index]
            if each.aligned or each.ended or each.peek() is None or is_full(index):
                continue
            self._turn = (index + 1) % len(logs)
            block = each.pop()
            each.audit(block)
            if not open_blocks:
                self._over(index, block)
                return Taken([], block.due_us, index, block=block, is_open=False)
            rows = block.as_rows(self._schema) if block.count else []
            if len(rows) > records_max:
                self._rest, self._at = (index, block, rows), 0
                return self._take_rest(index, block, rows, records_max)
            self._over(index, block)
            return Taken(rows, block.due_us, index, block=block)
        return None

    def _take_rest(self, index: int, block: Block, rows: list[Record], records_max: int) -> Taken:
        """Take the next piece of a long block, so that the worker stays responsive between pieces."""
        piece = rows[self._at : self._at + records_max]
        self._at += len(piece)
        if self._at < len(rows):
            return Taken(piece, block.due_us, index)
        self._rest = None
        self._over(index, block)
        return Taken(piece, block.due_us, index, block=block)

    @property
    def is_empty(self) -> bool:
        if self._rest is not None or self._mark is not Mark.NONE:
            return False
        for each in self.logs:  # noqa: SIM110 (asked at every step: no generator)
            if each.peek() is not None:
                return False
        return True

    def _over(self, index: int, block: Block) -> None:
        """All of a block is taken: its marker counts."""
        source = self.logs[index]
        if block.mark is Mark.NONE:
            return
        if block.mark is Mark.END:
            source.ended = True
            self._open -= 1
        else:
            source.aligned = True
        if self._open == 0:
            self._mark = Mark.END
        elif all(each.aligned or each.ended for each in self.logs):
            self._mark = Mark.EPOCH

    # --- event time ---------------------------------------------------------------------------------------------------

    def entered(self, taken: Taken, now_us: int) -> int | None:
        block, source = taken.block, self.logs[taken.origin]
        if block is None:
            return None
        source.idle = block.idle
        if not self._keeps_state:
            return None
        source.saw_event_time(block.event_time_us_max)
        return self._event_time_us(now_us)

    def passed(self, origin: int, event_time_us: int | None, at_us: int, span: Span) -> None:
        span.event_time_us_max = event_time_us
        if self._tells and not self._keeps_state:
            source = self.logs[origin]
            if event_time_us is not None:
                source.shown_us = at_us
            source.saw_event_time(event_time_us)
            span.event_time_us_max = self._event_time_us(at_us)
        # What is still under way came before its input fell silent.
        span.idle = all((each.idle or each.ended) and not self._is_away(i) for i, each in enumerate(self.logs))
        if self._tells:
            # Whoever waits for this unit's event time must not wait for ever when filters or keys leave it none.
            if span.event_time_us_max is not None or not self._shown_us:
                self._shown_us = at_us
            span.idle = span.idle or at_us - self._shown_us >= self._idle_us

    def _is_away(self, index: int) -> bool:
        return not self._keeps_state and self._holds(index)

    def _event_time_us(self, now_us: int) -> int | None:
        """Least event time of the inputs that count; None while one of them has shown none."""
        reached: int | None = None
        for i, each in enumerate(self.logs):
            if (each.ended or each.idle) and not self._is_away(i):
                continue
            if not self._keeps_state:
                # Event time is read off the records here: an input whose records show none for a while does not count.
                each.shown_us = each.shown_us or now_us
                if now_us - each.shown_us >= self._idle_us:
                    continue
            if each.event_time_us is None:
                return None
            if reached is None or each.event_time_us < reached:
                reached = each.event_time_us
        return reached

    def came_back(self, now_us: int) -> None:
        self._shown_us = self._shown_us and now_us
        for each in self.logs:
            each.shown_us = each.shown_us and now_us

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
                state.event_time_us = each.event_time_us

    def restore(self, snapshots: Sequence[UnitSnapshot]) -> None:
        self._open = sum(not each.ended for each in self.logs)
