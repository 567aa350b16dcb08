"""Ways: where the items of a unit's line are computed. A new way is a file here that `building` knows, and a law in
`control.laws`."""

from penstock.engine.ways.base import Way
from penstock.engine.ways.building import Building
from penstock.engine.ways.calls import Calls
from penstock.engine.ways.here import Here
from penstock.engine.ways.replicas import Replicas
from penstock.engine.ways.slots import Slots

__all__ = ["Building", "Calls", "Here", "Replicas", "Slots", "Way"]
