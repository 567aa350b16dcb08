"""Sources, sinks and tables: their constructors, which :mod:`penstock` exports too, and what new ones implement."""

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
    "json_files",
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
