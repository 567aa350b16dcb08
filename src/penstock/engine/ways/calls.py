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

The operation may be alternatives, of which some call a function and others compute. Each portion belongs to one:

=========  ============================================  ==============================================================
portion    event                                         effect
=========  ============================================  ==============================================================
(none)     taken, the active one computes                computed; it leaves at once where nothing is before it
(none)     taken, the active one calls                   operations before the call; then as above
called     all calls are over                            operations behind the call; complete
called     a failure of the alternative, not a record    dropped as far as it is; given to the next best, as if taken
not begun  another alternative takes over                given to that one
begun      another alternative takes over                it goes on as it began
=========  ============================================  ==============================================================
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import takewhile
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from penstock.dataset import Bell
from penstock.engine.chain import Chain
from penstock.engine.event_time import Origin
from penstock.engine.inputs.base import Taken
from penstock.engine.line import Item, Line
from penstock.engine.passed import Passed
from penstock.engine.ways.base import Way
from penstock.engine.ways.callee import KINDS_PER_UNIT, Call, Callee, One, Portion, as_error
from penstock.engine.ways.desk import Called, Desk
from penstock.errors import OperationFailed, PoisonRecord
from penstock.metrics.times import sooner
from penstock.operators import DEAD_LETTERS, MapAsync
from penstock.operators.alternatives import AlternativesOperator
from penstock.pipeline.plan import UnitSpec
from penstock.pipeline.ranges import Range
from penstock.types import Record, attribute

if TYPE_CHECKING:
    from penstock.engine.times import Pieces, Times
    from penstock.engine.ways.here import Leave

ITEM_RECORDS_MAX = 64
"""Records of an item: what is done leaves when all of its item is, so items are small."""
LINE_RECORDS_MIN = 1_024
"""Records that the line may hold, at the least: a slow call must not stop the fast ones behind it."""
TURN_US = 1_000
"""How long portions that were given to an alternative which computes may take of one turn; one is always done."""


