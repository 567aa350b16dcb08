"""The JSON-lines source: one record per line of the files of a directory, a pattern or a single path."""

from __future__ import annotations

import bisect
import glob
import os
from collections import deque
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from penstock.connectors.base import Source, SourceBatch, SourceColumns, SourceReader, check_count
from penstock.errors import InvalidOption, SourceMissing
from penstock.types import Schema

_SCHEMA = Schema.parse("value binary not null")
_SUFFIXES = (".jsonl", ".ndjson", ".json")
_READ_BYTES = 256 * 1024
_AHEAD_RECORDS = 64 * 1024
_MARK_BYTES = 16 * 1024 * 1024
_SPACES_MAX = 8
_IS_SPACE = np.isin(np.arange(256), list(b" \t\n\r\x0b\x0c"))


class JsonFiles(Source):
    """A bounded source of lines; build it with :func:`json_files`."""

    def __init__(self, path: str) -> None:
        self._path = path

    @property
    def schema(self) -> Schema:
        return _SCHEMA

    @property
    def kind(self) -> str:
        return "json_files"

    @property
    def is_split(self) -> bool:
        return True

    @cached_property
    def files(self) -> tuple[str, ...]:
        """The files in reading order; found once, so that all workers agree on them."""
        path = Path(self._path)
        if path.is_dir():
            found = [str(file) for file in path.iterdir() if file.suffix in _SUFFIXES and not file.name.startswith(".")]
        elif path.exists():
            found = [self._path]
        else:
            # Path.glob takes no absolute patterns.
            found = [file for file in glob.glob(self._path) if Path(file).is_file()]  # noqa: PTH207
        if not found:
            raise SourceMissing(path=self._path)
        return tuple(sorted(found))

    def check(self) -> None:
        for file in self.files:
            if not os.access(file, os.R_OK):
                raise InvalidOption(option="path", given=file, allowed="files that may be read")

    def partitions(self, parallelism: int) -> int:
        return min(parallelism, len(self.files))

    def reader(self, partition: int, partitions: int, start_us: int) -> SourceReader:
        del start_us
        return _LinesReader(self.files[partition::partitions])


