"""The SQLite sink: a keyed table that every epoch's rows are upserted into, once, in one transaction."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from penstock.connectors.base import RESUME_ONCE, Sink, SinkWriter, WriterContext
from penstock.connectors.buffered import BufferedWriter
from penstock.errors import InvalidOption, SinkFailed, TypeMismatch
from penstock.types import Record, Schema, TypeKind

BUSY_S = 30.0
"""How long an instance waits for another one's transaction."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_LEDGER = "penstock_epochs"
_TYPES = {
    TypeKind.BOOLEAN: "INTEGER",
    TypeKind.DOUBLE: "REAL",
    TypeKind.STRING: "TEXT",
    TypeKind.BINARY: "BLOB",
}


class Sqlite(Sink):
    """A sink into a table of a SQLite file; build it with :func:`sqlite`."""

    def __init__(self, path: str, table: str, key: tuple[str, ...]) -> None:
        self._path = Path(path)
        self._table = table
        self._key = key

    @property
    def kind(self) -> str:
        return "sqlite"

    def check(self, schema: Schema) -> None:
        self._check_columns(schema)
        with _store(self._path, None), closing(_connect(self._path)) as connection, connection:
            connection.executescript(self._ddl(schema))
            present = {row[1] for row in connection.execute(f"PRAGMA table_info({self._table})")}
        missing = [name for name in schema.names if name not in present]
        if missing:
            raise SinkFailed(
                sink=f"sqlite('{self._path}')",
                cause=f"table '{self._table}' is there already, without a column '{missing[0]}'",
                hint="Choose another table, or remove this one.",
            )

    def state(self) -> dict[str, object]:
        return {"database": str(self._path.absolute()), "table": self._table}

    def resume(self, state: dict[str, object]) -> None:
        before, table = Path(str(state.get("database", self._path))), state.get("table", self._table)
        if (before.exists() and before.resolve() != self._path.resolve()) or table != self._table:
            raise SinkFailed(
                sink=f"sqlite('{self._path}')",
                cause=f"the last run wrote into table '{table}' of '{before}', now it is '{self._table}'",
                hint=RESUME_ONCE,
            )

    def _check_columns(self, schema: Schema) -> None:
        for name in self._key:
            schema.field(name)
        for field in schema.fields:
            if field.type.kind is TypeKind.ARRAY:
                raise TypeMismatch(what=f"column '{field.name}' is {field.type.ddl}, which SQLite cannot hold.")

    def _ddl(self, schema: Schema) -> str:
        columns = ", ".join(f'"{field.name}" {_TYPES.get(field.type.kind, "INTEGER")}' for field in schema.fields)
        key = ", ".join(f'"{name}"' for name in self._key)
        return (
            f"CREATE TABLE IF NOT EXISTS {self._table} ({columns}, PRIMARY KEY ({key}));"
            f"CREATE TABLE IF NOT EXISTS {_LEDGER} "
            "(job TEXT, sink TEXT, instance INTEGER, epoch INTEGER, PRIMARY KEY (job, sink, instance));"
        )

    def writer(self, schema: Schema, context: WriterContext) -> SinkWriter:
        return _SqliteWriter(self._path, self._table, self._key, schema, context)


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=BUSY_S, isolation_level="IMMEDIATE")


@contextmanager
def _store(path: Path, operation: str | None) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        hint = "Check that the file can be written and is a SQLite database."
        raise SinkFailed(sink=f"sqlite('{path}')", cause=error, hint=hint, operation=operation) from error


class _SqliteWriter(BufferedWriter):
    def __init__(self, path: Path, table: str, key: tuple[str, ...], schema: Schema, context: WriterContext) -> None:
        super().__init__(schema)
        self._path = path
        self._operation = context.operation
        self._owner = (context.job, context.operation, context.instance)
        self._connection = _connect(path)
        names = ", ".join(f'"{name}"' for name in schema.names)
        marks = ", ".join("?" * len(schema))
        rest = ", ".join(f'"{name}" = excluded."{name}"' for name in schema.names if name not in key)
        conflict = ", ".join(f'"{name}"' for name in key)
        action = f"DO UPDATE SET {rest}" if rest else "DO NOTHING"
        self._upsert = f"INSERT INTO {table} ({names}) VALUES ({marks}) ON CONFLICT ({conflict}) {action}"

    def commit(self, epoch: int) -> list[Record] | None:
        ready = self._take(epoch)
        if not ready:
            return None
        with _store(self._path, self._operation), self._connection:
            # The ledger is part of the rows' own transaction: an epoch that is asked for again adds nothing.
            done = self._connection.execute(
                f"SELECT epoch FROM {_LEDGER} WHERE job = ? AND sink = ? AND instance = ?",
                self._owner,
            ).fetchone()
            for prepared, rows in ready:
                if done is None or prepared > done[0]:
                    self._connection.executemany(self._upsert, map(msgspec.structs.astuple, rows))
            self._connection.execute(
                f"INSERT INTO {_LEDGER} VALUES (?, ?, ?, ?) "
                "ON CONFLICT (job, sink, instance) DO UPDATE SET epoch = max(epoch, excluded.epoch)",
                (*self._owner, ready[-1][0]),
            )
        return None

    def close(self) -> None:
        self._connection.close()


def sqlite(path: str | os.PathLike[str], table: str, *, key: str | tuple[str, ...] | list[str]) -> Sqlite:
    """Keep the newest row of each key in a table of a SQLite file.

    Exactly once: an epoch's rows are upserted when it is committed, in one transaction with a ledger of epochs, so that
    an epoch that is committed again after a crash changes nothing. Rows of one key apply in order. All workers must see
    the same file, so it is for one machine.

    Parameters
    ----------
    path : path
        The database file; made if it is not there.
    table : str
        The table; made if it is not there, with columns for the stream's.
    key : str or sequence of str
        Columns that name a row; a later row of the same key replaces the earlier one.
    """
    names = (key,) if isinstance(key, str) else tuple(key)
    if not isinstance(table, str) or not _NAME.fullmatch(table) or table == _LEDGER:
        raise InvalidOption(option="table", given=table, allowed=f"letters, digits and '_', and not '{_LEDGER}'")
    if not names:
        raise InvalidOption(option="key", given=key, allowed="at least one column")
    return Sqlite(os.fspath(path), table, names)
