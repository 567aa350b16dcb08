"""Records that kill their process, and the note of careful mode that outlives it: what `runtime.suspects` keeps."""

from __future__ import annotations

from collections import Counter
from typing import Any

from penstock.engine.guard import QUARANTINE_LOSSES, Guard, Suspect


class Killed(BaseException):
    """The process is gone, whatever would have handled an exception."""


class Poison:
    """A function of a user's that kills its process on some records."""

    def __init__(self, seqs: frozenset[tuple[int, int]]) -> None:
        self._seqs = seqs
        """Partition and number in it."""

    def __call__(self, record: Any) -> Any:
        if (record.partition, record.seq) in self._seqs:
            raise Killed
        return record


class Notes:
    """What careful mode writes down, on the simulated disk."""

    def __init__(self) -> None:
        self.opened = 0
        """How often a worker came back in careful mode."""
        self._standing: dict[int, Suspect | None] = {}
        self._losses: Counter[Suspect] = Counter()

    def open(self, worker: int) -> Guard:
        """Judge what the lost process of this worker was at, and begin anew."""
        self.opened += 1
        suspect = self._standing.get(worker)
        if suspect is not None:
            self._losses[suspect] += 1
        self._standing[worker] = None
        quarantined = {each: losses for each, losses in self._losses.items() if losses >= QUARANTINE_LOSSES}

        def note(suspect: Suspect | None) -> None:
            self._standing[worker] = suspect

        return Guard(quarantined, note)
