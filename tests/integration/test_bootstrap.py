"""History and then live: what was sent by the cut and what the live job sends are together what one stream sends."""

from __future__ import annotations

import json
from collections import Counter
from functools import reduce
from pathlib import Path
from random import Random
from typing import Any

import pytest
from penstock_test_pipelines import SCHEMA, Pipelines, random_rows
from typer.testing import CliRunner

import penstock as ps
from penstock.cli import app
from penstock.errors import InvalidGraph, InvalidOption
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.runtime.checkpoints import CheckpointStore
from penstock.runtime.restart import Restart
from penstock.testing.cluster import START_US, Cluster
from penstock.types import nested_dict

pytestmark = pytest.mark.spark

PIPELINES = 5
FOREVER_US = 1 << 62


def live(pipeline: ps.Pipeline, place: str, parallelism: int) -> dict[str, list[dict[str, Any]]]:
    """Run a job that begins with what is in a place, in made-up time."""
    sinks = {node.name: node.sink for node in pipeline.nodes() if node.sink is not None}
    plan = Plan.of(pipeline.graph(), Options.of(parallelism=parallelism), ps.memory())
    seen = {name: len(sink.rows) for name, sink in sinks.items()}  # type: ignore[union-attr]
    resumption, disk = None, {}
    if place:
        store = CheckpointStore(place, durable=True)
        last = store.last_commit()
        assert last is not None
        last.job, last.start_us = plan.options.name, START_US
        resumption = Restart(store, last, plan).resumption()
        disk = {each.name: store.read_snapshot(each) for each in resumption.snapshots}
    Cluster(plan, resumption, disk).run_until(FOREVER_US)
    return {name: [nested_dict(row) for row in sink.rows[seen[name] :]] for name, sink in sinks.items()}  # type: ignore[union-attr]


def texts(rows: Any) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True, default=str) for row in rows)


def plain(rows: list[Any], schema: Any) -> list[dict[str, Any]]:
    """What Spark gives, as the stream has it: times are numbers."""
    times = [field.name for field in schema.fields if field.type.ddl == "timestamp"]
    made = [row.asDict(recursive=True) for row in rows]
    return [{**row, **{name: _micros(row[name]) for name in times if row[name] is not None}} for row in made]


