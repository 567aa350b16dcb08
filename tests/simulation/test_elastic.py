"""Workers follow a load that comes and goes, in simulated jobs, with losses; and bugs planted there are found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planting import Change, Mutation, Nursery, Patch, find

from penstock.control.laws import workers
from penstock.control.laws.workers import Headcount, Load, Need
from penstock.control.staff import Staff
from penstock.control.staffing import Staffing, Standing
from penstock.testing.simulation import simulate
from penstock.testing.simulation.faults import Action, Fault
from penstock.testing.simulation.scenario import ELASTIC, HOUR_US, Scenario

SEEDS = range(ELASTIC, ELASTIC + 3)


def test_seeds() -> None:
    ended = [simulate(seed) for seed in SEEDS]
    assert sum(outcome.grown for outcome in ended) >= len(ended) / 2
    assert sum(outcome.shrunk for outcome in ended) >= len(ended) / 2
    assert sum(outcome.moves for outcome in ended) > len(ended)


bugs = Nursery()


def calm(scenario: Scenario) -> Scenario | None:
    """Nothing is lost."""
    return replace(scenario, faults=[])


def loses_a_core(scenario: Scenario) -> Scenario | None:
    """One of two workers or more is lost for good."""
    if scenario.options.workers < 2:
        return None
    return replace(scenario, faults=[Fault(Action.SHRINK, None, 1, 300_000, HOUR_US, 1)])


def bounded(scenario: Scenario) -> Scenario | None:
    """Two workers are the most, which are too few, and there would be a third column to give to another one."""
    return calm(scenario) if scenario.options.workers_most == 2 < scenario.options.parallelism else None


@bugs.planted_with(bounded)
def there_is_no_most(patch: Patch) -> None:
    original = Headcount.decide

    def decide(self: Headcount, load: Load, **bounds: Any) -> Need:
        return original(self, load, **{**bounds, "most": 99})

    patch.setattr(Headcount, "decide", decide)


@bugs.planted_with(calm)
def a_worker_leaves_at_the_first_calm_look(patch: Patch) -> None:
    patch.setattr(workers, "DOWN_LOOKS", 1)
    patch.setattr(workers, "SPARE", 2.0)


@bugs.planted_with(loses_a_core)
def a_job_waits_for_a_core_that_does_not_come_back(patch: Patch) -> None:
    patch.setattr(Staff, "_patience_us", property(lambda self: self._scheduler._plan.options.shrink_after_us))


@bugs.planted_with(loses_a_core)
def a_lost_worker_is_never_missed(patch: Patch) -> None:
    original = Staffing.tick

    def tick(self: Staffing, at: Standing, at_s: float, now_us: int) -> Any:
        return original(self, replace(at, wanted=max(at.wanted, self._bounds[0])), at_s, now_us)

    patch.setattr(Staffing, "tick", tick)


@bugs.parameters
def test_some_seed_finds(mutation: Mutation, change: Change, monkeypatch: Patch) -> None:
    find(mutation, change, range(ELASTIC, ELASTIC + 30), monkeypatch)


def test_a_number_that_does_not_follow_the_load_is_seen(monkeypatch: Patch) -> None:
    def never_pressed(patch: Patch) -> None:
        patch.setattr(workers, "PRESSED", 2.0)

    find(never_pressed, calm, SEEDS, monkeypatch, seen=lambda outcome: outcome.grown > 0)
