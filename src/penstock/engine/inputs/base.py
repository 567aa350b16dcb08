"""What an input is: where a unit's records and markers come from, and what they say about event time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.connectors.base import Position
from penstock.dataset import NEVER_US, Block, Mark
from penstock.engine.event_time import Origin
from penstock.engine.inputs.dropped import Cause
from penstock.engine.lineage import Place
from penstock.engine.snapshot import InputState, OpCounters, UnitSnapshot
from penstock.metrics.message import StatsMessage
from penstock.protocol import slots as s
from penstock.types import Record

if TYPE_CHECKING:
    from penstock.engine.edges import EdgeInput
    from penstock.engine.inputs.rhythm import Rhythm

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
    """Gives a unit its records and markers, one portion at a time.

    Attributes
    ----------
    is_source : bool
        Whether it reads partitions of a source: then it has figures of its own, and slots can read them too.
    is_ripe : bool
        Whether a stretch could have been cut when that was last asked, if there was room for it.
    logs : list of EdgeInput
        The instances of other units that it reads; a source has none.
    """

    is_source: bool = False
    is_ripe: bool = False
    logs: list[EdgeInput]
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

    @property
    def idle_lanes(self) -> list[tuple[int, int]]:
        """Input and number of lanes that are idle on all inputs that they come by."""
        return []

    # --- for a unit with state, which only logs lead to ---------------------------------------------------------------

    def enter(self, origin: Origin) -> int | None:
        """Let records enter an operation with state; return the watermark that the inputs have reached if it is new."""
        raise NotImplementedError(f"{type(self).__name__} leads to no state: {origin}")

    @property
    def is_idle(self) -> bool:
        """Whether all inputs are idle."""
        return False

    def tell_idle(self) -> None:
        """Nobody knows of it if all inputs are idle now: the next look is to find that they have become so."""

    def idle_change(self) -> bool | None:
        """Whether all inputs have become idle since the last look, or no longer are; None: it is as it was.

        Where all have ended they are not idle: what the state holds leaves with the end, and must be waited for.
        """
        return None

    # --- what the driver wants of sources -----------------------------------------------------------------------------

    def begin_epoch(self, epoch: int) -> None:
        """Bring the marker of ``epoch`` next, unless it has been there."""

    def drain(self) -> None:
        """Read nothing more and end."""

    def pause(self) -> None:
        """Read nothing more, but pass markers on."""

    # --- what only a source does --------------------------------------------------------------------------------------

    def join(self, rhythm: Rhythm) -> None:
        """Be read in the rhythm of all sources of the worker."""

    def origin(self, partition: int, now_us: int) -> Origin:
        """What goes with records of a partition: it is not idle."""
        raise NotImplementedError(f"{type(self).__name__} reads no source: partition {partition} at {now_us}")

    def stretches(self, now_us: int, records_max: int, interval_us: int, slots: int, room: int) -> list[Stretch]:
        """Cut what is due into at most ``room`` stretches, shared out over the slots; they are not read here."""
        raise NotImplementedError(f"{type(self).__name__} reads no source")

    def read_again(self, place: Place) -> tuple[pa.RecordBatch, int]:
        """Read a stretch that a slot should have read: its columns, and when the oldest record was due."""
        raise NotImplementedError(f"{type(self).__name__} reads no source: {place}")

    def recent(self, records: int) -> Place | None:
        """Name some records that were read lately."""
        del records
        return None

    def show_form(self, form: str) -> None:
        """Show in which form the source is read."""

    def count_read(self, count: int, took_ns: int, due_us: int, read_us: int) -> None:
        """Add records that were read here to the figures of the source."""

    def count_away(self, count: int, due_us: int, came_us: int, cut_us: int, done: s.Done) -> None:
        """Add records that a slot has read to the figures of the source."""

    def count_dropped(self, cause: Cause, count: int, *, dead: bool) -> None:
        """Add records that were read and dropped to the figures of the source."""

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
