"""Expressions mean what they mean to Spark: every function on the same records in both, values and types."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import drawing
import meaning
import penstock as ps
from penstock import functions as F
from penstock.errors import PenstockError
from penstock.expr import Column, infer, record_function
from penstock.expr.table import FUNCTIONS
from penstock.testing import collect
from penstock.types import DataType, Record, Schema, to_values

pytestmark = pytest.mark.spark
SCHEMA = meaning.SCHEMA
INTERNAL = {"getItem"}
UNTESTED = {"raise_error"}
"""Functions that have no value to compare."""
DEVIATIONS: dict[str, str] = {}
"""Expressions whose value is knowingly another one, and why; it should be empty."""


@pytest.fixture(scope="module")
def session(spark: None) -> SparkSession:
    """A session beside the one that the tests share; its rows are in the driver, where what raises does so at once."""
    context = SparkContext._active_spark_context
    assert context is not None
    session = SparkSession(context).newSession()
    for key, value in {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.codegen.wholeStage": "false",  # hundreds of expressions in one query are compiled in vain
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }.items():
        session.conf.set(key, value)
    rows = pa.Table.from_batches([SCHEMA.to_batch(meaning.records())])
    session.createDataFrame(rows).createOrReplaceTempView("records")
    return session


def shown(value: Any) -> Any:
    """A value that can be compared: doubles to 13 digits, because libraries of two languages compute them."""
    if isinstance(value, float):
        return "NaN" if value != value else float(f"{value:.12e}") + 0.0
    if isinstance(value, list):
        return [shown(each) for each in value]
    if isinstance(value, dict):
        return {key: shown(each) for key, each in value.items()}
    if hasattr(value, "__struct_fields__"):
        return tuple(shown(getattr(value, name)) for name in value.__struct_fields__)
    return value


def kind_of(data_type: DataType) -> str:
    """A type without what does not count: whether parts may be null."""
    return data_type.ddl.replace(" not null", "")


@pytest.mark.parametrize("group", meaning.GROUPS)
def test_values_and_types_are_those_of_spark(session: SparkSession, group: str) -> None:
    columns = [column for column in meaning.GROUPS[group]() if str(column) not in DEVIATIONS]
    compare(session, columns, SCHEMA, meaning.records(), "records")


@pytest.mark.parametrize("seed", [1, 5])
def test_drawn_expressions_have_the_values_and_types_of_spark(session: SparkSession, seed: int) -> None:
    """Whatever the table of functions allows, over records that are drawn too; what raises is compared elsewhere."""
    random = Random(seed)
    rows = drawing.rows(random, 8)
    session.createDataFrame(pa.Table.from_batches([drawing.SCHEMA.to_batch(rows)])).createOrReplaceTempView("drawn")
    columns = []
    for column in drawing.Drawer(random).draw(60):
        with suppress(PenstockError, ArithmeticError):
            function = record_function(column, drawing.SCHEMA)
            assert [function(row) for row in rows]
            columns.append(column)
    assert len(columns) > 30
    compare(session, columns, drawing.SCHEMA, rows, "drawn")


def compare(session: SparkSession, columns: list[Column], schema: Schema, rows: list[Record], view: str) -> None:
    selected = ", ".join(f"{column} AS c{i}" for i, column in enumerate(columns))
    frame = session.sql(f"SELECT {selected} FROM {view}")
    kinds = [kind_of(field.type) for field in meaning.Schema.parse(frame.schema)]
    table = frame.toArrow().combine_chunks()
    for i, column in enumerate(columns):
        ours = infer(column, schema)
        assert kind_of(ours.type) == kinds[i], column
        function = record_function(column, schema)
        values = [shown(function(record)) for record in rows]
        chunk = table.column(i).chunk(0)
        expected = to_values(chunk if ours.type.is_nested else chunk.cast(ours.type.arrow), ours.type)
        assert values == [shown(value) for value in expected], column
        if not ours.nullable:
            assert None not in values, column


@pytest.mark.parametrize("column", meaning.failures(), ids=str)
def test_what_raises_raises_in_both(session: SparkSession, column: Column) -> None:
    with pytest.raises(PySparkException):
        session.sql(f"SELECT {column} FROM records").toArrow()
    function = record_function(column, SCHEMA)
    with pytest.raises((PenstockError, ArithmeticError)):
        [function(record) for record in meaning.records()]


AGGREGATES = [
    F.count("*"), F.count("i"), F.sum("i"), F.sum("p"), F.sum("x"), F.avg("i"), F.avg("p"), F.min("d"), F.max("d"), F.max("s"),
    F.min("q"), F.max("day"), F.count_distinct("n"), F.count_distinct("f", "g"), F.approx_count_distinct("i"), F.stddev("i"),
    F.stddev_pop("i"), F.variance("e"), F.var_pop("h"), F.skewness("h"), F.kurtosis("h"), F.median("i"), F.percentile("p", 0.25),
    F.percentile_approx("i", 0.5), F.percentile_approx("day", 0.9), F.sort_array(F.collect_list("i")), F.sort_array(F.collect_set("j")),
    F.max_by("s", "i"), F.min_by("t", "b"), F.bool_and("g"), F.bool_or("g"), F.count_if(F.col("i") > 0), F.sum_distinct("j"),
    F.sum(F.col("i") * 2) / F.count("*"), F.first("i", True).isNull(), F.size(F.collect_list("st")), F.covar_pop("i", "e"),
    F.covar_samp("i", "h"), F.corr("i", "b"), F.bit_and("i"), F.bit_or("h"), F.bit_xor("n"), F.max_by("st", "i")["x"], F.min_by("p", "q"),
    F.percentile("i", [0.25, 0.5]), F.percentile_approx("i", [0.5, 1.0], 100), F.mode(F.lit(3)), F.mode(F.lit(None).cast("decimal(4,1)")),
]  # fmt: skip


@pytest.mark.parametrize("keys", [["f"], []], ids=str)
def test_aggregates_are_those_of_spark(session: SparkSession, keys: list[str]) -> None:
    named = [column.alias(f"c{i}") for i, column in enumerate(AGGREGATES)]
    stream = ps.stream("in", ps.records(meaning.ROWS, schema=SCHEMA))
    ours: dict[Any, dict[str, Any]] = {}
    made = stream.group_by(*keys).agg(*named)
    for row in collect(made):
        ours[row.get("f")] = row
    grouped = f" GROUP BY {', '.join(keys)}" if keys else ""
    frame = session.sql(f"SELECT {', '.join([*keys, *map(str, named)])} FROM records{grouped}")
    kinds = [kind_of(field.type) for field in meaning.Schema.parse(frame.schema)]
    assert [kind_of(field.type) for field in made.schema] == kinds
    table = frame.toArrow().combine_chunks()
    columns = [to_values(table.column(i).chunk(0), field.type) for i, field in enumerate(made.schema)]
    assert len(columns[0]) == len(ours)
    for values in zip(*columns, strict=True):
        row = dict(zip(made.schema.names, values, strict=True))
        for i, column in enumerate(AGGREGATES):
            assert shown(ours[row.get("f")][f"c{i}"]) == shown(row[f"c{i}"]), column


def test_every_function_is_compared() -> None:
    named: set[str] = set()

    def collect(column: Column) -> None:
        if column.op.name == "CALL":
            named.add(str(column.payload))
        for arg in column.args:
            collect(arg)

    for make in meaning.GROUPS.values():
        for column in make():
            collect(column)
    rows = {row.name for name, row in FUNCTIONS.items() if not name.startswith("_")}
    left = rows - named - UNTESTED - INTERNAL
    assert not left, f"no expression in meaning.py calls {sorted(left)}"
