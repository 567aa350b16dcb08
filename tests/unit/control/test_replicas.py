"""The pool of replicas and who of it computes what: submitted, up, wanted, lost, given up; in made-up time."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.control.asked import bounds
from penstock.control.groups import Submit, TellSlot
from penstock.control.replicas import FAILURES_MAX, KNOWN_US, RETRY_US_MIN, Replication
from penstock.control.switches import Switches
from penstock.errors import InvalidOption
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.pipeline.ranges import Range
from penstock.protocol import messages as m
from penstock.protocol import slots as s
from penstock.protocol.pulses import ReplicaPulse, UnitPulse

S = 1_000_000
T0 = 100 * S
SCHEMA = "n bigint"
PEERS = [m.Peer(worker=i, incarnation=70 + i, endpoint=f"tcp://w{i}") for i in range(2)]
SILENCE_US = 30 * S


def same(record: Any) -> Any:
    return record.n


def plan_of(*replicas: Any, pool: int = 0, **options: Any) -> Plan:
    """A chain of maps with these ``replicas=``, behind a filter."""
    stream = ps.stream("in", ps.records([(1,), (2,)], schema=SCHEMA, partitions=2)).filter(ps.col("n") > 0)
    for i, each in enumerate(replicas):
        stream = stream.map(same, schema=SCHEMA, name=f"m{i}", replicas=each)
    return Plan.of(stream.to(ps.memory()).graph(), Options.of(parallelism=2, replicas=pool, **options))


class Play:
    def __init__(self, plan: Plan) -> None:
        self.plan, self.now_us = plan, T0
        self.switches = Switches(plan)
        self.of = Replication(plan, self.switches)
        self.of.know(PEERS, T0)

    def up(self, *numbers: int, group: int = -1, workers: tuple[int, ...] = (0, 1)) -> None:
        """Tasks start, and these workers know them."""
        for number in numbers:
            up = s.SlotUp(group=group, slot=number, incarnation=1000 - group * 100 + number, endpoint="", pid=number)
            self.of.on_up(up)
        for worker in workers:
            self.of.on_pulse(self.pulse(worker, numbers))

    def pulse(self, worker: int, known: tuple[int, ...], **figures: Any) -> m.Pulse:
        units = []
        if figures:
            found = ReplicaPulse(**{"range": Range(1, 1), "utilisation": {0: 0.5, 1: 0.25}, **figures})
            units = [UnitPulse(unit=0, instance=worker, arrived=0, waiting=3, replicas=found)]
        return m.Pulse(
            worker=worker, incarnation=70 + worker, at_us=self.now_us, units=units, slots=0, replicas=list(known)
        )

    def orders(self, after_us: int = 0) -> list[tuple[int, int, list[int]]]:
        """The switches that are sent now; both instances follow at once."""
        self.now_us += after_us
        self.of.begin(0.0, self.now_us)
        orders, _ = self.switches.tick(False, 50_000, self.now_us)
        for order in orders:
            for instance in range(self.plan.units[order.unit].instances):
                done = m.Changed(
                    worker=instance, incarnation=70 + instance, number=order.number, unit=order.unit,
                    instance=instance, pause_us=0, carried_records=0,
                )  # fmt: skip
                self.switches.on_changed(done, self.now_us)
        return [(order.range.first, order.range.last, list(order.replicas)) for order in orders]


def test_the_pool_is_as_large_as_it_is_given_or_as_operations_may_use() -> None:
    assert plan_of(None).replicas == 0
    assert plan_of(None, pool=5).replicas == 5
    assert plan_of(3).replicas == 3
    assert plan_of((1, 8)).replicas == 8
    assert plan_of(3, None, 4).replicas == 7, "two ranges that may be busy at once"
    assert plan_of(1).replicas == 0


def test_without_replicas_there_is_no_pool_and_nothing_to_do() -> None:
    play = Play(plan_of(None))
    assert play.of.tick(SILENCE_US, T0) == []
    assert play.orders() == []
    assert play.of.view() == []


def test_a_pool_is_submitted_once_and_its_replicas_are_told_who_the_workers_are() -> None:
    play = Play(plan_of(3))
    assert play.of.tick(SILENCE_US, T0) == [Submit(-1, 3, 0)]
    assert play.of.tick(SILENCE_US, T0 + 1) == []
    up = s.SlotUp(group=-1, slot=0, incarnation=9, endpoint="tcp://r", pid=4)
    assert play.of.on_up(up) == [TellSlot(9, s.Workers(peers=PEERS, start_us=T0))]
    assert (play.of.up, play.of.pids) == (1, [4])
    assert play.of.know([PEERS[0]], T0) == [TellSlot(9, s.Workers(peers=[PEERS[0]], start_us=T0))]
    assert play.of.tick(SILENCE_US, T0 + SILENCE_US) == [TellSlot(9, s.StillThere())], "seldom"
    stray = s.SlotUp(group=-7, slot=0, incarnation=10, endpoint="", pid=4)
    assert play.of.on_up(stray) == [TellSlot(10, s.End(at_once=True))]


def test_what_is_asked_for_is_ordered_as_soon_as_two_are_known_everywhere() -> None:
    play = Play(plan_of(3))
    play.of.tick(SILENCE_US, T0)
    play.up(0)
    assert play.orders() == [], "one computes no more than the worker itself"
    play.up(0, 1, workers=(0,))
    assert play.orders() == []
    play.up(0, 1)
    assert play.orders() == [(1, 1, [0, 1])]
    assert play.orders() == []
    play.up(0, 1, 2)
    assert play.orders() == [(1, 1, [0, 1, 2])]
    (view,) = play.of.view()
    assert (view.degree, view.wanted, view.activations) == (3, 3, 3)


def test_what_users_have_bounded_is_shown_before_anybody_wants_replicas() -> None:
    (view,) = Play(plan_of((1, 6), pool=4)).of.view()
    assert (view.operations, view.degree, view.wanted, view.least, view.most) == (["m0"], 0, 1, 1, 4)
    assert Play(plan_of(1, pool=4)).of.view() == [], "it stays in the workers, whatever the load"


def test_wants_stay_within_bounds_and_pool() -> None:
    play = Play(plan_of((2, 3), pool=4))
    chosen = Range(1, 1)
    assert [play.of.want(0, chosen, degree, "why") for degree in (0, 2, 3, 9)] == [2, 2, 3, 3]
    free = Play(plan_of(None, pool=4))
    assert [free.of.want(0, chosen, degree, "why") for degree in (-1, 0, 1, 2, 4, 9)] == [1, 1, 1, 2, 4, 4]
    pinned = Play(plan_of(1, pool=4))
    assert [pinned.of.want(0, chosen, degree, "why") for degree in (1, 4)] == [1, 1]
    with pytest.raises(InvalidOption, match="operations in replicas"):
        free.of.want(0, Range(1, 2), 2, "the sink is not computed elsewhere")


def test_the_degree_goes_up_and_down_and_one_is_here() -> None:
    play = Play(plan_of(None, pool=4))
    play.of.tick(SILENCE_US, T0)
    play.up(0, 1, 2, 3)
    for degree, expected in ((2, [0, 1]), (4, [0, 1, 2, 3]), (3, [0, 1, 2])):
        play.of.want(0, Range(0, 1), degree, "why")
        assert play.orders() == [(0, 1, expected)]
        assert play.of.degree(0) == degree
    play.of.want(0, Range(0, 1), 1, "calm")
    assert play.orders() == [(0, -1, [])]
    assert play.of.degree(0) == 0
    assert [each.to for each in play.switches.reports] == ["2 replicas", "4 replicas", "3 replicas", "record"]
    assert play.switches.reports[-1].reason == "calm", "the worker itself needs no replica that could be missing"


def test_ranges_share_the_pool_as_little_as_they_can() -> None:
    play = Play(plan_of(2, None, 2, pool=4))
    assert [unit.name for unit in play.plan.units if bounds(unit)] == ["in", "m2"], "a unit has one range in replicas"
    play.of.tick(SILENCE_US, T0)
    play.up(0, 1, 2, 3)
    play.orders()
    assert play.orders() == []
    used = [play.switches.replicas(unit.id)[1] for unit in play.plan.units if bounds(unit)]
    assert sorted(number for numbers in used for number in numbers) == [0, 1, 2, 3]


def test_neighbours_that_ask_for_the_same_are_one_range() -> None:
    plan = plan_of(2, 2, None, (1, 3))
    assert [bounds(unit) for unit in plan.units] == [{Range(1, 2): (2, 2)}, {Range(0, 0): (1, 3)}]


def test_ranges_come_back_when_no_replicas_are_left_and_go_again_when_there_are() -> None:
    play = Play(plan_of(2))
    play.of.tick(SILENCE_US, T0)
    play.up(0, 1)
    assert play.orders() == [(1, 1, [0, 1])]
    for worker in (0, 1):
        play.of.on_pulse(play.pulse(worker, (0,)))
    assert play.orders(KNOWN_US) == [], "a worker that is started again learns of them soon"
    assert play.orders(1) == [(0, -1, [])]
    play.up(0, 1)
    assert play.orders() == [(1, 1, [0, 1])]


def test_a_pool_that_ends_is_submitted_again_later_and_later_and_given_up_at_last() -> None:
    play = Play(plan_of(2))
    wait_us, now_us = RETRY_US_MIN, T0
    for attempt in range(FAILURES_MAX):
        assert play.of.tick(SILENCE_US, now_us) == [Submit(-1 - attempt, 2, 0)]
        play.of.on_ended(-1 - attempt, "no python", now_us)
        assert [c for c in play.of.tick(SILENCE_US, now_us + wait_us - 1) if isinstance(c, Submit)] == []
        now_us, wait_us = now_us + wait_us, 2 * wait_us
    assert play.of.given_up == "no python"
    assert [c for c in play.of.tick(SILENCE_US, now_us + 1000 * S) if isinstance(c, Submit)] == []
    assert play.of.waits() == ["replicas, until then workers compute everything: no python"]


def test_a_pool_makes_way_for_a_worker_and_comes_back() -> None:
    play = Play(plan_of(2))
    play.of.tick(SILENCE_US, T0)
    play.up(0, 1)
    told = play.of.give_way(T0)
    assert [each.message for each in told if isinstance(each, TellSlot)] == [s.End(at_once=False)] * 2
    assert play.of.give_way(T0) == []
    play.of.on_ended(-1, None, T0)
    assert play.of.error is None
    assert Submit(-2, 2, 0) in play.of.tick(SILENCE_US, T0 + RETRY_US_MIN)


def test_a_range_in_slots_goes_to_its_replicas_on_the_way_back() -> None:
    play = Play(plan_of(2))
    play.of.tick(SILENCE_US, T0)
    play.up(0, 1)
    play.switches.begin(play.plan.units[0], Range(-1, 1), "a burst", {}, 0.0, T0)
    play.switches.tick(True, 50_000, T0)
    for instance in (0, 1):
        done = m.Changed(
            worker=instance, incarnation=1, number=1, unit=0, instance=instance, pause_us=0, carried_records=0
        )
        play.switches.on_changed(done, T0)
    assert play.orders() == [], "batch form is left alone"
    assert play.of.instead_of_here(0, play.now_us) == (Range(1, 1), (0, 1))
    assert not Play(plan_of(2)).of.instead_of_here(0, T0)[1]


def test_what_replicas_report_is_put_together() -> None:
    play = Play(plan_of(2))
    play.of.tick(SILENCE_US, T0)
    play.up(0, 1)
    play.orders()
    for worker in (0, 1):
        play.of.on_pulse(play.pulse(worker, (0, 1), records_in=10, records_out=10, busy_us=1000, cpu_us=400))
    play.now_us += S
    for worker in (0, 1):
        play.of.on_pulse(play.pulse(worker, (0, 1), records_in=60, records_out=50, busy_us=5000, cpu_us=1200))
    (view,) = play.of.view()
    assert (view.arrival_eps, view.service_eps, view.queue_records) == (100.0, 80.0, 26)
    assert (view.record_us, view.cpu_us) == (100.0, 20.0)
    assert view.utilisation == {0: 1.0, 1: 0.5}, "each of two instances gives them a part"


@pytest.mark.parametrize("given", [0, -1, 1.5, True, "2", (3, 2), (0, 2), (1, 2, 3), (1,), 1001, None.__class__])
def test_replicas_that_cannot_be_are_refused(given: Any) -> None:
    with pytest.raises(InvalidOption, match="replicas") as raised:
        plan_of(given)
    assert raised.value.operation == "m0"


@pytest.mark.parametrize("options", [{"replicas": 1}, {"replicas": -1}, {"replicas": 2.0}, {"grouping": "lode"}])
def test_options_that_cannot_be_are_refused(options: Any) -> None:
    with pytest.raises(InvalidOption):
        Options.of(**options)


def test_a_pool_that_is_smaller_than_what_is_asked_for_is_refused() -> None:
    with pytest.raises(InvalidOption, match="at least 4, which 'm0' asks for"):
        plan_of(4, pool=3)


def test_what_the_user_wants_of_an_operation_is_within_its_bounds() -> None:
    play = Play(plan_of(None, (1, 3), pool=4))
    play.up(0, 1, 2, 3)
    play.of.obey("m1", 9, play.now_us)
    assert play.orders() == [(2, 2, [0, 1, 2])]
    play.of.obey("m0", 2, play.now_us)
    assert play.orders() == [], "nobody has asked for replicas of that one"
    play.of.obey("m1", 1, play.now_us)
    assert play.orders() == [(0, -1, [])]


def test_an_activation_is_measured_once_and_by_what_began_after_it() -> None:
    play = Play(plan_of((1, 4), pool=4))
    play.up(0, 1, 2)
    play.of.obey("m0", 2, play.now_us)
    decided_us = play.now_us
    assert play.orders(after_us=1_000) == [(1, 1, [0, 1])]
    figures = {"records_in": 5, "records_out": 5, "busy_us": 5, "cpu_us": 5}
    for began_us in ({0: decided_us - 1}, {0: decided_us + 4_000}, {0: decided_us + 9_000, 1: decided_us + 6_500}):
        play.of.on_pulse(play.pulse(0, (0, 1, 2), began_us=began_us, **figures))
    assert play.of.view()[0].activation_ms == [4.0, 6.5]
    play.of.obey("m0", 4, play.now_us)
    assert play.orders() == [(1, 1, [0, 1, 2])], "one of four is not up: what follows is not the law's activation"
    play.of.on_pulse(play.pulse(0, (0, 1, 2), began_us={2: play.now_us + 1}, **figures))
    assert play.of.view()[0].activation_ms == [4.0, 6.5]
