"""The way *here*: the chain itself, record by record, in this process. Nothing is ever away, so it is only a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.engine.ways.base import Way
from penstock.pipeline.ranges import Range

if TYPE_CHECKING:
    from penstock.engine.inputs import Taken
    from penstock.engine.passed import Passed

Leave = Callable[["Taken", "Passed", int], None]


class Here(Way):
    """Lets what has passed the chain out at once."""

    is_local = True

    def __init__(self, operations: int, leave: Leave) -> None:
        self.range = Range(operations, operations - 1)
        self.until = None
        self._leave = leave

    def take(self, taken: Taken, entered: Passed, now_us: int) -> None:
        self._leave(taken, entered, now_us)
