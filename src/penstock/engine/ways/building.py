"""Builds the ways of a unit instance: the only place that knows which there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.engine.line import Item
from penstock.engine.ways.base import Way
from penstock.engine.ways.calls import Calls
from penstock.engine.ways.desk import Desk
from penstock.engine.ways.here import Here, Leave
from penstock.engine.ways.pool import SlotPool
from penstock.engine.ways.replicas import Replicas
from penstock.engine.ways.slots import Slots

if TYPE_CHECKING:
    from penstock.engine.unit import Unit
    from penstock.protocol.messages import Switch


class Building:
    """Builds the ways of one unit instance.

    Parameters
    ----------
    leave : callable
        Lets what has passed the whole chain out.
    again : callable
        Has the unit run an item itself.

    Attributes
    ----------
    base : Way
        The way in this process, which the unit has unless a switch leads it to another one.
    """

    def __init__(
        self, unit: Unit, pool: SlotPool, desk: Desk | None, leave: Leave, again: Callable[[Item, int], None]
    ) -> None:
        self._unit, self._pool = unit, pool
        self._leave, self._again = leave, again
        self.base: Way
        if unit.spec.ops and unit.spec.ops[0].waits:
            self.base = Calls(unit.spec, unit.chain, unit.times, unit.line, desk or Desk(), unit.bell, leave)
        else:
            self.base = Here(len(unit.spec.ops), leave)

    def build(self, switch: Switch) -> Way:
        """Build the way that a switch leads to."""
        if switch.replicas:
            return Replicas(self._unit, switch, self._pool, self._leave, self._again)
        if switch.range:
            return Slots.of(self._unit, switch, self._pool)
        return self.base
