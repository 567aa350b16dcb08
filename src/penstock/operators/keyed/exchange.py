"""Alternatives that keep keyed state, and how one takes over from another (QE-4).

Records are dealt out by key as they are, and everything an alternative does, it does behind the shuffle. So there is
one place at which it is exchanged, and the order of a key's records is that of the line.

=========  ==================================  ==================================================  =========
state      event                               effect                                              next
=========  ==================================  ==================================================  =========
SETTLED    use another, same type of state     it takes the state as it is                         SETTLED
SETTLED    use another, a converter is given   it takes the state, converted key by key            SETTLED
SETTLED    use another, neither                it is built; it gets copies of what comes           WARMING
WARMING    records, a watermark                the active one computes them; the other one does    WARMING
                                               so a little later, and its output is dropped
WARMING    Δt_m is over                        the other one does what it is behind by; takes over  SETTLED
WARMING    use the active one                  the other one is forgotten                          SETTLED
WARMING    use a third one                     the other one is forgotten; as from SETTLED         any
WARMING    a marker                            the snapshot has the active one's state             WARMING
WARMING    the end                             the active one finishes                             SETTLED
any        the active one fails                what it has begun is undone. The next best one that  SETTLED
                                               can be given the state takes it, computes the block
                                               again, and stays: it is for the driver to try again
WARMING    the other one fails                 it is forgotten                                     SETTLED
any        restored                            the one that was active at the marker               SETTLED
=========  ==================================  ==================================================  =========

An alternative fails by the errors that ``falls_back_on`` names, where there is an order of preference. If an operation
before the state fails, nothing has changed. A process function undoes what its handlers have done since the block
began. What the state has given to operations behind it that fail, those of the next one take. Where nobody can take
over, errors follow their policy; an aggregate of the user's own that fails in the middle of a block fails the job.

Δt_m follows from the windows: every window that held a record when the warm-up began must have closed, so that the
other one's open windows are complete. Both have then closed the same windows, and none is sent twice.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from typing import Any, NamedTuple

from penstock.errors import PenstockError
from penstock.operators.alternatives import Alternatives
from penstock.operators.base import BatchKind, BatchResult, Operation, Operator, Result, StatefulOperator
from penstock.operators.errors import Errors, Passing
from penstock.operators.members import Member
from penstock.redaction import redacted
from penstock.types import Record, Schema, attribute

BEHIND_RECORDS_MAX = 50_000
"""By so much a warming alternative may be behind before it is waited for."""


class Case(Enum):
    """How the target stands to the one that was active when they synchronise."""

    EQUAL = "equal"
    """It has seen just what the active one has completed: nothing to do."""
    BEHIND = "behind"
    """It has not: what the active one has done already is computed once more, and nothing of that is sent on."""
    AHEAD = "ahead"
    """Items are still under way to the active one: what nobody has begun goes to the target."""

    @staticmethod
    def of(head: int, last: int) -> Case:
        """Compare the number of the target's next item with that of the last one that the active one completed."""
        return Case.EQUAL if head == last + 1 else Case.BEHIND if head <= last else Case.AHEAD


@dataclass(frozen=True)
class Route(Operation):
    """Before the shuffle: records pass as they are."""

    kind = "route"

    def bind(self, schema: Schema) -> Schema:
        return schema

    def build(self, schema: Schema, errors: Errors) -> Operator:
        del errors
        return Operator(Result, schema=schema, output=schema, vectorised=BatchResult)

    def column_of(self, column: str, schema: Schema) -> str:
        del schema
        return column

    def describe(self) -> str:
        return "records pass whole"


