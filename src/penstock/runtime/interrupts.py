"""Ctrl-C: held back while Spark starts, then turned into drain and, the second time, stop. The job handle uses it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

DRAINING_NOTE = "draining… Ctrl-C again stops at once"
STOPPING_NOTE = "stopping at once; what is not committed stays invisible"
HELD_NOTE = "ending as soon as Spark has started…"


class Acknowledge:
    """Tells on standard error what the interrupts so far have led to."""

    def __init__(self) -> None:
        self._told = 0

    def __call__(self, interrupts: int) -> None:
        if interrupts > self._told:
            self._told = interrupts
            print(DRAINING_NOTE if interrupts == 1 else STOPPING_NOTE, file=sys.stderr, flush=True)


@contextmanager
def held_interrupts() -> Iterator[list[int]]:
    """Hold a first Ctrl-C back and yield those seen; a second one interrupts as usual.

    A JVM that has half started cannot be ended in order, so the caller ends it when it is up.
    """

    def on_signal(count: int) -> None:
        if count > 1:
            raise KeyboardInterrupt
        os.write(2, f"{HELD_NOTE}\n".encode())  # a handler may not use buffered streams

    with _handling((signal.SIGINT,), on_signal) as seen:
        yield seen


@contextmanager
def taken_interrupts(first: Callable[[], None], second: Callable[[], None]) -> Iterator[list[int]]:
    """Call ``first`` at the first SIGINT or SIGTERM and ``second`` at every further one; yields those seen."""

    def on_signal(count: int) -> None:
        if count == 1:
            first()
        else:
            second()

    with _handling((signal.SIGINT, signal.SIGTERM), on_signal) as seen:
        yield seen


@contextmanager
def _handling(numbers: tuple[int, ...], on_signal: Callable[[int], None]) -> Iterator[list[int]]:
    """Take signals over for a while; only the main thread can, elsewhere nothing is taken."""
    seen: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield seen
        return

    def handler(number: int, frame: FrameType | None) -> None:
        del frame
        seen.append(number)
        on_signal(len(seen))

    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield seen
    finally:
        for number, former in before.items():
            signal.signal(number, former)
