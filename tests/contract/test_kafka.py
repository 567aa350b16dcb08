"""Topics of a real broker at both ends of whole jobs: every form, crashes of workers, resumption, new partitions."""

from __future__ import annotations

import json
import time
import uuid
from collections import defaultdict
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewPartitions

import penstock as ps
from penstock.connectors.kafka import hub
from penstock.control.resume import anchors, match, take_up_sources
from penstock.control.scheduler import Resumption
from penstock.engine.snapshot import decode_snapshot
from penstock.errors import KafkaFailed
from penstock.pipeline.graph import Graph
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.testing.cluster import Cluster
from waiting import WAIT_S

S = 1_000_000
SCHEMA = "k string, n bigint"


def numbers(count: int, partitions: int = 3) -> list[tuple[int, str, dict[str, Any]]]:
    return [(n % partitions, f"k{n % 7}", {"k": f"k{n % 7}", "n": n}) for n in range(count)]


def planned(pipeline: ps.Pipeline, parallelism: int = 2, epoch: str = "20ms") -> Plan:
    plan = Plan.of(Graph.check(pipeline.nodes()), Options.of(parallelism=parallelism, epoch=epoch))
    return replace(plan, job_id=uuid.uuid4().hex)


def run(cluster: Cluster) -> None:
    while not cluster.ended:
        cluster.run_until(cluster.now_us + S)


def written(cluster: Cluster, server: Any, topic: str, count: int) -> None:
    """Run until so many records can be read."""
    deadline = time.monotonic() + WAIT_S
    while len(server.read(topic)) < count:
        cluster.run_until(cluster.now_us + 50_000)
        assert time.monotonic() < deadline


def values(messages: list[Any]) -> list[Any]:
    return [json.loads(each.value()) for each in messages]


@pytest.mark.parametrize("form", ["record", "batch"])
def test_both_forms_read_every_record_once_in_the_order_of_its_partition(kafka_server: Any, form: str) -> None:
    topic = kafka_server.topic("in", 3)
    kafka_server.fill(topic, numbers(900), step=100)
    sink = ps.memory()
    place = ps.kafka(
        kafka_server.servers, topic, stop="latest", columns=("value", "key", "headers", "partition", "offset")
    )
    cluster = Cluster(planned(ps.stream("in", place).filter(ps.col("offset") >= 0).to(sink)))
    if form == "batch":
        cluster.add_slot(0)
        cluster.switch(0, -1, 0)
    run(cluster)
    found = defaultdict(list)
    for row in sink.rows:
        tops = [(each.key, each.value) for each in row.headers]
        found[row.partition].append((row.offset, json.loads(row.value)["n"], row.key, tops))
    expected = defaultdict(list)
    for each in kafka_server.read(topic):
        n = json.loads(each.value())["n"]
        expected[each.partition()].append((each.offset(), n, each.key(), [("trace", b"t")]))
    assert sum(map(len, expected.values())) == 900
    assert found == expected


@pytest.mark.parametrize("form", ["record", "batch"])
def test_headers_go_from_topic_to_topic_as_they_are(kafka_server: Any, form: str) -> None:
    """Bytes that are no UTF-8, none, several of one name, no headers at all, and Arrow's nulls in between."""
    source, target, texts = kafka_server.topic("in", 1), kafka_server.topic("out", 1), kafka_server.topic("texts", 1)
    given = [[("a", b"\xff\x00\xfe"), ("a", None), ("é", b"")], None, [("b", b"1")], [("b", None)]] * 10
    producer = Producer({"bootstrap.servers": kafka_server.servers})
    for n, each in enumerate(given):
        producer.produce(source, b"%d" % n, headers=each)
    producer.flush()
    place = ps.kafka(kafka_server.servers, source, stop="latest", columns=("value", "headers", "offset"))
    stream = ps.stream("in", place).filter(ps.col("offset") >= 0)
    assert stream.schema.field("headers").type.ddl == "array<struct<key: string not null, value: binary>>"
    shown = stream.filter(ps.col("headers").is_not_null()).explode("headers", "head").select("offset", "head.*")
    options = {"value": "value", "headers": "headers"}
    written = stream.to(ps.kafka(kafka_server.servers, target, **options))
    as_text = stream.with_columns(headers=ps.lit('[["t","x"],["u",null]]'))
    written += as_text.to(ps.kafka(kafka_server.servers, texts, **options))
    cluster = Cluster(planned(written + shown.to(sink := ps.memory()), parallelism=1))
    if form == "batch":
        cluster.add_slot(0)
        cluster.switch(0, -1, 0)
    run(cluster)
    assert [each.headers() for each in kafka_server.read(target)] == given
    assert [each.headers() for each in kafka_server.read(texts)] == [[("t", b"x"), ("u", None)]] * 40
    expected = [(n, *pair) for n, pairs in enumerate(given) for pair in pairs or ()]
    assert [(row.offset, row.key, row.value) for row in sink.rows] == expected


