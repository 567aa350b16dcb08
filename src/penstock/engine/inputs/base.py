"""What an input is: where a unit's records and markers come from, and what they say about event time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.connectors.base import Position
from penstock.dataset import NEVER_US, Block, Mark
from penstock.engine.event_time import Origin
from penstock.engine.lineage import Place
from penstock.engine.snapshot import InputState, OpCounters, UnitSnapshot
from penstock.metrics.message import StatsMessage
from penstock.types import Record

BLOCK_RECORDS_MAX = 8_192

IsFull = Callable[[int], bool]


@dataclass(slots=True)
class Taken:
    """Records that a unit takes from its input at once, all of one origin.

    Attributes
    ----------
    origin : Origin
        Where they come from, and what they say about event time.
    place : Place or None
        Where they are, in a source.
    follows : bool
        Whether they follow the ones that were taken before from the same partition of a source.
    block : Block or None
        The records as they came, where they were not opened: ``rows`` is empty then.
    """

    rows: list[Record]
    due_us: int
    origin: Origin
    place: Place | None = None
    block: Block | None = None
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
    ready_us = NEVER_US
    """From here on there is something to take, though it would not wake the worker up for it yet."""

    @abstractmethod
    def marker(self, now_us: int) -> tuple[Mark, int | None] | None:
        """Take the marker whose turn it is: everything before it has been taken. With its epoch, if that is given."""

    @abstractmethod
    def take(self, now_us: int, records_max: int, is_full: IsFull | None, *, open_blocks: bool) -> Taken | None:
        """Take the next records, or None; with ``open_blocks`` as rows, else blocks may stay as they came.

        Nothing is taken of those of which the way ``is_full``.
        """

    def leave(self, origin: Origin) -> int | None:
        """Let some records leave a unit that keeps no state and reads no event time; return how far it has come."""
        del origin
        return None

    def wake_up(self, now_us: int) -> None:
        """The unit is at work again."""

    def block(self, now_us: int) -> None:
        """The unit cannot take anything for now: its outputs or its way are full."""
        del now_us

    def unblock(self, now_us: int) -> None:
        """The unit can take something again."""
        del now_us

    def watch(self, now_us: int) -> Sequence[Origin]:
        """Look which lanes have become idle, or are to be waited for again, since the last look."""
        del now_us
        return ()

    @abstractmethod
    def waiting_records(self, now_us: int) -> int:
        """Records that wait before the unit."""

    @abstractmethod
    def arrived_records(self, now_us: int) -> int:
        """Records that have come to the unit so far, waiting ones included."""

    @property
    def is_empty(self) -> bool:
        """Whether there is surely nothing more to take at this moment."""
        return False

    @property
    def has_marker(self) -> bool:
        """Whether `marker` has one, without a message."""
        return False

    def wake_us(self, now_us: int, interval_us: int | None) -> int | None:
        """When there is something to take without a message, or the input will have fallen silent, if nothing comes.

        With ``interval_us`` between two stretches.
        """
        del now_us, interval_us
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

    def commit(self, epoch: int) -> None:
        """Nobody will go back before ``epoch``."""

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
