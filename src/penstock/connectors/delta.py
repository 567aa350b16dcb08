"""``ps.delta``: a Delta table, exactly once; every epoch is one transaction, which names the job and the epoch.

Workers write Parquet files into the table's directory. What is not in the table's log does not exist for readers, so
the driver makes the files of all instances visible at once when it commits them to the log:

====  =============  ====================================================  ============================================
step  when           what                                                  after a crash behind it
====  =============  ====================================================  ============================================
1     prepare(n)     each instance writes its rows to new files, in        n is not recorded: no log ever names them;
                     another thread, before the snapshot is stored         the instance's next writer removes them
2     the record n   the snapshots name the files                          the next writer finds them there
3     commit(n)      each instance tells the driver which they are         told again, and recognised
4     all have told  one transaction adds them, with the job's number n    the log says that n is there: nothing is done
5     the next one   n + 1 is recorded when step 4 is done for n           —
====  =============  ====================================================  ============================================

The log of a table holds the newest number of every application that writes to it; ours is called after job and sink.
Two transactions of one application that overlap exclude each other, so a driver that was replaced adds nothing. With a
key step 4 is a merge: rows replace those of the same key.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.checks import local_path
from penstock.connectors.base import RESUME_ONCE, SinkWriter, WriterContext
from penstock.connectors.buffered import ColumnarWriter
from penstock.connectors.extras import installed
from penstock.connectors.files import disk, sync_directory, writable
from penstock.connectors.following import FollowingSink
from penstock.connectors.merging import parted
from penstock.durations import parse_us
from penstock.errors import InvalidOption, SinkFailed, TypeMismatch
from penstock.types import Record, Schema, TypeKind

FILE_BYTES_MAX = 256 << 20
"""What an instance keeps in memory of one epoch; beyond that its input waits."""
_HANDED = Schema.parse("app string, path string, size bigint, modified bigint, stats string, parts string")
_PARTS = (TypeKind.STRING, TypeKind.INT, TypeKind.BIGINT, TypeKind.BOOLEAN, TypeKind.DATE)
_STATED = (TypeKind.TINYINT, TypeKind.SMALLINT, TypeKind.INT, TypeKind.BIGINT, TypeKind.STRING)
"""Types whose least and greatest value is told to readers, so that they can leave files out."""
_STAGED = "_penstock"
"""Where rows lie that are to be merged."""
_TEXT_MAX = 32
_ATTEMPTS = 5
"""How often a transaction is tried that others come before."""


class Delta(FollowingSink):
    """A sink into a Delta table; build it with :func:`delta`."""

    def __init__(self, path: str, by: tuple[str, ...] | None, key: tuple[str, ...], compact_us: int | None) -> None:
        super().__init__()
        self._path = Path(path)
        self._by = by
        self._key = key
        self._compact_us = compact_us
        self._compacting = _Compacting(self._path)
        self._made: Schema | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "_compacting": None}

    @property
    def kind(self) -> str:
        return "delta"

    @property
    def place(self) -> Path:
        return self._path

    @property
    def _shown(self) -> str:
        return f"delta('{self._path}')"

    def _refuse(self, cause: str, hint: str) -> SinkFailed:
        return SinkFailed(sink=self._shown, cause=cause, hint=hint)

    # --- before the start ---------------------------------------------------------------------------------------------

    def check(self, schema: Schema) -> None:
        self._begin()
        self._check_columns(schema)
        writable(self._path, self._shown)
        library = installed("deltalake", "delta")
        if library.DeltaTable.is_deltatable(str(self._path)):
            self._check_table(library.DeltaTable(str(self._path)), schema)
        elif self._path.is_dir() and any(not each.name.startswith(".") for each in self._path.iterdir()):
            raise self._refuse("the directory has files, and is no Delta table", "Give another path.")
        try:
            library.Schema.from_arrow(schema.arrow)
        except Exception as error:
            raise TypeMismatch(what=f"{self._shown} cannot hold {schema.ddl}: {error}.") from None

    def _check_columns(self, schema: Schema) -> None:
        for name in (*(self._by or ()), *self._key):
            schema.field(name)
        for name in self._by or ():
            found = schema.field(name).type
            if found.kind not in _PARTS:
                hint = 'Make one that does: with_columns(day=ps.expr("to_date(at)")).'
                raise TypeMismatch(what=f"'{name}' is {found.ddl}, which parts no table.", hint=hint)
        if len(self._by or ()) == len(schema):
            raise InvalidOption(option="partition_by", given=self._by, allowed="not all columns")

    def _check_table(self, table: Any, schema: Schema) -> None:
        """Refuse a table of another shape, and one whose rules nobody would check."""
        there, hint = "the table is there already", "Choose another path, or change the table."
        found = {each.name: each for each in table.schema().fields}
        wanted = {each.name: each for each in installed("deltalake", "delta").Schema.from_arrow(schema.arrow).fields}
        for name, each in wanted.items():
            if name not in found:
                raise self._refuse(f"{there}, without a column '{name}'", hint)
            if found[name].type != each.type:
                other = _type_name(found[name].type)
                raise self._refuse(f"{there}, and its column '{name}' is {other}, not {_type_name(each.type)}", hint)
        for name, each in found.items():
            if not each.nullable:
                raise self._refuse(f"{there}, and its column '{name}' must have a value", hint)
            if rule := next((rule for rule in each.metadata if rule.startswith("delta.")), None):
                raise self._refuse(f"{there}, and its column '{name}' has a rule of its own ({rule})", hint)
        metadata = table.metadata()
        by = tuple(metadata.partition_columns)
        if self._by is not None and by != self._by:
            raise self._refuse(f"{there}, parted by ({', '.join(by)}), not by ({', '.join(self._by)})", hint)
        self._by = by
        mapped = metadata.configuration.get("delta.columnMapping.mode", "none") != "none"
        ruled = any(each.startswith("delta.constraints.") for each in metadata.configuration)
        if mapped or ruled:
            what = "its columns are mapped to others" if mapped else "it has constraints"
            raise self._refuse(f"{there}, and {what}, which is not supported", hint)

    def ports(self, schemas: Sequence[Schema], resumed: dict[str, object] | None) -> dict[str, Schema]:
        if resumed is not None:
            self.check(schemas[0])  # the schema may have changed since
        self._made = schemas[0]
        return super().ports(schemas, resumed)

    def claim(self) -> None:
        # Made before the workers begin, so that readers find a table however slow the first rows are.
        with disk(self._path, "sink"):
            if self._made is not None:
                self._table(self._made)

    def state(self) -> dict[str, object]:
        return {"directory": str(self._path.absolute())}

    def writes_where(self, state: dict[str, object]) -> bool:
        return Path(str(state["directory"])).resolve() == self._path.resolve()

    def resume(self, state: dict[str, object]) -> None:
        self._begin(int(str(state.get("done", 0))))
        if not self.writes_where(state):
            cause = f"the last run wrote into '{state['directory']}', where something may wait to be published"
            raise self._refuse(cause, RESUME_ONCE)
        library, epoch = installed("deltalake", "delta"), int(str(state["epoch"]))
        if not library.DeltaTable.is_deltatable(str(self._path)):
            hint = "Put the table back, or begin anew with another checkpoint directory."
            raise self._refuse("the table is not there any more, and the checkpoint goes on from it", hint)
        app = _app(str(state["job_id"]), str(state["operation"]))
        there = library.DeltaTable(str(self._path)).transaction_version(app) or 0
        if there > epoch:
            cause = f"the table has epoch {there} of this job, and the checkpoint ends with epoch {epoch}"
            raise self._refuse(cause, "Restore the newest checkpoint, or the table as it was, or give another path.")

    # --- the epochs ---------------------------------------------------------------------------------------------------

    def delivered(self, schema: Schema) -> Schema:
        del schema
        return _HANDED

    def writer(self, schema: Schema, context: WriterContext) -> SinkWriter:
        staged = self._path / _STAGED if self._key else self._path
        with disk(staged, context.operation):
            staged.mkdir(parents=True, exist_ok=True)
        return _DeltaWriter(self._path, () if self._key else self._by or (), self._key, schema, context)

    def hand_over(self, epoch: int, rows: list[Record], schema: Schema) -> None:
        """Step 4."""
        files: list[Any] = rows
        library, app = installed("deltalake", "delta"), files[0].app
        named = library.CommitProperties(app_transactions=[library.Transaction(app, epoch)])
        for attempt in range(_ATTEMPTS):
            table = self._table(schema)
            if (table.transaction_version(app) or 0) >= epoch:
                break  # it was committed before a crash, or by a driver that was replaced
            if gone := next((each.path for each in files if not each.size), None):
                raise self._refuse(f"'{gone}' of epoch {epoch} is gone, and not in the table", "Put it back.")
            try:
                (self._merge if self._key else self._append)(table, files, schema, named)
                break
            except library.exceptions.CommitFailedError:
                if attempt == _ATTEMPTS - 1:
                    raise  # others have changed the same rows each time
        for each in files if self._key else ():
            (self._path / each.path).unlink(missing_ok=True)
        if self._compact_us is not None:
            # A merge that finds files rewritten under it would be done again; rows that are added do not care.
            self._compacting.begin(self._compact_us / 1e6, wait=bool(self._key))

    def _table(self, schema: Schema) -> Any:
        """The table as it is now; made where there is none."""
        library, path = installed("deltalake", "delta"), str(self._path)
        if not library.DeltaTable.is_deltatable(path):
            self._path.mkdir(parents=True, exist_ok=True)
            by = list(self._by or ())
            library.DeltaTable.create(path, _open_schema(schema), mode="ignore", partition_by=by)
        return library.DeltaTable(path)

    def _append(self, table: Any, files: list[Any], schema: Schema, named: Any) -> None:
        from deltalake.transaction import AddAction

        actions = [
            AddAction(each.path, each.size, json.loads(each.parts), each.modified, True, each.stats) for each in files
        ]
        table.create_write_transaction(
            actions, "append", _open_schema(schema), list(self._by or ()), commit_properties=named
        )

    def _merge(self, table: Any, files: list[Any], schema: Schema, named: Any) -> None:
        rows = pa.concat_tables([pq.read_table(self._path / each.path) for each in files])
        # A merge cannot change a row twice: the last one of a key is what the earlier ones lead to.
        numbered = rows.append_column("_at", pa.array(range(rows.num_rows)))
        rows = rows.take(numbered.group_by(list(self._key)).aggregate([("_at", "max")])["_at_max"])
        same = " AND ".join(f"old.`{name}` = new.`{name}`" for name in self._key)
        merge = table.merge(rows, same, source_alias="new", target_alias="old", commit_properties=named)
        values = {f"old.`{name}`": f"new.`{name}`" for name in schema.names}  # the table may have more columns
        merge.when_matched_update(values).when_not_matched_insert(values).execute()

    def finish(self) -> None:
        super().finish()
        self._compacting.finish()


def _open_schema(schema: Schema) -> pa.Schema:
    """Columns as the table has them: each may be null."""
    return pa.schema([pa.field(each.name, each.type) for each in schema.arrow])


def _type_name(kind: Any) -> str:
    return str(getattr(kind, "type", kind))


def _app(job: str, operation: str) -> str:
    """What the table's log calls a job's sink."""
    return f"penstock-{job or 'local'}-{operation}"


class _Compacting:
    """Makes large files out of small ones now and then, in a thread beside the transactions."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last_s = monotonic()
        self._thread: threading.Thread | None = None

    def begin(self, every_s: float, *, wait: bool) -> None:
        """Compact, if it is time to."""
        if monotonic() - self._last_s < every_s or (self._thread is not None and self._thread.is_alive()):
            return
        self._last_s = monotonic()
        self._thread = threading.Thread(target=self._run, name="penstock-delta", daemon=True)
        self._thread.start()
        if wait:
            self._thread.join()

    def _run(self) -> None:
        library = installed("deltalake", "delta")
        try:
            library.DeltaTable(str(self._path)).optimize.compact()
        except library.exceptions.DeltaError:
            pass  # somebody else has changed the same files: the next time

    def finish(self) -> None:
        """Wait for what is under way."""
        if self._thread is not None:
            self._thread.join()