@pytest.mark.parametrize("seed", range(2))
def test_output_is_exact_through_crashes_of_workers(kafka_server: Any, seed: int) -> None:
    """The processes that are lost live on here as zombies: their writers go on until they are fenced."""
    source, target = kafka_server.topic("in", 3), kafka_server.topic("out", 2)
    random, records = Random(seed), numbers(1200)
    stream = ps.stream("in", ps.kafka(kafka_server.servers, source, columns=("value",)))
    pipeline = stream.parse_json(SCHEMA).key_by("k").filter(ps.col("n") >= 0)
    cluster = Cluster(planned(pipeline.to(ps.kafka(kafka_server.servers, target, key="k")), epoch="10ms"))
    for first in range(0, 1200, 200):
        kafka_server.fill(source, records[first : first + 200])
        epoch = cluster.committed_epoch
        while cluster.committed_epoch == epoch:
            cluster.run_until(cluster.now_us + 1_000)
        cluster.run_until(cluster.now_us + random.randrange(30_000))
        cluster.crash(random.randrange(2))
    written(cluster, kafka_server, target, 1200)
    cluster.drain()
    run(cluster)
    found = kafka_server.read(target)
    assert sorted(each["n"] for each in values(found)) == list(range(1200))
    places, order = defaultdict(set), defaultdict(list)
    for each in found:
        places[each.key()].add(each.partition())
        order[each.key(), json.loads(each.value())["n"] % 3].append(json.loads(each.value())["n"])
    assert all(len(each) == 1 for each in places.values())
    assert all(each == sorted(each) for each in order.values())


def test_an_immediate_sink_repeats_after_a_crash_and_its_header_tells(kafka_server: Any) -> None:
    source, target = kafka_server.topic("in", 1), kafka_server.topic("out", 1)
    kafka_server.fill(source, numbers(2000, 1))
    stream = ps.stream("in", ps.kafka(kafka_server.servers, source, stop="latest", columns=("value",)))
    sink = ps.kafka(kafka_server.servers, target, key="k", delivery="immediate")
    cluster = Cluster(planned(stream.parse_json(SCHEMA).to(sink), parallelism=1, epoch="10ms"))
    cluster.run_until(cluster.now_us + 500_000)
    cluster.crash(0)
    run(cluster)
    newest: dict[int, tuple[int, dict[int, Any]]] = {}
    for each in kafka_server.read(target):
        *_, epoch, attempt, number = dict(each.headers())["penstock"].decode().split("/")
        known = newest.get(int(epoch))
        if known is None or int(attempt) > known[0]:
            newest = {at: rows for at, rows in newest.items() if at < int(epoch) or rows[0] >= int(attempt)}
            newest[int(epoch)] = int(attempt), {}
        if newest[int(epoch)][0] == int(attempt):
            newest[int(epoch)][1][int(number)] = json.loads(each.value())["n"]
    deduplicated = [n for _, (_, rows) in sorted(newest.items()) for _, n in sorted(rows.items())]
    assert deduplicated == list(range(2000))


