"""The files sink: every epoch's output becomes visible at once, by renaming a finished file into place."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO

import msgspec
import pyarrow as pa

from penstock.checks import OneOf, local_path
from penstock.connectors.base import RESUME_ONCE, Sink, SinkWriter, Stager, WriterContext
from penstock.connectors.file_formats import Existing, FileFormat, FormattedFile, formatted, json_lines_stager
from penstock.connectors.marks import PART as _PART
from penstock.connectors.marks import Mark, write_mark
from penstock.connectors.object_files import ObjectFiles
from penstock.connectors.plain import check_json
from penstock.connectors.store import is_url
from penstock.errors import InvalidOption, SinkFailed
from penstock.types import Record, Schema

_PENDING = ".pending"
_LOCK = "lock"
_WAITING = re.compile(r"-(\d{8,})-[0-9a-f]+\.(?:jsonl|parquet)$")
"""A file that is prepared, with its epoch."""
_BUFFER_BYTES = 256 * 1024


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
        self._marker: ThreadPoolExecutor | None = None
        self._marked: Future[None] | None = None

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
        if self._format is FileFormat.JSONL:
            check_json(schema)
        writable(self._path, f"files('{self._path}')")
        parts = {path: match for path in listed(self._path) if (match := _PART.fullmatch(path.name))}
        if parts and self._existing is Existing.FAIL:
            raise SinkFailed(
                sink=f"files('{self._path}')",
                cause="the directory holds part files of an earlier run",
                hint='Give existing="append" to keep them, existing="replace" to delete them, or another path.',
            )
        self._first_part = max((int(match[1]) + 1 for match in parts.values()), default=0)
        # What waits to be published may still be, by the job that left it: under a number below those of this one.
        waiting = [match for path in listed(self._path / _PENDING) if (match := _WAITING.search(path.name))]
        self._first_part += max((int(match[1]) + 1 for match in waiting), default=0)
        if self._existing is Existing.REPLACE:
            self._replaced = tuple(
                map(str, [*parts, *(each for each in listed(self._path / _PENDING) if each.name != _LOCK)])
            )

    def reserve(self, *, is_local: bool) -> None:
        del is_local
        if self._claim is None:
            self._claim = claimed(self._path, f"files('{self._path}')")

    def claim(self) -> None:
        self.reserve(is_local=True)

    def release(self) -> None:
        if self._marker is not None:
            self._marker.shutdown()
            self._marker = self._marked = None
        if self._claim is not None:
            self._claim.close()
            self._claim = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_claim": None, "_marker": None, "_marked": None}  # they stay in the driver

    def reached(self, epoch: int, schema: Schema) -> None:
        # Written beside the driver's loop: the disk may be slow.
        if self._marker is None:
            self._marker = ThreadPoolExecutor(1, "penstock-marks")
        elif self._marked is not None and self._marked.done():
            self._check_marked()
        self._marked = self._marker.submit(write_mark, self._path, Mark(self._first_part + epoch, schema.ddl))

    def _check_marked(self) -> None:
        if self._marked is not None:
            with disk(self._path, "sink"):
                self._marked.result()

    def finish(self) -> None:
        self._check_marked()

    def state(self) -> dict[str, object]:
        return {"first_part": self._first_part, "directory": str(self._path.absolute())}

    def writes_where(self, state: dict[str, object]) -> bool:
        return not is_url(str(state["directory"])) and Path(str(state["directory"])).resolve() == self._path.resolve()

    def resume(self, state: dict[str, object]) -> None:
        if is_url(str(state.get("directory", ""))):
            raise SinkFailed(
                sink=f"files('{self._path}')",
                cause=f"the last run wrote into '{state['directory']}', where something may wait to be published",
                hint=RESUME_ONCE,
            )
        before = Path(str(state.get("directory", self._path)))
        left = [path for path in listed(before / _PENDING) if path.name != _LOCK]
        if left and before.resolve() != self._path.resolve():
            raise SinkFailed(
                sink=f"files('{self._path}')",
                cause=f"the last run wrote into '{before}', where '{_PENDING}/{left[0].name}' is not published yet",
                hint=RESUME_ONCE,
            )
        self._first_part = int(str(state.get("first_part", 0)))
        last = self._first_part + int(str(state["epoch"]))
        newer = [path for path in listed(self._path) if (match := _PART.fullmatch(path.name)) and int(match[1]) > last]
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
        return json_lines_stager(schema)

    def writer(self, schema: Schema, context: WriterContext) -> SinkWriter:
        with disk(self._path, context.operation):
            (self._path / _PENDING).mkdir(parents=True, exist_ok=True)
            if context.instance == 0:
                for path in self._replaced:
                    Path(path).unlink(missing_ok=True)
        return _FilesWriter(self._path, self._format, schema, context, self._first_part)


def writable(path: Path, sink: str) -> None:
    """Refuse a path that cannot be a directory of output."""
    if path.exists() and not path.is_dir():
        raise InvalidOption(option="path", given=str(path), allowed="a directory, or a new path for one")
    nearest = path.absolute()
    while not nearest.exists():
        nearest = nearest.parent
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise SinkFailed(sink=sink, cause=f"'{nearest}' cannot be written to")


def claimed(path: Path, sink: str) -> IO[str]:
    """Keep other jobs out of a directory of output until the file is closed."""
    with disk(path, "sink"):
        (path / _PENDING).mkdir(parents=True, exist_ok=True)
        claim = (path / _PENDING / _LOCK).open("w")
    try:
        # The system gives the lock back when the process ends, however it ends.
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        claim.close()
        raise SinkFailed(
            sink=sink,
            cause="another running job writes to this directory",
            hint="Give each job a directory of its own.",
        ) from None
    return claim


def listed(directory: Path) -> list[Path]:
    """The files of a directory, sorted; none where it is missing."""
    return sorted(path for path in directory.iterdir() if path.is_file()) if directory.is_dir() else []


@contextlib.contextmanager
def disk(path: Path, operation: str) -> Iterator[None]:
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


def sync_directory(directory: Path) -> None:
    """Have the names in a directory survive the machine."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _FilesWriter(SinkWriter):
    is_followed = True

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
        self._open: tuple[IO[bytes], FormattedFile] | None = None
        self._prepared: dict[int, str] = {}
        """Files that wait for their epoch's commit."""
        # Only what is here now may go later: what comes is of a writer that replaces this one.
        left = re.compile(re.escape(self._name) + r"-(open|\d{8,})-[0-9a-f]+\." + form.value)
        self._left = [each for each in listed(path / _PENDING) if left.fullmatch(each.name)]

    def write(self, rows: list[Record]) -> None:
        if rows:
            with disk(self._open_path, self._operation):
                self._opened().write(rows)

    def write_batch(self, batch: pa.RecordBatch, schema: Schema) -> None:
        del schema
        if batch.num_rows:
            with disk(self._open_path, self._operation):
                self._opened().write_batch(batch)

    def adopt(self, staged: bytes, schema: Schema) -> None:
        del schema
        with disk(self._open_path, self._operation):
            self._opened().adopt(staged)

    def prepare(self, epoch: int) -> None:
        if self._open is None:
            return
        pending = self._path / _PENDING / f"{self._name}-{epoch:08d}-{self._token}.{self._format.value}"
        file, rows = self._open
        with disk(pending, self._operation):
            rows.finish()
            file.flush()
            os.fsync(file.fileno())
            file.close()
            self._open = None
            self._open_path.replace(pending)
            sync_directory(pending.parent)
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
            with disk(target, self._operation):
                try:
                    pending.replace(target)
                except FileNotFoundError:
                    if known and not target.exists():
                        raise
            del self._prepared[prepared]
        if ready:
            with disk(self._path, self._operation):
                sync_directory(self._path)
        for path in self._left:
            if path.name not in self._prepared.values():
                with disk(path, self._operation):
                    path.unlink(missing_ok=True)
        self._left.clear()

    def close(self) -> None:
        if self._open is not None:
            file, rows = self._open
            rows.abandon()
            file.close()
            self._open = None
            self._open_path.unlink(missing_ok=True)
        # Prepared files stay: their commit may be decided already and asked of the next writer.

    @property
    def _open_path(self) -> Path:
        return self._path / _PENDING / f"{self._name}-open-{self._token}.{self._format.value}"

    def _opened(self) -> FormattedFile:
        if self._open is None:
            file = self._open_path.open("wb", buffering=_BUFFER_BYTES)
            self._open = file, formatted(self._format, file, self._schema)
        return self._open[1]


