"""The rhythm in which a worker reads its sources: all of them in one turn, however many they are."""

from __future__ import annotations

MANY_WORKERS = 3
"""So many workers would take most of two cores with turns alone, each of which costs as much as dozens of records."""
FEW_RECORDS = 4
"""There, fewer than this are not worth a turn,"""
FEW_LINGERS = 2
"""so more are let gather for so many times as long."""
STAGGER_US = 150
"""A worker reads so long after the one before it: what that one has sent it finds there."""


class Rhythm:
    """When the sources of a worker were last read, and when it wakes up for them again.

    Parameters
    ----------
    linger_us : int
        Time between two turns for which sources wake the worker up.
    worker, workers : int
        Which worker it is, of how many: those of one machine go by one clock, each at a phase of its own.
    """

    __slots__ = ("_few_us", "_found", "_linger_us", "_phase_us", "_read_us")

    def __init__(self, linger_us: int, worker: int = 0, workers: int = 1) -> None:
        self._linger_us = linger_us
        self._few_us = linger_us * (FEW_LINGERS if workers >= MANY_WORKERS else 1)
        self._phase_us = worker * min(STAGGER_US, linger_us // workers)
        self._read_us = self._found = 0

    def read(self, now_us: int, records: int) -> None:
        """A source was read in the turn that began at ``now_us``."""
        if now_us != self._read_us:
            self._read_us, self._found = now_us, 0
        self._found += records

    @property
    def next_us(self) -> int:
        """When the next turn begins, if something is due by then."""
        period_us = self._linger_us if self._found >= FEW_RECORDS else self._few_us
        earliest_us = self._read_us + period_us // 2
        return earliest_us + (self._phase_us - earliest_us) % period_us
