"""Replicas that are activated, deactivated, lost and stalled, simulated; and planted bugs, which seeds find."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planting import Change, Mutation, Nursery, Patch, find

from penstock.control.replicas import Replication
from penstock.engine.line import Item
from penstock.engine.sections import Section
from penstock.engine.slot import SlotMachine
from penstock.engine.ways import Replicas
from penstock.engine.ways import pool as pool_module
from penstock.engine.ways.pool import SlotPool, Work
from penstock.protocol.messages import Switch
from penstock.testing.simulation import Outcome, simulate
from penstock.testing.simulation.oracle import Shape
from penstock.testing.simulation.scenario import REPLICATED, Scenario

SEEDS = range(REPLICATED, REPLICATED + 24)
nursery = Nursery()
planted, planted_where = nursery.planted, nursery.planted_where


def plain(scenario: Scenario) -> bool:
    return not scenario.poison and not scenario.pins


def test_seeds() -> None:
    ended: Sequence[Outcome] = [simulate(seed) for seed in SEEDS]
    assert sum(outcome.activations for outcome in ended) > 5 * len(ended)
    assert sum(outcome.slot_losses for outcome in ended) > len(ended) / 3
    assert sum(outcome.refused_results for outcome in ended) > len(ended) / 2
    assert sum(outcome.recoveries for outcome in ended) > len(ended) / 2
    assert sum(bool(outcome.killed_by_record) for outcome in ended) > 1
    assert {len(outcome.scenario.degrees or ()) > 5 for outcome in ended} == {True, False}


def test_a_seed_replays_exactly() -> None:
    first, second = simulate(REPLICATED + 3), simulate(REPLICATED + 3)
    assert (first.trace, first.steps) == (second.trace, second.steps)


@planted_where(plain)
def results_leave_as_they_come(patch: Patch) -> None:
    original = Replicas.on_result

    def on_result(self: Replicas, item: Item, *rest: Any) -> None:
        original(self, item, *rest)
        entries = self._line.entries
        entries.remove(item)
        entries.appendleft(item)

    patch.setattr(Replicas, "on_result", on_result)


@planted_where(plain)
def what_a_deactivated_replica_has_is_forgotten(patch: Patch) -> None:
    original = Replicas.adapt

    def adapt(self: Replicas, switch: Switch) -> bool:
        gone = set(self.numbers) - set(switch.replicas)
        taken = original(self, switch)
        for each in self._pool.replicas(gone) if taken else ():
            each.work.clear()
        return taken

    patch.setattr(Replicas, "adapt", adapt)


@planted_where(plain)
def what_a_deactivated_replica_has_is_computed_twice(patch: Patch) -> None:
    original = Replicas.adapt

    def adapt(self: Replicas, switch: Switch) -> bool:
        gone = set(self.numbers) - set(switch.replicas)
        taken = original(self, switch)
        for each in self._pool.replicas(gone) if taken else ():
            self._pool._unsent.extend(each.work.values())
        return taken

    patch.setattr(Replicas, "adapt", adapt)


@planted_where(plain)
def a_lost_replica_takes_its_items_with_it(patch: Patch) -> None:
    patch.setattr(SlotPool, "_lose", lambda self, incarnation: self._known.pop(incarnation))


@planted_where(lambda s: plain(s) and s.weather.loss >= 0.1)
def nobody_asks_what_a_quiet_replica_holds(patch: Patch) -> None:
    patch.setattr(SlotPool, "_ask", lambda self, known, now_us: None)
    patch.setattr(pool_module, "LOST_US", 1 << 60)
    patch.setattr("penstock.engine.slot.QUIET_US", 1 << 60)


@planted_where(plain)
def a_replica_that_is_asked_forgets_what_it_is_at(patch: Patch) -> None:
    patch.setattr(SlotMachine, "_holds", lambda self, worker: [])
    patch.setattr(pool_module, "MISSED_US", 0)
    patch.setattr(pool_module, "ATTEMPTS_MAX", 1 << 30)
    patch.setattr(SlotPool, "take", _any_attempt)


def _any_attempt(self: SlotPool, incarnation: int, item: int, attempt: int) -> Work | None:
    del incarnation, attempt
    for known in self._known.values():
        if item in known.work:
            return known.work[item]
    return None


@planted_where(lambda s: plain(s) and s.shape in (Shape.SPLIT, Shape.LATE))
def what_was_put_aside_is_forgotten(patch: Patch) -> None:
    original = Replicas.let_out

    def let_out(self: Replicas, item: Item, now_us: int) -> None:
        assert item.passed is not None
        item.passed.sides.clear()
        item.sides.clear()
        original(self, item, now_us)

    patch.setattr(Replicas, "let_out", let_out)


@planted_where(plain)
def a_replica_that_is_gone_stays_chosen(patch: Patch) -> None:
    """All of them fail, and nobody brings the ranges back."""
    original = Replication.on_ended

    def on_ended(self: Replication, number: int, error: str | None, now_us: int) -> None:
        known = dict.fromkeys(self._known_us, 1 << 60)
        original(self, number, error, now_us)
        self._known_us = known
        self.given_up = "never again"

    patch.setattr(Replication, "on_ended", on_ended)


@planted_where(plain)
def what_comes_back_is_taken_twice(patch: Patch) -> None:
    original = Section.run

    def run(self: Section, *rest: Any) -> Any:
        outcome = yield from original(self, *rest)
        outcome.carried = outcome.carried[:1] * 2
        return outcome

    patch.setattr(Section, "run", run)


@nursery.parameters
def test_some_seed_finds(mutation: Mutation, change: Change, monkeypatch: Patch) -> None:
    find(mutation, change, range(REPLICATED, REPLICATED + 1_000_000), monkeypatch)