class Calls(Way):
    """Calls functions for the records of one unit instance.

    Parameters
    ----------
    bell : Bell
        Rung when something is complete.
    leave : callable
        Lets what has passed the whole chain out.
    """

    can_call = True

    def __init__(
        self, spec: UnitSpec, chain: Chain, times: Times, line: Line, desk: Desk, bell: Bell, leave: Leave
    ) -> None:
        self.range, self.until = Range(0, 0), 0
        self._schema = spec.schema
        self._times = times
        self._leave = leave
        self._chain = chain
        self._stage = stage = chain.stages[0]
        self._line = line
        self._desk = desk
        self._bell = bell
        # Where event time is read off the results, who is late follows from their order.
        self._reads_time = spec.timing is not None
        self._choice = stage.operator if isinstance(stage.operator, AlternativesOperator) else None
        operation = spec.ops[0].operation
        self._callees: dict[str, Callee]
        self._early = False
        self._key: Callable[[Record], Any] | None = None
        if self._choice is not None:
            self._callees = Callee.all_of(self._choice, spec.id)
        else:
            assert isinstance(operation, MapAsync)
            self._callees = {"": Callee("", operation, spec.schema, stage.errors, spec.id * KINDS_PER_UNIT)}
            self._early = not operation.ordered and not self._reads_time
            self._key = attrgetter(*map(attribute, operation.keys)) if operation.keys and self._early else None
        self._by_key: dict[Any, deque[One]] = {}
        """Unordered: the records of each key that have not left, in order."""
        self._ready: list[One] = []
        self._portions: dict[int, Portion] = {}
        self._computed: deque[Portion] = deque()
        """Those that an alternative which calls nobody is to compute."""
        self._records = 0
        """Of all items in the line."""

    # --- taking -------------------------------------------------------------------------------------------------------

    @property
    def away(self) -> Range:
        return Range(0, -1)  # whoever is called, the operation is here

    @property
    def is_calling(self) -> bool:
        return bool(self._portions)

    @property
    def _name(self) -> str:
        """Whose turn it is: the active alternative's, unless it has failed too often."""
        return self._choice.order()[0] if self._choice is not None else ""

    @property
    def has_room(self) -> bool:
        callee = self._callees.get(self._name)
        if callee is None:
            return self._records < LINE_RECORDS_MIN
        return len(callee.waiting) < callee.limit and self._records < max(LINE_RECORDS_MIN, 4 * callee.limit)

    def is_full(self, origin: int) -> bool:
        del origin
        return not self.has_room

    def take(self, taken: Taken, entered: Passed, now_us: int) -> None:
        rows, origin, block = entered.rows, taken.origin, taken.block
        if block is not None:
            rows = block.as_rows(self._schema) if block.count else []
        name = self._name
        if self._choice is not None:
            self._choice.saw(rows)
        tried: set[str] = set()
        if not self._line and name not in self._callees:
            made = self._compute(name, rows, taken.due_us, tried) if rows else Passed([])
            if made is not None:
                self._let_pass(made, taken.due_us, origin, now_us)
                return
            name = self._others(tried)[0]
        last = max(0, len(rows) - 1) // ITEM_RECORDS_MAX
        for i in range(last + 1):
            piece = rows[i * ITEM_RECORDS_MAX : (i + 1) * ITEM_RECORDS_MAX]
            # What is said of event time and idleness holds behind all of the records.
            told = origin if i == last else Origin(origin.input, origin.lane, straggler_us=origin.straggler_us)
            item = Item(self.range, len(piece), taken.due_us, now_us, now_us, told)
            self._line.append(item)
            if piece:
                portion = self._portions[id(item)] = Portion(item, now_us, piece, tried=set(tried))
                if block is not None and self._choice is None:
                    portion.place, portion.skipped = block.place, i * ITEM_RECORDS_MAX
                self._records += len(piece)
                self._give(portion, name)
        self.look(now_us)

    def _give(self, portion: Portion, name: str) -> None:
        """Have an alternative see to a portion."""
        portion.tried.add(name)
        portion.given = name
        callee = self._callees.get(name)
        if callee is None:
            self._computed.append(portion)
            return
        rows = portion.entered
        if callee.before is not None:
            try:
                result = callee.before(rows)
            except OperationFailed as error:
                if not self._goes_on(portion, callee, error.__cause__ or error):
                    raise
                return
            portion.aside.append(result)
            rows = result.rows
        portion.ones = [One(portion, callee, record, i) for i, record in enumerate(rows)]
        portion.missing = len(rows)
        callee.waiting.extend(portion.ones)
        if self._key is not None:
            for one in portion.ones:
                self._by_key.setdefault(self._key(one.record), deque()).append(one)
        if not rows:
            self._complete(portion, callee)

    def _compute(self, name: str, rows: list[Record], due_us: int, tried: set[str]) -> Passed | None:
        """Run records through an alternative that calls nobody; None: all of these have failed, others may not."""
        choice, stage = self._choice, self._stage
        assert choice is not None
        choice.gave_up, process = False, stage.process
        with choice.as_if(name):
            stage.process = choice.process
            try:
                return self._chain.push(rows, due_us, 0, 1)
            except OperationFailed:
                tried.update(each for each in choice.of.names if each not in self._callees)
                if not choice.gave_up or not self._others(tried):
                    raise
            finally:
                stage.process = process
        return None

    def _others(self, tried: set[str]) -> list[str]:
        """The alternatives that are left for a portion, the best first."""
        return [name for name in self._choice.order() if name not in tried] if self._choice is not None else []

    # --- alternatives -------------------------------------------------------------------------------------------------

    def _goes_on(self, portion: Portion, callee: Callee, error: BaseException) -> bool:
        """Give a portion to the next best alternative, if this one has failed; say whether that was so."""
        choice = self._choice
        if choice is None or not choice.fails_by(error):
            return False
        others = self._others(portion.tried)
        if not others:
            return False
        choice.on_failure(callee.name, error)
        portion.drop()
        self._give(portion, others[0])
        return True

    def hand_on(self, records_max: int) -> int:
        del records_max
        moved, name = 0, self._name
        for portion in list(self._portions.values()):
            if portion.ones and not portion.begun and not portion.item.is_complete:
                moved += len(portion.entered)
                portion.drop()
                portion.tried.clear()
                self._give(portion, name)
        self._bell.rung = True
        return moved

    def calls(self, alternative: str) -> bool:
        return alternative in self._callees

    def take_cost_ns(self, alternative: str) -> float | None:
        return self._callees[alternative].take_cost_ns() if alternative in self._callees else None

    # --- calls --------------------------------------------------------------------------------------------------------

    def look(self, now_us: int) -> None:
        if self._computed:
            self._compute_some()
        guard = self._chain.guard
        for callee in self._callees.values():
            for number, call in callee.overdue(now_us):
                self._desk.cancel(number)
                assert callee.of.timeout_us is not None
                error = TimeoutError(f"no answer within {callee.of.timeout_us / 1e6:g} s")
                callee.count(call, now_us)
                self._on_error(call, error, now_us)
            callee.look(now_us)
            capacity = callee.of.capacity if guard is None else 1
            while (callee.waiting or callee.alone) and len(callee.calls) < capacity:
                ones = callee.next(callee.of.records_max if guard is None else 1)
                if not ones:
                    break
                if guard is not None and (losses := guard.losses(self._stage.stats.name, ones[0].record)):
                    self._fail(ones[0], PoisonRecord(operation=callee.errors.operation, losses=losses))
                    continue
                self._begin(callee, ones, now_us)

    def _compute_some(self) -> None:
        """Compute portions that were given to an alternative which calls nobody, for a while."""
        until_us = self._chain.now_us + TURN_US
        while self._computed:
            portion = self._computed.popleft()
            if id(portion.item) not in self._portions:
                continue  # it has been rolled back meanwhile
            made = self._compute(portion.given, portion.entered, portion.item.due_us, portion.tried)
            if made is None:
                self._give(portion, self._others(portion.tried)[0])
                continue
            portion.passed, portion.computed = made, True
            self._is_complete(portion)
            if self._chain.now_us >= until_us:
                self._bell.rung = bool(self._computed) or self._bell.rung
                return

    def _begin(self, callee: Callee, ones: list[One], now_us: int) -> None:
        of = callee.of
        deadline_us = None if of.timeout_us is None else now_us + of.timeout_us
        function, argument = of.call([one.record for one in ones], callee.schema)
        number = self._desk.begin(self, function, argument, callee.threads, callee.kind)
        callee.calls[number] = Call(callee, ones, now_us, deadline_us)
        for one in ones:
            one.portion.begun = True

    def look_us(self) -> int | None:
        wake_us = self._chain.now_us if self._computed else None
        for callee in self._callees.values():
            wake_us = sooner(wake_us, callee.wake_us())
        return wake_us

    def on_called(self, called: Called, now_us: int) -> None:
        """A call is over: its records are done, or it is tried again, or the error policy has them."""
        callee = next(each for each in self._callees.values() if called.number in each.calls)
        call = callee.calls.pop(called.number)
        callee.count(call, now_us)
        self._bell.rung = True
        if self._chain.guard is not None:
            self._chain.guard.done()
        if called.error is not None:
            self._on_error(call, called.error, now_us)
        else:
            try:
                results = callee.of.results(called.value, len(call.ones), alone=len(call.ones) == 1)
            except Exception as error:
                self._on_error(call, error, now_us)
            else:
                if self._choice is not None:
                    self._choice.on_success(callee.name)
                for one, result in zip(call.ones, results, strict=True):
                    one.result = result
                    self._finish(one)
        self.look(now_us)

    def _on_error(self, call: Call, error: BaseException, now_us: int) -> None:
        if len(call.ones) > 1:
            # Which of them it is about is found out one by one, as everywhere.
            call.callee.alone.extend(call.ones)
            return
        (one,) = call.ones
        if one.dropped:
            return
        wait_us = call.callee.of.retry.again_in_us(one.attempt, error)
        if wait_us is None:
            self._fail(one, error)
            return
        one.attempt += 1
        one.portion.retried += 1
        if wait_us:
            call.callee.later(one, now_us + wait_us)
        else:
            call.callee.alone.append(one)

    def _fail(self, one: One, error: BaseException) -> None:
        portion = one.portion
        if self._goes_on(portion, one.callee, error):
            return
        if portion.failures is None:
            portion.failures = one.callee.errors.begin()
        try:
            while portion.failures.handle(one.record, as_error(error), one.index):
                pass  # whether and when a call is tried again is said by retry=
        except OperationFailed as failed:
            failed.at_index = portion.skipped + one.index
            self._chain.name_source(failed, portion.place)
            raise
        self._finish(one)

    # --- leaving ------------------------------------------------------------------------------------------------------

    def _finish(self, one: One) -> None:
        if one.dropped:
            return
        portion = one.portion
        one.done = True
        portion.missing -= 1
        if not portion.missing:
            self._complete(portion, one.callee)
        if self._early:
            self._ready.append(one)
        self._bell.rung = True

    def _complete(self, portion: Portion, callee: Callee) -> None:
        """All calls of a portion are over: run the operations behind them."""
        if callee.after is not None:
            try:
                result = callee.after([one.result for one in portion.ones if one.result is not None])
            except OperationFailed as error:
                if not self._goes_on(portion, callee, error.__cause__ or error):
                    raise
                return
            portion.passed = Passed(result.rows)
            portion.aside.append(result)
        self._is_complete(portion)

    def _is_complete(self, portion: Portion) -> None:
        portion.item.passed = Passed([])  # what of it has not left is found when it is its turn
        self._bell.rung = True

    def _rest(self, portion: Portion) -> Passed:
        """What has not left of an item whose calls are all over."""
        made = portion.passed
        if made is None:
            made = Passed([one.result for one in portion.ones if not one.left and one.result is not None])
        if (failed := portion.failed()) is not None:
            portion.aside.append(failed)
        place = portion.place
        letters: list[Record] = []
        for each in portion.aside:
            if each.sides is not None:
                self._chain.put_aside(made, 0, each, place, (lambda: self._chain.reread(place)) if place else tuple)
                letters += made.sides.pop((0, DEAD_LETTERS), [])
        if letters:
            made.sides[0, DEAD_LETTERS] = letters
        return made

    def let_out(self, item: Item, now_us: int) -> None:
        portion = self._portions.pop(id(item))
        self._records -= len(portion.entered)
        self._stage.counts.retried += portion.retried
        rest = self._rest(portion)
        ones = [one for one in portion.ones if not one.left]
        if not portion.computed:
            count = len(ones) if self._choice is None else len(portion.entered)
            self._count(portion, ones, count, len(rest.rows), now_us)
        self._let_pass(rest, item.due_us, item.origin, now_us)

    def _let_pass(self, made: Passed, due_us: int, origin: Origin, now_us: int) -> None:
        """Let out what has become of some records, whose turn it is."""
        pieces: Pieces = [(made, origin)]
        if self._reads_time:
            pieces = self._times.run(made, due_us, origin, 1, None, None)
        for passed, told in pieces:
            self._leave(Taken(passed.rows, due_us, told), passed, now_us)

    def _count(self, portion: Portion, ones: Sequence[One], count: int, made: int, now_us: int) -> None:
        stats, due_us = self._stage.stats, portion.item.due_us
        stats.records_in += count
        stats.records_out += made
        stats.blocks += 1
        if due_us and count:
            stats.latency_us.record(now_us - due_us, count)
            stats.entered_us += (portion.came_us - due_us) * count
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
                rows = [each.result] if each.result is not None else []
                self._count(each.portion, [each], 1, len(rows), now_us)
                told = Origin(item.origin.input, item.origin.lane, straggler_us=item.origin.straggler_us)
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
        for callee in self._callees.values():
            for number in callee.forget():
                self._desk.cancel(number)
        self._computed.clear()
        self._portions.clear()
        self._ready.clear()
        self._by_key.clear()
        self._records = 0
