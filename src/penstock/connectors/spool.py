"""Lines that came over the network, on disk before anybody is told that they have arrived; `ps.http` reads them there.

The spool is a directory of segments, which are numbered and only grow. Each start of a receiver begins a new one.

=====================================  ================================================================================
event                                  effect
=====================================  ================================================================================
lines come                             appended to the present segment and synced to the disk, then answered and read
they cannot be written, or synced      cut off again, and refused; if that fails too, the next segment is begun
the present segment is large           the next one is begun
a start after a crash                  what has no line break at the end was never answered, and is cut off
all of a segment is committed          it is removed, unless it is the newest: its number must not come again
more than ``bytes_max`` lie there      nothing is taken until some is committed
=====================================  ================================================================================
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.connectors.tracking import Entry, entries
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


@dataclass(slots=True)
class _Segment:
    """The segment that lines go into."""

    number: int
    file: int
    """Its descriptor; -1 once it is closed."""
    size: int
    """So many bytes of it are lines that were taken, or that wait for the disk."""
    synced: int
    """So many of them are on the disk."""
    is_broken: bool = False
    """It could not be written, cut or synced: nothing more goes into it."""
    is_lost: bool = False
    """What is behind ``synced`` may not be on the disk, and is refused."""


class Spool:
    """Takes lines in; several threads may do so at once, and share what they wait for at the disk."""

    def __init__(self, directory: Path, bytes_max: int, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._directory = directory
        self.bytes_max = bytes_max
        self._segment_bytes = min(segment_bytes, bytes_max // 4)
        self._lock = threading.Lock()
        self._syncing = threading.Lock()
        self._closed = False
        directory.mkdir(parents=True, exist_ok=True)
        for path in segments(directory).values():
            _mend(path)
        self._sizes = {number: path.stat().st_size for number, path in segments(directory).items()}
        self._readable: dict[int, int] = {}
        """Of the segments that were begun here: so many bytes are on the disk, and may be read."""
        self._first = max(self._sizes, default=0) + 1
        self._present = self._next(self._first)

    def _next(self, number: int) -> _Segment:
        """Begin the next segment."""
        path = self._directory / f"{number:012d}{_SUFFIX}"
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        try:
            # Files are known by their first lines: for who reads records this one is blank, and no other is like it.
            mark = f"{number:b}".translate(_BLANK).encode() + b"\n"
            _write(file, mark)
            os.fsync(file)
            _sync_directory(self._directory)
        except BaseException:
            os.close(file)
            path.unlink()
            raise
        self._sizes[number] = self._readable[number] = len(mark)
        return _Segment(number, file, len(mark), len(mark))

    @property
    def bytes_held(self) -> int:
        """What lies in the spool."""
        return sum(self._sizes.values())

    def entries(self) -> list[Entry]:
        """The segments, each as far as it may be read: what is not on the disk yet may still be refused."""
        found = []
        for each in entries(str(self._directory)):
            stem = Path(each.path).stem
            number = int(stem) if stem.isdecimal() else 0
            if (size := self._readable.get(number)) is not None:
                found.append(replace(each, size=size))
            elif number < self._first:
                found.append(each)
        return found

    def append(self, lines: bytes) -> None:
        """Take whole lines in; they are on the disk when this returns.

        Raises
        ------
        SpoolFull, OSError
            Nothing was taken.
        """
        with self._lock:
            segment = self._present
            if self._closed:
                raise OSError(errno.EBADF, "the spool is closed")
            if segment.is_broken or segment.size >= self._segment_bytes:
                self._finish(segment)
                segment = self._present = self._next(segment.number + 1)
            if self.bytes_held + len(lines) > self.bytes_max:
                raise SpoolFull
            try:
                _write(segment.file, lines)
            except BaseException:
                segment.is_broken = not _cut(segment.file, segment.size)
                raise
            segment.size += len(lines)
            self._sizes[segment.number] = mine = segment.size
        with self._syncing:
            if segment.synced < mine:  # else somebody has done it who came later
                if segment.is_lost:
                    raise OSError(errno.EIO, "the lines could not be synced to the disk")
                self._sync(segment)

    def _sync(self, segment: _Segment) -> None:
        reached = segment.size
        try:
            os.fsync(segment.file)
        except OSError:
            # Another try may succeed although these lines were dropped.
            segment.is_broken = segment.is_lost = True
            raise
        segment.synced = self._readable[segment.number] = reached

    def _finish(self, segment: _Segment) -> None:
        """Close a segment, at the end of what was taken."""
        with self._syncing:
            if segment.file < 0:
                return
            if segment.synced < segment.size and not segment.is_lost:
                with contextlib.suppress(OSError):  # those who wait for it are told
                    self._sync(segment)
            if segment.is_lost:
                self._sizes[segment.number] = segment.size = segment.synced
            if segment.is_broken:
                _cut(segment.file, segment.size)
            segment.is_broken = True
            os.close(segment.file)
            segment.file = -1

    def remove(self, path: str, read_bytes: int) -> None:
        """Remove a segment of which so much is committed, if that is all of it and another one follows."""
        name = Path(path)
        number = int(name.stem)
        with self._lock:
            if number >= self._present.number or number not in self._sizes:
                return
            if read_bytes == (self._readable[number] if number in self._readable else name.stat().st_size):
                name.unlink(missing_ok=True)
                del self._sizes[number]
                self._readable.pop(number, None)

    def close(self) -> None:
        """Close the present segment."""
        with self._lock:
            self._closed = True
            self._finish(self._present)


def _write(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def _cut(file: int, size: int) -> bool:
    """Cut a file off at a size; say whether that could be done."""
    try:
        os.ftruncate(file, size)
    except OSError:
        return False
    return True


def _sync_directory(directory: Path) -> None:
    opened = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


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
