"""The PostgreSQL sink: an epoch's rows go into a table with COPY, in one transaction with the ledger of epochs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import msgspec

from penstock.connectors import ledger
from penstock.connectors.background import Epochs
from penstock.connectors.base import Sink, SinkWriter, WriterContext
from penstock.connectors.ledger import LEDGER, Execute, LedgerWriter
from penstock.connectors.patience import Patience
from penstock.connectors.plain import check_json, date_text, json_encoder, plain_value, timestamp_text
from penstock.connectors.postgres.link import PgTable, Place, driver, find_table, quoted
from penstock.connectors.postgres.types import fits, is_json, made
from penstock.errors import BadRecord, PenstockError, SinkFailed, TypeMismatch
from penstock.types import DataType, Record, Schema, TypeKind, attribute

_json = json_encoder().encode
_ZERO = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
"""A zero byte as JSON writes it, and not a backslash that such letters follow."""


class PostgresSink(Sink):
    """A sink into a table of PostgreSQL; ``ps.postgres(…)`` is one at the end of a pipeline."""

    def __init__(self, place: Place, key: tuple[str, ...], delete: str | None, retry_s: float) -> None:
        self._place = place
        self._key = key
        self._delete = delete
        self._retry_s = retry_s

    @property
    def kind(self) -> str:
        return "postgres"

    def check(self, schema: Schema) -> None:
        stored = self._stored(schema)
        with self._place.opened(writes=True) as connection:
            found = find_table(connection, self._place.table)
            target = quoted(self._place.table)
            if found is None:
                self._check_may_create(connection)
            else:
                self._check_table(found, stored)
                rights = "INSERT, UPDATE, DELETE" if self._delete else "INSERT, UPDATE" if self._key else "INSERT"
                if not _one(connection, "SELECT has_table_privilege(%s, %s)", (target, "INSERT")):
                    raise self._refuse(f"the user may not write to table '{self._place.table}'", f"GRANT {rights}.")
                if find_table(connection, LEDGER) is None:
                    self._check_may_create(connection)

    def _check_may_create(self, connection: Any) -> None:
        schema = self._place.table.rpartition(".")[0]
        name = schema or _one(connection, "SELECT current_schema()", ())
        if name is None or _one(connection, "SELECT to_regnamespace(%s) IS NULL", (f'"{name}"',)):
            raise self._refuse(f"there is no schema '{schema or name}'", "Make it: CREATE SCHEMA.")
        if not _one(connection, "SELECT has_schema_privilege(%s, 'CREATE')", (name,)):
            what = f"table '{self._place.table}' or '{LEDGER}' is not there, and the user may not make it"
            raise self._refuse(what, f"Make them, or GRANT CREATE ON SCHEMA {name}.")

    def _stored(self, schema: Schema) -> Schema:
        """The columns that are written."""
        for name in self._key:
            schema.field(name)
        if self._delete is not None and schema.field(self._delete).type.kind is not TypeKind.BOOLEAN:
            ddl = schema.field(self._delete).type.ddl
            raise TypeMismatch(what=f"delete='{self._delete}' is {ddl}, not boolean.")
        stored = tuple(field for field in schema.fields if field.name != self._delete)
        for name in self._key:
            if is_json(schema.field(name).type):
                what = f"key column '{name}' is {schema.field(name).type.ddl}, which becomes jsonb."
                raise TypeMismatch(what=what, hint="Give key= other columns.")
        check_json(Schema(stored))
        return Schema(stored)

    def _check_table(self, found: PgTable, schema: Schema) -> None:
        there, hint = f"table '{self._place.table}' is there already", "Choose another table, or change this one."
        if found.kind not in ("r", "p"):
            raise self._refuse(f"'{self._place.table}' is no table", "Name a table.")
        for each in schema.fields:
            column = found.columns.get(each.name)
            if column is None:
                raise self._refuse(f"{there}, without a column '{each.name}'", hint)
            if not fits(each.type, column.type):
                what = f"{there}, and its column '{each.name}' is {column.type}, which does not take {each.type.ddl}"
                raise self._refuse(what, f"{hint} It would be made as {made(each.type)}.")
        for column in found.columns.values():
            if column.not_null and not column.has_default and column.name not in schema:
                raise self._refuse(f"{there}, and its column '{column.name}' has to have a value", hint)
        if self._key and set(self._key) not in [set(key) for key in found.keys]:
            missing = f"ALTER TABLE {quoted(self._place.table)} ADD PRIMARY KEY ({', '.join(self._key)})."
            raise self._refuse(f"{there}, without a primary key or unique index on ({', '.join(self._key)})", missing)

    def _refuse(self, cause: str, hint: str) -> SinkFailed:
        return self._place.sink_error(cause, hint)

    def state(self) -> dict[str, object]:
        return {"database": self._place.address, "table": self._place.table}

    def writes_where(self, state: dict[str, object]) -> bool:
        return (state["database"], state["table"]) == (self._place.address, self._place.table)

    def ports(self, schemas: Sequence[Schema], resumed: dict[str, object] | None) -> dict[str, Schema]:
        if resumed is not None:
            self.check(schemas[0])  # the schema may have changed since
        return super().ports(schemas, resumed)

    def resume(self, state: dict[str, object]) -> None:
        # A server may have moved; that a table has the job's epochs is what counts.
        ledger.check_moved(
            f"table '{state.get('table', self._place.table)}'", f"table '{self._place.table}'", self._refuse
        )
        with self._place.opened(writes=True) as connection:
            if find_table(connection, self._place.table) is None:
                done = None
            elif find_table(connection, LEDGER) is None:
                done = 0
            else:
                owner = (str(state["job_id"]), self._place.table, str(state["operation"]))
                done = ledger.newest_epoch(connection.execute, "%s", *owner)
        ledger.check_resumed(self._place.table, int(str(state["epoch"])), done, self._refuse)

    def writer(self, schema: Schema, context: WriterContext) -> SinkWriter:
        stored = self._stored(schema)
        columns = ", ".join(f'"{each.name}" {made(each.type)}' for each in stored.fields)
        key = ", ".join(f'"{name}"' for name in self._key)
        primary = f", PRIMARY KEY ({key})" if key else ""
        try:
            opened = self._place.opened(writes=True, retry_s=self._retry_s)
            with opened as connection, connection.transaction():
                # Two that make the same table at once would trip over each other.
                connection.execute("SELECT pg_advisory_xact_lock(hashtext('penstock'))")
                connection.execute(f"CREATE TABLE IF NOT EXISTS {quoted(self._place.table)} ({columns}{primary})")
                connection.execute(ledger.DDL)
        except PenstockError as error:
            raise error.at(context.operation) from None
        return _PostgresWriter(self._place, self._key, self._delete, self._retry_s, schema, stored, context)


def _one(connection: Any, statement: str, values: tuple[object, ...]) -> Any:
    return connection.execute(statement, values).fetchone()[0]


class _PostgresWriter(LedgerWriter):
    mark = "%s"
    locking = " FOR UPDATE"

    def __init__(
        self,
        place: Place,
        key: tuple[str, ...],
        delete: str | None,
        retry_s: float,
        schema: Schema,
        stored: Schema,
        context: WriterContext,
    ) -> None:
        super().__init__(schema, place.table, context)
        self._place = place
        self.shown, self.retry_s = place.shown, retry_s
        self._connection: Any = None
        self._names = schema.names
        self._keys_at = [schema.names.index(name) for name in key]
        self._delete_at = schema.names.index(delete) if delete is not None else None
        texts = [(at, _text_of(each.type)) for at, each in enumerate(schema.fields) if at != self._delete_at]
        self._texts = [(at, convert) for at, convert in texts if convert is not None]
        finders = [(at, _zero_in(each.type)) for at, each in enumerate(schema.fields)]
        self._zeros = [(at, has_zero) for at, has_zero in finders if has_zero is not None]
        target, names = quoted(place.table), ", ".join(f'"{name}"' for name in stored.names)
        self._copy = f"COPY {target if not key else 'penstock_stage'} ({names}) FROM STDIN"
        self._make_stage = (
            f"CREATE TEMP TABLE penstock_stage ON COMMIT DELETE ROWS AS SELECT {names} FROM {target} WITH NO DATA"
        )
        conflict = ", ".join(f'"{name}"' for name in key)
        rest = ", ".join(f'"{name}" = excluded."{name}"' for name in stored.names if name not in key)
        action = f"DO UPDATE SET {rest}" if rest else "DO NOTHING"
        self._upsert = (
            f"INSERT INTO {target} ({names}) SELECT {names} FROM penstock_stage ON CONFLICT ({conflict}) {action}"
        )
        same = " AND ".join(f't."{name}" = s."{name}"' for name in key)
        self._remove = f"DELETE FROM {target} t USING penstock_stage s WHERE {same}"

    def write(self, rows: list[Record]) -> None:
        # What the table cannot take must fail before its epoch is prepared: afterwards it would fail again and again.
        names = self._names
        for at in self._keys_at:
            name = names[at]
            if any(getattr(row, attribute(name)) is None for row in rows):
                hint = f"Leave such records out: filter(ps.col('{name}').is_not_null())."
                raise self._failed(f"a record has no value in '{name}', which the table needs as a key", hint)
        for at, has_zero in self._zeros:
            if any(has_zero(value) for row in rows if (value := getattr(row, attribute(names[at]))) is not None):
                cause = f"a text in '{names[at]}' has a zero byte, which PostgreSQL cannot hold"
                raise self._failed(cause, "Replace it.")
        try:
            for at, convert in self._texts:
                for row in rows:
                    if (value := getattr(row, attribute(names[at]))) is not None:
                        convert(value)
        except BadRecord as error:
            raise self._failed(error.what.rstrip("."), error.hint) from None
        super().write(rows)

    def _failed(self, cause: str, hint: str) -> SinkFailed:
        return SinkFailed(sink=self._place.shown, cause=cause, hint=hint, operation=self._operation)

    def publish(self, ready: Epochs) -> None:
        """Try until the server has answered that it is committed: what was, and was not heard, is in the ledger."""
        psycopg, patience = driver(), Patience(self.retry_s)
        while True:
            try:
                return super().publish(ready)
            except psycopg.OperationalError as error:
                self.disconnect()
                pause_s = patience.pause_s()
                if pause_s is None:
                    hint = "Nothing of this epoch is in the table. The job can be resumed from its checkpoint."
                    raise self._failed(self._place.shown_error(error), hint) from None
            except psycopg.Error as error:
                raise self._failed(self._place.shown_error(error), "") from None
            self.pause(pause_s)

    @contextmanager
    def transaction(self) -> Iterator[Execute]:
        if self._connection is None:
            self._connection = self._place.connect()
            if self._keys_at:
                self._connection.execute(self._make_stage)
        with self._connection.transaction():
            yield self._connection.execute

    def put(self, rows: list[Record]) -> None:
        values = list(map(msgspec.structs.astuple, rows))
        if not self._keys_at:
            self._copy_in(values)
            return
        # One statement cannot change a row twice: the last one of a key is what the earlier ones lead to.
        newest = {tuple(row[at] for at in self._keys_at): row for row in values}
        gone = self._delete_at
        removed = [row for row in newest.values() if gone is not None and row[gone]]
        kept = [row for row in newest.values() if gone is None or not row[gone]]
        if removed:
            self._copy_in(removed)
            self._connection.execute(self._remove)
            self._connection.execute("TRUNCATE penstock_stage")
        if kept:
            self._copy_in(kept)
            self._connection.execute(self._upsert)
            self._connection.execute("TRUNCATE penstock_stage")  # another epoch may follow in this transaction

    def _copy_in(self, rows: Sequence[tuple[Any, ...]]) -> None:
        gone, texts = self._delete_at, self._texts
        with closing(self._connection.cursor()) as cursor, cursor.copy(self._copy) as copy:
            for row in rows:
                values = list(row)
                for at, convert in texts:
                    if values[at] is not None:
                        values[at] = convert(values[at])
                if gone is not None:
                    del values[gone]
                copy.write_row(values)

    def disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _text_of(data_type: DataType) -> Callable[[Any], Any] | None:
    """How a value is written, where the driver would not write it right."""
    if is_json(data_type):
        return lambda value: _json_text(value, data_type)
    if data_type.element is not None:
        convert = _text_of(data_type.element)
        return None if convert is None else lambda values: [None if v is None else convert(v) for v in values]
    return {TypeKind.TIMESTAMP: timestamp_text, TypeKind.DATE: date_text}.get(data_type.kind)


def _json_text(value: object, data_type: DataType) -> str:
    text = _json(plain_value(value, data_type)).decode()
    if "\\u0000" in text and _ZERO.search(text):
        raise BadRecord("a text in JSON has a zero byte, which PostgreSQL cannot hold.", hint="Replace it.")
    return text


def _zero_in(data_type: DataType) -> Callable[[Any], bool] | None:
    """What finds a zero byte in a value; None where there are no texts."""
    if data_type.kind is TypeKind.STRING:
        return lambda value: "\0" in value
    if data_type.element is not None and data_type.element.kind is TypeKind.STRING and not is_json(data_type):
        return lambda values: any(each is not None and "\0" in each for each in values)
    return None
