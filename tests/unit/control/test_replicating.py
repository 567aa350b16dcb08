"""Who gets how many replicas: the plan with its bounds, pins, notes; and the whole loop against a queue."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.control.adaptation import CONTROL_US, ControlLoop, JobView
from penstock.control.elastic import MOMENTS_MAX
from penstock.control.events import Send
from penstock.control.laws.replicas import INPUT, Operator
from penstock.control.measures import Measures
from penstock.control.monitor import OperationFigures
from penstock.control.replicating import HERE, RangeMeasure, Replicator, WantedReplicas, share_out
from penstock.errors import InvalidOption
from penstock.pipeline.options import Options, ReplicaLaw
from penstock.pipeline.plan import Plan
from penstock.pipeline.ranges import Range
from penstock.protocol import messages as m
from penstock.protocol.pulses import ReplicaPulse, UnitPulse

S = 1_000_000


def unit(rate: float, *, queue: float = 0.0, number: int = 0, execution_us: float = 25_000) -> Operator:
    return Operator(name=str(number), received={INPUT: rate}, processed=rate, queue=queue, execution_us=execution_us)


def at(degree: int = 0, **changes: Any) -> RangeMeasure:
    usual: dict[str, Any] = {"unit": 0, "names": ("slow",), "range": Range(0, 0), "processes": 1}
    return RangeMeasure(**{**usual, "degree": degree, "least": 1, "most": 8, **changes})


def decide(replicator: Replicator, operator: Operator, *ranges: RangeMeasure) -> list[WantedReplicas]:
    return replicator.decide(0, [operator], ranges, operator.arrived)


# --- the plan ---------------------------------------------------------------------------------------------------------


def test_replicas_follow_the_load_with_a_reason() -> None:
    wanted = decide(Replicator(8, S), unit(150, queue=20), at())
    assert [(each.before, each.degree) for each in wanted] == [(0, 5)]
    assert wanted[0].reason == "150/s and 20 that wait at 25 ms a record are 4.2 replicas' work: 5 of 8"
    assert wanted[0].inputs["work"] == 4.25
    assert wanted[0].inputs["theta"] == 1.0


def test_other_laws_decide_within_the_same_bounds() -> None:
    """150/s of 25 ms are 3.75 replicas' work; DS2 does not count the 400 that wait, the threshold takes one step."""
    found = {}
    for law in ReplicaLaw:
        replicator = Replicator(8, S, law=law)
        (wanted,) = decide(replicator, unit(150, queue=400), at(2))
        found[law] = wanted.degree
        assert decide(Replicator(8, S, law=law), unit(900, queue=400), at(3, least=3, most=3))[0].degree == 3
    assert found == {ReplicaLaw.PREDICTIVE: 8, ReplicaLaw.DS2: 4, ReplicaLaw.THRESHOLD: 3}


def test_what_the_worker_can_do_itself_it_does() -> None:
    replicator = Replicator(8, S)
    assert decide(replicator, unit(20), at()) == []
    assert decide(replicator, unit(76), at(processes=2)) == []
    decide(replicator, unit(150), at())
    decide(replicator, unit(20), at(4))
    back = decide(replicator, unit(20), at(4))
    assert [each.degree for each in back] == [HERE]
    assert back[0].reason.endswith("the worker does it itself")


def test_replicas_that_are_asked_for_at_the_least_compute_however_many_workers_there_are() -> None:
    """The law does not leave to four workers what two replicas would have to do then."""
    replicator = Replicator(8, S)
    assert decide(replicator, unit(100), at(2, processes=4, least=2, most=6))[0].degree == 3
    assert decide(replicator, unit(100), at(3, processes=4, least=2, most=6)) == []
    decide(replicator, unit(5), at(3, processes=4, least=2, most=6))
    assert decide(replicator, unit(5), at(3, processes=4, least=2, most=6))[0].degree == 2


