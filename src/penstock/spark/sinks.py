"""``ps.spark_sink``: every committed epoch as a DataFrame with its number, in the driver's process.

When an epoch comes, and when it comes again, is in the table of `connectors/following.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from penstock.connectors.base import SinkWriter, WriterContext
from penstock.connectors.buffered import DeliveringWriter
from penstock.connectors.following import FollowingSink
from penstock.errors import InvalidOption, OperationFailed, PenstockError
from penstock.operators.errors import describe_error, user_traceback
from penstock.spark.sessions import any_session
from penstock.types import Record, Schema

EPOCH_ROWS_MAX = 500_000
"""Rows of one instance in one epoch; beyond that its input waits for the next one."""

Function = Callable[[Any, int], object]


class SparkSink(FollowingSink):
    """A sink that calls a function with DataFrames; build it with :func:`spark_sink`."""

    def __init__(self, function: Function | None) -> None:
        super().__init__()
        self._function = function
        self._session: Any = None

    def __getstate__(self) -> dict[str, object]:
        # The function, and what it refers to, stays with the driver.
        return {**super().__getstate__(), "_function": None, "_session": None}

    @property
    def kind(self) -> str:
        return "spark_sink"

    def check(self, schema: Schema) -> None:
        del schema
        self._begin()

    def resume(self, state: dict[str, object]) -> None:
        self._begin(int(str(state.get("done", 0))))

    def writer(self, schema: Schema, context: WriterContext) -> SinkWriter:
        del context
        return _SparkWriter(schema)

    def hand_over(self, epoch: int, rows: list[Record], schema: Schema) -> None:
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
