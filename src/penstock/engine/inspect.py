"""Read-only views of a worker for those who look at it from outside: the simulator's checks, reports of a stall."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.dataset import ChannelId, LogView, ReceiverView, SenderView
from penstock.engine.inputs import Logs
from penstock.engine.line import Item, Marker, Range
from penstock.engine.snapshot import InputState, InstanceId

if TYPE_CHECKING:
    from penstock.engine.unit import Unit


@dataclass(frozen=True, slots=True)
class InputView:
    """An input of a unit: where it stands, and what it waits for."""

    state: InputState
    aligned: bool
    has_block: bool
    disordered_blocks: int


@dataclass(frozen=True, slots=True)
class UnitView:
    """A unit instance."""

    name: str
    key: InstanceId
    done_epoch: int
    finished: bool
    is_careful: bool
    range: Range
    """What is computed elsewhere."""
    is_switching: bool
    """Another form is wanted, and the one before finishes what it has."""
    is_to_switch: bool
    """Likewise, or slots get ready for it."""
    line: Sequence[Item | Marker]
    gathers: bool
    """Records have come to the range that are not in the line yet."""
    inputs: Sequence[InputView]
    logs: Sequence[LogView]
    """Its outputs."""
    using: dict[str, str]
    """Its active alternatives by operation."""
    is_exchanging: bool
    """Another alternative is wanted and has not taken over."""
    replicas: tuple[int, ...] = ()
    """The replicas that compute its range, if they do."""

    @staticmethod
    def of(unit: Unit) -> UnitView:
        """The view of an instance."""
        logs = unit.input.logs if isinstance(unit.input, Logs) else []
        return UnitView(
            unit.spec.name,
            (unit.spec.id, unit.instance),
            unit.done_epoch,
            unit.finished,
            unit.chain.guard is not None,
            unit.way.away,
            unit.switches.wanted is not None,
            unit.switches.is_due,
            list(unit.line),
            unit.way.gathers,
            [InputView(each.state(), each.aligned, each.peek() is not None, each.disordered_blocks) for each in logs],
            [log.inspect() for output in unit.outputs for log in output.logs],
            unit.exchanges.states(),
            bool(unit.exchanges.wanted),
            unit.way.numbers,
        )


@dataclass(frozen=True, slots=True)
class SlotView:
    """A slot as the worker knows it: which micro-batches it has, and their attempts."""

    incarnation: int
    group: int
    work: dict[int, int]


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker."""

    generation: int
    peers: dict[int, int]
    """Incarnation of each worker that it listens to."""
    epoch_pending: int | None
    storing: Sequence[str]
    held: Sequence[InstanceId]
    units: Sequence[UnitView]
    slots: Sequence[SlotView]
    unsent: Sequence[int]
    """Micro-batches that no slot has."""
    refused_results: int
    receivers: dict[ChannelId, ReceiverView]
    senders: dict[ChannelId, SenderView]
