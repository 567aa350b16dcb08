"""The JSON-lines source: one record per line of the files of a directory, a pattern or a single path."""

from __future__ import annotations

import glob
import os
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from penstock.connectors.base import Source, SourceBatch, SourceReader
from penstock.errors import InvalidOption, SourceMissing
from penstock.types import Record, Schema

_SCHEMA = Schema.parse("value binary not null")
_SUFFIXES = (".jsonl", ".ndjson", ".json")
_READ_BYTES = 64 * 1024


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
    """Reads the lines of several files after one another; blank ones do not count."""

    def __init__(self, files: tuple[str, ...]) -> None:
        self._files = files
        self._next_file = 0
        self._file: BinaryIO | None = None
        self._rows: list[Record] = []
        self._at = 0
        self._ended = False

    def poll(self, now_us: int, records_max: int) -> SourceBatch | None:
        if self._at == len(self._rows) and not self._read():
            return None
        rows = self._rows[self._at : self._at + records_max]
        self._at += len(rows)
        self.offset += len(rows)
        return SourceBatch(rows, now_us)

    def wake_us(self, now_us: int) -> int | None:
        return None if self._ended else now_us

    def seek(self, offset: int) -> None:
        if offset < self.offset:
            self.close()
            self._next_file = self.offset = self._at = 0
            self._rows, self._ended = [], False
        while self.offset < offset and (self._at < len(self._rows) or self._read()):
            skipped = min(offset - self.offset, len(self._rows) - self._at)
            self._at += skipped
            self.offset += skipped

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read(self) -> bool:
        """Load the next rows; False at the end."""
        record_type = _SCHEMA.record_type
        while True:
            if self._file is None:
                if self._next_file == len(self._files):
                    self._ended = True
                    return False
                path = self._files[self._next_file]
                try:
                    self._file = Path(path).open("rb")  # noqa: SIM115 -- open from poll to poll
                except FileNotFoundError:
                    raise SourceMissing(path=path) from None
                self._next_file += 1
            lines = self._file.readlines(_READ_BYTES)
            if not lines:
                self.close()
                continue
            rows = [record_type(line) for line in map(bytes.strip, lines) if line]
            if rows:
                self._rows, self._at = rows, 0
                return True


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
