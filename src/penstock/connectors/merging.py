"""How rows of many epochs become one Parquet file for each directory; `connectors/parquet_sink.py` has the steps."""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.connectors.files import disk, listed, sync_directory

PENDING = ".pending"
PART = re.compile(r"part-(\d{8,})-(\d{8,})-\d{4,}-([0-9a-f]{16}|local)\.parquet")
"""A file: first and last epoch, instance, job."""
PARTITIONS_MAX = 10_000
"""Directories that one merge may write to."""
_NULL = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = "\"#%'*/:=?\\{[]^\x7f"
"""What Spark, too, writes as a number in the name of a directory."""


class Merger:
    """Steps 2 to 8 for one instance, as the table there says; `merge` may be called in any thread."""

    def __init__(
        self, path: Path, by: tuple[str, ...], name: str, tail: str, first_part: int, operation: str = "sink"
    ) -> None:
        self.operation = operation
        self.path = path
        self.name = name
        self.pending = path / PENDING
        self.open = self.pending / f"{name}-open"
        self._by = by
        self._tail = tail
        self._first_part = first_part
        self._lock = threading.Lock()

    def add(self, file: Path, epoch: int) -> bool:
        """Step 2; False where the file is gone, because it was added before."""
        self.open.mkdir(exist_ok=True)
        try:
            file.replace(self.open / f"{epoch:08d}.arrow")
        except FileNotFoundError:
            return (self.open / f"{epoch:08d}.arrow").exists()
        return True

    def close(self) -> None:
        """Step 3: what is there now is to become visible."""
        files = listed(self.open)
        if files:
            self.open.rename(self.pending / f"{self.name}-closed-{files[0].stem}")

    def merge(self) -> None:
        """Steps 4 to 8, for all that is to become visible, or was left on the way."""
        with self._lock, disk(self.path, self.operation):
            for ready in self._found("ready"):
                self._show(ready)
            for closed in self._found("closed"):
                ready = self.pending / f"{self.name}-ready-{closed.name.rpartition('-')[2]}"
                if not ready.exists():
                    self._write(closed, ready)
                self._show(ready)

    def _named(self, state: str) -> Path:
        return self.pending / f"{self.name}-{state}-{os.urandom(4).hex()}"

    def _found(self, state: str) -> list[Path]:
        return sorted(self.pending.glob(f"{self.name}-{state}-*"))

    def _write(self, closed: Path, ready: Path) -> None:
        files = listed(closed)
        if not files:
            shutil.rmtree(closed, ignore_errors=True)
            return
        merging = self._named("merging")
        merging.mkdir()
        first, last = (self._first_part + int(each.stem) for each in (files[0], files[-1]))
        name = f"part-{first:08d}-{last:08d}-{self._tail}.parquet"
        tables = [pa.ipc.open_file(pa.memory_map(str(each))).read_all() for each in files]
        made = list[Path]()
        for directory, rows in partitioned(pa.concat_tables(tables), self._by):
            (merging / directory).mkdir(parents=True, exist_ok=True)
            with (merging / directory / name).open("wb") as file:
                pq.write_table(rows, file, row_group_size=1 << 20)
                file.flush()
                os.fsync(file.fileno())
            made.append(merging / directory / name)
        if not all(each.exists() for each in made):
            raise FileNotFoundError(2, "another process has taken over", str(merging))
        merging.rename(ready)
        sync_directory(self.pending)

    def _show(self, ready: Path) -> None:
        self.discard(self.pending / ready.name.replace("-ready-", "-closed-"))
        for file in [each for each in ready.rglob("*.parquet") if each.is_file()]:
            target = self.path / file.relative_to(ready)
            target.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # another process, which was thought dead, does the same
                file.replace(target)
            sync_directory(target.parent)
        shutil.rmtree(ready, ignore_errors=True)

    def waiting(self) -> Iterator[tuple[str, int]]:
        """What is committed and not visible, with its last epoch."""
        for directory in [self.open, *self._found("closed")]:
            yield from ((f"{PENDING}/{directory.name}/{each.name}", int(each.stem)) for each in listed(directory))
        for each in (found for ready in self._found("ready") for found in ready.rglob("*.parquet")):
            match = PART.fullmatch(each.name)
            if match is not None:
                yield f"{PENDING}/{each.parent.name}/{each.name}", int(match[2]) - self._first_part

    def left(self) -> list[Path]:
        """What a writer before this one has left of steps 1 and 4."""
        return [*self.pending.glob(f"{self.name}-*.arrow"), *self._found("merging"), *self._found("trash")]

    def discard(self, path: Path) -> None:
        """Remove a file or a directory; that at once, because its writer may be at work on it."""
        if path.is_dir() and "-trash-" not in path.name:
            trash = self._named("trash")
            try:
                path = path.rename(trash)
            except FileNotFoundError:
                return
        remove(path)


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def partitioned(table: pa.Table, by: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each directory, as Spark lays them out: in their order, without the columns that it tells."""
    rest = [name for name in table.column_names if name not in by]
    for values, rows in parted(table, by):
        yield "/".join(f"{_escaped(name)}={_text(value)}" for name, value in values.items()), rows.select(rest)


def parted(table: pa.Table, by: Sequence[str]) -> Iterator[tuple[dict[str, object], pa.Table]]:
    """The rows of each combination of values of some columns, in their order."""
    if not by:
        yield {}, table
        return
    numbers = None
    for name in by:
        codes = table.column(name).combine_chunks().dictionary_encode(null_encoding="encode").indices
        codes = codes.cast(pa.int64())
        numbers = codes if numbers is None else pc.add(pc.multiply(numbers, pc.max(codes).as_py() + 1), codes)
    distinct = pc.unique(numbers)
    if len(distinct) > PARTITIONS_MAX:
        raise OSError(None, f"{len(distinct)} directories for one file are more than {PARTITIONS_MAX}")
    for number in distinct:
        rows = table.filter(pc.equal(numbers, number))
        yield {name: rows.column(name)[0].as_py() for name in by}, rows


def _text(value: object) -> str:
    if value is None or value == "":
        return _NULL  # as Spark does: a directory has no empty name
    return _escaped(str(value).lower() if isinstance(value, bool) else str(value))


def _escaped(text: str) -> str:
    return "".join(f"%{ord(each):02X}" if each in _ESCAPED or ord(each) < 32 else each for each in text)
