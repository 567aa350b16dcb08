"""What connects a worker's instances with each other and with those of other workers; its share builds it. Pure."""

from __future__ import annotations

from penstock.dataset import ChannelId
from penstock.engine.channels import Channels
from penstock.engine.edges import READER, EdgeInput, EdgeOutput, LocalInput, RemoteInput
from penstock.engine.snapshot import InputState, InstanceId
from penstock.engine.unit import Unit
from penstock.errors import ProtocolError
from penstock.pipeline.plan import EdgeSpec, Plan, UnitSpec


class Wiring:
    """The outputs of a worker's instances, and how inputs find them: in this process, or by a channel.

    Attributes
    ----------
    outputs : dict
        By edge and producing instance.
    """

    def __init__(self, plan: Plan, worker: int, channels: Channels) -> None:
        self.outputs: dict[tuple[int, int], EdgeOutput] = {}
        self._plan, self._worker, self._channels = plan, worker, channels

    def tidy(self) -> None:
        """Forget the outputs of instances that live elsewhere now, and channels that lead neither from nor to here."""
        for key in [key for key in self.outputs if self._plan.worker_of(key[1]) != self._worker]:
            del self.outputs[key]
        self._channels.tidy(self._worker)

    def connect_outputs(self, unit: UnitSpec, i: int, instances: frozenset[InstanceId], epoch: int) -> None:
        """Make the senders of channels into ``instances``; what a producer that lives on holds is replayed."""
        for edge in self._plan.outputs(unit.id):
            output = self.outputs[edge.id, i]
            for consumer, log in zip(output.consumers, output.logs, strict=True):
                if (unit.id, i) not in instances:
                    if (edge.consumer, consumer) not in instances:
                        continue
                    log.seek_after_epoch(READER, epoch)
                if self._plan.worker_of(consumer) != self._worker:
                    channel = ChannelId(edge.id, i, consumer)
                    self._channels.open_sender(channel, log)

    def inputs(
        self, unit: UnitSpec, instance: int, states: list[InputState] | None, instances: frozenset[InstanceId]
    ) -> list[EdgeInput]:
        """What an instance reads that is built anew, from where it stood."""
        inputs: list[EdgeInput] = []
        for edge in self._plan.inputs(unit.id):
            for producer in edge.producers(self._plan, instance):
                state = states[len(inputs)] if states is not None else None
                inputs.append(self._input(edge, producer, instance, state, instances))
        return inputs

    def _input(
        self, edge: EdgeSpec, producer: int, instance: int, state: InputState | None, instances: frozenset[InstanceId]
    ) -> EdgeInput:
        first_id = state.next_id if state is not None else 0
        lanes = self._plan.lanes(edge.producer, producer)
        if state is not None and (edge.producer, producer) in instances:
            # Its lanes may have woken up since: they are waited for until it says again that they are idle.
            state.idle_lanes = []
        if self._plan.worker_of(producer) != self._worker:
            receiver = self._channels.open_receiver(ChannelId(edge.id, producer, instance), first_id)
            return RemoteInput(receiver, lanes, edge.delay_us, state)
        output = self.outputs[edge.id, producer]
        log = output.logs[output.consumers.index(instance)]
        if log.position(READER) != first_id:
            raise ProtocolError(f"log {log.name} goes on at {log.position(READER)}, its reader at {first_id}.")
        return LocalInput(log, lanes, edge.delay_us, state)

    def rewire(self, made: Unit, instances: frozenset[InstanceId]) -> None:
        """Have an instance that works on read producers that have moved where they are now, from where it stands."""
        unit, i = made.spec, made.instance
        found = [(edge, p) for edge in self._plan.inputs(unit.id) for p in edge.producers(self._plan, i)]
        for index, (edge, producer) in enumerate(found):
            if (edge.producer, producer) in instances:
                before = made.input.logs[index]
                made.input.logs[index] = after = self._input(edge, producer, i, before.state(), instances)
                after.aligned, after.disordered_blocks = before.aligned, before.disordered_blocks
                after.rings(made.bell)
