"""When nobody wants more: a job ends by itself once every record on its way to a sink would meet a limit that is full.

=====================  =============================================================  ==================================
state                  what comes                                                     next
=====================  =============================================================  ==================================
open                   figures in which every limit is full, in epoch e                full since e
full since e           figures in which one is not, or a recovery                      open
full since e           a commit of epoch e + 1 or later: it began when they were full  the sources are drained
=====================  =============================================================  ==================================

What figures tell may be lost with a worker, so a commit is waited for: sources that are drained would not read again
what a limit has to count once more.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.metrics.message import StatsMessage
from penstock.operators import DEAD_LETTERS
from penstock.pipeline.plan import Plan, UnitSpec


class Limits:
    """Watches the limits of a job, where all of its records meet one before a sink."""

    def __init__(self, plan: Plan) -> None:
        self._counts = wanted(plan)
        self._passed: dict[str, int] = {}
        self._full_since: int | None = None

    def on_figures(self, figures: Sequence[StatsMessage]) -> None:
        """Take a worker's figures, in which a limit has counted what has passed in all runs."""
        if self._counts:
            self._passed |= {each.operation: each.records_out for each in figures if each.operation in self._counts}

    def tick(self, *, begun: int, committed: int, recovering: bool) -> bool:
        """Say whether the sources may end; the newest epochs begun and committed are given."""
        if not self._counts:
            return False
        if recovering:
            self._passed.clear()
        if any(self._passed.get(name, -1) < count for name, count in self._counts.items()):
            self._full_since = None
        elif self._full_since is None:
            self._full_since = begun
        return self._full_since is not None and committed > self._full_since


def wanted(plan: Plan) -> dict[str, int]:
    """The limits of a plan and their counts; none where some record reaches a sink past all of them."""
    found: dict[str, int] = {}
    todo = [unit.id for unit in plan.units if unit.source is not None]
    seen: set[int] = set()
    while todo:
        unit = plan.units[todo.pop()]
        if unit.id in seen:
            continue
        seen.add(unit.id)
        at = _limit_in(unit)
        if at is not None:
            index, count = at
            found[unit.ops[index].name] = count
        elif any(op.sink is not None for op in unit.ops):
            return {}
        before = [edge for edge in plan.edges if edge.producer == unit.id and (at is None or edge.op_index < at[0])]
        todo += [edge.consumer for edge in before if edge.port != DEAD_LETTERS]
    return found


def _limit_in(unit: UnitSpec) -> tuple[int, int] | None:
    """The first limit of a unit: its index, and how many records it lets pass."""
    limits = ((index, op.operation.passes_max) for index, op in enumerate(unit.ops))
    return next(((index, count) for index, count in limits if count is not None), None)
