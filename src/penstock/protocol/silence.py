"""How long another process has said nothing; driver, workers and slots ask. Pure.

A process that is stopped, or whose machine is, hears nothing meanwhile: that is no silence of the others, who may have
been stopped as well. So a turn that comes much later than it was to come moves the time of the last word on.
"""

from __future__ import annotations

STANDSTILL_SHARE = 2
"""A turn that is late by this part of the silence that is allowed means that the process stood still."""


class Silence:
    """What is heard of one other process.

    Parameters
    ----------
    limit_us : int
        Silence for longer means that it is gone.

    Examples
    --------
    >>> driver = Silence(30, now_us=0)
    >>> driver.is_over(10), driver.is_over(50), driver.is_over(60), driver.is_over(71)
    (False, False, False, True)
    """

    def __init__(self, limit_us: int, now_us: int) -> None:
        self._limit_us = limit_us
        self._heard_us = self._awake_us = now_us

    def hear(self, now_us: int) -> None:
        """It has said something."""
        self._heard_us = now_us

    def is_over(self, now_us: int) -> bool:
        """Whether it has been silent for too long; asked in every turn."""
        stood_us = stood_still_us(self._awake_us, now_us, self._limit_us)
        self._awake_us = max(now_us, self._awake_us)
        self._heard_us = min(self._heard_us + stood_us, now_us)
        return now_us - self._heard_us > self._limit_us

    def awaits(self, wake_us: int) -> None:
        """The next turn is to come then, unless a message brings it before."""
        self._awake_us = max(wake_us, self._awake_us)

    @property
    def ends_us(self) -> int:
        """The first moment at which silence is over, if nothing is heard until then."""
        return self._heard_us + self._limit_us + 1


def stood_still_us(awaited_us: int, now_us: int, limit_us: int) -> int:
    """How long a process stood still that was to be at work at ``awaited_us`` at the latest; 0 if it was busy."""
    late_us = now_us - awaited_us
    return late_us if STANDSTILL_SHARE * late_us >= limit_us else 0
