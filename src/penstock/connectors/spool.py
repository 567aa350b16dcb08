"""Lines that came over the network, on disk before anybody is told that they have arrived; `ps.http` reads them there.

The spool is a directory of segments, which are numbered and only grow. Each start of a receiver begins a new one.

=====================================  ================================================================================
event                                  effect
=====================================  ================================================================================
lines come                             appended to the present segment and synced to the disk, then answered
the present segment is large           the next one is begun
a start after a crash                  what has no line break at the end was never answered, and is cut off
all of a segment is committed          it is removed, unless it is the newest: its number must not come again
more than ``bytes_max`` lie there      nothing is taken until some is committed
=====================================  ================================================================================
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from penstock.errors import SourceFailed

SEGMENT_BYTES = 4 * 1024 * 1024
_SUFFIX = ".jsonl"
_COMMITTED = "committed"
_BLANK = str.maketrans("01", " \t")


class SpoolFull(Exception):
    """There is no room: those who read are behind."""


def segments(directory: Path) -> dict[int, Path]:
    """The segments of a spool, by their numbers."""
    found = {int(path.stem): path for path in directory.glob(f"*{_SUFFIX}") if path.stem.isdecimal()}
    return dict(sorted(found.items()))


def committed(directory: Path) -> bytes | None:
    """The position that was committed last, if there is one."""
    try:
        return (directory / _COMMITTED).read_bytes()
    except FileNotFoundError:
        return None


def note_committed(directory: Path, position: bytes) -> None:
    """Keep a position for a job that begins anew."""
    beside = directory / f".{_COMMITTED}"
    beside.write_bytes(position)
    beside.replace(directory / _COMMITTED)


class Spool:
    """Takes lines in; several threads may do so at once, and share what they wait for at the disk."""

    def __init__(self, directory: Path, bytes_max: int, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._directory = directory
        self.bytes_max = bytes_max
        self._segment_bytes = min(segment_bytes, bytes_max // 4)
        self._lock = threading.Lock()
        self._syncing = threading.Lock()
        directory.mkdir(parents=True, exist_ok=True)
        found = segments(directory)
        if found:
            _mend(list(found.values())[-1])
        self._sizes = {number: path.stat().st_size for number, path in segments(directory).items()}
        self._number = max(self._sizes, default=0)
        self._written = self._synced = 0
        self._file = self._next()

    def _next(self) -> int:
        """Begin the next segment."""
        self._number += 1
        path = self._directory / f"{self._number:012d}{_SUFFIX}"
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        directory = os.open(self._directory, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)
        # Files are known by their first lines: this one is blank for whoever reads records, and no other is like it.
        mark = f"{self._number:b}".translate(_BLANK).encode() + b"\n"
        os.write(file, mark)
        self._sizes[self._number] = len(mark)
        return file

    @property
    def bytes_held(self) -> int:
        """What lies in the spool."""
        return sum(self._sizes.values())

    def append(self, lines: bytes) -> None:
        """Take whole lines in; they are on the disk when this returns.

        Raises
        ------
        SpoolFull
            Nothing was taken.
        """
        with self._lock:
            if self._sizes[self._number] >= self._segment_bytes:
                with self._syncing:
                    os.fsync(self._file)
                    os.close(self._file)
                    self._synced = self._written
                    self._file = self._next()
            if self.bytes_held + len(lines) > self.bytes_max:
                raise SpoolFull
            left = memoryview(lines)
            while left:
                left = left[os.write(self._file, left) :]
            self._sizes[self._number] += len(lines)
            self._written += len(lines)
            mine = self._written
        with self._syncing:
            if self._synced < mine:  # else somebody has done it who came later
                reached = self._written
                os.fsync(self._file)
                self._synced = max(self._synced, reached)

    def remove(self, path: str, read_bytes: int) -> None:
        """Remove a segment of which so much is committed, if that is all of it and another one follows."""
        name = Path(path)
        number = int(name.stem)
        with self._lock:
            if number < self._number and self._sizes.get(number) == read_bytes:
                name.unlink(missing_ok=True)
                del self._sizes[number]

    def close(self) -> None:
        """Close the present segment."""
        with self._lock, self._syncing:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1


def _mend(path: Path) -> None:
    """Cut off what a crash has left behind the last line break."""
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - 65_536)
            file.seek(start)
            at = file.read(end - start).rfind(b"\n")
            if at >= 0:
                end = start + at + 1
                break
            end = start
        file.truncate(end)


def check_gap(directory: Path, known: list[str]) -> None:
    """Refuse a position after which segments were read and removed: an older checkpoint was restored."""
    there, numbers = segments(directory), [int(Path(path).stem) for path in known if Path(path).stem.isdecimal()]
    if numbers and (not there or min(there) > max(numbers) + 1):
        raise SourceFailed(
            source=f"spool '{directory}'",
            cause="lines behind the checkpoint were read by a later run, and are gone",
            hint="Restore the newest checkpoint, or begin anew with another checkpoint directory.",
        )
