"""Sources, sinks and tables: their constructors, which :mod:`penstock` exports too, and what new ones implement."""

from typing import TYPE_CHECKING

from penstock.lazy import lazily

if TYPE_CHECKING:
    from penstock.checks import INTERFACE
    from penstock.connectors import fields, rates
    from penstock.connectors.base import (
        End,
        OnceReader,
        Position,
        Run,
        Sink,
        SinkWriter,
        Source,
        SourceBatch,
        SourceColumns,
        SourceReader,
        Spot,
        WriterContext,
    )
    from penstock.connectors.buffered import BufferedWriter
    from penstock.connectors.console import console
    from penstock.connectors.csv_files import csv_files
    from penstock.connectors.delta import delta
    from penstock.connectors.files import files
    from penstock.connectors.following import FollowingSink
    from penstock.connectors.foreach import foreach
    from penstock.connectors.formats.avro import avro
    from penstock.connectors.formats.json_schema import json
    from penstock.connectors.formats.protobuf import protobuf
    from penstock.connectors.generator import generator
    from penstock.connectors.http import http
    from penstock.connectors.iterator import from_iterator
    from penstock.connectors.json_files import json_files
    from penstock.connectors.kafka import kafka
    from penstock.connectors.memory import At, memory, records
    from penstock.connectors.parquet_files import parquet_files
    from penstock.connectors.parquet_sink import parquet
    from penstock.connectors.postgres import postgres
    from penstock.connectors.redis import redis, redis_table
    from penstock.connectors.secrets import redacted
    from penstock.connectors.sockets import tcp_lines, udp_lines
    from penstock.connectors.sqlite import sqlite
    from penstock.connectors.sse import sse
    from penstock.connectors.texts import json_writer
    from penstock.connectors.webhook import webhook
    from penstock.operators import Finder, LookupTable, TablePlace
    from penstock.types import Record, Schema

__all__ = [
    "INTERFACE",
    "At",
    "BufferedWriter",
    "End",
    "Finder",
    "FollowingSink",
    "LookupTable",
    "OnceReader",
    "Position",
    "Record",
    "Run",
    "Schema",
    "Sink",
    "SinkWriter",
    "Source",
    "SourceBatch",
    "SourceColumns",
    "SourceReader",
    "Spot",
    "TablePlace",
    "WriterContext",
    "avro",
    "console",
    "csv_files",
    "delta",
    "fields",
    "files",
    "foreach",
    "from_iterator",
    "generator",
    "http",
    "json",
    "json_files",
    "json_writer",
    "kafka",
    "memory",
    "parquet",
    "parquet_files",
    "postgres",
    "protobuf",
    "rates",
    "records",
    "redacted",
    "redis",
    "redis_table",
    "sqlite",
    "sse",
    "tcp_lines",
    "udp_lines",
    "webhook",
]

if not TYPE_CHECKING:
    __getattr__ = lazily(
        __name__,
        {
            "penstock.checks": "INTERFACE",
            "penstock.connectors.base": """
                End OnceReader Position Run Sink SinkWriter Source SourceBatch SourceColumns SourceReader Spot
                WriterContext
            """,
            "penstock.connectors.buffered": "BufferedWriter",
            "penstock.connectors.console": "console",
            "penstock.connectors.csv_files": "csv_files",
            "penstock.connectors.delta": "delta",
            "penstock.connectors.files": "files",
            "penstock.connectors.following": "FollowingSink",
            "penstock.connectors.foreach": "foreach",
            "penstock.connectors.formats.avro": "avro",
            "penstock.connectors.formats.json_schema": "json",
            "penstock.connectors.formats.protobuf": "protobuf",
            "penstock.connectors.generator": "generator",
            "penstock.connectors.http": "http",
            "penstock.connectors.iterator": "from_iterator",
            "penstock.connectors.json_files": "json_files",
            "penstock.connectors.kafka": "kafka",
            "penstock.connectors.memory": "At memory records",
            "penstock.connectors.parquet_files": "parquet_files",
            "penstock.connectors.parquet_sink": "parquet",
            "penstock.connectors.postgres": "postgres",
            "penstock.connectors.redis": "redis redis_table",
            "penstock.connectors.secrets": "redacted",
            "penstock.connectors.sockets": "tcp_lines udp_lines",
            "penstock.connectors.sqlite": "sqlite",
            "penstock.connectors.sse": "sse",
            "penstock.connectors.texts": "json_writer",
            "penstock.connectors.webhook": "webhook",
            "penstock.operators": "Finder LookupTable TablePlace",
            "penstock.types": "Record Schema",
        },
        {"fields": "penstock.connectors.fields", "rates": "penstock.connectors.rates"},
    )
