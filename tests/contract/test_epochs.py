"""Epochs, the end of input, and bounds: what becomes visible when, and who waits for whom."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest
from test_engine import EVENT, WIDTHS, S, bag, events, paced, source, window_counts

import penstock as ps
from penstock.connectors.memory import At
from penstock.errors import OperationFailed, PenstockError
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.testing import Harness
from penstock.testing.cluster import Cluster


@WIDTHS
def test_output_becomes_visible_epoch_by_epoch(parallelism: int) -> None:
    rows = [("a", 0, 0), At("1.5s"), ("b", 1, 0), At("10s"), ("c", 2, 0)]
    harness = Harness(source(rows=rows).to(ps.memory()), parallelism=parallelism, epoch="1s")
    harness.advance("0.9s")
    assert (harness.rows(), harness.committed_epoch) == ([], 0)
    harness.advance("0.5s")
    assert [row["k"] for row in harness.rows()] == ["a"]
    assert harness.committed_epoch == 1
    harness.advance("1s")
    assert [row["k"] for row in harness.rows()] == ["a", "b"]
    before = harness.committed_epoch
    harness.advance("3s")
    assert harness.committed_epoch == before + 3, "epochs go on without records"
    assert not harness.ended
    harness.run()
    assert [row["k"] for row in harness.rows()] == ["a", "b", "c"]
    assert harness.ended


@WIDTHS
def test_a_drain_finishes_what_was_read_and_closes_the_windows(parallelism: int) -> None:
    rows = paced(events(300), every=10)
    counted = source(rows=rows).key_by("k").window(ps.tumbling("5s", on="at")).count()
    harness = Harness(counted.to(ps.memory()), parallelism=parallelism)
    harness.advance("12.5s")
    harness.drain()
    assert harness.ended
    read = harness.count("in", "records_out")
    assert read == 130
    assert bag(harness.rows()) == window_counts(events(300)[:read], 5 * S)


@WIDTHS
def test_sources_of_unequal_length_end_together(parallelism: int) -> None:
    short, long = [("s", 0, 0)], [("l", 0, 0), At("30s"), ("l", 1, 0)]
    stream = source("short", rows=short).merge(source("long", partitions=[long, [], [("l", 2, 0)]]))
    harness = Harness(stream.key_by("k").count().to(ps.memory()), parallelism=parallelism, epoch="1s")
    harness.run()
    assert harness.committed_epoch >= 30
    assert max(row["count"] for row in harness.rows() if row["k"] == "l") == 3


@pytest.mark.parametrize("parallelism", [2, 3])
def test_a_consumer_that_stands_still_stops_the_source(parallelism: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one worker's keyed unit stuck, every queue stays within its bound, and all is well once it goes on."""
    rows = [(f"k{i % 50}", i, 0) for i in range(30_000)]
    sink = ps.memory()
    pipeline = source(rows=rows).key_by("k").map(lambda r: (r.k, r.n, r.at), schema=EVENT, name="slow").to(sink)
    bound = 500
    plan = Plan.of(pipeline.graph(), Options.of(parallelism=parallelism, queue_records=bound))
    cluster = Cluster(plan)
    held = [
        unit for worker in cluster.workers for unit in worker.units if unit.spec.name == "slow" and unit.instance == 1
    ]
    assert len(held) == 1
    with monkeypatch.context() as patch:
        patch.setattr(held[0], "step", lambda now_us: False)
        cluster.run_until(cluster.start_us + 20 * S)
        source_unit = next(u for w in cluster.workers for u in w.units if u.spec.name == "in")
        read = source_unit.input.stats.records_in
        assert 0 < read < len(rows) // 2, "the source read on although its consumer stood still"
        largest = 8_192
        for worker in cluster.workers:
            for unit in worker.units:
                for output in unit.outputs:
                    for log in output.logs:
                        assert log.unread_records("edge") <= bound + largest
        assert held[0].input.waiting_records(cluster.now_us) <= bound
        cluster.run_until(cluster.start_us + 25 * S)
        assert source_unit.input.stats.records_in == read
    cluster.run_until(1 << 62)
    assert cluster.ended
    assert bag(sink.dicts()) == bag(rows)


