"""Detours: how large micro-batches are, and whole instances whose slots stall, stay away or are lost."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import penstock as ps
from penstock.control.events import Event, FromWorker
from penstock.dataset import Block
from penstock.engine.detour import ITEM_BYTES_MAX, ITEM_RECORDS_MAX, ITEM_WORK_US, Detour, Result, Route
from penstock.engine.pool import SlotPool, Work
from penstock.engine.slot import Slot
from penstock.engine.source_unit import SourceUnit
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m
from penstock.protocol import slots as s
from penstock.testing.cluster import Cluster
from penstock.types import Schema

MS, S = 1_000, 1_000_000
SCHEMA = Schema.parse("n bigint")


# --- the line ---------------------------------------------------------------------------------------------------------


def made(record_ns: float = 0.0) -> tuple[Detour, SlotPool]:
    pool = SlotPool(0, 7)
    pool.on_ready(s.Ready(group=1, slot=0, incarnation=100, endpoint="tcp://100"))
    return Detour(Route(0, 1, 50 * MS), pool, 0, 0, (0, 7), record_ns), pool


def gather(detour: Detour, key: int, count: int, now_us: int, due_us: int = 5) -> None:
    block = Block(0, 0, 0, [SCHEMA.record_type(n) for n in range(count)], None, count, due_us)
    detour.gather(key, key, block, {}, now_us)


def finish(detour: Detour, count: int, took_us: int, size_bytes: int = 1) -> int:
    """Send a micro-batch out and take its result; return how large the next may be."""
    detour.send_offsets(0, 0, count, 0, 0, 0)
    item = detour.line[-1].item  # type: ignore[union-attr]
    done = s.Done(
        incarnation=100,
        item=item,
        attempt=0,
        began_us=1000,
        done_us=1000 + took_us,
        source_ns=0,
        due_us=5,
        event_time_us_max=None,
        stages=[],
        parts=[],
        carried=0,
        staged=0,
    )
    assert detour.on_result(item, Result(done, [bytes(size_bytes)]))
    return detour.records_max


@pytest.mark.parametrize(
    ("record_ns", "expected"), [(0.0, 2048), (100.0, 2048), (1e6, ITEM_WORK_US // 1000), (1e9, 1), (1e12, 1)]
)
def test_the_first_micro_batch_fits_what_records_have_cost(record_ns: float, expected: int) -> None:
    assert made(record_ns)[0].records_max == expected


def test_sizes_follow_the_work() -> None:
    detour, _ = made()
    assert finish(detour, 2048, ITEM_WORK_US // 100) == 3072, "never more than twice as many are aimed at"
    for _ in range(30):
        finish(detour, detour.records_max, 100)
    assert detour.records_max == ITEM_RECORDS_MAX
    for _ in range(60):
        finish(detour, detour.records_max, detour.records_max * ITEM_WORK_US)
    assert detour.records_max == 1, "records that take as long as a micro-batch should"
    for _ in range(60):
        finish(detour, detour.records_max, 1 + detour.records_max * 10)
    assert detour.records_max == pytest.approx(ITEM_WORK_US / 10, rel=0.05), "and back"


def test_small_micro_batches_say_nothing_about_large_ones() -> None:
    detour, _ = made()
    assert finish(detour, 10, 1) == 2048
    assert finish(detour, 10, ITEM_WORK_US) < 2048


def test_sizes_follow_the_bytes() -> None:
    detour, _ = made()
    for _ in range(30):
        finish(detour, detour.records_max, 1, detour.records_max * 20_000)
    assert detour.records_max == pytest.approx(ITEM_BYTES_MAX / 20_000, rel=0.05)


def test_a_gathering_is_ripe_when_it_is_full_or_old_or_all_go_back() -> None:
    detour, _ = made(record_ns=1e6)
    gather(detour, 0, 3, 1000)
    gather(detour, 1, 25, 1000)
    gather(detour, 0, 3, 21_000, due_us=2)
    assert detour.ripe(2000) == [1]
    assert detour.ripe(1000 + 50 * MS) == [0, 1]
    assert detour.wake_us() == 1000 + 50 * MS
    detour.closing = True
    assert detour.ripe(2000) == [0, 1]
    detour.cut(0, (4, 9), SCHEMA, 60 * MS)
    (item,) = detour.line
    assert (item.first, item.last, item.count, item.due_us) == (4, 9, 6, 2)  # type: ignore[union-attr]
    assert item.gathered_us == 11_000, "when its records came, on average"  # type: ignore[union-attr]
    assert detour.waiting_records == 31
    assert detour.holds(0)
    assert detour.holds(1)
    assert not detour.holds(2)


def test_what_has_no_records_needs_no_slot() -> None:
    detour, pool = made()
    gather(detour, 0, 0, 1000)
    detour.cut(0, (0, 0), SCHEMA, 2000)
    assert detour.line[0].result is not None  # type: ignore[union-attr]
    assert pool.send(2000) == []


def test_results_of_another_detour_are_not_taken() -> None:
    detour, pool = made()
    done = s.Done(
        incarnation=100,
        item=99,
        attempt=0,
        began_us=0,
        done_us=0,
        source_ns=0,
        due_us=0,
        event_time_us_max=None,
        stages=[],
        parts=[],
        carried=0,
        staged=0,
    )
    assert not detour.on_result(99, Result(done, ()))
    assert not detour.on_exhausted(
        Work(
            s.Do(
                slot=0,
                worker=0,
                incarnation=7,
                item=99,
                attempt=3,
                unit=0,
                instance=0,
                first=0,
                last=1,
                partition=0,
                offset=0,
                count=1,
                due_us=0,
                sample=False,
            ),
            None,
        )
    )
    detour.send_offsets(0, 0, 5, 1, 0, 0)
    detour.forget()
    assert detour.is_empty
    assert pool.send(0) == []


def test_room_is_what_slots_take_and_the_line_holds() -> None:
    detour, pool = made()
    assert detour.room == 2
    detour.send_offsets(0, 0, 5, 0, 0, 0)
    detour.send_offsets(0, 5, 5, 1, 0, 0)
    assert detour.room == 0
    pool.on_group_ended(1)
    assert detour.room <= 0
    detour.recall()
    assert [each.local is not None for each in detour.line] == [True, True]  # type: ignore[union-attr]


# --- whole instances --------------------------------------------------------------------------------------------------


class Listening(Cluster):
    """A cluster that remembers what instances say of hand-overs."""

    def __init__(self, plan: Plan) -> None:
        self.rerouted: list[tuple[int, int, int]] = []
        super().__init__(plan)

    def _hear(self, event: Event) -> None:
        if isinstance(event, FromWorker) and isinstance(event.message, m.Rerouted):
            self.rerouted.append((event.message.switch, event.message.unit, event.message.instance))
        super()._hear(event)

    def freeze(self, name: str) -> Slot:
        """Let a slot do nothing, until it is thawed."""
        slot = self._slots[name]
        slot.step = lambda now_us: False  # type: ignore[method-assign]
        slot.wake_us = lambda: None  # type: ignore[method-assign]
        return slot

    @staticmethod
    def thaw(slot: Slot) -> None:
        del slot.step, slot.wake_us  # type: ignore[method-assign]

    @property
    def sources(self) -> list[SourceUnit]:
        return [unit for worker in self.workers for unit in worker.units if isinstance(unit, SourceUnit)]


def windowed(partitions: int, total: int, **options: Any) -> tuple[Listening, Any, Any]:
    columns = {"k": ps.fields.choice(["a", "b"]), "n": ps.fields.integers(0, 99), "t": ps.fields.event_time()}
    source = ps.generator(columns, rate=2000, total=total, format="columns", partitions=partitions)
    sink = ps.memory()
    stream = ps.stream("in", source).filter(ps.col("n") >= 0)
    counted = stream.key_by("k").window(ps.tumbling("10ms", on="t")).count()
    plan = Plan.of(counted.to(sink).graph(), Options.of(parallelism=1, epoch="200ms", **options))
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
    cluster.reroute(0, *route, 5 * MS)
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
    cluster.reroute(0, *route, 5 * MS)
    cluster.run_until(cluster.start_us + S // 4)
    cluster._slots.clear()
    cluster.run_until(cluster.start_us + S // 2)
    for worker in cluster.workers:
        worker.on_driver(m.GroupEnded(group=0))
    cluster.reroute(0, 0, -1)
    cluster.run_until(1 << 62)
    check(cluster, source, sink, 2000)
    assert {switch for switch, _, _ in cluster.rerouted} == {1, 2}


@pytest.mark.parametrize("route", [(-1, 1), (0, 1)], ids=str)
def test_work_that_slots_are_lost_with_is_done_here(route: tuple[int, int]) -> None:
    cluster, source, sink = windowed(2, 2000)
    name = cluster.add_slot(0)
    cluster.reroute(0, *route, 5 * MS)
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
    cluster.reroute(0, -1, 1, 5 * MS)
    cluster.run_until(cluster.start_us + S // 4)
    slot = cluster.freeze(name)
    cluster.run_until(cluster.now_us + 50 * MS)
    (unit,) = cluster.sources
    wake_us = unit.wake_us(cluster.now_us)
    assert wake_us is None or wake_us > cluster.now_us, "no slot has room"
    cluster.reroute(0, 0, -1)
    cluster.run_until(cluster.now_us + 50 * MS)
    assert unit.wake_us(cluster.now_us) is None, "the way back waits for results"
    cluster.thaw(slot)
    cluster.run_until(1 << 62)
    check(cluster, source, sink, 2000)


def test_nothing_spins_while_the_end_is_in_line() -> None:
    cluster, _, sink = windowed(2, 2000)
    name = cluster.add_slot(0)
    cluster.reroute(0, -1, 1, 5 * MS)
    cluster.run_until(cluster.start_us + S // 4)
    slot = cluster.freeze(name)
    cluster.run_until(cluster.now_us + 20 * MS)
    cluster.drain()
    cluster.run_until(cluster.now_us + 20 * MS)
    (unit,) = cluster.sources
    assert not unit.finished
    assert unit.wake_us(cluster.now_us) is None
    read = sum(unit.offsets.values())
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
    cluster.reroute(ended.spec.id, -1, 0)
    cluster.run_until(cluster.now_us + 10 * MS)
    assert cluster.rerouted == [(1, ended.spec.id, 0)]
    cluster.run_until(1 << 62)
    assert cluster.ended
