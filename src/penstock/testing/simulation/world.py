"""Made-up time and chance: a heap of events and one generator of random numbers; everything simulated lives in it."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from zlib import crc32

START_US = 1_700_000_000_000_000
"""When made-up time begins: an ordinary day."""


class Violation(AssertionError):
    """Something that must never happen has happened."""


class World:
    """The clock, the events to come, and a hash of all that has happened.

    Parameters
    ----------
    seed : int
        What everything follows from.
    """

    def __init__(self, seed: int) -> None:
        self.now_us = START_US
        self.random = Random(f"world {seed}")
        self.steps = 0
        self.labour_ns = 0
        """Work that was done and not yet charged to the process that did it."""
        self.trace = 0
        """Hash of every event and its time so far."""
        self.lines: list[str] | None = None
        """The events themselves, if somebody wants to read them."""
        self._heap: list[tuple[int, int, str, Callable[[], None]]] = []
        self._serial = 0

    def at(self, time_us: int, label: str, action: Callable[[], None]) -> None:
        """Have something happen at a time; what is meant for the same moment happens in the order of the calls."""
        self._serial += 1
        heapq.heappush(self._heap, (max(time_us, self.now_us), self._serial, label, action))

    def after(self, delay_us: int, label: str, action: Callable[[], None]) -> None:
        """Have something happen after a while."""
        self.at(self.now_us + delay_us, label, action)

    def step(self) -> bool:
        """Let the next event happen; False if there is none."""
        if not self._heap:
            return False
        self.now_us, _, label, action = heapq.heappop(self._heap)
        self.steps += 1
        self.note(label)
        action()
        return True

    def note(self, what: str) -> None:
        """Write something into the trace."""
        line = f"{self.now_us - START_US} {what}"
        self.trace = crc32(line.encode(), self.trace)
        if self.lines is not None:
            self.lines.append(line)

    def work_ns(self, overhead_ns_max: int) -> int:
        """Say how much time a process has spent since it last asked, with a little for all it does besides."""
        labour_ns, self.labour_ns = self.labour_ns, 0
        return labour_ns + self.random.randrange(overhead_ns_max)

    def chance(self, probability: float) -> bool:
        """Toss a coin."""
        return probability > 0 and self.random.random() < probability

    def between(self, low_us: int, high_us: int) -> int:
        """Draw a duration, both ends included; small ones are as likely as large ones in their order of magnitude."""
        if high_us <= low_us:
            return low_us
        ratio = (high_us + 1) / (low_us + 1)
        return min(high_us, int((low_us + 1) * ratio ** self.random.random()) - 1)
