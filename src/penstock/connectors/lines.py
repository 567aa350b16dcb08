"""Bytes and lines of files: plain, gzip or zstd, from any byte on; `json_files` and `csv_files` read through it."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from penstock.errors import SourceMissing, SourceUnreadable

HEAD_BYTES = 1024
"""The first line of a file, up to here, says which file it is."""
HEADER_BYTES = 64 * 1024
"""The longest header."""
TAIL_BYTES = 256
"""So many bytes before a position are compared before a file is read on from there."""
READ_BYTES = 256 * 1024
SPACES = b" \t\n\r\x0b\x0c"
_SPACES_MAX = 8
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_GZIP_BITS = 31


def fingerprint(data: bytes) -> int:
    """A number that stands for some bytes."""
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")


class Content:
    """The bytes of a file, decompressed where it is packed; positions are those of the decompressed bytes."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._file: BinaryIO = Path(path).open("rb")  # noqa: SIM115 -- open from poll to poll
        except FileNotFoundError:
            raise SourceMissing(path=path) from None
        self.inode = os.fstat(self._file.fileno()).st_ino
        begin = self._file.read(4)
        self._is_zstd = begin == _ZSTD
        self.is_packed = self._is_zstd or begin[:2] == _GZIP
        self._rewind()

    def _rewind(self) -> None:
        self._file.seek(0)
        self.at = 0
        """Where the next byte comes from."""
        self.raw_at = 0
        """The same in the file as it is stored, about."""
        self._raw = b""
        self._inflater = zlib.decompressobj(_GZIP_BITS)
        self._unpacked: Any = None
        """What a zstd file is read through, while it has something to give."""
        self._fresh = True
        """Whether no byte of the present gzip member, or zstd frame, has been read."""

    @property
    def is_cut_off(self) -> bool:
        """Whether packed data have no end so far."""
        return self.is_packed and not self._fresh

    def move(self, to: int, bytes_max: int | None = None) -> bool:
        """Go to a byte; in a packed file no further than ``bytes_max`` at once. Say whether it is there.

        Where the file ends before that byte, it stays at its end.
        """
        if not self.is_packed:
            self.at = self.raw_at = self._file.seek(to)
            return True
        if to < self.at:
            self._rewind()
        while self.at < to:
            size = min(to - self.at, READ_BYTES)
            if bytes_max is not None:
                if bytes_max <= 0:
                    return False
                bytes_max -= size
            if not self.read(size):
                break
        return True

    def read(self, size: int) -> bytes:
        """Return the next bytes, at most ``size``; nothing at the end, where more may come later."""
        if not self.is_packed:
            data = self._file.read(size)
            self.at = self.raw_at = self.at + len(data)
            return data
        data = self._unzstd(size) if self._is_zstd else self._inflated(size)
        self.at += len(data)
        return data

    def _unzstd(self, size: int) -> bytes:
        if self._unpacked is None:
            # Its end was reached before: whether more has come since shows only from the beginning.
            raw = os.fdopen(os.dup(self._file.fileno()), "rb", buffering=0)
            raw.seek(0)
            self._unpacked = raw, pa.CompressedInputStream(pa.PythonFile(raw, "r"), "zstd")
            self._skip(self.at)
        raw, stream = self._unpacked
        try:
            data = bytes(stream.read(size))
            self._fresh = not data
        except OSError as error:
            if raw.tell() < os.fstat(raw.fileno()).st_size:
                raise SourceUnreadable(path=self.path, cause=f"its zstd data are damaged ({error})") from None
            data, self._fresh = b"", False
        self.raw_at = raw.tell()
        if not data:
            self._unpacked = None
        return data

    def _skip(self, size: int) -> None:
        while size and (data := self._unpacked[1].read(min(size, READ_BYTES))):
            size -= len(data)

    def _inflated(self, size: int) -> bytes:
        while True:
            if not self._raw:
                self._raw = self._file.read(READ_BYTES)
                self.raw_at += len(self._raw)
                if not self._raw:
                    return b""
            try:
                data = self._inflater.decompress(self._raw, size)
            except zlib.error as error:
                raise SourceUnreadable(path=self.path, cause=f"its gzip data are damaged ({error})") from None
            self._fresh = False
            self._raw = self._inflater.unconsumed_tail
            if self._inflater.eof:
                self._raw = self._inflater.unused_data
                self._inflater = zlib.decompressobj(_GZIP_BITS)
                self._fresh = True
            if data:
                return data

    def head(self, *, whole: bool, header: bool = False) -> int | None:
        """Which file it is, by its first line: a fingerprint; None where there is no whole one yet.

        Parameters
        ----------
        whole : bool
            The file is as it will be: a line without a break at the end is one too.
        header : bool
            The first line is like that of other files: the one behind it counts too.
        """
        self.move(0)
        data, begin = b"", 0
        if header:
            data = self._some(b"", 1, HEADER_BYTES)
            begin = data.find(b"\n") + 1 or len(data)
            if begin < HEADER_BYTES and not data.endswith(b"\n", 0, begin):
                return None
        data = self._some(data, 1 + header, begin + HEAD_BYTES)
        line, broken, _ = data[begin:].partition(b"\n")
        if not broken and len(line) < HEAD_BYTES and (not line or not whole):
            return None
        return fingerprint(data[:begin] + line[:HEAD_BYTES])

    def _some(self, data: bytes, lines: int, size: int) -> bytes:
        """Read on until so many lines are there, or bytes."""
        while len(data) < size and data.count(b"\n") < lines and (more := self.read(min(size - len(data), HEAD_BYTES))):
            data += more
        return data

    def tail(self, byte: int) -> bytes:
        """Read the bytes before a position, up to it; shorter than they were where the file has become so."""
        self.move(max(0, byte - TAIL_BYTES))
        data = b""
        while (left := min(byte, TAIL_BYTES) - len(data)) and (more := self.read(left)):
            data += more
        return data

    def close(self) -> None:
        """Close the file."""
        self._unpacked = None
        self._file.close()


