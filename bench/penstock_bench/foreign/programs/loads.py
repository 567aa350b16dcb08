"""Work that costs and gives nothing; how much of everything one message costs is worked out by `files/program.py`."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import astuple, dataclass
from functools import cache

DISK_SYNC_BYTES = 4 << 20  # after so much the file is forced onto the disk
_CALIBRATION_SPINS = 50_000
_CALIBRATIONS = 7


@cache
def spins_per_second() -> float:
    """How often an empty loop goes round in a second here: the best of a few, as the others were disturbed."""
    best_s = float("inf")
    for _ in range(_CALIBRATIONS):
        began_s = time.perf_counter()
        spin(_CALIBRATION_SPINS)
        best_s = min(best_s, time.perf_counter() - began_s)
    return _CALIBRATION_SPINS / best_s


def spin(rounds: int) -> None:
    for _ in range(rounds):
        pass


@dataclass(eq=False)
class Burner:
    """The cost of a step, for every message; what it needs is made with the first one."""

    message_s: float  # seconds of one core
    held_bytes: int  # memory that is held
    copied_bytes: int  # how much of it is copied
    file_bytes: int  # size of the file that it goes round in
    written_bytes: int  # how much is written there and read again

    def __post_init__(self) -> None:
        self._open = False

    def __reduce__(self) -> tuple[type[Burner], tuple[float, ...]]:
        # What is held belongs to a process.
        return type(self), astuple(self)

    def _begin(self) -> None:
        self._open = True
        self._spins = round(self.message_s * spins_per_second()) if self.message_s else 0
        self.held = bytearray(self.held_bytes)
        self._held_at = self._file_at = self._unsynced_bytes = 0
        if self.written_bytes:
            self.file = tempfile.TemporaryFile(prefix="penstock-load-", buffering=0)  # noqa: SIM115 (held until the end)
            self._piece = os.urandom(self.written_bytes)

    def burn(self, messages: int = 1) -> None:
        if not self._open:
            self._begin()
        spin(self._spins * messages)
        for _ in range(messages if self.copied_bytes else 0):
            self._copy()
        for _ in range(messages if self.written_bytes else 0):
            self._write()

    def _copy(self) -> None:
        """Go through the memory piece by piece, so that it is not the cache that answers."""
        size = self.copied_bytes
        if self._held_at + 2 * size > len(self.held):
            self._held_at = 0
        at = self._held_at
        self.held[at : at + size] = self.held[at + size : at + 2 * size]
        self._held_at += size

    def _write(self) -> None:
        descriptor, size = self.file.fileno(), self.written_bytes
        os.pwrite(descriptor, self._piece, self._file_at)
        os.pread(descriptor, size, self._file_at)
        self._file_at = (self._file_at + size) % self.file_bytes
        self._unsynced_bytes += size
        if self._unsynced_bytes >= DISK_SYNC_BYTES:
            os.fdatasync(descriptor)
            self._unsynced_bytes = 0
