"""Finds the record that kills its process: in careful mode every record is noted before an operation touches it.

A worker that was lost twice without a commit in between comes back in careful mode, until the next commit. What stands
in the note when it is lost again is the suspect; a suspect of enough losses is quarantined: its operation's error
policy has it.
"""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

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
    quarantined : set of Suspect
        Records that may not reach their operation again.
    note : callable
        Writes the record about to be handled where it outlives the process; None when it is done.
    """

    def __init__(self, quarantined: frozenset[Suspect], note: Callable[[Suspect | None], None]) -> None:
        self._quarantined = quarantined
        self._note = note
        self._encode = msgspec.msgpack.Encoder().encode

    def admits(self, operation: str, record: Record) -> bool:
        """Say whether the record may be handled, and note that it is about to be."""
        suspect = Suspect(operation, crc32(self._encode(record)))
        if suspect in self._quarantined:
            return False
        self._note(suspect)
        return True

    def done(self) -> None:
        """The operation has returned."""
        self._note(None)