@dataclass(slots=True)
class Lines:
    """Lines that were cut from a text, without the space around them and without blank ones.

    Attributes
    ----------
    values : pyarrow.Array
        The lines.
    starts : numpy.ndarray
        Where each begins in the text.
    numbers : numpy.ndarray
        How many line breaks there are before it.
    breaks : int
        How many there are in all.
    """

    values: pa.Array
    starts: Any
    numbers: Any
    breaks: int


def cut(text: bytes, spaces: bytes = SPACES) -> Lines:
    """Cut a text into its lines, without those of ``spaces`` that are around them."""
    data = np.frombuffer(text, dtype=np.uint8)
    if not data.size:
        return Lines(pa.array([], pa.binary()), np.zeros(0, np.int64), np.zeros(0, np.int64), 0)
    breaks = np.flatnonzero(data == ord("\n"))
    first = starts = np.concatenate(([0], breaks + 1))
    ends = np.concatenate((breaks, [data.size]))
    is_space = np.isin(np.arange(256), list(spaces))
    for _ in range(_SPACES_MAX):
        before = (starts < ends) & is_space[data[np.minimum(starts, data.size - 1)]]
        after = (starts < ends) & is_space[data[ends - 1]]
        if not before.any() and not after.any():
            break
        starts, ends = starts + before, np.maximum(ends - after, starts + before)
    else:
        stripped = [line.strip(spaces) for line in text.split(b"\n")]
        numbers = np.flatnonzero([bool(line) for line in stripped])
        return Lines(pa.array(filter(None, stripped), pa.binary()), first[numbers], numbers, breaks.size)
    # Lines and what is between them take turns as values over the text; every other one is a line.
    numbers = np.flatnonzero(starts < ends)
    bounds = np.append(np.column_stack((starts[numbers], ends[numbers])).ravel(), data.size).astype(np.int32)
    turns = pa.Array.from_buffers(pa.binary(), bounds.size - 1, [None, pa.py_buffer(bounds), pa.py_buffer(text)])
    return Lines(turns.take(pa.array(np.arange(0, bounds.size - 1, 2))), first[numbers], numbers, breaks.size)


@dataclass(slots=True)
class Block:
    """Lines of a file that were read at once, and how far they have been given out.

    Attributes
    ----------
    text : bytes
        What they were cut from, with some of what lies before it.
    text_at, line_at : int
        Where ``text`` begins, and the number of line breaks before the block itself.
    end, end_line : int
        Where the block ends, and the number of line breaks before that.
    """

    lines: Lines
    text: bytes
    text_at: int
    first: int
    line_at: int
    end: int
    end_line: int
    given: int = field(default=0)

    @staticmethod
    def of(text: bytes, at: int, line: int, before: bytes, spaces: bytes = SPACES) -> Block:
        """Cut a text that begins at byte ``at`` of its file, behind ``before``."""
        lines = cut(text, spaces)
        end_line = line + lines.breaks
        return Block(lines, before + text, at - len(before), at, line, at + len(text), end_line)

    def __len__(self) -> int:
        return len(self.lines.values) - self.given

    @property
    def byte(self) -> int:
        """Where the next line begins; the end of the block where none is left."""
        return self.byte_of(self.given)

    def byte_of(self, index: int) -> int:
        """Where a line begins, with the blank ones before the first; the end of the block behind the last."""
        if index == len(self.lines.values):
            return self.end
        return self.first + int(self.lines.starts[index]) if index else self.first

    @property
    def line(self) -> int:
        """How many line breaks there are before `byte`."""
        if self.given == len(self.lines.values):
            return self.end_line
        return self.line_at + (int(self.lines.numbers[self.given]) if self.given else 0)

    def tail(self, byte: int) -> int:
        """Fingerprint of what lies before a byte of the block, or its end."""
        at = byte - self.text_at
        return fingerprint(self.text[max(0, at - TAIL_BYTES) : at])

    def before(self) -> bytes:
        """The end of the block, for the one that follows."""
        return self.text[-TAIL_BYTES:]

    def take(self, count: int) -> pa.Array:
        """Give out the next lines."""
        values = self.lines.values.slice(self.given, count)
        self.given += count
        return values
