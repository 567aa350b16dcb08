"""Key groups with more than their share of the records are seen where records are dealt out, and named."""

from __future__ import annotations

from random import Random
from typing import Any

from scheduling import COUNT, plan_for

import penstock as ps
from penstock.control.hot_groups import HotGroups
from penstock.engine.heat import SAMPLES_MAX, Heat
from penstock.operators.keys import key_group, owner
from penstock.protocol import messages as m
from penstock.runtime.job import plan_of
from penstock.testing.cluster import Cluster
from penstock.types import Schema

ROW = Schema.parse("k string").record_type


def beat(worker: int, heat: Heat) -> m.Heartbeat:
    (edge,) = [each.id for each in plan_for(4).edges if each.consumer == COUNT]
    edges = [m.EdgeFigures(edge=edge, samples=heat.samples, hottest=heat.hottest())]
    figures: dict[str, Any] = {"stats": [], "rss_bytes": 0, "cpu_us": 0, "offsets": {}}
    return m.Heartbeat(worker=worker, incarnation=1, at_us=0, edges=edges, **figures)


def sampled(keys: list[str]) -> Heat:
    heat = Heat(("k",))
    for key in keys:
        heat.add(ROW(key))
    return heat


def test_a_key_with_much_of_the_records_is_found_over_all_workers() -> None:
    groups, random = HotGroups(plan_for(4)), Random(1)
    for worker in (0, 1):
        keys = ["ann"] * 400 + [f"k{random.randrange(10_000)}" for _ in range(600)]
        groups.on_heartbeat(beat(worker, sampled(keys)))
    (found,) = groups.found()
    assert (found.group, found.instance) == (key_group("ann"), owner("ann", 4))
    assert found.share == 0.4
    assert str(found).startswith(
        f"key group {found.group} ('ann', instance {found.instance}) has 40% of the records of"
    )
    groups.forget(0)
    groups.forget(1)
    assert groups.found() == []


def test_few_keys_or_few_samples_are_no_reason_to_speak() -> None:
    groups = HotGroups(plan_for(4))
    groups.on_heartbeat(beat(0, sampled([f"k{i % 8}" for i in range(800)])))
    assert groups.found() == []
    groups.on_heartbeat(beat(0, sampled(["ann"] * 99)))
    assert groups.found() == []


def test_what_was_long_ago_counts_less() -> None:
    heat = sampled(["old"] * (SAMPLES_MAX - 1) + ["new"] * (3 * SAMPLES_MAX))
    (first, *_) = heat.hottest()
    assert first.group == key_group("new")
    assert heat.samples < SAMPLES_MAX


def test_workers_tell_what_they_have_dealt_out() -> None:
    rows = [("ann" if i % 2 else f"k{i}",) for i in range(20_000)]
    counts = ps.stream("in", ps.records(rows, schema="k string")).key_by("k").count(emit="every")
    cluster = Cluster(plan_of(counts.to(ps.memory()), parallelism=2))
    cluster.run_until(1 << 62)
    hottest = [each for share in cluster.workers for edge in share.edge_figures() for each in edge.hottest]
    assert hottest
    assert hottest[0].key == "'ann'"
