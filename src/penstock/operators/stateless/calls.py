"""map_async: a user's function whose calls overlap. What a call is, and what becomes of its result.

Nothing is called here: the way `Calls` of the engine decides which calls are made when, the runtime makes them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.durations import format_us, parse_us
from penstock.errors import InvalidOption, TypeMismatch
from penstock.operators.base import BatchKind, Operation, Operator, Result
from penstock.operators.errors import Errors
from penstock.operators.stateless.functions import Function
from penstock.types import Record, Schema

ATTEMPTS_MAX = 100
CAPACITY_MAX = 10_000
RECORDS_PER_CALL = 100


@dataclass(frozen=True)
class Retry:
    """How often a call is made again, and how long that waits: ``wait_us``, then ``factor`` times as long each time."""

    attempts: int = 0
    wait_us: int = 100_000
    factor: float = 2.0
    wait_us_max: int = 10_000_000
    on: tuple[type[BaseException], ...] = (Exception,)

    def again_in_us(self, attempt: int, error: BaseException) -> int | None:
        """How long to wait after the failure of an attempt, the first of which is 0; None: it was the last."""
        if attempt >= self.attempts or not isinstance(error, self.on):
            return None
        return int(min(self.wait_us * self.factor**attempt, self.wait_us_max))

    @staticmethod
    def of(given: Retry | int | None) -> Retry:
        """Read the option."""
        if isinstance(given, Retry):
            return given
        return retry(0 if given is None else given)


def retry(
    attempts: int,
    *,
    wait: str | float = "100ms",
    factor: float = 2.0,
    wait_max: str | float = "10s",
    on: type[BaseException] | Sequence[type[BaseException]] = Exception,
) -> Retry:
    """Say how `map_async` makes a call again that has failed or taken too long.

    Parameters
    ----------
    attempts : int
        How often, at the most.
    wait, factor, wait_max : str or number
        How long it waits before the first of them, by how much that grows each time, and up to what.
    on : exception class or several
        The errors after which it is worthwhile; a call that took too long has failed with ``TimeoutError``.

    Examples
    --------
    >>> retry(3, wait="50ms", on=(ConnectionError, TimeoutError)).attempts
    3
    """
    kinds = (on,) if isinstance(on, type) else tuple(on)
    if not isinstance(attempts, int) or isinstance(attempts, bool) or not 0 <= attempts <= ATTEMPTS_MAX:
        raise InvalidOption(option="retry", given=attempts, allowed=f"a whole number from 0 to {ATTEMPTS_MAX}")
    if not isinstance(factor, int | float) or not 1 <= factor <= 100:
        raise InvalidOption(option="factor", given=factor, allowed="a number from 1 to 100")
    if not kinds or not all(isinstance(each, type) and issubclass(each, BaseException) for each in kinds):
        raise InvalidOption(option="on", given=on, allowed="exception classes")
    wait_us = parse_us(wait, option="wait", allow_zero=True)
    return Retry(attempts, wait_us, float(factor), parse_us(wait_max, option="wait_max", allow_zero=True), kinds)


@dataclass(frozen=True)
class MapAsync(Operation):
    """Call a function for each record, or for several at once, with many calls under way.

    Attributes
    ----------
    capacity : int
        Calls under way at once, in each instance.
    keys : tuple of str
        Where results leave as they come: columns whose records keep their order; () if none do.
    """

    function: Function
    capacity: int = 64
    timeout_us: int | None = None
    retry: Retry = Retry()
    ordered: bool = True
    keys: tuple[str, ...] = ()
    kind = "map_async"
    batch_kind = BatchKind.NONE
    waits = True

    @property
    def is_pure(self) -> bool:  # type: ignore[override]
        return self.function.pure

    @property
    def at_once(self) -> int:
        return self.capacity

    def bind(self, schema: Schema) -> Schema:
        del schema
        return self.output

    def build(self, schema: Schema, errors: Errors) -> Operator:
        def process(rows: list[Record]) -> Result:
            raise NotImplementedError(f"{errors.operation}: {len(rows)} records came another way than calls")

        return Operator(process, schema=schema, output=self.bind(schema))

    @property
    def records_max(self) -> int:
        """Records of one call, at the most."""
        return RECORDS_PER_CALL if self.function.batch_form or self.function.many_form else 1

    def call(self, records: Sequence[Record], schema: Schema) -> tuple[Callable[[Any], Any], Any]:
        """The function and the argument of a call."""
        function = self.function
        if len(records) == 1:
            return function.record_form, records[0]
        if function.many_form is not None:
            return function.many_form, list(records)
        assert function.batch_form is not None
        return function.batch_form, schema.to_batch(list(records))

    def results(self, value: Any, count: int, *, alone: bool) -> list[Record]:
        """The records that a call of ``count`` records has returned, checked."""
        output = self.output
        if alone:
            return [output.coerce(value)]
        if isinstance(value, pa.Table):
            value = value.combine_chunks().to_batches()[0] if value.num_rows else output.to_batch([])
        if isinstance(value, pa.RecordBatch):
            columns = [value.column(each.name).cast(each.type.arrow) for each in output.fields]
            value = output.to_rows(pa.RecordBatch.from_arrays(columns, schema=output.arrow))
        if not isinstance(value, list | tuple) or len(value) != count:
            many = len(value) if isinstance(value, list | tuple) else type(value).__name__
            raise TypeMismatch(what=f"a call for {count} records returned {many}.", hint="One result for each record.")
        return [output.coerce(each) for each in value]

    @property
    def output(self) -> Schema:
        """Schema of the results."""
        assert self.function.schema is not None  # as_function has seen to it
        return self.function.schema

    def describe(self) -> str:
        told = [self.function.__name__, f"up to {self.capacity} calls at once"]
        if not is_coroutine(self.function.record_form):
            told.append("in threads")
        if self.timeout_us is not None:
            told.append(f"{format_us(self.timeout_us)} each")
        if self.retry.attempts:
            told.append(f"retried {self.retry.attempts} times")
        if not self.ordered:
            told.append(f"in order by {', '.join(self.keys)}" if self.keys else "in any order")
        return ", ".join(told)


def is_coroutine(function: Any) -> bool:
    """Whether calling it gives a coroutine."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
