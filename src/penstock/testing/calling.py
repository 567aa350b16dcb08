"""Calls of users' functions in made-up time.

A coroutine that sleeps takes made-up time and no other. One that talks to something outside is waited for, and takes no
made-up time at all. Functions that give no coroutine are called at once.
"""

from __future__ import annotations

from penstock.runtime.calling import Caller, ClockUs

WORLD_S_MAX = 30.0
"""How long something outside may take to answer, in real time."""
_LOOK_S = 0.01


class MadeUpCalls(Caller):
    """The runtime's calls by the clock of a test."""

    def __init__(self, clock_us: ClockUs) -> None:
        super().__init__(clock_us, threads=False)
        self._waited_s = 0.0

    def waits_for_world(self) -> bool:
        """Whether a call waits for something outside: then time stands still; waits a moment for it."""
        selector = self.loop.selector if self.is_calling else None
        # The loop's own descriptor is always there.
        if selector is None or len(selector.get_map()) <= 1 or self._waited_s >= WORLD_S_MAX:
            self._waited_s = 0.0
            return False
        if selector.select(_LOOK_S):
            self._waited_s = 0.0
        else:
            self._waited_s += _LOOK_S
        return True
