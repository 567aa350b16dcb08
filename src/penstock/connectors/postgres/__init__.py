"""PostgreSQL at either end of a pipeline: changes of a table, rows into a table, a table to look things up in."""

from __future__ import annotations

import re
from collections.abc import Sequence

from penstock.checks import Flag, Text
from penstock.connectors.base import End
from penstock.connectors.patience import RETRY, retry_s
from penstock.connectors.postgres.changes import Changes
from penstock.connectors.postgres.link import Place, check_name
from penstock.connectors.postgres.sink import PostgresSink
from penstock.connectors.postgres.table import PostgresTable
from penstock.durations import parse_us
from penstock.errors import InvalidOption
from penstock.operators import TablePlace

__all__ = ["Postgres", "postgres"]

_SLOT = Text(re.compile(r"[a-z0-9_]{1,63}"), "lower-case letters, digits and '_', at most 63")


class Postgres(End, TablePlace):
    """A table of PostgreSQL; build it with :func:`postgres`."""

    def __init__(
        self,
        place: Place,
        *,
        key: tuple[str, ...],
        delete: str | None,
        columns: tuple[str, ...] | None,
        slot: str | None,
        snapshot: bool,
        retry_s: float,
    ) -> None:
        self._place = place
        self._key = key
        self._delete = delete
        self._columns = columns
        self._slot = slot
        self._snapshot = snapshot
        self._retry_s = retry_s

    def __repr__(self) -> str:
        return self._place.shown

    def source(self) -> Changes:
        return Changes(self._place, self._columns, self._slot, self._snapshot, self._retry_s)

    def sink(self) -> PostgresSink:
        return PostgresSink(self._place, self._key, self._delete, self._retry_s)

    def table(self, key: str, refresh: str | float | None) -> PostgresTable:
        refresh_us = None if refresh is None else parse_us(refresh, option="refresh")
        return PostgresTable(self._place, self._columns, key, refresh_us, self._retry_s)


def postgres(
    dsn: str,
    table: str,
    *,
    key: str | Sequence[str] = (),
    delete: str | None = None,
    columns: Sequence[str] | None = None,
    slot: str | None = None,
    snapshot: bool = True,
    retry: str | float = RETRY,
) -> Postgres:
    """A table of PostgreSQL: its changes are a stream, rows go into it, and it can be looked up in.

    * ``ps.stream("ads", ps.postgres(dsn, "ads"))`` reads its changes, each once and in the order of their commits: the
      table's columns, and ``_op`` (``snapshot``, ``insert``, ``update``, ``delete``, ``truncate``), ``_lsn`` (where in
      the server's log) and ``_at`` (when it was committed). A delete has the key, and null elsewhere; an update that
      changes the key is a delete and an insert.
    * ``.to(ps.postgres(dsn, "counts", key="ad"))`` writes into it, exactly once: with ``key`` the newest row of each
      key, else all rows. It is made if it is not there.
    * ``ps.table(ps.postgres(dsn, "ads"), key="ad", refresh="5m")`` is a table for :meth:`Stream.lookup`.

    Parameters
    ----------
    dsn : str
        ``"postgresql://user:password@host:5432/database"``, or ``"host=… dbname=…"``. Errors and pages never show it.
    table : str
        Its name, also ``"schema.table"``.
    key : str or sequence of str
        To write: the columns that name a row, with a primary key or unique index on them.
    delete : str
        To write: a boolean column; where it is true the row of that key is deleted. It is not stored itself.
    columns : sequence of str
        To read: these columns only.
    slot : str
        To read: the replication slot, and the publication, of the job; ``penstock_<table>`` where it is not named. They
        are made if they are not there. The server keeps its log until the job has committed it: remove the slot when
        the job will not run again.
    snapshot : bool
        To read: begin with the rows that are there, then the changes. Otherwise begin with what the slot has.
    retry : str or number
        How long a server that is away is asked again, with growing pauses, before the job fails. What is to be written
        waits meanwhile, within bounds: then the job waits too.

    Examples
    --------
    >>> dsn = "postgresql://shop:…@db/shop"                                                  # doctest: +SKIP
    >>> orders = ps.stream("orders", ps.postgres(dsn, "orders"))                             # doctest: +SKIP
    >>> orders.key_by("customer").count().to(ps.postgres(dsn, "per_customer", key="customer"))  # doctest: +SKIP
    """
    names = (key,) if isinstance(key, str) else tuple(key)
    if delete is not None and (not names or delete in names):
        raise InvalidOption(
            option="delete", given=delete, allowed="with key=, and another column than those of the key"
        )
    if isinstance(columns, str) or columns == ():
        raise InvalidOption(option="columns", given=columns, allowed="names of columns, such as ('id', 'name')")
    place = Place(dsn, check_name("table", table))
    place.info  # noqa: B018 -- an address that cannot be read is refused here
    return Postgres(
        place,
        key=names,
        delete=delete,
        columns=None if columns is None else tuple(columns),
        slot=None if slot is None else _SLOT.read("slot", slot),
        snapshot=Flag().read("snapshot", snapshot),
        retry_s=retry_s(retry),
    )
