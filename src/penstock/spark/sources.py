"""Where a backfill's records come from: what the user gives for a source, or what the source itself has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.connectors.base import Source
from penstock.connectors.json_files import lines_frame as lines
from penstock.connectors.lines_reader import SCHEMA as LINES
from penstock.connectors.store import shown
from penstock.errors import InvalidGraph, SourceMissing, TypeMismatch
from penstock.spark.frames import DataFrame
from penstock.spark.types import spark_schema, spark_type
from penstock.types import Schema

BATCH_RECORDS = 10_000
_FAR_FUTURE_US = 1 << 60
_FORMATS = {"parquet": "parquet", "orc": "orc", "jsonl": "json", "ndjson": "json", "json": "json", "csv": "csv"}

Input = Any
"""A pyspark DataFrame, or the path of files."""


def given(name: str, schema: Schema, source: Input, session: Any) -> DataFrame:
    """What the user gives for a source or an operation, checked against its schema."""
    if isinstance(source, str | os.PathLike):
        df = _files(name, schema, os.fspath(source), session)
    elif hasattr(source, "mapInArrow") and hasattr(source, "schema"):
        if source.isStreaming:
            raise TypeMismatch(what="a streaming DataFrame has no end.", operation=name, hint="Give spark.read…")
        df = source
    else:
        raise TypeMismatch(
            what=f"{type(source).__name__} is no input.",
            operation=name,
            hint="Give a DataFrame, or the path of Parquet, ORC, JSON or CSV files.",
        )
    return checked(name, schema, df)


def checked(name: str, schema: Schema, df: DataFrame) -> DataFrame:
    """Check that a DataFrame has the columns of a schema, and take these; others it may have beside them."""
    found = {field.name: field.dataType for field in df.schema.fields}
    problems = []
    for field in schema.fields:
        wanted = spark_type(field.type)
        if field.name not in found:
            problems.append(f"it has no column '{field.name}'")
        elif found[field.name] != wanted:
            actual = found[field.name].simpleString()
            problems.append(f"column '{field.name}' is {actual}, not {wanted.simpleString()}")
    if problems:
        raise TypeMismatch(
            what=f"the input does not fit ({schema.ddl}): {'; '.join(problems)}.",
            operation=name,
            hint="Select and cast its columns before.",
        )
    return df.select(*schema.names)


def format_of(path: str) -> str:
    """What Spark calls the format of files, by their names."""
    return _FORMATS.get(Path(path).name.removesuffix(".gz").rpartition(".")[2].rstrip("*/"), "parquet")


def _files(name: str, schema: Schema, path: str, session: Any) -> DataFrame:
    form = format_of(path)
    if form == "json" and schema == LINES:
        return lines([path], session)
    # Text files say nothing about types; what is not of the declared one is an error, as it is in a stream.
    reader = session.read.format(form)
    if form in ("json", "csv"):
        reader = reader.option("mode", "FAILFAST").option("header", "true").option("timeZone", "UTC")
    try:
        if form == "csv":
            reader = reader.schema(_by_header(schema, reader.load(path).columns))
        elif form == "json":
            reader = reader.schema(spark_schema(schema))
        return reader.load(path)
    except Exception as error:
        if "PATH_NOT_FOUND" in str(error):
            raise SourceMissing(path=shown(path), operation=name, read="by Spark") from None
        raise


def _by_header(schema: Schema, header: list[str]) -> Any:
    """The columns in the order of a header, as `ps.csv_files` takes them; Spark itself would go by their places."""
    from pyspark.sql.types import StringType, StructField, StructType

    types = {field.name: spark_type(field.type) for field in schema.fields}
    return StructType([StructField(name, types.get(name, StringType())) for name in header])


def own(name: str, source: Source, session: Any, start_us: int) -> DataFrame:
    """What a source with data of its own has."""
    if not source.is_bounded:
        raise InvalidGraph(
            f"the source ({source.kind}) goes on for ever, or does not say that it ends.",
            operation=name,
            hint=f"Give its history: {{{name!r}: a DataFrame or a path}}.",
        )
    source.check()
    if (frame := source.dataframe(session)) is not None:
        return checked(name, source.schema, frame)
    partitions = source.partitions(session.sparkContext.defaultParallelism)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for partition in batch.column(0).to_pylist():
                yield from _read(source, partition, partitions, start_us)

    numbers = session.range(0, partitions, 1, partitions)
    return numbers.mapInArrow(read, spark_schema(source.schema))


def _read(source: Source, partition: int, partitions: int, start_us: int) -> Iterator[pa.RecordBatch]:
    reader = source.reader(partition, partitions, start_us)
    try:
        while reader.wake_us(_FAR_FUTURE_US) is not None:
            batch = reader.poll(_FAR_FUTURE_US, BATCH_RECORDS)
            if batch is not None:
                yield source.schema.to_batch(batch.rows)
    finally:
        reader.close()
