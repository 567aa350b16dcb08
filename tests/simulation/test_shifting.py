"""Key groups go from one instance to another in simulated jobs, with losses in every step; planted bugs are found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planting import Change, Mutation, Nursery, Patch, find

import penstock.engine.edges as edges
from penstock.control.recovery import InstanceId
from penstock.control.shifting import Shifting
from penstock.engine.edges import EdgeOutput
from penstock.engine.unit import Unit
from penstock.operators.keyed.state import KeyedState
from penstock.pipeline.routes import Shift, routed
from penstock.testing.simulation import simulate
from penstock.testing.simulation.faults import Action, Fault, Moment
from penstock.testing.simulation.oracle import Shape
from penstock.testing.simulation.scenario import SHIFTING, Scenario

SEEDS = range(SHIFTING, SHIFTING + 24)


def test_seeds() -> None:
    ended = [simulate(seed) for seed in SEEDS]
    assert sum(outcome.shifts for outcome in ended) > len(ended) / 2
    assert sum(outcome.recoveries for outcome in ended) > len(ended) / 4


bugs = Nursery()


def with_state(scenario: Scenario) -> Scenario | None:
    """A pipeline with state, which is written in pieces, on workers that stay."""
    if scenario.exchanges is not None or scenario.shape not in (Shape.RUNNING, Shape.WINDOW, Shape.DEEP):
        return None
    return replace(scenario, options=replace(scenario.options, state_slice=1), scales=[])


def struck_at(moment: Moment, action: Action, *, few: bool = False) -> Change:
    """A fault when a step is reached, each seed another time; ``few``: most workers have no source."""

    def change(scenario: Scenario) -> Scenario | None:
        found = with_state(scenario)
        if found is None:
            return None
        if few:
            found = replace(found, partitions=[max(found.partitions, key=len)])
        found = replace(found, options=replace(found.options, workers=found.options.parallelism))
        fault = Fault(action, moment, 2 + scenario.seed % 12, 0, 20_000)
        return replace(found, faults=[fault], delivered=False)

    return change


@bugs.planted_with(with_state)
def producers_deal_out_as_before(patch: Patch) -> None:
    patch.setattr(edges, "routed", lambda *_: {})


@bugs.planted_with(with_state)
def producers_deal_out_anew_before_the_marker(patch: Patch) -> None:
    original = routed
    patch.setattr(edges, "routed", lambda shifts, unit, count, epoch: original(shifts, unit, count, epoch + 1))


@bugs.planted_with(with_state)
def nobody_holds_behind_the_marker(patch: Patch) -> None:
    patch.setattr(Unit, "hold", lambda self, *, holds: None)


@bugs.planted_with(with_state)
def the_old_instance_keeps_what_has_left(patch: Patch) -> None:
    patch.setattr(KeyedState, "restore_without", lambda self, groups, pieces: self.restore(pieces))


@bugs.planted_with(struck_at(Moment.RESUME, Action.KILL_OTHER))
def the_log_of_the_new_instance_lacks_what_has_come(patch: Patch) -> None:
    original = KeyedState.restore_with

    def restore_with(self: KeyedState, *rest: Any) -> bool:
        kept = original(self, *rest)
        for space in self.spaces.values():
            space.changed.clear()
        return kept

    patch.setattr(KeyedState, "restore_with", restore_with)


@bugs.planted_with(struck_at(Moment.RECORDED, Action.KILL_DRIVER))
def the_commit_does_not_say_where_groups_are(patch: Patch) -> None:
    patch.setattr(Shifting, "recorded", lambda self, epoch, committed: [])


@bugs.planted_with(struck_at(Moment.RECORDED, Action.KILL_DRIVER))
def the_commit_behind_which_groups_go_does_not_say_so(patch: Patch) -> None:
    original = Shifting.recorded

    def recorded(self: Shifting, epoch: int, committed: int) -> list[Shift]:
        found = original(self, epoch, committed)
        return [] if found and found[-1].epoch == epoch else found

    patch.setattr(Shifting, "recorded", recorded)


@bugs.planted_with(struck_at(Moment.RESUME, Action.KILL_OTHER, few=True))
def the_old_instance_is_not_read_for_the_new_one(patch: Patch) -> None:
    patch.setattr(Shifting, "lenders", lambda self, instances, epoch: set[InstanceId]())


def with_slots(scenario: Scenario) -> Scenario | None:
    return scenario if scenario.has_slots else None


@bugs.planted_with(with_slots)
def what_slots_have_dealt_out_is_left_as_it_is(patch: Patch) -> None:
    patch.setattr(EdgeOutput, "_redealt", lambda self, parts: parts)


@bugs.parameters
def test_some_seed_finds(mutation: Mutation, change: Change, monkeypatch: Patch) -> None:
    find(mutation, change, range(SHIFTING, SHIFTING + 400), monkeypatch)
