"""Event time where a unit reads it off its records: how far each lane has come, and which records are behind it.

A *lane* is what one source partition, or one instance with state, sends: records in an order that does not depend on
timing, whatever stateless operations they pass. Each lane has the largest event time that its records have shown. The
least one of the lanes that are not idle is what the unit tells those behind it.

A record is a *straggler* when its lane had gone so far before it that some window or join behind counts it as late. It
must be judged by its own lane, or it would depend on the speed of the others whether it is late. So a straggler begins
a block of its own, whose origin says how far its lane was (`Block.straggler_us`). All other records are on time, and
blocks of them can be cut and joined at will.

==========  =========================================  ============================================================
lane        event                                      effect
==========  =========================================  ============================================================
any         records with times leave the unit          it has come that far; active
active      its source has nothing to read for `idle`  idle: it is not waited for (a stalled process reads nothing,
            or has ended                               and does not say that)
active      no time shown for `idle`, counted in       quiet: it is not waited for (filters leave it nothing, or
            epoch markers that pass                    keys of other instances only)
idle        its source reads again                     active
==========  =========================================  ============================================================
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
import pyarrow as pa

from penstock.engine.snapshot import LaneState
from penstock.pipeline.event_time import Timing
from penstock.pipeline.plan import UnitSpec
from penstock.protocol.slots import TimesRead
from penstock.types import Record, attribute

_LOW = -(1 << 63)

LaneId = tuple[int, int]
"""Input that a lane comes by, and its number."""


@dataclass(slots=True)
class Origin:
    """Where a portion of records comes from, and what it says about event time; it goes with it through the unit.

    Attributes
    ----------
    input : int
        Index of the input, or partition of the source.
    lane : int
        Lane that they are of.
    event_time_us : int or None
        How far the input, or the lane if the unit reads event time, has come with them.
    straggler_us : int or None
        How far their lane had come before them, if some of them are behind it.
    idle : bool or None
        Whether the lane is idle from now on; None: as before.
    ends : bool
        Nothing follows by this input.
    """

    input: int
    lane: int
    event_time_us: int | None = None
    straggler_us: int | None = None
    idle: bool | None = None
    ends: bool = False


Piece = tuple[int | None, list[Record]]


class Reading:
    """Reads event time off records, by the rules of a `Timing`. Keeps nothing."""

    def __init__(self, timing: Timing) -> None:
        self.index = timing.index
        self._column = timing.column
        self._time = attrgetter(attribute(timing.column))
        self._readers = timing.readers
        # Mostly there is one, and it is asked for every block.
        self._late_at: Callable[[int], int] = self._first_late_at
        if len(timing.readers) == 1:
            self._late_at = timing.readers[0].late_at

    def cut(self, rows: list[Record], newest_us: int | None) -> tuple[list[Piece], int | None]:
        """Cut records of a lane, in order, before its stragglers.

        Parameters
        ----------
        rows : list of Record
            Records of one lane.
        newest_us : int or None
            How far the lane had come before them.

        Returns
        -------
        list of Piece
            Each with how far the lane had come before it if it begins with a straggler.
        int or None
            How far the lane has come with them.
        """
        times = list(map(self._time, rows))
        reached = _LOW if newest_us is None else newest_us
        try:
            low, high = min(times), max(times)
        except TypeError:  # some are null: whoever needs the time will say so
            known = [time for time in times if time is not None]
            low, high = min(known, default=None), max(known, default=None)
        if low is None or high is None:
            return [(None, rows)], newest_us
        newest = max(high, reached)
        if self._late_at(low) > newest:
            return [(None, rows)], newest
        pieces: list[Piece] = []
        begin, straggler_us = 0, None
        for i, time in enumerate(times):
            if time is None:
                continue
            # Those that follow while their lane has come no further are judged by the same.
            if self._late_at(time) <= reached != straggler_us:
                if i > begin:
                    pieces.append((straggler_us, rows[begin:i]))
                begin, straggler_us = i, reached
            reached = max(reached, time)
        pieces.append((straggler_us, rows[begin:]))
        return pieces, newest

    def read(self, batch: pa.RecordBatch) -> TimesRead | None:
        """Look at the times of a micro-batch; None if it has none."""
        column = batch.column(self._column)
        if column.null_count:
            column = column.drop_null()
        if not len(column):
            return None
        return self._look(column.view(pa.int64()).to_numpy())

    def read_rows(self, rows: Iterable[Record]) -> TimesRead | None:
        """Look at the times of some rows; None if they have none."""
        times = [time for time in map(self._time, rows) if time is not None]
        return self._look(np.array(times, dtype=np.int64)) if times else None

    def _look(self, times: np.ndarray) -> TimesRead:
        late_at = self._late_at_all(times)
        reached = np.maximum.accumulate(times)
        straggles = bool((late_at[1:] <= reached[:-1]).any())
        return TimesRead(newest_us=int(reached[-1]), late_at_us=int(late_at.min()), straggles=straggles)

    def _first_late_at(self, time_us: int) -> int:
        late_at: int = min(reader.late_at(time_us) for reader in self._readers)
        return late_at

    def _late_at_all(self, times: np.ndarray) -> np.ndarray:
        late_at: np.ndarray = np.min([reader.late_at(times) for reader in self._readers], axis=0)
        return late_at


def reading_in(unit: UnitSpec, first: int, last: int) -> Reading | None:
    """What reads event time in the operations ``first`` to ``last`` of a unit; None: it is not read there."""
    timing = unit.timing
    if timing is None or timing.index < first:
        return None
    end = len(unit.ops)
    return Reading(timing) if timing.index <= last or timing.index == end == last + 1 else None


@dataclass(slots=True)
class Lane:
    """How far a lane has come."""

    entered_us: int | None = None
    """With the records whose times have been read."""
    left_us: int | None = None
    """With the records that have left the unit."""
    idle: bool = False
    silent_epochs: int = 0
    """Epoch markers that have passed since it last showed a time."""
    has_shown: bool = False
    """Since the last marker."""


class Lanes:
    """The lanes of a unit instance that reads event time.

    Parameters
    ----------
    epochs_max : int
        A lane that shows no time for so many epochs is quiet.
    """

    def __init__(self, ids: Iterable[LaneId], epochs_max: int) -> None:
        self._lanes = {each: Lane() for each in sorted(ids)}
        self._epochs_max = epochs_max
        self._told: set[int] = set()
        """Numbers of lanes that those behind were told to be idle."""

    def lane(self, origin: Origin) -> Lane:
        """The lane that a portion is of."""
        return self._lanes[origin.input, origin.lane]

    def leave(self, origin: Origin) -> int | None:
        """Let a portion leave; return how far the unit has come. Sets the origin to what is to be told of the lane."""
        if origin.ends:
            for (index, _), each in self._lanes.items():
                each.idle = each.idle or index == origin.input
        lane = self._lanes.get((origin.input, origin.lane))
        if lane is None:  # ids that passed without a record
            return self.event_time_us
        may_change = origin.ends or origin.idle is not None
        if origin.event_time_us is not None:
            lane.left_us = origin.event_time_us
            lane.has_shown = True
            may_change = may_change or lane.silent_epochs > 0
            lane.silent_epochs = 0
        if origin.idle is not None:
            lane.idle = origin.idle
        origin.idle = self._change(origin.lane) if may_change else None
        return self.event_time_us

    def _is_silent(self, lane: Lane) -> bool:
        return lane.idle or lane.silent_epochs >= self._epochs_max

    def _change(self, number: int) -> bool | None:
        """Whether those behind are to be told that a lane is idle, or that it no longer is."""
        # It may come by several inputs.
        idle = all(self._is_silent(lane) for (_, each), lane in self._lanes.items() if each == number)
        if idle is (number in self._told):
            return None
        if idle:
            self._told.add(number)
        else:
            self._told.remove(number)
        return idle

    def on_marker(self) -> list[Origin]:
        """An epoch marker leaves the unit: return what is to be told of lanes that have become quiet."""
        for lane in self._lanes.values():
            lane.silent_epochs = 0 if lane.has_shown else lane.silent_epochs + 1
            lane.has_shown = False
        return self._changes()

    def _changes(self) -> list[Origin]:
        changes = []
        for index, number in self._lanes:
            change = self._change(number)
            if change is not None:
                changes.append(Origin(index, number, idle=change))
        return changes

    @property
    def event_time_us(self) -> int | None:
        """Least event time of the lanes that are waited for; None while one of them has shown none."""
        reached: int | None = None
        for lane in self._lanes.values():
            if self._is_silent(lane):
                continue
            if lane.left_us is None:
                return None
            if reached is None or lane.left_us < reached:
                reached = lane.left_us
        return reached

    def state(self) -> list[LaneState]:
        """Where the lanes stand, at a marker that leaves the unit."""
        return [LaneState(input=each[0], lane=each[1], newest_us=lane.left_us) for each, lane in self._lanes.items()]

    def restore(self, states: Iterable[LaneState], idle: Collection[LaneId]) -> list[Origin]:
        """Go on from a snapshot; return what is to be told of the lanes that are ``idle``."""
        for each in states:
            lane = self._lanes.get((each.input, each.lane))
            if lane is not None:  # else the plan has changed
                lane.entered_us = lane.left_us = each.newest_us
        for lane_id in idle:
            self._lanes[lane_id].idle = True
        return self._changes()
