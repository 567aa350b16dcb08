"""What an instance is at a marker; units take snapshots, workers store them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from penstock.connectors.base import Position
from penstock.engine.state import StateSnapshot
from penstock.protocol import messages as m

InstanceId = tuple[int, int]
"""Unit and index."""


@dataclass(frozen=True, slots=True)
class Persist:
    """A snapshot that the shell shall store; it answers with `Share.on_stored`."""

    unit: int
    instance: int
    epoch: int
    depth: int
    """How many snapshots before this one it needs."""
    name: str
    data: bytes
    uploads: tuple[Callable[[], None], ...] = ()
    """To be called before, in any thread: what sinks have prepared and is not yet where it survives."""

    def stored(self, crc: int) -> m.Stored:
        """The answer, once it is on disk."""
        return m.Stored(
            unit=self.unit, instance=self.instance, epoch=self.epoch, depth=self.depth, name=self.name, crc=crc
        )


def by_instance(snapshots: Iterable[tuple[m.Stored, bytes]]) -> dict[InstanceId, list[bytes]]:
    """What was read back for `WorkerMachine.on_restored`: by instance, in the order that was asked for."""
    found: dict[InstanceId, list[bytes]] = {}
    for stored, data in snapshots:
        found.setdefault((stored.unit, stored.instance), []).append(data)
    return found


class InputState(msgspec.Struct, array_like=True, kw_only=True):
    """Where an input stands."""

    next_id: int
    event_time_us: int | None
    idle_lanes: list[int]
    ended: bool
    records_read: int


class LaneState(msgspec.Struct, array_like=True, kw_only=True):
    """Where a lane stands, in a snapshot."""

    input: int
    lane: int
    newest_us: int | None


class OpCounters(msgspec.Struct, array_like=True, kw_only=True):
    """Counters of one operation, so that a report counts a record that was replayed once."""

    name: str
    records_in: int = 0
    records_out: int = 0
    late: int = 0
    skipped: int = 0
    retried: int = 0
    dead_letters: int = 0
    timed_out: int = 0
    over_bound: int = 0


@dataclass(slots=True)
class Capture:
    """What a snapshot takes when the marker comes to a unit; the rest is taken when the marker leaves it."""

    depth: int
    state: StateSnapshot | None
    inputs: list[InputState]
    positions: dict[int, Position]
    operations: list[OpCounters]
    before: int
    """How many of the operations are as they were then; the others have handled what came before the marker later."""

    def at(
        self,
        epoch: int,
        finished: bool,
        next_id: int,
        written: list[int],
        operations: list[OpCounters],
        sinks: dict[str, bytes | None],
        lanes: list[LaneState],
        alternatives: dict[str, str],
    ) -> UnitSnapshot:
        """The snapshot, with what the instance is when the marker leaves it."""
        counted = self.operations[: self.before] + operations[self.before :]
        return UnitSnapshot(
            epoch=epoch,
            depth=self.depth,
            finished=finished,
            next_id=next_id,
            inputs=self.inputs,
            written=written,
            positions=self.positions,
            operations=counted,
            sinks=sinks,
            state=self.state,
            lanes=lanes,
            alternatives=alternatives,
        )


class UnitSnapshot(msgspec.Struct, array_like=True, kw_only=True):
    """An instance at the marker of ``epoch``."""

    epoch: int
    depth: int
    """How many of the instance's snapshots before this one its state needs."""
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
    state: StateSnapshot | None
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
