"""Change capture: the changes of a PostgreSQL table as a stream, read from a replication slot."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from penstock.connectors.base import Position, Source
from penstock.connectors.postgres.changes_reader import ChangesReader, lsn_in
from penstock.connectors.postgres.link import Place, schema_of
from penstock.errors import PenstockError, SchemaError
from penstock.types import BIGINT, STRING, TIMESTAMP, Field, Schema

EXTRA = (Field("_op", STRING, False), Field("_lsn", BIGINT, False), Field("_at", TIMESTAMP, False))
"""What every change has beside the table's columns."""
VERSION_MIN = 140_000


class Changes(Source):
    """The changes of a table; ``ps.postgres(…)`` is this at the beginning of a pipeline."""

    def __init__(
        self, place: Place, columns: tuple[str, ...] | None, slot: str | None, snapshot: bool, retry_s: float
    ) -> None:
        self._place = place
        self._slot = slot or slot_name(place.table)
        self._snapshot = snapshot
        self._retry_us = round(retry_s * 1e6)
        self._run = uuid4().hex[:12]
        """Tells the processes of this run from those of others."""
        self._table, schema = schema_of(place, columns)
        clash = [each.name for each in EXTRA if each.name in schema]
        if clash:
            raise SchemaError(ddl=schema.ddl, problem=f"the table has a column '{clash[0]}' of its own")
        self._columns = schema
        # A delete has the key only, and a truncation nothing.
        self._schema = Schema((*(Field(each.name, each.type, True) for each in schema.fields), *EXTRA))

    @property
    def schema(self) -> Schema:
        return self._schema

    @property
    def kind(self) -> str:
        return "postgres"

    def check(self) -> None:
        table = self._table
        if table.kind not in ("r", "p"):
            raise self._refuse(f"'{self._place.table}' is no table: it has no changes", "Read a table.")
        if not table.identity:
            raise self._refuse(
                f"table '{self._place.table}' has no primary key: its updates and deletes would not say of which row",
                "Add a primary key, or ALTER TABLE … REPLICA IDENTITY FULL.",
            )
        left_out = [name for name in table.identity if name not in self._columns]
        if left_out and set(table.identity) == set(table.primary):
            raise self._refuse(f"columns= leaves out '{left_out[0]}', which names the rows", "Add it.")
        if self._snapshot and not table.primary:
            raise self._refuse("without a primary key there is no snapshot to begin with", "Give snapshot=False.")
        with self._place.opened() as connection:
            if connection.info.server_version < VERSION_MIN:
                raise self._refuse("the server is older than PostgreSQL 14", "Use a newer one.")
            level, may, slots = connection.execute(
                "SELECT current_setting('wal_level'), "
                "(SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user), "
                "(SELECT count(*) FROM pg_replication_slots) < current_setting('max_replication_slots')::int"
            ).fetchone() or ("", False, False)
            if level != "logical":
                raise self._refuse(f"wal_level is '{level}'", "Set wal_level = logical on the server, and restart it.")
            if not may:
                raise self._refuse("the user may not replicate", "ALTER ROLE … REPLICATION.")
            found = connection.execute(
                "SELECT plugin, database = current_database() FROM pg_replication_slots WHERE slot_name = %s",
                (self._slot,),
            ).fetchone()
            if found is None and not slots:
                raise self._refuse("the server has no replication slot left", "Raise max_replication_slots.")
            if found is not None and found != ("pgoutput", True):
                raise self._refuse(f"slot '{self._slot}' is of another plugin or database", "Give slot= another name.")

    def _refuse(self, cause: str, hint: str) -> PenstockError:
        return self._place.source_error(cause, hint)

    def resumed(self, positions: Mapping[int, Position]) -> Changes:
        for position in positions.values():
            if lsn := lsn_in(position):  # 0: nothing was begun
                with self._place.opened() as connection:
                    check_slot(connection, self._place, self._slot, lsn)
        return self

    def partitions(self, parallelism: int) -> int:
        del parallelism
        return 1  # a log has one order

    def reader(self, partition: int, partitions: int, start_us: int) -> ChangesReader:
        del partition, partitions, start_us
        names = tuple(each.name for each in self._columns.fields)
        return ChangesReader(
            self._place, self._table, names, self._schema, self._slot, self._run, self._snapshot, self._retry_us
        )


def slot_name(table: str) -> str:
    """The slot of a table where none is named."""
    return "penstock_" + re.sub(r"[^a-z0-9_]", "_", table.lower())[:50]


def check_slot(connection: Any, place: Place, slot: str, lsn: int) -> None:
    """Refuse a position that the slot has gone past, or that no slot has."""
    found = connection.execute(
        "SELECT (confirmed_flush_lsn - '0/0'::pg_lsn)::bigint FROM pg_replication_slots WHERE slot_name = %s", (slot,)
    ).fetchone()
    anew = "Begin anew with another checkpoint directory; snapshot=True reads the whole table then."
    if found is None:
        raise place.source_error(f"slot '{slot}' is gone, and with it the changes since the last commit", anew)
    if found[0] > lsn:
        raise place.source_error(f"slot '{slot}' has gone past the checkpoint: an older one was restored", anew)
