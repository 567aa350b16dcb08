"""Makes the calls of users' functions beside a worker's loop: coroutines in one event loop, other functions in threads.

What is called, how often and for how long is decided by the engine (`engine/ways/calls.py`).
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from penstock.engine.ways.desk import Begin, Called, Cancel

CLOSE_S = 1.0
"""How long calls that were cancelled may take to notice."""
SWITCH_S = 0.0005
"""How long a thread may keep the interpreter while others want it: an answer must not wait for a block of records."""


class Caller:
    """Calls in the background; the worker's loop is woken when results are there."""

    def __init__(self) -> None:
        self._done: deque[Called] = deque()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._pools: dict[int, _Threads] = {}
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        os.set_blocking(self._write_end, False)
        self._told = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def fileno(self) -> int:
        """Becomes readable when a call is over."""
        return self._read_end

    def order(self, orders: Sequence[Begin | Cancel]) -> None:
        """Begin and cancel calls."""
        soon: list[Begin | Cancel] = []
        for each in orders:
            if isinstance(each, Begin) and each.threads:
                pool = self._pools.get(each.kind)
                if pool is None:
                    pool = self._pools[each.kind] = _Threads(each.threads, self._tell)
                pool.put(each)
            else:
                soon.append(each)
        if soon:
            if self._loop is None:
                self._loop = self._start()
            self._loop.call_soon_threadsafe(self._take, soon)

    def done(self) -> list[Called]:
        """Return the calls that are over since the last time."""
        if not self._told:
            return []
        try:
            os.read(self._read_end, 4096)
        except BlockingIOError:
            pass  # what is done is told in a moment; taken now, it is not there then
        self._told = False  # from here on whatever is done is told again
        found = []
        while self._done:
            found.append(self._done.popleft())
        return found

    def _tell(self, called: Called) -> None:
        self._done.append(called)
        if not self._told:
            self._told = True
            try:
                os.write(self._write_end, b"x")
            except (BlockingIOError, OSError):
                pass  # it is readable already, or nobody listens any more

    # --- in the thread of the event loop ------------------------------------------------------------------------------

    def _start(self) -> asyncio.AbstractEventLoop:
        sys.setswitchinterval(SWITCH_S)
        loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run, args=(loop,), name="penstock-calls", daemon=True)
        self._thread.start()
        return loop

    def _take(self, orders: Sequence[Begin | Cancel]) -> None:
        assert self._loop is not None
        for each in orders:
            if isinstance(each, Cancel):
                task = self._tasks.pop(each.number, None)
                if task is not None:
                    task.cancel()
            else:
                self._tasks[each.number] = self._loop.create_task(self._call(each))

    async def _call(self, begin: Begin) -> None:
        called = await called_by(begin)
        if self._tasks.pop(begin.number, None) is not None:
            self._tell(called)

    def close(self) -> None:
        """Cancel what is under way, and end; threads that are busy end with their process."""
        for pool in self._pools.values():
            pool.close()
        if self._loop is not None and self._thread is not None:
            loop = self._loop
            loop.call_soon_threadsafe(self._cancel_all)
            self._thread.join(CLOSE_S)
            if not self._thread.is_alive():
                loop.close()
        os.close(self._read_end)
        os.close(self._write_end)

    def _cancel_all(self) -> None:
        assert self._loop is not None
        loop, tasks = self._loop, list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        loop.create_task(_stop_after(loop, tasks))


async def _stop_after(loop: asyncio.AbstractEventLoop, tasks: Sequence[asyncio.Task[None]]) -> None:
    if tasks:
        await asyncio.wait(tasks, timeout=CLOSE_S / 2)
    loop.stop()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()


async def called_by(begin: Begin) -> Called:
    """Make a call, and say what has become of it."""
    try:
        return Called(begin.number, await begin.function(begin.argument))
    except BaseException as error:
        return _failed(begin, error)


def call(begin: Begin) -> Called:
    """Make a call of a function that gives no coroutine."""
    try:
        return Called(begin.number, begin.function(begin.argument))
    except BaseException as error:
        return _failed(begin, error)


def _failed(begin: Begin, error: BaseException) -> Called:
    # The frame of this module says nothing to users.
    trace = error.__traceback__
    return Called(begin.number, error=error.with_traceback(trace.tb_next if trace is not None else None))


class _Threads:
    """Some threads that take calls in turn; started when they are needed."""

    def __init__(self, most: int, tell: Callable[[Called], None]) -> None:
        self._most = most
        self._tell = tell
        self._todo: SimpleQueue[Begin | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._free = 0
        self._lock = threading.Lock()

    def put(self, begin: Begin) -> None:
        with self._lock:
            if not self._free and len(self._threads) < self._most:
                thread = threading.Thread(target=self._run, name="penstock-call", daemon=True)
                self._threads.append(thread)
                thread.start()
            else:
                self._free = max(0, self._free - 1)
        self._todo.put(begin)

    def _run(self) -> None:
        while (begin := self._todo.get()) is not None:
            called = call(begin)
            with self._lock:
                self._free += 1
            self._tell(called)

    def close(self) -> None:
        for _ in self._threads:
            self._todo.put(None)
