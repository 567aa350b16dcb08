"""What the sinks that write files share: JSON lines and Parquet, and what becomes of earlier output."""

from __future__ import annotations

from enum import Enum
from typing import IO, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.base import Stager
from penstock.connectors.plain import json_encoder, plain_dicts
from penstock.types import Record, Schema

_ROW_GROUP_RECORDS = 16 * 1024


class FileFormat(Enum):
    """How rows are stored; the value is the files' suffix."""

    JSONL = "jsonl"
    PARQUET = "parquet"


class Existing(Enum):
    """What to do about the output of an earlier run."""

    FAIL = "fail"
    APPEND = "append"
    REPLACE = "replace"


class FormattedFile(Protocol):
    """Rows on their way into an open file, which belongs to the caller."""

    def write(self, rows: list[Record]) -> None: ...

    def write_batch(self, batch: pa.RecordBatch) -> None: ...

    def adopt(self, staged: bytes) -> None:
        """Take rows that a slot has made ready."""

    def finish(self) -> None:
        """Write what is left."""

    def abandon(self) -> None:
        """Write nothing more: nobody will read the file."""


class _JsonLinesFile:
    def __init__(self, file: IO[bytes], schema: Schema) -> None:
        self._schema = schema
        self._dicts = plain_dicts(schema)
        self._encoder = json_encoder()
        self._file = file

    def write(self, rows: list[Record]) -> None:
        self._file.write(self._encoder.encode_lines(self._dicts(rows)))

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self.write(self._schema.to_rows(batch))

    def adopt(self, staged: bytes) -> None:
        self._file.write(staged)

    def finish(self) -> None:
        pass

    def abandon(self) -> None:
        pass


class _ParquetFile:
    def __init__(self, file: IO[bytes], schema: Schema) -> None:
        self._schema = schema
        self._rows: list[Record] = []
        self._writer = pq.ParquetWriter(file, schema.arrow)

    def write(self, rows: list[Record]) -> None:
        self._rows += rows
        if len(self._rows) >= _ROW_GROUP_RECORDS:
            self._flush_rows()

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self._flush_rows()
        self._writer.write_batch(batch)

    def adopt(self, staged: bytes) -> None:
        self.write_batch(pa.ipc.read_record_batch(pa.py_buffer(staged), self._schema.arrow))

    def finish(self) -> None:
        self._flush_rows()
        self._writer.close()

    def abandon(self) -> None:
        # Else it would want to write its footer whenever it is collected, into a file that is closed.
        self._writer.close()

    def _flush_rows(self) -> None:
        if self._rows:
            self._writer.write_batch(self._schema.to_batch(self._rows))
            self._rows = []


def formatted(form: FileFormat, file: IO[bytes], schema: Schema) -> FormattedFile:
    """Begin a file of that format."""
    return (_JsonLinesFile if form is FileFormat.JSONL else _ParquetFile)(file, schema)


def json_lines_stager(schema: Schema) -> Stager:
    """Encodes batches as JSON lines, in any process."""
    dicts, encoder = plain_dicts(schema), json_encoder()
    return lambda batch: encoder.encode_lines(dicts(schema.to_rows(batch)))
