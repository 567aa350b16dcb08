"""Figures of a run through the real machines: they cover losses in it, and leave out the runs before it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import penstock as ps
from penstock.control.monitor import Monitor
from penstock.control.scheduler import Resumption
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.testing.cluster import START_US, Cluster

TOTAL = 4_000
S = 1_000_000
FOREVER_US = 1 << 62


def plan() -> Plan:
    fields = {"n": ps.fields.sequence(), "k": ps.fields.integers(0, 9)}
    source = ps.generator(fields, rate=2_000, total=TOTAL, format="columns", partitions=2)
    pipeline = ps.stream("numbers", source).key_by("k").count().to(ps.memory(), name="out")
    return Plan.of(pipeline.graph(), Options.of(parallelism=2, epoch="200ms"))


def monitor_of(cluster: Cluster) -> Monitor:
    return cluster._driver.monitor


def records(monitor: Monitor) -> dict[str, int]:
    return {each.name: each.records_in for each in monitor.operations()}


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, int]:
    cluster = Cluster(plan())
    cluster.run_until(FOREVER_US)
    found = records(monitor_of(cluster))
    assert found["numbers"] == TOTAL
    assert monitor_of(cluster).latency("count").total == found["count"]
    return found


def crash_both(cluster: Cluster) -> None:
    for worker in (0, 1):
        cluster.crash(worker)


def crash_one(cluster: Cluster) -> None:
    cluster.crash(1)  # the other is rolled back where it is


@pytest.mark.parametrize("lose", [crash_one, crash_both])
def test_latency_covers_the_run_and_records_are_counted_once(
    undisturbed: dict[str, int], lose: Callable[[Cluster], None]
) -> None:
    cluster = Cluster(plan())
    for moment in (1, 2):
        cluster.run_until(START_US + moment * S)
        told = monitor_of(cluster).latency("count").total
        assert told > 0
        lose(cluster)
    cluster.run_until(FOREVER_US)
    monitor = monitor_of(cluster)
    assert records(monitor)["numbers"] == TOTAL
    # All that any life of an instance has told of is there; what was told twice was done twice.
    assert monitor.latency("count").total >= max(told, undisturbed["count"] // 2)
    assert monitor.latency("numbers").total >= TOTAL * 9 // 10


def test_a_resumed_run_counts_its_own() -> None:
    first = Cluster(plan())
    first.run_until(START_US + S)
    last = first.commits[-1]
    assert last.epoch > 0
    resumption = Resumption(last.epoch, last.start_us, last.generation, last.snapshots)
    second = Cluster(plan(), resumption, first.disk)
    second.run_until(FOREVER_US)
    monitor = monitor_of(second)
    before = monitor.before({"numbers"})
    assert 0 < before < TOTAL
    assert monitor.events_in() + before == TOTAL
    assert monitor.latency("numbers").total == monitor.events_in()
    figures = {each.name: each for each in monitor.operations()}
    assert figures["count"].records_in + monitor.before({"count"}) >= figures["count"].records_in > 0
    assert second._driver.scheduler.began_us > 0
