"""How long a server that is away is waited for, with growing pauses; sinks and tables of servers ask.

A writer's thread waits by itself (`connectors/background.py`). A table is asked in the loop of a worker, which says in
the pauses that it is there (`runtime/host.py`), so that nobody takes it for lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.durations import parse_us

RETRY = "5m"
"""Unless users say otherwise."""
BACK_OFF_S = 0.05
BACK_OFF_MAX_S = 5.0
_STEP_S = 1.0
_clock: Callable[[], float] = time.monotonic
_signs: dict[int, Callable[[], None]] = {}
"""What a thread does from time to time while it waits, by the thread's number."""


def retry_s(retry: str | float) -> float:
    """Read the option."""
    return parse_us(retry, option="retry", allow_zero=True) / 1e6


class Patience:
    """Says how long to wait before a server that has not answered is asked again.

    It counts from the first time that the server did not answer.

    Examples
    --------
    >>> patience = Patience(1.0, clock=iter([7.0, 7.1, 7.9, 8.0]).__next__)
    >>> [patience.pause_s() for _ in range(4)]
    [0.05, 0.1, None, None]
    """

    def __init__(self, limit_s: float, clock: Callable[[], float] | None = None) -> None:
        self._limit_s = limit_s
        self._clock = clock or _clock
        self._lost_s: float | None = None
        self._next_s = BACK_OFF_S

    def pause_s(self, wanted_s: float = 0.0) -> float | None:
        """How long to wait now; None: it has been away for too long.

        Parameters
        ----------
        wanted_s : float
            What the server has asked for.
        """
        now_s = self._clock()
        if self._lost_s is None:
            self._lost_s = now_s
        pause_s = max(self._next_s, min(wanted_s, BACK_OFF_MAX_S))
        if now_s + pause_s > self._lost_s + self._limit_s:
            return None
        self._next_s = min(2 * self._next_s, BACK_OFF_MAX_S)
        return pause_s


@contextmanager
def signing(sign: Callable[[], None]) -> Iterator[None]:
    """Have this thread do something at least every second while it waits for a server."""
    me = threading.get_ident()
    _signs[me] = sign
    try:
        yield
    finally:
        del _signs[me]


def wait(until: Callable[[float], object], limit_s: float) -> bool:
    """Wait for a condition, which waits itself for so many seconds and says whether it holds; at most ``limit_s``."""
    sign, end_s = _signs.get(threading.get_ident()), time.monotonic() + limit_s
    while not until(min(_STEP_S, max(0.0, end_s - time.monotonic()))):
        if sign is not None:
            sign()
        if time.monotonic() >= end_s:
            return False
    return True


def sleep(seconds: float) -> None:
    """Wait for so long."""

    def until(step_s: float) -> bool:
        time.sleep(step_s)
        return False

    wait(until, seconds)
