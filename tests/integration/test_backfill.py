"""A pipeline over history: random pipelines give the same in the stream and in Spark; inputs, refusals, the command."""

from __future__ import annotations

from collections import Counter
from functools import reduce
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from penstock_test_pipelines import SCHEMA, SECOND, Joined, Pipelines, random_rows
from typer.testing import CliRunner

import penstock as ps
from penstock.cli import app
from penstock.connectors.base import Sink
from penstock.errors import InvalidGraph, PenstockError, TypeMismatch
from penstock.testing import Harness
from penstock.types import Schema

pytestmark = pytest.mark.spark

PIPELINES = 8


def schemas(pipeline: ps.Pipeline) -> dict[str, Schema]:
    graph = pipeline.graph()
    return {node.name: graph.schema(node.inputs[0]) for node in graph.nodes if isinstance(node.body, Sink)}


@pytest.mark.parametrize("seed", [53])
def test_history_and_stream_agree_on_random_pipelines(queries: Any, seed: int) -> None:
    """Many pipelines in one job of Spark: their results side by side, as texts."""
    random = Random(seed)
    check(queries, random, PIPELINES)


def check(queries: Any, random: Random, count: int) -> None:
    events = ps.stream("events", ps.records(random_rows(random, 60), schema=SCHEMA))
    drawn = Pipelines(random)
    agree(queries, events, [drawn.drawn(events, f"sink{i}") for i in range(count)])


def test_every_kind_of_join_and_of_window_agrees(queries: Any) -> None:
    """What random pipelines may leave out."""
    events = ps.stream("events", ps.records(random_rows(Random(5), 60), schema=SCHEMA))
    other = events.filter(ps.col("v") > 5).select("k", w="v", seen="at")
    near = "seen BETWEEN at - INTERVAL 3 SECONDS AND at + INTERVAL 1 SECOND"
    made = [events.join(other, on="k", within=near, how=how) for how in ("inner", "left", "right", "full")]
    later = "seen > at + INTERVAL 1 SECOND AND seen <= at + INTERVAL 5 SECONDS"
    made += [events.join(other, on="k", within=later, how=how) for how in ("right", "full")]
    times = {"left_time": "at", "right_time": "seen"}
    made += [events.join(other, on="k", within="2s", match="once", how="full", **times)]
    made += [
        events.join_asof(other, on="k", tolerance=each, how=how, **times)
        for each, how in ((None, "left"), ("2s", "inner"))
    ]
    counts = {"c": ps.agg.count(), "s": ps.agg.sum("v")}
    made += [events.key_by("k").window(ps.count_window(4, slide=3, on="at")).aggregate(**counts)]
    agree(queries, events, [each.to(ps.memory(), name=f"sink{i}") for i, each in enumerate(made)])


def test_of_results_so_far_history_has_the_last_ones(queries: Any) -> None:
    rows = random_rows(Random(6), 40)
    events = ps.stream("events", ps.records(rows, schema=SCHEMA))
    counts = {"c": ps.agg.count(), "s": ps.agg.sum("v")}
    keyed = events.key_by("k")
    made = [
        (1, keyed.window(ps.global_window(every="3s", on="at")).aggregate(**counts)),
        (1, keyed.window(ps.global_window(every=4)).aggregate(**counts)),
        (1, keyed.window(ps.global_window(every="3s", on="at")).aggregate(one=ps.agg.custom(Joined(), type="string"))),
        (1, keyed.window(ps.global_window(every=4, on="at")).aggregate(best=ps.agg.top(2, "v", "s"))),
        (3, keyed.window("6s", on="at", early="2s").aggregate(**counts)),
        (2, events.window("6s", on="at", slide="4s", early="2s").aggregate(**counts)),
    ]
    whole = reduce(
        lambda one, other: one + other, [each.to(ps.memory(), name=f"sink{i}") for i, (_, each) in enumerate(made)]
    )
    harness = Harness(whole)
    harness.run()
    schema = Schema.parse(SCHEMA)
    source = queries.createDataFrame(pa.Table.from_batches([schema.to_batch([schema.record_type(**r) for r in rows])]))
    frames = ps.backfill(whole, {"events": source}, spark=queries)
    found = counted(frames, len(made))
    streamed = {}
    for i, (keys, stream) in enumerate(made):
        last = {tuple(row.values())[:keys]: row for row in harness.rows(f"sink{i}")}
        assert len(last) < len(harness.rows(f"sink{i}"))
        batch = stream.schema.to_batch([stream.schema.coerce(row) for row in last.values()])
        streamed[f"sink{i}"] = queries.createDataFrame(pa.Table.from_batches([batch]))
    assert counted(streamed, len(made)) == found
    unordered = events.window(ps.count_window(3)).count().to(ps.memory())
    with pytest.raises(InvalidGraph, match=r"'count'.*in which order.*on="):
        ps.backfill(unordered, {"events": source}, spark=queries)


