"""``ps.parquet``: a directory of Parquet files, exactly once; the rows of many epochs become visible as one file.

Whoever lists the directory, at any moment, sees whole files and every row at most once. So files are merged before they
are visible, never after: a reader that has listed small files would find them gone, or their rows twice. Rows wait in
``.pending`` until there are enough of them, or for ``every``. All steps of one instance, each of which a crash may
follow; a directory is renamed at once, so what is in it belongs together:

====  ==========  ======================================================  ============================================
step  when        what                                                    after a crash behind it
====  ==========  ======================================================  ============================================
1     prepare(n)  the epoch's rows are written to ``NAME-n-TOKEN.arrow``  n is not committed: the next one removes it
2     commit(n)   that file is renamed into ``NAME-open``                 done again from the snapshot; or it is there
3     enough      ``NAME-open`` is renamed to ``NAME-closed-FIRST``       the next writer goes on with 4
4     in another  its rows are merged into ``NAME-merging-TOKEN``         the next writer removes that, does it again
5     thread      that is renamed to ``NAME-ready-FIRST``                 the next writer goes on with 6
6     likewise    ``NAME-closed-FIRST`` is removed                        likewise
7     likewise    its files are renamed to where they are visible         the rest of them follows
8     likewise    ``NAME-ready-FIRST``, now empty, is removed             —
====  ==========  ======================================================  ============================================

Files have names that follow from what is in them: first and last epoch, instance and job. A writer that was replaced,
and goes on all the same, makes the same files under the same names. What a run that can be resumed leaves waits for the
next one. What another run leaves is shown by the driver when the job ends, however that is.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import IO

import msgspec
import pyarrow as pa

from penstock.checks import OneOf, Whole, local_path
from penstock.connectors.base import RESUME_ONCE, Sink, SinkWriter, WriterContext
from penstock.connectors.buffered import ColumnarWriter
from penstock.connectors.file_formats import Existing
from penstock.connectors.files import claimed, disk, listed, sync_directory, writable
from penstock.connectors.merging import PART, PENDING, Merger, remove
from penstock.durations import parse_us
from penstock.errors import InvalidOption, SinkFailed, TypeMismatch
from penstock.types import Record, Schema, TypeKind

_LEFT = re.compile(r"(.+\.([0-9a-f]{16}|local)-(\d{4,}))-(?:open|closed-\d+|ready-\d+)")
_SCRATCH = "scratch-"
"""What names in `.pending` begin with, of a job that cannot be resumed."""
FILE_BYTES = 64 << 20
WAITING_MAX = 8
"""Merges of an instance that wait; beyond that its input waits."""
_KINDS = (TypeKind.STRING, TypeKind.INT, TypeKind.BIGINT, TypeKind.BOOLEAN, TypeKind.DATE)


class Parquet(Sink):
    """A sink of Parquet files; build it with :func:`parquet`."""

    is_movable = True

    def __init__(self, path: str, by: tuple[str, ...], file_bytes: int, every_us: int, existing: Existing) -> None:
        self._path = Path(path)
        self._by = by
        self._file_bytes = file_bytes
        self._every_us = every_us
        self._existing = existing
        self._first_part = 0
        self._replaced: tuple[str, ...] = ()
        self._claim: IO[str] | None = None

    @property
    def kind(self) -> str:
        return "parquet"

    @property
    def place(self) -> Path:
        return self._path

    def check(self, schema: Schema) -> None:
        self._check_columns(schema)
        writable(self._path, self._shown)
        parts = _parts(self._path)
        if parts and self._existing is Existing.FAIL:
            raise SinkFailed(
                sink=self._shown,
                cause="the directory holds part files of an earlier run",
                hint='Give existing="append" to keep them, existing="replace" to delete them, or another path.',
            )
        self._first_part = max((int(match[2]) + 1 for match in parts.values()), default=0)
        if self._existing is Existing.REPLACE:
            self._replaced = tuple(map(str, parts))

    def _check_columns(self, schema: Schema) -> None:
        for name in self._by:
            found = schema.field(name).type
            if found.kind not in _KINDS:
                raise TypeMismatch(
                    what=f"'{name}' is {found.ddl}, which makes no directory.",
                    hint='Make one that does: with_columns(day=ps.expr("to_date(at)")).',
                )
        if len(self._by) == len(schema):
            raise InvalidOption(option="partition_by", given=self._by, allowed="not all columns")

    @property
    def _shown(self) -> str:
        return f"parquet('{self._path}')"

    def reserve(self, *, is_local: bool) -> None:
        del is_local
        if self._claim is None:
            self._claim = claimed(self._path, self._shown)

    def claim(self) -> None:
        self.reserve(is_local=True)
        with disk(self._path, "sink"):
            for each in [*map(Path, self._replaced), *(self._path / PENDING).glob(f"{_SCRATCH}*")]:
                remove(each)

    def release(self) -> None:
        if self._claim is not None:
            for merger in self._left(f"{_SCRATCH}*"):
                merger.close()
                merger.merge()
            self._claim.close()
            self._claim = None

    def _left(self, names: str) -> list[Merger]:
        """Mergers of instances that have left something on its way."""
        found = [match for each in (self._path / PENDING).glob(names) if (match := _LEFT.fullmatch(each.name))]
        instances = {match[1]: f"{match[3]}-{match[2]}" for match in found}
        return [Merger(self._path, self._by, name, tail, self._first_part) for name, tail in sorted(instances.items())]

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_claim": None}

    def state(self) -> dict[str, object]:
        return {"first_part": self._first_part, "directory": str(self._path.absolute())}

    def writes_where(self, state: dict[str, object]) -> bool:
        return Path(str(state["directory"])).resolve() == self._path.resolve()

    def resume(self, state: dict[str, object]) -> None:
        if not self.writes_where(state):
            raise SinkFailed(
                sink=self._shown,
                cause=f"the last run wrote into '{state['directory']}', where something may wait to be published",
                hint=RESUME_ONCE,
            )
        self._first_part = int(str(state.get("first_part", 0)))
        last = self._first_part + int(str(state["epoch"]))
        own = [path for path, match in _parts(self._path).items() if match[3] == state["job_id"]]
        newer = [path.name for path in own if int(PART.fullmatch(path.name)[2]) > last]  # type: ignore[index]
        for merger in self._left(f"*.{state['job_id']}-*"):
            newer += [name for name, end in merger.waiting() if end > int(str(state["epoch"]))]
        if newer:
            raise SinkFailed(
                sink=self._shown,
                cause=f"'{newer[0]}' is newer than the checkpoint, which ends with {last:08d}",
                hint="Restore the newest checkpoint, or give another path.",
            )

    def writer(self, schema: Schema, context: WriterContext) -> SinkWriter:
        with disk(self._path, context.operation):
            (self._path / PENDING).mkdir(parents=True, exist_ok=True)
        job = context.job_id or "local"
        text = re.sub(r"[^A-Za-z0-9_.]", "_", f"{context.job}.{context.operation}.{job}")
        name = f"{'' if context.is_resumable else _SCRATCH}{text}-{context.instance:04d}"
        merger = Merger(
            self._path, self._by, name, f"{context.instance:04d}-{job}", self._first_part, context.operation
        )
        return _ParquetWriter(merger, schema, self._file_bytes, self._every_us / 1e6)


def _parts(path: Path) -> dict[Path, re.Match[str]]:
    """Files that are visible, in whatever directories."""
    found = {}
    for directory, names, files in os.walk(path):
        names[:] = [name for name in names if not name.startswith((".", "_"))]
        for file in files:
            if match := PART.fullmatch(file):
                found[Path(directory) / file] = match
    return dict(sorted(found.items()))


class _ParquetWriter(ColumnarWriter):
    def __init__(self, merger: Merger, schema: Schema, file_bytes: int, every_s: float) -> None:
        super().__init__(schema)
        self._merger = merger
        self._file_bytes = file_bytes
        self._every_s = every_s
        self._token = os.urandom(4).hex()
        self._prepared: dict[int, str] = {}
        self._held_bytes = 0
        self._since_s: float | None = None
        """When the oldest of what is committed and not visible was committed."""
        self._merging: list[_Errand] = []
        with disk(merger.path, merger.operation):
            # Only what is here now may go later: what comes is of a writer that replaces this one.
            self._left = merger.left()

    @property
    def is_full(self) -> bool:
        return self._open_bytes > self._file_bytes or len(self._merging) > WAITING_MAX

    # --- epochs -------------------------------------------------------------------------------------------------------

    def prepare(self, epoch: int) -> None:
        batches = self._taken()
        if not batches:
            return
        merger = self._merger
        path = merger.pending / f"{merger.name}-{epoch:08d}-{self._token}.arrow"
        with disk(path, merger.operation):
            with path.open("wb") as file:
                with pa.ipc.new_file(file, self._schema.arrow) as writer:
                    for batch in batches:
                        writer.write_batch(batch)
                file.flush()
                os.fsync(file.fileno())
            sync_directory(merger.pending)
        self._prepared[epoch] = path.name

    def commit(self, epoch: int) -> list[Record] | None:
        self._take_over(epoch, known=True)
        return None

    def snapshot(self, epoch: int) -> bytes | None:
        del epoch
        return msgspec.msgpack.encode(self._prepared) if self._prepared else None

    def restore(self, epoch: int, snapshot: bytes | None) -> None:
        if snapshot is not None:
            self._prepared = msgspec.msgpack.decode(snapshot, type=dict[int, str])
        self._take_over(epoch, known=False)
        with disk(self._merger.path, self._merger.operation):
            for each in listed(self._merger.open):
                self._held_bytes += each.stat().st_size
                self._since_s = self._since_s or monotonic()
        self._send(self._merger.merge)

    def _take_over(self, epoch: int, *, known: bool) -> None:
        """Take what is committed up to ``epoch`` over; ``known`` files are an error where they are missing."""
        self._look()
        merger = self._merger
        with disk(merger.path, merger.operation):
            for path in self._left:
                if path.name not in self._prepared.values():
                    merger.discard(path)
            self._left.clear()
            ready = sorted(each for each in self._prepared if each <= epoch)
            for prepared in ready:
                path = merger.pending / self._prepared[prepared]
                if not merger.add(path, prepared) and known:
                    raise FileNotFoundError(2, "it is gone", str(path))
                self._since_s = self._since_s or monotonic()
                held = merger.open / f"{prepared:08d}.arrow"
                self._held_bytes += held.stat().st_size if held.exists() else 0
                del self._prepared[prepared]
            if ready:
                sync_directory(merger.open)
                sync_directory(merger.pending)
            late = self._since_s is not None and monotonic() - self._since_s >= self._every_s
            if late or self._held_bytes >= self._file_bytes:
                self._close()

    def _close(self) -> None:
        self._held_bytes, self._since_s = 0, None
        self._merger.close()
        self._send(self._merger.merge)

    def finish(self) -> None:
        with disk(self._merger.path, self._merger.operation):
            self._close()
        for errand in self._merging:
            errand.wait()
        self._look()

    def _send(self, call: Callable[[], None]) -> None:
        self._merging.append(_Errand(call))

    def _look(self) -> None:
        self._merging = [errand for errand in self._merging if not errand.is_done]


class _Errand:
    """Something that a thread of its own does for a writer, one after the other."""

    _turn = threading.Lock()

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="penstock-parquet", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self._turn:
                self._call()
        except BaseException as error:
            self._error = error

    @property
    def is_done(self) -> bool:
        """Whether it is; raises what has come in the way."""
        if self._thread.is_alive():
            return False
        if self._error is not None:
            raise self._error
        return True

    def wait(self) -> None:
        """Wait for it."""
        self._thread.join()


def parquet(
    path: str | os.PathLike[str],
    *,
    partition_by: str | Sequence[str] = (),
    every: str | float = "1m",
    file_bytes: int = FILE_BYTES,
    existing: str = "fail",
) -> Parquet:
    """Write the output into Parquet files of a directory: each record exactly once, in files of a sensible size.

    Rows of many epochs are merged into one file before it becomes visible. Whoever reads the directory at any moment,
    ``spark.read.parquet(path)`` for one, finds whole files and no row twice.

    Parameters
    ----------
    path : str or path
        The directory; made where it is missing. On a cluster every worker must reach it under this path.
    partition_by : str or sequence of str
        Columns that make directories, ``day=2026-11-16/``, as Spark lays them out: texts, whole numbers, booleans and
        dates. They are not in the files.
    every : str or number
        How long rows may wait, after their epoch is committed, until they are visible; 0: not at all, and then each
        epoch makes files of its own.
    file_bytes : int
        Rows become visible before that if there are so many bytes of them.
    existing : {"fail", "append", "replace"}
        What to do if there are part files of an earlier run.

    Examples
    --------
    >>> trips.to(ps.parquet("trips", partition_by="day"))       # doctest: +SKIP
    """
    by = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    if len(set(by)) != len(by) or not all(isinstance(each, str) for each in by):
        raise InvalidOption(option="partition_by", given=partition_by, allowed="names of columns, each once")
    every_us = parse_us(every, option="every", allow_zero=True)
    size = Whole(1 << 10, 1 << 30).read("file_bytes", file_bytes)
    kept = OneOf(Existing).read("existing", existing)
    given = os.fspath(path)
    if "://" in given and not given.startswith("file://"):
        raise InvalidOption(
            option="path", given=given, allowed='a directory; ps.files(url, format="parquet") writes into object stores'
        )
    return Parquet(local_path("path", given), by, size, every_us, kept)
