"""Tables that Spark loads, for lookups: a DataFrame, or files that Spark can read; `ps.table` makes tables of any kind.

The driver has Spark gather the rows (`runtime/tables.py`), and every process maps one file of them. A process that has
no such driver, as in tests, loads them itself.
"""

from __future__ import annotations

import glob
import os
import tempfile
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from penstock.checks import Flag, Whole
from penstock.connectors.mapped import shared_table, write_table
from penstock.connectors.parquet_files import parquet_files
from penstock.connectors.store import is_url, shown
from penstock.durations import format_us, parse_us
from penstock.errors import InvalidOption, LimitExceeded, PenstockError, SourceFailed, SourceMissing, TypeMismatch
from penstock.operators import Finder, Lookup, LookupTable, Operation, Transform, check_keys
from penstock.operators import table as plain_table
from penstock.operators.stateless.lookup import TablePlace
from penstock.spark import sources
from penstock.spark.sessions import any_session
from penstock.spark.types import ours
from penstock.types import Schema

LIMIT_BYTES = 1 << 30
LIMIT_BYTES_MAX = 2 << 30
"""Above that a column of texts does not fit into one Arrow array."""
_LOOK_S_MAX = 1.0
"""At least so often a process looks for newer rows."""


class SparkTable(LookupTable):
    """Rows that Spark loads; ``ps.table(df, key=…)`` makes it. The DataFrame itself stays with the driver.

    Attributes
    ----------
    identity : str
        Tells it from every other table.
    limit_bytes : int
        How large it may be, as Arrow columns.
    refresh_us : int or None
        How often it is loaded again.
    """

    def __init__(
        self, given: Any, schema: Schema, key: str, refresh_us: int | None, limit_bytes: int, mapped: bool = True
    ) -> None:
        self.schema = schema
        (self.key,) = check_keys(schema, (key,))
        self.identity = uuid4().hex
        self.refresh_us = refresh_us
        self.limit_bytes = limit_bytes
        self._mapped = mapped
        self._given = given
        self._shown = f"'{shown(given)}'" if isinstance(given, str) else "a DataFrame"

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_given": None}

    def describe(self) -> str:
        again = "" if self.refresh_us is None else f", loaded again every {format_us(self.refresh_us)}"
        return f"{self._shown}{again}"

    def session(self, running: Any) -> Any:
        """The session to load it in: that of the DataFrame, or else the one that is ``running``."""
        return getattr(self._given, "sparkSession", None) or running

    def frame(self, session: Any) -> Any:
        """The rows as a DataFrame; files are looked for anew each time."""
        try:
            return sources.given("table", self.schema, self._given, session)
        except PenstockError as error:
            error.operation = None
            raise
        except Exception as error:
            raise self.failed(error) from None

    def failed(self, error: object) -> SourceFailed:
        """The error that says that the rows cannot be loaded."""
        return SourceFailed(source=f"table of {self._shown}", cause=str(error).strip().partition("\n")[0].rstrip("."))

    def too_large(self, size_bytes: int) -> LimitExceeded:
        """The error that says what to write instead."""
        return LimitExceeded(
            what=f"bytes of the table of {self._shown}",
            limit=self.limit_bytes,
            got=size_bytes,
            hint="Give limit_bytes= more, or fewer columns; or have Spark join it: mapped=False.",
        )

    def joined(self, lookup: Lookup, schema: Schema) -> Operation | None:
        if self._mapped:
            return None
        output = lookup.bind(schema)
        added = [name for name in output.names if name not in schema]

        def join(df: Any) -> Any:
            from pyspark.sql.functions import col

            def named(name: str, alias: str) -> Any:
                return col(f"`{name.replace('`', '``')}`").alias(alias)

            columns = [named(self.key, lookup.on), *(named(name, name) for name in added)]
            rows = self.frame(self.session(df.sparkSession)).select(*columns)
            return df.join(rows, lookup.on, lookup.how.value).select(*(named(name, name) for name in output.names))

        return JoinedLookup(join, output, f"{lookup.how.value} on {lookup.on}, {self._shown}")

    def finder(self) -> Finder:
        look_s = None if self.refresh_us is None else min(self.refresh_us / 4e6, _LOOK_S_MAX)
        return shared_table(self.identity, self._load_here, self.schema, self.key, look_s).finder()

    def _load_here(self) -> str:
        if self._given is None:
            raise PenstockError("this process does not know where the tables are.")
        directory = Path(tempfile.mkdtemp(prefix="penstock-table-"))
        weakref.finalize(self, _remove, directory)
        rows = self.frame(self.session(None) or any_session()).toArrow()
        if rows.nbytes > self.limit_bytes:
            raise self.too_large(rows.nbytes)
        path = directory / self.identity
        write_table(path, [ours(each, self.schema) for each in rows.to_batches()], self.schema, self.key)
        return str(path)


