"""Too few cores, and workers that take long to start: the job waits, says what it waits for, and goes on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planting import Change, Mutation, Nursery, Patch, find

from penstock.control import presence
from penstock.control.driver import DriverMachine
from penstock.control.events import Send
from penstock.control.presence import Presence
from penstock.control.scheduler import Phase, Scheduler
from penstock.protocol import messages as m
from penstock.testing.simulation.faults import Action, Fault
from penstock.testing.simulation.network import Weather
from penstock.testing.simulation.oracle import Shape
from penstock.testing.simulation.run import Simulation
from penstock.testing.simulation.scenario import CAPACITY, Scenario
from penstock.testing.simulation.world import START_US

S = 1_000_000
SILENCE_US = 30 * S
CALM = Weather(100, 100, reorders=False)


def scenario(workers: int, *faults: Fault, start_us_last: int = 0) -> Scenario:
    """A job with the ordinary silence, and no other fault than these."""
    base = next(found for seed in range(1_000) if (found := Scenario.of(seed)).shape is Shape.KEYED and found.rows)
    options = replace(base.options, parallelism=workers, silence_us=SILENCE_US, epoch_us=300_000)
    return replace(
        base, options=options, weather=CALM, faults=list(faults), restart_us_last=500_000, start_us_last=start_us_last
    )


def machine(simulation: Simulation) -> DriverMachine:
    return simulation.driver.machine


def run_until(simulation: Simulation, at_us: int) -> list[str]:
    """Run so far, and return what the job waits for."""
    while simulation.world.now_us < START_US + at_us:
        simulation._step()
    return machine(simulation).waits(simulation.world.now_us)


def test_thirty_workers_of_which_the_last_one_comes_after_45_seconds() -> None:
    simulation = Simulation(scenario(30, start_us_last=45 * S))
    (waits,) = run_until(simulation, 40 * S)
    assert waits.startswith("worker")
    assert waits.endswith("of 30 to start")
    outcome = simulation.run()
    assert (outcome.recoveries, outcome.orders, outcome.dismissed) == (0, 0, 0)


def test_four_of_six_workers_are_away_for_160_seconds() -> None:
    """Each is ordered once; Spark starts the lost tasks again too, and of the two that come one is not needed."""
    simulation = Simulation(scenario(6, Fault(Action.SHRINK, None, 1, 300_000, 160 * S, 4)))
    waits = run_until(simulation, 100 * S)
    assert sum("another process was ordered" in each for each in waits) == 4
    assert "cores: 6 are needed, the cluster offers 2" in waits
    outcome = simulation.run()
    assert outcome.orders == 4
    assert 1 <= outcome.recoveries <= 4


def test_a_cluster_that_shrinks_again_and_again() -> None:
    """Thirty losses without a commit: they are spread over workers and time, and the job gets ahead."""
    shrinks = [Fault(Action.SHRINK, None, 1, (2 + 6 * number) * S, 2 * S, 2) for number in range(15)]
    calm = scenario(3, *shrinks)
    rows = [(0, seq, "k", seq + 1, START_US + 4 * seq * S) for seq in range(25)]
    long = replace(calm, partitions=[rows], options=replace(calm.options, epoch_us=3_600 * S, idle_us=3_600 * S))
    outcome = Simulation(long).run()
    assert outcome.recoveries >= 15
    assert outcome.orders == 0, "Spark starts lost tasks again by itself"


def test_a_calm_job_holds_one_core_besides_its_workers() -> None:
    calm = scenario(3)
    rows = [(0, seq, "k", seq + 1, START_US + seq * S) for seq in range(5)]
    options = replace(calm.options, idle_us=3_600 * S)
    simulation = Simulation(replace(calm, partitions=[rows], options=options, pins=[], submit_us_max=1_000))
    run_until(simulation, 3 * S)
    assert sum(seat.busy for seat in simulation.seats.values()) == 1
    simulation.run()


# --- planted bugs -----------------------------------------------------------------------------------------------------

planted = Nursery()


@planted.planted
def a_worker_is_ordered_once_per_silence(patch: Patch) -> None:
    original = Presence.tick

    def tick(self: Presence, wanted: set[int], now_us: int) -> list[Any]:
        for each in self._workers.values():
            if each.state is presence.State.ORDERED and now_us - each.ordered_us > self._silence_us:
                each.state, each.heard_us = presence.State.PRESENT, each.ordered_us
        return original(self, wanted, now_us)

    patch.setattr(Presence, "tick", tick)


@planted.planted
def whoever_registers_counts(patch: Patch) -> None:
    original = Presence.on_register

    def on_register(self: Presence, worker: int, order: int, now_us: int) -> Any:
        each = self._workers[worker]
        if each.state is presence.State.PRESENT:
            each.order = order
        return original(self, worker, order, now_us)

    patch.setattr(Presence, "on_register", on_register)


def slow(scenario: Scenario) -> Scenario | None:
    """No fault but a slow start."""
    return replace(scenario, faults=[]) if scenario.start_us_last and scenario.options.parallelism > 1 else None


@planted.planted_with(slow)
def workers_that_wait_for_their_start_hear_nothing(patch: Patch) -> None:
    original = Scheduler._on_tick

    def on_tick(self: Scheduler, now_us: int) -> list[Any]:
        starting = self.phase is Phase.STARTING
        commands = original(self, now_us)
        return [c for c in commands if not (starting and isinstance(c, Send) and isinstance(c.message, m.Alive))]

    patch.setattr(Scheduler, "_on_tick", on_tick)


@planted.parameters
def test_a_planted_bug_is_found(mutation: Mutation, change: Change, monkeypatch: Patch) -> None:
    seeds = range(CAPACITY, CAPACITY + 10_000)
    find(mutation, change, seeds, monkeypatch, lambda outcome: bool(outcome.injected) or not outcome.orders)