def _micros(value: Any) -> int:
    from datetime import UTC, datetime, timedelta

    moment = value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=None).astimezone(UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def check(queries: Any, seed: int, place: str, count: int = PIPELINES) -> None:
    random = Random(seed)
    rows = random_rows(random, 60)
    partitions = random.choice([1, 1, 2])
    source = ps.records(rows, schema=SCHEMA, partitions=partitions)
    events = ps.stream("events", source)
    drawn = Pipelines(random, ordered=partitions == 1)
    whole = reduce(lambda one, other: one + other, [drawn.drawn(events, f"sink{i}") for i in range(count)])
    cut = {each: random.randrange(60 // partitions + 1) for each in range(partitions)}
    once = live(whole, "", parallelism=2)
    sent = ps.bootstrap(whole, to=place, until={"events": cut}, parallelism=random.choice([1, 2, 3]), spark=queries)
    rest = live(whole, place, parallelism=random.choice([1, 2]))
    graph = whole.graph()
    for node in graph.nodes:
        if node.sink is not None:
            before = plain(sent[node.name].collect(), graph.schema(node.inputs[0]))
            found, expected = texts(before) + texts(rest[node.name]), texts(once[node.name])
            assert (found - expected, expected - found) == (Counter(), Counter()), (seed, cut, node.name)


@pytest.mark.parametrize("seed", [4])
def test_history_and_then_live_is_as_one_stream(queries: Any, tmp_path: Path, seed: int) -> None:
    check(queries, seed, str(tmp_path / "state"))


FILE = """
import penstock as ps
lines = ps.stream("lines", ps.json_files("{place}/in", follow={follow})).parse_json("k string, v bigint, at timestamp")
windows = lines.key_by("k").window("10s", on="at").aggregate(n=ps.agg.count(), t=ps.agg.sum("v"))
totals = lines.key_by("k").aggregate(n=ps.agg.count())
pipeline = windows.to(ps.files("{place}/windows"), name="windows")
others = totals.to(ps.files("{place}/totals"), name="totals")
"""


def lines(numbers: range) -> str:
    rows = ({"k": "abc"[n % 3], "v": n, "at": f"2026-01-01T00:{n // 60:02}:{n % 60:02}Z"} for n in numbers)
    return "".join(json.dumps(row) + "\n" for row in rows)


def written(place: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(place.glob("*.jsonl")) for line in file.read_text().splitlines()]


def test_files_that_grow_are_history_up_to_a_byte_and_live_behind_it(queries: Any, tmp_path: Path) -> None:
    """The command writes the state; half a line is not history yet. A second run goes on from its own checkpoint."""
    del queries
    (tmp_path / "in").mkdir()
    growing, cut = tmp_path / "in" / "a.jsonl", lines(range(125, 126))[:9]
    growing.write_text(lines(range(125)) + cut)
    (tmp_path / "job.py").write_text(FILE.format(place=tmp_path, follow=True))
    runner, job, state = CliRunner(), str(tmp_path / "job.py"), str(tmp_path / "state")
    made = runner.invoke(
        app, ["backfill", job, "--state", state, "--parallelism", "2", "--output", str(tmp_path / "history")]
    )
    assert made.exit_code == 0, made.output
    growing.write_text(lines(range(180)))
    (tmp_path / "job.py").write_text(FILE.format(place=tmp_path, follow=False))
    run = ["run", job, "--bootstrap", state, "--checkpoint", str(tmp_path / "cp"), "--parallelism", "2", "--no-top"]
    for _ in range(2):
        done = runner.invoke(app, run)
        assert done.exit_code == 0, done.output
    import pyarrow.parquet as pq

    sent = pq.read_table(tmp_path / "history" / "windows").to_pylist()
    rows = [(row["k"], row["n"], row["t"]) for row in [*sent, *written(tmp_path / "windows")]]
    by_key = [[n for n in range(at, at + 10) if n % 3 == k] for at in range(0, 180, 10) for k in range(3)]
    assert Counter(rows) == Counter(("abc"[ns[0] % 3], len(ns), sum(ns)) for ns in by_key)
    assert {row["k"]: row["n"] for row in written(tmp_path / "totals")} == {"a": 60, "b": 60, "c": 60}
    again = runner.invoke(app, ["backfill", job, "--state", state])
    assert again.exit_code == 2
    assert "a new directory" in again.output


def test_a_topic_is_history_up_to_its_offsets_and_live_behind_them(
    queries: Any, kafka_server: Any, tmp_path: Path
) -> None:
    topic = kafka_server.topic("boot", 2)

    def write(numbers: range) -> None:
        kafka_server.fill(topic, [(n % 2, f"k{n % 3}", {"k": f"k{n % 3}", "n": n}) for n in numbers])

    def pipeline(sink: Any, **options: Any) -> ps.Pipeline:
        place = ps.kafka(kafka_server.servers, topic, columns=("value",), start="earliest", **options)
        counted = ps.stream("in", place).parse_json("k string, n bigint").key_by("k")
        return counted.aggregate(n=ps.agg.count(), total=ps.agg.sum("n"), emit="every").to(sink, name="out")

    write(range(60))
    first = ps.bootstrap(
        pipeline(ps.memory()), to=tmp_path / "cut", until={"in": {0: 10, 1: 20}}, parallelism=2, spark=queries
    )
    assert first["out"].count() == 30
    sent = ps.bootstrap(pipeline(ps.memory()), to=tmp_path / "state", parallelism=2, spark=queries)
    write(range(60, 90))
    rest = ps.memory()
    ps.run(pipeline(rest, stop="latest"), bootstrap=tmp_path / "state", parallelism=2)
    found = Counter((row.k, row.n) for row in [*sent["out"].collect(), *rest.rows])
    assert found == Counter((f"k{k}", n) for k in range(3) for n in range(1, 31))
    last = {row.k: row.total for row in rest.rows if row.n == 30}
    assert last == {f"k{k}": sum(range(k, 90, 3)) for k in range(3)}


def test_what_cannot_be_bootstrapped_is_refused_by_name(queries: Any, tmp_path: Path) -> None:
    ticks = ps.stream("ticks", ps.generator({"x": 1}, rate=10))
    counted = ticks.parse_json("x int", name="parse").key_by("x").count(name="counts").to(ps.memory())
    to = tmp_path / "state"
    with pytest.raises(InvalidGraph, match=r"'ticks': its history \(generator\) cannot be read.*'ticks': a DataFrame"):
        ps.bootstrap(counted, to=to, spark=queries)
    given = {"counts": queries.createDataFrame([], "x int, count bigint")}
    with pytest.raises(InvalidGraph, match="the state of 'counts' does not follow"):
        ps.bootstrap(counted, given, to=to, spark=queries)
    with pytest.raises(InvalidOption, match=r"until='tiks'.*Did you mean 'ticks'"):
        ps.bootstrap(counted, to=to, until={"tiks": {0: 1}}, spark=queries)
    with pytest.raises(InvalidOption, match="partitions 0 to 0 and how many records"):
        ps.bootstrap(counted, to=to, until={"ticks": {7: 1}}, parallelism=1, spark=queries)
    with pytest.raises(InvalidOption, match=r"bootstrap=.*that ps.bootstrap has written"):
        ps.run(counted, bootstrap=to)
    assert not to.exists()
