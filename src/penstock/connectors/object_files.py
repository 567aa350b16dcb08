"""The files sink in an object store, where nothing can be renamed or locked: parts are made by a copy at the commit.

Each step is one call to the store, and a crash may come between any two. n is the epoch:

====  =======  =================================================  =====================================================
step  when     what                                               after a crash behind it
====  =======  =================================================  =====================================================
1     rows     into a local file without a name                   the system removes it
2     prepare  upload to ``.pending/JOB-INSTANCE-n-TOKEN``         n is not committed: an orphan, which the next writer
               (another thread, before the snapshot is stored)    of the instance removes
3     commit   the snapshot names it; the driver records n        the next writer finds it in the snapshot: step 4
4     commit   copy to ``part-n-INSTANCE-JOB`` (another thread)   the same bytes are copied again, or step 5
5     commit   remove what step 2 has uploaded                    —
====  =======  =================================================  =====================================================

A part is named by epoch, instance and job, never by who writes it, so a step that is done twice changes nothing. A
writer that was replaced can do harm nowhere: before the commit its object has a token that nobody knows, after it it
copies what its successor copies, or finds it gone. Two jobs never write the same name. Whoever lists ``part-*`` sees
the committed output and nothing else.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from tempfile import TemporaryFile
from typing import IO

import msgspec
import pyarrow as pa

from penstock.connectors.base import RESUME_ONCE, Sink, SinkWriter, Stager, WriterContext
from penstock.connectors.file_formats import Existing, FileFormat, FormattedFile, formatted, json_lines_stager
from penstock.connectors.plain import check_json
from penstock.connectors.store import START_OUTAGE_S, Store, shown
from penstock.errors import SinkFailed
from penstock.types import Record, Schema

_PENDING = ".pending"
_PART = re.compile(r"part-(\d{8,})-\d{4,}-([0-9a-f]{16}|local)\.(jsonl|parquet)")
_BUFFER_BYTES = 256 * 1024
SPOOL_BYTES_MAX = 256 << 20
"""What an instance keeps on the local disk of one epoch; beyond that its input waits."""
PUBLISHING_MAX = 32
"""Epochs of an instance whose copies are under way; beyond that its input waits."""
_CREW = 8
"""Copies that a process has under way."""
_SCRATCH = re.compile(r"scratch-.*-\d{8,}-[0-9a-f]{16}\.(jsonl|parquet)")
_SCRATCH_S = 24 * 3600.0
"""What a job that cannot be resumed has left for so long is nobody's any more."""


class ObjectFiles(Sink):
    """A sink of objects under a URL; build it with :func:`penstock.files`."""

    def __init__(self, url: str, form: FileFormat, existing: Existing) -> None:
        self._url = url.rstrip("/")
        self._format = form
        self._existing = existing
        self._first_part = 0
        self._replaced: list[str] = []
        Store(self._url, "path")  # a URL that nothing can open is refused where it is given

    @property
    def kind(self) -> str:
        return "files"

    @property
    def place(self) -> str:
        return shown(self._url)

    def check(self, schema: Schema) -> None:
        if self._format is FileFormat.JSONL:
            check_json(schema)
        with _answered(self._url, None):
            parts = self._parts()
        if parts and self._existing is Existing.FAIL:
            raise SinkFailed(
                sink=f"files('{shown(self._url)}')",
                cause="there are part files of an earlier run",
                hint='Give existing="append" to keep them, existing="replace" to delete them, or another path.',
            )
        self._first_part = max((int(match[1]) + 1 for match in parts), default=0)
        if self._existing is Existing.REPLACE:
            self._replaced = [match[0] for match in parts]

    def _parts(self) -> list[re.Match[str]]:
        names = Store(self._url, "path", START_OUTAGE_S).names()
        return [match for name in names if (match := _PART.fullmatch(name))]

    def claim(self) -> None:
        # There is no lock to take: the names of two jobs differ, so that neither can touch the other's.
        store = Store(self._url, "path", START_OUTAGE_S)
        with _answered(self._url, None):
            left = [f"{_PENDING}/{name}" for name in store.names(_PENDING) if _SCRATCH.fullmatch(name)]
            store.remove([*self._replaced, *store.older(left, _SCRATCH_S)])

    def state(self) -> dict[str, object]:
        return {"first_part": self._first_part, "directory": shown(self._url)}

    def writes_where(self, state: dict[str, object]) -> bool:
        return state["directory"] == shown(self._url)

    def resume(self, state: dict[str, object]) -> None:
        if not self.writes_where(state):
            raise SinkFailed(
                sink=f"files('{shown(self._url)}')",
                cause=f"the last run wrote into '{state['directory']}', where something may wait to be published",
                hint=RESUME_ONCE,
            )
        self._first_part = int(str(state.get("first_part", 0)))
        last = self._first_part + int(str(state["epoch"]))
        with _answered(self._url, None):
            newer = [each[0] for each in self._parts() if int(each[1]) > last and each[2] == state["job_id"]]
        if newer:
            raise SinkFailed(
                sink=f"files('{shown(self._url)}')",
                cause=f"'{newer[0]}' is newer than the checkpoint, which ends with part {last:08d}",
                hint="Restore the newest checkpoint, or remove the parts that are newer, or give another path.",
            )

    def stager(self, schema: Schema, operation: str) -> Stager:
        return json_lines_stager(schema) if self._format is FileFormat.JSONL else super().stager(schema, operation)

    def writer(self, schema: Schema, context: WriterContext) -> SinkWriter:
        return _ObjectWriter(self._url, self._format, schema, context, self._first_part)


