"""One worker's share of a job as a pure machine: messages and the time in, messages out. The shell moves the bytes."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from penstock.dataset import Ack, Block, ChannelId, Mark, Receiver, Sender
from penstock.engine.chain import ClockNs
from penstock.engine.edges import READER, EdgeInput, EdgeOutput, LocalInput, RemoteInput
from penstock.engine.unit import InputUnit, SourceUnit, Unit
from penstock.errors import LimitExceeded
from penstock.metrics.stats import StatsMessage
from penstock.pipeline.plan import Plan, UnitSpec
from penstock.protocol import messages as m

UNIT_BLOCKS_PER_STEP = 64
STEP_US_MAX = 5_000
"""No unit begins another block when a step has taken so long: messages and heartbeats must not wait."""
SEND_BLOCKS_PER_STEP = 64
ANNOUNCE_US = 50_000
DELIVER_ROWS_MAX = 10_000

PeerFrames = tuple[int, list[bytes]]
"""Which worker, and the frames of one message to it."""


class Worker:
    """Hosts unit instances, the channels between them and other workers, and the epoch protocol's worker side."""

    def __init__(self, plan: Plan, worker: int, incarnation: int, clock_ns: ClockNs) -> None:
        self.worker = worker
        self.incarnation = incarnation
        self.stopping = False
        self.refused_messages = 0
        self._plan = plan
        self._clock_ns = clock_ns
        self._senders: dict[ChannelId, Sender] = {}
        self._receivers: dict[ChannelId, Receiver] = {}
        self._peers: dict[int, int] = {}
        self._to_driver: list[m.FromWorker] = []
        self._encode = msgspec.msgpack.Encoder().encode
        self._decoders = {
            edge.id: msgspec.msgpack.Decoder(list[edge.schema.record_type]).decode  # type: ignore[name-defined]
            for edge in plan.edges
        }
        self._outputs: dict[tuple[int, int], EdgeOutput] = {}
        self._sources: list[SourceUnit] = []
        self._units: list[InputUnit] = []
        self._build()
        self._epoch_pending: int | None = None
        self._finished = False
        self._announce_at_us: int | None = None

    # --- construction -------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        mine = list(self._plan.instances(self.worker))
        for unit, instance in mine:
            for edge in self._plan.outputs(unit.id):
                output = EdgeOutput(edge, self._plan, instance)
                self._outputs[edge.id, instance] = output
                for consumer, log in zip(output.consumers, output.logs, strict=True):
                    if self._plan.worker_of(consumer) != self.worker:
                        channel = ChannelId(edge.id, instance, consumer)
                        self._senders[channel] = Sender(channel, log, READER, self._window)
        for unit, instance in mine:
            outputs = [self._outputs[edge.id, instance] for edge in self._plan.outputs(unit.id)]
            if unit.source is not None:
                self._sources.append(SourceUnit(unit, instance, self._plan, outputs, self._clock_ns))
            else:
                inputs = self._inputs(unit, instance)
                self._units.append(InputUnit(unit, instance, self._plan, inputs, outputs, self._clock_ns))
        # Downstream first, so that room is made before more is produced.
        self._units.reverse()

    @property
    def _window(self) -> int:
        return max(1, self._plan.options.queue_records // 2)

    def _inputs(self, unit: UnitSpec, instance: int) -> list[EdgeInput]:
        inputs: list[EdgeInput] = []
        for edge in self._plan.inputs(unit.id):
            for producer in edge.producers(self._plan, instance):
                if self._plan.worker_of(producer) == self.worker:
                    output = self._outputs[edge.id, producer]
                    inputs.append(LocalInput(output.logs[output.consumers.index(instance)]))
                else:
                    channel = ChannelId(edge.id, producer, instance)
                    self._receivers[channel] = Receiver(channel, self._window)
                    inputs.append(RemoteInput(self._receivers[channel]))
        return inputs

    @property
    def units(self) -> list[Unit]:
        """All unit instances of this worker."""
        return [*self._sources, *self._units]

    # --- messages in --------------------------------------------------------------------------------------------------

    def on_driver(self, message: m.ToWorker) -> None:
        """Take a control message."""
        match message:
            case m.Start(peers=peers):
                self._peers = {peer.worker: peer.incarnation for peer in peers}
            case m.BeginEpoch(epoch=epoch):
                self._epoch_pending = epoch
                for source in self._sources:
                    source.begin_epoch(epoch)
            case m.Commit(epoch=epoch, final=final):
                self._commit(epoch)
                if final:
                    self._to_driver.append(m.Stopped(self.worker, self.incarnation))
                    self.stopping = True
            case m.Drain():
                for source in self._sources:
                    source.drain()
            case m.Stop():
                self.stopping = True
            case m.Alive():
                pass

    def on_peer(self, message: m.PeerMessage, payload: bytes | None, now_us: int) -> None:
        """Take a block or an acknowledgement from another worker, if it is from its present incarnation."""
        channel = ChannelId(message.edge, message.producer, message.consumer)
        if isinstance(message, m.Acknowledge):
            sender = self._senders.get(channel)
            if sender is None or self._peers.get(self._plan.worker_of(message.consumer)) != message.incarnation:
                self.refused_messages += 1
                return
            sender.on_ack(Ack(message.received, message.consumed, message.gap), now_us)
            return
        receiver = self._receivers.get(channel)
        if receiver is None or self._peers.get(self._plan.worker_of(message.producer)) != message.incarnation:
            self.refused_messages += 1
            return
        rows = self._decoders[message.edge](payload) if payload else None
        receiver.accept(
            Block(
                message.first,
                message.last,
                message.epoch,
                rows,
                None,
                message.count,
                message.due_us,
                message.event_time_us_max,
                message.idle,
                Mark(message.mark),
            ),
            now_us,
        )

    # --- work ---------------------------------------------------------------------------------------------------------

    def step(self, now_us: int) -> bool:
        """Do a bounded piece of what can be done now; say whether there was any."""
        worked = False
        until_ns = now_us * 1000 + STEP_US_MAX * 1000
        for unit in self._units:
            for _ in range(UNIT_BLOCKS_PER_STEP):
                if not unit.step():
                    break
                worked = True
                if self._clock_ns() > until_ns:
                    break
        for source in self._sources:
            if source.step(now_us):
                worked = True
        self._announce(now_us)
        self._progress()
        return worked

    def _announce(self, now_us: int) -> None:
        if self._announce_at_us is not None and now_us < self._announce_at_us:
            return
        waiting = [output for output in self._outputs.values() if output.has_unannounced]
        if self._announce_at_us is not None:
            for output in waiting:
                output.announce()
            waiting = []
        self._announce_at_us = now_us + ANNOUNCE_US if waiting else None

    def _progress(self) -> None:
        """Report the epoch, and the end, once every unit has passed it."""
        epoch = self._epoch_pending
        if epoch is not None and all(unit.finished or unit.done_epoch >= epoch for unit in self.units):
            self._epoch_pending = None
            self._to_driver.append(m.EpochDone(self.worker, self.incarnation, epoch))
        if not self._finished and all(unit.finished for unit in self.units):
            self._finished = True
            self._to_driver.append(m.Finished(self.worker, self.incarnation))

    def _commit(self, epoch: int) -> None:
        for unit in self.units:
            unit.commit(epoch)
            for sink in unit.chain.sinks:
                rows = sink.commit(epoch)
                for at in range(0, len(rows), DELIVER_ROWS_MAX):
                    packed = self._encode(rows[at : at + DELIVER_ROWS_MAX])
                    self._to_driver.append(m.Deliver(self.worker, self.incarnation, sink.name, packed))

    # --- messages out -------------------------------------------------------------------------------------------------

    def to_driver(self) -> list[m.FromWorker]:
        """Take the messages for the driver."""
        taken, self._to_driver = self._to_driver, []
        return taken

    def to_peers(self, now_us: int) -> Iterator[PeerFrames]:
        """Yield the messages for other workers: blocks within their windows, and acknowledgements."""
        if not self._peers:
            return
        for channel, sender in self._senders.items():
            sender.tick(now_us)
            for _ in range(SEND_BLOCKS_PER_STEP):
                block = sender.next(now_us)
                if block is None:
                    break
                yield self._plan.worker_of(channel.consumer), self._frames(channel, block)
        for channel, receiver in self._receivers.items():
            ack = receiver.ack(now_us)
            if ack is not None:
                message = m.Acknowledge(*channel, self.incarnation, ack.received, ack.consumed, ack.gap)
                yield self._plan.worker_of(channel.producer), [m.encode(message)]

    def _frames(self, channel: ChannelId, block: Block) -> list[bytes]:
        header = m.Data(
            *channel,
            self.incarnation,
            block.first,
            block.last,
            block.epoch,
            block.count,
            block.due_us,
            block.event_time_us_max,
            block.idle,
            int(block.mark),
        )
        if not block.count:
            return [m.encode(header)]
        payload = self._encode(block.as_rows(self._plan.edges[channel.edge].schema))
        if len(payload) > m.MESSAGE_BYTES_MAX:
            name = self._plan.units[self._plan.edges[channel.edge].producer].name
            raise LimitExceeded(what="bytes in one block", limit=m.MESSAGE_BYTES_MAX, got=len(payload), operation=name)
        return [m.encode(header), payload]

    def wake_us(self, now_us: int) -> int | None:
        """When there is something to do without a message, or None."""
        soonest: int | None = self._announce_at_us
        for source in self._sources:
            wake = source.wake_us(now_us)
            if wake is not None and (soonest is None or wake < soonest):
                soonest = wake
        ends: list[Receiver | Sender] = [*self._receivers.values(), *self._senders.values()]
        for end in ends:
            wake = end.wake_us()
            if wake is not None and (soonest is None or wake < soonest):
                soonest = wake
        return soonest

    # --- figures ------------------------------------------------------------------------------------------------------

    def figures(self) -> list[StatsMessage]:
        """Figures of every operation here."""
        return [each for unit in self.units for each in unit.figures()]

    def edge_figures(self) -> list[m.EdgeFigures]:
        """What every edge has carried, as seen from here."""
        totals = {edge.id: m.EdgeFigures(edge.id) for edge in self._plan.edges}
        for (edge_id, _), output in self._outputs.items():
            totals[edge_id].records_written += output.records_written
        for unit in self._units:
            edges = [
                edge for edge in self._plan.inputs(unit.spec.id) for _ in edge.producers(self._plan, unit.instance)
            ]
            for edge, each in zip(edges, unit.inputs, strict=True):
                totals[edge.id].records_read += each.records_read
                totals[edge.id].blocks_disordered += each.disordered_blocks
                if isinstance(each, RemoteInput):
                    totals[edge.id].blocks_duplicate += each.receiver.duplicate_blocks
                    totals[edge.id].blocks_refused += each.receiver.refused_blocks
        for channel, sender in self._senders.items():
            totals[channel.edge].blocks_resent += sender.resent_blocks
        return list(totals.values())

    def offsets(self) -> dict[str, dict[int, int]]:
        """Next offset of every partition that is read here, by source."""
        return {source.spec.name: source.offsets for source in self._sources}

    def close(self) -> None:
        """Free sinks and sources."""
        for unit in self.units:
            unit.chain.close()
