"""A window of many keys closes in parts: records pass in between, and the watermark goes on behind the last one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

import penstock as ps
from penstock.dataset import Mark
from penstock.engine.event_time import Origin
from penstock.engine.snapshot import UnitSnapshot
from penstock.engine.times import Times
from penstock.engine.unit import Unit
from penstock.operators import Result
from penstock.operators.keyed.reduce import ReduceOperator
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.testing.cluster import Cluster

S = 1_000_000
KEYS, RECORDS = 200, 4_000


def windows(out: ps.Sink, name: str = "events") -> ps.Pipeline:
    """The keys of each second, and how many windows of them there were in three seconds."""
    fields = {"n": ps.fields.sequence(), "at": ps.fields.event_time(unit="us")}
    events = ps.stream(name, ps.generator(fields, rate=1_000, total=RECORDS, format="columns"))
    keys = events.select("at", k=ps.col("n") % KEYS).key_by("k").window("1s", on="at").count(name="first")
    return keys.key_by("k").window("3s", on="window_start").count(name="second").to(out)


def cluster_of(pipeline: ps.Pipeline, parallelism: int = 1) -> Cluster:
    options = Options.of(parallelism=parallelism, epoch="100ms")
    return Cluster(Plan.of(pipeline.graph(), replace(options, state_slice=40)))


def is_behind(cluster: Cluster) -> bool:
    found = [unit.chain.stateful for share in cluster.workers for unit in share.units]
    return any(each is not None and each.behind_us is not None for each in found)


def check(out: ps.Sink, cluster: Cluster) -> None:
    """Every key is counted in every second in which it came."""
    seconds = {(n % KEYS, (cluster.start_us + n * 1_000) // S) for n in range(RECORDS)}
    found = Counter[int]()
    for row in out.rows:
        found[row.k] += row.count
    assert found == Counter(k for k, _ in seconds)


def test_parts_are_small_and_none_is_late_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    original = ReduceOperator.go_on

    def go_on(self: ReduceOperator) -> Result:
        result = original(self)
        sizes.append(len(result.rows))
        return result

    monkeypatch.setattr(ReduceOperator, "go_on", go_on)
    out = ps.memory()
    cluster = cluster_of(windows(out))
    cluster.run_until(cluster.now_us + 60 * S)
    assert cluster.ended
    assert max(sizes) <= 40 // 4
    check(out, cluster)
    figures = [each for share in cluster.workers for unit in share.units for each in unit.figures()]
    assert sum(each.late for each in figures) == 0


def test_a_crash_within_a_close_repeats_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    epochs: set[int] = set()
    restored = 0
    take_marker, restore = Unit._take_marker, Times.restore

    def taking(self: Unit, mark: Mark, epoch: int | None, now_us: int) -> None:
        if self.chain.stateful is not None and self.chain.stateful.behind_us is not None:
            epochs.add(self.done_epoch + 1)
        take_marker(self, mark, epoch, now_us)

    def restoring(self: Times, snapshot: UnitSnapshot) -> Sequence[Origin]:
        nonlocal restored
        told = restore(self, snapshot)
        restored += self.is_behind
        return told

    monkeypatch.setattr(Unit, "_take_marker", taking)
    monkeypatch.setattr(Times, "restore", restoring)
    out = ps.memory()
    cluster = cluster_of(windows(out), parallelism=2)
    while not cluster.ended and restored < 3:
        cluster.run_until(cluster.now_us + 20_000, steps=3)
        if is_behind(cluster):
            # Time passes while it is at work, so that markers come.
            cluster.now_us += 20_000
            cluster._driver.tick(cluster.now_us)
        if cluster.committed_epoch in epochs:
            epochs.remove(cluster.committed_epoch)
            cluster.crash(restored % 2)
    cluster.run_until(cluster.now_us + 60 * S)
    assert cluster.ended
    assert restored >= 3, "it has tested something"
    check(out, cluster)


@pytest.mark.parametrize(
    "window",
    [ps.tumbling("1h", on="at"), ps.tumbling("1h", on="at", early="30m"), ps.session("1h", on="at")],
    ids=["tumbling", "early", "session"],
)
def test_what_is_open_at_the_end_leaves_in_parts_and_waits_for_room(window: Any) -> None:
    """Behind the windows nobody reads: no more leaves than an edge holds."""
    events = ps.stream("events", ps.records([(k, k) for k in range(2_000)], schema="k bigint, at timestamp"))
    out = ps.memory()
    pipeline = events.key_by("k").window(window).count().key_by("k").filter(ps.col("count") > 0).to(out)
    options = Options.of(parallelism=2, epoch="100ms", queue_records=100)
    cluster = Cluster(Plan.of(pipeline.graph(), replace(options, state_slice=40)))
    units = [unit for share in cluster.workers for unit in share.units]
    stuck = [unit for unit in units if unit.spec.source is None and unit.chain.stateful is None]
    for unit in stuck:
        unit.step = lambda now_us: False  # type: ignore[method-assign]
    cluster.run_until(cluster.now_us + S)
    left = sum(unit.chain.stages[0].stats.records_out for unit in units if unit.chain.stateful is not None)
    assert 200 <= left < 500, "as many as two logs and their readers hold"
    for unit in stuck:
        del unit.step
    cluster.run_until(cluster.now_us + 60 * S)
    assert cluster.ended
    results = 2 if window.early_us else 1
    assert Counter(row.k for row in out.rows) == Counter(dict.fromkeys(range(2_000), results))
