"""Sources and sinks; :mod:`penstock` exports these constructors."""

from penstock.connectors import fields, rates
from penstock.connectors.base import Sink, SinkWriter, Source, SourceBatch, SourceReader, WriterContext
from penstock.connectors.console import console
from penstock.connectors.files import files
from penstock.connectors.foreach import foreach
from penstock.connectors.generator import generator
from penstock.connectors.json_files import json_files
from penstock.connectors.kafka import kafka
from penstock.connectors.memory import At, memory, records
from penstock.connectors.sqlite import sqlite

__all__ = [
    "At",
    "Sink",
    "SinkWriter",
    "Source",
    "SourceBatch",
    "SourceReader",
    "WriterContext",
    "console",
    "fields",
    "files",
    "foreach",
    "generator",
    "json_files",
    "kafka",
    "memory",
    "rates",
    "records",
    "sqlite",
]
