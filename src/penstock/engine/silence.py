"""Whether nobody was heard for too long; a worker asks, which ends when its driver is gone."""

from __future__ import annotations

STALL_US = 1_000_000
"""Whoever looks later than this after the last time has stood still meanwhile: a worker looks twice a second."""


class Silence:
    """Counts the time since the other side was heard, without the time in which this process itself stood still.

    A machine that sleeps for a minute, or is moved to another host, stops both sides. The one that wakes up first shall
    not take the other for dead.
    """

    def __init__(self, limit_us: int, now_us: int) -> None:
        self._limit_us = limit_us
        self._heard_us = self._looked_us = now_us

    def heard(self, now_us: int) -> None:
        """The other side has said something."""
        self._heard_us = now_us

    def is_too_long(self, now_us: int) -> bool:
        """Look: whether it was silent for longer than the limit."""
        self._heard_us = min(now_us, self._heard_us + max(0, now_us - self._looked_us - STALL_US))
        self._looked_us = now_us
        return now_us - self._heard_us > self._limit_us
