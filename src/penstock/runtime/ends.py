"""The sources and sinks of a job as the driver holds them, from before Spark starts to the job's end; `Job` calls."""

from __future__ import annotations

from penstock.connectors.base import Sink, Source
from penstock.pipeline.plan import Plan


class Ends:
    """What is reserved and claimed, in the order of the plan.

    Locks and ports come first, before Spark starts. A job that cannot have one ends there, and has changed nothing.
    """

    def __init__(self, plan: Plan) -> None:
        sources = [unit.source for unit in plan.units if unit.source is not None]
        self._ends: list[Source | Sink] = [*plan.sinks.values(), *sources]

    def reserve(self, *, is_local: bool) -> None:
        """Take what others must not have meanwhile; after an error, `release` gives back what was taken."""
        for end in self._ends:
            end.reserve(is_local=is_local)

    def claim(self) -> None:
        """Begin what sources and sinks need in the driver."""
        for end in self._ends:
            end.claim()

    def release(self) -> None:
        """Give everything back."""
        for end in self._ends:
            end.release()
