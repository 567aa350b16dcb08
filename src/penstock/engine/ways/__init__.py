"""Ways: where the items of a unit's line are computed. A new way is one file here, and one law in `control.laws`."""

from penstock.engine.ways.base import Way
from penstock.engine.ways.calls import Calls
from penstock.engine.ways.here import Here
from penstock.engine.ways.replicas import Replicas
from penstock.engine.ways.slots import Slots

__all__ = ["Calls", "Here", "Replicas", "Slots", "Way"]
