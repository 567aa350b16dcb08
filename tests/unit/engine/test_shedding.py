"""Records that are dropped because they, or too many, have waited: counted, dead letters, once also after a crash."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.errors import InvalidOption
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.testing.cluster import Cluster

S = 1_000_000


def same(record: Any) -> Any:
    return record.n


def cluster_of(on_error: str, replicas: int = 0, **options: Any) -> tuple[Cluster, Any, Any]:
    source = ps.generator({"n": ps.fields.sequence()}, rate=1000, total=1000, format="columns")
    out, letters = ps.memory(), ps.memory()
    stream = ps.stream("in", source).map(same, schema="n bigint", name="same", on_error=on_error)
    options = {"parallelism": 1, "epoch": "100ms", "replicas": replicas, **options}
    return Cluster(Plan.of(stream.to(out).graph(), Options.of(**options), letters)), out, letters


def stall(cluster: Cluster, duration_us: int) -> None:
    """Nobody does anything for a while: what is due meanwhile waits."""
    cluster.now_us += duration_us


@pytest.mark.parametrize("replicas", [0, 2])
@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("on_error", ["dead_letter", "fail"])
def test_what_has_waited_too_long_is_dropped_once(on_error: str, crash: bool, replicas: int) -> None:
    cluster, out, letters = cluster_of(on_error, replicas, event_timeout="200ms")
    if replicas:
        cluster.want(0, 0, 0, 2)
    cluster.run_until(cluster.now_us + S // 2)
    cluster.run_until(cluster.start_us + S // 4)
    stall(cluster, S // 2)
    cluster.run_until(cluster.now_us + 1)
    if crash:
        cluster.crash(0)
    cluster.run_until(1 << 62)
    handled = [row.n for row in out.rows]
    dropped = [row.offset for row in letters.rows]
    figures = {each.operation: each for worker in cluster.workers for each in worker.figures()}
    source = figures["in"]
    assert source.records_in == 1000
    assert source.timed_out == 1000 - len(handled) > 0
    assert (source.skipped, source.over_bound) == (0, 0), "dropped is not skipped, and each has one cause"
    assert handled == sorted(set(handled))
    if on_error == "dead_letter":
        assert sorted(handled + dropped) == list(range(1000)), "each record is handled or dropped, once"
        assert source.dead_letters == source.timed_out
        assert all(row.error.startswith("EventTimeout: waited") and row.operation == "in" for row in letters.rows)
    else:
        assert (letters.rows, source.dead_letters) == ([], 0)


def test_of_too_many_that_wait_the_oldest_are_dropped() -> None:
    cluster, out, letters = cluster_of("dead_letter", queue_bound=100)
    cluster.run_until(cluster.now_us + S // 2)
    cluster.run_until(cluster.start_us + S // 4)
    stall(cluster, S // 2)
    cluster.run_until(1 << 62)
    handled, dropped = [row.n for row in out.rows], [row.offset for row in letters.rows]
    assert sorted(handled + dropped) == list(range(1000))
    assert dropped
    assert dropped == list(range(dropped[0], dropped[0] + len(dropped))), "those that had waited longest"
    assert all("more than queue_bound=100" in row.error for row in letters.rows)


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("on_error", ["dead_letter", "fail"])
def test_where_slots_read_the_source_the_bound_holds_too(on_error: str, crash: bool) -> None:
    cluster, out, letters = cluster_of(on_error, queue_bound=100)
    slot = cluster._slots[cluster.add_slot(0)]
    cluster.run_until(cluster.now_us + S // 2)
    cluster.switch(0, -1, 0)
    cluster.run_until(cluster.start_us + S // 4)
    (unit,) = (unit for worker in cluster.workers for unit in worker.units if unit.spec.source)
    assert unit.way.range.first == -1, "the slot reads the source"
    assert not letters.rows
    slot.step = lambda now_us: False  # type: ignore[method-assign]
    slot.wake_us = lambda: 1 << 62  # type: ignore[method-assign]
    cluster.run_until(cluster.now_us + S // 2)
    assert unit.input.waiting_records(cluster.now_us) <= 100 + 10, "no more, but for what came in the last interval"
    del slot.step, slot.wake_us
    if crash:
        cluster.crash(0)
    cluster.run_until(1 << 62)
    handled, dropped = [row.n for row in out.rows], [row.offset for row in letters.rows]
    (source,) = (each for worker in cluster.workers for each in worker.figures() if each.operation == "in")
    assert source.over_bound == 1000 - len(handled) > 0
    assert (source.records_in, source.skipped, source.timed_out) == (1000, 0, 0)
    assert handled == sorted(set(handled))
    if on_error == "dead_letter":
        assert sorted(handled + dropped) == list(range(1000)), "each record is handled or dropped, once"
        assert source.dead_letters == source.over_bound


def test_nothing_is_dropped_unless_it_is_asked_for() -> None:
    cluster, out, letters = cluster_of("dead_letter")
    stall(cluster, 5 * S)
    cluster.run_until(1 << 62)
    assert (len(out.rows), letters.rows) == (1000, [])


def test_what_is_on_time_is_not_dropped() -> None:
    cluster, out, letters = cluster_of("dead_letter", event_timeout="50ms", queue_bound=100)
    cluster.run_until(1 << 62)
    assert (len(out.rows), letters.rows) == (1000, [])


@pytest.mark.parametrize("options", [{"event_timeout": 0}, {"event_timeout": "-1s"}, {"queue_bound": 0}])
def test_options_that_cannot_be_are_refused(options: Any) -> None:
    with pytest.raises(InvalidOption):
        Options.of(**options)
