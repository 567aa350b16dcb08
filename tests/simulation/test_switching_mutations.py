"""Bugs planted into the batch path: hand-overs, slots, groups, careful mode. Each is found by some seed."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

from planting import Change, Mutation, Nursery, Patch, find

from penstock.control.adaptation import ControlLoop
from penstock.control.events import Command, Event, HostEnded
from penstock.control.scheduler import Scheduler
from penstock.control.switches import Switches
from penstock.engine.chain import SinkOperator
from penstock.engine.guard import Guard
from penstock.engine.line import Item, Line, Marker
from penstock.engine.share import Share
from penstock.engine.unit import Unit
from penstock.engine.ways import Slots
from penstock.engine.ways import pool as pool_module
from penstock.engine.ways.pool import SlotPool, Work
from penstock.protocol import messages as m
from penstock.testing.simulation.faults import Action, Fault, Moment
from penstock.testing.simulation.oracle import Shape
from penstock.testing.simulation.scenario import POISON, SWITCHING, Scenario

nursery, with_poison = Nursery(), Nursery()
planted, planted_where, planted_with = nursery.planted, nursery.planted_where, nursery.planted_with


def short(scenario: Scenario) -> bool:
    return len(scenario.pins or ()) < 100


def struck(*faults: Fault, **options: int) -> Change:
    """Let only these faults strike, in a network that is slow enough for much to be under way."""

    def change(scenario: Scenario) -> Scenario | None:
        if not short(scenario) or scenario.options.parallelism < 2:
            return None
        return replace(
            scenario,
            faults=list(faults),
            weather=replace(scenario.weather, delay_us_max=20_000),
            options=replace(scenario.options, **{"epoch_us": 30_000, "interval_us": 5_000, **options}),
            restart_us_last=10_000,
        )

    return change


def at(moment: Moment, action: Action, nth: int = 1, duration_us: int = 800_000) -> Fault:
    return Fault(action, moment, nth, 0, duration_us)


def words_are_lost(scenario: Scenario) -> bool:
    return short(scenario) and scenario.weather.loss >= 0.1


# --- results ----------------------------------------------------------------------------------------------------------


@planted
def a_result_of_an_old_attempt_is_taken(patch: Patch) -> None:
    def take(self: SlotPool, incarnation: int, item: int, attempt: int) -> Work | None:
        for known in self._known.values():
            if item in known.work:
                return known.work.pop(item)
        return None

    patch.setattr(SlotPool, "take", take)


@planted_where(lambda s: short(s) and s.weather.delay_us_max > 2_000)
def a_result_that_comes_again_is_for_whoever_is_next(patch: Patch) -> None:
    """Numbers begin anew with every way: a result of the one before is taken for one of this."""
    original = Slots.__init__

    def init(self: Slots, *rest: Any) -> None:
        original(self, *rest)
        self._pool._items = 0

    patch.setattr(Slots, "__init__", init)


@planted
def results_go_on_as_they_come(patch: Patch) -> None:
    original = Unit._release

    def release(self: Unit, now_us: int) -> bool:
        back = [each for each in self.line.items if each.result is not None]
        self.line.entries = deque([*back, *(each for each in self.line if each not in back)])
        return original(self, now_us)

    patch.setattr(Unit, "_release", release)


@planted
def a_result_goes_on_twice(patch: Patch) -> None:
    original = SinkOperator.adopt

    def adopt(self: SinkOperator, staged: bytes) -> None:
        original(self, staged)
        original(self, staged)

    patch.setattr(SinkOperator, "adopt", adopt)


@planted_where(lambda s: short(s) and s.shape in (Shape.LATE, Shape.SPLIT))
def what_was_put_aside_before_the_range_is_forgotten(patch: Patch) -> None:
    original = Unit._let_item_out

    def let_out(self: Unit, item: Item, now_us: int) -> None:
        item.sides.clear()
        original(self, item, now_us)

    patch.setattr(Unit, "_let_item_out", let_out)


# --- markers ----------------------------------------------------------------------------------------------------------


@planted
def a_marker_overtakes_micro_batches(patch: Patch) -> None:
    def append(self: Line, entry: Item | Marker) -> None:
        self.entries.appendleft(entry) if isinstance(entry, Marker) else self.entries.append(entry)

    patch.setattr(Line, "append", append)


@planted_with(struck(at(Moment.COMMITTED, Action.KILL_TWO, 6), interval_us=1_000, queue_records=5))
def offsets_are_those_of_the_release(patch: Patch) -> None:
    def let_out(self: Unit, marker: Marker) -> None:
        marker.capture.positions = self.input.positions()
        original(self, marker)

    original = Unit._let_marker_out
    patch.setattr(Unit, "_let_marker_out", let_out)


@planted_with(struck(at(Moment.COMMITTED, Action.KILL_TWO, 12), interval_us=1_000, queue_records=5))
def positions_of_inputs_are_those_of_the_release(patch: Patch) -> None:
    def let_out(self: Unit, marker: Marker) -> None:
        marker.capture.inputs = self.input.states()
        original(self, marker)

    original = Unit._let_marker_out
    patch.setattr(Unit, "_let_marker_out", let_out)


@planted_where(lambda s: short(s) and s.shape in (Shape.WINDOW, Shape.DEEP) and s.options.slots > 1)
def event_time_passes_before_the_records_are_back(patch: Patch) -> None:
    original = Unit._let_item_out

    def let_out(self: Unit, item: Item, now_us: int) -> None:
        for each in self.line.items:
            if item.result is not None and each.result is not None:
                shown, own = each.result.done.times, item.result.done.times
                if shown is not None and own is not None:
                    own.newest_us = max(own.newest_us, shown.newest_us)
        original(self, item, now_us)

    patch.setattr(Unit, "_let_item_out", let_out)


# --- hand-overs -------------------------------------------------------------------------------------------------------


@planted
def micro_batches_are_cut_on_the_way_back(patch: Patch) -> None:
    original = Unit.step

    def step(self: Unit, now_us: int) -> bool:
        worked = original(self, now_us)
        if self.changes.wanted is not None and not self.finished and not self._ending and self.has_room:
            worked |= self._take(now_us)
        return worked

    patch.setattr(Unit, "step", step)


@planted
def what_had_gathered_is_lost_on_the_way_back(patch: Patch) -> None:
    patch.setattr(Unit, "_is_away", property(lambda self: bool(self.line)))


@planted
def another_way_takes_over_in_the_middle_of_the_line(patch: Patch) -> None:
    patch.setattr(Unit, "_is_away", property(lambda self: self.way.gathers))


@planted_with(struck(at(Moment.RETURNED, Action.KILL_IT, 3)))
def orders_are_not_given_again_after_a_recovery(patch: Patch) -> None:
    patch.setattr(ControlLoop, "on_resumed", lambda self, peers: [])


@planted_with(struck(at(Moment.RETURNED, Action.KILL_IT, 3)))
def only_the_order_under_way_is_given_again(patch: Patch) -> None:
    original = Switches.repeat

    def repeat(self: Switches) -> list[m.Switch]:
        return [order for order in original(self) if self.busy(order.unit)]

    patch.setattr(Switches, "repeat", repeat)


@planted_with(struck(at(Moment.AWAY, Action.KILL_OTHER, 4)))
def a_rollback_does_not_withdraw(patch: Patch) -> None:
    patch.setattr(SlotPool, "withdraw", lambda self, way: None)


# --- slots ------------------------------------------------------------------------------------------------------------


@planted
def what_a_lost_slot_had_is_not_given_out_again(patch: Patch) -> None:
    patch.setattr(SlotPool, "_lose", lambda self, incarnation: self._known.pop(incarnation))


@planted
def what_a_lost_slot_had_is_given_out_and_kept(patch: Patch) -> None:
    original = SlotPool._lose

    def lose(self: SlotPool, incarnation: int) -> None:
        known = self._known[incarnation]
        original(self, incarnation)
        self._known[incarnation] = known

    patch.setattr(SlotPool, "_lose", lose)


@planted_where(words_are_lost)
def lost_words_are_not_made_up_for(patch: Patch) -> None:
    patch.setattr(SlotPool, "_give_missed", lambda self, known, holds, now_us: None)
    patch.setattr(pool_module, "LOST_US", 1 << 50)


@planted
def a_slot_gets_more_than_it_can_hold(patch: Patch) -> None:
    patch.setattr(pool_module, "DEPTH", 100)


@planted_where(lambda s: short(s) and any(fault.action is Action.HOST_ENDS for fault in s.faults))
def the_end_of_the_workers_job_passes_for_success(patch: Patch) -> None:
    original = Scheduler.handle

    def handle(self: Scheduler, event: Event, now_us: int) -> list[Command]:
        return self._stop(None) if isinstance(event, HostEnded) else original(self, event, now_us)

    patch.setattr(Scheduler, "handle", handle)


@nursery.parameters
def test_some_seed_finds(mutation: Mutation, change: Change, monkeypatch: Patch) -> None:
    find(mutation, change, range(SWITCHING, POISON), monkeypatch)


# --- records that kill their process ----------------------------------------------------------------------------------


@with_poison.planted_where(lambda s: s.has_slots and short(s))
def slots_that_are_lost_are_not_counted(patch: Patch) -> None:
    patch.setattr(SlotPool, "give_back_lost", lambda self: False)


@with_poison.planted_where(lambda s: s.has_slots and short(s))
def what_slots_are_lost_with_is_given_up(patch: Patch) -> None:
    def give_back(self: SlotPool, found: list[Work]) -> None:
        for work in found:
            self._unsent.remove(work)

    patch.setattr(SlotPool, "_give_back", give_back)


@with_poison.planted
def no_worker_is_ever_careful(patch: Patch) -> None:
    original = Share.start
    patch.setattr(Share, "start", lambda self, message, snapshots, guard: original(self, message, snapshots))


@with_poison.planted
def nothing_is_noted_in_careful_mode(patch: Patch) -> None:
    original = Guard.losses

    def losses(self: Guard, operation: str, record: Any) -> int:
        found = original(self, operation, record)
        self.done()
        return found

    patch.setattr(Guard, "losses", losses)


@with_poison.planted
def quarantine_is_not_kept(patch: Patch) -> None:
    original = Guard.__init__
    patch.setattr(Guard, "__init__", lambda self, quarantined, note: original(self, {}, note))


@with_poison.parameters
def test_some_poisoned_seed_finds(mutation: Mutation, change: Change, monkeypatch: Patch) -> None:
    find(mutation, change, range(POISON, POISON + 10_000), monkeypatch)