def agree(queries: Any, events: ps.Stream, parts: list[ps.Pipeline]) -> None:
    """Compare what the stream and Spark make of pipelines over the source ``events``."""
    count, whole = len(parts), parts[0]
    for part in parts[1:]:
        whole = whole + part
    harness = Harness(whole)
    harness.run()
    source = queries.createDataFrame(
        pa.Table.from_batches([whole.graph().ports["events", "out"].to_batch(events_of(whole))])
    ).coalesce(1)
    made = ps.backfill(whole, {"events": source}, spark=queries)
    found = counted(made, count)
    shapes = schemas(whole)
    streamed = {}
    for name, shape in shapes.items():
        rows = [shape.record_type(**row) for row in harness.rows(name)]
        streamed[name] = queries.createDataFrame(pa.Table.from_batches([shape.to_batch(rows)]))
    expected = counted(streamed, count)
    for name, rows in found.items():
        assert (rows - expected[name], expected[name] - rows) == (Counter(), Counter()), name
    letters = Counter((r["operation"], r["error"], r["record"]) for r in harness.dead_letters())
    if letters:
        got = made["dead_letters"].collect()
        assert Counter((r.operation, r.error, r.record) for r in got) == letters


def counted(frames: dict[str, Any], count: int) -> dict[str, Counter[str]]:
    """The rows of all sinks, in one job."""
    from pyspark.sql import functions as F

    names = [f"sink{i}" for i in range(count)]
    texts = [
        frames[name].select(F.lit(name).alias("sink"), F.to_json(F.struct(*frames[name].columns)).alias("row"))
        for name in names
    ]
    together = reduce(lambda one, other: one.union(other), texts)
    found: dict[str, Counter[str]] = {name: Counter() for name in names}
    for row in together.collect():
        found[row.sink][row.row] += 1
    return found


def events_of(pipeline: ps.Pipeline) -> list[Any]:
    node = next(node for node in pipeline.nodes() if node.name == "events")
    assert node.source is not None
    return node.source.reader(0, 1, 0).poll(1 << 60, 1000).rows  # type: ignore[union-attr]


FILE = """
import penstock as ps
events = ps.stream("ad-events", ps.generator({"x": 1}, rate=10))
parsed = events.parse_json("ad string, at timestamp", name="parse")
pipeline = parsed.key_by("ad").window("10s", on="at").count().to(ps.memory(), name="counts")
"""


def history(path: Path) -> Path:
    rows = [{"ad": "ab"[i % 2], "at": i * SECOND} for i in range(20)]
    schema = Schema.parse("ad string, at timestamp")
    batch = schema.to_batch([schema.record_type(**row) for row in rows])
    pq.write_table(pa.Table.from_batches([batch]), path / "history.parquet")
    return path / "history.parquet"


