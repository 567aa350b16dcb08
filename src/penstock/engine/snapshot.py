"""What an instance is at a marker, and how often all of it is written; units take snapshots, workers store them."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from penstock.connectors.base import Position

DELTAS_MAX = 10
"""Snapshots of changes that may follow a whole one."""

InstanceId = tuple[int, int]
"""Unit and index."""


class InputState(msgspec.Struct, array_like=True):
    """Where an input stands."""

    next_id: int
    event_time_us: int | None
    idle_lanes: list[int]
    ended: bool
    records_read: int


class LaneState(msgspec.Struct, array_like=True):
    """Where a lane stands, in a snapshot."""

    input: int
    lane: int
    newest_us: int | None


class OpCounters(msgspec.Struct, array_like=True):
    """Counters of one operation, so that a report counts a record that was replayed once."""

    name: str
    records_in: int
    records_out: int
    skipped: int
    retried: int
    dead_letters: int


@dataclass(slots=True)
class Capture:
    """What a snapshot takes when the marker comes to a unit; the rest is taken when the marker leaves it."""

    full: bool
    state: bytes | None
    inputs: list[InputState]
    positions: dict[int, Position]
    operations: list[OpCounters]
    before: int
    """How many of the operations are as they were then; the others have handled what came before the marker later."""


class UnitSnapshot(msgspec.Struct, array_like=True):
    """An instance at the marker of ``epoch``."""

    epoch: int
    full: bool
    """Whether ``state`` is all of it, or what has changed since the snapshot before."""
    finished: bool
    next_id: int
    """Id that the next output block begins with."""
    inputs: list[InputState]
    written: list[int]
    """Records written to each output."""
    positions: dict[int, Position]
    """Where each source partition goes on."""
    operations: list[OpCounters]
    sinks: dict[str, bytes | None]
    state: bytes | None
    lanes: list[LaneState]
    """How far the lanes of a unit that reads event time have come."""
    alternatives: dict[str, str] = {}
    """Which alternative of each operation that has some was active."""


def renumbered(snapshot: UnitSnapshot, epoch: int) -> UnitSnapshot:
    """The snapshot for a job that begins anew: at a marker nothing is under way, so all ids may begin at 0 again.

    What had ended, perhaps some epochs ago, goes on after ``epoch`` as all others do, and finds its end again.
    """
    return msgspec.structs.replace(snapshot, epoch=epoch, finished=False, next_id=0, inputs=[], written=[])


encode_snapshot = msgspec.msgpack.Encoder().encode
decode_snapshot = msgspec.msgpack.Decoder(UnitSnapshot).decode


class Compaction:
    """Decides when a stateful instance writes all of its state again. Pure bookkeeping, one per instance."""

    def __init__(self) -> None:
        self._full_bytes = 0
        self._delta_bytes = 0
        self._deltas = DELTAS_MAX  # the first one is whole

    def wants_full(self) -> bool:
        """Whether the next snapshot is whole: after many changes, or once they outweigh the state itself."""
        return self._deltas >= DELTAS_MAX or self._delta_bytes > self._full_bytes

    def wrote(self, full: bool, size: int) -> None:
        """Take note of a snapshot's size."""
        if full:
            self._full_bytes, self._delta_bytes, self._deltas = size, 0, 0
        else:
            self._delta_bytes += size
            self._deltas += 1
