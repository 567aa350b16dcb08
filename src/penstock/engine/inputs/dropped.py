"""What a source instance has read and dropped (PS-5), by cause; `engine/shedding.py` drops, the readers count."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Cause(Enum):
    """Why records are dropped; the value begins the error of their dead letters."""

    TIMEOUT = "EventTimeout"
    BOUND = "QueueFull"


@dataclass(slots=True)
class Dropped:
    """Counts of dropped records; each has one cause, and may be a dead letter besides."""

    timed_out: int = 0
    over_bound: int = 0
    dead_letters: int = 0

    def count(self, cause: Cause, records: int, *, dead: bool) -> None:
        """Add records that were dropped."""
        if cause is Cause.TIMEOUT:
            self.timed_out += records
        else:
            self.over_bound += records
        self.dead_letters += records if dead else 0
