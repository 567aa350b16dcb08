"""Bugs planted into the glue: who hears of what in the machines of driver, worker and slot, and the links between.

What no seed misses, because it shows in figures only, is deleted in `tests/unit/control/test_driver_glue.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from planting import Change, Mutation, Nursery, Patch, find

from deleting import without
from penstock.control import driver as driver_module
from penstock.control.adaptation import ControlLoop
from penstock.control.driver import DriverMachine
from penstock.engine.slot import SlotMachine
from penstock.engine.worker import WorkerMachine
from penstock.protocol import messages as m
from penstock.protocol import slots as s
from penstock.protocol.link import Header, Link
from penstock.testing.simulation.faults import Action, Fault, Moment
from penstock.testing.simulation.scenario import SWITCHING, Scenario

of_records, of_switches = Nursery(), Nursery()


def is_lossy(scenario: Scenario) -> bool:
    return scenario.weather.loss >= 0.05


def is_doubled(scenario: Scenario) -> bool:
    return scenario.weather.duplication >= 0.05


# --- links ------------------------------------------------------------------------------------------------------------


@of_records.planted_where(is_lossy)
def lost_control_messages_are_not_repeated(patch: Patch) -> None:
    original = Link.frames

    def frames(self: Link, now_us: int) -> list[list[bytes]]:
        self._progress_us = now_us if self._progress_us is not None else None
        return original(self, now_us)

    patch.setattr(Link, "frames", frames)


@of_records.planted_where(lambda scenario: scenario.weather.reorders and scenario.weather.driver_delay_us_max > 1_000)
def control_messages_are_taken_as_they_come(patch: Patch) -> None:
    def receive(self: Link, header: Header, packed: bytes | None, now_us: int) -> list[bytes]:
        while self._unconfirmed and self._unconfirmed[0][0] <= header.seen:
            self._unconfirmed.popleft()
        self._owes = True
        self._seen = max(self._seen, header.number)
        return [packed] if packed is not None else []

    patch.setattr(Link, "receive", receive)


@of_records.planted_where(is_doubled)
def messages_of_another_incarnation_count(patch: Patch) -> None:
    """The driver keeps one link for each worker, whoever speaks."""
    original = DriverMachine.receive

    def receive(self: DriverMachine, frames: Sequence[bytes], now_us: int) -> None:
        for far in self._workers.values():
            far.link._seen = 0
        original(self, frames, now_us)

    patch.setattr(DriverMachine, "receive", receive)


# --- the driver's glue ------------------------------------------------------------------------------------------------


@of_records.planted
def the_scheduler_is_not_told_what_workers_say(patch: Patch) -> None:
    original = DriverMachine._schedule

    def schedule(self: DriverMachine, event: Any, now_us: int) -> None:
        if not isinstance(getattr(event, "message", None), m.EpochDone):
            original(self, event, now_us)

    patch.setattr(DriverMachine, "_schedule", schedule)


@of_records.planted_where(lambda scenario: scenario.delivered)
def committed_records_are_not_handed_over(patch: Patch) -> None:
    original = DriverMachine.chores

    def chores(self: DriverMachine) -> list[Any]:
        return [chore for chore in original(self) if not isinstance(chore, driver_module.Hand)]

    patch.setattr(DriverMachine, "chores", chores)


@of_records.planted
def silent_workers_are_not_replaced(patch: Patch) -> None:
    original = DriverMachine.chores

    def chores(self: DriverMachine) -> list[Any]:
        return [chore for chore in original(self) if not isinstance(chore, driver_module.Replace)]

    patch.setattr(DriverMachine, "chores", chores)


def struck_for_good(scenario: Scenario) -> Scenario | None:
    """A worker stops and does not go on, in a cluster that has no core to spare."""
    if not scenario.tight or scenario.options.parallelism < 2 or len(scenario.pins or ()) > 100:
        return None
    frozen = Fault(Action.FREEZE, Moment.RETURNED, 1, 0, 150_000_000)
    return replace(scenario, faults=[frozen])


@of_switches.planted_with(struck_for_good)
def slots_make_no_place_for_a_replacement(patch: Patch) -> None:
    patch.setattr(ControlLoop, "on_replaced", lambda self, now_us, cores=None: [])


@of_switches.planted
def the_control_loop_is_not_told_what_slots_say(patch: Patch) -> None:
    patch.setattr(ControlLoop, "on_slot", lambda self, message, now_us: [])


@of_switches.planted
def the_control_loop_is_not_told_of_switches_that_are_made(patch: Patch) -> None:
    original = ControlLoop.on_worker

    def on_worker(self: ControlLoop, message: m.FromWorker, now_us: int) -> None:
        if not isinstance(message, m.Changed):
            original(self, message, now_us)

    patch.setattr(ControlLoop, "on_worker", on_worker)


@of_switches.planted_where(lambda scenario: any(fault.action is Action.KILL_SLOTS for fault in scenario.faults))
def workers_are_not_told_that_a_group_has_ended(patch: Patch) -> None:
    original = ControlLoop.on_group_ended

    def on_group_ended(self: ControlLoop, group: int, error: str | None, now_us: int) -> list[Any]:
        commands = original(self, group, error, now_us)
        return [each for each in commands if not isinstance(getattr(each, "message", None), m.GroupEnded)]

    patch.setattr(ControlLoop, "on_group_ended", on_group_ended)


@of_switches.planted
def slots_are_not_told_who_the_workers_are(patch: Patch) -> None:
    original = DriverMachine._tell

    def tell(self: DriverMachine, far: Any, message: Any) -> None:
        if not isinstance(message, s.Workers):
            original(self, far, message)

    patch.setattr(DriverMachine, "_tell", tell)


# --- the worker's glue ------------------------------------------------------------------------------------------------


@of_records.planted
def what_the_driver_says_while_snapshots_are_read_back_is_forgotten(patch: Patch) -> None:
    original = WorkerMachine._restore

    def restore(self: WorkerMachine, *rest: Any) -> None:
        self._restoring = None if isinstance(self._restoring, m.Rollback) else self._restoring
        original(self, *rest)

    patch.setattr(WorkerMachine, "_restore", restore)


@of_records.planted
def the_driver_does_not_hear_that_snapshots_are_stored(patch: Patch) -> None:
    patch.setattr(WorkerMachine, "on_stored", lambda self, stored: None)


# --- the slot's glue --------------------------------------------------------------------------------------------------


@of_switches.planted
def a_slot_takes_no_note_of_who_the_workers_are(patch: Patch) -> None:
    without(patch, SlotMachine, "on_message", "self.on_workers(peers, start_us)")


@of_switches.planted
def a_slot_does_not_tell_workers_that_it_is_ready(patch: Patch) -> None:
    without(patch, SlotMachine, "on_workers", "self._tell(peer.worker, self._ready(peer.worker))")


@of_switches.planted
def a_slot_says_nothing_again_that_was_lost(patch: Patch) -> None:
    without(patch, SlotMachine, "step", "self._say_again(now_us)")


@of_switches.planted
def a_slot_goes_on_that_is_told_to_end(patch: Patch) -> None:
    without(patch, SlotMachine, "on_message", "self._leave()")


@of_switches.planted
def a_slot_that_everyone_has_answered_does_not_end(patch: Patch) -> None:
    without(patch, SlotMachine, "step", "self._end()")


@of_records.planted
def nobody_has_sinks_finish(patch: Patch) -> None:
    without(patch, DriverMachine, "_finish", "self._chores.append(FinishSinks())")


@of_records.parameters
def test_some_seed_finds(mutation: Mutation, change: Change, monkeypatch: Patch) -> None:
    find(mutation, change, range(10_000), monkeypatch)


@of_switches.parameters
def test_some_seed_with_slots_finds(mutation: Mutation, change: Change, monkeypatch: Patch) -> None:
    find(mutation, change, range(SWITCHING, SWITCHING + 10_000), monkeypatch, lambda outcome: outcome.switches > 0)
