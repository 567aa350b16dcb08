"""``ps.spark_sink``: every committed epoch as a DataFrame with its number, in the driver's process.

An epoch is handed to the user's function when it is committed and all of its rows are in the driver. The next epoch is
computed meanwhile, but recorded only when the function has returned. So after a crash of the driver the last recorded
epoch, whose rows are in the snapshots of the sink's instances, is all that may have to be handed over again:

==========================================  ===========================================================================
a crash                                     what the next run does
==========================================  ===========================================================================
before epoch n is recorded                  its records are read and computed again, as another epoch n
after that, before the function is called   the instances deliver n again; the function is called with n
while the function runs, or right after     likewise: the function is called with n again, with the same rows
when n + 1 is recorded                      the record says that n is done; n + 1 is handed over
==========================================  ===========================================================================

A crash of a worker repeats deliveries to a driver that recognises them; the function is called once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import pyarrow as pa

from penstock.connectors.base import Sink, SinkWriter, WriterContext
from penstock.connectors.buffered import DeliveringWriter
from penstock.errors import InvalidOption, OperationFailed, PenstockError
from penstock.operators.errors import describe_error, user_traceback
from penstock.spark.sessions import any_session
from penstock.types import Record, Schema

EPOCH_ROWS_MAX = 500_000
"""Rows of one instance in one epoch; beyond that its input waits for the next one."""

Function = Callable[[Any, int], object]


class SparkSink(Sink):
    """A sink that calls a function with DataFrames; build it with :func:`spark_sink`."""

    def __init__(self, function: Function | None) -> None:
        self._function = function
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Condition()
        self._rows: dict[int, list[Record]] = {}
        """By epoch, what is not complete or not handed over."""
        self._todo: SimpleQueue[tuple[int, list[Record], Schema] | None] = SimpleQueue()
        self._waiting: set[int] = set()
        """Epochs that are complete, and that the function has not returned from."""
        self._reached = 0
        self._error: PenstockError | None = None
        self._thread: threading.Thread | None = None
        self._is_released = False
        self._session: Any = None
        self._done = 0

    def __getstate__(self) -> dict[str, object]:
        return {}  # the function, and what it refers to, stays with the driver

    def __setstate__(self, state: dict[str, object]) -> None:
        del state
        self.__init__(None)  # type: ignore[misc]

    @property
    def kind(self) -> str:
        return "spark_sink"

    def check(self, schema: Schema) -> None:
        del schema
        self._begin()

    def resume(self, state: dict[str, object]) -> None:
        self._begin()
        self._done = int(str(state.get("done", 0)))

    def writer(self, schema: Schema, context: WriterContext) -> SinkWriter:
        del context
        return _SparkWriter(schema)

    # --- in the driver's loop -----------------------------------------------------------------------------------------

    def deliver_epoch(self, epoch: int, rows: list[Record], schema: Schema) -> None:
        del schema
        if epoch > self._done:
            self._rows.setdefault(epoch, []).extend(rows)

    def reached(self, epoch: int, schema: Schema) -> None:
        with self._lock:
            for each in sorted(number for number in self._rows if number <= epoch):
                self._waiting.add(each)
                self._todo.put((each, self._rows.pop(each), schema))
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="penstock-spark-sink", daemon=True)
                    self._thread.start()
            self._reached = epoch
            self._lock.notify_all()

    # --- beside it ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (given := self._todo.get()) is not None and self._error is None:
            epoch, rows, schema = given
            try:
                self._call(epoch, rows, schema)
            except PenstockError as error:
                self._error = error
            with self._lock:
                self._waiting.discard(epoch)
                self._lock.notify_all()

    def _call(self, epoch: int, rows: list[Record], schema: Schema) -> None:
        assert self._function is not None
        try:
            self._session = self._session or any_session()
            table = pa.Table.from_batches([schema.to_batch(rows)], schema.arrow)
            self._function(self._session.createDataFrame(table), epoch)
        except PenstockError:
            raise
        except Exception as error:
            raise OperationFailed(
                operation=None,
                cause=describe_error(error),
                record=f"{len(rows)} of epoch {epoch}",
                user_traceback=user_traceback(error),
            ) from error

    def settle(self, epoch: int) -> dict[str, object]:
        with self._lock:
            self._lock.wait_for(
                lambda: (
                    self._error is not None
                    or self._is_released
                    or (self._reached >= epoch and not any(each <= epoch for each in self._waiting))
                )
            )
        if self._error is not None:
            raise self._error
        return {"done": epoch}

    def finish(self) -> None:
        with self._lock:
            self._lock.wait_for(lambda: self._error is not None or not self._waiting)
        if self._error is not None:
            raise self._error

    def release(self) -> None:
        with self._lock:
            self._is_released = True
            self._lock.notify_all()
        self._todo.put(None)


class _SparkWriter(DeliveringWriter):
    is_followed = True

    @property
    def is_full(self) -> bool:
        return len(self._open) > EPOCH_ROWS_MAX


def spark_sink(function: Function) -> SparkSink:
    """Call a function with every committed epoch as a DataFrame, in order; what ``foreachBatch`` is in PySpark.

    The function runs in the driver's process, in a thread beside the job. An epoch that brought no rows is left out.
    After a crash the last epoch may come again, under the same number and with the same rows, so a function that
    remembers the last number with what it writes writes every epoch once.

    Parameters
    ----------
    function : callable
        Takes a DataFrame and the epoch's number, which grows with every epoch, over runs that resume too. What it
        returns is ignored. If it raises, the job fails with its traceback. While it runs, the job goes on for one
        epoch; then sources wait.

    Examples
    --------
    >>> def write(df, epoch):
    ...     df.withColumn("epoch", F.lit(epoch)).write.mode("append").saveAsTable("counts")
    >>> counts.to(ps.spark_sink(write))                        # doctest: +SKIP
    """
    if not callable(function):
        raise InvalidOption(option="function", given=function, allowed="a function of a DataFrame and a number")
    return SparkSink(function)
