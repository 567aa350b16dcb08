"""Penstock: a Python stream processor on Apache Spark. ``import penstock as ps``."""

from typing import TYPE_CHECKING

from penstock.compiled import choose
from penstock.lazy import lazily

choose()

if TYPE_CHECKING:
    from penstock import functions, testing
    from penstock.connectors import (
        avro,
        console,
        csv_files,
        delta,
        fields,
        files,
        foreach,
        from_iterator,
        generator,
        http,
        json,
        json_files,
        kafka,
        memory,
        parquet,
        parquet_files,
        postgres,
        protobuf,
        rates,
        records,
        redis,
        redis_table,
        sqlite,
        sse,
        tcp_lines,
        udp_lines,
        webhook,
    )
    from penstock.errors import PenstockError
    from penstock.expr import coalesce, col, lit, when
    from penstock.expr.makers import interval
    from penstock.expr.text import expr
    from penstock.operators import Process, count_window, global_window, op, retry, session, tumbling
    from penstock.operators.keyed import aggregates as agg
    from penstock.operators.keyed.process import state
    from penstock.pipeline.pipeline import Pipeline
    from penstock.pipeline.streams.stream import Stream, stream
    from penstock.runtime.bootstrap import bootstrap
    from penstock.runtime.job import Job, run, start
    from penstock.runtime.reading import read_state
    from penstock.spark.backfill import backfill
    from penstock.spark.registration import register
    from penstock.spark.sinks import spark_sink
    from penstock.spark.streaming import spark_source
    from penstock.spark.tables import table
    from penstock.sql import sql
    from penstock.types.sampling import infer

__version__ = "0.1.0"

__all__ = [
    "Job",
    "PenstockError",
    "Pipeline",
    "Process",
    "Stream",
    "agg",
    "avro",
    "backfill",
    "bootstrap",
    "coalesce",
    "col",
    "console",
    "count_window",
    "csv_files",
    "delta",
    "expr",
    "fields",
    "files",
    "foreach",
    "from_iterator",
    "functions",
    "generator",
    "global_window",
    "http",
    "infer",
    "interval",
    "json",
    "json_files",
    "kafka",
    "lit",
    "memory",
    "op",
    "parquet",
    "parquet_files",
    "postgres",
    "protobuf",
    "rates",
    "read_state",
    "records",
    "redis",
    "redis_table",
    "register",
    "retry",
    "run",
    "session",
    "spark_sink",
    "spark_source",
    "sql",
    "sqlite",
    "sse",
    "start",
    "state",
    "stream",
    "table",
    "tcp_lines",
    "testing",
    "tumbling",
    "udp_lines",
    "webhook",
    "when",
]


def _missing(name: str) -> AttributeError:
    from penstock import functions
    from penstock.pipeline.streams.hints import missing_name

    return missing_name(name, __all__, dir(functions))


if not TYPE_CHECKING:
    __getattr__ = lazily(
        __name__,
        {
            "penstock.connectors": """
                avro console csv_files delta files foreach from_iterator generator http json json_files kafka memory
                parquet parquet_files postgres protobuf records redis redis_table sqlite sse tcp_lines udp_lines webhook
            """,
            "penstock.errors": "PenstockError",
            "penstock.expr": "coalesce col lit when",
            "penstock.expr.makers": "interval",
            "penstock.expr.text": "expr",
            "penstock.operators": "Process count_window global_window op retry session tumbling",
            "penstock.pipeline.pipeline": "Pipeline",
            "penstock.pipeline.streams.stream": "Stream stream",
            "penstock.runtime.bootstrap": "bootstrap",
            "penstock.runtime.job": "Job run start",
            "penstock.runtime.reading": "read_state",
            "penstock.spark.backfill": "backfill",
            "penstock.spark.registration": "register",
            "penstock.spark.sinks": "spark_sink",
            "penstock.spark.streaming": "spark_source",
            "penstock.spark.tables": "table",
            "penstock.sql": "sql",
            "penstock.types.sampling": "infer",
        },
        {
            "agg": "penstock.operators.keyed.aggregates",
            "connectors": "penstock.connectors",
            "errors": "penstock.errors",
            "fields": "penstock.connectors.fields",
            "functions": "penstock.functions",
            "rates": "penstock.connectors.rates",
            "state": "penstock.operators.keyed.process.state",
            "testing": "penstock.testing",
        },
        _missing,
    )


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
