"""The SQLite sink: a keyed table that every epoch's rows are upserted into, once, in one transaction."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from penstock.connectors import ledger
from penstock.connectors.base import Sink, SinkWriter, WriterContext
from penstock.connectors.ledger import LEDGER, Execute, LedgerWriter
from penstock.connectors.plain import date_text, timestamp_text
from penstock.errors import InvalidOption, SinkFailed, TypeMismatch
from penstock.types import Record, Schema, TypeKind, attribute

BUSY_S = 30.0
"""How long an instance waits for another one's transaction."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_RESERVED = ("penstock_epochs", LEDGER)
# No column is an INTEGER: as the only key, SQLite would take it for the number of the row and make one up for null.
_TYPES = {
    TypeKind.BOOLEAN: "BOOLEAN",
    TypeKind.DOUBLE: "REAL",
    TypeKind.FLOAT: "REAL",
    TypeKind.STRING: "TEXT",
    TypeKind.BINARY: "BLOB",
    TypeKind.TIMESTAMP: "TEXT",
    TypeKind.DATE: "TEXT",
}
_TEXTS: dict[TypeKind, Callable[[int], str]] = {TypeKind.TIMESTAMP: timestamp_text, TypeKind.DATE: date_text}


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
        with _store(self._path, None), closing(sqlite3.connect(":memory:")) as trial:
            trial.executescript(self._ddl(schema))
        if not self._path.exists():
            folder = self._path.absolute().parent
            if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
                raise self._refusal(f"'{folder}' is no directory that can be written to", "Check the path.")
            return
        with _store(self._path, None), closing(_look_into(self._path)) as connection:
            columns = connection.execute(f'PRAGMA table_info("{self._table}")').fetchall()
            keys = [{row[1] for row in columns if row[5]}]
            for index in connection.execute(f'PRAGMA index_list("{self._table}")').fetchall():
                if index[2]:
                    keys.append({row[2] for row in connection.execute(f'PRAGMA index_info("{index[1]}")')})
        if not columns:
            return
        missing = [name for name in schema.names if name not in {row[1] for row in columns}]
        there, hint = f"table '{self._table}' is there already", "Choose another table, or remove this one."
        if missing:
            raise self._refusal(f"{there}, without a column '{missing[0]}'", hint)
        if set(self._key) not in keys:
            raise self._refusal(f"{there}, and its key is not ({', '.join(self._key)})", hint)

    def _refusal(self, cause: str, hint: str) -> SinkFailed:
        return SinkFailed(sink=f"sqlite('{self._path}')", cause=cause, hint=hint)

    def state(self) -> dict[str, object]:
        return {"database": str(self._path.absolute()), "table": self._table}

    def writes_where(self, state: dict[str, object]) -> bool:
        database = Path(str(state["database"]))
        return (database.resolve(), state["table"]) == (self._path.resolve(), self._table)

    def ports(self, schemas: Sequence[Schema], resumed: dict[str, object] | None) -> dict[str, Schema]:
        if resumed is not None:
            self.check(schemas[0])  # the schema may have changed since
        return super().ports(schemas, resumed)

    def resume(self, state: dict[str, object]) -> None:
        before, table = Path(str(state.get("database", self._path))), state.get("table", self._table)
        if (before.exists() and before.resolve() != self._path.resolve()) or table != self._table:
            then, now = f"table '{table}' of '{before}'", f"'{self._table}' of '{self._path}'"
            ledger.check_moved(then, now, self._refusal)
        done = self._newest_epoch(str(state["job_id"]), str(state["operation"]))
        ledger.check_resumed(self._table, int(str(state["epoch"])), done, self._refusal)

    def _newest_epoch(self, job_id: str, operation: str) -> int | None:
        """Newest epoch of a job that is in the table, 0 where there is none; None where there is no table."""
        if not self._path.exists():
            return None
        with _store(self._path, None), closing(_look_into(self._path)) as connection:
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if self._table not in tables:
                return None
            if LEDGER not in tables:
                return 0
            return ledger.newest_epoch(connection.execute, "?", job_id, self._table, operation)

    def _check_columns(self, schema: Schema) -> None:
        for name in self._key:
            schema.field(name)
        for field in schema.fields:
            if field.type.is_nested or field.type.kind is TypeKind.DECIMAL:
                raise TypeMismatch(
                    what=f"column '{field.name}' is {field.type.ddl}, which SQLite cannot hold.",
                    hint="Select members of it, or cast it to string.",
                )

    def _ddl(self, schema: Schema) -> str:
        columns = ", ".join(f'"{field.name}" {_TYPES.get(field.type.kind, "BIGINT")}' for field in schema.fields)
        key = ", ".join(f'"{name}"' for name in self._key)
        return (
            "BEGIN IMMEDIATE;"
            f'CREATE TABLE IF NOT EXISTS "{self._table}" ({columns}, PRIMARY KEY ({key}));'
            f"{ledger.DDL};"
            "COMMIT;"
        )

    def writer(self, schema: Schema, context: WriterContext) -> SinkWriter:
        with _store(self._path, context.operation), closing(_connect(self._path)) as connection:
            connection.executescript(self._ddl(schema))
        return _SqliteWriter(self._path, self._table, self._key, schema, context)


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=BUSY_S, isolation_level="IMMEDIATE", check_same_thread=False)


