"""When a keyed state is written: a few entries in a turn, all that has changed at a marker. Pure: time is handed in.

The snapshots of an instance are a log, one file for each epoch, with the pieces that were made since the marker before
(`operators/keyed/state.py` says what they are, and why they may be made at any time). Restoring reads the last
``depth`` snapshots before the newest one, and that one, in order.

=========================  ==========================================================================================
when                       what is written
=========================  ==========================================================================================
a turn, the state is small  nothing
a turn, a while after the   ``slice_entries`` of what has changed, once there are as many; and as many of the next key
last one                    groups, until a tenth of the state has been gone through in this epoch
a marker, state is small    all of it: depth 0; also where another state has taken its place
a marker                    what has changed and is not written, so that the log gives the state at the marker exactly;
                            and, if few turns came, a larger slice of key groups
the walk through all        the snapshots before the one in whose time it began are not needed from the next marker on
groups ends
the instance is about to    only changes: a new owner has loaded the rest
move, a turn
the instance is restored    nothing; the log goes on, and a new walk begins
=========================  ==========================================================================================

So the log is as long as two walks take at most: some 20 epochs while records come, `WALK_EPOCHS_MAX` for each walk
while none do. Snapshots that the last commit does not need are removed (`control/recovery.py`,
`runtime/checkpoints.py`).
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import msgspec

from penstock.operators import StatefulOperator
from penstock.operators.keyed.state import KeyedState

SLICE_ENTRIES = 1_000
"""Entries that are written in one turn, about a millisecond; a state of so many is written whole at each marker."""
TURN_US = 10_000
"""Time between two turns that write."""
WALK_EPOCHS = 10
"""In so many epochs a walk goes through the whole state, if it is not too large for that."""
WALK_EPOCHS_MAX = 128
"""Even if no turn comes in between, a walk is over after so many markers."""
_IDLE_SLICES = 2
_TURNS_BEHIND = 4
"""Changes that come faster than slices are written in about so many turns, lest a marker find them all."""


class StateSnapshot(msgspec.Struct, array_like=True):
    """The state of an operation in a snapshot."""

    header: Any
    """What is not by key, at the marker."""
    pieces: list[bytes]


class Copier:
    """Writes the state of one operation, and counts how much of the log is needed.

    Attributes
    ----------
    due_us : int
        When there may be something to write, if a turn comes then.
    rests_until_us : int
        Until then nothing but changes is written: the walk rests, and the log grows by a snapshot an epoch.
    """

    def __init__(self, operator: StatefulOperator, slice_entries: int = SLICE_ENTRIES) -> None:
        self.due_us = self.rests_until_us = 0
        self._operator = operator
        self._slice = slice_entries
        self._pieces: list[bytes] = []
        self._left = slice_entries
        """Entries of key groups that may still be written before the next marker."""
        self._needed = 0
        """How many of the snapshots so far the next one needs."""
        self._walked = 0
        """How many of the snapshots so far the present walk has taken."""

    @property
    def _state(self) -> KeyedState:
        return self._operator.state  # which another one may take the place of

    @property
    def _is_small(self) -> bool:
        return len(self._state) <= self._slice

    def turn(self, now_us: int) -> None:
        """Write a little."""
        self.due_us = now_us + TURN_US
        if self._is_small:
            return
        changes = self._state.changes
        if changes >= self._slice:
            self._pieces.append(self._state.flush(max(self._slice, changes // _TURNS_BEHIND)))
        if now_us < self.rests_until_us:
            self._left = 0
        if self._left > 0:
            self._left -= self._refresh(self._slice)

    def _refresh(self, limit: int) -> int:
        piece, count, is_last = self._state.refresh(limit)
        self._pieces.append(piece)
        if is_last:
            self._needed = self._walked
            self._walked = 0
        return count

    def capture(self) -> tuple[int, StateSnapshot]:
        """Write what is left at a marker; return how many snapshots before this one it needs, and the snapshot."""
        state = self._state
        if self._is_small or self._operator.wants_whole:
            self._pieces = [state.whole()]
            self._needed = self._walked = 0
            self._operator.wants_whole = False
        else:
            self._pieces.append(state.flush())
            if self._left > 0:
                self._refresh(max(min(self._left, _IDLE_SLICES * self._slice), len(state) // WALK_EPOCHS_MAX))
        snapshot = StateSnapshot(self._operator.header(), self._pieces)
        depth, self._pieces = self._needed, []
        self._needed += 1
        self._walked += 1
        self._left = max(self._slice, len(state) // WALK_EPOCHS)
        return depth, snapshot

    def restored(self, snapshots: int) -> None:
        """The state is that of so many snapshots: go on after them."""
        self._needed, self._walked = snapshots, 0
        if not self._is_small:
            self._state.place()


def restore_state(
    operator: StatefulOperator, *logs: Sequence[StateSnapshot], owned: Container[int] | None = None
) -> None:
    """Give an operator that has no state the one of a log, or of several, of the key groups that are ``owned``."""
    headers = [log[-1].header for log in logs]
    operator.prepare(headers)
    operator.state.restore(*((piece for each in log for piece in each.pieces) for log in logs), owned=owned)
    operator.restored(headers)
