"""The Parquet source: the rows of the files of a directory, a pattern or a single path; each file once, and whole.

A file is known by its path and its footer, which says all about its contents. It is written elsewhere and then renamed,
as Spark does, or it has no footer until it is whole.

==========================================  ===========================================================================
what is found                               effect
==========================================  ===========================================================================
a file without a footer                     it is being written: left alone (with ``follow``), else refused
a new path                                  it is read, by the partition that its footer says
a known path, another footer                refused where rows of it were read: it has changed
a known path is gone, its footer elsewhere  it was renamed: it is read on there
a known path is gone, all of it was read    it is forgotten
a known path is gone, some was not read     refused: it is missing
==========================================  ===========================================================================
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.checks import Flag, local_path
from penstock.connectors.base import (
    Position,
    Run,
    Source,
    SourceBatch,
    SourceColumns,
    SourceReader,
    Spot,
    check_count,
)
from penstock.connectors.lines import fingerprint
from penstock.connectors.tracking import Entry, entries, redealt
from penstock.errors import InvalidOption, SourceChanged, SourceFailed, SourceMissing, SourceUnreadable
from penstock.types import Field, Record, Schema
from penstock.types.datatypes import DataType, TypeKind, array_of

SUFFIXES = (".parquet", ".pq")
_MAGIC = b"PAR1"
_LOOK_US = 50_000
_LOOK_FILE_US = 100
_ROWS_MAX = 8_192


class _File(msgspec.Struct, array_like=True):
    """A file of a partition, and how far it was read."""

    path: str
    key: int
    rows: int
    read: int = 0


class _At(msgspec.Struct, array_like=True, frozen=True):
    """Where a run of rows begins."""

    path: str
    key: int
    row: int


class _Position(msgspec.Struct, array_like=True):
    records: int
    files: list[_File]


_encode = msgspec.msgpack.Encoder().encode
_decode_at = msgspec.msgpack.Decoder(_At).decode
_decode_any_position = msgspec.msgpack.Decoder(_Position).decode


def decode_position(position: Position) -> _Position:
    """Read a position: the files of a partition, and how far they were read."""
    assert isinstance(position, bytes)
    return _decode_any_position(position)


def key_of(path: str) -> int | None:
    """What a file is known by: its footer and its size; None where it has no footer yet, or is gone."""
    try:
        with Path(path).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            if size < 12:
                return None
            file.seek(size - 8)
            end = file.read(8)
            length = int.from_bytes(end[:4], "little")
            if end[4:] != _MAGIC or length > size - 12:
                return None
            file.seek(size - 8 - length)
            return fingerprint(file.read(length) + size.to_bytes(8, "big"))
    except FileNotFoundError:
        return None


def _opened(path: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except FileNotFoundError:
        raise SourceMissing(path=path) from None
    except (pa.ArrowException, OSError) as error:
        raise SourceUnreadable(path=path, cause=str(error).rstrip(".")) from None


_KINDS: list[tuple[Callable[[pa.DataType], bool], TypeKind]] = [
    (pa.types.is_boolean, TypeKind.BOOLEAN),
    (pa.types.is_int8, TypeKind.TINYINT),
    (lambda t: pa.types.is_int16(t) or pa.types.is_uint8(t), TypeKind.SMALLINT),
    (lambda t: pa.types.is_int32(t) or pa.types.is_uint16(t), TypeKind.INT),
    (lambda t: pa.types.is_int64(t) or pa.types.is_uint32(t), TypeKind.BIGINT),
    (pa.types.is_floating, TypeKind.DOUBLE),
    (lambda t: pa.types.is_string(t) or pa.types.is_large_string(t), TypeKind.STRING),
    (lambda t: pa.types.is_binary(t) or pa.types.is_large_binary(t), TypeKind.BINARY),
    (pa.types.is_timestamp, TypeKind.TIMESTAMP),
    (pa.types.is_date, TypeKind.DATE),
]


def _type_of(found: pa.DataType) -> DataType | None:
    """Our type for one of Arrow's; None where there is none."""
    if pa.types.is_dictionary(found):
        return _type_of(found.value_type)
    if pa.types.is_list(found) or pa.types.is_large_list(found):
        element = _type_of(found.value_type)
        return None if element is None else array_of(element)
    return next((DataType(kind) for fits, kind in _KINDS if fits(found)), None)