@dataclass(frozen=True)
class JoinedLookup(Transform):
    """A lookup in a table that is too large to be mapped: a join, as a Spark SQL job for each micro-batch."""

    told: str = ""
    kind = "lookup"

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "told": self.told}

    def describe(self) -> str:
        return f"{self.told}, joined by {super().describe()}"


def _remove(directory: Path) -> None:
    import shutil

    shutil.rmtree(directory, ignore_errors=True)


def _is_dataframe(given: object) -> bool:
    return hasattr(given, "mapInArrow") and hasattr(given, "sparkSession")


def _schema_of(given: Any, schema: str | Schema | None) -> Schema:
    if _is_dataframe(given):
        if given.isStreaming:
            raise TypeMismatch(what="a streaming DataFrame is no table.", hint="Give spark.read…, or join two streams.")
        if schema is not None:
            raise InvalidOption(option="schema", given=schema, allowed="none: a DataFrame knows its columns")
        return Schema.parse(given.schema)
    if schema is not None:
        return Schema.parse(schema)
    form = sources.format_of(given)
    if form == "parquet" and not is_url(given):
        try:
            return parquet_files(given).schema
        except SourceMissing:
            pass  # directories of partitions, which Spark can read
    allowed = "the columns, such as 'id bigint, name string': only Parquet files of this machine tell theirs"
    raise InvalidOption(option="schema", given=None, allowed=allowed)


def table(
    rows: Any,
    *,
    key: str,
    schema: str | Schema | None = None,
    refresh: str | float | None = None,
    limit_bytes: int = LIMIT_BYTES,
    mapped: bool = True,
) -> LookupTable:
    """Make a table for :meth:`Stream.lookup`.

    Parameters
    ----------
    rows : iterable of dict or tuple, DataFrame, path, or a place
        The table's rows; a DataFrame of Spark, or the path of Parquet, ORC, CSV or JSON files that Spark reads; or a
        place, such as ``ps.postgres(dsn, "ads")``.
    schema : str
        Columns in Spark's DDL. DataFrames, Parquet files of this machine and places know theirs.
    key : str
        The column that is looked up; its values are unique.
    refresh : str or number
        How often the rows of a DataFrame, path or place are read again, while records go on; once, at the start,
        where it is not given.
    limit_bytes : int
        How large what Spark loads may be, as Arrow columns; one GB if it is not given.
    mapped : bool
        False for a DataFrame or path of any size: nobody loads it, Spark joins each micro-batch with it. Such a lookup
        has a batch form only, which takes some tenths of a second; see :meth:`Stream.transform`.

    Notes
    -----
    What Spark loads is written to one Arrow file on each machine, which all processes map: there is one copy, and newer
    rows take over between two blocks of records. A DataFrame over files keeps the list of files that it was made with:
    give the path where files come and go.

    Examples
    --------
    >>> ps.table([("ad-1", "shoes")], schema="ad string, campaign string", key="ad")      # doctest: +SKIP
    >>> ps.table("ads.parquet", key="ad", refresh="5m")                                   # doctest: +SKIP
    >>> ps.table(spark.table("ads").where("live"), key="ad")                              # doctest: +SKIP
    >>> ps.table(ps.postgres(dsn, "ads"), key="ad", refresh="5m")                         # doctest: +SKIP
    >>> ps.table("users/*.parquet", key="user", mapped=False)                             # doctest: +SKIP
    """
    is_path = isinstance(rows, str | os.PathLike)
    if not is_path and not _is_dataframe(rows):
        if limit_bytes != LIMIT_BYTES:
            raise InvalidOption(option="limit_bytes", given=limit_bytes, allowed="for a DataFrame or a path only")
        if not Flag().read("mapped", mapped):
            raise InvalidOption(option="mapped", given=mapped, allowed="for a DataFrame or a path only")
        if not isinstance(rows, TablePlace | Iterable):
            hint = "Give rows, a DataFrame, a path, or a place such as ps.postgres(…)."
            raise TypeMismatch(what=f"{type(rows).__name__} is no table.", hint=hint)
        return plain_table(rows, key=key, schema=schema, refresh=refresh)
    given = rows
    if is_path:
        given = os.fspath(rows)
        if not is_url(given):
            given = os.path.abspath(given.removeprefix("file://"))  # noqa: PTH100 (a pattern, perhaps)
            if not glob.glob(given):  # noqa: PTH207
                raise SourceMissing(path=given, read="by Spark")
    refresh_us = None if refresh is None else parse_us(refresh, option="refresh")
    limit = Whole(1, LIMIT_BYTES_MAX).read("limit_bytes", limit_bytes)
    if not Flag().read("mapped", mapped) and refresh_us is not None:
        allowed = "for tables that are mapped: a join finds newer rows by itself, within 30 s"
        raise InvalidOption(option="refresh", given=refresh, allowed=allowed)
    return SparkTable(given, _schema_of(given, schema), key, refresh_us, limit, mapped)
