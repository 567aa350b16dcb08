"""The wall clock that cannot step: real time at start-up, monotonic from there on."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

_OFFSET_NS = time.time_ns() - time.monotonic_ns()


def sleep_finely() -> None:
    """Have this process woken up when its time is over, not up to 50 µs later, which Linux would use to save power."""
    with suppress(OSError):
        Path("/proc/self/timerslack_ns").write_text("1000")


def now_ns() -> int:
    """Nanoseconds since the epoch; processes of one machine agree to within microseconds."""
    return time.monotonic_ns() + _OFFSET_NS


def now_us() -> int:
    """Microseconds since the epoch."""
    return (time.monotonic_ns() + _OFFSET_NS) // 1000