def files(path: str | os.PathLike[str], *, format: str = "jsonl", existing: str = "fail") -> Files | ObjectFiles:
    """Write the output into files of a directory, or objects of a store: each record exactly once.

    A file ``part-<epoch>-<instance>.jsonl`` appears, complete, when its epoch is committed; epochs without
    output make no file. What is not committed yet is in ``.pending`` and never read by anyone else. In an object
    store the names end with the job's identity, ``part-<epoch>-<instance>-<job>.jsonl``, and appear just after
    the commit.

    Parameters
    ----------
    path : str or path
        The directory; made where it is missing. On a cluster every worker must reach it under this path. Or any URL
        that fsspec can open, such as ``"s3://bucket/out"`` with s3fs installed: see docs/object-stores.md.
    format : {"jsonl", "parquet"}
        JSON lines (timestamps as ISO-8601 in UTC, binary as base64, NaN and infinities as null), or Parquet.
    existing : {"fail", "append", "replace"}
        What to do if there are part files of an earlier run: refuse to start, keep them and
        number on from them, or delete them when the job starts.
    """
    form, kept = OneOf(FileFormat).read("format", format), OneOf(Existing).read("existing", existing)
    given = os.fspath(path)
    return ObjectFiles(given, form, kept) if is_url(given) else Files(local_path("path", given), form, kept)
