"""A source's own records up to a cut: what is before it is read by Spark, what is behind it by the live job.

The cut is found once, by reading each partition as the live job would: which runs of records there are, and the
position behind them. After that the runs are read as often as it takes, by any task, and always give the same records.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from penstock.connectors.base import Position, Run, Source, SourceReader
from penstock.errors import InvalidGraph, InvalidOption, PenstockError
from penstock.spark.frames import DataFrame
from penstock.spark.types import spark_schema

BATCH_RECORDS = 10_000
_FAR_FUTURE_US = 1 << 60
_PAUSE_S = 0.02

_encode = msgspec.msgpack.Encoder().encode


class Part(msgspec.Struct, array_like=True):
    """One partition of a source up to its cut."""

    partition: int
    runs: list[Run]
    position: Position

    def packed(self) -> bytes:
        """What travels to the driver."""
        return _encode(self)

    @property
    def records(self) -> int:
        """How many records it has."""
        return sum(run.count for run in self.runs)


_decode = msgspec.msgpack.Decoder(Part).decode


@dataclass(frozen=True)
class Cut:
    """A source up to a cut."""

    source: Source
    partitions: int
    start_us: int
    parts: tuple[Part, ...]

    def df(self, session: Any, only: int | None = None) -> DataFrame:
        """Its records, or those of one partition."""
        runs = [(part.partition, run) for part in self.parts for run in part.runs if only in (None, part.partition)]
        source, partitions, start_us = self.source, self.partitions, self.start_us

        def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            readers: dict[int, SourceReader] = {}
            try:
                for number in (number for batch in batches for number in batch.column(0).to_pylist()):
                    partition, run = runs[number]
                    if partition not in readers:
                        readers[partition] = source.reader(partition, partitions, start_us)
                    rows = readers[partition].rows(run)
                    if len(rows) != run.count:
                        raise RuntimeError(f"partition {partition}: {len(rows)} records where {run.count} were")
                    yield source.schema.to_batch(rows)
            finally:
                for reader in readers.values():
                    reader.close()

        slices = max(1, min(len(runs), session.sparkContext.defaultParallelism))
        return session.range(0, len(runs), 1, slices).mapInArrow(read, spark_schema(source.schema))


def find_cut(name: str, source: Source, where: object, partitions: int, start_us: int, session: Any) -> Cut:
    """Find out where the records of a source end: now, or at ``where``."""
    limits: Mapping[int, int] = {}
    try:
        bounded = source.up_to(where)
    except PenstockError as error:
        raise error.at(name) from None
    if bounded is None and isinstance(where, Mapping):
        limits, bounded = _limits(name, where, partitions), source
    if bounded is None:
        if where is not None:
            allowed = f"{{partition: number of records}}, for the source '{name}' ({source.kind})"
            raise InvalidOption(option="until", given=where, allowed=allowed)
        raise InvalidGraph(
            f"its history ({source.kind}) cannot be read up to where it stands now.",
            operation=name,
            hint=f"Give its history: {{{name!r}: a DataFrame or a path}}; then the live job begins where the source "
            "itself says.",
        )
    read = bounded

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for partition in (number for batch in batches for number in batch.column(0).to_pylist()):
            part = _part(read, partition, partitions, start_us, limits.get(partition))
            yield pa.RecordBatch.from_pydict({"part": pa.array([part.packed()], pa.binary())})

    found = session.range(0, partitions, 1, partitions).mapInArrow(look, "part binary").collect()
    parts = sorted((_decode(bytes(row.part)) for row in found), key=lambda part: part.partition)
    return Cut(bounded, partitions, start_us, tuple(parts))


def _limits(name: str, where: Mapping[Any, Any], partitions: int) -> dict[int, int]:
    allowed = f"for '{name}': partitions 0 to {partitions - 1} and how many records of each"
    for partition, count in where.items():
        if not isinstance(partition, int) or not 0 <= partition < partitions or not isinstance(count, int) or count < 0:
            raise InvalidOption(option="until", given=dict(where), allowed=allowed)
    return {each: int(where.get(each, 0)) for each in range(partitions)}


def _part(source: Source, partition: int, partitions: int, start_us: int, limit: int | None) -> Part:
    reader = source.reader(partition, partitions, start_us)
    runs: list[Run] = []
    try:
        while True:
            left = BATCH_RECORDS if limit is None else min(BATCH_RECORDS, limit - reader.offset)
            if left <= 0:
                break
            now_us = time.time_ns() // 1000 if source.reads_ahead else _FAR_FUTURE_US
            batch = reader.poll(now_us, left)
            if batch is not None:
                runs.append(Run(batch.at, len(batch.rows)))
                continue
            wake_us = reader.wake_us(now_us)
            if wake_us is None or (wake_us > now_us and not source.reads_ahead):
                break
            if wake_us > now_us:
                time.sleep(_PAUSE_S)
        return Part(partition, runs, reader.position())
    finally:
        reader.close()
