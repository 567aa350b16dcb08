"""Ctrl-C: ends Spark while it starts, drains the job afterwards and, the second time, stops it."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

DRAINING_NOTE = "draining… Ctrl-C again stops at once"
STOPPING_NOTE = "stopping at once; what is not committed stays invisible"
LOOK_S = 0.05
"""Between two looks whether there was an interrupt."""


class Acknowledge:
    """Tells on standard error what the interrupts so far have led to."""

    def __init__(self) -> None:
        self._told = 0

    def __call__(self, interrupts: int) -> None:
        if interrupts > self._told:
            self._told = interrupts
            print(DRAINING_NOTE if interrupts == 1 else STOPPING_NOTE, file=sys.stderr, flush=True)


@contextmanager
def ending_interrupts(end: Callable[[], None]) -> Iterator[None]:
    """On Ctrl-C call ``end`` until what is inside has failed for it, then raise KeyboardInterrupt.

    An exception out of the blue would leave a library in the middle of something; a thread calls ``end`` instead,
    which takes away what the library waits for.
    """
    over = threading.Event()

    def watch() -> None:
        while not over.wait(LOOK_S):
            if seen:
                # What py4j says of the connection that is taken away is no news to anybody.
                logging.getLogger().addFilter(_is_not_of_py4j)
                end()

    with _handling((signal.SIGINT,), lambda _: None) as seen:
        watching = threading.Thread(target=watch, name="penstock-interrupts", daemon=True)
        watching.start()
        try:
            yield
        except Exception:
            if not seen:
                raise
        finally:
            over.set()
            watching.join()
    if seen:
        raise KeyboardInterrupt


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname


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