def test_the_command_runs_a_file_over_parquet_files(queries: Any, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(FILE)
    given = f"parse={history(tmp_path)}"
    runner, out = CliRunner(), tmp_path / "out"
    made = runner.invoke(app, ["backfill", str(tmp_path / "job.py"), "--input", given, "--output", str(out)])
    assert made.exit_code == 0, made.output
    counts = pq.read_table(out / "counts").to_pylist()
    assert Counter((row["ad"], row["count"]) for row in counts) == Counter({("a", 5): 2, ("b", 5): 2})
    again = runner.invoke(app, ["backfill", str(tmp_path / "job.py"), "--input", given, "--output", str(out)])
    assert again.exit_code == 2
    assert "--overwrite" in again.output


def test_files_are_read_where_nothing_is_given_for_them(queries: Any, tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text('{"ad": "a", "n": 1}\n\n  {"ad": "b", "n": 2} \n')
    lines = ps.stream("lines", ps.json_files(tmp_path)).parse_json("ad string, n bigint")
    made = ps.backfill(lines.filter(ps.col("n") > 1).to(ps.memory(), name="out"), spark=queries)
    assert [tuple(row) for row in made["out"].collect()] == [("b", 2)]
    (tmp_path / "one.jsonl").unlink()
    with pytest.raises(PenstockError, match="SOURCE_MISSING"):
        ps.backfill(lines.to(ps.memory()), spark=queries)


def test_csv_and_parquet_files_are_read_by_their_own_columns(queries: Any, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("ad,n\na,1\nb,2\n")
    rows = ps.stream("rows", ps.csv_files(tmp_path / "one.csv", schema="ad string, n bigint"))
    made = ps.backfill(rows.filter(ps.col("n") > 1).to(ps.memory(), name="out"), spark=queries)
    assert [tuple(row) for row in made["out"].collect()] == [("b", 2)]
    pq.write_table(pa.table({"ad": ["a", "b"], "n": [1, 2]}), tmp_path / "one.parquet")
    rows = ps.stream("rows", ps.parquet_files(tmp_path / "one.parquet"))
    made = ps.backfill(rows.filter(ps.col("n") < 2).to(ps.memory(), name="out"), spark=queries)
    assert [tuple(row) for row in made["out"].collect()] == [("a", 1)]


def test_an_endless_source_an_unknown_name_and_another_schema_are_refused(queries: Any) -> None:
    endless = ps.stream("ticks", ps.generator({"x": 1}, rate=10)).to(ps.memory())
    with pytest.raises(InvalidGraph, match=r"goes on for ever.*'ticks': a DataFrame or a path"):
        ps.backfill(endless, spark=queries)
    with pytest.raises(InvalidGraph, match=r"no source or operation 'tics'.*Did you mean 'ticks'"):
        ps.backfill(endless, {"tics": queries.range(1)}, spark=queries)
    with pytest.raises(TypeMismatch, match="it has no column 'value'"):
        ps.backfill(endless, {"ticks": queries.range(1)}, spark=queries)
    with pytest.raises(TypeMismatch, match="column 'value' is bigint, not binary"):
        ps.backfill(endless, {"ticks": queries.range(1).withColumnRenamed("id", "value")}, spark=queries)


def test_windows_and_lookups_are_plans_of_sparks_own(queries: Any) -> None:
    """What Spark can do itself never goes through Python."""
    events = ps.stream("events", ps.records([], schema=SCHEMA))
    table = ps.table([("a", 1)], schema="k string, z int", key="k")
    named = events.filter(ps.col("v") > 1).with_columns(v=ps.col("v") + 1).lookup(table, on="k")
    counts = named.key_by("k").window("10s", on="at").aggregate(n=ps.agg.count(), t=ps.agg.sum("v"))
    empty = queries.createDataFrame([], "k string, g int, v bigint, d double, at timestamp, s string")
    plan = ps.backfill(counts.to(ps.memory(), name="out"), {"events": empty}, spark=queries)["out"]
    text = plan._jdf.queryExecution().logical().toString()
    assert "MapInArrow" not in text
    assert "broadcast" in text


def failing(r: Any) -> Any:
    raise ValueError(f"no {r.v}")


def test_a_failing_function_ends_the_query_at_once_and_says_where(queries: Any) -> None:
    """Spark would try a task again 10,000 times here, as it does for the tasks that are workers."""
    events = ps.stream("events", ps.records([{"v": 1}], schema="v bigint"))
    made = ps.backfill(events.map(failing, schema="v bigint").to(ps.memory(), name="out"), spark=queries)
    with pytest.raises(Exception, match=r"(?s)in failing.*ValueError: no 1"):
        made["out"].collect()
