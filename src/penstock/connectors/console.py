"""The console sink: prints committed records in the driver process."""

from __future__ import annotations

import sys
import threading

from penstock.checks import Whole
from penstock.connectors.base import Sink, SinkWriter, WriterContext
from penstock.connectors.buffered import DeliveringWriter
from penstock.connectors.plain import plain_dicts
from penstock.types import Record, Schema


class Console(Sink):
    """A sink that prints; build it with :func:`console`."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._printed = 0
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, object]:
        return {"_limit": self._limit}

    def __setstate__(self, state: dict[str, int | None]) -> None:
        self.__init__(state["_limit"])  # type: ignore[misc]

    @property
    def kind(self) -> str:
        return "console"

    def writer(self, schema: Schema, context: WriterContext) -> SinkWriter:
        del context
        return DeliveringWriter(schema)

    def deliver(self, rows: list[Record], schema: Schema) -> None:
        with self._lock:
            room = len(rows) if self._limit is None else max(self._limit - self._printed, 0)
            lines = [
                "  ".join(f"{name}={value}" for name, value in row.items()) for row in plain_dicts(schema)(rows[:room])
            ]
            if room and self._limit == self._printed + len(lines):
                lines.append(f"(no more rows are printed: limit={self._limit})")
            self._printed += min(len(rows), room)
            if lines:
                # One write per delivery, so that output of other threads does not fall between the rows.
                sys.stdout.write("\n".join(lines) + "\n")
                sys.stdout.flush()


def console(*, limit: int | None = None) -> Console:
    """Print the output as ``name=value`` columns as it is committed: each record exactly once.

    Parameters
    ----------
    limit : int, optional
        How many rows to print; those after them are dropped.
    """
    return Console(None if limit is None else Whole(1).read("limit", limit))