def _schema_of(path: str, columns: tuple[str, ...] | None) -> Schema:
    arrow = _opened(path).schema_arrow
    fields = []
    for name in columns if columns is not None else arrow.names:
        if name not in arrow.names:
            raise SourceFailed(source=f"'{path}'", cause=f"it has no column '{name}'", hint=f"It has: {arrow.names}.")
        mapped = _type_of(arrow.field(name).type)
        if mapped is None:
            raise SourceFailed(
                source=f"'{path}'",
                cause=f"column '{name}' is {arrow.field(name).type}, which maps to no type here",
                hint="Name those that are wanted: columns=(…).",
            )
        fields.append(Field(name, mapped, True))
    return Schema(tuple(fields))


class ParquetFiles(Source):
    """A source of rows; build it with :func:`parquet_files`."""

    def __init__(
        self, path: str, schema: Schema | None, columns: tuple[str, ...] | None, *, follow: bool = False
    ) -> None:
        self._path = path
        self._follow = follow
        self._found = self._look_up()
        if schema is None:
            if not self._found:
                raise InvalidOption(option="schema", given=None, allowed="the columns, where no file is there yet")
            schema = _schema_of(self._found[0].path, columns)
        self._schema = schema
        self._kept: dict[int, int] = {}
        """Partitions of the files that the run before had begun, by their keys."""

    @property
    def schema(self) -> Schema:
        return self._schema

    @property
    def kind(self) -> str:
        return "parquet_files"

    @property
    def is_split(self) -> bool:
        return True

    @property
    def is_bounded(self) -> bool:
        return not self._follow

    def check(self) -> None:
        for entry in self._found:
            _columns(_opened(entry.path).schema_arrow, self._schema, entry.path)

    def _look_up(self) -> list[Entry]:
        found = _entries(self._path)
        if not found and not (self._follow and (Path(self._path).is_dir() or Path(self._path).parent.is_dir())):
            raise SourceMissing(path=self._path)
        keyed = [Entry(each.path, each.inode, each.size, each.changed_ns, key_of(each.path)) for each in found]
        broken = [each.path for each in keyed if each.key is None]
        if broken and not self._follow:
            raise SourceUnreadable(path=broken[0], cause="it has no footer: it is no Parquet file, or not whole")
        return [each for each in keyed if each.key is not None]

    def spots(self, run: Run, indexes: Sequence[int]) -> list[Spot]:
        assert isinstance(run.at, bytes)
        at = _decode_at(run.at)
        return [Spot(at.row + index, at.path, at.row + index + 1) for index in indexes]

    def resumed(self, positions: Mapping[int, Position]) -> ParquetFiles:
        source = copy.copy(self)
        source._kept = {}
        for each, position in positions.items():
            source._kept |= {file.key: each for file in decode_position(position).files}
        return source

    def signature(self, partitions: int) -> str:
        del partitions  # files can be dealt out to any number
        return f"{self.kind} ({self.schema.ddl})"

    def redealt(self, positions: Mapping[int, Position], partitions: int) -> dict[int, Position]:
        read = []
        for position in positions.values():
            at = decode_position(position)
            read.append((at.records, at.files))
        return {p: _encode(_Position(*each)) for p, each in enumerate(redealt(read, partitions))}

    def partitions(self, parallelism: int) -> int:
        path = Path(self._path)
        return 1 if path.is_file() or (path.suffix in SUFFIXES and "*" not in path.name) else parallelism

    def reader(self, partition: int, partitions: int, start_us: int) -> ParquetReader:
        del start_us
        owners, dealt = dict(self._kept), 0
        for entry in self._found:
            if entry.key is not None and entry.key not in owners:
                owners[entry.key] = dealt % partitions
                dealt += 1
        found = self._found

        def look() -> list[Entry]:
            return _entries(self._path) if self._follow else found

        return self._reader(look, lambda key: owners.get(key, key % partitions) == partition)

    def _reader(self, look: Callable[[], list[Entry]], owned: Callable[[int], bool]) -> ParquetReader:
        return ParquetReader(look, owned, self._schema, follow=self._follow)


def _entries(path: str) -> list[Entry]:
    return [each for each in entries(path, SUFFIXES) if not Path(each.path).name.startswith(("_", "."))]


