"""What an input is: where a unit's records and markers come from, and what they say about event time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.connectors.base import Position
from penstock.dataset import Block, Mark
from penstock.engine.edges import Span
from penstock.engine.lineage import Place
from penstock.engine.snapshot import InputState, OpCounters, UnitSnapshot
from penstock.metrics.stats import StatsMessage
from penstock.types import Record

BLOCK_RECORDS_MAX = 8_192

Holds = Callable[[int], bool]
"""Whether records of an origin are still under way in the unit."""
IsFull = Callable[[int], bool]


@dataclass(slots=True)
class Taken:
    """Records that a unit takes from its input at once, all of one origin.

    Attributes
    ----------
    origin : int
        Index of the input, or partition of the source.
    place : Place or None
        Where they are, in a source.
    follows : bool
        Whether they follow the ones that were taken before from the same partition of a source.
    block : Block or None
        The block that they are the end of: what its header says holds from now on. None: more of it follows.
    is_open : bool
        False: ``rows`` is empty, and the records are all of ``block``, as they came.
    """

    rows: list[Record]
    due_us: int
    origin: int
    place: Place | None = None
    block: Block | None = None
    is_open: bool = True
    follows: bool = False


@dataclass(frozen=True, slots=True)
class Stretch:
    """Records of a source that are due and not read: whoever computes them reads them."""

    place: Place
    since_us: int
    """When the first of them could have been taken."""


class Input(ABC):
    """Gives a unit its records and markers, one portion at a time."""

    turns: int
    """How many portions a unit takes before its worker looks up."""

    @abstractmethod
    def marker(self, now_us: int) -> tuple[Mark, int | None] | None:
        """Take the marker whose turn it is: everything before it has been taken. With its epoch, if that is given."""

    @abstractmethod
    def take(self, now_us: int, records_max: int, is_full: IsFull, *, open_blocks: bool) -> Taken | None:
        """Take the next records, or None; with ``open_blocks`` as rows, else blocks may stay as they came."""

    @abstractmethod
    def passed(self, origin: int, event_time_us: int | None, at_us: int, span: Span) -> None:
        """Let event time pass: records of an origin, taken at ``at_us``, leave the unit with this newest event time."""

    def entered(self, taken: Taken, now_us: int) -> int | None:
        """Event time that the inputs have reached, for an operation with state; None: it does not advance."""
        del taken, now_us
        return None

    def clock_us(self, now_us: int) -> int:
        """The time on the clock on which silence is counted."""
        return now_us

    def wake_up(self, now_us: int) -> None:
        """The unit is at work again."""

    def block(self, now_us: int) -> None:
        """The unit cannot take anything for now: its outputs or its way are full."""
        del now_us

    def unblock(self, now_us: int) -> None:
        """The unit can take something again."""
        del now_us

    def watch(self, now_us: int) -> bool:
        """Look whether the input has fallen silent since; True: that is to be told to those behind the unit."""
        del now_us
        return False

    def came_back(self, now_us: int) -> None:
        """What was computed elsewhere is computed here again: silence counts from now on."""

    @abstractmethod
    def waiting_records(self, now_us: int) -> int:
        """Records that wait before the unit."""

    @abstractmethod
    def arrived_records(self, now_us: int) -> int:
        """Records that have come to the unit so far, waiting ones included."""

    @property
    def has_marker(self) -> bool:
        """Whether `marker` has one, without a message."""
        return False

    def wake_us(self, now_us: int, interval_us: int | None) -> int | None:
        """When there is something to take without a message; ``interval_us``: between two stretches."""
        del now_us, interval_us
        return None

    def idle_us(self, now_us: int) -> int | None:
        """When the input will have fallen silent, if nothing comes."""
        del now_us
        return None

    def awaits(self, wake_us: int | None, now_us: int) -> None:
        """The unit is to be woken up then; None: only a message brings work."""

    # --- snapshots and figures ----------------------------------------------------------------------------------------

    def states(self) -> list[InputState]:
        """Where logs stand."""
        return []

    def refresh(self, states: list[InputState]) -> None:
        """A marker leaves the unit: bring what passes where records leave up to date in what it has captured."""

    def offsets(self) -> dict[int, int]:
        """How many records of each source partition were read."""
        return {}

    def positions(self) -> dict[int, Position]:
        """Where each source partition goes on."""
        return {}

    def counters(self) -> list[OpCounters]:
        """Counters of the input as an operation of its own."""
        return []

    def figures(self, now_us: int) -> list[StatsMessage]:
        """Figures of the input as an operation of its own."""
        del now_us
        return []

    def begin_after(self, epoch: int) -> None:
        """Begin with nothing in a job that goes on after ``epoch``."""

    def restore(self, snapshots: Sequence[UnitSnapshot]) -> None:
        """Go on from the last of these snapshots."""

    def close(self) -> None:
        """Free what the input holds."""


def fit_records(records_max: int, count: int, took_ns: int, work_us: int) -> int:
    """How many records to take at once, so that they are about ``work_us`` of work; learned from the last ``count``."""
    if took_ns <= 0:
        return records_max
    fitting = count * work_us * 1000 // took_ns
    if count * 2 >= records_max:
        return max(1, min(fitting, 2 * records_max, BLOCK_RECORDS_MAX))
    return max(1, (records_max + fitting) // 2) if fitting < records_max else records_max