def _look_into(path: Path) -> sqlite3.Connection:
    """Open a database that is there, to change nothing."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", timeout=BUSY_S, uri=True)


@contextmanager
def _store(path: Path, operation: str | None) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        hint = "Check that the file can be written and is a SQLite database."
        raise SinkFailed(sink=f"sqlite('{path}')", cause=error, hint=hint, operation=operation) from error


class _SqliteWriter(LedgerWriter):
    mark = "?"

    def __init__(self, path: Path, table: str, key: tuple[str, ...], schema: Schema, context: WriterContext) -> None:
        super().__init__(schema, table, context)
        self._path = path
        self.shown = f"sqlite('{path}')"
        self._at = [schema.names.index(name) for name in key]
        self._connection = _connect(path)  # used here, then in the thread
        with _store(path, context.operation):
            columns = self._connection.execute(f'PRAGMA table_info("{table}")').fetchall()
        # Times are text as in JSON; a table whose column holds whole numbers gets them as before.
        whole = {row[1] for row in columns if "INT" in str(row[2]).upper()}
        self._texts = [
            (at, _TEXTS[field.type.kind])
            for at, field in enumerate(schema.fields)
            if field.type.kind in _TEXTS and field.name not in whole
        ]
        rowid = [row[1] for row in columns if row[5]] == [*key] and len(key) == 1
        self._never_null = [row[1] for row in columns if row[1] in key and (row[3] or (rowid and row[2] == "INTEGER"))]
        """Keys in which a table of the user's own cannot keep a null."""
        names = ", ".join(f'"{name}"' for name in schema.names)
        marks = ", ".join("?" * len(schema))
        rest = ", ".join(f'"{name}" = excluded."{name}"' for name in schema.names if name not in key)
        conflict = ", ".join(f'"{name}"' for name in key)
        action = f"DO UPDATE SET {rest}" if rest else "DO NOTHING"
        self._upsert = f'INSERT INTO "{table}" ({names}) VALUES ({marks}) ON CONFLICT ({conflict}) {action}'
        # In a key of SQLite every null is another one: rows with a null are looked for instead.
        same = " AND ".join(f'"{name}" IS :v{at}' for name, at in zip(key, self._at, strict=True))
        places = ", ".join(f":v{at}" for at in range(len(schema)))
        setting = ", ".join(f'"{name}" = :v{at}' for at, name in enumerate(schema.names) if name not in key)
        self._update = f'UPDATE "{table}" SET {setting} WHERE {same}' if setting else ""
        self._insert = (
            f'INSERT INTO "{table}" ({names}) SELECT {places} WHERE NOT EXISTS (SELECT 1 FROM "{table}" WHERE {same})'
        )

    def write(self, rows: list[Record]) -> None:
        for name in self._never_null:
            if any(_is_null(getattr(row, attribute(name))) for row in rows):
                raise SinkFailed(
                    sink=f"sqlite('{self._path}')",
                    cause=f"a record has no value in '{name}', which the table needs as a key",
                    hint=f"Leave such records out: filter(ps.col('{name}').is_not_null()).",
                    operation=self._operation,
                )
        super().write(rows)

    @contextmanager
    def transaction(self) -> Iterator[Execute]:
        with _store(self._path, self._operation), self._connection:
            yield self._connection.execute

    def put(self, rows: list[Record]) -> None:
        whole: list[tuple[object, ...]] = []
        with_null: list[tuple[object, ...]] = []
        for values in map(self._values, rows):
            (with_null if any(_is_null(values[at]) for at in self._at) else whole).append(values)
        self._connection.executemany(self._upsert, whole)
        for values in with_null:
            named = {f"v{at}": value for at, value in enumerate(values)}
            if self._update:
                self._connection.execute(self._update, named)
            self._connection.execute(self._insert, named)

    def _values(self, row: Record) -> tuple[object, ...]:
        values = msgspec.structs.astuple(row)
        if not self._texts:
            return values
        shown = list(values)
        for at, text in self._texts:
            if shown[at] is not None:
                shown[at] = text(shown[at])
        return tuple(shown)

    def disconnect(self) -> None:
        self._connection.close()


def _is_null(value: object) -> bool:
    return value is None or value != value  # SQLite keeps no NaN: it stores null


def sqlite(path: str | os.PathLike[str], table: str, *, key: str | tuple[str, ...] | list[str]) -> Sqlite:
    """Keep the newest row of each key in a table of a SQLite file.

    Exactly once: an epoch's rows are upserted when it is committed, in one transaction with a ledger of epochs, so that
    an epoch that is committed again after a crash changes nothing. Rows of one key apply in order. The ledger tells
    jobs apart, also those of one name: a job that begins anew writes all that it has into the table, whatever is there.
    All workers must see the same file, so it is for one machine.

    Timestamps and dates are text as in JSON, such as ``2026-01-31T08:00:00.000000Z``, which SQLite's functions of time
    read and which sorts by time. Where a table is there whose column is of a whole number's type, it gets microseconds
    (days for dates) instead.

    Parameters
    ----------
    path : path
        The database file; made if it is not there.
    table : str
        The table; made if it is not there, with columns for the stream's.
    key : str or sequence of str
        Columns that name a row; a later row of the same key replaces the earlier one. Null is a value of its own: there
        is one row with null in a key (and the same values in the others).
    """
    names = (key,) if isinstance(key, str) else tuple(key)
    if not isinstance(table, str) or not _NAME.fullmatch(table) or table in _RESERVED:
        raise InvalidOption(option="table", given=table, allowed=f"letters, digits and '_', and not '{LEDGER}'")
    if not names:
        raise InvalidOption(option="key", given=key, allowed="at least one column")
    return Sqlite(os.fspath(path), table, names)
