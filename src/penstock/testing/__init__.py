"""Testing for users: a pipeline in one process, a manual clock, scripted input, assertions on exact output."""

from penstock.connectors.memory import At
from penstock.testing.harness import Harness, collect
from penstock.testing.preview import first

__all__ = ["At", "Harness", "collect", "first"]
