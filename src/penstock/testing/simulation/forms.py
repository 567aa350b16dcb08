"""What must hold of switches over time: orders are followed everywhere, also after a recovery, and come to an end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.control.events import WantedAlternative
from penstock.control.scheduler import Phase
from penstock.control.switches import FormView
from penstock.engine.inspect import UnitView
from penstock.testing.simulation.world import Violation

if TYPE_CHECKING:
    from penstock.testing.simulation.driver import DriverProcess
    from penstock.testing.simulation.run import Simulation

ASTRAY_US_MAX = 2_000_000
"""How long an instance may run another way than it was ordered to, when nothing keeps the order from it."""
UNDER_WAY_US_MAX = 120_000_000
"""How long a switch may take after its order has gone out."""


class FormAudit:
    """Compares what the control loop believes with what the workers do."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._astray_us: dict[tuple[str, int, int], int] = {}

    def check(self, driver: DriverProcess) -> None:
        """Raise Violation if an order is not followed, or a switch does not end."""
        now_us, scheduler = self._simulation.world.now_us, driver.machine.scheduler
        running = scheduler.phase in (Phase.RUNNING, Phase.DRAINING) and not scheduler.recovering
        wanted, alternatives = driver.machine.loop.inspect(), driver.machine.loop.wanted_alternatives()
        astray: dict[tuple[str, int, int], int] = {}
        for process in self._simulation.processes.values():
            worker = process.worker
            peer = scheduler.peers.get(process.id)
            if worker is None or process.dead or process.frozen or not running or process.driver is not driver:
                continue
            if peer is None or peer.incarnation != process.incarnation:
                continue
            if self._simulation.network.is_cut(process.name) or worker.stopping:
                continue
            if not driver.machine.has_heard_all(process.incarnation):
                continue  # the order may be on its way, or lost and not repeated yet
            for unit in worker.inspect().units:
                key = process.name, *unit.key
                other = _other_alternative(unit, alternatives)
                if _is_astray(unit, wanted[unit.key[0]]) or other:
                    astray[key] = self._astray_us.get(key, now_us)
                    if now_us - astray[key] > ASTRAY_US_MAX:
                        wish = wanted[unit.key[0]] if other is None else other
                        raise Violation(f"{unit.name}.{unit.key[1]} runs {unit.range} {unit.using}, wanted: {wish}")
        self._astray_us = astray
        for number, form in wanted.items():
            if form.pending is not None and now_us - (form.sent_us or now_us) > UNDER_WAY_US_MAX:
                raise Violation(f"switch {form.pending} of unit {number} waits for {form.waiting}")


def _other_alternative(unit: UnitView, wanted: Mapping[str, WantedAlternative]) -> str | None:
    """The alternative that an instance should use, if it uses another one and does nothing about it."""
    if unit.finished or unit.is_exchanging:
        return None
    found = ((wanted[name].alternative, each) for name, each in unit.using.items())
    return next((alternative for alternative, each in found if each != alternative), None)


def _is_astray(unit: UnitView, wanted: FormView) -> bool:
    if unit.finished or unit.is_to_switch or unit.is_careful:
        return False
    if unit.range and unit.replicas != wanted.replicas:
        return True
    return (wanted.range or None) != (unit.range or None)
