"""A function that is called for records, and the records that are called for: what waits, what is under way."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.engine.line import Item
from penstock.engine.lineage import Place
from penstock.engine.passed import Passed
from penstock.metrics.times import sooner
from penstock.operators import DEAD_LETTERS, Errors, MapAsync, Result
from penstock.operators.alternatives import AlternativesOperator
from penstock.operators.errors import Failure, Failures
from penstock.operators.members import Process
from penstock.operators.stateless.calls import is_coroutine
from penstock.types import Record, Schema

KINDS_PER_UNIT = 128
"""More than alternatives of one operation: the calls of each have threads of their own."""


@dataclass(slots=True, eq=False)
class One:
    """A record on its way."""

    portion: Portion
    callee: Callee
    record: Record
    index: int
    attempt: int = 0
    done: bool = False
    left: bool = False
    """It has left before its turn."""
    dropped: bool = False
    """Its portion is computed by another alternative: nobody wants its result."""
    result: Record | None = None


@dataclass(slots=True, eq=False)
class Portion:
    """An item whose records are called for, or are to be computed by an alternative that calls nobody."""

    item: Item
    came_us: int
    entered: list[Record]
    place: Place | None = None
    """Where the source records are that it was made of, with others before it."""
    skipped: int = 0
    """How many others."""
    ones: list[One] = field(default_factory=list)
    failures: Failures | None = None
    missing: int = 0
    """Records whose calls are not over."""
    retried: int = 0
    begun: bool = False
    """Whether a call for one of its records was made."""
    tried: set[str] = field(default_factory=set)
    """The alternatives that it was given to."""
    aside: list[Result] = field(default_factory=list)
    """What operations around the call have given, for what they have put aside."""
    given: str = ""
    """The alternative that it was given to last."""
    passed: Passed | None = None
    """What has become of it, where that is known before its turn."""
    computed: bool = False
    """By an alternative that calls nobody; the chain has counted it."""

    def drop(self) -> None:
        """Whatever was made of it so far is not wanted any more."""
        for one in self.ones:
            one.dropped = True
        self.ones, self.aside, self.failures, self.missing = [], [], None, 0

    def failed(self) -> Result | None:
        """The dead letters of its calls, in the order of the records; their numbers are those of the place."""
        found = self.failures
        if found is None:
            return None
        pairs = sorted(zip(found.dead, found.letters, strict=True), key=lambda pair: pair[0].at)
        found.dead = [Failure(self.skipped + failure.at, failure.record) for failure, _ in pairs]
        found.letters = [letter for _, letter in pairs]
        return Result([], {DEAD_LETTERS: found.letters} if found.letters else {}, found)


@dataclass(slots=True, eq=False)
class Call:
    """A call under way."""

    callee: Callee
    ones: list[One]
    begun_us: int
    deadline_us: int | None


class Callee:
    """One function that is called, with the operations of its alternative before and behind it."""

    def __init__(
        self,
        name: str,
        of: MapAsync,
        schema: Schema,
        errors: Errors,
        kind: int,
        before: Process | None = None,
        after: Process | None = None,
    ) -> None:
        self.name = name
        self.of = of
        self.schema = schema
        self.errors = errors
        self.kind = kind
        self.before = before
        self.after = after
        self.threads = 0 if is_coroutine(of.function.record_form) else of.capacity
        self.waiting: deque[One] = deque()
        self.alone: deque[One] = deque()
        """Those that wait and go alone: a call for several has failed."""
        self._later: list[tuple[int, int, One]] = []
        """Those whose back-off is not over, with the time when it is."""
        self._numbers = 0
        self.calls: dict[int, Call] = {}
        """Under way, in the order in which they began."""
        self._taken_us = self._records = 0

    @staticmethod
    def all_of(operator: AlternativesOperator, unit: int) -> dict[str, Callee]:
        """Those of the alternatives that call a function, by name."""
        found = {}
        for number, alternative in enumerate(operator.of.alternatives):
            at = alternative.calls
            if at is None:
                continue
            step = alternative.steps[at]
            assert isinstance(step.operation, MapAsync)
            found[alternative.name] = Callee(
                alternative.name, step.operation, step.schema, Errors(step.name, step.on_error),
                unit * KINDS_PER_UNIT + number, *operator.around(alternative.name),
            )  # fmt: skip
        return found

    @property
    def limit(self) -> int:
        """Records that may wait here."""
        return self.of.capacity * self.of.records_max

    def later(self, one: One, due_us: int) -> None:
        """Have a record wait until its back-off is over; others go first."""
        self._numbers += 1
        self._later.append((due_us, self._numbers, one))

    def look(self, now_us: int) -> None:
        """Take up those whose back-off is over."""
        if self._later:
            due = [each for each in self._later if each[0] <= now_us]
            if due:
                self._later = [each for each in self._later if each[0] > now_us]
                self.alone.extend(one for _, _, one in due)

    def next(self, most: int) -> list[One]:
        """Take those that go into the next call: one that goes alone, else what waits."""
        while self.alone:
            one = self.alone.popleft()
            if not one.dropped:
                return [one]
        found: list[One] = []
        while self.waiting and len(found) < min(most, self.of.records_max):
            one = self.waiting.popleft()
            if not one.dropped:
                found.append(one)
        return found

    def overdue(self, now_us: int) -> Iterator[tuple[int, Call]]:
        """Take the calls whose time is over; in the order in which they began, so the rest has time left."""
        while self.calls:
            number, call = next(iter(self.calls.items()))
            if call.deadline_us is None or call.deadline_us > now_us:
                return
            del self.calls[number]
            yield number, call

    def wake_us(self) -> int | None:
        """When a call is overdue, or a back-off over."""
        deadline_us = next(iter(self.calls.values())).deadline_us if self.calls else None
        return sooner(deadline_us, min(self._later)[0] if self._later else None)

    def count(self, call: Call, now_us: int) -> None:
        """Take note of how long a call took."""
        self._taken_us += now_us - call.begun_us
        self._records += len(call.ones)

    def take_cost_ns(self) -> float | None:
        """What a record has cost since this was asked last: its time, shared by as many as can be under way."""
        if not self._records:
            return None
        cost_ns = 1000 * self._taken_us / self._records / self.of.capacity
        self._taken_us = self._records = 0
        return cost_ns

    def forget(self) -> list[int]:
        """Let go of everything; return the numbers of the calls that nobody waits for any more."""
        numbers = list(self.calls)
        self.calls.clear()
        self.waiting.clear()
        self.alone.clear()
        self._later.clear()
        return numbers


def as_error(error: BaseException) -> Exception:
    """Errors that are no `Exception`, such as a cancelled call, as one."""
    return error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