def _columns(arrow: pa.Schema, schema: Schema, path: str) -> None:
    """Refuse a file that does not have the columns."""
    for field in schema.fields:
        found = _type_of(arrow.field(field.name).type) if field.name in arrow.names else None
        if found is None:
            raise SourceFailed(source=f"'{path}'", cause=f"it has no column '{field.name}' of a type that maps")
        if found != field.type and not (found.is_numeric and field.type.is_numeric):
            cause = f"column '{field.name}' is {found.ddl}, not {field.type.ddl}"
            raise SourceFailed(source=f"'{path}'", cause=cause)


class ParquetReader(SourceReader):
    """Reads one partition: rows of its files, one file after the other in the order in which they were found."""

    def __init__(
        self, look: Callable[[], list[Entry]], owned: Callable[[int], bool], schema: Schema, *, follow: bool
    ) -> None:
        self._look = look
        self._owned = owned
        self._schema = schema
        self._follow = follow
        self._files: dict[str, _File] = {}
        self._seen: dict[str, tuple[int, int, int]] = {}
        """Files as they were when their footers were read, those of others too."""
        self._keys: dict[str, int | None] = {}
        self._next_look_us: int | None = 0
        self._last: tuple[str, int] | None = None
        self._open: tuple[str, int, pq.ParquetFile] | None = None
        self._group: tuple[str, int, int, pa.RecordBatch] | None = None
        """The row group that was read last: of which file, its number, its first row, its rows."""

    # --- rows ---------------------------------------------------------------------------------------------------------

    def poll(self, now_us: int, records_max: int) -> SourceBatch | None:
        file = self._next(now_us)
        if file is None:
            return None
        count = min(records_max, file.rows - file.read, _ROWS_MAX)
        at, follows = self._named(file, count)
        return SourceBatch(self._schema.to_rows(self._slice(at, count)), now_us, _encode(at), follows)

    def wake_us(self, now_us: int) -> int | None:
        return now_us if self._left() else self._next_look_us

    def due_records(self, now_us: int) -> int:
        self._look_around(now_us)
        return self._left()

    def skip(self, count: int) -> list[Run]:
        check_count(count, self._left())
        runs = []
        while count:
            file = next(each for each in self._files.values() if each.read < each.rows)
            here = min(count, file.rows - file.read)
            at, _ = self._named(file, here)
            runs.append(Run(_encode(at), here))
            count -= here
        return runs

    def recent(self, count: int) -> Run | None:
        if self._last is None:
            return None
        path, end = self._last
        file = self._files.get(path)
        first = max(0, end - count)
        return Run(_encode(_At(path, file.key, first)), end - first) if file is not None and end > first else None

    def read(self, run: Run) -> SourceColumns:
        assert isinstance(run.at, bytes)
        check_count(run.count, None)
        return SourceColumns(self._slice(_decode_at(run.at), run.count), 0)

    def rows(self, run: Run) -> list[Record]:
        return self._schema.to_rows(self.read(run).columns)

    def backlog_records(self, now_us: int) -> int:
        del now_us
        return self._left()

    def _left(self) -> int:
        return sum(each.rows - each.read for each in self._files.values())

    def _next(self, now_us: int) -> _File | None:
        self._look_around(now_us)
        return next((each for each in self._files.values() if each.read < each.rows), None)

    def _named(self, file: _File, count: int) -> tuple[_At, bool]:
        at, follows = _At(file.path, file.key, file.read), self._last == (file.path, file.read)
        file.read += count
        self._last = file.path, file.read
        self.offset += count
        return at, follows

    def _slice(self, at: _At, count: int) -> pa.RecordBatch:
        """Rows of a file, as columns of the schema."""
        file = self._opened(at)
        parts, row, group, first = list[pa.RecordBatch](), at.row, 0, 0
        while count:
            size = file.metadata.row_group(group).num_rows
            if first + size <= row:
                first, group = first + size, group + 1
                continue
            held = self._group
            if held is None or held[:2] != (at.path, group):
                held = self._group = at.path, group, first, self._columns_of(file, at.path, group)
            part = held[3].slice(row - first, count)
            parts.append(part)
            row, count = row + part.num_rows, count - part.num_rows
        return parts[0] if len(parts) == 1 else pa.concat_batches(parts)

    def _opened(self, at: _At) -> pq.ParquetFile:
        if self._open is None or self._open[:2] != (at.path, at.key):
            file = _opened(at.path)
            if key_of(at.path) != at.key:
                raise SourceChanged(path=at.path, problem="its footer has changed")
            _columns(file.schema_arrow, self._schema, at.path)
            self._close()
            self._open = at.path, at.key, file
        return self._open[2]

    def _columns_of(self, file: pq.ParquetFile, path: str, group: int) -> pa.RecordBatch:
        try:
            table = file.read_row_group(group, columns=list(self._schema.names))
            columns = []
            for field in self._schema.fields:
                column = table.column(field.name)
                # A time in nanoseconds loses what is beyond microseconds; everything else must fit.
                is_time = field.type.kind is TypeKind.TIMESTAMP
                columns.append(column.cast(field.type.arrow, safe=not is_time).combine_chunks())
                if not field.nullable and column.null_count:
                    raise SourceUnreadable(path=path, cause=f"column '{field.name}' has nulls")
            arrays = [each.combine_chunks() if isinstance(each, pa.ChunkedArray) else each for each in columns]
            return pa.RecordBatch.from_arrays(arrays, schema=self._schema.arrow)
        except (pa.ArrowException, OSError) as error:
            raise SourceUnreadable(path=path, cause=str(error).rstrip(".")) from None

    # --- files --------------------------------------------------------------------------------------------------------

    def _look_around(self, now_us: int) -> None:
        if self._next_look_us is None or now_us < self._next_look_us:
            return
        listed = self._look()
        self._next_look_us = now_us + max(_LOOK_US, _LOOK_FILE_US * len(listed)) if self._follow else None
        here = {each.path: self._key(each) for each in listed}
        self._seen = {path: mark for path, mark in self._seen.items() if path in here}
        free = [path for path in here if path not in self._files]
        for path, file in list(self._files.items()):
            if here.get(path) == file.key:
                continue
            renamed = next((each for each in free if here[each] == file.key), None)
            if renamed is not None:
                free.remove(renamed)
                del self._files[path]
                file.path = renamed
                self._files[renamed] = file
            elif path in here:
                if file.read:
                    raise SourceChanged(path=path, problem="its footer has changed")
                del self._files[path]
                free.append(path)
            elif file.read < file.rows:
                raise SourceMissing(path=path)
            else:
                del self._files[path]
        for path in sorted(free):
            key = here[path]
            if key is not None and self._owned(key):
                self._files[path] = _File(path, key, _opened(path).metadata.num_rows)

    def _key(self, entry: Entry) -> int | None:
        mark = entry.inode, entry.size, entry.changed_ns
        if self._seen.get(entry.path) != mark:
            self._seen[entry.path] = mark
            self._keys[entry.path] = entry.key if entry.key is not None else key_of(entry.path)
        return self._keys[entry.path]

    # --- positions ----------------------------------------------------------------------------------------------------

    def position(self) -> Position:
        return _encode(_Position(self.offset, [each for each in self._files.values() if each.read]))

    def seek(self, position: Position) -> None:
        at = decode_position(position)
        self.offset = at.records
        self._files = {each.path: each for each in at.files}
        self._next_look_us, self._last = 0, None

    def _close(self) -> None:
        if self._open is not None:
            self._open[2].close()
            self._open = None
        self._group = None

    def close(self) -> None:
        self._close()


