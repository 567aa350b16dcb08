"""A job under faults, in one process and in made-up time: everything that happens follows from a seed.

The tests run many seeds; ``python -m penstock.testing.simulation --seed 7`` replays one.
"""

from penstock.testing.simulation.run import Outcome, simulate
from penstock.testing.simulation.world import Violation

__all__ = ["Outcome", "Violation", "simulate"]
