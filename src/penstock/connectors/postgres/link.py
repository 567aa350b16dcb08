"""Connections to PostgreSQL, what a table looks like, and which types map; source, sink and table use it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.connectors.extras import installed
from penstock.connectors.patience import Patience, sleep
from penstock.connectors.postgres.types import PgType, TypeRow, type_of
from penstock.connectors.secrets import Secret, one_line
from penstock.errors import InvalidOption, PenstockError, SinkFailed, SourceFailed
from penstock.types import Field, Schema

if TYPE_CHECKING:
    import psycopg

CONNECT_S = 10
IDENTIFIER_MAX = 63
_SECRETS = ("password", "sslpassword")


def driver() -> Any:
    """The package psycopg, or what to install."""
    return installed("psycopg", "postgres")


@dataclass(frozen=True)
class Place:
    """A table of a database; what is shown of it has no credentials."""

    dsn: str = field(repr=False)
    table: str

    @cached_property
    def info(self) -> dict[str, Any]:
        """The parts of the address."""
        psycopg = driver()
        try:
            parts = dict(psycopg.conninfo.conninfo_to_dict(self.dsn))
        except psycopg.Error as error:
            raise InvalidOption(
                option="dsn",
                given="***",
                allowed=f"such as 'postgresql://user:password@host:5432/database' ({self.shown_error(error)})",
            ) from None
        return {name: Secret(str(part)) if name in _SECRETS else part for name, part in parts.items()}

    @property
    def address(self) -> str:
        """Host, port and database."""
        info = self.info
        database = info.get("dbname") or info.get("user") or ""
        return f"{info.get('host') or info.get('hostaddr') or 'localhost'}:{info.get('port') or 5432}/{database}"

    @property
    def shown(self) -> str:
        """How errors and states name it."""
        return f"postgres('{self.address}', '{self.table}')"

    def shown_error(self, error: BaseException) -> str:
        """An error of the driver on one line, without credentials."""
        try:
            password = self.__dict__.get("info", {}).get("password")
        except PenstockError:
            password = None
        diagnosis = getattr(error, "diag", None)
        text = (diagnosis.message_primary if diagnosis is not None else None) or str(error)
        return one_line(text, password)

    def source_error(self, cause: object, hint: str = "") -> SourceFailed:
        """The error of a place that is read."""
        return SourceFailed(source=self.shown, cause=cause, hint=hint)

    def sink_error(self, cause: object, hint: str = "") -> SinkFailed:
        """The error of a place that is written to."""
        return SinkFailed(sink=self.shown, cause=cause, hint=hint)

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        """Open a connection; it commits each statement by itself, and speaks of time in UTC."""
        info = {"connect_timeout": CONNECT_S, "application_name": "penstock", **self.info, **options}
        settings = "-c timezone=UTC -c datestyle=ISO"
        info["options"] = f"{info['options']} {settings}" if info.get("options") else settings
        connection: psycopg.Connection[Any] = driver().connect(autocommit=True, **info)
        return connection

    @contextmanager
    def opened(self, *, writes: bool = False, retry_s: float = 0.0) -> Iterator[psycopg.Connection[Any]]:
        """Open a connection for some statements; what the server refuses is a clear error.

        With ``retry_s`` a server that is away is waited for: a worker may begin while it is, in place of a lost one.
        """
        psycopg, fail = driver(), self.sink_error if writes else self.source_error
        patience = Patience(retry_s)
        while True:
            try:
                connection = self.connect()
                break
            except psycopg.OperationalError as error:
                pause_s = patience.pause_s()
                if pause_s is None:
                    raise fail(f"cannot connect: {self.shown_error(error)}", _hint(str(error))) from None
            sleep(pause_s)
        try:
            with connection:
                yield connection
        except psycopg.Error as error:
            raise fail(self.shown_error(error)) from None


def _hint(text: str) -> str:
    words = text.lower()
    if "password" in words or "authentication" in words or "role" in words:
        return "Check user and password."
    if "database" in words:
        return "Check the name of the database."
    return "Check host and port, and that the server runs."


@dataclass(frozen=True)
class PgColumn:
    """A column of a table."""

    name: str
    oid: int
    type: str
    not_null: bool
    has_default: bool
    made_of: PgType


@dataclass(frozen=True)
class PgTable:
    """A table as it is in the database.

    Attributes
    ----------
    keys : list of tuple of str
        The columns of each unique index, in their order.
    identity : tuple of str
        The columns that name a row in the log of changes; empty where updates and deletes could not name it.
    """

    schema: str
    name: str
    kind: str
    columns: dict[str, PgColumn]
    keys: list[tuple[str, ...]]
    primary: tuple[str, ...]
    identity: tuple[str, ...]

    def fields(self, place: Place, wanted: tuple[str, ...] | None) -> tuple[Field, ...]:
        """The columns as fields of a schema, or an error that names the one that does not map."""
        names = tuple(self.columns) if wanted is None else wanted
        found = []
        for name in names:
            column = self.columns.get(name)
            if column is None:
                raise place.source_error(f"there is no column '{name}'", f"Columns: {', '.join(self.columns)}.")
            data_type = column.made_of.data_type
            if data_type is None:
                rest = ", ".join(f"'{each}'" for each in self.columns if each != name)
                raise place.source_error(
                    f"column '{name}' is {column.type}, which maps to no type here",
                    f"Leave it out, columns=({rest}), or read a view that casts it.",
                )
            found.append(Field(name, data_type, not column.not_null))
        return tuple(found)


def find_table(connection: psycopg.Connection[Any], table: str) -> PgTable | None:
    """Look a table up; None where there is none."""
    found = connection.execute(
        "SELECT c.oid, n.nspname, c.relname, c.relkind, c.relreplident FROM pg_class c "
        "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)",
        (quoted(table),),
    ).fetchone()
    if found is None:
        return None
    oid, schema, name, kind, identity = found
    columns = connection.execute(
        "SELECT attname, atttypid, format_type(atttypid, atttypmod), attnotnull, atthasdef OR attidentity <> '', "
        "atttypmod, attndims "
        "FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        (oid,),
    ).fetchall()
    types = _types(connection, [each[1] for each in columns])
    indexes = connection.execute(
        "SELECT indisprimary, indisreplident, ARRAY(SELECT a.attname::text FROM unnest(indkey) WITH ORDINALITY k(n, o) "
        "JOIN pg_attribute a ON a.attrelid = indrelid AND a.attnum = k.n WHERE k.o <= indnkeyatts ORDER BY k.o) "
        "FROM pg_index WHERE indrelid = %s AND indisunique AND indisvalid AND indpred IS NULL AND indexprs IS NULL",
        (oid,),
    ).fetchall()
    primary = next((tuple(each[2]) for each in indexes if each[0]), ())
    chosen = next((tuple(each[2]) for each in indexes if each[1]), ())
    names = tuple(each[0] for each in columns)
    named = {"d": primary, "i": chosen, "f": names}.get(_text(identity), ())
    return PgTable(
        schema,
        name,
        _text(kind),
        _columns(columns, types),
        [tuple(each[2]) for each in indexes],
        primary,
        named,
    )


def _columns(rows: list[Any], types: dict[int, TypeRow]) -> dict[str, PgColumn]:
    return {
        name: PgColumn(name, oid, declared, not_null, has_default, type_of(oid, modifier, dimensions, types))
        for name, oid, declared, not_null, has_default, modifier, dimensions in rows
    }


def _types(connection: psycopg.Connection[Any], oids: list[int]) -> dict[int, TypeRow]:
    """What is known of some types, and of those that they are made of: a domain's base, an array's element."""
    found = connection.execute(
        "WITH RECURSIVE needed(oid) AS (SELECT unnest(%s::oid[]) UNION SELECT made.oid FROM pg_type t "
        "JOIN needed USING (oid), LATERAL (VALUES (t.typbasetype), (t.typelem)) made(oid) WHERE made.oid <> 0) "
        "SELECT oid, typname, typtype, typbasetype, typtypmod, typndims, typelem, typcategory "
        "FROM pg_type JOIN needed USING (oid)",
        (oids,),
    ).fetchall()
    return {
        oid: TypeRow(oid, name, _text(kind), base, modifier, dimensions, element, _text(category))
        for oid, name, kind, base, modifier, dimensions, element, category in found
    }


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def check_name(option: str, name: object, parts_max: int = 2) -> str:
    """Read the name of a table, also with its schema."""
    parts = name.split(".") if isinstance(name, str) else [""]
    if len(parts) > parts_max or any(
        not part or len(part.encode()) > IDENTIFIER_MAX or "\0" in part or '"' in part for part in parts
    ):
        raise InvalidOption(option=option, given=name, allowed="'table' or 'schema.table', each of 1 to 63 bytes")
    return str(name)


def quoted(table: str) -> str:
    """The name as it stands in a statement."""
    return ".".join(f'"{part}"' for part in table.split("."))


def schema_of(place: Place, wanted: tuple[str, ...] | None) -> tuple[PgTable, Schema]:
    """Look a table up that is to be read, with the schema of its columns."""
    with place.opened() as connection:
        found = find_table(connection, place.table)
    if found is None:
        raise place.source_error(
            f"there is no table '{place.table}'", "Check its name, and its schema ('schema.table')."
        )
    return found, Schema(found.fields(place, wanted))