def parquet_files(
    path: str | os.PathLike[str],
    *,
    schema: str | Schema | None = None,
    columns: Sequence[str] | None = None,
    follow: bool = False,
) -> ParquetFiles:
    """Read Parquet files, each row once; in batch form tasks read them in parallel, as columns.

    Parameters
    ----------
    path : str or path
        A file, a pattern such as ``"in/*.parquet"``, or a directory (its ``.parquet`` and ``.pq`` files; names that
        begin with ``_`` or ``.`` are left out, as Spark does).
    schema : str or Schema
        The columns, in Spark's DDL; those of the first file where it is not given.
    columns : sequence of str
        Of the first file, these columns only.
    follow : bool
        Go on for ever: files that appear are read. A file must be whole when it gets its name, or have no footer
        before.

    Notes
    -----
    The files must be reachable under the same path from every worker, and stay as they are. One that was read to its
    end may be removed. Times are read in microseconds.

    Examples
    --------
    >>> ps.stream("trips", ps.parquet_files("trips", columns=("at", "distance")))   # doctest: +SKIP
    """
    if isinstance(columns, str) or (columns is not None and (schema is not None or not columns)):
        raise InvalidOption(option="columns", given=columns, allowed="names of columns, and then no schema")
    parsed = None if schema is None else Schema.parse(schema)
    wanted = None if columns is None else tuple(columns)
    return ParquetFiles(local_path("path", os.fspath(path)), parsed, wanted, follow=Flag().read("follow", follow))
