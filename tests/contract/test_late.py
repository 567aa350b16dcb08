"""A record that comes too late is counted once, whatever happens to the instance that has counted it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import penstock as ps
from penstock.control.events import ShiftWanted
from penstock.control.scheduler import Resumption
from penstock.pipeline.plan import Plan
from penstock.runtime.job import plan_of
from penstock.testing import At
from penstock.testing.cluster import Cluster

MS = 1_000
ROWS = [(f"k{n % 7}", n, (n - 30 if n % 3 == 2 else n) * 5 * MS) for n in range(180)]
"""Every third record is 150 ms behind the one before it."""
LATE = len([n for n in range(180) if n % 3 == 2])
FOREVER_US = 1 << 62


def events() -> ps.Stream:
    script = [each for _, n, at in ROWS for each in (At(n * 0.005), (f"k{n % 7}", n, at))]
    return ps.stream("in", ps.records(partitions=[script], schema="k string, n bigint, at timestamp"))


def counted(stream: ps.Stream) -> ps.Stream:
    return stream.key_by("k").window("20ms", on="at").count()


class Total(ps.Process):
    total = ps.state.value(int, default=0)

    def on_record(self, record: Any, ctx: Any) -> Any:
        self.total += record.n
        yield record.k, self.total


SHAPES: dict[str, Callable[[ps.Stream], ps.Stream]] = {
    "windows": counted,
    "whole records": lambda s: s.key_by("k").window("20ms", on="at").aggregate(n=ps.agg.first("n")),
    "sessions": lambda s: s.key_by("k").window(ps.session("2ms", on="at")).count(),
    "early": lambda s: s.key_by("k").window(ps.tumbling("20ms", on="at", early="10ms")).count(),
    "by number": lambda s: s.key_by("k").window(ps.count_window(3, on="at")).aggregate(n=ps.agg.count()),
    "distinct": lambda s: s.drop_duplicates("k", on="at", within="1ms"),
    "expiring": lambda s: s.key_by("k").count(emit="every", ttl="11ms", on="at"),
    "process": lambda s: s.key_by("k").process(Total, schema="k string, total bigint", time="at"),
    "alternatives": lambda s: s.alternatives("count", one=counted, two=counted),
}


def planned(shape: str, **options: Any) -> Plan:
    options = {"epoch": "10ms", "parallelism": 3, **options}
    plan = plan_of(SHAPES[shape](events()).to(ps.memory()), **options)
    # State is written in pieces, however little there is, so that some of it is loaded ahead.
    return replace(plan, options=replace(plan.options, state_slice=1))


def begun(plan: Plan, until_ms: int) -> Cluster:
    cluster = Cluster(plan)
    cluster.run_until(cluster.start_us + until_ms * MS)
    assert 0 < late_of(cluster) < LATE, "it happens when some have been counted, and some are to come"
    return cluster


def late_of(cluster: Cluster) -> int:
    return sum(each.late for worker in cluster.workers for each in worker.figures())


@pytest.mark.parametrize("shape", SHAPES)
def test_a_worker_is_lost(shape: str) -> None:
    cluster = begun(planned(shape), 203)
    cluster.crash(0)
    cluster.run_until(cluster.start_us + 254 * MS)
    cluster.crash(1)
    cluster.run_until(FOREVER_US)
    assert late_of(cluster) == LATE


@pytest.mark.parametrize("shape", SHAPES)
def test_instances_move_to_other_workers(shape: str) -> None:
    cluster = begun(planned(shape, workers=1), 160)
    cluster.scale(3)
    cluster.run_until(FOREVER_US)
    assert cluster.moves
    assert late_of(cluster) == LATE


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "alternatives"])
@pytest.mark.parametrize("workers", [1, 3], ids=["one worker", "other workers"])
def test_key_groups_go_to_another_instance(shape: str, workers: int) -> None:
    plan = planned(shape, workers=workers)
    (unit,) = [each.id for each in plan.units if each.is_stateful]
    cluster = begun(plan, 160)
    shifting = cluster._driver.scheduler.rescaling.shifting
    groups = tuple(shifting.owned(unit, 0)[::2])
    cluster._driver.handle(ShiftWanted(unit, 0, 1, groups, "wanted"), cluster.now_us)
    cluster.run_until(FOREVER_US)
    assert [(each.old, each.new) for each in shifting.reports] == [(0, 1)]
    assert late_of(cluster) == LATE


def test_the_job_is_started_again() -> None:
    plan = planned("windows")
    first = begun(plan, 203)
    last = first.commits[-1]
    second = Cluster(plan, Resumption(last.epoch, last.start_us, last.generation, last.snapshots), first.disk)
    second.run_until(FOREVER_US)
    assert late_of(second) == LATE


def test_another_alternative_takes_over() -> None:
    cluster = begun(planned("alternatives"), 203)
    cluster.use("count", "two")
    cluster.run_until(FOREVER_US)
    assert cluster.adaptation.alternatives["count"].active == "two"
    assert late_of(cluster) == LATE


def test_an_alternative_that_is_warmed_up_counts_nothing_of_what_the_other_one_has() -> None:
    stream = events().alternatives(
        "count", one=counted, two=lambda s: s.key_by("k").window("40ms", on="at").count(), warm_up="50ms"
    )
    cluster = begun(plan_of(stream.to(ps.memory()), epoch="10ms", parallelism=3), 203)
    cluster.use("count", "two")
    cluster.run_until(FOREVER_US)
    (report,) = cluster.adaptation.switches
    assert report.warm_ms >= 50
    assert late_of(cluster) == LATE


def test_an_alternative_that_fails_in_the_middle_of_a_block_counts_nothing_of_it() -> None:
    class Failing(Total):
        def on_record(self, record: Any, ctx: Any) -> Any:
            if record.n >= 30:
                raise ConnectionError("away")
            yield from super().on_record(record, ctx)

    def total(function: type[ps.Process]) -> Callable[[ps.Stream], ps.Stream]:
        return lambda s: s.key_by("k").process(function, schema="k string, total bigint", time="at")

    stream = events().alternatives(
        "total",
        best=total(Failing),
        next=total(Total),
        prefer=["best", "next"],
        falls_back_on=ConnectionError,
    )
    cluster = Cluster(plan_of(stream.to(ps.memory()), epoch="10ms", parallelism=2))
    cluster.run_until(FOREVER_US)
    assert cluster.adaptation.alternatives["total"].active == "next"
    assert late_of(cluster) == LATE
