"""The files sink: every epoch's output becomes visible at once, by renaming a finished file into place."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import IO, Protocol

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.checks import OneOf, local_path
from penstock.connectors.base import RESUME_ONCE, Sink, SinkWriter, Stager, WriterContext
from penstock.connectors.plain import plain_dicts
from penstock.errors import InvalidOption, SinkFailed
from penstock.types import Record, Schema

_PENDING = ".pending"
_LOCK = "lock"
_PART = re.compile(r"part-(\d{8,})-\d{4,}\.(jsonl|parquet)")
_WAITING = re.compile(r"-(\d{8,})-[0-9a-f]+\.(?:jsonl|parquet)$")
"""A file that is prepared, with its epoch."""
_BUFFER_BYTES = 256 * 1024
_ROW_GROUP_RECORDS = 16 * 1024


class FileFormat(Enum):
    """How rows are stored; the value is the files' suffix."""

    JSONL = "jsonl"
    PARQUET = "parquet"


class Existing(Enum):
    """What to do about the output of an earlier run."""

    FAIL = "fail"
    APPEND = "append"
    REPLACE = "replace"


class Files(Sink):
    """A sink of files in a directory; build it with :func:`files`."""

    def __init__(self, path: str, form: FileFormat, existing: Existing) -> None:
        self._path = Path(path)
        self._format = form
        self._existing = existing
        # Both are found by check() in the driver. Parts are numbered on from the ones that are there, so that
        # the old files can go at any time without taking a new one along.
        self._first_part = 0
        self._claim: IO[str] | None = None
        self._replaced: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return "files"

    @property
    def path(self) -> Path:
        """The output directory."""
        return self._path

    @property
    def place(self) -> Path:
        return self._path

    def check(self, schema: Schema) -> None:
        del schema
        if self._path.exists() and not self._path.is_dir():
            raise InvalidOption(option="path", given=str(self._path), allowed="a directory, or a new path for one")
        nearest = self._path.absolute()
        while not nearest.exists():
            nearest = nearest.parent
        if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
            raise SinkFailed(sink=f"files('{self._path}')", cause=f"'{nearest}' cannot be written to")
        parts = {path: match for path in _listed(self._path) if (match := _PART.fullmatch(path.name))}
        if parts and self._existing is Existing.FAIL:
            raise SinkFailed(
                sink=f"files('{self._path}')",
                cause="the directory holds part files of an earlier run",
                hint='Give existing="append" to keep them, existing="replace" to delete them, or another path.',
            )
        self._first_part = max((int(match[1]) + 1 for match in parts.values()), default=0)
        # What waits to be published may still be, by the job that left it: under a number below those of this one.
        waiting = [match for path in _listed(self._path / _PENDING) if (match := _WAITING.search(path.name))]
        self._first_part += max((int(match[1]) + 1 for match in waiting), default=0)
        if self._existing is Existing.REPLACE:
            self._replaced = tuple(
                map(str, [*parts, *(each for each in _listed(self._path / _PENDING) if each.name != _LOCK)])
            )

    def claim(self) -> None:
        with _disk(self._path, "sink"):
            (self._path / _PENDING).mkdir(parents=True, exist_ok=True)
            self._claim = (self._path / _PENDING / _LOCK).open("w")
        try:
            # The system gives the lock back when the process ends, however it ends.
            fcntl.flock(self._claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.release()
            raise SinkFailed(
                sink=f"files('{self._path}')",
                cause="another running job writes to this directory",
                hint="Give each job a directory of its own.",
            ) from None

    def release(self) -> None:
        if self._claim is not None:
            self._claim.close()
            self._claim = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_claim": None}  # the claim stays in the driver

    def state(self) -> dict[str, object]:
        return {"first_part": self._first_part, "directory": str(self._path.absolute())}

    def writes_where(self, state: dict[str, object]) -> bool:
        return Path(str(state["directory"])).resolve() == self._path.resolve()

    def resume(self, state: dict[str, object]) -> None:
        before = Path(str(state.get("directory", self._path)))
        left = [path for path in _listed(before / _PENDING) if path.name != _LOCK]
        if left and before.resolve() != self._path.resolve():
            raise SinkFailed(
                sink=f"files('{self._path}')",
                cause=f"the last run wrote into '{before}', where '{_PENDING}/{left[0].name}' is not published yet",
                hint=RESUME_ONCE,
            )
        self._first_part = int(str(state.get("first_part", 0)))
        last = self._first_part + int(str(state["epoch"]))
        newer = [path for path in _listed(self._path) if (match := _PART.fullmatch(path.name)) and int(match[1]) > last]
        if newer:
            # Its records would be written a second time, or over what is not of this job.
            raise SinkFailed(
                sink=f"files('{self._path}')",
                cause=f"'{newer[0].name}' is newer than the checkpoint, which ends with part {last:08d}",
                hint="Restore the newest checkpoint, or remove the parts that are newer, or give another path.",
            )

    def stager(self, schema: Schema, operation: str) -> Stager:
        if self._format is not FileFormat.JSONL:
            return super().stager(schema, operation)
        dicts, encoder = plain_dicts(schema), msgspec.json.Encoder()
        return lambda batch: encoder.encode_lines(dicts(schema.to_rows(batch)))

    def writer(self, schema: Schema, context: WriterContext) -> SinkWriter:
        with _disk(self._path, context.operation):
            (self._path / _PENDING).mkdir(parents=True, exist_ok=True)
            if context.instance == 0:
                for path in self._replaced:
                    Path(path).unlink(missing_ok=True)
        return _FilesWriter(self._path, self._format, schema, context, self._first_part)


def _listed(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.is_file()) if directory.is_dir() else []


@contextlib.contextmanager
def _disk(path: Path, operation: str) -> Iterator[None]:
    """Turn what the disk refuses into an error that names the file."""
    try:
        yield
    except OSError as error:
        raise SinkFailed(
            sink="files",
            cause=f"'{error.filename or path}': {error.strerror or error}",
            hint="Check the space and the permissions there.",
            operation=operation,
        ) from error


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _File(Protocol):
    """A file being written."""

    def write(self, rows: list[Record]) -> None: ...

    def write_batch(self, batch: pa.RecordBatch) -> None: ...

    def finish(self) -> None:
        """Bring everything to the disk and close."""

    def abandon(self) -> None:
        """Close; the contents do not matter."""


class _JsonLinesFile:
    def __init__(self, path: Path, schema: Schema) -> None:
        self._schema = schema
        self._dicts = plain_dicts(schema)
        self._encoder = msgspec.json.Encoder()
        self._file = path.open("wb", buffering=_BUFFER_BYTES)

    def write(self, rows: list[Record]) -> None:
        self._file.write(self._encoder.encode_lines(self._dicts(rows)))

    def write_lines(self, lines: bytes) -> None:
        """Take rows that are encoded already."""
        self._file.write(lines)

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self.write(self._schema.to_rows(batch))

    def finish(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def abandon(self) -> None:
        self._file.close()


class _ParquetFile:
    def __init__(self, path: Path, schema: Schema) -> None:
        self._schema = schema
        self._rows: list[Record] = []
        self._file = path.open("wb", buffering=_BUFFER_BYTES)
        self._writer = pq.ParquetWriter(self._file, schema.arrow)

    def write(self, rows: list[Record]) -> None:
        self._rows += rows
        if len(self._rows) >= _ROW_GROUP_RECORDS:
            self._flush_rows()

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self._flush_rows()
        self._writer.write_batch(batch)

    def finish(self) -> None:
        self._flush_rows()
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def abandon(self) -> None:
        self._writer.close()
        self._file.close()

    def _flush_rows(self) -> None:
        if self._rows:
            self._writer.write_batch(self._schema.to_batch(self._rows))
            self._rows = []


_FILE_TYPES: dict[FileFormat, type[_JsonLinesFile] | type[_ParquetFile]] = {
    FileFormat.JSONL: _JsonLinesFile,
    FileFormat.PARQUET: _ParquetFile,
}


class _FilesWriter(SinkWriter):
    def __init__(self, path: Path, form: FileFormat, schema: Schema, context: WriterContext, first_part: int) -> None:
        self._path = path
        self._format = form
        self._schema = schema
        self._operation = context.operation
        self._instance = context.instance
        self._first_part = first_part
        # What a run that can be resumed has left here is not another job's to remove.
        owner = f".{context.job_id}" if context.is_resumable else ""
        name = re.sub(r"[^A-Za-z0-9_.]", "_", f"{context.job}.{context.operation}{owner}")
        self._name = f"{name}-{context.instance:04d}"
        # A writer that was replaced may still be running: it must not come upon the files of this one.
        self._token = os.urandom(4).hex()
        self._open: _File | None = None
        self._prepared: dict[int, str] = {}
        """Files that wait for their epoch's commit."""
        # Only what is here now may go later: what comes is of a writer that replaces this one.
        left = re.compile(re.escape(self._name) + r"-(open|\d{8,})-[0-9a-f]+\." + form.value)
        self._left = [each for each in _listed(path / _PENDING) if left.fullmatch(each.name)]

    def write(self, rows: list[Record]) -> None:
        if rows:
            with _disk(self._open_path, self._operation):
                self._opened().write(rows)

    def write_batch(self, batch: pa.RecordBatch, schema: Schema) -> None:
        del schema
        if batch.num_rows:
            with _disk(self._open_path, self._operation):
                self._opened().write_batch(batch)

    def adopt(self, staged: bytes, schema: Schema) -> None:
        if self._format is not FileFormat.JSONL:
            super().adopt(staged, schema)
            return
        with _disk(self._open_path, self._operation):
            opened = self._opened()
            assert isinstance(opened, _JsonLinesFile)
            opened.write_lines(staged)

    def prepare(self, epoch: int) -> None:
        if self._open is None:
            return
        pending = self._path / _PENDING / f"{self._name}-{epoch:08d}-{self._token}.{self._format.value}"
        with _disk(pending, self._operation):
            self._open.finish()
            self._open = None
            self._open_path.replace(pending)
            _sync_directory(pending.parent)
        self._prepared[epoch] = pending.name

    def commit(self, epoch: int) -> list[Record] | None:
        self._publish(epoch, known=True)
        return None

    def snapshot(self, epoch: int) -> bytes | None:
        del epoch
        return msgspec.msgpack.encode(self._prepared) if self._prepared else None

    def restore(self, epoch: int, snapshot: bytes | None) -> None:
        if snapshot is not None:
            self._prepared = msgspec.msgpack.decode(snapshot, type=dict[int, str])
        # They may be visible already, and be moved on by whoever reads them.
        self._publish(epoch, known=False)

    def _publish(self, epoch: int, *, known: bool) -> None:
        """Make files visible; ``known`` ones are an error where they are missing."""
        ready = sorted(prepared for prepared in self._prepared if prepared <= epoch)
        for prepared in ready:
            pending = self._path / _PENDING / self._prepared[prepared]
            # Its own suffix: a resumed run may have another format.
            target = self._path / f"part-{self._first_part + prepared:08d}-{self._instance:04d}{pending.suffix}"
            with _disk(target, self._operation):
                try:
                    pending.replace(target)
                except FileNotFoundError:
                    if known and not target.exists():
                        raise
            del self._prepared[prepared]
        if ready:
            with _disk(self._path, self._operation):
                _sync_directory(self._path)
        for path in self._left:
            if path.name not in self._prepared.values():
                with _disk(path, self._operation):
                    path.unlink(missing_ok=True)
        self._left.clear()

    def close(self) -> None:
        if self._open is not None:
            self._open.abandon()
            self._open = None
            self._open_path.unlink(missing_ok=True)
        # Prepared files stay: their commit may be decided already and asked of the next writer.

    @property
    def _open_path(self) -> Path:
        return self._path / _PENDING / f"{self._name}-open-{self._token}.{self._format.value}"

    def _opened(self) -> _File:
        if self._open is None:
            self._open = _FILE_TYPES[self._format](self._open_path, self._schema)
        return self._open


def files(path: str | os.PathLike[str], *, format: str = "jsonl", existing: str = "fail") -> Files:
    """Write the output into files of a directory: each record exactly once.

    A file ``part-<epoch>-<instance>.jsonl`` appears, complete, when its epoch is committed; epochs without
    output make no file. What is not committed yet is in ``.pending`` and never read by anyone else.

    Parameters
    ----------
    path : str or path
        The directory; made where it is missing. On a cluster every worker must reach it under this path.
        URLs of object stores are refused.
    format : {"jsonl", "parquet"}
        JSON lines (timestamps as ISO-8601 in UTC, binary as base64, NaN and infinities as null), or Parquet.
    existing : {"fail", "append", "replace"}
        What to do if the directory holds part files of an earlier run: refuse to start, keep them and
        number on from them, or delete them when the job starts.
    """
    directory = local_path("path", os.fspath(path))
    return Files(directory, OneOf(FileFormat).read("format", format), OneOf(Existing).read("existing", existing))
