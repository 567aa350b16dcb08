"""Penstock: a Python stream processor on Apache Spark. ``import penstock as ps``."""

from penstock.connectors import (
    console,
    fields,
    files,
    foreach,
    generator,
    json_files,
    kafka,
    memory,
    rates,
    records,
    sqlite,
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
    "fields",
    "files",
    "foreach",
    "generator",
    "json_files",
    "kafka",
    "lit",
    "memory",
    "op",
    "rates",
    "records",
    "run",
    "session",
    "sqlite",
    "start",
    "stream",
    "table",
    "testing",
    "tumbling",
    "when",
]
