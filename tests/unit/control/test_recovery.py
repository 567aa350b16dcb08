"""What a loss concerns, which snapshots a commit needs, and that the driver takes every part of an output once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import penstock as ps
from penstock.connectors.memory import Memory
from penstock.control.deliveries import Deliveries
from penstock.control.recovery import SnapshotChains, downstream, everything, hosted
from penstock.errors import LimitExceeded, ProtocolError, SinkFailed
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m

EVENT = "k string, n bigint"


def plan_of(pipeline: ps.Pipeline, workers: int, dead: Any = None) -> Plan:
    return Plan.of(pipeline.graph(), Options.of(parallelism=workers), dead)


def source(name: str, partitions: int) -> ps.Stream:
    return ps.stream(name, ps.records(partitions=[[] for _ in range(partitions)], schema=EVENT))


def named(plan: Plan, instances: Any) -> set[tuple[str, int]]:
    return {(plan.units[unit].name, i) for unit, i in instances}


# --- what is concerned ------------------------------------------------------------------------------------------------


def test_a_worker_hosts_its_share_of_every_unit() -> None:
    plan = plan_of(source("in", 5).key_by("k").aggregate(c=ps.agg.count(), name="c").to(ps.memory()), 2)
    assert [named(plan, hosted(plan, worker)) for worker in range(2)] == [
        {("in", 0), ("c", 0)},
        {("in", 1), ("c", 1)},
    ]
    assert hosted(plan, 0) | hosted(plan, 1) == everything(plan)


def test_behind_a_shuffle_everyone_has_read_the_lost_one() -> None:
    plan = plan_of(source("in", 3).key_by("k").aggregate(c=ps.agg.count(), name="c").to(ps.memory()), 3)
    counts = {("c", i) for i in range(3)}
    assert named(plan, downstream(plan, hosted(plan, 1))) == {("in", 1)} | counts
    count = next(unit.id for unit in plan.units if unit.name == "c")
    assert named(plan, downstream(plan, [(count, 2)])) == {("c", 2)}, "what it read is kept for it"


def test_a_chain_without_a_shuffle_concerns_nobody_else() -> None:
    stream = source("in", 3)
    pipeline = stream.to(ps.memory(), name="a") + stream.to(ps.memory(), name="b")
    plan = plan_of(pipeline, 3)
    assert {i for _, i in downstream(plan, hosted(plan, 2))} == {2}


def test_through_two_shuffles() -> None:
    first = source("in", 2).key_by("k").aggregate(c=ps.agg.count(), name="first")
    plan = plan_of(first.key_by("c").aggregate(d=ps.agg.count(), name="second").to(ps.memory()), 2)
    lost = named(plan, downstream(plan, hosted(plan, 0)))
    assert lost == {("in", 0), ("first", 0), ("first", 1), ("second", 0), ("second", 1)}


def test_disjoint_pipelines_concern_each_other_only_on_the_lost_worker() -> None:
    left = source("left", 1).key_by("k").aggregate(c=ps.agg.count(), name="c").to(ps.memory(), name="a")
    right = source("right", 1).to(ps.memory(), name="b")
    plan = plan_of(left + right, 2)
    assert named(plan, downstream(plan, hosted(plan, 1))) == {("c", 1)}
    assert named(plan, downstream(plan, hosted(plan, 0))) == {("left", 0), ("right", 0), ("c", 0), ("c", 1)}


def test_dead_letters_are_gathered_downstream_too() -> None:
    mapped = source("in", 2).map(lambda r: r, schema=EVENT, on_error="dead_letter")
    plan = plan_of(mapped.to(ps.memory()), 2, ps.memory())
    assert ("dead_letters", 0) in named(plan, downstream(plan, hosted(plan, 1)))


def test_nothing_lost_concerns_nothing() -> None:
    plan = plan_of(source("in", 1).to(ps.memory()), 1)
    assert downstream(plan, []) == set()


# --- chains of snapshots ----------------------------------------------------------------------------------------------


def stored(epoch: int, depth: int = 0, *, instance: int = 0, name: str = "") -> m.Stored:
    return m.Stored(unit=0, instance=instance, epoch=epoch, depth=depth, name=name or f"e{epoch}", crc=0)


def test_a_chain_is_as_long_as_the_newest_needs() -> None:
    chains = SnapshotChains()
    for epoch, depth, expected in ((1, 0, [1]), (2, 1, [1, 2]), (3, 2, [1, 2, 3]), (4, 1, [3, 4]), (5, 0, [5])):
        chains.add([stored(epoch, depth)])
        assert [each.epoch for each in chains.all()] == expected
        assert SnapshotChains(chains.all()).all() == chains.all()


def test_several_epochs_at_once_come_in_order_and_known_ones_once() -> None:
    chains = SnapshotChains([stored(1)])
    again = stored(1, name="again")
    chains.add([stored(3, 2), again, stored(2, 1)])
    assert [each.name for each in chains.all()] == ["e1", "e2", "e3"]


def test_a_chain_with_a_gap_is_never_handed_out() -> None:
    chains = SnapshotChains([stored(1)])
    chains.add([stored(3, 2)])
    with pytest.raises(ProtocolError, match="e3 needs 2 before it, not 1"):
        chains.all()


def test_instances_have_chains_of_their_own() -> None:
    chains = SnapshotChains([stored(1), stored(1, instance=1), stored(2, instance=1)])
    assert chains.of([(0, 1)]) == [stored(2, instance=1)]
    assert chains.of([(0, 7)]) == []
    assert chains.all() == [stored(1), stored(2, instance=1)]
    assert SnapshotChains(chains.all()).all() == chains.all()


# --- deliveries -------------------------------------------------------------------------------------------------------


class Delivered:
    """A memory sink behind its deliveries."""

    def __init__(self, sink: Any = None) -> None:
        self.sink: Any = sink or ps.memory()
        pipeline = source("in", 2).to(self.sink, name="out")
        self.deliveries = Deliveries(plan_of(pipeline, 2))

    def take(self, epoch: int, part: int, *numbers: int, instance: int = 0, incarnation: int = 1) -> int:
        rows = msgspec.msgpack.encode([["k", n] for n in numbers])
        return self.deliveries.take(
            m.Deliver(
                worker=0, incarnation=incarnation, sink="out", instance=instance, epoch=epoch, part=part, rows=rows
            )
        )

    @property
    def numbers(self) -> list[int]:
        assert isinstance(self.sink, Memory)
        return [row.n for row in self.sink.rows]


def test_a_part_is_taken_once_whoever_repeats_it() -> None:
    out = Delivered()
    assert out.take(1, 0, 1, 2) == 2
    assert out.take(1, 0, 1, 2) == 0
    assert out.take(1, 1, 3) == 1
    assert out.take(1, 0, 1, 2, incarnation=2) == 0, "a restored worker delivers all of the epoch again"
    assert out.take(1, 1, 3, incarnation=2) == 0
    assert out.take(1, 2, 4, incarnation=2) == 1, "of which the last part had not come"
    assert out.take(3, 0, 5) == 1, "epochs without output are left out"
    assert out.take(2, 9, 6) == 0
    assert out.numbers == [1, 2, 3, 4, 5]


def test_instances_and_sinks_are_told_apart() -> None:
    out = Delivered()
    assert out.take(1, 0, 1) == 1
    assert out.take(1, 0, 2, instance=1) == 1
    assert out.numbers == [1, 2]
    other = ps.memory()
    stream = source("in", 1)
    deliveries = Deliveries(plan_of(stream.to(out.sink, name="a") + stream.to(other, name="b"), 1))
    for sink in "ab":
        assert (
            deliveries.take(
                m.Deliver(
                    worker=0,
                    incarnation=1,
                    sink=sink,
                    instance=0,
                    epoch=1,
                    part=0,
                    rows=msgspec.msgpack.encode([["k", 7]]),
                )
            )
            == 1
        )
    assert [row.n for row in other.rows] == [7]


def test_a_sink_that_refuses_is_named() -> None:
    out = Delivered(ps.memory(limit=2))
    with pytest.raises(LimitExceeded, match="operation 'out'"):
        out.take(1, 0, 1, 2, 3)

    class Broken(Memory):
        def deliver(self, rows: Any, schema: Any) -> None:
            raise OSError("no terminal")

    with pytest.raises(SinkFailed, match=r"operation 'out'.*no terminal"):
        Delivered(Broken(10)).take(1, 0, 1)
