"""What came of records that went through a chain, or a part of one."""

from __future__ import annotations

import msgspec

from penstock.operators.base import MAIN
from penstock.types import Record


class Passed(msgspec.Struct):
    """What came of some records that went through a chain.

    Attributes
    ----------
    rows : list of Record
        What has left the chain at its end.
    sides : dict
        What operations have put aside, dead letters included, by the operation's index and the port; only where there
        is something.
    """

    rows: list[Record]
    sides: dict[tuple[int, str], list[Record]] = {}

    def at(self, op_index: int, port: str) -> list[Record]:
        """What goes to an output: the chain's result, or what an operation has put aside."""
        return self.rows if port == MAIN else self.sides.get((op_index, port), [])

    def add(self, other: Passed) -> None:
        """Take in what came of the next records; for one that began as ``Passed([])``, whose lists are its own."""
        self.rows += other.rows
        for place, held in other.sides.items():
            self.sides.setdefault(place, []).extend(held)
