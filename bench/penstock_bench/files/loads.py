"""Work that costs and gives nothing: cpu_load, mem_load and disk_load; `build` puts it before a transformation."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from typing import IO, Any

import pyarrow as pa

from penstock.types import Record
from penstock_bench.files.model import Loads

MEMORY_HELD_BYTES = 64 << 20
"""What a transformation with mem_load 1 holds, in every process that runs it."""
MEMORY_COPIED_BYTES = 64 << 10
"""What it reads and writes for every message, going round in what it holds."""
DISK_FILE_BYTES = 64 << 20
"""Size of the file that a transformation with disk_load 1 goes round in."""
DISK_WRITTEN_BYTES = 16 << 10
"""What it writes for every message, and reads again."""
DISK_SYNC_BYTES = 4 << 20
"""After so much the file is forced onto the disk."""
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
    """Keep the processor busy."""
    for _ in range(rounds):
        pass


@dataclass
class _Memory:
    """Memory held, gone through piece by piece, so that it is not the cache that answers."""

    held: bytearray
    piece_bytes: int
    at: int = 0

    def touch(self) -> None:
        held, size = self.held, self.piece_bytes
        if self.at + 2 * size > len(held):
            self.at = 0
        held[self.at : self.at + size] = held[self.at + size : self.at + 2 * size]
        self.at += size


@dataclass
class _Disk:
    """A file without a name: it is gone with the process."""

    file: IO[bytes]
    piece: bytes
    file_bytes: int
    at: int = 0
    unsynced_bytes: int = 0

    def touch(self) -> None:
        descriptor, size = self.file.fileno(), len(self.piece)
        os.pwrite(descriptor, self.piece, self.at)
        os.pread(descriptor, size, self.at)
        self.at = (self.at + size) % self.file_bytes
        self.unsynced_bytes += size
        if self.unsynced_bytes >= DISK_SYNC_BYTES:
            os.fdatasync(descriptor)
            self.unsynced_bytes = 0


class Burner:
    """Passes messages on unchanged, at a cost.

    Parameters
    ----------
    loads : Loads
        Shares of what a full load is, for every message.
    rate_eps : float
        Messages per second that the transformation gets at the file's rates: at these, ``cpu_load`` is the share of a
        core that is kept busy.
    """

    __name__ = "load"

    def __init__(self, loads: Loads, rate_eps: float) -> None:
        self._message_s = loads.cpu_load / rate_eps
        self._mem_load = loads.mem_load
        self._disk_load = loads.disk_load
        self._begin()

    def _begin(self) -> None:
        # What is held belongs to a process, and is made with the first message there.
        self._spins: int | None = None
        self._memory: _Memory | None = None
        self._disk: _Disk | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_spins": None, "_memory": None, "_disk": None}

    def _open(self) -> int:
        if self._mem_load:
            size = max(int(MEMORY_COPIED_BYTES * self._mem_load), 1)
            self._memory = _Memory(bytearray(max(int(MEMORY_HELD_BYTES * self._mem_load), 2 * size)), size)
        if self._disk_load:
            size = max(int(DISK_WRITTEN_BYTES * self._disk_load), 1)
            file = tempfile.TemporaryFile(prefix="penstock-load-", buffering=0)  # noqa: SIM115 (held for the process)
            self._disk = _Disk(file, os.urandom(size), max(int(DISK_FILE_BYTES * self._disk_load), size))
        self._spins = round(self._message_s * spins_per_second()) if self._message_s else 0
        return self._spins

    @property
    def held_bytes(self) -> int:
        """Memory that is held in this process."""
        return len(self._memory.held) if self._memory else 0

    @property
    def file_bytes(self) -> int:
        """Size of the file so far."""
        return os.fstat(self._disk.file.fileno()).st_size if self._disk else 0

    def burn(self, messages: int) -> None:
        """Do the work of so many messages."""
        spins = self._open() if self._spins is None else self._spins
        if spins:
            spin(spins * messages)
        for part in (self._memory, self._disk):
            if part is not None:
                for _ in range(messages):
                    part.touch()

    def __call__(self, record: Record) -> Record:
        self.burn(1)
        return record

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Burn for a whole batch."""
        self.burn(batch.num_rows)
        return batch
