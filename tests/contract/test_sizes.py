"""Large records and small limits in whole jobs: everything is cut and bounded by bytes, and nothing is lost for it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from test_recovery import step

import penstock as ps
from penstock.connectors.memory import At
from penstock.engine import slices
from penstock.errors import LimitExceeded
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m
from penstock.testing.cluster import Cluster

S = 1_000_000
LIMIT = 60_000
FORMS = pytest.mark.parametrize("form", ["record", "batch"])


class Lanes(Cluster):
    """A cluster whose inboxes close the connection on frames that are too large, as real ones do."""

    largest = 0

    def _deliver(self, to: str, frames: Any) -> None:
        largest = max(map(len, frames))
        self.largest = max(self.largest, largest)
        if largest <= m.MESSAGE_BYTES_MAX:
            super()._deliver(to, frames)


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> int:
    """No frame may be larger than this."""
    monkeypatch.setattr(m, "MESSAGE_BYTES_MAX", LIMIT)
    monkeypatch.setattr(slices, "MESSAGE_BYTES_MAX", LIMIT)
    return LIMIT


def cluster_of(pipeline: ps.Pipeline, parallelism: int, form: str = "record", **sizes: int) -> Lanes:
    options = replace(Options.of(name="sizes", parallelism=parallelism, epoch="100ms"), **sizes)
    plan = Plan.of(pipeline.graph(), options)
    cluster = Lanes(plan)
    if form == "batch":
        for slot in range(2):
            cluster.add_slot(slot)
        for unit in plan.units:
            if unit.movable:
                cluster.switch(unit.id, unit.movable[0], unit.movable[-1])
    return cluster


def texts(count: int, length: int) -> list[tuple[str, int, str]]:
    return [(f"k{i % 7}", i, chr(97 + i % 26) * length) for i in range(count)]


@FORMS
@pytest.mark.parametrize("length", [100, 5_000, LIMIT - 1_000])
def test_heavy_records_pass_a_shuffle_and_come_to_the_driver(limit: int, form: str, length: int) -> None:
    rows, sink = texts(300, length), ps.memory()
    stream = ps.stream("in", ps.records(rows, schema="k string, n bigint, text string", partitions=2))
    kept = stream.filter(ps.col("n") >= 0).key_by("k").filter(ps.col("n") >= 0)
    cluster = cluster_of(kept.to(sink), 2, form)
    cluster.run_until(1 << 62)
    assert Counter((row.k, row.n, row.text) for row in sink.rows) == Counter(rows)
    assert cluster.largest <= limit
    for parity in range(2):
        for key in range(7):  # of each partition and key, in order
            numbers = [row.n for row in sink.rows if row.k == f"k{key}" and row.n % 2 == parity]
            assert numbers == sorted(numbers)


@FORMS
def test_a_window_that_closes_with_more_than_a_message_holds_is_cut(limit: int, form: str) -> None:
    rows: list[Any] = [(f"key {i} {'x' * 50}", 0) for i in range(5_000)]
    sink = ps.memory()
    stream = ps.stream("in", ps.records([*rows, At("1s"), ("late", 30 * S)], schema="k string, at timestamp"))
    counted = stream.key_by("k").window(ps.tumbling("10s", on="at")).count()
    again = counted.key_by("k").filter(ps.col("count") > 0)
    # In one piece, as it would be with heavy rows: small ones leave in parts that no message is too small for.
    cluster = cluster_of(again.to(sink), 2, form, state_slice=100_000)
    cluster.run_until(1 << 62)
    expected = Counter({(k, 0, 10 * S, 1): 1 for k, _ in rows}) + Counter([("late", 30 * S, 40 * S, 1)])
    assert Counter((row.k, row.window_start, row.window_end, row.count) for row in sink.rows) == expected
    assert cluster.largest <= limit


@FORMS
def test_a_record_that_cannot_travel_names_the_operation(limit: int, form: str) -> None:
    rows = [("a", "x"), ("b", "y"), ("c", "x" * 2 * LIMIT), ("d", "z" * 2 * LIMIT), ("e", "z" * 2 * LIMIT)]
    stream = ps.stream("in", ps.records(rows, schema="k string, text string"))
    kept = stream.filter(ps.col("k") != "", name="kept").key_by("k").filter(ps.col("k") != "", name="there")
    cluster = cluster_of(kept.to(ps.memory()), 3, form)
    with pytest.raises(LimitExceeded) as raised:
        cluster.run_until(1 << 62)
    assert raised.value.operation == "kept"
    assert "120" in raised.value.what


def test_a_record_that_the_driver_cannot_take_names_the_sink(limit: int) -> None:
    stream = ps.stream("in", ps.records([("x" * 2 * LIMIT,)], schema="text string"))
    with pytest.raises(LimitExceeded) as raised:
        cluster_of(stream.to(ps.memory(), name="out"), 1).run_until(1 << 62)
    assert raised.value.operation == "out"


def test_what_waits_is_bounded_in_bytes_while_nobody_reads() -> None:
    """The consumers stand still: a source of 20 MB stops after what the queues hold."""
    rows, queue_bytes = texts(2_000, 10_000), 200_000
    stream = ps.stream("in", ps.records(rows, schema="k string, n bigint, text string"))
    sink = ps.memory()
    cluster = cluster_of(stream.key_by("k").filter(ps.col("n") >= 0).to(sink), 2, queue_bytes=queue_bytes)
    plan = cluster._plan
    stuck = [unit for worker in cluster.workers for unit in worker.units if unit.spec.source is None]
    for unit in stuck:
        unit.step = lambda now_us: False  # type: ignore[method-assign]
    cluster.run_until(cluster.start_us + S)
    producers = [unit for worker in cluster.workers for unit in worker.units if unit.spec.source is not None]
    logs = [log for unit in producers for output in unit.outputs for log in output.logs]
    assert all(log.retained_bytes <= queue_bytes + 2 * plan.options.block_bytes for log in logs)
    read = sum(
        unit.input.arrived_records(cluster.now_us) - unit.input.waiting_records(cluster.now_us) for unit in producers
    )
    assert 10 < read < 500
    for unit in stuck:
        del unit.step
    cluster.run_until(1 << 62)
    assert Counter((row.k, row.n) for row in sink.rows) == Counter((k, n) for k, n, _ in rows)


def test_what_is_kept_for_replay_is_bounded_in_bytes() -> None:
    """An epoch of an hour: it is the bytes that are kept that bring commits about."""
    rows, queue_bytes = texts(2_000, 10_000), 200_000
    sink = ps.memory()
    stream = ps.stream("in", ps.records(rows, schema="k string, n bigint, text string"))
    pipeline = stream.key_by("k").filter(ps.col("n") >= 0).to(sink)
    cluster = cluster_of(pipeline, 2, queue_bytes=queue_bytes, epoch_us=3600 * S, block_bytes=20_000)
    largest = 0
    while not cluster.ended:
        step(cluster)
        for worker in cluster.workers:
            logs = [log for unit in worker.units for output in unit.outputs for log in output.logs]
            largest = max([largest, *(log.retained_bytes for log in logs)])
    assert len(sink.rows) == 2_000
    assert queue_bytes < largest < 9 * queue_bytes
    assert cluster.committed_epoch > 3


@pytest.mark.parametrize("queue_bytes", [1, 1_000])
def test_a_marker_comes_through_however_much_is_kept(queue_bytes: int) -> None:
    """Records before the marker need room, and there is none before the commit that the marker brings."""
    rows = texts(200, 100)
    sink = ps.memory()
    stream = ps.stream("in", ps.records(rows, schema="k string, n bigint, text string"))
    pipeline = stream.key_by("k").filter(ps.col("n") >= 0).key_by("n").filter(ps.col("n") >= 0).to(sink)
    cluster = cluster_of(pipeline, 2, queue_bytes=queue_bytes, block_bytes=1)
    cluster.run_until(cluster.start_us + 600 * S)
    assert cluster.ended
    assert Counter((row.k, row.n, row.text) for row in sink.rows) == Counter(rows)
