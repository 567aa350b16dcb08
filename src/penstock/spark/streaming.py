"""``ps.spark_source``: a streaming DataFrame as a source. Spark writes its batches into a spool, workers read that.

Spark calls a function of the driver's for every batch, with a number, and again with the same number after a crash, if
it has not recorded that the batch is done. The rows may come in another order then. So a batch counts from one moment
on:

====  ======================================================  ========================================================
step  what                                                    after a crash behind it
====  ======================================================  ========================================================
1     Spark writes the batch to ``.batch-n``, one file        the batch comes again, and is written anew
2     ``.last`` says n, replaced at once                      the batch comes again, is not written, and 3 is done
3     the file is renamed to ``batch-n.parquet``              the batch comes again, and nothing is done
4     Spark records in ``.query`` that the batch is done      —
5     workers read it; at the commit of its last rows it is   the position, in the job's own checkpoint, is behind it
      removed
====  ======================================================  ========================================================

The rest is the source of Parquet files. Every file has the number of its batch in a column, so no two are alike.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from penstock.checks import Flag, Whole
from penstock.connectors.base import Position
from penstock.connectors.parquet_files import ParquetFiles, ParquetReader, decode_position
from penstock.connectors.secrets import one_line
from penstock.connectors.tracking import Entry
from penstock.errors import InvalidOption, SourceFailed, TypeMismatch
from penstock.spark.failures import failures
from penstock.types import Schema

SPOOL_BYTES = 256 << 20
_BATCH = "__batch"
_WAIT_S = 0.05
_WATCH_S = 0.5
FAILURES_MAX = 4
"""Lost tasks of a query that end it, as they do in Spark unless it is told otherwise."""


class SparkSource(ParquetFiles):
    """A source of a streaming DataFrame's rows; build it with :func:`spark_source`."""

    def __init__(self, df: Any, spool: Path, *, follow: bool, spool_bytes: int) -> None:
        spool.mkdir(parents=True, exist_ok=True)
        super().__init__(str(spool), Schema.parse(df.schema), None, follow=True)
        self._df = df
        self._spool = Spool(spool, spool_bytes)
        self._ends = not follow
        self._query: Any = None
        self._lock: IO[str] | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_df": None, "_query": None, "_lock": None, "_spool": None}

    @property
    def kind(self) -> str:
        return "spark_source"

    def partitions(self, parallelism: int) -> int:
        return parallelism

    def reserve(self, *, is_local: bool) -> None:
        del is_local
        if self._lock is not None:
            return
        self._lock = (self._spool.path / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            self._lock = None
            hint = "Give each job a spool of its own."
            raise SourceFailed(source=self._shown, cause="another running job uses it", hint=hint) from None

    def claim(self) -> None:
        self.reserve(is_local=True)
        spool = self._spool
        spool.begin()
        writer = self._df.writeStream.foreachBatch(spool.take).option("checkpointLocation", str(spool.path / ".query"))
        try:
            self._query = (writer.trigger(availableNow=True) if self._ends else writer).start()
        except Exception as error:
            self.release()
            raise SourceFailed(source=self._shown, cause=one_line(error)) from error
        threading.Thread(
            target=spool.watch, args=(self._df.sparkSession, self._query), name="penstock-spark-source", daemon=True
        ).start()

    @property
    def _shown(self) -> str:
        return f"spark_source(spool='{self._path}')"

    def release(self) -> None:
        if self._query is not None:
            self._spool.stop()
            self._query.stop()
            self._query = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _reader(self, look: Callable[[], list[Entry]], owned: Callable[[int], bool]) -> ParquetReader:
        return _SpoolReader(Path(self._path), look, owned, self._schema)


class Spool:
    """The driver's end: steps 1 to 4 of the table of this module."""

    def __init__(self, path: Path, bytes_max: int) -> None:
        self.path = path
        self._bytes_max = bytes_max
        self._stopped = threading.Event()

    def begin(self) -> None:
        """Do what a crash has left to do."""
        self._stopped.clear()
        for name in (".failed", ".ended"):
            (self.path / name).unlink(missing_ok=True)
        self._show(self._last())

    def _last(self) -> int:
        try:
            return int((self.path / ".last").read_text())
        except FileNotFoundError:
            return -1

    def take(self, df: Any, batch: int) -> None:
        """Take a batch; Spark calls this, in a thread of its own."""
        from pyspark.sql import functions as F

        if batch <= self._last():
            self._show(batch)
            return
        while self._held_bytes() > self._bytes_max and not self._stopped.wait(_WAIT_S):
            pass
        if self._stopped.is_set():
            raise InterruptedError("the job has ended")
        named = df.withColumn(_BATCH, F.lit(batch).cast("long"))
        named.coalesce(1).write.mode("overwrite").parquet(str(self._written(batch)))
        unfinished = self.path / ".last-unfinished"
        unfinished.write_text(str(batch))
        unfinished.replace(self.path / ".last")
        self._show(batch)

    def _written(self, batch: int) -> Path:
        return self.path / f".batch-{batch}"

    def _show(self, batch: int) -> None:
        """Step 3."""
        written = self._written(batch)
        for file in written.glob("*.parquet"):
            file.replace(self.path / f"batch-{batch:010d}.parquet")
        shutil.rmtree(written, ignore_errors=True)

    def _held_bytes(self) -> int:
        return sum(each.stat().st_size for each in self.path.glob("batch-*.parquet") if each.exists())

    def watch(self, session: Any, query: Any) -> None:
        """Wait for the end of the query, and tell the readers; Spark itself would try tasks that fail for ever."""
        try:
            while not query.awaitTermination(_WATCH_S):
                count, error = failures(session, str(query.runId))
                if count >= FAILURES_MAX and not self._stopped.is_set():
                    self._fail(error)
                    query.stop()
                    return
        except Exception as raised:
            self._fail(raised)
        else:
            if not self._stopped.is_set():
                (self.path / ".ended").touch()

    def _fail(self, error: object) -> None:
        if not self._stopped.is_set():
            (self.path / ".failed-unfinished").write_text(one_line(_reason(str(error).strip())))
            (self.path / ".failed-unfinished").replace(self.path / ".failed")

    def stop(self) -> None:
        """Take no more."""
        self._stopped.set()


def _reason(error: str) -> str:
    """The line of an error of Spark's that says why: that of the task that has failed, if there is one."""
    first, *rest = error.splitlines() or [""]
    _, found, behind = "\n".join(rest).partition("a task has failed:\n")
    return behind.partition("\n")[0] if found else first


class _SpoolReader(ParquetReader):
    def __init__(
        self, spool: Path, look: Callable[[], list[Entry]], owned: Callable[[int], bool], schema: Schema
    ) -> None:
        super().__init__(look, owned, schema, follow=True)
        self._spool = spool

    def _look_around(self, now_us: int) -> None:
        if self._next_look_us is None or now_us < self._next_look_us:
            return
        failed, ended = self._spool / ".failed", (self._spool / ".ended").exists()
        if failed.exists():
            raise SourceFailed(source=f"spark_source(spool='{self._spool}')", cause=failed.read_text().rstrip("."))
        super()._look_around(now_us)
        if ended and not self._left():
            self._next_look_us = None

    def committed(self, position: Position) -> None:
        for file in decode_position(position).files:
            if file.read >= file.rows:
                Path(file.path).unlink(missing_ok=True)


def spark_source(
    df: Any, *, spool: str | os.PathLike[str], follow: bool = True, spool_bytes: int = SPOOL_BYTES
) -> SparkSource:
    """Read any streaming DataFrame of Spark's, each row exactly once, through restarts too.

    Spark runs the query in the driver's session and writes its batches into ``spool``, from where workers read them.
    The query keeps its own checkpoint there. So the latency is that of Spark's batches.

    Parameters
    ----------
    df : DataFrame
        A streaming one: ``spark.readStream…``, with whatever operations Spark can append the results of.
    spool : str or path
        A directory of this source's own, which workers reach under the same path. A run that resumes, or another one,
        goes on with what is there.
    follow : bool
        Whether to go on for ever; if not, read what is there now (Spark's ``availableNow``), and end.
    spool_bytes : int
        So much may wait in the spool; beyond that the query waits.

    Examples
    --------
    >>> rates = spark.readStream.format("rate").load()                                    # doctest: +SKIP
    >>> ps.stream("rates", ps.spark_source(rates, spool="/var/spool/rates"))              # doctest: +SKIP
    """
    if not getattr(df, "isStreaming", False):
        hint = "Give spark.readStream…; ps.parquet_files and ps.backfill read what has an end."
        raise TypeMismatch(what=f"{type(df).__name__} is no streaming DataFrame.", hint=hint)
    given = os.fspath(spool)
    if "://" in given:
        raise InvalidOption(option="spool", given=given, allowed="a directory")
    path = Path(given).absolute()
    if path.exists() and not path.is_dir():
        raise InvalidOption(option="spool", given=given, allowed="a directory, or a new path for one")
    size = Whole(1 << 20).read("spool_bytes", spool_bytes)
    return SparkSource(df, path, follow=Flag().read("follow", follow), spool_bytes=size)
