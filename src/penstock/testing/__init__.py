"""Testing for users: run a pipeline in one process with a manual clock and scripted input, and assert on exact output."""

from penstock.testing.harness import Harness, collect

__all__ = ["Harness", "collect"]
