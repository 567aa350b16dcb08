"""The sink that takes the place of every sink of a pipeline under test."""

from __future__ import annotations

from penstock.connectors.base import Sink, SinkWriter, WriterContext
from penstock.connectors.buffered import BufferedWriter
from penstock.types import Record, Schema


class Collected(Sink):
    """Holds what was committed, by instance and epoch: whatever a crash or a restart repeats is there once."""

    kind = "test"

    def __init__(self) -> None:
        self.schema: Schema | None = None
        """Of what it takes, once the pipeline is laid out."""
        self._parts: dict[tuple[int, int], list[Record]] = {}

    @property
    def rows(self) -> list[Record]:
        """The records of committed epochs."""
        return [row for rows in self._parts.values() for row in rows]

    def check(self, schema: Schema) -> None:
        self.schema = schema

    def writer(self, schema: Schema, context: WriterContext) -> SinkWriter:
        return _Writer(schema, self._parts, context.instance)


class _Writer(BufferedWriter):
    def __init__(self, schema: Schema, parts: dict[tuple[int, int], list[Record]], instance: int) -> None:
        super().__init__(schema)
        self._parts = parts
        self._instance = instance

    def commit(self, epoch: int) -> list[Record] | None:
        for prepared, rows in self._take(epoch):
            if rows:
                self._parts.setdefault((self._instance, prepared), rows)
        return None
