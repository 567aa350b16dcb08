"""The wall clock that cannot step: real time when the driver started, monotonic from there on, in all its processes.

A process that is started later may find another time of day, because somebody has set the clock. So it takes the
driver's, wherever both count from the same start of the machine.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import msgspec

_OFFSET_NS = time.time_ns() - time.monotonic_ns()


class Clock(msgspec.Struct, frozen=True):
    """What a process adds to its monotonic time, and since which start of the machine that counts."""

    boot: str = ""
    """Empty: not known, so nobody else can use it."""
    offset_ns: int = 0


def own_clock() -> Clock:
    """The clock of this process, for those that it starts."""
    return Clock(_boot(), _OFFSET_NS)


def adopt(clock: Clock) -> None:
    """Have the clock of another process, if it is of this machine."""
    global _OFFSET_NS
    if clock.boot and clock.boot == _boot():
        _OFFSET_NS = clock.offset_ns


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


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
