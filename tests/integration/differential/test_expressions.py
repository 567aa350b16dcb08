"""Every expression against Spark SQL: the same values wherever ours has one, an error where ours has an error."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from cases import CASES, ROWS, SCHEMA, Case

from penstock.errors import PenstockError
from penstock.expr import infer, record_function
from penstock.expr.column import Op
from penstock.spark.columns import TABLE, Dialect, NotNative, spark_column
from penstock.spark.types import ours
from penstock.types import Field, Schema

RECORDS = [SCHEMA.record_type(**row) for row in ROWS]
FAILED = "failed"

pytestmark = pytest.mark.spark


def expected(case: Case) -> list[Any]:
    """What the record form makes of every row."""
    function = record_function(case.column, SCHEMA)

    def value(record: Any) -> Any:
        try:
            return plain(function(record))
        except PenstockError:
            return FAILED

    return [value(record) for record in RECORDS]


def plain(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and value != value else value


EXPECTED = [expected(case) for case in CASES]


@pytest.fixture(scope="module")
def values(queries: Any) -> Any:
    """The awkward rows, numbered, in Spark."""
    table = pa.Table.from_batches([SCHEMA.to_batch(RECORDS)]).append_column("row", pa.array(range(len(ROWS))))
    for index, made in enumerate(EXPECTED):
        table = table.append_column(f"has{index}", pa.array([value is not FAILED for value in made]))
    return queries.createDataFrame(table)  # so few are evaluated in the driver: an error is one, and not a lost task


def collected(values: Any, columns: dict[int, Any]) -> dict[int, list[Any]]:
    """What Spark makes of expressions, by case, in the rows in which ours has a value: all in one job."""
    from pyspark.sql import functions as F

    guarded = [F.when(F.col(f"has{index}"), column).alias(f"c{index}") for index, column in columns.items()]
    table = values.select("row", *guarded).sort("row").toArrow().combine_chunks()
    found = {}
    for at, index in enumerate(columns):
        field = infer(CASES[index].column, SCHEMA)
        schema = Schema((Field("value", field.type),))
        batch = pa.RecordBatch.from_arrays([table.column(at + 1).chunk(0)], ["value"])
        found[index] = [plain(row.value) for row in schema.to_rows(ours(batch, schema))]
    return found


def different(index: int, found: list[Any]) -> list[Any]:
    pairs = zip(ROWS, EXPECTED[index], found, strict=True)
    return [(row, mine, theirs) for row, mine, theirs in pairs if mine is not FAILED and mine != theirs]


def test_every_expression_means_what_it_means_in_spark_sql(values: Any) -> None:
    from pyspark.sql import functions as F

    found = collected(values, {index: F.expr(case.sql) for index, case in enumerate(CASES)})
    wrong = {str(CASES[index]): different(index, made)[:2] for index, made in found.items()}
    known = {str(case) for case in CASES if case.deviates}
    assert {sql: pairs for sql, pairs in wrong.items() if pairs and sql not in known} == {}
    assert [sql for sql in known if not wrong[sql]] == [], "these deviate no more: take the word from them"


def test_every_translation_is_equal_to_the_record_form(values: Any) -> None:
    columns, not_native = {}, set()
    for index, case in enumerate(CASES):
        try:
            columns[index] = spark_column(case.column, SCHEMA, Dialect(is_utc=True))
        except NotNative:
            not_native.add(str(case))
    wrong = {str(CASES[index]): different(index, made)[:2] for index, made in collected(values, columns).items()}
    assert {sql: pairs for sql, pairs in wrong.items() if pairs} == {}
    assert not_native == {
        "CAST(d AS STRING)",
        "CAST(CAST(at AS STRING) AS TIMESTAMP)",
        "CAST(CAST(day AS STRING) AS DATE)",
    }


def test_where_the_record_form_fails_spark_fails_too(values: Any) -> None:
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    silent = []
    for index, case in enumerate(CASES):
        bad = [row for row, value in enumerate(EXPECTED[index]) if value is FAILED]
        if bad:
            try:
                values.where(F.col("row") == bad[0]).select(F.expr(case.sql)).collect()
            except PySparkException:
                continue
            silent.append(str(case))
    assert silent == []


def test_every_kind_of_node_has_an_entry_in_the_table() -> None:
    assert set(TABLE) == set(Op)


def test_every_kind_of_node_has_a_case() -> None:
    seen: set[Op] = set()

    def visit(column: Any) -> None:
        seen.add(column.op)
        for arg in column.args:
            visit(arg)

    for case in CASES:
        visit(case.column)
    assert set(Op) - seen <= {Op.ALIAS}
