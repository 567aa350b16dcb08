"""Alternatives of one operation: any number of ways to compute the same columns, of which one is active (QE-1).

In a chain they are one operation, whose code is exchanged between two blocks of records: whatever came before that
place was computed by one alternative, whatever comes after it by another. Those that keep state are in
`operators/keyed/exchange.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.operators.base import BatchKind, BatchResult, Expansion, Lateness, Operation, Operator, Result
from penstock.operators.errors import Errors, Passing
from penstock.operators.members import Alternative, Member, Process
from penstock.redaction import redacted
from penstock.types import Record, Schema

FAILURES_MAX = 3
"""Blocks in a row that an alternative may fail on before the next one is not even given to it."""
TRIAL_RECORDS = 32
TRIAL_NS = 5_000_000
"""About so long a trial may take; one record is always tried."""

Convert = Callable[[Any, Any], Any]
"""From the state of a key in one alternative to that in another."""


@dataclass(frozen=True)
class Soonest(Lateness):
    """When a record is late for the first of several windows."""

    of: tuple[Lateness, ...] = ()

    def late_at(self, time_us: Any) -> Any:
        found = self.of[0].late_at(time_us)
        for each in self.of[1:]:
            found = np.minimum(found, each.late_at(time_us))
        return found + self.delay_us


@dataclass(frozen=True)
class Alternatives(Operation):
    """The alternatives of one operation, as users have given them.

    Attributes
    ----------
    keys : tuple of str
        What records are dealt out by, where the alternatives keep state.
    prefer : tuple of str
        Names, the best first: the job chooses among them, and goes down this list when one fails.
    latency_us : int or None
        What the job chooses by: as long as the target holds, the best one is used.
    falls_back_on : tuple of exception classes
        What counts as a failure of an alternative, and not of a record.
    convert : mapping
        From pairs of names to functions that make the state of the second of the state of the first.
    warm_up_us : int or None
        How long an alternative is warmed up; None: as long as its windows need.
    """

    alternatives: tuple[Alternative, ...]
    active: str
    output: Schema
    keys: tuple[str, ...] = ()
    prefer: tuple[str, ...] = ()
    latency_us: int | None = None
    falls_back_on: tuple[type[BaseException], ...] = (OSError,)
    convert: Mapping[tuple[str, str], Convert] = field(default_factory=dict, hash=False)
    warm_up_us: int | None = None
    kind = "alternatives"

    @property
    def stateful(self) -> bool:  # type: ignore[override]
        return any(each.state is not None for each in self.alternatives)

    @property
    def waits(self) -> bool:  # type: ignore[override]
        return any(each.calls is not None for each in self.alternatives)

    @property
    def is_replicable(self) -> bool:  # type: ignore[override]
        return False

    @property
    def choice(self) -> Alternatives:
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the alternatives."""
        return tuple(each.name for each in self.alternatives)

    @property
    def batch_kind(self) -> BatchKind:  # type: ignore[override]
        computing = [each for each in self.alternatives if each.calls is None]
        if self.stateful or not computing:
            return BatchKind.NONE
        kinds = {step.operation.batch_kind for each in computing for step in each.steps}
        return BatchKind.LOOP if BatchKind.LOOP in kinds else BatchKind.VECTORISED

    @property
    def is_pure(self) -> bool:  # type: ignore[override]
        return all(each.is_pure for each in self.alternatives)

    def alternative(self, name: str) -> Alternative:
        """The alternative of that name."""
        return next(each for each in self.alternatives if each.name == name)

    def bind(self, schema: Schema) -> Schema:
        del schema
        return self.output

    def build(self, schema: Schema, errors: Errors) -> AlternativesOperator:
        return AlternativesOperator(self, schema, errors)

    def expand(self, schemas: Sequence[Schema], read: Collection[str]) -> Expansion | None:
        del read
        if not self.stateful:
            return None
        from penstock.operators.keyed.exchange import KeyedAlternatives, Route  # which are made of this

        return Expansion((("route", Route()),), KeyedAlternatives(self, schemas[0]), self.keys, self.keys)

    def column_of(self, column: str, schema: Schema) -> str | None:
        del schema
        found = {each.column_of(column) for each in self.alternatives}
        return found.pop() if len(found) == 1 else None

    @property
    def readers_of_time(self) -> tuple[tuple[str, Lateness], ...]:
        found = [each for one in self._states for each in one.readers_of_time]
        if not found:
            return ()
        return ((found[0][0], Soonest(of=tuple(dict.fromkeys(late for _, late in found)))),)

    @property
    def delays_us(self) -> dict[str, int]:
        told = [one.delays_us for one in self._states]
        shared = set.intersection(*(set(each) for each in told)) if told else set()
        return {column: max(each[column] for each in told) for column in sorted(shared)}

    @property
    def _states(self) -> list[Operation]:
        # What an aggregation says of event time, it says as a whole; its half behind the shuffle knows it.
        found = [each.state.operation for each in self.alternatives if each.state is not None]
        return [getattr(one, "of", one) for one in found]

    def describe(self) -> str:
        told = "; ".join(
            f"{each.name}{' (active)' if each.name == self.active else ''}: {each.describe()}"
            for each in self.alternatives
        )
        return f"{told}; prefer {' before '.join(self.prefer)}" if self.prefer else told


