"""What Spark does for the workers in the simulation: starts their tasks, again and again, where there are cores.

Nothing is known here of whether anybody still needs a task: an order that was not withdrawn in time brings its process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.control.events import CoresSeen
from penstock.testing.simulation.process import Process
from penstock.testing.simulation.seats import PLACE_US

if TYPE_CHECKING:
    from penstock.testing.simulation.driver import DriverProcess
    from penstock.testing.simulation.run import Simulation

SEEN_US_MAX = 2_000_000
"""How long it may take until the driver sees that cores have come or gone."""
WITHDRAW_US_MAX = 100_000


class Hosting:
    """The cores of the cluster, and the tasks of workers that run on them or wait for them."""

    def __init__(self, simulation: Simulation) -> None:
        self.waiting: set[tuple[int, int]] = set()
        """Workers and orders whose task waits for a free core."""
        self.orders = 0
        """Processes that the driver has ordered."""
        self._simulation = simulation
        self._world = simulation.world
        self._withdrawn: set[tuple[str, int]] = set()
        """Driver and order."""
        plan, groups = simulation.plan, 1 if simulation.scenario.tight else 3
        workers = plan.options.parallelism if simulation.scenario.moves else plan.workers
        self._cores_all = self.cores = workers + plan.replicas + groups * (plan.options.slots or workers)

    def is_full(self, driver: DriverProcess) -> bool:
        """Whether no core of the cluster is free."""
        workers = sum(not each.dead and each.driver is driver for each in self._simulation.processes.values())
        return workers + sum(seat.busy for seat in driver.spark.seats) >= self.cores

    def start_all(self, driver: DriverProcess, last_us: int) -> None:
        """Start the workers of a job; the last one takes so long, if any do, the others at the most."""
        workers = self._simulation.plan.workers
        for worker in range(workers):
            slow = last_us and worker == workers - 1
            self._start(worker, driver, 0, last_us if slow else self._delay_us(last_us))

    def again(self, worker: int, driver: DriverProcess, order: int) -> None:
        """Start the task of a process once more, sooner or later."""
        self._start(worker, driver, order, self._delay_us())

    def _delay_us(self, within_us: int = 0) -> int:
        return self._world.between(100, within_us or self._simulation.scenario.restart_us_last)

    def _start(self, worker: int, driver: DriverProcess, order: int, after_us: int) -> None:

        def start() -> None:
            self.waiting.discard((worker, order))
            if driver.dead or driver.finished or (driver.name, order) in self._withdrawn:
                return
            if self.is_full(driver):
                # First come, first served: tasks of groups that are submitted later wait behind it.
                self.waiting.add((worker, order))
                self._world.after(PLACE_US, f"{worker} waits for a place", start)
                return
            processes = self._simulation.processes
            process = Process(self._simulation, driver, worker, len(processes) + 1, order)
            processes[process.name] = process

        self._world.after(after_us, f"spawn {worker}", start)

    def order(self, worker: int, driver: DriverProcess, order: int) -> None:
        """Take the driver's order of another process."""
        self.orders += 1
        self.again(worker, driver, order)

    def withdraw(self, driver: DriverProcess, order: int) -> None:
        """End an order; a process of it that runs is killed, sooner or later, or has long ended by itself."""

        def end() -> None:
            self._withdrawn.add((driver.name, order))
            for each in self._simulation.processes.values():
                if each.driver is driver and each.order == order and not each.dead:
                    each.kill(lose=self._world.chance(0.5))

        self._world.after(self._world.between(100, WITHDRAW_US_MAX), f"order {order} is withdrawn", end)

    def shrink(self, lost: Sequence[Process], until_us: int) -> None:
        """Lose workers together with all cores but those of the other workers, for a while."""
        live = self._simulation.plan.workers
        if self._simulation.scenario.moves:
            driver = self._simulation.driver
            live = sum(not each.dead and each.driver is driver for each in self._simulation.processes.values())
        self._resize(live - len(lost))
        for each in lost:
            self._simulation.kill(each)
        self._world.at(until_us, "the cores are back", lambda: self._resize(self._cores_all))

    def _resize(self, cores: int) -> None:
        self.cores = cores
        driver = self._simulation.driver
        delay_us = self._world.between(100, SEEN_US_MAX)
        self._world.after(delay_us, f"{cores} cores are seen", lambda: driver.handle(CoresSeen(cores)))
