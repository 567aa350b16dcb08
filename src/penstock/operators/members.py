"""One alternative at work: its operations one after the other, as if they were one; `alternatives` exchanges them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from penstock.errors import OperationFailed
from penstock.operators.base import BatchResult, Operation, Operator, Result, StatefulOperator
from penstock.operators.errors import DEAD_LETTERS, ErrorPolicy, Errors, Failure, Failures, Passing
from penstock.types import Record, Schema

_encode = msgspec.msgpack.Encoder().encode

Process = Callable[[list[Record]], Result]


@dataclass(frozen=True)
class Step:
    """One operation of an alternative, under the name that users see in errors: ``score.fast.map``."""

    name: str
    operation: Operation
    schema: Schema
    output: Schema
    on_error: ErrorPolicy = ErrorPolicy.FAIL


@dataclass(frozen=True)
class Alternative:
    """What users give under one name: operations in a row, none where records pass as they are."""

    name: str
    steps: tuple[Step, ...]

    @property
    def is_pure(self) -> bool:
        """Whether it may be tried on copies of records."""
        return all(step.operation.is_pure for step in self.steps)

    @property
    def state(self) -> Step | None:
        """The step that keeps state, if there is one."""
        return next((step for step in self.steps if step.operation.stateful), None)

    @property
    def calls(self) -> int | None:
        """Which of its steps calls a function that waits for others, if one does."""
        return next((index for index, step in enumerate(self.steps) if step.operation.waits), None)

    @property
    def state_signature(self) -> str | None:
        """What tells the type of its state; alternatives that have the same one can hand it over as it is."""
        return self.state.operation.state_signature if self.state is not None else None

    @property
    def remembers_us(self) -> int | None:
        """How long a record matters to its state, in event time; None: forever."""
        return self.state.operation.remembers_us if self.state is not None else 0

    def column_of(self, column: str) -> str | None:
        """The input column that an output column is, unchanged."""
        name: str | None = column
        for step in reversed(self.steps):
            name = None if name is None else step.operation.column_of(name, step.schema)
        return name

    def describe(self) -> str:
        """Its operations in a few words."""
        told = (f"{step.operation.kind} {step.operation.describe()}".strip() for step in self.steps)
        return " ▸ ".join(told) or "as it is"


class Member:
    """The operations of an alternative, built.

    Attributes
    ----------
    process : callable
        The record form of all of them. Of a single operation it is that operation's own: nothing is in between.
    state : StatefulOperator or None
        The one among them that keeps state.
    reached_state : bool
        Whether what came last has reached the state, and may have changed it.
    left : Result or None
        What the state has given and the operations behind it have not taken, where one of them has failed.
    """

    def __init__(
        self, alternative: Alternative, schema: Schema, output: Schema, passing: Passing | None = None
    ) -> None:
        self._output = output
        self.name = alternative.name
        self._schema = schema
        self._errors = Errors(alternative.name)
        self._passing = passing
        self._steps: list[Operator] = [
            step.operation.build(step.schema, Errors(step.name, step.on_error, passing=passing))
            for step in alternative.steps
        ]
        states = [index for index, step in enumerate(self._steps) if isinstance(step, StatefulOperator)]
        self._state_at = states[0] if states else -1
        found = self._steps[states[0]] if states else None
        self.state = found if isinstance(found, StatefulOperator) else None
        self.reached_state = False
        self.left: Result | None = None
        self.process: Process = self._steps[0].process if len(self._steps) == 1 else self._process

    def _process(self, rows: list[Record]) -> Result:
        entered, sides, failures, late = rows, None, None, 0
        for index, step in enumerate(self._steps if self.state is None else self._steps[: self._state_at + 1]):
            if not rows:
                break
            self.reached_state = index == self._state_at
            try:
                result = step.process(rows)
            except OperationFailed as error:
                self._place(error, index, entered)
                raise
            rows = result.rows
            if result.sides is not None:
                late += result.late
                sides, failures = self._aside(result, index, entered, sides, failures)
        made = Result(rows, sides, failures, late)
        return made if self.state is None else self.behind(made)

    def process_batch(self, batch: pa.RecordBatch) -> BatchResult:
        """The batch form of all of them."""
        whole = BatchResult(batch)
        for index, step in enumerate(self._steps):
            if not whole.columns.num_rows:
                whole.columns = self._output.to_batch([])
                break
            try:
                result = step.process_batch(whole.columns)
            except OperationFailed as error:
                self._place(error, index, self._schema.to_rows(batch) if index else [])
                raise
            whole.columns, whole.fallbacks = result.columns, whole.fallbacks + result.fallbacks
            if result.sides is not None:
                entered = self._schema.to_rows(batch) if index else []
                whole.sides, whole.failures = self._aside(result, index, entered, whole.sides, whole.failures)
        if whole.columns.schema != self._output.arrow:  # of this one, a column is declared not null
            whole.columns = pa.RecordBatch.from_arrays(whole.columns.columns, schema=self._output.arrow)
        return whole

    def _aside(
        self,
        result: Result | BatchResult,
        index: int,
        entered: list[Record],
        sides: dict[str, list[Record]] | None,
        failures: Failures | None,
    ) -> tuple[dict[str, list[Record]], Failures]:
        """Add what an operation could not handle to what those before it could not."""
        sides, failures = sides or {}, failures or self._errors.begin()
        for port, held in (result.sides or {}).items():
            sides.setdefault(port, []).extend(held)
        if result.failures is not None:
            found, made = result.failures, self._errors.begin()
            numbers = self._numbers(index, found.dead, entered)
            made.counts, made.letters = found.counts, found.letters
            made.dead = [Failure(number, each.record) for number, each in zip(numbers, found.dead, strict=True)]
            failures.add(made, 0)
            if failures.letters:
                sides[DEAD_LETTERS] = failures.letters
        return sides, failures

    def _place(self, error: OperationFailed, index: int, entered: list[Record]) -> None:
        """Have an error speak of the record that entered, not of what operations before have made of it."""
        passed = self._passing is not None and error.__cause__ is not None and self._passing.takes(error.__cause__)
        if passed:
            error.at_index = None  # whoever takes over computes all of them
        elif index and error.at_index is not None:
            number, *_ = self._numbers(index, [Failure(error.at_index, error.on_record)], entered)
            error.at_index = number if number >= 0 else None

    def _numbers(self, index: int, dead: Sequence[Failure], entered: list[Record]) -> list[int]:
        """Which of the records that entered each failure was made of; -1 for those from one on that is not known."""
        if not index or not dead:
            return [failure.at for failure in dead]
        found = list(traced([step.process for step in self._steps[:index]], dead, entered))
        return found + [-1] * (len(dead) - len(found))

    def advance(self, watermark_us: int) -> Result:
        """Let the state reach a watermark; return what came of that."""
        return self._timed(lambda state: state.advance(watermark_us))

    def fire(self, now_us: int) -> Result:
        """Let the state reach a time of the clock; return what came of that."""
        return self._timed(lambda state: state.fire(now_us))

    def finish(self) -> Result:
        """The input has ended: return what the state still had."""
        return self._timed(lambda state: state.finish())

    def _timed(self, call: Callable[[StatefulOperator], Result]) -> Result:
        self.reached_state = True
        return self.behind(call(self.state)) if self.state is not None else Result([])

    def behind(self, result: Result) -> Result:
        """Have the operations behind the state take what it has given."""
        rows, self.left = result.rows, result
        for step in self._steps[self._state_at + 1 :]:
            if not rows:
                break
            try:
                rows = step.process(rows).rows  # which put nothing aside: their policy is to fail
            except OperationFailed as error:
                error.at_index = None  # of the records that entered, any number may be in one result
                raise
        self.left = None
        return Result(rows, result.sides, result.failures, result.late)


def traced(before: Sequence[Process], failures: Sequence[Failure], rows: Iterable[Record]) -> Iterator[int]:
    """Yield which record each failure was made of, in rising order, until one is not what it was.

    The operations before the bad record are run once more, record by record, without any consequence.
    """
    waiting = iter(failures)
    wanted: Failure | None = next(waiting)
    made = 0
    for number, row in enumerate(rows):
        results = [row]
        try:
            for process in before:
                results = process(results).rows
        except OperationFailed:
            return  # it did not raise then
        while wanted is not None and wanted.at < made + len(results):
            if wanted.at < made or _encode(results[wanted.at - made]) != _encode(wanted.record):
                return
            yield number
            wanted = next(waiting, None)
        if wanted is None:
            return
        made += len(results)
