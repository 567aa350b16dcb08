"""map_async over history: many calls under way, for the records of one batch after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from penstock.operators import Errors, MapAsync, Operation, Operator, Result
from penstock.operators.base import result_of
from penstock.operators.errors import ErrorCounts, Failures
from penstock.operators.stateless.calls import is_coroutine
from penstock.types import Record, Schema


@dataclass(frozen=True)
class CallAll(Operation):
    """Makes the calls itself, where no way of the engine does."""

    of: MapAsync
    kind = "map_async"

    def bind(self, schema: Schema) -> Schema:
        return self.of.bind(schema)

    def build(self, schema: Schema, errors: Errors) -> Operator:
        calls = _Calls(self.of, schema, errors)
        return Operator(calls.process, schema=schema, output=self.of.output)


class _Calls:
    """The calls of one operator."""

    def __init__(self, of: MapAsync, schema: Schema, errors: Errors) -> None:
        self._of = of
        self._schema = schema
        self._errors = errors
        # One loop for all batches: what a function keeps open, such as a session, belongs to it.
        self._loop = asyncio.new_event_loop()
        self._threads = ThreadPoolExecutor(of.capacity)

    def process(self, rows: list[Record]) -> Result:
        """Call the function for all records; results keep their order."""
        return self._loop.run_until_complete(self._all(rows))

    async def _all(self, rows: list[Record]) -> Result:
        of, failures = self._of, self._errors.begin()
        free = asyncio.Semaphore(of.capacity)
        size = of.records_max

        async def piece(at: int) -> list[Record | None]:
            async with free:
                return await self._called(rows[at : at + size], at, failures)

        done = await asyncio.gather(*(piece(at) for at in range(0, len(rows), size)))
        made = [each for rows in done for each in rows if each is not None]
        return result_of(made, None, failures) if failures.counts != ErrorCounts() else Result(made)

    async def _called(self, rows: Sequence[Record], at: int, failures: Failures) -> list[Record | None]:
        if len(rows) > 1:
            try:
                return list(self._of.results(await self._call(rows), len(rows), alone=False))
            except Exception:
                pass  # which of them it is about is found out one by one
        return [await self._one(row, at + index, failures) for index, row in enumerate(rows)]

    async def _one(self, row: Record, index: int, failures: Failures) -> Record | None:
        attempt = 0
        while True:
            try:
                return self._of.results(await self._call([row]), 1, alone=True)[0]
            except Exception as error:
                wait_us = self._of.retry.again_in_us(attempt, error)
                if wait_us is None:
                    while failures.handle(row, error, index):
                        pass  # whether and when a call is tried again is said by retry=
                    return None
                attempt += 1
                await asyncio.sleep(wait_us / 1e6)

    async def _call(self, rows: Sequence[Record]) -> Any:
        of = self._of
        function: Callable[[Any], Any]
        function, argument = of.call(rows, self._schema)
        called: Coroutine[Any, Any, Any] | asyncio.Future[Any]
        if is_coroutine(function):
            called = function(argument)
        else:
            called = asyncio.get_running_loop().run_in_executor(self._threads, function, argument)
        try:
            return await asyncio.wait_for(called, None if of.timeout_us is None else of.timeout_us / 1e6)
        except TimeoutError:
            if of.timeout_us is None:
                raise
            raise TimeoutError(f"no answer within {of.timeout_us / 1e6:g} s") from None
