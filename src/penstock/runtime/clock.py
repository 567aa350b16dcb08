"""The wall clock that cannot step: real time at start-up, monotonic from there on."""

from __future__ import annotations

import time

_OFFSET_NS = time.time_ns() - time.monotonic_ns()


def now_ns() -> int:
    """Nanoseconds since the epoch; processes of one machine agree to within microseconds."""
    return time.monotonic_ns() + _OFFSET_NS


def now_us() -> int:
    """Microseconds since the epoch."""
    return (time.monotonic_ns() + _OFFSET_NS) // 1000
