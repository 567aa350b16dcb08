"""A threshold scaler: one replica more where they are busy, one fewer where they are idle; a baseline. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.control.laws.replicas import Operator

BUSY, IDLE = 0.8, 0.5
"""Utilisation above which a replica is added, and below which one is taken away."""
COOL_LOOKS = 1
"""Intervals after a change in which nothing is changed: the figures are those of before."""


@dataclass(slots=True)
class Threshold:
    """Decides by utilisation alone, one step at a time.

    A replica is taken away only if those that are left stay below the upper threshold; otherwise it would be back in
    the next interval, and so on.
    """

    busy: float = BUSY
    idle: float = IDLE
    cool_looks: int = COOL_LOOKS
    _cooling: dict[str, int] = field(default_factory=dict)

    def decide(self, operators: Sequence[Operator], interval_us: float) -> dict[str, int]:
        """Return the number of replicas by operation."""
        found: dict[str, int] = {}
        for each in operators:
            wanted, present = each.replicas, each.replicas
            used = each.utilisation(interval_us)
            if self._cooling.get(each.name, 0):
                self._cooling[each.name] -= 1
            elif used > self.busy:
                wanted += 1
            elif used < self.idle and present > 1 and used * present <= self.busy * (present - 1):
                wanted -= 1
            found[each.name] = max(each.least, min(wanted, each.most))
            if found[each.name] != present:
                self._cooling[each.name] = self.cool_looks
        return found
