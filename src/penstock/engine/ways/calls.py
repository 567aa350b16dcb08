"""The way *calls*: a user's function is called for each record, many calls at once, and waits for others meanwhile.

A portion of records becomes items of the line, each record of it a call; where the function has a form for many, what
waits together goes in one call. Order, epochs and recovery are the line's: a marker leaves when all calls before it are
over, and what was under way in a process that is lost is called again.

=========  ============================================  ==============================================================
call       event                                         effect
=========  ============================================  ==============================================================
(none)     records are taken                             each waits; they have a place in the line
waits      fewer than `capacity` are under way           it begins, with those that wait behind it up to the most of one
begun      its result comes                              its records are done; an item whose records are is complete
begun      its time is over                              cancelled; as if it had raised TimeoutError
begun      it raises, with several records               each of them waits again, alone
begun      it raises, and is tried again                 it waits until its back-off is over; others go first
begun      it raises for the last time                   the error policy has its record
any        the instance is rolled back                   cancelled; a result that comes is refused
=========  ============================================  ==============================================================

Unordered, what is done leaves before its turn, unless a marker or an earlier record of its key is before it. It says
nothing about event time then: that leaves in order, with the item.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from penstock.dataset import Bell
from penstock.engine.chain import Chain, Passed
from penstock.engine.event_time import Origin
from penstock.engine.inputs.base import Taken
from penstock.engine.line import Item, Line, Range
from penstock.engine.ways.base import Way
from penstock.engine.ways.desk import Called, Desk
from penstock.errors import PoisonRecord
from penstock.metrics.times import sooner
from penstock.operators import DEAD_LETTERS, MapAsync
from penstock.operators.errors import Failures
from penstock.operators.stateless.calls import is_coroutine
from penstock.pipeline.plan import UnitSpec
from penstock.types import Record

if TYPE_CHECKING:
    from penstock.engine.times import Pieces, Times
    from penstock.engine.ways.here import Leave

ITEM_RECORDS_MAX = 64
"""Records of an item: what is done leaves when all of its item is, so items are small."""
LINE_RECORDS_MIN = 1_024
"""Records that the line may hold, at the least: a slow call must not stop the fast ones behind it."""


@dataclass(slots=True, eq=False)
class One:
    """A record on its way."""

    portion: Portion
    record: Record
    index: int
    attempt: int = 0
    done: bool = False
    left: bool = False
    """It has left before its turn."""
    result: Record | None = None


@dataclass(slots=True, eq=False)
class Portion:
    """An item whose records are called for."""

    item: Item
    came_us: int
    ones: list[One] = field(default_factory=list)
    failures: Failures | None = None
    missing: int = 0
    """Records whose calls are not over."""
    retried: int = 0


@dataclass(slots=True, eq=False)
class Call:
    """A call under way."""

    ones: list[One]
    deadline_us: int | None


class Calls(Way):
    """Calls a function for the records of one unit instance.

    Parameters
    ----------
    bell : Bell
        Rung when something is complete.
    leave : callable
        Lets what has passed the whole chain out.
    """

    def __init__(
        self, spec: UnitSpec, chain: Chain, times: Times, line: Line, desk: Desk, bell: Bell, leave: Leave
    ) -> None:
        operation = spec.ops[0].operation
        assert isinstance(operation, MapAsync)
        self.range = Range(0, 0)
        self.until = 0
        self._of = operation
        self._schema = spec.schema
        self._times = times
        self._leave = leave
        self._chain = chain
        self._stage = chain.stages[0]
        self._line = line
        self._desk = desk
        self._bell = bell
        self._unit = spec.id
        self._threads = 0 if is_coroutine(operation.function.record_form) else operation.capacity
        # Where event time is read off the results, who is late follows from their order.
        self._reads_time = spec.timing is not None
        self._early = not operation.ordered and not self._reads_time
        self._key = attrgetter(*operation.keys) if operation.keys and self._early else None
        self._by_key: dict[Any, deque[One]] = {}
        """Unordered: the records of each key that have not left, in order."""
        self._ready: list[One] = []
        self._waiting: deque[One] = deque()
        self._alone: deque[One] = deque()
        """Those that wait and go alone: a call for several has failed."""
        self._later: list[tuple[int, int, One]] = []
        """Those whose back-off is not over, with the time when it is."""
        self._calls: dict[int, Call] = {}
        self._portions: dict[int, Portion] = {}
        self._number = 0
        self._records = 0
        """Of all items in the line."""

    # --- taking -------------------------------------------------------------------------------------------------------

    @property
    def away(self) -> Range:
        return Range(0, -1)  # whoever is called, the operation is here

    @property
    def has_room(self) -> bool:
        limit = self._of.capacity * self._of.records_max
        return len(self._waiting) < limit and self._records < max(LINE_RECORDS_MIN, 4 * limit)

    def is_full(self, origin: int) -> bool:
        del origin
        return not self.has_room

    def take(self, taken: Taken, entered: Passed, now_us: int) -> None:
        rows, origin, block = entered.rows, taken.origin, taken.block
        if block is not None:
            rows = block.as_rows(self._schema) if block.count else []
        last = max(0, len(rows) - 1) // ITEM_RECORDS_MAX
        for i in range(last + 1):
            piece = rows[i * ITEM_RECORDS_MAX : (i + 1) * ITEM_RECORDS_MAX]
            # What is said of event time and idleness holds behind all of the records.
            told = origin if i == last else Origin(origin.input, origin.lane, straggler_us=origin.straggler_us)
            item = Item(self.range, len(piece), taken.due_us, now_us, now_us, told)
            self._line.append(item)
            if piece:
                self._add(item, piece, now_us)
        self.look(now_us)

    def _add(self, item: Item, rows: list[Record], now_us: int) -> None:
        portion = Portion(item, now_us, missing=len(rows))
        portion.ones = [One(portion, record, i) for i, record in enumerate(rows)]
        self._portions[id(item)] = portion
        self._records += len(rows)
        self._waiting.extend(portion.ones)
        if self._key is not None:
            for one in portion.ones:
                self._by_key.setdefault(self._key(one.record), deque()).append(one)

    # --- calls --------------------------------------------------------------------------------------------------------

    def look(self, now_us: int) -> None:
        if self._calls:
            self._end_overdue(now_us)
        if self._later:
            due = [each for each in self._later if each[0] <= now_us]
            if due:
                self._later = [each for each in self._later if each[0] > now_us]
                self._alone.extend(one for _, _, one in due)
        guard = self._chain.guard
        capacity = self._of.capacity if guard is None else 1
        while (self._waiting or self._alone) and len(self._calls) < capacity:
            ones = [self._alone.popleft()] if self._alone else self._next(1 if guard is not None else None)
            if guard is not None and (losses := guard.losses(self._stage.stats.name, ones[0].record)):
                self._fail(ones[0], PoisonRecord(operation=self._stage.errors.operation, losses=losses))
                continue
            self._begin(ones, now_us)

    def _next(self, most: int | None) -> list[One]:
        waiting = self._waiting
        return [waiting.popleft() for _ in range(min(len(waiting), most or self._of.records_max))]

    def _begin(self, ones: list[One], now_us: int) -> None:
        of = self._of
        deadline_us = None if of.timeout_us is None else now_us + of.timeout_us
        function, argument = of.call([one.record for one in ones], self._schema)
        number = self._desk.begin(self, function, argument, self._threads, self._unit)
        self._calls[number] = Call(ones, deadline_us)

    def _end_overdue(self, now_us: int) -> None:
        if self._of.timeout_us is None:
            return
        for number, call in list(self._calls.items()):
            # In the order in which they began, so the rest has time left.
            if call.deadline_us is None or call.deadline_us > now_us:
                break
            self._desk.cancel(number)
            error = TimeoutError(f"no answer within {self._of.timeout_us / 1e6:g} s")
            self._on_error(self._calls.pop(number), error, now_us)

    def look_us(self) -> int | None:
        deadline_us = next(iter(self._calls.values())).deadline_us if self._calls else None
        return sooner(deadline_us, min(self._later)[0] if self._later else None)

    def on_called(self, called: Called, now_us: int) -> None:
        """A call is over: its records are done, or it is tried again, or the error policy has them."""
        call = self._calls.pop(called.number)
        self._bell.rung = True
        if self._chain.guard is not None:
            self._chain.guard.done()
        if called.error is not None:
            self._on_error(call, called.error, now_us)
        else:
            try:
                results = self._of.results(called.value, len(call.ones), alone=len(call.ones) == 1)
            except Exception as error:
                self._on_error(call, error, now_us)
            else:
                for one, result in zip(call.ones, results, strict=True):
                    one.result = result
                    self._finish(one)
        self.look(now_us)

    def _on_error(self, call: Call, error: BaseException, now_us: int) -> None:
        if len(call.ones) > 1:
            # Which of them it is about is found out one by one, as everywhere.
            self._alone.extend(call.ones)
            return
        (one,) = call.ones
        wait_us = self._of.retry.again_in_us(one.attempt, error)
        if wait_us is None:
            self._fail(one, error)
            return
        one.attempt += 1
        one.portion.retried += 1
        if wait_us:
            self._number += 1
            self._later.append((now_us + wait_us, self._number, one))
        else:
            self._alone.append(one)

    def _fail(self, one: One, error: BaseException) -> None:
        portion = one.portion
        if portion.failures is None:
            portion.failures = self._stage.errors.begin()
        raised = error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
        while portion.failures.handle(one.record, raised, one.index):
            pass  # whether and when a call is tried again is said by retry=
        self._finish(one)

    # --- leaving ------------------------------------------------------------------------------------------------------

    def _finish(self, one: One) -> None:
        portion = one.portion
        one.done = True
        portion.missing -= 1
        if not portion.missing:
            portion.item.passed = Passed([])  # complete; what of it has not left is found when it is its turn
        if self._early:
            self._ready.append(one)
        self._bell.rung = True

    def _rest(self, portion: Portion) -> Passed:
        """What has not left of an item whose calls are all over."""
        made = Passed([one.result for one in portion.ones if not one.left and one.result is not None])
        if portion.failures is not None and portion.failures.letters:
            made.sides[0, DEAD_LETTERS] = portion.failures.letters
        return made

    def let_out(self, item: Item, now_us: int) -> None:
        portion = self._portions.pop(id(item))
        self._records -= len(portion.ones)
        self._stage.counts.retried += portion.retried
        if portion.failures is not None:
            self._stage.counts.add(portion.failures.counts)
        self._count([one for one in portion.ones if not one.left], item.due_us, portion.came_us, now_us)
        rest = self._rest(portion)
        pieces: Pieces = [(rest, item.origin)]
        if self._reads_time:
            pieces = self._times.run(rest, item.due_us, item.origin, 1, None, None)
        for passed, origin in pieces:
            self._leave(Taken([], item.due_us, origin), passed, now_us)

    def _count(self, ones: Sequence[One], due_us: int, came_us: int, now_us: int) -> None:
        stats, count = self._stage.stats, len(ones)
        stats.records_in += count
        stats.records_out += sum(one.result is not None for one in ones)
        stats.blocks += 1
        if due_us and count:
            stats.latency_us.record(now_us - due_us, count)
            stats.entered_us += (came_us - due_us) * count
            stats.left_us += (now_us - due_us) * count
        if self._key is not None:
            for one in ones:
                held = self._by_key[self._key(one.record)]
                held.remove(one)
                if not held:
                    del self._by_key[self._key(one.record)]

    def let_out_early(self, now_us: int) -> bool:
        if not self._ready:
            return False
        before_marker = {id(entry) for entry in takewhile(lambda each: isinstance(each, Item), self._line)}
        ready, self._ready = self._ready, []
        worked = False
        for one in ready:
            if one.left or id(one.portion.item) not in self._portions:
                continue  # it has gone with another of its key, or with its item
            going = self._going(one, before_marker)
            if not going:
                self._ready.append(one)
            for each in going:
                worked = each.left = True
                item = each.portion.item
                self._count([each], item.due_us, each.portion.came_us, now_us)
                told = Origin(item.origin.input, item.origin.lane, straggler_us=item.origin.straggler_us)
                rows = [each.result] if each.result is not None else []
                self._leave(Taken([], item.due_us, told), Passed(rows), now_us)
        return worked

    def _going(self, one: One, items: set[int]) -> list[One]:
        """What can leave now that a record is done: itself, or, where keys keep their order, all before it too."""
        if self._key is None:
            return [one] if id(one.portion.item) in items else []
        going = []
        for each in self._by_key[self._key(one.record)]:
            item = each.portion.item
            if not each.done or id(item) not in items:
                return []
            going.append(each)
            if each is one:
                break
        return going

    # --- ends ---------------------------------------------------------------------------------------------------------

    def forget(self) -> None:
        for number in self._calls:
            self._desk.cancel(number)
        self._calls.clear()
        self._waiting.clear()
        self._alone.clear()
        self._later.clear()
        self._portions.clear()
        self._ready.clear()
        self._by_key.clear()
        self._records = 0
