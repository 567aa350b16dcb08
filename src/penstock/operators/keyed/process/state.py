"""``ps.state``: what a process function keeps for each key is declared with `value`, `list` and `map`."""

from penstock.operators.keyed.process.declared import list_of as list
from penstock.operators.keyed.process.declared import map_of as map
from penstock.operators.keyed.process.declared import value

__all__ = ["list", "map", "value"]