@WIDTHS
def test_windows_over_the_results_of_windows_close_in_time(parallelism: int) -> None:
    rows = events(400, keys=40)
    small = source(rows=[*paced(rows), At("99s")]).key_by("k").window(ps.tumbling("1s", on="at")).count()
    large = small.key_by("k").window(ps.tumbling("10s", on="window_start")).sum("count")
    harness = Harness(large.to(ps.memory()), parallelism=parallelism, epoch="100ms")
    harness.advance("38s")
    assert {row["window_start"] for row in harness.rows()} >= {0, 10 * S}, "they wait for the end of the input"
    harness.run()
    assert bag(harness.rows()) == window_counts(rows, 10 * S)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_windows_close_although_filters_and_keys_leave_instances_without_event_time(parallelism: int) -> None:
    rows = [item for i in range(50) for item in (At(i), {"a": f"a{i % 5}", "b": "one", "t": i * 1_000_000})]
    events = ps.stream("events", ps.records([*rows, At(60)], schema="a string, b string, t timestamp"))
    sparse = events.key_by("a").filter(ps.col("a") == "a1")
    counts = sparse.key_by("b").window(ps.tumbling("5s", on="t")).count()
    harness = Harness(counts.to(ps.memory()), parallelism=parallelism)
    harness.advance("55s")
    closed = harness.rows()
    assert len(closed) >= 8
    harness.run()
    assert sum(row["count"] for row in harness.rows()) == 10


def test_records_cannot_be_changed_by_a_function() -> None:
    def change(record: object) -> object:
        record.n = 2
        return record

    numbers = ps.stream("numbers", ps.records([(1,)], schema="n bigint"))
    with pytest.raises(OperationFailed, match="immutable"):
        ps.testing.collect(numbers.map(change, schema="n bigint"))


def test_a_stall_is_not_taken_for_silence() -> None:
    """Both partitions have records when the process goes on: the one that is read first must not outrun the other."""
    columns = {"k": ps.fields.choice(["a", "b"]), "t": ps.fields.event_time()}
    read = ps.generator(columns, rate=1000, total=4000, format="columns", partitions=2)
    sink = ps.memory()
    counted = ps.stream("in", read).key_by("k").window(ps.tumbling("10ms", on="t")).count()
    plan = Plan.of(counted.to(sink).graph(), Options.of(parallelism=1, epoch="200ms", idle="500ms"))
    cluster = Cluster(plan)
    cluster.run_until(cluster.start_us + S)
    cluster.now_us += 2 * S
    cluster.run_until(1 << 62)
    figures = {each.operation: each for worker in cluster.workers for each in worker.figures()}
    assert figures["count"].late == 0
    assert sum(row.count for row in sink.rows) == 4000


def test_a_stall_is_not_taken_for_silence_although_nothing_is_due_when_it_is_over() -> None:
    """A partition has a record just before a process stands still, and one just after: it was not silent for `idle`."""
    busy: list[Any] = [each for i in range(400) for each in (At(i / 100), ("a", i * 10_000))]
    slow: list[Any] = [At("150ms"), ("b", 150_000), At("3050ms"), ("b", 160_000)]
    sink = ps.memory()
    read = ps.records(schema="k string, t timestamp", partitions=[busy, slow])
    counted = ps.stream("in", read).key_by("k").window(ps.tumbling("10ms", on="t")).count()
    cluster = Cluster(Plan.of(counted.to(sink).graph(), Options.of(parallelism=1, epoch="200ms", idle="500ms")))
    cluster.run_until(cluster.start_us + S // 5)
    cluster.now_us = cluster.start_us + 3 * S
    cluster.run_until(1 << 62)
    assert sum(each.late for worker in cluster.workers for each in worker.figures()) == 0
    assert sum(row.count for row in sink.rows if row.k == "b") == 2


@WIDTHS
@pytest.mark.parametrize("window", [None, "5s"])
def test_a_value_for_every_record_is_one_for_every_record(parallelism: int, window: str | None) -> None:
    """Records of a key come together in blocks, in which the count changes several times."""
    rows = events(300, keys=5)
    keyed = source(rows=paced(rows, every=100)).key_by("k")
    counted = keyed.count(emit="every") if window is None else keyed.window(window, on="at", emit="every").count()
    first = counted.filter(ps.col("count") == 1)
    pipeline = counted.to(ps.memory(), name="all") + first.to(ps.memory(), name="first")
    harness = Harness(pipeline, parallelism=parallelism)
    harness.run()
    found = defaultdict(list)
    for row in harness.rows("all"):
        found[row["k"], row.get("window_start")].append(row["count"])
    groups = Counter((k, None if window is None else at - at % (5 * S)) for k, _, at in rows)
    assert found == {group: list(range(1, n + 1)) for group, n in groups.items()}
    assert len(harness.rows("first")) == len(groups)


def test_without_a_window_nothing_closes() -> None:
    with pytest.raises(PenstockError, match="without a window nothing closes"):
        source(rows=[]).key_by("k").count(emit="close")