def test_who_is_pinned_to_the_worker_itself_takes_no_place_of_the_pool() -> None:
    """One replica would be no other process: seven of eight are not all that is left."""
    rest = unit(400, number=1)
    replicator = Replicator(8, S)
    ranges = (at(least=1, most=1), at(unit=1))
    wanted = {each.unit: each for each in replicator.decide(0, [unit(20), rest], ranges, 400)}
    assert wanted[1].degree == 8
    assert 0 not in wanted


def test_one_calm_interval_gives_nothing_back() -> None:
    replicator = Replicator(8, S)
    decide(replicator, unit(150), at())
    assert decide(replicator, unit(20), at(4)) == []


def test_bounds_hold_and_a_pin_is_not_touched() -> None:
    replicator = Replicator(8, S)
    assert decide(replicator, unit(900), at(most=4))[0].degree == 4
    pinned = Replicator(8, S)
    assert [each.degree for each in decide(pinned, unit(900), at(least=3, most=3))] == [3]
    assert decide(pinned, unit(0), at(3, least=3, most=3)) == []
    assert decide(Replicator(8, S), unit(900), at(least=1, most=1)) == []
    assert decide(Replicator(8, S), unit(0), at(least=2))[0].degree == 2


def test_computing_replicas_are_not_more_than_the_cores() -> None:
    replicator = Replicator(8, S)
    assert decide(replicator, unit(900, queue=50), at(cores=2))[0].degree == 2
    assert "computes all the time, and there are 2 cores" in replicator.notes[0]


def test_that_replicas_are_at_their_bound_is_said_once() -> None:
    replicator = Replicator(4, S)
    for _ in range(3):
        decide(replicator, unit(900, queue=500), at(4))
    assert len(replicator.notes) == 1
    assert "4 replicas are the most" in replicator.notes[0]


def test_a_pool_that_is_too_small_is_shared() -> None:
    assert share_out(8, {0: 2, 1: 3}, {}) == {0: 2, 1: 3}
    assert share_out(8, {0: 4, 1: 12}, {}) == {0: 2, 1: 6}
    assert share_out(4, {0: 3, 1: 100}, {0: 3}) == {0: 3, 1: 1}
    assert share_out(3, {0: 5, 1: 5}, {}) == {0: 2, 1: 1}
    assert share_out(0, {0: 5}, {}) == {0: 0}


# --- the loop ---------------------------------------------------------------------------------------------------------


def plan_of(job: dict[str, Any], replicas: Any = (1, 8), instances: int = 1) -> Plan:
    source = ps.generator({"n": ps.fields.sequence()}, rate=100, total=10, format="columns", partitions=instances)
    stream = ps.stream("in", source).map(lambda r: (r.n,), schema="n bigint", name="slow", replicas=replicas)
    return Plan.of(stream.to(ps.memory(), name="out").graph(), Options.of(parallelism=instances, workers=1, **job))


