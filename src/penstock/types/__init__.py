"""Columns, schemas and records; the vocabulary that every other package shares."""

from penstock.types.datatypes import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TINYINT,
    DataType,
    TypeKind,
    array_of,
    parse_type,
)
from penstock.types.schema import Field, Record, Schema, python_type, record_dict

__all__ = [
    "BIGINT",
    "BINARY",
    "BOOLEAN",
    "DATE",
    "DOUBLE",
    "INT",
    "SMALLINT",
    "STRING",
    "TIMESTAMP",
    "TINYINT",
    "DataType",
    "Field",
    "Record",
    "Schema",
    "TypeKind",
    "array_of",
    "parse_type",
    "python_type",
    "record_dict",
]