class AlternativesOperator(Operator):
    """Alternatives that keep nothing: the active one is exchanged by a call.

    With an order of preference, a block that the active one fails on is given to the next one that works. After some
    failures in a row it is not asked any more, until the driver has decided. Those that call functions are seen to by
    the engine (`engine/ways/calls.py`), which asks here whose turn it is.

    Attributes
    ----------
    active : str
        Which alternative computes the next block.
    failures : Counter
        Blocks that each alternative has failed on.
    gave_up : bool
        Everyone who could be asked here has failed on the last block.
    """

    def __init__(self, of: Alternatives, schema: Schema, errors: Errors) -> None:
        self.of = of
        self.active = ""
        self.failures: Counter[str] = Counter()
        self.last_error = ""
        self.gave_up = False
        self._members: dict[str, Member] = {}
        self._input = schema
        self._operation = errors.operation
        self._in_a_row = 0
        self._passing = Passing(of.falls_back_on) if of.prefer else None
        self._seen: list[Record] = []
        """What came last; a trial takes copies of it."""
        super().__init__(self._refuse, schema=schema, output=of.output)
        self.use(of.active)

    @staticmethod
    def _refuse(rows: list[Record]) -> Result:
        raise AssertionError(f"no alternative for {len(rows)} records")

    def use(self, name: str) -> None:
        """Have another alternative compute what comes next."""
        if name == self.active:
            return
        self.active, self._in_a_row = name, 0
        self.process = self._process_guarded if self.of.prefer else self._member(name).process

    def _member(self, name: str) -> Member:
        found = self._members.get(name)
        if found is None:
            alternative = self.of.alternative(name)
            found = self._members[name] = Member(alternative, self._input, self.of.output, self._passing)
        return found

    def order(self) -> list[str]:
        """Whom to ask: the active one, unless it has failed too often, then the others from the best one on."""
        others = [name for name in self.of.prefer if name != self.active]
        return [*others, self.active] if self.has_given_up else [self.active, *others]

    @property
    def has_given_up(self) -> bool:
        """Whether the active one is asked last, because it has failed too often in a row."""
        return self._in_a_row >= FAILURES_MAX

    @property
    def given_up(self) -> str:
        """The alternative that should compute and is not asked first any more; empty: there is none."""
        return self.active if self.has_given_up else ""

    @contextmanager
    def as_if(self, name: str) -> Iterator[None]:
        """For a while, compute with another alternative than the active one."""
        active, in_a_row = self.active, self._in_a_row
        self.use(name)
        try:
            yield
        finally:
            if name != active:
                self.use(active)
                self._in_a_row = in_a_row

    def around(self, name: str) -> tuple[Process | None, Process | None]:
        """The operations before and behind the function that an alternative calls; None where there are none."""
        alternative = self.of.alternative(name)
        at = alternative.calls
        assert at is not None
        before, after = alternative.steps[:at], alternative.steps[at + 1 :]
        return (
            Member(Alternative(name, before), self._input, before[-1].output).process if before else None,
            Member(Alternative(name, after), after[0].schema, self.of.output).process if after else None,
        )

    def fails_by(self, error: BaseException) -> bool:
        """Whether an error is a failure of the alternative, and not of a record."""
        return bool(self.of.prefer) and isinstance(error, self.of.falls_back_on)

    def on_failure(self, name: str, error: BaseException) -> None:
        """Take note that an alternative has failed."""
        self.failures[name] += 1
        self.last_error = redacted(f"{type(error).__name__}: {error}")[:200]
        self._in_a_row += name == self.active

    def on_success(self, name: str) -> None:
        """Take note that an alternative works."""
        if name == self.active:
            self._in_a_row = 0

    def saw(self, rows: list[Record]) -> None:
        """Keep some records that trials can take copies of."""
        self._seen = rows

    def _process_guarded(self, rows: list[Record]) -> Result:
        self._seen = rows
        result: Result = self._ask(lambda member: member.process(rows))
        return result

    def process_batch(self, batch: pa.RecordBatch) -> BatchResult:
        if not self.of.prefer:
            return self._member(self.active).process_batch(batch)
        result: BatchResult = self._ask(lambda member: member.process_batch(batch))
        return result

    def _ask(self, call: Callable[[Member], Any]) -> Any:
        order = [name for name in self.order() if self.of.alternative(name).calls is None]
        assert self._passing is not None
        for name in order:
            self._passing.on = name != order[-1]  # what nobody can compute follows the policy of its operation
            try:
                result = call(self._member(name))
            except Exception as error:
                cause = error.__cause__ or error
                if not self.fails_by(cause):
                    raise
                self.on_failure(name, cause)
                if name == order[-1]:
                    self.gave_up = True
                    raise
            else:
                self.on_success(name)
                return result
        raise AssertionError("nobody was asked")

    def try_out(self, name: str, clock_ns: Callable[[], int]) -> float | None:
        """What a record costs in another alternative, in nanoseconds, on copies of the last ones; None: not known.

        Only one that is declared pure is tried: nothing may be sent or written twice.
        """
        alternative = self.of.alternative(name)
        if not self._seen or not alternative.is_pure or alternative.calls is not None:
            return None
        member, done, taken_ns = self._member(name), 0, 0
        try:
            member.process([copy(self._seen[0])])  # the first call of a function costs more than the others
            while done < TRIAL_RECORDS and taken_ns < TRIAL_NS:
                rows = [copy(each) for each in self._seen[:8]]
                before_ns = clock_ns()
                member.process(rows)
                taken_ns, done = taken_ns + clock_ns() - before_ns, done + len(rows)
        except Exception:
            return None  # it would meet the same when it is used, and follow its policy then
        return taken_ns / done
