"""Whole jobs whose operations are computed by replicas that come, go, stall and are lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

import penstock as ps
from penstock.engine.slot import QUIET_US, SlotMachine
from penstock.engine.ways import Here, Replicas, Slots
from penstock.engine.ways.pool import DEPTH, LOST_US
from penstock.engine.ways.replicas import ITEM_WORK_US
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.protocol import slots as s
from penstock.protocol.link import Kind
from penstock.testing import Harness
from penstock.testing.cluster import Cluster

MS, S = 1_000, 1_000_000


class Listening(Cluster):
    """A cluster that remembers which replica got which item."""

    def __init__(self, plan: Plan) -> None:
        self.given: list[tuple[int, s.Do]] = []
        self.frozen: set[int] = set()
        super().__init__(plan)

    def _deliver(self, to: str, frames: Sequence[bytes]) -> None:
        if frames[0] == Kind.SLOT.value and to in self._slots:
            message = s.decode_to_slot(frames[1])
            if isinstance(message, s.Do) and message.count:
                self.given.append((self._slots[to].identity.slot, message))
        super()._deliver(to, frames)

    def named(self, number: int) -> str:
        """The replica with this number."""
        (name,) = (
            name for name, slot in self._slots.items() if slot.identity.group < 0 and slot.identity.slot == number
        )
        return name

    def freeze(self, number: int) -> SlotMachine:
        """Let a replica do nothing, until it is thawed."""
        slot = self._slots[self.named(number)]
        slot.step = lambda now_us: False  # type: ignore[method-assign]
        slot.wake_us = lambda: 1 << 62  # type: ignore[method-assign]
        slot.sends = lambda now_us: iter(())  # type: ignore[method-assign]
        return slot

    @staticmethod
    def thaw(slot: SlotMachine) -> None:
        del slot.step, slot.wake_us, slot.sends

    def after(self, duration_us: int) -> None:
        self.run_until(max(self.now_us, self.start_us) + duration_us)

    @property
    def ways(self) -> list[type]:
        return [type(unit.way) for worker in self.workers for unit in worker.units if unit.spec.id == 0]


def triple(record: Any) -> Any:
    if record.n % 50 == 49:
        raise ValueError("nine")
    return record.k, record.n * 3


def numbered(total: int = 1000, rate: int = 1000, replicas: Any = None, **options: Any) -> tuple[Listening, Any, Any]:
    columns = {"k": ps.fields.choice(["a", "b"]), "n": ps.fields.integers(0, 99)}
    source = ps.generator(columns, rate=rate, total=total, format="columns")
    sink, letters = ps.memory(), ps.memory()
    schema = "k string, n bigint"
    stream = ps.stream("in", source).filter(ps.col("n") >= 0)
    stream = stream.map(triple, schema=schema, name="triple", on_error="dead_letter", replicas=replicas)
    options = {"parallelism": 1, "epoch": "200ms", "replicas": 4, **options}
    plan = Plan.of(stream.to(sink).graph(), Options.of(**options), letters)
    cluster = Listening(plan)
    cluster.letters = letters  # type: ignore[attr-defined]
    return cluster, source, sink


def check(cluster: Any, source: Any, sink: Any, total: int) -> None:
    rows = source.records(0, total, cluster.start_us)
    assert [(row.k, row.n) for row in sink.rows] == [(row.k, row.n * 3) for row in rows if row.n % 50 != 49]
    bad = [i for i, row in enumerate(rows) if row.n % 50 == 49]
    assert [(each.source, each.partition, each.offset) for each in cluster.letters.rows] == [("in", 0, i) for i in bad]
    figures = {each.operation: each for worker in cluster.workers for each in worker.figures()}
    assert [figures[name].records_in for name in ("in", "filter", "triple")] == [total] * 3
    assert figures["triple"].dead_letters == len(bad)


def test_what_is_asked_for_is_computed_side_by_side_and_leaves_in_order() -> None:
    cluster, source, sink = numbered(replicas=3)
    cluster.run_until(1 << 62)
    check(cluster, source, sink, 1000)
    by_replica = Counter(number for number, _ in cluster.given)
    assert set(by_replica) == {0, 1, 2}
    assert max(by_replica.values()) - min(by_replica.values()) <= 2, "all alike, so all get as much"
    assert {do.count for _, do in cluster.given} == {1}, "it is calm: what has arrived is one record"
    (view,) = cluster.adaptation.replicas
    assert (view.operations, view.degree, view.wanted, view.least, view.most) == (["triple"], 3, 3, 3, 3)
    assert view.activations == 3
    assert "at least 3 replicas" in view.reason


def test_replicas_that_nobody_wants_stand_by() -> None:
    cluster, source, sink = numbered(total=100)
    cluster.after(50 * MS)
    assert len(cluster.slots) == 4, "they stand by"
    assert cluster.ways == [Here]
    cluster.run_until(1 << 62)
    assert cluster.given == []
    check(cluster, source, sink, 100)


def test_a_change_of_the_degree_takes_effect_with_the_next_item_and_loses_nothing() -> None:
    cluster, source, sink = numbered()
    cluster.after(100 * MS)
    for degree in (2, 4, 3, 4, 2):
        cluster.want(0, 1, 1, degree)
        cluster.after(20 * MS)
        cluster.given.clear()
        cluster.after(100 * MS)
        used = {number for number, _ in cluster.given}
        assert used <= set(range(degree))
        assert degree - 1 in used
        assert cluster.ways == [Replicas]
    cluster.run_until(1 << 62)
    check(cluster, source, sink, 1000)
    assert [each.to for each in cluster.adaptation.switches] == [f"{n} replicas" for n in (2, 4, 3, 4, 2)]


def test_an_activation_takes_from_the_decision_to_the_first_item() -> None:
    cluster, source, sink = numbered()
    cluster.after(100 * MS)
    taken: list[float] = []
    for degree, new in ((2, 2), (4, 2), (2, 0), (3, 1)):
        decided_us = cluster.now_us
        cluster.given.clear()
        cluster.want(0, 1, 1, degree)
        cluster.after(150 * MS)
        (view,) = cluster.adaptation.replicas
        assert len(view.activation_ms) == len(taken) + new, "of those alone that stood by"
        taken = list(view.activation_ms)
        assert all(0 < each <= 10 for each in taken[len(taken) - new :])
        assert cluster.now_us - decided_us >= 150 * MS
    assert len(taken) == view.activations
    cluster.run_until(1 << 62)
    check(cluster, source, sink, 1000)


def test_what_is_queued_at_a_replica_that_is_deactivated_is_finished_there() -> None:
    cluster, source, sink = numbered()
    cluster.want(0, 1, 1, 3)
    cluster.after(200 * MS)
    held = cluster.freeze(2)
    cluster.after(7 * MS)
    queued = [do.item for number, do in cluster.given if number == 2][-DEPTH:]
    before = len(cluster.given)
    cluster.want(0, 1, 1, 2)
    cluster.after(6 * MS)
    later = [number for number, _ in cluster.given[before:]]
    assert 2 not in later
    assert set(later) == {0, 1}, "the others go on, though the line waits"
    cluster.thaw(held)
    cluster.run_until(1 << 62)
    check(cluster, source, sink, 1000)
    assert all([do.attempt for _, do in cluster.given if do.item == item] == [0] for item in queued)


def test_what_a_lost_replica_had_is_computed_by_others() -> None:
    cluster, source, sink = numbered()
    cluster.want(0, 1, 1, 2)
    cluster.after(200 * MS)
    cluster.freeze(1)
    seen = len(cluster.given)
    cluster.after(20 * MS)
    lost = [do.item for number, do in cluster.given[seen:] if number == 1]
    assert len(lost) == 1, "the other one is free each time"
    cluster.lose_slot(cluster.named(1))
    cluster.run_until(1 << 62)
    check(cluster, source, sink, 1000)
    again = [do for _, do in cluster.given if do.item in lost and do.attempt == 1]
    assert sorted(do.item for do in again) == lost


def test_what_a_stalled_replica_has_is_given_to_others_and_its_own_result_is_refused() -> None:
    cluster, source, sink = numbered(rate=50)
    cluster.want(0, 1, 1, 2)
    cluster.after(200 * MS)
    held = cluster.freeze(1)
    cluster.after(LOST_US + S)
    cluster.thaw(held)
    cluster.run_until(1 << 62)
    check(cluster, source, sink, 1000)
    assert sum(worker.inspect().refused_results for worker in cluster.workers) == 1


def test_a_worker_that_is_lost_finds_its_replicas_again() -> None:
    cluster, source, sink = numbered()
    cluster.want(0, 1, 1, 3)
    cluster.after(300 * MS)
    cluster.crash(0)
    cluster.after(300 * MS)
    assert cluster.ways == [Replicas]
    cluster.run_until(1 << 62)
    rows = source.records(0, 1000, cluster.start_us)
    assert [row.n for row in sink.rows] == [row.n * 3 for row in rows if row.n % 50 != 49]


def test_from_here_to_replicas_to_slots_and_back() -> None:
    cluster, source, sink = numbered()
    cluster.add_slot(0)
    seen: list[Any] = []
    for step in range(6):
        if step % 3 == 0:
            cluster.want(0, 0, 1, 2)
        elif step % 3 == 1:
            cluster.switch(0, -1, 1)
        else:
            cluster.switch(0, 0, -1)
        cluster.after(100 * MS)
        seen += cluster.ways
    cluster.run_until(1 << 62)
    check(cluster, source, sink, 1000)
    assert seen == [Replicas, Slots, Replicas] * 2, "on the way back an operation goes to its replicas"


def test_what_arrives_at_once_is_dealt_in_items_of_some_milliseconds() -> None:
    cluster, source, sink = numbered(total=4000, rate=1_000_000)
    cluster.want(0, 1, 1, 2)
    cluster.after(MS // 4)  # before the records that come at once
    (unit,) = (unit for worker in cluster.workers for unit in worker.units if unit.spec.id == 0)
    assert isinstance(unit.way, Replicas)
    unit.way._cost_us = 500.0
    cluster.run_until(1 << 62)
    check(cluster, source, sink, 4000)
    assert 1 < max(do.count for _, do in cluster.given) <= 4096
    assert next(do.count for _, do in cluster.given if do.count > 1) <= ITEM_WORK_US // 500


def test_who_stands_by_is_quiet() -> None:
    cluster, _, _ = numbered()
    cluster.want(0, 1, 1, 2)
    cluster.after(500 * MS)
    idle = cluster._slots[cluster.named(3)]
    assert idle.wake_us() - cluster.now_us > QUIET_US - S
    said: list[Any] = []
    original = idle.sends
    idle.sends = lambda now_us: [each for each in original(now_us) if not said.append(each)]  # type: ignore
    cluster.after(S)
    assert said == []


def test_replicas_are_in_the_users_harness_too() -> None:
    rows: list[Any] = [(i,) for i in range(50)]
    stream = ps.stream("in", ps.records(rows, schema="n bigint"))
    harness = Harness(stream.map(lambda r: r.n + 1, schema="n bigint", replicas=(1, 3)).to(ps.memory()))
    harness.run()
    assert [row["n"] for row in harness.rows()] == [i + 1 for i in range(50)]


@pytest.mark.parametrize("grouping", ["load", "shuffle"])
def test_a_slow_replica_gets_less_unless_it_is_shuffled(grouping: str) -> None:
    cluster, source, sink = numbered(total=1000, grouping=grouping)
    cluster.want(0, 1, 1, 2)
    cluster.after(100 * MS)
    slot = cluster._slots[cluster.named(1)]
    original = slot.step

    def slowly(now_us: int) -> bool:
        return original(now_us) if now_us // (20 * MS) % 5 == 0 else False  # at work for a fifth of the time

    slot.step = slowly  # type: ignore[method-assign]
    cluster.given.clear()
    cluster.run_until(1 << 62)
    check(cluster, source, sink, 1000)
    by_replica = Counter(number for number, _ in cluster.given)
    assert (by_replica[0] > 1.5 * by_replica[1]) is (grouping == "load")


@pytest.mark.parametrize("interval", ["200ms", "1s"])
def test_utilisation_is_of_the_interval_in_which_the_loop_decides(interval: str) -> None:
    cluster, _, _ = numbered(total=500, rate=1000, replicas=2, replica_interval=interval)
    cluster.after(400 * MS)
    cluster.freeze(0)
    cluster.freeze(1)
    cluster.after(S)  # nothing is done any more
    (way,) = (unit.way for worker in cluster.workers for unit in worker.units if isinstance(unit.way, Replicas))
    before = dict(way._dealing._used)
    way._dealing.choose([0, 1], [0, 1], 100_000, cluster.now_us)
    after = way._dealing._used
    assert sum(after.values()) == pytest.approx({"200ms": 0.5, "1s": 0.1}[interval], abs=0.02), (before, after)


def test_no_record_queues_behind_another_while_a_replica_has_no_work() -> None:
    cluster, source, sink = numbered(replicas=2)
    cluster.after(200 * MS)
    slot, seen = cluster.freeze(0), len(cluster.given)
    cluster.after(300 * MS)
    stuck = [do for number, do in cluster.given[seen:] if number == 0]
    assert len(stuck) == 1, "it has one already, and the other one is free each time"
    cluster.thaw(slot)
    cluster.run_until(1 << 62)
    check(cluster, source, sink, 1000)
