"""When an alternative that fails is left out, and when it is tried again: a circuit breaker. Pure; `choices` asks.

=======  ===========================================  ============================================  =======
state    event                                        effect                                        next
=======  ===========================================  ============================================  =======
CLOSED   failures at fewer looks than LOOKS in a row  —                                             CLOSED
CLOSED   failures at LOOKS looks in a row, or         it is left out for the least pause            OPEN
         FAILURES of them between two looks, or an
         instance does not ask it any more
OPEN     the pause is over                            it may be used again                          TRIED
TRIED    a failure, or an instance does not ask it    it is left out, twice as long as before       OPEN
         any more
TRIED    used for PROVEN_US without a failure         the pause is the least again                  CLOSED
=======  ===========================================  ============================================  =======
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

LOOKS = 3
FAILURES = 3
PAUSE_US_MIN = 1_000_000
PAUSE_US_MAX = 60_000_000
PROVEN_US = 5_000_000


class State(Enum):
    """Whether an alternative may be used."""

    CLOSED = "works"
    OPEN = "is left out"
    TRIED = "is tried again"


@dataclass(slots=True)
class Breaker:
    """What is remembered of one alternative."""

    state: State = State.CLOSED
    pause_us: int = PAUSE_US_MIN
    until_us: int = 0
    _seen: int = 0
    _in_a_row: int = 0
    _since_us: int | None = None
    """Since when it is in use on trial."""

    def look(self, failures: int, active: bool, now_us: int, *, given_up: bool = False) -> bool:
        """Take how often it has failed so far; say whether it is left out from now on, and was not before."""
        new = max(0, failures - self._seen)
        self._seen = failures  # of a rebuilt instance, less than before
        if self.state is State.OPEN:
            if now_us >= self.until_us:
                self.state, self._since_us = State.TRIED, None
            return False
        self._in_a_row = self._in_a_row + 1 if new else 0
        if self.state is State.TRIED:
            if new or given_up:
                self.pause_us = min(2 * self.pause_us, PAUSE_US_MAX)
                return self._open(now_us)
            if not active:
                self._since_us = None
            elif self._since_us is None:
                self._since_us = now_us
            elif now_us - self._since_us >= PROVEN_US:
                self.state, self.pause_us = State.CLOSED, PAUSE_US_MIN
            return False
        return self._open(now_us) if given_up or new >= FAILURES or self._in_a_row >= LOOKS else False

    def _open(self, now_us: int) -> bool:
        self.state, self.until_us, self._in_a_row = State.OPEN, now_us + self.pause_us, 0
        return True

    @property
    def is_out(self) -> bool:
        """Whether it must not be used now."""
        return self.state is State.OPEN
