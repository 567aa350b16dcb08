"""Whole instances that switch between ways, and whose slots stall, stay away or are lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

import penstock as ps
from penstock.engine.inputs import Readers
from penstock.engine.slot import SlotMachine
from penstock.engine.unit import Unit
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m
from penstock.protocol.link import Kind
from penstock.testing.cluster import Cluster

MS, S = 1_000, 1_000_000


class Listening(Cluster):
    """A cluster that remembers what instances say of hand-overs."""

    def __init__(self, plan: Plan) -> None:
        self.switched: list[tuple[int, int, int]] = []
        super().__init__(plan)

    def _deliver(self, to: str, frames: Sequence[bytes]) -> None:
        if frames[0] == Kind.WORKER.value and len(frames) > 2:
            message = m.decode_from_worker(frames[2])
            if isinstance(message, m.Changed):
                self.switched.append((message.number, message.unit, message.instance))
        super()._deliver(to, frames)

    def freeze(self, name: str) -> SlotMachine:
        """Let a slot do nothing, until it is thawed."""
        slot = self._slots[name]
        slot.step = lambda now_us: False  # type: ignore[method-assign]
        slot.wake_us = lambda: 1 << 62  # type: ignore[method-assign]
        return slot

    @staticmethod
    def thaw(slot: SlotMachine) -> None:
        del slot.step, slot.wake_us  # type: ignore[method-assign]

    @property
    def sources(self) -> list[Unit]:
        return [unit for worker in self.workers for unit in worker.units if isinstance(unit.input, Readers)]


def windowed(partitions: int, total: int, **options: Any) -> tuple[Listening, Any, Any]:
    columns = {"k": ps.fields.choice(["a", "b"]), "n": ps.fields.integers(0, 99), "t": ps.fields.event_time()}
    source = ps.generator(columns, rate=2000, total=total, format="columns", partitions=partitions)
    sink = ps.memory()
    stream = ps.stream("in", source).filter(ps.col("n") >= 0)
    counted = stream.key_by("k").window(ps.tumbling("10ms", on="t")).count()
    plan = Plan.of(counted.to(sink).graph(), Options.of(parallelism=1, epoch="200ms", interval="5ms", **options))
    return Listening(plan), source, sink


def check(cluster: Cluster, source: Any, sink: Any, total: int) -> None:
    rows = source.records(0, total, cluster.start_us)
    expected = Counter((row.k, row.t - row.t % (10 * MS)) for row in rows)
    assert Counter({(row.k, row.window_start): row.count for row in sink.rows}) == expected
    figures = {each.operation: each for worker in cluster.workers for each in worker.figures()}
    assert figures["count"].late == 0
    assert [figures[name].records_in for name in ("in", "filter", "count.combine")] == [total] * 3


@pytest.mark.parametrize("route", [(-1, 1), (0, 1), (0, 0), (1, 1)], ids=str)
def test_who_waits_for_slots_has_not_been_silent(route: tuple[int, int]) -> None:
    cluster, source, sink = windowed(3, 3000, idle="200ms")
    name = cluster.add_slot(0)
    cluster.switch(0, *route)
    cluster.run_until(cluster.start_us + S // 4)
    slot = cluster.freeze(name)
    cluster.run_until(cluster.start_us + S)
    cluster.thaw(slot)
    cluster.run_until(1 << 62)
    check(cluster, source, sink, 3000)


@pytest.mark.parametrize("route", [(-1, 1), (0, 1), (1, 1)], ids=str)
def test_the_way_back_does_not_wait_for_slots_that_are_gone(route: tuple[int, int]) -> None:
    cluster, source, sink = windowed(2, 2000)
    cluster.add_slot(0)
    cluster.switch(0, *route)
    cluster.run_until(cluster.start_us + S // 4)
    cluster._slots.clear()
    cluster.run_until(cluster.start_us + S // 2)
    for worker in cluster.workers:
        worker.on_driver(m.GroupEnded(group=0))
    cluster.switch(0, 0, -1)
    cluster.run_until(1 << 62)
    check(cluster, source, sink, 2000)
    assert {switch for switch, _, _ in cluster.switched} == {1, 2}


@pytest.mark.parametrize("route", [(-1, 1), (0, 1)], ids=str)
def test_work_that_slots_are_lost_with_is_done_here(route: tuple[int, int]) -> None:
    cluster, source, sink = windowed(2, 2000)
    name = cluster.add_slot(0)
    cluster.switch(0, *route)
    cluster.run_until(cluster.start_us + S // 4)
    for _ in range(4):
        cluster.freeze(name)
        cluster.run_until(cluster.now_us + 20 * MS)
        before = set(cluster.slots)
        cluster.lose_slot(name)
        (name,) = set(cluster.slots) - before
    cluster.run_until(1 << 62)
    check(cluster, source, sink, 2000)


def test_nothing_spins_while_results_are_awaited() -> None:
    cluster, source, sink = windowed(2, 2000)
    name = cluster.add_slot(0)
    cluster.switch(0, -1, 1)
    cluster.run_until(cluster.start_us + S // 4)
    slot = cluster.freeze(name)
    cluster.run_until(cluster.now_us + 50 * MS)
    (unit,) = cluster.sources
    wake_us = unit.wake_us(cluster.now_us)
    assert wake_us is None or wake_us > cluster.now_us, "no slot has room"
    cluster.switch(0, 0, -1)
    cluster.run_until(cluster.now_us + 50 * MS)
    assert unit.wake_us(cluster.now_us) is None, "the way back waits for results"
    cluster.thaw(slot)
    cluster.run_until(1 << 62)
    check(cluster, source, sink, 2000)


def test_nothing_spins_while_the_end_is_in_line() -> None:
    cluster, _, sink = windowed(2, 2000)
    name = cluster.add_slot(0)
    cluster.switch(0, -1, 1)
    cluster.run_until(cluster.start_us + S // 4)
    slot = cluster.freeze(name)
    cluster.run_until(cluster.now_us + 20 * MS)
    cluster.drain()
    cluster.run_until(cluster.now_us + 20 * MS)
    (unit,) = cluster.sources
    assert not unit.finished
    assert unit.wake_us(cluster.now_us) is None
    read = sum(unit.input.offsets().values())
    cluster.thaw(slot)
    cluster.run_until(1 << 62)
    assert cluster.ended
    assert sum(row.count for row in sink.rows) == read


def test_instances_that_have_ended_answer_orders() -> None:
    columns = {"n": ps.fields.integers(0, 99)}
    long = ps.stream("long", ps.generator(columns, rate=1000, total=2000, format="columns", partitions=1))
    short = ps.stream("short", ps.generator(columns, rate=1000, total=10, format="columns", partitions=1))
    pipeline = long.to(ps.memory(), name="a") + short.to(ps.memory(), name="b")
    cluster = Listening(Plan.of(pipeline.graph(), Options.of(parallelism=1)))
    cluster.run_until(cluster.start_us + S // 2)
    ended = next(each for each in cluster.sources if each.finished)
    cluster.add_slot(0)
    cluster.switch(ended.spec.id, -1, 0)
    cluster.run_until(cluster.now_us + 10 * MS)
    assert cluster.switched == [(1, ended.spec.id, 0)]
    cluster.run_until(1 << 62)
    assert cluster.ended


def test_a_unit_goes_on_as_before_until_its_slots_have_built_the_operations() -> None:
    cluster, source, sink = windowed(1, 2000)
    name = cluster.add_slot(0)
    cluster.run_until(cluster.start_us + 10 * MS)
    slot = cluster.freeze(name)
    cluster.switch(0, 0, 1)
    cluster.run_until(cluster.start_us + S // 2)
    assert cluster.sources[0].chain.stages[0].stats.records_in == pytest.approx(1000, abs=10), "record by record"
    assert not cluster.switched
    cluster.thaw(slot)
    cluster.run_until(cluster.now_us + 10 * MS)
    assert cluster.switched == [(1, 0, 0)]
    cluster.run_until(1 << 62)
    check(cluster, source, sink, 2000)


def test_a_switch_does_not_wait_for_ever_for_a_slot() -> None:
    cluster, source, sink = windowed(1, 3000)
    name = cluster.add_slot(0)
    cluster.run_until(cluster.start_us + 10 * MS)
    slot = cluster.freeze(name)
    cluster.switch(0, 0, 1)
    cluster.run_until(cluster.start_us + S + S // 4)
    assert cluster.sources[0].way.range, "away, although the slot has not said that it is ready"
    cluster.thaw(slot)
    cluster.run_until(1 << 62)
    check(cluster, source, sink, 3000)
