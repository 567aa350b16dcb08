"""A table of PostgreSQL to look things up in: all of its rows on every worker, read again from time to time."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from penstock.connectors.postgres.link import Place, quoted, schema_of
from penstock.connectors.refreshed import Refreshed
from penstock.errors import BadRecord, InvalidOption
from penstock.operators import Finder, LookupTable, check_keys
from penstock.operators.stateless.lookup import TABLE_ROWS_MAX
from penstock.types import Record

_FETCH_ROWS = 10_000
_open: weakref.WeakValueDictionary[tuple[object, ...], Refreshed] = weakref.WeakValueDictionary()
"""The tables of this process: operations that are built twice share their rows."""


class PostgresTable(LookupTable):
    """A table or view; ``ps.table(ps.postgres(…), key=…)`` makes it."""

    def __init__(
        self, place: Place, columns: tuple[str, ...] | None, key: str, refresh_us: int | None, retry_s: float
    ) -> None:
        self._place = place
        self._refresh_us = refresh_us
        self._retry_s = retry_s
        self._table, self.schema = schema_of(place, columns)
        (self.key,) = check_keys(self.schema, (key,), decimals=False)
        if (key,) not in self._table.keys:
            with place.opened() as connection:
                target = quoted(place.table)
                twice = connection.execute(
                    f'SELECT "{key}"::text FROM {target} WHERE "{key}" IS NOT NULL GROUP BY "{key}" '
                    "HAVING count(*) > 1 LIMIT 1"
                ).fetchone()
            if twice is not None:
                what = f"a column without duplicates ({twice[0]!r} is there twice)"
                raise InvalidOption(option="key", given=key, allowed=what)

    def describe(self) -> str:
        return self._place.shown

    def finder(self) -> Finder:
        name = (self._place.dsn, self._place.table, self.schema.ddl, self.key, self._refresh_us)
        found = _open.get(name)
        if found is None:
            refresh_s = None if self._refresh_us is None else self._refresh_us / 1e6
            patience = iter((self._retry_s,))  # later on the rows that are here serve
            found = _open[name] = Refreshed(
                self._place.table, lambda: self._load(next(patience, 0.0)), self.schema, self.key, refresh_s
            )
        return found.finder()

    def _load(self, retry_s: float) -> list[Record]:
        names = ", ".join(f'"{name}"' for name in self.schema.names)
        columns = [(name, self._table.columns[name].made_of.reader()) for name in self.schema.names]
        make, rows = self.schema.record_type, list[Record]()
        with self._place.opened(retry_s=retry_s) as connection, connection.transaction():
            connection.execute(f"DECLARE penstock_table CURSOR FOR SELECT {names} FROM {quoted(self._place.table)}")
            cursor = connection.cursor(binary=True)
            while True:
                # Values as they come: the driver would make dates and times of them, which are numbers here.
                result = cursor.execute(f"FETCH {_FETCH_ROWS} FROM penstock_table").pgresult
                assert result is not None
                for row in range(result.ntuples):
                    rows.append(make(*[self._read(each, result.get_value(row, at)) for at, each in enumerate(columns)]))
                if len(rows) > TABLE_ROWS_MAX:
                    raise self._place.source_error(f"it has more than {TABLE_ROWS_MAX} rows", "Look up in Redis.")
                if result.ntuples < _FETCH_ROWS:
                    return rows

    def _read(self, column: tuple[str, Callable[[bytes], Any]], data: bytes | None) -> Any:
        name, decode = column
        try:
            return None if data is None else decode(data)
        except BadRecord as error:
            raise self._place.source_error(f"column '{name}': {error.what.rstrip('.')}") from None
