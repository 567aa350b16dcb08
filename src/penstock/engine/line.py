"""The line of one unit instance: numbered items and markers, in the order in which they leave the unit.

A unit takes records from its input and gives each portion a place in the line. Where the portion is computed is the
business of a *way*; it leaves the unit when it is its turn and its result is there. Epoch markers take a place too, so
they leave behind everything that came before them, whichever way that went. A change of form is therefore a place in
the line: up to it items go one way, after it another.

While everything is computed here nothing waits, and the line is empty.

==========  ==================================================  ====================================================
entry       event                                               effect
==========  ==================================================  ====================================================
item        cut from what has gathered, or from a source        a place at the end; the way computes it
item        its result comes                                    it is complete
item        whoever had it is lost                              the way gives it to another, under a new attempt
item        lost too often, or nobody computes it               given back: the unit runs it when it is its turn
item        first in line, complete, and the outputs have room  it leaves: operations behind the range, outputs
marker      comes from the input                                captures state and positions; a place at the end
marker      first in line                                       it leaves: sinks prepare, the snapshot is taken
any         the instance is rolled back                         the line is forgotten, results are refused
==========  ==================================================  ====================================================
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.dataset import Mark
from penstock.engine.event_time import Origin
from penstock.engine.lineage import Place
from penstock.engine.snapshot import Capture
from penstock.pipeline.ranges import Range
from penstock.protocol import slots as s
from penstock.types import Record

if TYPE_CHECKING:
    from penstock.engine.passed import Passed

Sides = dict[tuple[int, str], list[Record]]
"""Records for side outputs, by index of the operation and port."""
Parts = dict[int, dict[int, list[tuple[int, bytes]]]]
"""Packed records, and how many they are, by edge and consumer."""


@dataclass(slots=True)
class ItemResult:
    """What another process has made of an item."""

    done: s.Done
    payloads: Sequence[bytes]

    @property
    def size_bytes(self) -> int:
        """What it weighs."""
        return sum(map(len, self.payloads))

    def open(self) -> tuple[Parts, Sequence[bytes], Sequence[bytes]]:
        """What goes to the readers of edges, what goes on to the operations behind the range, what is for the sink."""
        parts: Parts = {}
        for part, packed in zip(self.done.parts, self.payloads, strict=False):
            parts.setdefault(part.edge, {}).setdefault(part.consumer, []).append((part.count, packed))
        at = len(self.done.parts)
        carried = at + len(self.done.carried)
        return parts, self.payloads[at:carried], self.payloads[carried:]


@dataclass(slots=True)
class Item:
    """A portion of records in the line, on its way through a range of operations."""

    range: Range
    count: int
    due_us: int
    came_us: int
    """When its records came, on average, or were due and could have been taken."""
    cut_us: int
    origin: Origin
    """Where its records come from, and what they say about event time."""
    place: Place | None = None
    """Where the source records begin that it was made of, in a unit that reads a source."""
    sides: Sides = field(default_factory=dict)
    """Records that operations before the range have put aside."""
    payload: bytes | None = None
    """Its columns, or its rows as they travel; None where they are read from the source, or it has no records."""
    rows: list[Record] | None = None
    """Its records, where they travel as rows."""
    skip: int = 0
    """How many records of the same place are in items before it."""
    size_bytes: int = 0
    """What its columns weigh, or, once it has one, its result."""
    number: int = 0
    """Under which it was sent out; 0: it was not."""
    result: ItemResult | None = None
    passed: Passed | None = None
    """What calls from this process have made of it, once all of them are over."""
    given_back: bool = False
    """The unit runs it when it is its turn."""
    using: dict[int, str] = field(default_factory=dict)
    """Which alternatives compute it, by index of the operation."""

    @property
    def is_complete(self) -> bool:
        """Whether it can leave when it is its turn."""
        return self.result is not None or self.passed is not None or self.given_back or not self.count


@dataclass(slots=True)
class Marker:
    """A marker in the line, with what belongs to its snapshot."""

    mark: Mark
    epoch: int | None
    """Which epoch it ends; None: the one that is open when it is its turn."""
    capture: Capture


class Line:
    """What waits for its turn."""

    def __init__(self) -> None:
        self._places = 0
        self.entries: deque[Item | Marker] = deque()
        """Whose turn it is first; asked at every step whether there are any."""

    def number(self) -> int:
        """Return the number of the next place."""
        self._places += 1
        return self._places - 1

    def append(self, entry: Item | Marker) -> None:
        """Put an item or a marker at the end."""
        self.entries.append(entry)

    @property
    def head(self) -> Item | Marker | None:
        """Whose turn it is."""
        return self.entries[0] if self.entries else None

    def pop(self) -> Item | Marker:
        """Take the first out."""
        return self.entries.popleft()

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Item | Marker]:
        return iter(self.entries)

    @property
    def items(self) -> Iterator[Item]:
        """The items, without markers."""
        return (each for each in self.entries if isinstance(each, Item))

    def clear(self) -> None:
        """The instance is built anew."""
        self.entries.clear()
