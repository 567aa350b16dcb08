"""map_async over history: order, retries, calls for many records, what fails."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import penstock as ps
from penstock.errors import OperationFailed
from penstock.operators import DEAD_LETTERS, ErrorPolicy, Errors, MapAsync, Result
from penstock.spark.calls import CallAll
from penstock.types import Schema

NUMBERS = Schema.parse("n bigint")


def made(function: Any, numbers: list[int], policy: ErrorPolicy = ErrorPolicy.FAIL, **options: Any) -> Result:
    stream = ps.stream("numbers", ps.records([], schema=NUMBERS)).map_async(function, schema=NUMBERS, **options)
    operation = next(n.operation for n in stream.to(ps.memory()).nodes() if isinstance(n.operation, MapAsync))
    operator = CallAll(operation).build(NUMBERS, Errors("ask", policy))
    return operator.process([NUMBERS.record_type(n) for n in numbers])


def test_results_keep_their_order_whenever_the_answers_come() -> None:
    under_way = [0, 0]

    async def slow(r: Any) -> Any:
        under_way[0] += 1
        under_way[1] = max(under_way)
        await asyncio.sleep(0.002 if r.n % 2 else 0)
        under_way[0] -= 1
        return (r.n * 10,)

    assert [r.n for r in made(slow, list(range(20)), capacity=4).rows] == [n * 10 for n in range(20)]
    assert under_way[1] == 4


def test_a_plain_function_is_called_in_threads_and_one_that_hangs_has_failed() -> None:
    over = threading.Event()

    def function(r: Any) -> Any:
        if r.n == 1:
            over.wait()
        return (r.n,)

    done = made(function, [0, 1, 2], ErrorPolicy.DEAD_LETTER, timeout="1s")
    over.set()
    assert [r.n for r in done.rows] == [0, 2]
    assert done.sides is not None
    assert "no answer within 1 s" in done.sides[DEAD_LETTERS][0].error


def test_a_call_is_made_again_as_often_as_retry_says() -> None:
    tries: dict[int, int] = {}

    async def flaky(r: Any) -> Any:
        tries[r.n] = tries.get(r.n, 0) + 1
        if tries[r.n] < 3:
            raise ConnectionError("away")
        return (r.n,)

    assert [r.n for r in made(flaky, [1, 2], retry=ps.retry(2, wait=0)).rows] == [1, 2]
    tries.clear()
    with pytest.raises(OperationFailed, match="ConnectionError: away"):
        made(flaky, [1], retry=ps.retry(1, wait=0))


def test_of_a_call_for_many_the_bad_record_is_found_alone() -> None:
    @ps.op(schema=NUMBERS)
    def one(r: Any) -> Any:
        if r.n == 2:
            raise ValueError("two")
        return (r.n,)

    @one.many
    def several(rows: list[Any]) -> Any:
        return [one.record_form(r) for r in rows]

    done = made(one, [1, 2, 3], ErrorPolicy.SKIP)
    assert [r.n for r in done.rows] == [1, 3]
    assert done.failures is not None
    assert done.failures.counts.skipped == 1