class Play:
    """A job of one worker in made-up time: a queue before the slow operation, which as many processes work off."""

    def __init__(self, execution_us: float = 25_000, replicas: Any = (1, 8), instances: int = 1, **job: Any) -> None:
        self.plan = plan_of(job, replicas, instances)
        self.loop = ControlLoop(self.plan, cores=2)
        self.execution_us = execution_us
        self.now_us = 100 * S
        self.arrived = self.done = self.queue_max = 0.0
        self.active: list[int] = []
        self.away = 0.0
        self.orders: list[list[int]] = []
        self._peers = [m.Peer(worker=0, incarnation=70, endpoint="tcp://w")]

    def run(self, seconds: float, rate: float) -> None:
        until_us = self.now_us + round(seconds * S)
        while self.now_us < until_us:
            self.now_us += CONTROL_US
            self.arrived += rate * CONTROL_US / S
            before = self.done
            self.done = min(self.arrived, self.done + max(1, len(self.active)) * CONTROL_US / self.execution_us)
            self.away += (self.done - before) if self.active else 0
            self.queue_max = max(self.queue_max, self.arrived - self.done)
            self._tell()
            figures = self._figures(rate) if self.now_us % (5 * CONTROL_US) == 0 else None
            view = JobView(True, False, self._peers, 100 * S, 100 * S)
            for command in self.loop.tick(view, figures, self.now_us):
                if isinstance(command, Send) and isinstance(command.message, m.Switch):
                    self._switch(command.message)

    def _tell(self) -> None:
        done, pulse = round(self.done), None
        if self.active:
            busy_us = round(self.away * self.execution_us)
            pulse = ReplicaPulse(
                range=Range(0, 0), records_in=round(self.away), records_out=round(self.away), busy_us=busy_us,
                cpu_us=0, utilisation={},
            )  # fmt: skip
        own = UnitPulse(
            unit=0, instance=0, arrived=round(self.arrived), waiting=round(self.arrived) - done, replicas=pulse
        )
        known = list(range(8))
        told = m.Pulse(worker=0, incarnation=70, at_us=self.now_us, units=[own], slots=0, replicas=known)
        self.loop.on_worker(told, self.now_us)

    def _figures(self, rate: float) -> list[OperationFigures]:
        def figures(name: str, service_us: float) -> OperationFigures:
            return OperationFigures(
                name, "map", "record", 1, rate, rate, 1.0, 0, service_us, 1.0, 1.0, 100, 100, 0, 0, 0, 0, 1.0, 1.0, 1.0,
                block_records=1.0, latency_us=30_000.0,
            )  # fmt: skip

        return [figures("in", 1.0), figures("slow", self.execution_us), figures("out", 1.0)]

    def _switch(self, order: m.Switch) -> None:
        self.active = list(order.replicas)
        self.away = self.away if order.replicas else 0.0
        self.orders.append(order.replicas)
        for instance in range(self.plan.units[0].instances):
            switched = m.Changed(
                worker=0, incarnation=70, number=order.number, unit=0, instance=instance, pause_us=0, carried_records=0
            )
            self.loop.on_worker(switched, self.now_us)


def test_instances_of_one_worker_are_one_process() -> None:
    """Four instances that take turns in a worker carry what one does: the rest is for replicas."""
    play = Play(instances=4)
    play.run(10, 100)
    assert len(play.active) == 3
    assert play.arrived - play.done < 10


@pytest.mark.parametrize("degree", [1, 3, 8])
def test_a_number_that_the_user_settles_stays_until_the_job_may_choose_again(degree: int) -> None:
    play = Play()
    play.run(2, 20)
    play.loop.replicate("slow", degree, play.now_us)
    play.run(5, 20)
    assert len(play.active) == (degree if degree > 1 else 0)
    settled = list(play.orders)
    play.run(5, 150)
    assert play.orders == settled, "whatever the load"
    (view,) = play.loop.report().replicas
    assert (view.wanted, view.least, view.most, view.pinned) == (degree, 1, 8, True)
    play.loop.replicate("slow", None, play.now_us)
    play.run(20, 20)
    assert play.active == [], "one process is enough for that"
    (view,) = play.loop.report().replicas
    assert not view.pinned
    play.run(8, 150)
    assert len(play.active) in (4, 5)


def test_a_number_that_is_given_back_at_once_is_the_laws_again() -> None:
    play = Play()
    play.run(8, 150)
    before = list(play.active)
    play.loop.replicate("slow", 8, play.now_us)
    play.run(0.3, 150)
    assert len(play.active) == 8
    play.loop.replicate("slow", None, play.now_us)
    play.run(10, 150)
    assert len(play.active) == len(before), "although the law has wanted that number all the time"


