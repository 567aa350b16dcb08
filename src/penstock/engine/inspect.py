"""Read-only views of a worker for those who look at it from outside: the simulator's checks, reports of a stall.

A view reads what it is asked for when it is asked, so that a look after every step costs little. Whoever compares two
moments keeps what was read at the first one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.dataset import ChannelId, LogView, ReceiverView, SenderView
from penstock.engine.line import Item, Marker
from penstock.engine.snapshot import InputState, InstanceId
from penstock.pipeline.ranges import Range

if TYPE_CHECKING:
    from penstock.engine.channels import Channels
    from penstock.engine.edges import EdgeInput
    from penstock.engine.unit import Unit
    from penstock.engine.ways.pool import SlotPool


class InputView:
    """An input of a unit: where it stands, and what it waits for."""

    __slots__ = ("_input",)

    def __init__(self, edge_input: EdgeInput) -> None:
        self._input = edge_input

    @property
    def state(self) -> InputState:
        """Where it stands."""
        return self._input.state()

    @property
    def aligned(self) -> bool:
        """Whether it waits for the marker on the other inputs."""
        return self._input.aligned

    @property
    def has_block(self) -> bool:
        """Whether there is something to read."""
        return self._input.peek() is not None

    @property
    def disordered_blocks(self) -> int:
        """Blocks that were taken out of order: none, ever."""
        return self._input.disordered_blocks


class UnitView:
    """A unit instance."""

    __slots__ = ("_unit",)

    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    @property
    def name(self) -> str:
        """The unit's name."""
        return self._unit.spec.name

    @property
    def key(self) -> InstanceId:
        """The unit's number, and the instance's."""
        return self._unit.spec.id, self._unit.instance

    @property
    def done_epoch(self) -> int:
        """Last epoch whose marker has passed."""
        return self._unit.done_epoch

    @property
    def finished(self) -> bool:
        """Whether its input has ended and everything has left."""
        return self._unit.finished

    @property
    def is_careful(self) -> bool:
        """Whether it notes every record before it handles it."""
        return self._unit.chain.guard is not None

    @property
    def range(self) -> Range:
        """What is computed elsewhere."""
        return self._unit.way.away

    @property
    def is_switching(self) -> bool:
        """Whether another form is wanted, and the one before finishes what it has."""
        return self._unit.changes.wanted is not None

    @property
    def is_to_switch(self) -> bool:
        """Likewise, or slots get ready for it."""
        return self._unit.changes.is_due

    @property
    def line(self) -> Sequence[Item | Marker]:
        """What is on its way through the range, in order."""
        return list(self._unit.line)

    @property
    def gathers(self) -> bool:
        """Whether records have come to the range that are not in the line yet."""
        return self._unit.way.gathers

    @property
    def inputs(self) -> Sequence[InputView]:
        """Its inputs from other units: where they stand, and what they wait for."""
        return [InputView(each) for each in self._unit.input.logs]

    @property
    def logs(self) -> Sequence[LogView]:
        """Its outputs."""
        return [log.inspect() for output in self._unit.outputs for log in output.logs]

    @property
    def using(self) -> dict[str, str]:
        """Its active alternatives by operation."""
        return self._unit.exchanges.states()

    @property
    def is_exchanging(self) -> bool:
        """Whether another alternative is wanted and has not taken over."""
        return bool(self._unit.exchanges.wanted)

    @property
    def replicas(self) -> tuple[int, ...]:
        """The replicas that compute its range, if they do."""
        return self._unit.way.numbers


@dataclass(frozen=True, slots=True)
class SlotView:
    """A slot as the worker knows it: which micro-batches it has, and their attempts."""

    incarnation: int
    group: int
    work: dict[int, int]


class WorkerView:
    """A worker."""

    __slots__ = ("_channels", "_held", "_pool", "_storing", "epoch_pending", "units")

    def __init__(
        self,
        channels: Channels,
        pool: SlotPool,
        units: Collection[Unit],
        epoch_pending: int | None,
        storing: Collection[str],
        held: Collection[InstanceId],
    ) -> None:
        self._channels, self._pool = channels, pool
        self._storing, self._held = storing, held
        self.epoch_pending = epoch_pending
        self.units: Sequence[UnitView] = list(map(UnitView, units))

    @property
    def generation(self) -> int:
        """How often the job was recovered."""
        return self._channels.generation

    @property
    def peers(self) -> dict[int, int]:
        """Incarnation of each worker that it listens to."""
        return self._channels.peers

    @property
    def storing(self) -> Sequence[str]:
        """Snapshots that are being stored."""
        return sorted(self._storing)

    @property
    def held(self) -> Sequence[InstanceId]:
        """Instances that wait for the end of a recovery."""
        return sorted(self._held)

    @property
    def slots(self) -> Sequence[SlotView]:
        """The slots that it knows."""
        return self._pool.inspect()

    @property
    def unsent(self) -> Sequence[int]:
        """Micro-batches that no slot has."""
        return self._pool.unsent

    @property
    def refused_results(self) -> int:
        """Results of slots that had been given up, or came twice."""
        return self._pool.refused_results

    @property
    def receivers(self) -> dict[ChannelId, ReceiverView]:
        """The ends of channels to here."""
        return {channel: each.inspect() for channel, each in self._channels.receivers.items()}

    @property
    def senders(self) -> dict[ChannelId, SenderView]:
        """The ends of channels from here."""
        return {channel: each.inspect() for channel, each in self._channels.senders.items()}
