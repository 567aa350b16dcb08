"""Penstock: a Python stream processor on Apache Spark. ``import penstock as ps``."""

from penstock.connectors import (
    console,
    csv_files,
    fields,
    files,
    foreach,
    from_iterator,
    generator,
    http,
    json_files,
    kafka,
    memory,
    parquet_files,
    postgres,
    rates,
    records,
    redis,
    redis_table,
    sqlite,
    tcp_lines,
    udp_lines,
    webhook,
)
from penstock.errors import PenstockError
from penstock.expr import coalesce, col, lit, when
from penstock.operators import op, session, table, tumbling
from penstock.operators.keyed import aggregates as agg
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.streams.stream import Stream, stream
from penstock.runtime.job import Job, run, start
from penstock.spark.backfill import backfill

from penstock import testing  # isort: skip (after the names that it uses)

__version__ = "0.1.0"

__all__ = [
    "Job",
    "PenstockError",
    "Pipeline",
    "Stream",
    "agg",
    "backfill",
    "coalesce",
    "col",
    "console",
    "csv_files",
    "fields",
    "files",
    "foreach",
    "from_iterator",
    "generator",
    "http",
    "json_files",
    "kafka",
    "lit",
    "memory",
    "op",
    "parquet_files",
    "postgres",
    "rates",
    "records",
    "redis",
    "redis_table",
    "run",
    "session",
    "sqlite",
    "start",
    "stream",
    "table",
    "tcp_lines",
    "testing",
    "tumbling",
    "udp_lines",
    "webhook",
    "when",
]
