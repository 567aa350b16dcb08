"""Committed output of a job as a source of Spark's: ``spark.read.format("penstock")`` and ``readStream``.

A batch is what is committed when it is planned. In a stream the offset is the number of the last complete epoch's parts
(`connectors/marks.py`), so Spark's own checkpoints make it exactly once.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from penstock.connectors.marks import parts, read_mark
from penstock.connectors.texts import plain_decoder, plain_reader
from penstock.errors import InvalidOption, SourceFailed
from penstock.spark.types import spark_schema
from penstock.types import DataType, Schema, TypeKind

BATCH_RECORDS = 10_000
PARTITIONS_MAX = 32
_OFFSET = "epoch"


class PenstockSource(DataSource):  # type: ignore[misc]
    """The data source; `ps.register` makes it known to a session."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def _directory(self) -> Path:
        if not self.options.get("path"):
            raise InvalidOption(option="path", given=None, allowed="the directory of a files sink: .load(path)")
        return Path(self.options["path"].removeprefix("file://"))

    def schema(self) -> Any:
        return spark_schema(Schema.parse(read_mark(self._directory()).schema))

    def reader(self, schema: Any) -> DataSourceReader:
        return _Reader(self._directory(), Schema.parse(schema))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return _StreamReader(self._directory(), Schema.parse(schema))


class _Reader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, directory: Path, schema: Schema) -> None:
        self._directory, self._schema = directory, schema

    def partitions(self) -> Sequence[InputPartition]:
        return _dealt(parts(self._directory, -1, read_mark(self._directory).part))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_parts(partition.value, self._schema)


class _StreamReader(DataSourceStreamReader):  # type: ignore[misc]
    def __init__(self, directory: Path, schema: Schema) -> None:
        self._directory, self._schema = directory, schema

    def initialOffset(self) -> dict[str, int]:
        return {_OFFSET: -1}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        del limit
        latest = read_mark(self._directory).part
        begun = start[_OFFSET] if start else -1
        if latest < begun:
            raise SourceFailed(
                source=f"'{self._directory}'",
                cause=f"the query has read up to epoch {begun}, and the output ends with {latest}",
                hint="It is other output than before: give the query a checkpoint of its own.",
            )
        return {_OFFSET: latest}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return _dealt(parts(self._directory, start[_OFFSET], end[_OFFSET]))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_parts(partition.value, self._schema)


def _dealt(files: list[Path]) -> list[InputPartition]:
    """Parts dealt out to tasks; those of consecutive epochs stay together."""
    size = max(1, -(-len(files) // PARTITIONS_MAX))
    return [InputPartition([str(each) for each in files[at : at + size]]) for at in range(0, len(files), size)]


def read_parts(paths: Sequence[str], schema: Schema) -> Iterator[pa.RecordBatch]:
    """The rows of parts, as columns of ``schema``; a column that a part does not have is null."""
    for path in paths:
        yield from (_parquet if path.endswith(".parquet") else _lines)(path, schema)


def _parquet(path: str, schema: Schema) -> Iterator[pa.RecordBatch]:
    arrow = schema.arrow
    for batch in pq.ParquetFile(path).iter_batches(BATCH_RECORDS):
        there = set(batch.schema.names)
        columns = [
            batch.column(field.name).cast(field.type) if field.name in there else pa.nulls(batch.num_rows, field.type)
            for field in arrow
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=arrow)


def _value_reader(data_type: DataType) -> Callable[[Any], Any]:
    """What reads a value as the files sink has written it: binary as base64."""
    if data_type.kind is TypeKind.BINARY:
        return b64decode
    return plain_reader(data_type)


def _lines(path: str, schema: Schema) -> Iterator[pa.RecordBatch]:
    decode = plain_decoder(field.type for field in schema.fields)
    readers = [(field.name, _value_reader(field.type)) for field in schema.fields]
    make, rows = schema.record_type, []
    with Path(path).open("rb") as file:
        for line in file:
            values = decode(line)
            rows.append(make(*(None if (value := values.get(name)) is None else read(value) for name, read in readers)))
            if len(rows) >= BATCH_RECORDS:
                yield schema.to_batch(rows)
                rows = []
    if rows:
        yield schema.to_batch(rows)