class _File(msgspec.Struct, array_like=True):
    """A file of an epoch that is prepared."""

    path: str
    parts: str
    size: int = 0
    modified: int = 0
    stats: str = ""


class _DeltaWriter(ColumnarWriter):
    is_followed = True

    def __init__(
        self, path: Path, by: tuple[str, ...], key: tuple[str, ...], schema: Schema, context: WriterContext
    ) -> None:
        super().__init__(schema)
        self._path = path
        self._by = by
        self._key = key
        self._operation = context.operation
        self._app = _app(context.job_id, context.operation)
        own = f"{f'{_STAGED}/' if key else ''}part-{context.instance:04d}-{context.job_id or 'local'}"
        self._name = f"{own}-{os.urandom(4).hex()}"
        self._uploads: list[Callable[[], None]] = []
        self._prepared: dict[int, list[_File]] = {}
        # Only what is here now may go later: what comes is of a writer that replaces this one.
        self._left = [*path.glob(f"{own}-*.parquet")]

    @property
    def is_full(self) -> bool:
        return self._open_bytes > FILE_BYTES_MAX

    def prepare(self, epoch: int) -> None:
        batches = self._taken()
        if not batches:
            return
        table = pa.Table.from_batches(batches, self._schema.arrow)
        for name in self._key:
            if table.column(name).null_count:
                hint = f"Leave such records out: filter(ps.col('{name}').is_not_null())."
                cause = f"a record has no value in '{name}', which is a key of the table"
                raise SinkFailed(sink=f"delta('{self._path}')", cause=cause, hint=hint, operation=self._operation)
        files = self._prepared[epoch] = []
        rest = [name for name in table.column_names if name not in self._by]
        for number, (values, rows) in enumerate(parted(table, self._by)):
            parts = {name: _part_text(value) for name, value in values.items()}
            files.append(_File(f"{self._name}-{epoch:08d}-{number}.parquet", json.dumps(parts)))
            self._uploads.append(partial(self._upload, files[-1], rows.select(rest)))

    def _upload(self, file: _File, rows: pa.Table) -> None:
        path = self._path / file.path
        with disk(path, self._operation):
            with path.open("wb") as out:
                pq.write_table(rows, out, row_group_size=1 << 20)
                out.flush()
                os.fsync(out.fileno())
            sync_directory(path.parent)
        self._measure(file, rows)

    def _measure(self, file: _File, rows: pa.Table) -> None:
        found = (self._path / file.path).stat()
        file.stats = json.dumps(_stats(rows, self._schema))
        file.size, file.modified = found.st_size, int(found.st_mtime * 1000)

    def uploads(self) -> list[Callable[[], None]]:
        taken, self._uploads = self._uploads, []
        return taken

    def snapshot(self, epoch: int) -> bytes | None:
        names = {each: [[file.path, file.parts] for file in files] for each, files in self._prepared.items()}
        return msgspec.msgpack.encode({each: files for each, files in names.items() if each <= epoch})

    def restore(self, epoch: int, snapshot: bytes | None) -> None:
        if snapshot is not None:
            self._prepared = msgspec.msgpack.decode(snapshot, type=dict[int, list[_File]])
        self._tidy(epoch)

    def _tidy(self, epoch: int) -> None:
        """Remove what a writer before this one has left of epochs after the last one that is recorded."""
        with disk(self._path, self._operation):
            for each in self._left:
                if int(each.stem.split("-")[-2]) > epoch:
                    each.unlink(missing_ok=True)
        self._left.clear()

    def commit(self, epoch: int) -> list[Record] | None:
        self._tidy(0)
        told = []
        for each in sorted(number for number in self._prepared if number <= epoch):
            told += [self._told(file) for file in self._prepared.pop(each)]
        return told or None

    def _told(self, file: _File) -> Record:
        if not file.size:
            # Where it is gone, and it may go just now, the driver knows whether its rows are in the table.
            path = self._path / file.path
            with disk(path, self._operation), suppress(FileNotFoundError):
                self._measure(file, pq.read_table(path))
        return _HANDED.record_type(self._app, file.path, file.size, file.modified, file.stats, file.parts)


