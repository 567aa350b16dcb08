"""Which epoch of which job is in a table of a database: rows and ledger are written in one transaction.

SQLite and PostgreSQL share it. Any database with a DB-API driver, transactions and ``ON CONFLICT`` can.

======================================  ==============================================================================
what is found                           effect
======================================  ==============================================================================
the epoch is not in the ledger          its rows and the epoch are written in one transaction
the epoch is in the ledger              nothing: it was committed before a crash
another process commits the same epoch  it waits for the ledger's row, then finds the epoch there
another job, also of the same name      has an identity, hence a row, of its own
the checkpoint is older than the table  refused at start: its epochs would be taken for those that are there
the table is gone                       refused at start: the checkpoint goes on from it
======================================  ==============================================================================
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from penstock.connectors.background import BackgroundWriter, Epochs
from penstock.connectors.base import RESUME_ONCE, WriterContext
from penstock.errors import SinkFailed
from penstock.types import Record, Schema

LEDGER = "penstock_commits"
DDL = (
    f"CREATE TABLE IF NOT EXISTS {LEDGER} "
    "(job_id TEXT, job TEXT, table_name TEXT, sink TEXT, instance INTEGER, epoch BIGINT, "
    "PRIMARY KEY (job_id, table_name, sink, instance))"
)
Execute = Callable[[str, Sequence[Any]], Any]
"""Runs a statement with its values, and returns a cursor."""
Refuse = Callable[[str, str], SinkFailed]
"""Makes the error from a cause and a hint."""


def newest_epoch(execute: Execute, mark: str, job_id: str, table: str, operation: str) -> int:
    """Newest epoch of a job that is in a table; 0 where there is none."""
    newest = f"SELECT max(epoch) FROM {LEDGER} WHERE job_id = {mark} AND table_name = {mark} AND sink = {mark}"
    return int(execute(newest, (job_id, table, operation)).fetchone()[0] or 0)


def check_resumed(table: str, epoch: int, done: int | None, refuse: Refuse) -> None:
    """Refuse to go on from a checkpoint that ends with ``epoch`` where the table has another past.

    Parameters
    ----------
    done : int or None
        Newest epoch of the job that is in the table; None where there is no table.
    """
    if done is None:
        raise refuse(
            f"table '{table}' is not there any more, and the checkpoint goes on from it",
            "Put the database back, or begin anew with another checkpoint directory.",
        )
    if done > epoch:
        raise refuse(
            f"table '{table}' has epoch {done} of this job, and the checkpoint ends with epoch {epoch}",
            "Restore the newest checkpoint, or the database as it was, or begin anew in another table.",
        )


def check_moved(before: str, now: str, refuse: Refuse) -> None:
    """Refuse to go on into another table than that of the run before."""
    if before != now:
        raise refuse(f"the last run wrote into {before}, now it is {now}", RESUME_ONCE)


class LedgerWriter(BackgroundWriter):
    """Writes the rows of an epoch when it is committed, once, and beside the records."""

    mark: str
    """Stands for a value in the driver's statements."""
    locking = ""
    """What a SELECT ends with that keeps others from the row, where a transaction alone does not."""

    def __init__(self, schema: Schema, table: str, context: WriterContext) -> None:
        super().__init__(schema, context.operation)
        self._job = context.job
        self._owner = (context.job_id, table, context.operation, context.instance)
        mine = " AND ".join(f"{each} = {self.mark}" for each in ("job_id", "table_name", "sink", "instance"))
        marks = ", ".join([self.mark] * 5)
        self._begin = (
            f"INSERT INTO {LEDGER} (job_id, table_name, sink, instance, job, epoch) VALUES ({marks}, 0) "
            "ON CONFLICT (job_id, table_name, sink, instance) DO NOTHING"
        )
        self._find = f"SELECT epoch FROM {LEDGER} WHERE {mine}{self.locking}"
        self._note = f"UPDATE {LEDGER} SET epoch = {self.mark} WHERE {mine}"

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Execute]:
        """Begin a transaction; it is committed where the block ends, and undone where it raises."""

    @abstractmethod
    def put(self, rows: list[Record]) -> None:
        """Write rows, within the transaction."""

    def publish(self, ready: Epochs) -> None:
        # In one transaction; an epoch without rows does not come here, and need not be remembered.
        with self.transaction() as execute:
            # There must be a row to wait for: two processes that found none would both write.
            execute(self._begin, (*self._owner, self._job))
            done = int(execute(self._find, self._owner).fetchone()[0])
            for prepared, rows in ready:
                if prepared > done:
                    self.put(rows)
            execute(self._note, (max(done, ready[-1][0]), *self._owner))