def resumed(cluster: Cluster, plan: Plan) -> Cluster:
    """Go on from what a job that was left has committed."""
    last = cluster.commits[-1]
    snapshots = [(each.unit, decode_snapshot(cluster.disk[each.name])) for each in last.snapshots]
    match(anchors(cluster._plan), plan, "here")
    take_up_sources(plan, snapshots)
    plan = replace(plan, job_id=cluster._plan.job_id)
    return Cluster(plan, Resumption(last.epoch, last.start_us, last.generation, list(last.snapshots)), cluster.disk)


def test_a_run_goes_on_where_the_last_one_was_also_with_partitions_that_were_added(
    kafka_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "DISCOVER_US", 1_000)
    source, target = kafka_server.topic("in", 2), kafka_server.topic("out", 1)
    group = f"watched-{source}"

    def job() -> Plan:
        place = ps.kafka(kafka_server.servers, source, columns=("value",), group=group)
        return planned(ps.stream("in", place).parse_json(SCHEMA).to(ps.kafka(kafka_server.servers, target)))

    records = numbers(600, 2)
    kafka_server.fill(source, records[:200])
    first = Cluster(job())
    written(first, kafka_server, target, 200)
    # A partition that is added while the job runs, and one between two runs.
    for each in kafka_server.admin.create_partitions([NewPartitions(source, 3)]).values():
        each.result()
    kafka_server.fill(source, [(2, key, value) for _, key, value in records[200:300]])
    written(first, kafka_server, target, 300)
    first.drain()
    run(first)
    for each in kafka_server.admin.create_partitions([NewPartitions(source, 4)]).values():
        each.result()
    kafka_server.fill(source, [(3 if at % 2 else 2, key, value) for at, (_, key, value) in enumerate(records[300:])])
    second = resumed(first, job())
    written(second, kafka_server, target, 600)
    second.drain()
    run(second)
    assert sorted(each["n"] for each in values(kafka_server.read(target))) == list(range(600))
    offsets = kafka_server.committed(group, source)
    assert offsets == {0: 100, 1: 100, 2: 250, 3: 150}


def test_what_was_deleted_before_it_was_read_is_refused(kafka_server: Any) -> None:
    source = kafka_server.topic("in", 1)
    kafka_server.fill(source, numbers(100, 1))

    def job() -> Plan:
        return planned(ps.stream("in", ps.kafka(kafka_server.servers, source)).to(ps.memory()), parallelism=1)

    first = Cluster(job())
    while not first.commits or not first.commits[-1].snapshots:
        first.run_until(first.now_us + 100_000)
    kafka_server.fill(source, numbers(100, 1))
    for each in kafka_server.admin.delete_records([TopicPartition(source, 0, 150)]).values():
        each.result()
    position = decode_snapshot(first.disk[first.commits[-1].snapshots[-1].name]).positions
    assert position
    with pytest.raises(KafkaFailed, match="were deleted before they were read"):
        resumed(first, job())


def test_each_partition_has_its_own_watermark(kafka_server: Any) -> None:
    """Partitions that are hours apart in event time: nothing is late that is not late by its own partition."""
    topic = kafka_server.topic("in", 2)
    rows = [(p, "k", {"k": f"p{p}", "t": (p * 3600 + second) * 1000}) for second in range(100) for p in (0, 1)]
    kafka_server.fill(topic, rows)
    sink = ps.memory()
    place = ps.kafka(kafka_server.servers, topic, stop="latest", columns=("value",))
    stream = ps.stream("in", place).parse_json("k string, t timestamp").with_watermark("t", "1s")
    counts = stream.key_by("k").window("10s", on="t").count()
    cluster = Cluster(planned(counts.to(sink), parallelism=1))
    run(cluster)
    assert sorted((row.k, row.count) for row in sink.rows) == [("p0", 10)] * 10 + [("p1", 10)] * 10


def test_the_example_counts_every_click(kafka_server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parents[2] / "examples" / "kafka_to_kafka.py"
    spec = spec_from_file_location("kafka_to_kafka", path)
    assert spec is not None
    assert spec.loader is not None
    example = module_from_spec(spec)
    spec.loader.exec_module(example)
    example.fill(kafka_server.servers)
    run(Cluster(planned(example.pipeline(kafka_server.servers))))
    example.show(kafka_server.servers)
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sum(each["count"] for each in found) == 6_000
    assert len(found) == 3 * 6
