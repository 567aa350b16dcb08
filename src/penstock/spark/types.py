"""Schemas and batches on both sides: ours to Spark's, and what Spark hands to a Python function to ours."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.types import DataType, Schema


def spark_type(data_type: DataType) -> Any:
    """Spark's type of a column; by way of Arrow, which both speak."""
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(data_type.arrow)


def spark_schema(schema: Schema) -> Any:
    """The schema as Spark's; every column may be null, as in what Spark reads from files."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(field.name, spark_type(field.type)) for field in schema.fields])


def ours(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """A batch that Spark hands over, with exactly the types of ``schema``: Spark writes times in the session's zone."""
    arrow = schema.arrow
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, arrow, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=arrow)
