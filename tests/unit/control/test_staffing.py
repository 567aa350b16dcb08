"""How many workers a job gives itself: the law, what is measured for it, and who acts before it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduling import COUNT, READ, plan_for

from penstock.control.laws.workers import DOWN_LOOKS, FULL, UP_LOOKS, Headcount, Load, packed, workers_for
from penstock.control.loads import Loads
from penstock.control.staffing import JOIN_US_MAX, RETRY_US, ScaleReport, Staffing, Standing
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m
from penstock.protocol.pulses import UnitPulse

SECOND = 1_000_000


def even(columns: int, load: float) -> Load:
    return Load(columns=dict.fromkeys(range(columns), load / columns), busiest=min(1.0, load))


def decided(law: Headcount, load: Load, looks: int, present: int, least: int = 1, most: int = 8) -> list[int]:
    """What a law says in so many looks, which nobody follows."""
    return [law.decide(load, present=present, least=least, most=most).workers for _ in range(looks)]


# --- the law ----------------------------------------------------------------------------------------------------------


def test_a_load_must_stay_before_the_number_grows() -> None:
    assert decided(Headcount(), even(8, 2.0), UP_LOOKS, present=1) == [1] * (UP_LOOKS - 1) + [3]


def test_a_worker_is_given_back_after_a_long_calm_only() -> None:
    law = Headcount()
    assert decided(law, even(8, 0.4), DOWN_LOOKS, present=4) == [4] * (DOWN_LOOKS - 1) + [1]
    law.forget()
    assert decided(law, even(8, 0.4), DOWN_LOOKS - 1, present=4) == [4] * (DOWN_LOOKS - 1)
    assert decided(law, even(8, 2.0), 1, present=4) == [4]
    assert decided(law, even(8, 0.4), DOWN_LOOKS - 1, present=4) == [4] * (DOWN_LOOKS - 1), "it begins anew"


def test_nobody_joins_where_nobody_is_busy() -> None:
    held_up = Load(columns={0: 0.2, 1: 0.2}, busiest=0.4, demand=4.0, backlog=50.0)
    assert decided(Headcount(), held_up, 20, present=1) == [1] * 20


def test_what_waits_and_what_is_expected_count() -> None:
    columns = dict.fromkeys(range(8), 0.1)
    assert Load(columns=columns, busiest=0.8).work == pytest.approx(0.8)
    assert Load(columns=columns, busiest=0.8, demand=1.5, ahead=2.0, backlog=0.4).work == pytest.approx(2.8)
    assert Load(columns=columns, busiest=0.8, ahead=0.5).work == pytest.approx(0.8), "a fall is not believed in"
    assert Load(columns=columns, busiest=0.8, demand=99.0).work == pytest.approx(3.2), "nor is a wild guess"


def test_a_column_that_fills_a_worker_alone_gets_no_more_than_one() -> None:
    assert workers_for([0.95, 0.05, 0.05, 0.05], FULL) == 2


@settings(max_examples=25)
@given(st.lists(st.floats(0, 2), min_size=1, max_size=8), st.integers(1, 8))
def test_the_number_is_the_least_that_carries(loads: list[float], present: int) -> None:
    number = workers_for(loads, FULL)
    assert 1 <= number <= len(loads)
    assert packed(loads, number) <= max(FULL, packed(loads, len(loads)))
    assert all(packed(loads, fewer) > FULL for fewer in range(1, number))
    load = Load(columns=dict(enumerate(loads)), busiest=1.0)
    for wanted in decided(Headcount(), load, DOWN_LOOKS, present, least=2, most=5):
        assert 2 <= wanted <= 5


@settings(max_examples=25)
@given(st.lists(st.floats(0, 0.5), min_size=6, max_size=6), st.integers(1, 6))
def test_a_constant_load_comes_to_rest(loads: list[float], present: int) -> None:
    law, changes = Headcount(), 0
    for _ in range(4 * DOWN_LOOKS):
        busiest = packed(loads, present)
        load = Load(columns=dict(enumerate(loads)), busiest=min(1.0, busiest))
        need = law.decide(load, present=present, least=1, most=6)
        if need.workers != present:
            changes, present = changes + 1, need.workers
            law.forget()
    assert changes <= 1


# --- what is measured -------------------------------------------------------------------------------------------------


def plan_of(least: int = 1, most: int = 2, columns: int = 2, **more: Any) -> Plan:
    plan = plan_for(columns)
    return replace(plan, options=replace(plan.options, workers=least, workers_most=most, **more)).placed()


def pulse(
    worker: int, at_us: int, busy_us: int, units: list[UnitPulse], cpu_us: int = 0, incarnation: int = 1
) -> m.Pulse:
    return m.Pulse(
        worker=worker, incarnation=incarnation, at_us=at_us, units=units, slots=0, busy_us=busy_us, cpu_us=cpu_us
    )  # fmt: skip


def unit(number: int, column: int, busy_us: int, arrived: int = 0, waiting: int = 0) -> UnitPulse:
    return UnitPulse(unit=number, instance=column, arrived=arrived, waiting=waiting, busy_us=busy_us)


def test_a_workers_time_is_charged_to_its_columns() -> None:
    loads = Loads(plan_of())
    loads.on_pulse(pulse(0, 0, 0, [unit(READ, 0, 0), unit(READ, 1, 0), unit(COUNT, 1, 0)]))
    assert loads.look({0}) is None, "the first look has nothing to compare with"
    units = [unit(READ, 0, 100, 40), unit(READ, 1, 200, 30, 10), unit(COUNT, 1, 100, 999, 99)]
    loads.on_pulse(pulse(0, SECOND, 800_000, units, cpu_us=200_000))
    look = loads.look({0})
    assert look is not None
    assert look.workers == {0: 0.8}
    assert look.columns == {0: pytest.approx(0.2), 1: pytest.approx(0.6)}
    assert (look.arrived, look.taken, look.waiting, look.cpu) == (70, 60, 10, 0.25), "of the source alone"
    assert loads.look({0}) is None, "nothing new"


def test_a_look_waits_for_everybody_and_begins_anew_where_something_moved() -> None:
    loads = Loads(plan_of())
    for worker in (0, 1):
        loads.on_pulse(pulse(worker, 0, 0, [unit(READ, worker, 0, 10)]))
    loads.look({0, 1})
    loads.on_pulse(pulse(0, SECOND, 10, [unit(READ, 0, 0, 20)]))
    assert loads.look({0, 1}) is None
    loads.on_pulse(pulse(1, SECOND, 10, [unit(READ, 1, 0, 5)]))
    assert loads.look({0, 1}) is None, "it was rolled back"
    for incarnation, at_s in ((1, 2), (2, 3)):
        loads.on_pulse(pulse(0, at_s * SECOND, 20, [unit(READ, 0, 0, 30)]))
        loads.on_pulse(pulse(1, at_s * SECOND, 20, [unit(READ, 1, 0, 30)], incarnation=incarnation))
        assert (loads.look({0, 1}) is None) == (incarnation == 2), "it is another process"


# --- who acts ---------------------------------------------------------------------------------------------------------


class Job:
    """A staffing with its clock, of which the workers are as busy as they are told to be."""

    def __init__(self, plan: Plan, cores: int = 8) -> None:
        self.staffing = Staffing(plan, cores, Loads(plan))
        self.now_us = 0
        self.wanted = plan.workers
        self.present = self.wanted
        self._busy_us = dict.fromkeys(range(plan.options.parallelism), 0.0)
        self._arrived = 0

    def look(self, busy: float, *, cpu: float = 0.0, **standing: Any) -> ScaleReport | None:
        """Let an interval pass."""
        self.now_us += SECOND
        self._arrived += 100
        for worker in range(self.present):
            self._busy_us[worker] += busy * SECOND
            busy_us = int(self._busy_us[worker])
            columns = range(worker, self.staffing.plan.options.parallelism, self.present)
            units = [unit(READ, column, busy_us, self._arrived) for column in columns]
            self.staffing.loads.on_pulse(pulse(worker, self.now_us, busy_us, units, int(cpu * busy_us)))
        found = self.staffing.tick(
            Standing(members=range(self.present), wanted=self.wanted, **standing), self.now_us / 1e6, self.now_us
        )
        if found is not None and not self.staffing.plan.options.advise:
            self.wanted = found.workers
        return found

    def looks(self, count: int, busy: float, **more: Any) -> list[int]:
        """The numbers that are decided on in so many intervals."""
        return [found.workers for _ in range(count) if (found := self.look(busy, **more)) is not None]


def test_a_job_grows_within_its_bounds_and_says_why() -> None:
    job = Job(plan_of(1, 3, columns=8))
    (found,) = [each for _ in range(1 + UP_LOOKS) if (each := job.look(1.0)) is not None]
    assert (found.before, found.workers) == (1, 2)
    assert found.reason == "workers are 100% busy, the busiest 100%; 800/s come: 1.0 workers' work, for 2"
    view = job.staffing.view(range(1), job.wanted)
    assert (view.present, view.wanted, view.least, view.most, view.utilisation) == (1, 2, 1, 3, {0: 1.0})


def test_whoever_costs_less_acts_first() -> None:
    plan = plan_of(1, 2)
    assert Job(plan).looks(10, 1.0, switching=True) == []
    assert Job(plan).looks(10, 1.0, moving=True) == []
    assert Job(plan).looks(10, 1.0, running=False) == []
    assert Job(plan).looks(2 + UP_LOOKS, 1.0, replicas_left=True) == [], "replicas have a td to act"
    assert Job(plan).looks(3 + UP_LOOKS, 1.0, replicas_left=True) == [2]
    assert Job(plan).looks(1 + UP_LOOKS, 1.0, in_batch=True) == [2], "busy in spite of the batch form"
    job = Job(plan)
    assert job.looks(1 + UP_LOOKS, 1.0) == [2]
    job.present = 2
    assert job.looks(3 * DOWN_LOOKS, 0.1, in_batch=True) == [], "a burst is under way"
    assert job.looks(1 + DOWN_LOOKS, 0.1) == [1]


def test_a_job_without_bounds_decides_nothing_until_it_is_left_to_it() -> None:
    job = Job(plan_of(1, 0))
    assert job.looks(10, 1.0) == []
    assert (job.staffing.view([0], 1).least, job.staffing.view([0], 1).most) == (1, 1)
    job.staffing.settle(0)
    assert job.looks(1 + UP_LOOKS, 1.0) == [2]


def test_what_the_user_says_holds() -> None:
    job = Job(plan_of(1, 2))
    job.staffing.settle(1)
    assert job.looks(10, 1.0) == []
    job.wanted = 0
    assert job.looks(1, 1.0) == [1], "a worker was lost for good"
    job.staffing.settle(0)
    assert job.looks(1 + UP_LOOKS, 1.0) == [2]


def test_workers_that_compute_are_no_more_than_cores() -> None:
    assert Job(plan_of(1, 2), cores=1).looks(10, 1.0, cpu=1.0) == []
    assert Job(plan_of(1, 2), cores=1).looks(10, 1.0, cpu=0.1) == [2], "those that wait may be"


def test_there_are_never_fewer_than_the_least() -> None:
    job = Job(plan_of(2, 3, columns=4))
    job.wanted = 1
    found = job.look(0.0)
    assert found is not None
    assert (found.workers, found.reason) == (2, "at least 2 workers are asked for, and 1 are left")


def test_a_worker_that_does_not_come_is_given_up_and_tried_again_later() -> None:
    job = Job(plan_of(1, 2))
    assert job.looks(1 + UP_LOOKS, 1.0) == [2]
    assert job.looks(JOIN_US_MAX // SECOND, 1.0, joining=True) == []
    assert job.looks(1, 1.0, joining=True) == [1]
    assert "Spark has started no other worker" in job.staffing.decisions[-1].reason
    assert job.looks(RETRY_US // SECOND - 1, 1.0) == []
    assert job.looks(UP_LOOKS, 1.0) == [2]


def test_advice_is_given_once() -> None:
    job = Job(plan_of(1, 2, advise=True))
    assert job.looks(10, 1.0) == [2]
    assert job.staffing.decisions == []


def test_a_hot_instance_is_named() -> None:
    plan = plan_of(2, 2, columns=4)
    staffing = Staffing(plan, 8, Loads(plan))
    for at_s in range(3):
        for worker in (0, 1):
            busy_us = (0.99 if worker else 0.1) * at_s * SECOND
            units = [unit(READ, c, int(busy_us) if c == 3 else 1 * at_s, 9 * at_s) for c in (worker, worker + 2)]
            staffing.loads.on_pulse(pulse(worker, at_s * SECOND, int(busy_us), units))
        staffing.tick(Standing(members={0, 1}, wanted=2), at_s, at_s * SECOND)
    assert staffing.view({0, 1}, 2).note == "instance 3 has 91% of the work, and one worker's time is its most"