def test_a_step_is_followed_up_and_down() -> None:
    play = Play()
    play.run(5, 20)
    assert play.active == []
    play.run(8, 150)
    assert len(play.active) in (4, 5)
    assert play.arrived - play.done < 10
    settled = list(play.orders)
    play.run(10, 150)
    assert play.orders == settled, "a constant load changes nothing"
    play.run(6, 20)
    assert play.active == []
    report = play.loop.report()
    assert all(each.reason and each.inputs for each in report.switches)
    assert report.elastic is not None
    assert report.elastic.replicas_over == 8
    assert 0.4 < report.elastic.saved < 0.9
    assert report.elastic.processed > 0.99
    assert report.elastic.latency_ms == pytest.approx(30.0)
    assert [each.replicas for each in report.elastic.moments][-1] == 1


def test_advice_changes_nothing_and_says_what_it_would() -> None:
    play = Play(advise=True)
    play.run(5, 20)
    play.run(5, 150)
    assert play.orders == []
    advice = play.loop.report().advice
    assert advice[0].operations == ["slow"]
    assert advice[0].to.endswith("replicas")
    assert "replicas' work" in advice[0].reason


def test_a_pin_is_kept_whatever_comes() -> None:
    play = Play(replicas=3)
    play.run(3, 0)
    assert len(play.active) == 3
    play.run(5, 400)
    assert len(play.active) == 3


def test_without_replicas_nothing_is_decided_and_reported() -> None:
    play = Play(replicas=None)
    play.run(3, 400)
    assert play.orders == []
    assert play.loop.report().elastic is None


def test_a_pool_of_the_job_is_used_for_what_is_slow() -> None:
    play = Play()
    play.plan = plan_of({"replicas": 8}, None)
    play.loop = ControlLoop(play.plan, cores=2)
    play.run(3, 20)
    play.run(6, 150)
    assert len(play.active) in (4, 5)
    assert play.loop.report().replicas[0].operations == ["slow"]


def test_an_instance_that_is_rolled_back_is_not_taken_for_calm() -> None:
    play = Play()
    play.run(2, 20)
    play.run(6, 150)
    before = list(play.active)
    play.arrived, play.done = play.arrived - 500, play.done - 500
    play.run(1, 150)
    assert play.active == before


def test_the_course_is_bounded() -> None:
    play = Play(replica_interval="100ms")
    play.run(120, 20)
    elastic = play.loop.report().elastic
    assert elastic is not None
    assert MOMENTS_MAX // 2 <= len(elastic.moments) <= MOMENTS_MAX
    assert elastic.moments[-1].at_s > 119


def test_replicas_count_for_what_the_record_form_carries() -> None:
    """Otherwise the law of the switch point would take a load that replicas carry for a burst."""
    measures = Measures(plan_of({}), 2, {})
    play = Play()
    for _ in range(10):
        measures.on_figures(play._figures(100.0))
    alone = measures.units(1, 50_000, S)[0].operations
    measures.widths = {(0, 0): 6}
    spread = measures.units(1, 50_000, S)[0].operations
    assert [op.name for op in alone] == ["in", "slow", "out"][: len(alone)]
    assert spread[1].record_eps == pytest.approx(6 * (alone[1].record_eps or 0.0))
    assert spread[0].record_eps == alone[0].record_eps


def test_a_range_in_batch_form_gets_no_replicas_and_comes_back_to_them() -> None:
    play = Play()
    play.run(3, 20)
    loop, unit_of = play.loop, play.plan.units[0]
    loop._switches.begin(unit_of, Range(0, 0), "a burst", {}, 0.0, play.now_us)
    (order,) = loop._switches.tick(True, 50_000, play.now_us)[0]
    play._switch(order)
    play.run(1.5, 150)
    assert play.active == [], "it is in batch form"
    play.run(3, 150)
    # Batches carry no more than one process does, so it comes back: to the replicas, not to the worker first.
    assert len(play.active) >= 4
    back = next(each for each in play.loop.report().switches if "batch form carries" in each.reason)
    assert back.to.endswith("replicas")


@pytest.mark.parametrize("given", ["1ms", "never", 0, None])
def test_a_wrong_interval_is_refused(given: Any) -> None:
    with pytest.raises(InvalidOption, match="replica_interval"):
        Options.of(replica_interval=given)
