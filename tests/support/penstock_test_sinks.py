"""Sinks for tests, which worker processes import too."""

from __future__ import annotations

import time

from penstock.connectors import Sink, SinkWriter, WriterContext
from penstock.types import Record, Schema


class SlowToRestore(Sink):
    """Takes long to go on from a snapshot, as a large state does."""

    kind = "slow"

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def writer(self, schema: Schema, context: WriterContext) -> SinkWriter:
        return _Slow(self._seconds)


class _Slow(SinkWriter):
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def write(self, rows: list[Record]) -> None:
        pass

    def restore(self, epoch: int, snapshot: bytes | None) -> None:
        time.sleep(self._seconds)
