"""Calls in real time: coroutines and threads side by side, cancelled and failing ones, and who wakes the worker."""

from __future__ import annotations

import asyncio
import select
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.engine.ways.desk import Begin, Called, Cancel
from penstock.runtime.calling import Caller
from penstock.runtime.clock import now_us
from waiting import WAIT_S


@pytest.fixture
def caller() -> Iterator[Caller]:
    made = Caller(now_us)
    yield made
    made.close()


def wait(caller: Caller, count: int) -> dict[int, Called]:
    """Do as a worker's loop does until so many calls are over."""
    found: dict[int, Called] = {}
    until_us = now_us() + int(WAIT_S * 1e6)
    while len(found) < count:
        assert now_us() < until_us
        found |= {each.number: each for each in caller.done()}
        wake_us = caller.wake_us()
        left_us = (until_us if wake_us is None else min(until_us, wake_us)) - now_us()
        if len(found) < count and left_us > 0:
            select.select(caller.filenos, [], [], left_us / 1e6)
    return found


def test_coroutines_and_threads_answer_side_by_side(caller: Caller) -> None:
    both = threading.Barrier(2, timeout=WAIT_S)

    async def sleeps(x: int) -> int:
        await asyncio.sleep(0.001)
        return x + 1

    def blocks(x: int) -> int:
        both.wait()  # only two threads at once come past it
        return x * 2

    def fails(x: int) -> Any:
        raise KeyError(x)

    async def exits(x: int) -> Any:
        raise SystemExit(x)

    caller.order([Begin(1, sleeps, 10, 0, 0), Begin(2, blocks, 10, 2, 7), Begin(3, blocks, 20, 2, 7)])
    caller.order([Begin(4, fails, 5, 1, 8), Begin(5, exits, 6, 0, 0)])
    found = wait(caller, 5)
    assert [found[n].value for n in (1, 2, 3)] == [11, 20, 40]
    assert isinstance(found[4].error, KeyError)
    assert isinstance(found[5].error, SystemExit)
    assert not caller.is_calling
    assert caller.filenos == []


def test_a_cancelled_call_is_told_so_and_answers_nothing(caller: Caller) -> None:
    cancelled: list[int] = []

    async def hangs(x: int) -> None:
        try:
            await asyncio.sleep(1_000)
        except asyncio.CancelledError:
            cancelled.append(x)
            raise

    async def answers(x: int) -> int:
        return x

    caller.order([Begin(1, hangs, 1, 0, 0)])
    assert caller.done() == []
    caller.order([Cancel(1), Begin(2, answers, 2, 0, 0)])
    assert list(wait(caller, 1)) == [2]
    assert cancelled == [1]


def test_closing_ends_what_is_under_way() -> None:
    ended: list[str] = []

    async def hangs(x: str) -> None:
        try:
            await asyncio.sleep(1_000)
        finally:
            ended.append(x)

    caller = Caller(now_us)
    caller.order([Begin(1, hangs, "a", 0, 0), Begin(2, hangs, "b", 0, 0)])
    caller.done()
    caller.close()
    caller.close()
    assert ended == ["a", "b"]