def _part_text(value: object) -> str | None:
    """A value in the log: an empty text is none there, as in Spark's directories."""
    if value is None or value == "":
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _stats(rows: pa.Table, schema: Schema) -> dict[str, object]:
    """What readers are told of a file, so that they can leave it out."""
    found: dict[str, Any] = {"numRecords": rows.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for name in rows.column_names:
        column, kind = rows.column(name), schema.field(name).type.kind
        found["nullCount"][name] = column.null_count
        if kind in _STATED and column.null_count < rows.num_rows:
            bounds = pc.min_max(column).as_py()
            if kind is not TypeKind.STRING or max(len(bounds["min"]), len(bounds["max"])) <= _TEXT_MAX:
                found["minValues"][name], found["maxValues"][name] = bounds["min"], bounds["max"]
    return found


def delta(
    path: str | os.PathLike[str],
    *,
    partition_by: str | Sequence[str] | None = None,
    key: str | Sequence[str] = (),
    compact: str | float | None = None,
) -> Delta:
    """Write the output into a Delta table: each epoch in one transaction, exactly once, through crashes and restarts.

    The table is made where there is none. Others may write to it at the same time. Needs ``pip install
    'penstock[delta]'``.

    Parameters
    ----------
    path : str or path
        The table's directory. On a cluster every worker, and the driver, must reach it under this path.
    partition_by : str or sequence of str
        Columns that part the table: texts, whole numbers, booleans and dates. Default: those of the table, if it is
        there. An empty text is stored as null there, as Spark does.
    key : str or sequence of str
        A row replaces the one that has the same values in these columns (a merge, which the driver's process does).
        Default: rows are added.
    compact : str or number
        How often small files are rewritten as larger ones, such as ``"10m"``. What they replace stays until the table
        is vacuumed. Default: never.

    Examples
    --------
    >>> trips.to(ps.delta("trips", partition_by="day", compact="10m"))       # doctest: +SKIP
    """
    by = _names("partition_by", partition_by) if partition_by is not None else None
    keys = _names("key", key)
    compact_us = parse_us(compact, option="compact") if compact is not None else None
    given = os.fspath(path)
    if "://" in given and not given.startswith("file://"):
        raise InvalidOption(
            option="path", given=given, allowed="a directory; tables in object stores are not supported"
        )
    installed("deltalake", "delta")
    return Delta(local_path("path", given), by, keys, compact_us)


def _names(option: str, given: str | Sequence[str]) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else tuple(given)
    if len(set(names)) != len(names) or not all(isinstance(each, str) for each in names):
        raise InvalidOption(option=option, given=given, allowed="names of columns, each once")
    return names
