"""Calls of users' functions in made-up time: coroutines run in an event loop whose clock is the test's.

A coroutine that sleeps takes made-up time and no other. One that talks to something outside is waited for, and takes no
made-up time at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from math import ceil
from typing import Any

from penstock.engine.ways.desk import Begin, Called, Cancel
from penstock.runtime.calling import call, called_by

WORLD_S_MAX = 30.0
"""How long something outside may take to answer, in real time."""
_LOOK_S = 0.01


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that is run by hand."""

    def __init__(self, clock_us: Callable[[], int]) -> None:
        super().__init__()
        self._clock_us = clock_us
        self._begun_us = clock_us()
        self.set_exception_handler(lambda *_: None)  # a test may end while calls are under way

    def time(self) -> float:
        return (self._clock_us() - self._begun_us) / 1e6

    def run_ready(self) -> None:
        """Run what can be run at this moment."""
        ready: Any = True
        while ready:
            self.call_soon(self.stop)
            self.run_forever()
            ready = getattr(self, "_ready")  # noqa: B009 (the base class hides it)

    def next_us(self) -> int | None:
        """When a coroutine that sleeps wakes up."""
        scheduled = [each for each in getattr(self, "_scheduled") if not each.cancelled()]  # noqa: B009
        return None if not scheduled else self._begun_us + ceil(min(each.when() for each in scheduled) * 1e6)

    def wait_for_world(self) -> bool:
        """Wait a moment for what is outside; False if nothing there is waited for."""
        selector = getattr(self, "_selector")  # noqa: B009
        if len(selector.get_map()) <= 1:  # the loop's own
            return False
        selector.select(_LOOK_S)
        return True


class MadeUpCalls:
    """What the runtime's `Caller` is in real time."""

    def __init__(self, clock_us: Callable[[], int]) -> None:
        self._clock_us = clock_us
        self._loop: _Loop | None = None
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._done: list[Called] = []
        self._waited_s = 0.0

    def order(self, order: Begin | Cancel) -> None:
        """Begin or cancel a call."""
        if isinstance(order, Cancel):
            task = self._tasks.pop(order.number, None)
            if task is not None:
                task.cancel()
        elif order.threads:
            self._done.append(call(order))
        else:
            if self._loop is None:
                self._loop = _Loop(self._clock_us)
            self._tasks[order.number] = self._loop.create_task(self._call(order))

    async def _call(self, begin: Begin) -> None:
        called = await called_by(begin)
        if self._tasks.pop(begin.number, None) is not None:
            self._done.append(called)

    def done(self) -> list[Called]:
        """Run what can be run at this moment; return the calls that are over."""
        if self._tasks and self._loop is not None:
            self._loop.run_ready()
        done, self._done = self._done, []
        if done:
            self._waited_s = 0.0
        return done

    def wake_us(self) -> int | None:
        """When something happens without being asked for."""
        return self._loop.next_us() if self._loop is not None and self._tasks else None

    def waits_for_world(self) -> bool:
        """Whether a call waits for something outside: then time stands still; waits a moment for it."""
        if not self._tasks or self._loop is None or self._waited_s >= WORLD_S_MAX:
            return False
        self._waited_s += _LOOK_S
        return self._loop.wait_for_world()

    def close(self) -> None:
        """Forget everything."""
        if self._loop is not None:
            for task in self._tasks.values():
                task.cancel()
            self._tasks.clear()
            with suppress(RuntimeError):
                self._loop.run_ready()
            self._loop.close()
            self._loop = None
