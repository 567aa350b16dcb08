"""DataFrame functions on a live stream: exact, through crashes too; what does not fit is refused or named."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import functions as F

import penstock as ps
from penstock.errors import OperationFailed, TypeMismatch
from penstock.runtime import prepared
from penstock.runtime.prepared import Prepared, Queries, can_be_kept, numbered
from penstock.spark.sessions import small_query_session
from waiting import kill_one

pytestmark = pytest.mark.spark

ORDERS = {"id": ps.fields.integers(0, 99), "v": ps.fields.integers(0, 9)}
JOINED = "id bigint, v bigint, name string"


@pytest.fixture(scope="module")
def customers(queries: Any) -> Any:
    return queries.range(100).selectExpr("id", "concat('name', id) AS name")


@pytest.mark.parametrize("kept", [True, False])
def test_a_join_is_exact_while_a_slot_and_a_worker_are_killed(
    queries: Any,
    customers: Any,
    eventually: Callable[[Callable[[], object]], None],
    monkeypatch: pytest.MonkeyPatch,
    kept: bool,
) -> None:
    """A query that is kept is made anew all the time meanwhile, beside the one that runs."""
    monkeypatch.setattr(prepared, "KEPT_S", 0.0)
    if not kept:  # Spark does not know its size: the micro-batch is broadcast, by a query of its own
        customers = queries.createDataFrame([(i, f"name{i}") for i in range(100)], "id bigint, name string")
    source = ps.generator(ORDERS, rate=200, format="columns", partitions=2)
    sink = ps.memory()
    joined = ps.stream("orders", source).transform(lambda df: df.join(customers, "id").where("v < 5"), schema=JOINED)
    with ps.start(joined.to(sink), parallelism=2, name="transform") as job:
        eventually(lambda: sink.rows and job.status().slots)
        kill_one(lambda: job.status().slots)
        os.kill(job.status().workers[0].pid, signal.SIGKILL)
        seen = len(sink.rows)
        eventually(lambda: job.status().recoveries and len(sink.rows) > seen)
        job.drain()
        report = job.wait()
    assert report is not None
    read = [offset * 2 + part for part, count in enumerate(report.offsets["orders"]) for offset in range(count)]
    records = source.records(0, max(read) + 1, 0)
    expected = Counter((r.id, r.v, f"name{r.id}") for r in map(records.__getitem__, read) if r.v < 5)
    assert Counter((r.id, r.v, r.name) for r in sink.rows) == expected


def test_a_result_that_does_not_fit_is_refused_before_the_job_begins(queries: Any) -> None:
    stream = ps.stream("orders", ps.records([(1, 2)], schema="id bigint, v bigint"))
    with pytest.raises(TypeMismatch, match=r"operation 'rename': .* it has no column 'w'"):
        ps.run(stream.transform(lambda df: df, schema="w bigint", name="rename").to(ps.memory()), parallelism=1)


def test_a_function_that_fails_names_the_operation_and_the_cause(queries: Any) -> None:
    stream = ps.stream("orders", ps.records([(0, 2)], schema="id bigint, v bigint"))
    failing = stream.transform(lambda df: df.withColumn("v", F.raise_error(F.lit("no such customer")).cast("long")),
                               schema="id bigint, v bigint", name="enrich")  # fmt: skip
    with pytest.raises(OperationFailed, match=r"operation 'enrich'.*no such customer"):
        ps.run(failing.to(ps.memory()), parallelism=1, forms="record")


def test_a_backfill_applies_the_function_itself(queries: Any, customers: Any) -> None:
    stream = ps.stream("orders", ps.records([(1, 2), (3, 7)], schema="id bigint, v bigint"))
    joined = stream.transform(lambda df: df.join(customers, "id").where("v < 5"), schema=JOINED)
    made = ps.backfill(joined.to(ps.memory(), name="out"), spark=queries)
    assert [tuple(row) for row in made["out"].collect()] == [(1, 2, "name1")]


@pytest.mark.parametrize(
    ("function", "kept"),
    [
        (lambda df, _: df.where("v < 5"), True),
        (lambda df, customers: df.join(customers, "id"), True),
        (lambda df, customers: df.join(F.broadcast(customers), "id"), True),
        (lambda df, customers: customers.join(F.broadcast(df), "id"), False),
        (lambda df, _: df.repartition(2), False),
        (lambda df, _: df.groupBy("id").count(), False),
        (lambda df, _: df.withColumn("at", F.current_timestamp()), False),
        (lambda df, _: df.withColumn("x", F.rand()), False),
        (lambda df, customers: df.join(customers.cache(), "id"), False),
    ],
)
def test_a_query_is_run_again_only_where_that_gives_what_a_new_one_would(
    queries: Any, customers: Any, function: Any, kept: bool
) -> None:
    numbers = numbered(queries, 2, is_large=True)
    df = numbers.mapInArrow(lambda batches: batches, "id long").withColumn("v", F.lit(1))
    made = function(df, customers)
    assert can_be_kept(made) is kept
    customers.unpersist()


def test_queries_that_shuffle_and_queries_that_are_kept_give_each_micro_batch_its_own_rows(queries: Any) -> None:
    numbers = ps.stream("in", ps.generator({"n": ps.fields.sequence()}, rate=2000, total=2000, format="columns"))
    one, two = ps.memory(), ps.memory()
    plain = numbers.transform(lambda df: df.selectExpr("n * 2 AS n"), schema="n bigint", name="plain")
    dealt = numbers.transform(lambda df: df.repartition(2, "n"), schema="n bigint", name="dealt")
    ps.run(plain.to(one, name="one") + dealt.to(two, name="two"), parallelism=1)
    assert sorted(r.n for r in one.rows) == list(range(0, 4000, 2))
    assert sorted(r.n for r in two.rows) == list(range(2000))


def test_a_copy_of_a_session_knows_what_it_knew_and_changes_nothing_there(queries: Any) -> None:
    queries.conf.set("spark.sql.adaptive.enabled", "true")
    try:
        queries.range(3).createOrReplaceTempView("three")
        queries.udf.register("twice", lambda n: 2 * n, "bigint")
        copied = small_query_session(queries)
        assert [row.n for row in copied.sql("SELECT twice(id) AS n FROM three ORDER BY n").collect()] == [0, 2, 4]
        assert copied.conf.get("spark.sql.adaptive.enabled") == "false"
        assert queries.conf.get("spark.sql.adaptive.enabled") == "true"
        assert copied.conf.get("spark.sql.session.timeZone") == queries.conf.get("spark.sql.session.timeZone")
    finally:
        queries.catalog.dropTempView("three")
        queries.conf.set("spark.sql.adaptive.enabled", "false")


def test_a_query_that_is_kept_is_shared_until_it_fails(queries: Any) -> None:
    made: list[Prepared] = []
    kept = Queries(lambda key: queries.range(key[1]).where("id > 1"), lambda _, query: made.append(query))
    one = kept.take(("op", 1))
    assert one.is_kept
    assert one.outputs == one.frame.rdd.getNumPartitions()
    assert kept.take(("op", 1)) is one
    assert kept.take(("op", 2)) is not one
    kept.drop(("op", 1), one)
    assert kept.take(("op", 1)) is not one
    one = kept.take(("op", 1))
    one.made_s -= 3600
    assert kept.take(("op", 1)) is one, "until another one is ready"
    kept._maker.shutdown(wait=True)
    assert kept.take(("op", 1)) is made[0], "which has run on nothing before"
    passing = Queries(lambda key: queries.range(key[1]).repartition(2), lambda *_: None)
    assert passing.take(("op", 1)) is not passing.take(("op", 1))
