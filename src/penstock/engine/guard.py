"""Finds the record that kills its process: in careful mode every record is noted before an operation touches it.

A worker that was lost twice without a commit in between comes back in careful mode, until the next commit. What stands
in the note when it is lost again is the suspect; a suspect of enough losses is quarantined: its operation's error
policy has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b

import msgspec

from penstock.types import Record

QUARANTINE_LOSSES = 2
"""How often a record must have stood in the note of a lost process."""


class Suspect(msgspec.Struct, frozen=True):
    """A record in front of an operation, by name and contents: equal records are equally dangerous."""

    operation: str
    fingerprint: int


class Guard:
    """Careful mode of one worker.

    Parameters
    ----------
    quarantined : mapping of Suspect to int
        Records that may not reach their operation again, and how often the process was lost with each.
    note : callable
        Writes the record about to be handled where it outlives the process; None when it is done.
    """

    def __init__(self, quarantined: Mapping[Suspect, int], note: Callable[[Suspect | None], None]) -> None:
        self._quarantined = quarantined
        self._note = note
        self._encode = msgspec.msgpack.Encoder().encode

    def losses(self, operation: str, record: Record) -> int:
        """How often the process was lost with a quarantined record; 0: it may be handled, and is noted."""
        digest = blake2b(self._encode(record), digest_size=8).digest()
        suspect = Suspect(operation, int.from_bytes(digest, "big"))
        losses = self._quarantined.get(suspect, 0)
        if not losses:
            self._note(suspect)
        return losses

    def done(self) -> None:
        """The operation has returned."""
        self._note(None)
