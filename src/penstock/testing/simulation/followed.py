"""A memory sink that the driver follows: whatever comes after the word that an epoch is complete is a violation."""

from __future__ import annotations

from penstock.connectors.base import SinkWriter, WriterContext
from penstock.connectors.buffered import DeliveringWriter
from penstock.connectors.memory import Memory
from penstock.types import Schema

_ROWS_MAX = 10_000_000


class FollowedMemory(Memory):
    """A memory sink whose instances say how far they have come; `Deliveries` refuses rows that come after that."""

    def __init__(self, limit: int = _ROWS_MAX) -> None:
        super().__init__(limit)
        self.reached_epochs: list[int] = []

    def writer(self, schema: Schema, context: WriterContext) -> SinkWriter:
        del context
        return _FollowedWriter(schema)

    def reached(self, epoch: int, schema: Schema) -> None:
        del schema
        self.reached_epochs.append(epoch)


class _FollowedWriter(DeliveringWriter):
    is_followed = True