class _LinesReader(SourceReader):
    """Reads the lines of several files after one another; blank ones do not count.

    Lines are cut a block at a time and held as columns. Marks of where blocks began make going back cheap.
    """

    def __init__(self, files: tuple[str, ...]) -> None:
        self._files = files
        self._file: BinaryIO | None = None
        self._next_file = 0
        self._rest = b""
        """The beginning of a line whose end has not been read."""
        self._held: deque[pa.Array] = deque()
        self._loaded = 0
        """The offset after all lines that are held."""
        self._marks = [_Mark(0, 0, 0)]
        self._ended = False

    def poll(self, now_us: int, records_max: int) -> SourceBatch | None:
        while not self._held:
            if not self._load():
                return None
        lines = self._take(min(records_max, len(self._held[0])))
        return SourceBatch(list(map(_SCHEMA.record_type, lines.to_pylist())), now_us)

    def due_records(self, now_us: int) -> int:
        """Count the lines that are held; one more block is looked at in every call until that is enough."""
        del now_us
        if self._loaded - self.offset < _AHEAD_RECORDS:
            while self._load() and not self._held:
                pass
        return self._loaded - self.offset

    def read(self, count: int) -> SourceColumns:
        while self._loaded - self.offset < count and self._load():
            pass
        check_count(count, self._loaded - self.offset)
        return SourceColumns(pa.RecordBatch.from_arrays([self._take(count)], schema=_SCHEMA.arrow), 0)

    def wake_us(self, now_us: int) -> int | None:
        return None if self._ended and not self._held else now_us

    def seek(self, offset: int) -> None:
        mark = self._marks[bisect.bisect_right(self._marks, offset, key=lambda mark: mark.offset) - 1]
        if offset < self.offset or mark.offset > self._loaded:
            self.close()
            self._rest = b""
            self._next_file, self._ended = mark.file, False
            self._held.clear()
            self.offset = self._loaded = mark.offset
            if mark.position:
                self._open().seek(mark.position)
        while self.offset < offset and (self._held or self._load()):
            if self._held:
                self._take(min(offset - self.offset, self._loaded - self.offset))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _take(self, count: int) -> pa.Array:
        """Return the next ``count`` lines, which are held, and move on."""
        self.offset += count
        parts = []
        while count:
            first = self._held.popleft()
            if len(first) > count:
                self._held.appendleft(first.slice(count))
                first = first.slice(0, count)
            parts.append(first)
            count -= len(first)
        return pa.concat_arrays(parts) if len(parts) > 1 else parts[0]

    def _open(self) -> BinaryIO:
        path = self._files[self._next_file]
        try:
            self._file = Path(path).open("rb")  # noqa: SIM115 -- open from poll to poll
        except FileNotFoundError:
            raise SourceMissing(path=path) from None
        self._next_file += 1
        return self._file

    def _load(self) -> bool:
        """Hold one more block of lines, if there are any in it; False at the end."""
        if self._file is None and self._next_file == len(self._files):
            self._ended = True
            return False
        file = self._file or self._open()
        self._mark(self._next_file - 1, file.tell() - len(self._rest))
        # A line that is longer than a block is not copied again for every block of it.
        data = file.read(max(_READ_BYTES, len(self._rest)))
        text = self._rest + data
        end = text.rfind(b"\n") + 1 if data else len(text)
        if not data:
            self.close()
        self._rest = text[end:]
        lines = _lines(text[:end])
        if len(lines):
            self._held.append(lines)
            self._loaded += len(lines)
        return True

    def _mark(self, file: int, position: int) -> None:
        last = self._marks[-1]
        if (file, position) >= (last.file, last.position + _MARK_BYTES) or (file > last.file and position == 0):
            self._marks.append(_Mark(self._loaded, file, position))


@dataclass(frozen=True, slots=True)
class _Mark:
    """The line of that offset begins at a position of a file, or comes after it."""

    offset: int
    file: int
    position: int


def _lines(text: bytes) -> pa.Array:
    """Cut a text into its lines, without the space around them and without the blank ones."""
    data = np.frombuffer(text, dtype=np.uint8)
    if not data.size:
        return pa.array([], pa.binary())
    breaks = np.flatnonzero(data == ord("\n"))
    starts, ends = np.concatenate(([0], breaks + 1)), np.concatenate((breaks, [data.size]))
    for _ in range(_SPACES_MAX):
        before = (starts < ends) & _IS_SPACE[data[np.minimum(starts, data.size - 1)]]
        after = (starts < ends) & _IS_SPACE[data[ends - 1]]
        if not before.any() and not after.any():
            break
        starts, ends = starts + before, np.maximum(ends - after, starts + before)
    else:
        return pa.array([line for line in map(bytes.strip, text.split(b"\n")) if line], pa.binary())
    # Lines and what is between them take turns as values over the text; every other one is a line.
    kept = starts < ends
    bounds = np.append(np.column_stack((starts[kept], ends[kept])).ravel(), data.size).astype(np.int32)
    turns = pa.Array.from_buffers(pa.binary(), bounds.size - 1, [None, pa.py_buffer(bounds), pa.py_buffer(text)])
    return turns.take(pa.array(np.arange(0, bounds.size - 1, 2)))


def json_files(path: str | os.PathLike[str]) -> JsonFiles:
    """Read files of JSON lines, once; ``.parse_json(schema)`` turns them into columns.

    Parameters
    ----------
    path : str or path
        A file, a pattern such as ``"in/*.jsonl"``, or a directory (its ``.jsonl``, ``.ndjson`` and ``.json``
        files). Files are read in the order of their names, dealt in turn to the partitions; blank lines are
        skipped.

    Notes
    -----
    The files must be reachable under the same path from every worker, and must not change while the job runs.
    """
    return JsonFiles(os.fspath(path))
