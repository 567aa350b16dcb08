"""What must hold of switches over time: orders are followed everywhere, also after a recovery, and come to an end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.control.adaptation import ControlLoop
from penstock.engine.inspect import UnitView
from penstock.testing.simulation.world import Violation

if TYPE_CHECKING:
    from penstock.testing.simulation.driver import DriverProcess
    from penstock.testing.simulation.run import Simulation

ASTRAY_US_MAX = 1_000_000
"""How long an instance may run another way than it was ordered to, when nothing keeps the order from it."""
UNDER_WAY_US_MAX = 60_000_000
"""How long a switch may take after its order has gone out."""


class FormAudit:
    """Compares what the control loop believes with what the workers do."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._astray_us: dict[tuple[str, int, int], int] = {}

    @staticmethod
    def pending(loop: ControlLoop) -> set[int]:
        """Numbers of the switches that are under way."""
        return {state.pending.number for state in loop._hand_overs._units.values() if state.pending is not None}

    def check(self, driver: DriverProcess, loop: ControlLoop, running: bool) -> None:
        """Raise Violation if an order is not followed, or a switch does not end."""
        now_us = self._simulation.world.now_us
        astray: dict[tuple[str, int, int], int] = {}
        for process in self._simulation.processes.values():
            worker = process.worker
            peer = driver.scheduler.peers.get(process.id)
            if worker is None or process.dead or process.frozen or not running or process.driver is not driver:
                continue
            if peer is None or peer.incarnation != process.incarnation:
                continue
            if self._simulation.network.is_cut(process.name) or worker.stopping:
                continue
            for unit in worker.inspect().units:
                key = process.name, *unit.key
                if self._is_astray(unit, loop):
                    astray[key] = self._astray_us.get(key, now_us)
                    if now_us - astray[key] > ASTRAY_US_MAX:
                        wanted = loop._hand_overs.range(unit.key[0])
                        raise Violation(f"{unit.name}.{unit.key[1]} runs {unit.range}, ordered was {wanted}")
        self._astray_us = astray
        for number, state in loop._hand_overs._units.items():
            pending = state.pending
            if pending is not None and now_us - (pending.sent_us or now_us) > UNDER_WAY_US_MAX:
                raise Violation(f"switch {pending.number} of unit {number} waits for {pending.waiting}")

    @staticmethod
    def _is_astray(unit: UnitView, loop: ControlLoop) -> bool:
        if unit.finished or unit.is_switching or unit.is_careful:
            return False
        first, last = loop._hand_overs.range(unit.key[0])
        present = (unit.range.first, unit.range.last) if unit.range else None
        return ((first, last) if first <= last else None) != present