@contextmanager
def _answered(url: str, operation: str | None) -> Iterator[None]:
    """Turn what the store refuses into an error that names it."""
    try:
        yield
    except SinkFailed:
        raise
    except Exception as error:
        raise SinkFailed(
            sink=f"files('{shown(url)}')",
            cause=str(error) or type(error).__name__,
            hint="Check the address, the access rights and the network there.",
            operation=operation,
        ) from error


class _Errand:
    """Something that another thread does for a writer."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._done = threading.Event()
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            self._call()
        except Exception as error:
            self._error = error
        finally:
            self._done.set()

    @property
    def is_done(self) -> bool:
        """Whether it is; raises what has come in the way."""
        if self._done.is_set() and self._error is not None:
            raise self._error
        return self._done.is_set()

    def wait(self) -> None:
        self._done.wait()


class _Crew:
    """Threads that run errands for all writers of this process; they end with it."""

    def __init__(self) -> None:
        self._todo: SimpleQueue[_Errand] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def send(self, call: Callable[[], None]) -> _Errand:
        errand = _Errand(call)
        self._todo.put(errand)
        with self._lock:
            if len(self._threads) < _CREW:
                self._threads.append(threading.Thread(target=self._run, name="penstock-objects", daemon=True))
                self._threads[-1].start()
        return errand

    def _run(self) -> None:
        while True:
            self._todo.get().run()


_crew = _Crew()


class _ObjectWriter(SinkWriter):
    def __init__(self, url: str, form: FileFormat, schema: Schema, context: WriterContext, first_part: int) -> None:
        self._url = url
        self._store = Store(url, "path")
        self._format = form
        self._schema = schema
        self._operation = context.operation
        self._instance = context.instance
        self._first_part = first_part
        self._job = context.job_id or "local"
        # Without locks, only this job may remove what it has left; anybody may, after a while, where nobody can resume.
        name = re.sub(r"[^A-Za-z0-9_.]", "_", f"{context.job}.{context.operation}.{self._job}")
        self._name = f"{'' if context.is_resumable else 'scratch-'}{name}-{context.instance:04d}"
        self._token = os.urandom(8).hex()
        self._open: tuple[IO[bytes], FormattedFile] | None = None
        self._size_bytes = 0
        self._uploads: list[Callable[[], None]] = []
        self._prepared: dict[int, str] = {}
        """Objects that are not published for sure, by epoch."""
        self._publishing: dict[int, _Errand] = {}
        self._closed = False
        # Only what is here now may go later: what comes is of a writer that replaces this one.
        left = re.compile(re.escape(self._name) + r"-\d{8,}-[0-9a-f]+\.(jsonl|parquet)")
        with _answered(url, self._operation):
            self._left = [name for name in self._store.names(_PENDING) if left.fullmatch(name)]

    # --- rows ---------------------------------------------------------------------------------------------------------

    def write(self, rows: list[Record]) -> None:
        if rows:
            self._opened().write(rows)
            self._weigh()

    def write_batch(self, batch: pa.RecordBatch, schema: Schema) -> None:
        del schema
        if batch.num_rows:
            self._opened().write_batch(batch)
            self._weigh()

    def adopt(self, staged: bytes, schema: Schema) -> None:
        del schema
        self._opened().adopt(staged)
        self._weigh()

    def _opened(self) -> FormattedFile:
        if self._open is None:
            file = TemporaryFile(prefix="penstock-", buffering=_BUFFER_BYTES)  # noqa: SIM115 (closed when uploaded)
            self._open = file, formatted(self._format, file, self._schema)
        return self._open[1]

    def _weigh(self) -> None:
        assert self._open is not None
        self._size_bytes = self._open[0].tell()

    @property
    def is_full(self) -> bool:
        return self._size_bytes > SPOOL_BYTES_MAX or len(self._publishing) > PUBLISHING_MAX

    # --- epochs -------------------------------------------------------------------------------------------------------

    def prepare(self, epoch: int) -> None:
        if self._open is None:
            return
        file, rows = self._open
        rows.finish()
        self._open, self._size_bytes = None, 0
        name = self._prepared[epoch] = f"{self._name}-{epoch:08d}-{self._token}.{self._format.value}"
        self._uploads.append(partial(self._upload, file, name))

    def uploads(self) -> list[Callable[[], None]]:
        taken, self._uploads = self._uploads, []
        return taken

    def _upload(self, file: IO[bytes], name: str) -> None:
        with _answered(self._url, self._operation), file:
            if not self._closed:
                self._store.upload(f"{_PENDING}/{name}", file)
            if self._closed:
                # The instance was built anew meanwhile: nobody will ask for this one.
                self._store.remove([f"{_PENDING}/{name}"])

    def commit(self, epoch: int) -> list[Record] | None:
        self._publish(epoch, known=True)
        return None

    def snapshot(self, epoch: int) -> bytes | None:
        del epoch
        self._look()
        return msgspec.msgpack.encode(self._prepared) if self._prepared else None

    def restore(self, epoch: int, snapshot: bytes | None) -> None:
        if snapshot is not None:
            self._prepared = msgspec.msgpack.decode(snapshot, type=dict[int, str])
        # They may be published already, and be moved on by whoever reads them.
        self._publish(epoch, known=False)

    def finish(self) -> None:
        for errand in self._publishing.values():
            errand.wait()
        self._look()

    def _publish(self, epoch: int, *, known: bool) -> None:
        """Have another thread make objects visible; ``known`` ones are an error where they are missing."""
        self._look()
        for prepared in sorted(each for each in self._prepared if each <= epoch and each not in self._publishing):
            self._publishing[prepared] = _crew.send(partial(self._finish, prepared, self._prepared[prepared], known))
        left = [f"{_PENDING}/{name}" for name in self._left if name not in self._prepared.values()]
        if left:
            _crew.send(partial(self._store.remove, left))
        self._left.clear()

    def _finish(self, epoch: int, name: str, known: bool) -> None:
        """Steps 4 and 5."""
        # Its own suffix: a resumed run may have another format.
        suffix, number = name.rpartition(".")[2], self._first_part + epoch
        part = f"part-{number:08d}-{self._instance:04d}-{self._job}.{suffix}"
        with _answered(self._url, self._operation):
            try:
                self._store.copy(f"{_PENDING}/{name}", part)
            except FileNotFoundError:
                if known and not self._store.exists(part):
                    raise
            self._store.remove([f"{_PENDING}/{name}"])

    def _look(self) -> None:
        """Forget what has been published, or raise what has come in the way."""
        for epoch in [epoch for epoch, errand in self._publishing.items() if errand.is_done]:
            del self._publishing[epoch]
            del self._prepared[epoch]

    def close(self) -> None:
        self._closed = True
        if self._open is not None:
            file, rows = self._open
            rows.abandon()
            file.close()
            self._open = None
        # What was committed is published, now or by the next writer.
