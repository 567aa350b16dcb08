"""Workers come and go in simulated jobs, with losses in every step of a move; and bugs planted there are found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from planting import Change, Mutation, Nursery, Patch, find

from penstock.control.rescaling import Move, Rescaling, Step
from penstock.control.scheduler import Scheduler
from penstock.engine.share import Share
from penstock.engine.state.copier import Copier
from penstock.engine.state.moving import Loaded, Moves
from penstock.engine.unit import Unit
from penstock.engine.wiring import Wiring
from penstock.testing.simulation import simulate
from penstock.testing.simulation.faults import MOVE_MOMENTS, Action, Fault, Moment
from penstock.testing.simulation.oracle import Shape
from penstock.testing.simulation.scenario import RESCALING, Scenario

SEEDS = range(RESCALING, RESCALING + 44)


def test_seeds() -> None:
    ended = [simulate(seed) for seed in SEEDS]
    assert sum(outcome.moves for outcome in ended) > len(ended)
    assert sum(outcome.loaded for outcome in ended) > len(ended) / 2
    assert sum(outcome.recoveries for outcome in ended) > len(ended) / 2
    struck = sum((outcome.moments for outcome in ended), Counter())
    assert not [moment for moment in MOVE_MOMENTS if not struck[moment]]


bugs = Nursery()


def with_state(scenario: Scenario) -> Scenario | None:
    """A pipeline with state, which is written in pieces."""
    if scenario.exchanges is not None or scenario.shape not in (Shape.RUNNING, Shape.WINDOW, Shape.DEEP):
        return None
    return replace(scenario, options=replace(scenario.options, state_slice=1))


def struck_at(moment: Moment, action: Action) -> Change:
    def change(scenario: Scenario) -> Scenario | None:
        found = with_state(scenario)
        return found and replace(found, faults=[Fault(action, moment, 1, 0, 20_000)])

    return change


@bugs.planted_with(with_state)
def a_column_takes_records_behind_the_marker(patch: Patch) -> None:
    patch.setattr(Unit, "hold", lambda self, *, holds: None)


@bugs.planted_with(with_state)
def a_column_moves_before_its_epoch_is_committed(patch: Patch) -> None:
    original = Rescaling.on_holding

    def on_holding(self: Rescaling, *rest: Any) -> bool:
        found = original(self, *rest)
        if self.move is not None and self.move.step is Step.MARKED:
            self._plan.placement[self.move.column] = self.move.new
        return found

    patch.setattr(Rescaling, "on_holding", on_holding)


@bugs.planted_with(with_state)
def the_old_owner_is_not_waited_for(patch: Patch) -> None:
    original = Rescaling.on_committed

    def on_committed(self: Rescaling, epoch: int) -> Move | None:
        move = original(self, epoch)
        if move is not None:
            move.step = Step.MOVING
        return move

    def on_recorded(self: Scheduler, epoch: int, now_us: int) -> Any:
        commands = original_recorded(self, epoch, now_us)
        moving = self.rescaling.move is not None and self.rescaling.move.step is Step.MOVING
        return commands + self._recover_lost() if moving and not self.recovering else commands

    original_recorded = Scheduler._on_recorded
    patch.setattr(Rescaling, "on_committed", on_committed)
    patch.setattr(Scheduler, "_on_recorded", on_recorded)


@bugs.planted_with(with_state)
def readers_of_a_column_are_not_told_where_it_is(patch: Patch) -> None:
    patch.setattr(Wiring, "rewire", lambda self, made, instances: None)


@bugs.planted_with(with_state)
def outputs_of_a_column_are_not_sent_from_its_new_place(patch: Patch) -> None:
    original = Wiring.connect_outputs

    def connect(self: Wiring, unit: Any, i: int, instances: frozenset[Any], epoch: int) -> None:
        if (unit.id, i) not in instances:
            original(self, unit, i, instances, epoch)

    patch.setattr(Wiring, "connect_outputs", connect)


@bugs.planted_with(with_state)
def channels_to_a_column_stay_open(patch: Patch) -> None:
    patch.setattr(Wiring, "tidy", lambda self: None)


@bugs.planted_with(with_state)
def what_was_written_after_the_state_was_loaded_is_forgotten(patch: Patch) -> None:
    def restored(self: Loaded, operator: Any, rest: Sequence[Any]) -> None:
        operator.restored([rest[-1].header])

    patch.setattr(Loaded, "restore", restored)


@bugs.planted_with(with_state)
def a_column_forgets_how_many_snapshots_it_needs(patch: Patch) -> None:
    original = Copier.restored
    patch.setattr(Copier, "restored", lambda self, snapshots: original(self, 1))


@bugs.planted_with(struck_at(Moment.HOLDING, Action.KILL_OTHER))
def who_holds_does_not_go_on_after_a_recovery(patch: Patch) -> None:
    patch.setattr(Moves, "call_off", lambda self, epoch: None)


@bugs.planted_with(struck_at(Moment.LOADED, Action.KILL_IT))
def a_lost_new_owner_is_waited_for_with_what_it_had_loaded(patch: Patch) -> None:
    patch.setattr(Rescaling, "call_off", lambda self, worker: [])


@bugs.planted_with(struck_at(Moment.ROLLED_BACK, Action.KILL_OTHER))
def what_moves_is_no_part_of_a_recovery(patch: Patch) -> None:
    def recover_lost(self: Scheduler) -> Any:
        if self._lost:
            self._recovering -= self.rescaling.instances()
        return original(self)

    original = Scheduler._recover_lost
    patch.setattr(Rescaling, "instances", lambda self: set())
    patch.setattr(Scheduler, "_recover_lost", recover_lost)


@bugs.planted_with(with_state)
def what_has_moved_away_is_kept(patch: Patch) -> None:
    patch.setattr(Share, "_part_from", lambda self, mine: self._wiring.tidy())
    patch.setattr(Share, "forget", lambda self, key: None)


@bugs.parameters
def test_some_seed_finds(mutation: Mutation, change: Change, monkeypatch: Patch) -> None:
    find(mutation, change, range(RESCALING, RESCALING + 400), monkeypatch)
