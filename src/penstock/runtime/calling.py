"""Makes the calls of users' functions for a worker: coroutines in an event loop, other functions in threads.

The event loop is run by the worker's own loop, a moment in every turn, and wakes it when an answer is there. A thread
of its own would have answers wait for the interpreter's lock (docs/decisions/0018). What is called, how often and for
how long is decided by the engine (`engine/ways/calls.py`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import ceil
from queue import SimpleQueue
from selectors import BaseSelector, DefaultSelector

from penstock.engine.ways.desk import Begin, Called, Cancel

ClockUs = Callable[[], int]


class Turns(asyncio.SelectorEventLoop):
    """An event loop that runs a moment at a time, by whatever clock it is given."""

    def __init__(self, clock_us: ClockUs) -> None:
        self.selector: BaseSelector = DefaultSelector()
        super().__init__(self.selector)
        self._clock_us = clock_us
        self._begun_us = clock_us()

    def time(self) -> float:
        return (self._clock_us() - self._begun_us) / 1e6

    def run_ready(self) -> None:
        """Run what can be run at this moment."""
        ready: object = True
        while ready:
            self.call_soon(self.stop)
            self.run_forever()
            ready = getattr(self, "_ready")  # noqa: B009 (the base class hides it)

    def next_us(self) -> int | None:
        """When a coroutine that sleeps wakes up."""
        scheduled = getattr(self, "_scheduled")  # noqa: B009
        # The first of a heap; where that one was cancelled, waking up for it does no harm.
        return self._begun_us + ceil(scheduled[0].when() * 1e6) if scheduled else None

    @property
    def fileno(self) -> int:
        """Becomes readable when something outside has answered, or a thread has."""
        return self.selector.fileno()  # type: ignore[attr-defined,no-any-return]


class Caller:
    """Calls for one worker.

    Parameters
    ----------
    threads : bool
        Whether functions that give no coroutine run in threads, or at once, for tests in made-up time.
    """

    def __init__(self, clock_us: ClockUs, *, threads: bool = True) -> None:
        self._clock_us = clock_us
        self._has_threads = threads
        self._loop: Turns | None = None
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._pools: dict[int, _Threads] = {}
        self._open: set[int] = set()
        self._done: list[Called] = []

    @property
    def loop(self) -> Turns:
        """The event loop, from the first call on."""
        if self._loop is None:
            self._loop = Turns(self._clock_us)
            # Who waits for a call hears of its error; what a process that ends leaves behind is nobody's.
            self._loop.set_exception_handler(lambda *_: None)
        return self._loop

    def warm_up(self) -> None:
        """Make the first call of a job as quick as the others."""
        self.loop.create_task(asyncio.sleep(0))
        self.loop.run_ready()

    @property
    def filenos(self) -> list[int]:
        """What to wake up for."""
        return [self.loop.fileno] if self._open else []

    @property
    def is_calling(self) -> bool:
        """Whether calls are under way."""
        return bool(self._open)

    def order(self, orders: Sequence[Begin | Cancel]) -> None:
        """Begin and cancel calls."""
        for each in orders:
            if isinstance(each, Cancel):
                self._open.discard(each.number)
                if (task := self._tasks.pop(each.number, None)) is not None:
                    task.cancel()
            elif not each.threads:
                self._open.add(each.number)
                self._tasks[each.number] = self.loop.create_task(self._call(each))
            elif self._has_threads:
                self._open.add(each.number)
                self._pool(each).put(each)
            else:
                self._done.append(call(each))

    def _pool(self, begin: Begin) -> _Threads:
        pool = self._pools.get(begin.kind)
        if pool is None:
            loop = self.loop
            pool = _Threads(begin.threads, lambda called: loop.call_soon_threadsafe(self._take, called))
            self._pools[begin.kind] = pool
        return pool

    async def _call(self, begin: Begin) -> None:
        self._take(await called_by(begin))

    def _take(self, called: Called) -> None:
        if called.number in self._open:
            self._open.discard(called.number)
            self._tasks.pop(called.number, None)
            self._done.append(called)

    def done(self) -> list[Called]:
        """Run what can be run at this moment; return the calls that are over."""
        if self._open:
            self.loop.run_ready()
        done, self._done = self._done, []
        return done

    def wake_us(self) -> int | None:
        """When a coroutine that sleeps wakes up."""
        return self.loop.next_us() if self._open else None

    def close(self) -> None:
        """Cancel what is under way; threads that are busy end with their process."""
        for pool in self._pools.values():
            pool.close()
        if self._loop is not None and not self._loop.is_closed():
            for task in self._tasks.values():
                task.cancel()
            self._tasks.clear()
            self._open.clear()
            with suppress(RuntimeError):  # another loop runs in this thread, of whoever has called us
                self._loop.run_ready()
            self._loop.close()


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

    def __init__(self, most: int, tell: Callable[[Called], object]) -> None:
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
            with suppress(RuntimeError):  # the worker has ended meanwhile
                self._tell(called)

    def close(self) -> None:
        for _ in self._threads:
            self._todo.put(None)
