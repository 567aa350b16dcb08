"""Simulated jobs whose alternatives are exchanged under faults, and bugs planted into the exchange that they find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from planting import Change, Mutation, Nursery, Patch, find

from penstock.control.exchanges import Exchanges
from penstock.control.scheduler import START_DELAY_US
from penstock.engine.inputs import Taken
from penstock.engine.line import Line
from penstock.engine.passed import Passed
from penstock.engine.state.copier import Copier
from penstock.engine.ways import Calls
from penstock.engine.ways.callee import Portion
from penstock.operators.base import Result, StatefulOperator
from penstock.operators.keyed.exchange import Case, KeyedOperator
from penstock.operators.keyed.process import ProcessOperator
from penstock.operators.keyed.process.table import Table
from penstock.operators.keyed.reduce import ReduceOperator
from penstock.testing.simulation import Outcome, simulate
from penstock.testing.simulation.draws import Wanted
from penstock.testing.simulation.faults import EXCHANGE_MOMENTS, Action, Fault, Moment
from penstock.testing.simulation.oracle import Shape
from penstock.testing.simulation.scenario import ALTERNATING, Scenario
from penstock.testing.simulation.world import START_US

SEEDS = range(ALTERNATING, ALTERNATING + 128)
outcomes: dict[int, Outcome] = {}


def test_seeds() -> None:
    for seed in SEEDS:
        outcomes[seed] = simulate(seed)


def test_the_seeds_have_tested_something() -> None:
    if not outcomes:
        pytest.skip("looks back on all seeds")
    struck: Counter[Moment] = Counter()
    for outcome in outcomes.values():
        struck += outcome.moments
    assert {moment: struck[moment] for moment in EXCHANGE_MOMENTS if struck[moment] < 6} == {}
    assert sum(outcome.exchanges for outcome in outcomes.values()) > 2 * len(SEEDS)
    assert sum(outcome.warm_ups for outcome in outcomes.values()) > 10
    assert sum(outcome.recoveries for outcome in outcomes.values()) > len(SEEDS) / 2
    assert sum(outcome.switches - outcome.exchanges for outcome in outcomes.values()) > 20


def test_a_seed_replays_exactly() -> None:
    assert simulate(ALTERNATING + 3).trace == simulate(ALTERNATING + 3).trace


nursery = Nursery()
planted_where = nursery.planted_where


def once(*faults: Fault, at_us: int = 50_000, shape: Shape | None = None) -> Change:
    """One order, these faults, and a job that goes on for long after them, with a record of each key at its end."""

    def change(scenario: Scenario) -> Scenario | None:
        if scenario.has_slots or shape not in (None, scenario.shape):
            return None
        rows = [[row for row in rows if shape is None or row[4] < START_US + at_us] for rows in scenario.partitions]
        keys = sorted({row[2] for each in rows for row in each} | {"k0"})
        late = [(0, 1_000 + n, key, 1_000, START_US + 9_000_000) for n, key in enumerate(keys)]
        return replace(
            scenario,
            faults=list(faults),
            exchanges=[Wanted(START_DELAY_US + at_us, "two")],
            partitions=[[*rows[0], *late], *rows[1:]],
            options=replace(scenario.options, epoch_us=100_000),
            delivered=False,
            restart_us_last=10_000,
        )

    return change


def windowed(scenario: Scenario) -> bool:
    return scenario.shape in (Shape.WINDOW, Shape.DEEP)


def running(scenario: Scenario) -> bool:
    return scenario.shape is Shape.RUNNING


@planted_where(windowed)
def the_target_takes_over_before_it_is_warm(patch: Patch) -> None:
    patch.setattr(KeyedOperator, "is_warm", lambda self, warm_us: self._target is not None)


@planted_where(windowed)
def what_the_target_is_behind_by_is_skipped(patch: Patch) -> None:
    def hand_over(self: KeyedOperator) -> Case:
        assert self._target is not None
        self.wants_whole = True
        target = self._target
        self._settle(target)
        self._forget_target()
        return Case.BEHIND

    patch.setattr(KeyedOperator, "hand_over", hand_over)


@planted_where(windowed)
def the_results_of_the_target_are_sent_on_too(patch: Patch) -> None:
    original = KeyedOperator.advance

    def advance(self: KeyedOperator, watermark_us: int) -> Result:
        result = original(self, watermark_us)
        if self._target is not None:
            self.catch_up(len(self._entries) - 1)
            self._entries.clear()
            result.rows += self._target.advance(watermark_us).rows
        return result

    patch.setattr(KeyedOperator, "advance", advance)


@planted_where(windowed)
def a_target_begins_without_the_watermark_and_a_restored_one_takes_over_at_once(patch: Patch) -> None:
    original = KeyedOperator.restored

    def restored(self: KeyedOperator, headers: Sequence[Any]) -> None:
        original(self, headers)
        self._newest_us = self._watermark_us = None

    patch.setattr(KeyedOperator, "restored", restored)


@planted_where(running)
def state_is_not_handed_over(patch: Patch) -> None:
    patch.setattr(ReduceOperator, "take_over", lambda self, other: True)


@planted_where(running)
def state_is_handed_over_as_it_is_where_it_should_be_converted(patch: Patch) -> None:
    patch.setattr(ReduceOperator, "take_converted", lambda self, other, convert: self.take_over(other))


def seldom_whole(patch: Patch) -> None:
    """No bug: no state is small, so that changes follow each other."""
    patch.setattr(Copier, "_is_small", property(lambda self: False))


@planted_where(running)
def changes_follow_a_snapshot_of_the_alternative_before(patch: Patch) -> None:
    seldom_whole(patch)
    patch.setattr(KeyedOperator, "wants_whole", property(lambda self: False, lambda self, value: None))


@nursery.planted_with(once(Fault(Action.KILL_IT, None, 1, 3_000_000, 0), at_us=440_000, shape=Shape.RUNNING))
def what_has_changed_before_a_hand_over_is_in_no_snapshot(patch: Patch) -> None:
    seldom_whole(patch)
    patch.setattr(Copier, "_refresh", lambda self, limit: 0)
    original = ReduceOperator.take_over

    def take_over(self: ReduceOperator, other: StatefulOperator) -> bool:
        done = original(self, other)
        for space in self.state.spaces.values():
            space.changed.clear()
        return done

    patch.setattr(ReduceOperator, "take_over", take_over)


@planted_where(running)
def a_restored_instance_begins_with_the_pipelines_own_alternative(patch: Patch) -> None:
    def prepare(self: KeyedOperator, headers: Sequence[Any]) -> None:
        del headers
        self._become(self._built(self.of.active))

    patch.setattr(KeyedOperator, "prepare", prepare)


def called(scenario: Scenario) -> bool:
    return scenario.shape is Shape.CALLED


@planted_where(called)
def what_is_called_for_and_given_to_another_one_is_not_dropped(patch: Patch) -> None:
    def drop(self: Portion) -> None:
        self.missing = 0

    patch.setattr(Portion, "drop", drop)


@planted_where(called)
def what_is_computed_leaves_before_the_calls_that_are_under_way(patch: Patch) -> None:
    original = Calls.take

    def take(self: Calls, taken: Taken, entered: Passed, now_us: int) -> None:
        line, self._line = self._line, Line() if self._name not in self._callees else self._line
        original(self, taken, entered, now_us)
        self._line = line

    patch.setattr(Calls, "take", take)


@planted_where(called)
def only_some_of_what_nobody_has_begun_is_handed_on(patch: Patch) -> None:
    original = Calls._give

    def give(self: Calls, portion: Portion, name: str) -> None:
        if name not in self._callees and portion.tried:
            portion.entered = portion.entered[1:]
        original(self, portion, name)

    patch.setattr(Calls, "_give", give)
    patch.setattr(Portion, "drop", keeps_tried)


def keeps_tried(self: Portion) -> None:
    for one in self.ones:
        one.dropped = True
    self.ones, self.aside, self.failures, self.missing = [], [], None, 0
    self.tried = Kept(self.tried)


class Kept(set[str]):
    """Forgets nothing."""

    def clear(self) -> None:
        pass


@planted_where(lambda scenario: called(scenario) and scenario.has_slots)
def an_order_to_call_does_not_wait_for_the_record_form(patch: Patch) -> None:
    patch.setattr("penstock.engine.exchange._calls", lambda operator, name: False)
    original = Exchanges.tick
    patch.setattr(Exchanges, "tick", lambda self, here: original(self, lambda unit: True))


@planted_where(lambda scenario: scenario.shape in (Shape.WINDOWING, Shape.BUFFERING))
def timers_are_not_handed_over(patch: Patch) -> None:
    original = ProcessOperator.take_over

    def take_over(self: ProcessOperator, other: StatefulOperator) -> bool:
        done = original(self, other)
        self.table.timers.heap.clear()
        self.table.clock_timers.heap.clear()
        return done

    patch.setattr(ProcessOperator, "take_over", take_over)


@planted_where(lambda scenario: scenario.shape is Shape.WINDOWING)
def timers_are_not_converted(patch: Patch) -> None:
    original = Table.take_converted

    def take_converted(self: Table, other: Table, convert: Any) -> None:
        original(self, other, convert)
        self.timers.heap.clear()

    patch.setattr(Table, "take_converted", take_converted)


@planted_where(lambda scenario: scenario.shape is Shape.WINDOWING)
def what_a_failed_alternative_has_begun_is_not_undone(patch: Patch) -> None:
    patch.setattr(ProcessOperator, "undo", lambda self: True)


@planted_where(lambda scenario: scenario.shape is Shape.WINDOWING)
def timers_that_have_fired_are_not_put_back(patch: Patch) -> None:
    original = ProcessOperator.undo

    def undo(self: ProcessOperator) -> bool:
        held = {key: set(times) for key, times in self.table.timers.held.items()}
        done = original(self)
        for key in list(self.table.timers.held):
            self.table.timers.put(key, held.get(key, ()))
        return done

    patch.setattr(ProcessOperator, "undo", undo)


@nursery.planted_with(once(Fault(Action.KILL_IT, Moment.EXCHANGED, 1, 0, 0)))
def rebuilt_instances_are_not_told_what_to_use(patch: Patch) -> None:
    patch.setattr(Exchanges, "repeat", lambda self: [])


@nursery.planted_with(once(Fault(Action.KILL_DRIVER, None, 1, 1_500_000, 0)))
def a_resumed_job_forgets_what_was_wanted(patch: Patch) -> None:
    original = Exchanges.__init__

    def init(self: Exchanges, plan: Any, numbers: Any, reports: Any, used: Any = None) -> None:
        original(self, plan, numbers, reports)

    patch.setattr(Exchanges, "__init__", init)


@nursery.parameters
def test_planted_bugs_are_found(mutation: Mutation, change: Change, monkeypatch: Patch) -> None:
    find(mutation, change, range(ALTERNATING, ALTERNATING + 2_000), monkeypatch)