@dataclass(frozen=True)
class KeyedAlternatives(Operation):
    """Behind the shuffle: owns the active alternative's state."""

    of: Alternatives
    input: Schema
    kind = "alternatives"
    stateful = True
    batch_kind = BatchKind.NONE
    can_shift = False
    """Its instances may use different alternatives for a while."""

    @property
    def choice(self) -> Alternatives:
        return self.of

    def bind(self, schema: Schema) -> Schema:
        del schema
        return self.of.output

    def build(self, schema: Schema, errors: Errors) -> KeyedOperator:
        return KeyedOperator(self.of, schema, errors)

    def describe(self) -> str:
        return self.of.describe()

    @property
    def state_signature(self) -> str:
        told = sorted(f"{each.name}: {each.state_signature}" for each in self.of.alternatives)
        return f"alternatives ({'; '.join(told)})"


class Fired(NamedTuple):
    """A time of the clock that was waited for."""

    now_us: int


class Came(NamedTuple):
    """Records, with the watermark that stragglers among them are judged by, and when they came."""

    rows: list[Record]
    straggler_us: int | None
    now_us: int


Entry = Came | Fired | int
"""What a target is given; a number is a watermark that all inputs have reached."""


class KeyedOperator(StatefulOperator):
    """The active alternative of one instance, and for a while the one that is to take over from it.

    Attributes
    ----------
    failures : Counter
        Blocks that each alternative has failed on.
    given_up : str
        The one that should compute and does not, because it has failed; empty: there is none.
    """

    def __init__(self, of: Alternatives, schema: Schema, errors: Errors) -> None:
        self.of = of
        self.follows_clock = any(each.state.operation.follows_clock for each in of.alternatives if each.state)
        self._input = schema
        self._operation = errors.operation
        self._types = {each.name: each.state_signature for each in of.alternatives}
        self._passing = Passing(of.falls_back_on) if of.prefer else None
        self.failures: Counter[str] = Counter()
        self.last_error = self.given_up = ""
        self._failed: set[str] = set()
        """Those that have failed since the last order."""
        self._become(self._built(of.active))
        self._loads = False
        """Whether state is being loaded into the active one, which a header has named."""
        self._target: Member | None = None
        self._entries: deque[Entry] = deque()
        """What the target has not seen yet."""
        self._behind_records = 0
        self._taken = self._head = 0
        """Entries of this warm-up that the active one has completed, and that the target has."""
        self._newest_us: int | None = None
        """The largest event time that has come, where a warm-up may need it."""
        self._ready_us: int | None = None
        """At which watermark the target is warm; None: not by that."""
        self._watermark_us: int | None = None
        times = of.readers_of_time
        warms = any(not self._hands_over(a, b) for a in of.names for b in of.names if a != b)
        self._time_of = attrgetter(attribute(times[0][0])) if times and warms and of.warm_up_us is None else None
        super().__init__(self._process, schema=schema, output=of.output)

    def _built(self, name: str) -> Member:
        return Member(self.of.alternative(name), self._input, self.of.output, self._passing)

    def _hands_over(self, before: str, after: str) -> bool:
        """Whether the state of one can be given to the other."""
        return (before, after) in self.of.convert or self._types[before] == self._types[after]

    @property
    def active(self) -> str:
        """Which alternative's results are sent on."""
        return self._active.name

    @property
    def target(self) -> str | None:
        """Which alternative is being warmed up, if one is."""
        return self._target.name if self._target is not None else None

    # --- records ------------------------------------------------------------------------------------------------------

    def _process(self, rows: list[Record]) -> Result:
        if self._time_of is not None:
            times = [time for time in map(self._time_of, rows) if time is not None]
            if times and (self._newest_us is None or max(times) > self._newest_us):
                self._newest_us = max(times)
        result = self._ask(lambda member: self._fed(member, Came(rows, self.straggler_us, self.now_us)))
        if self._target is not None:
            self._add(Came(rows, self.straggler_us, self.now_us), len(rows))
        return result

    def advance(self, watermark_us: int) -> Result:
        self._watermark_us = watermark_us
        result = self._ask(lambda member: member.advance(watermark_us))
        if self._target is not None:
            self._add(watermark_us, 0)
        return result

    @property
    def wake_us(self) -> int | None:
        state = self._active.state
        return state.wake_us if state is not None else None

    def fire(self, now_us: int) -> Result:
        result = self._ask(lambda member: member.fire(now_us))
        if self._target is not None:
            self._add(Fired(now_us), 0)
        return result

    def finish(self) -> Result:
        self._forget_target()
        return self._ask(lambda member: member.finish())

    @staticmethod
    def _fed(member: Member, came: Came) -> Result:
        assert member.state is not None
        member.state.straggler_us, member.state.now_us = came.straggler_us, came.now_us
        try:
            return member.process(came.rows)
        finally:
            member.state.straggler_us = None

    def close(self) -> None:
        for member in (self._active, self._target):
            if member is not None and member.state is not None:
                member.state.close()

    def _add(self, entry: Entry, records: int) -> None:
        self._entries.append(entry)
        self._taken += 1
        self._behind_records += records
        while self._behind_records > BEHIND_RECORDS_MAX:
            self.catch_up(1)

    # --- failures -----------------------------------------------------------------------------------------------------

    def _ask(self, call: Callable[[Member], Result]) -> Result:
        """Have the active one compute something; where it fails, the next best that can take over from it."""
        while True:
            member = self._active
            assert member.state is not None
            member.state.now_us = self.now_us
            if self._passing is None:
                return call(member)
            heir = self._heir()
            self._passing.on = heir is not None
            member.state.begin(undoable=heir is not None)
            try:
                return call(member)
            except Exception as error:
                cause = error.__cause__ or error
                if heir is None or not self._passing.takes(cause):
                    raise
                left, member.left = member.left, None
                if left is not None:
                    if self._given(heir) != self._given(self.active):
                        raise
                    call = _taking(left)
                elif member.reached_state and not member.state.undo():
                    raise
                self._on_failure(self.active, cause)
                target = self._built(heir)
                self._give_state(target)
                self._settle(target)

    def _heir(self) -> str | None:
        """Who takes over if the active one fails: the best of those that have not, and can be given the state."""
        others = (name for name in self.of.prefer if name != self.active and name not in self._failed)
        return next((name for name in others if self._hands_over(self.active, name)), None)

    def _given(self, name: str) -> Schema | None:
        """What the state of an alternative gives to the operations behind it."""
        state = self.of.alternative(name).state
        return state.output if state is not None else None

    def _on_failure(self, name: str, error: BaseException) -> None:
        self.failures[name] += 1
        self.last_error = redacted(f"{type(error).__name__}: {error}")[:200]
        self.given_up = name
        self._failed.add(name)
        self._forget_target()

    # --- exchange -----------------------------------------------------------------------------------------------------

    def use(self, name: str) -> None:
        """Have another alternative take over, at once or when it is warm; see the table."""
        self._forget_target()
        self._failed.clear()
        self.given_up = ""
        if name == self.active:
            return
        target = self._built(name)
        if self._hands_over(self.active, name):
            self._give_state(target)
            self._settle(target)
            return
        self._target = target
        if self._watermark_us is not None:
            target.advance(self._watermark_us)
        remembers_us = self.of.alternative(name).remembers_us
        if self.of.warm_up_us is None and remembers_us is not None:
            from_us = max((t for t in (self._newest_us, self._watermark_us) if t is not None), default=None)
            self._ready_us = None if from_us is None else from_us + remembers_us
            if from_us is None:
                self._settle(target)  # nothing has come yet: there is nothing that it could have missed
                self.wants_whole = True

    def _give_state(self, target: Member) -> None:
        before, after = self._active.state, target.state
        assert before is not None
        assert after is not None
        convert = self.of.convert.get((self.active, target.name))
        if convert is None:
            self.wants_whole = not after.take_over(before) or self.wants_whole
            return
        after.take_converted(before, convert)
        self.wants_whole = True

    def _settle(self, target: Member) -> None:
        if self._active.state is not None:
            self._active.state.close()
        self._become(target)
        self._target = None
        self._entries.clear()
        self._behind_records = 0

    def _become(self, member: Member) -> None:
        assert member.state is not None
        self._active, self.state, self.hears_loading = member, member.state.state, member.state.hears_loading

    def _forget_target(self) -> None:
        self._target, self._ready_us = None, None
        self._entries.clear()
        self._behind_records = self._taken = self._head = 0

    def catch_up(self, entries: int) -> bool:
        """Have the target do some of what it is behind by; say whether there was any."""
        target, worked = self._target, False
        if target is not None and self._passing is not None:
            self._passing.on = True
        while target is not None and self._entries and entries > 0:
            entry = self._entries.popleft()
            entries, worked = entries - 1, True
            self._head += 1
            try:
                self._feed(target, entry)
            except Exception as error:
                cause = error.__cause__ or error
                if self._passing is None or not self._passing.takes(cause):
                    raise
                self._on_failure(target.name, cause)
                break
        return worked

    def _feed(self, target: Member, entry: Entry) -> None:
        assert target.state is not None
        match entry:
            case Came(rows, _, _):
                self._behind_records -= len(rows)
                self._fed(target, entry)
            case Fired(now_us):
                target.state.now_us = now_us
                target.fire(now_us)
            case watermark_us:
                target.advance(watermark_us)

    def is_warm(self, warm_us: int) -> bool:
        """Whether the target, which has been fed for ``warm_us``, has all that its results are made of."""
        if self._target is None:
            return False
        if self.of.warm_up_us is not None:
            return warm_us >= self.of.warm_up_us
        return self._ready_us is not None and self._watermark_us is not None and self._watermark_us >= self._ready_us

    def hand_over(self) -> Case:
        """Synchronise with the target, and have it take over."""
        assert self._target is not None
        case = Case.of(self._head + 1, self._taken)
        self.catch_up(len(self._entries))
        target = self._target
        if target is not None:  # else it has failed
            self.wants_whole = True
            self._settle(target)
            self._forget_target()
        return case

    # --- snapshots ----------------------------------------------------------------------------------------------------

    def header(self) -> Any:
        assert self._active.state is not None
        return self.active, self._active.state.header(), self._newest_us, self._watermark_us

    def prepare(self, headers: Sequence[Any]) -> None:
        self._forget_target()
        names = {active for active, *_ in headers}
        if len({self._types[name] for name in names}) > 1:
            raise PenstockError(
                f"its instances used different alternatives: {', '.join(sorted(names))}.", operation=self._operation
            )
        self._become(self._built(min(names)))  # of several with the same type of state, any will do

    def prepare_next(self, header: Any) -> None:
        active, inner, *_ = header
        before = self._active.state
        if not self._loads:
            self.prepare([header])
            self._loads = True
        elif active != self.active and before is not None:
            # The other one has taken the very same state over, or a snapshot of all of it would have followed.
            target = self._built(active)
            assert target.state is not None
            target.state.take_over(before)
            self._become(target)
            before.close()
            self.state.place()
        assert self._active.state is not None
        self._active.state.prepare_next(inner)

    def on_loaded(self, name: Any, each: Any, value: Any, before: Any) -> None:
        assert self._active.state is not None
        self._active.state.on_loaded(name, each, value, before)

    def caught_up(self, headers: Sequence[Any]) -> None:
        assert self._active.state is not None
        self._active.state.caught_up([inner for _, inner, *_ in headers])
        self._take_headers(headers)

    def restored(self, headers: Sequence[Any]) -> None:
        assert self._active.state is not None
        self._active.state.restored([inner for _, inner, *_ in headers])
        self._take_headers(headers)

    def _take_headers(self, headers: Sequence[Any]) -> None:
        self._loads = False
        newest = [newest_us for *_, newest_us, _ in headers if newest_us is not None]
        reached = [watermark_us for *_, watermark_us in headers if watermark_us is not None]
        self._newest_us, self._watermark_us = max(newest, default=None), max(reached, default=None)


def _taking(left: Result) -> Callable[[Member], Result]:
    """Have the operations behind a state take what another one's has given."""
    return lambda member: member.behind(left)
