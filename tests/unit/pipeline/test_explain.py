"""The explanation of a plan: graph, schemas, partitioning, instances and forms."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.errors import PenstockError
from penstock.pipeline.explain import explain_plan
from penstock.runtime.job import plan_of


def events() -> ps.Stream:
    return ps.stream("events", ps.records([], schema="k string, v bigint, t timestamp", partitions=2))


def test_the_whole_of_a_keyed_pipeline() -> None:
    pipeline = (
        events()
        .filter(ps.col("v") > 1)
        .map(lambda r: r, schema="k string, v bigint, t timestamp", name="same", on_error="skip")
        .key_by("k")
        .window(ps.tumbling("10s", on="t", lateness="1s"))
        .count()
        .to(ps.memory())
    )
    assert explain_plan(plan_of(pipeline, name="job", parallelism=2)).splitlines() == [
        "job: 2 workers, a commit every 1s, Spark on local",
        "Each unit is a chain of operations that runs in one process, one chain per instance.",
        "",
        "unit 0, 2 instances reading 2 partitions",
        "  events         records  record, batch",
        "      → k string, v bigint, t timestamp",
        "  filter         filter   record, batch (vectorised)",
        "      v > 1",
        "      → k string, v bigint, t timestamp",
        "  same           map      record, batch (loop); on error skip",
        "      <lambda>",
        "      → k string, v bigint, t timestamp",
        "      event time: t",
        "  count.combine  combine  record, batch (vectorised)",
        "      partial aggregates per block",
        "      → _k0 string, _w timestamp not null, _n bigint not null, _p0_0 bigint",
        "  ⇒ shuffle by k to unit 1 (count)",
        "",
        "unit 1, 2 instances",
        "  count          reduce   record",
        "      count=count() by k; tumbling 10s on t, lateness 1s",
        "      → k string, window_start timestamp not null, window_end timestamp not null, count bigint",
        "  to_memory      memory   record, batch",
    ]


def test_a_sliding_window_tells_how_often_one_starts() -> None:
    counted = events().key_by("k").window("10s", on="t", slide="2s", lateness="1s").count()
    lines = [line.strip() for line in explain_plan(plan_of(counted.to(ps.memory()))).splitlines()]
    assert "count=count() by k; sliding 10s every 2s on t, lateness 1s" in lines


def test_what_is_declared_about_event_time_is_shown() -> None:
    counted = events().with_watermark("t", "5s").filter(ps.col("v") > 1).key_by("k").window("10s", on="t").count()
    lines = [line.strip() for line in explain_plan(plan_of(counted.to(ps.memory()), parallelism=2)).splitlines()]
    assert lines[lines.index("event time: t") - 1] == "→ k string, v bigint, t timestamp"
    assert "⇒ shuffle by k to unit 1 (count); watermark 5s behind event time" in lines


def test_both_sides_of_a_join_are_shown() -> None:
    left, seen = events(), ps.stream("seen", ps.records([], schema="k string, u timestamp"))
    pairs = left.join(seen, on="k", within="10s", left_time="t", right_time="u", lateness="1s", how="left")
    lines = [line.rstrip() for line in explain_plan(plan_of(pairs.to(ps.memory()), parallelism=2)).splitlines()]
    assert lines[3:] == [
        "unit 0, 2 instances reading 2 partitions",
        "  events      records  record, batch",
        "      → k string, v bigint, t timestamp",
        "      event time: t",
        "  join.left   tag      record, batch (vectorised)",
        "      left side by k, time t",
        "      → _side boolean not null, _k0 string, _t timestamp not null, _l0 bigint",
        "  ⇒ shuffle by k to unit 2 (join)",
        "",
        "unit 1, 1 instance reading 1 partition",
        "  seen        records  record, batch",
        "      → k string, u timestamp",
        "      event time: u",
        "  join.right  tag      record, batch (vectorised)",
        "      right side by k, time u",
        "      → _side boolean not null, _k0 string, _t timestamp not null, _l0 bigint",
        "  ⇒ shuffle by k to unit 2 (join)",
        "",
        "unit 2, 2 instances",
        "  join        join     record",
        "      left on k; t within 10s of u, lateness 1s",
        "      → k string, v bigint, t timestamp, u timestamp",
        "  to_memory   memory   record, batch",
    ]


def test_split_merge_gather_late_and_dead_letters() -> None:
    parts = events().split(big=ps.col("v") > 10)
    both = parts["big"].merge(parts["rest"])
    total = both.window(ps.tumbling("1s", on="t")).sum("v")
    bad = both.map(lambda r: r, schema="k string, v bigint, t timestamp", name="strict", on_error="dead_letter")
    pipeline = (
        total.to(ps.memory(), name="totals")
        + total.late.to(ps.memory(), name="late")
        + bad.to(ps.memory(), name="all", dead_letters=ps.memory())
    )
    lines = [line.strip() for line in explain_plan(plan_of(pipeline, parallelism=2)).splitlines()]
    edges = [line for line in lines if line.startswith("⇒")]
    assert [edge.split(" to unit")[0] for edge in edges] == [
        "⇒ big: forward",
        "⇒ rest: forward",
        "⇒ forward",
        "⇒ forward",
        "⇒ gather",
        "⇒ late: forward",
        "⇒ dead letters: gather",
    ]
    assert ["merge", "merge", "record"] in [line.split() for line in lines]
    assert "records pass whole" in lines
    assert "strict        map      record, batch (loop); on error dead letter" in lines


def test_lines_keep_to_the_width_and_columns_stay_whole() -> None:
    schema = ", ".join(f"column_{i} timestamp not null" for i in range(20))
    pipeline = ps.stream("wide", ps.records([], schema=schema)).to(ps.memory())
    lines = explain_plan(plan_of(pipeline), 60).splitlines()
    wrapped = [line for line in lines if "column_" in line]
    assert len(wrapped) > 5
    assert all(len(line) <= 60 and line.rstrip(",").endswith("not null") for line in wrapped)


def test_a_transformation_says_that_it_has_a_batch_form_only_and_what_that_costs() -> None:
    stream = ps.stream("orders", ps.records([], schema="id bigint")).transform(lambda df: df, schema="id bigint")
    text = explain_plan(plan_of(stream.to(ps.memory()), parallelism=1))
    assert "batch (Spark SQL)" in text
    assert "a Spark SQL job for each micro-batch, some tenths of a second" in text


def test_a_transformation_without_spark_says_what_it_needs() -> None:
    stream = ps.stream("orders", ps.records([(1,)], schema="id bigint")).transform(lambda df: df, schema="id bigint")
    with pytest.raises(PenstockError, match=r"operation 'transform': a transformation runs on Spark.*ps\.run"):
        ps.testing.collect(stream)
