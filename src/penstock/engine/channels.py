"""The channels of one worker: what is sent to other workers and what has come from them, packed by peer.

Everything that a turn has for one peer, blocks and acknowledgements of all channels, travels as one message: a message
costs about as much as the work on a hundred records.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from penstock.dataset import NEVER_US, Ack, ChannelId, Log, Receiver, Sender
from penstock.dataset.channel import ACK_DELAY_US, RESEND_US_MIN
from penstock.engine.edges import READER
from penstock.engine.snapshot import InstanceId
from penstock.engine.wire import Wire
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m

SEND_BLOCKS_PER_STEP = 64
LINGER_PEERS_MIN = 32
LINGER_US_PER_PEER = 50
"""In a job of so many workers a peer gets at most one message of blocks in this time for each of them. What is dealt
out to many is little for each, and a message for every record would cost more than the records. The first one goes at
once, so a calm stream waits for nothing."""

PeerFrames = tuple[int, list[bytes]]
"""Which worker, and the frames of one message to it."""


class Channels:
    """Both ends, as far as they are here, of every channel between this worker and others."""

    def __init__(self, plan: Plan, incarnation: int) -> None:
        self.peers: dict[int, int] = {}
        """Incarnation of each worker that is listened to."""
        self.generation = 0
        self.refused_messages = 0
        self.senders: dict[ChannelId, Sender] = {}
        self.receivers: dict[ChannelId, Receiver] = {}
        self._plan = plan
        self._incarnation = incarnation
        self._wire = Wire(plan, incarnation)
        self._waiting: dict[ChannelId, Sender | Receiver] = {}
        """Ends that may have to send something when nothing new comes: all that a timer looks at."""
        self._look = True
        """Every channel is to be looked at, whether its bell has rung or not."""
        self._left = False
        """More was to be sent than goes out in one turn."""
        self._timer_us = NEVER_US
        """Before this nothing is to be sent again, and no acknowledgement is due; a lower bound."""
        self._linger_us = self._lingers()
        self._sent_us: dict[int, int] = {}
        """By worker: when it was last sent blocks, where that is asked for."""
        self._window = max(1, plan.options.queue_records // 2)
        self._window_bytes = max(1, plan.options.queue_bytes // 2)
        self._message_bytes = plan.options.block_bytes

    def open_sender(self, channel: ChannelId, log: Log) -> None:
        """Begin to send a log, or begin anew."""
        self.senders[channel] = Sender(channel, log, READER, self._window, self.generation, self._window_bytes)
        self._waiting.pop(channel, None)
        self.look_again()

    def open_receiver(self, channel: ChannelId, first_id: int) -> Receiver:
        """Begin to receive, or begin anew."""
        receiver = Receiver(channel, self._window, self.generation, first_id, self._window_bytes)
        self.receivers[channel] = receiver
        self._waiting.pop(channel, None)
        return receiver

    def _lingers(self) -> int:
        workers = len(set(self._plan.placement)) or self._plan.workers
        return LINGER_US_PER_PEER * workers if workers >= LINGER_PEERS_MIN else 0

    def tidy(self, worker: int) -> None:
        """Forget channels that no longer lead from or to this worker: an end of them has moved."""
        self._linger_us = self._lingers()
        here = self._plan.worker_of
        for ends, own, other in ((self.senders, 1, 2), (self.receivers, 2, 1)):
            for channel in [c for c in ends if here(c[own]) != worker or here(c[other]) == worker]:
                del ends[channel]
                self._waiting.pop(channel, None)

    def look_again(self) -> None:
        """Have the next turn look at every channel: others may be sent to now."""
        self._look = True
        self._timer_us = 0 if self.senders or self.receivers else NEVER_US

    def receive(self, frames: Sequence[bytes], now_us: int) -> None:
        """Take what a peer has sent: headers, each followed by its frames if it has records."""
        at = 0
        while at < len(frames):
            message = m.decode_peer(frames[at])
            at += 1
            if isinstance(message, m.Acknowledge):
                self._on_ack(message, now_us)
                continue
            end = at + message.frames if message.count else at
            self._on_data(message, frames[at:end], now_us)
            at = end

    def _on_ack(self, message: m.Acknowledge, now_us: int) -> None:
        sender = self.senders.get(ChannelId(message.edge, message.producer, message.consumer))
        if sender is not None and self._is_current(message.consumer, message, sender.generation):
            sender.on_ack(Ack(message.received, message.consumed, message.gap), now_us)

    def _on_data(self, message: m.Data, payloads: Sequence[bytes], now_us: int) -> None:
        receiver = self.receivers.get(ChannelId(message.edge, message.producer, message.consumer))
        if receiver is not None and self._is_current(message.producer, message, receiver.generation):
            receiver.accept(self._wire.block(message, payloads), now_us)
            self._waiting[receiver.channel] = receiver
            self._timer_us = min(self._timer_us, now_us + ACK_DELAY_US)

    def _is_current(self, instance: int, message: m.PeerMessage, generation: int) -> bool:
        """Whether a message is of the peer's present incarnation and of the channel's generation."""
        known = self.peers.get(self._plan.worker_of(instance))
        if known == message.incarnation and generation == message.generation:
            return True
        self.refused_messages += 1
        return False

    def sends(self, now_us: int, held: Collection[InstanceId]) -> list[PeerFrames]:
        """Return one message for each peer that there is something for: blocks within their windows, acknowledgements.

        ``held`` are instances that are being recovered: nothing is sent to them. Heavy blocks go in several messages.
        Only channels are looked at whose bell has rung, and those that wait for something when the timer is over.
        """
        self._left = False
        look, self._look = self._look, False
        is_time = now_us >= self._timer_us
        if is_time:
            self._tick(now_us, held)
        sent: list[PeerFrames] = []
        packed: dict[int, list[bytes]] = {}
        heavy_bytes, lingering_us = 0, NEVER_US
        worker_of, linger_us = self._plan.worker_of, self._linger_us
        for channel, sender in self.senders.items():
            if not (sender.bell.rung or look) or (held and self._leads_to(channel, held)):
                continue
            if linger_us and (ready_us := self._sent_us.get(worker_of(channel.consumer), 0) + linger_us) > now_us:
                sender.bell.rung = True
                lingering_us = min(lingering_us, ready_us)
                continue
            sender.bell.rung = False
            for at in range(SEND_BLOCKS_PER_STEP):
                block = sender.next(now_us)
                if block is None:
                    break
                if not at:
                    self._waiting[channel] = sender
                worker = worker_of(channel.consumer)
                frames, size_bytes = self._wire.frames(channel, block, sender.generation)
                sender.weigh(block, size_bytes)
                if worker in packed:
                    packed[worker] += frames
                else:
                    packed[worker] = frames
                heavy_bytes += size_bytes
                if heavy_bytes >= self._message_bytes:
                    sent += packed.items()
                    packed, heavy_bytes = {}, 0
            else:
                self._left = sender.bell.rung = True
            self._timer_us = min(self._timer_us, now_us + RESEND_US_MIN)
        if linger_us:
            self._sent_us |= dict.fromkeys([*packed, *(worker for worker, _ in sent)], now_us)
        for channel, receiver in self.receivers.items():
            if receiver.ack_now and (ack := receiver.ack(now_us)) is not None:
                packed.setdefault(worker_of(channel.producer), []).append(self._acknowledge(channel, receiver, ack))
        if is_time:
            self._timer_us = self._next_us(held)
        self._timer_us = min(self._timer_us, lingering_us)
        sent += packed.items()
        return sent

    def _tick(self, now_us: int, held: Collection[InstanceId]) -> None:
        """Have those that wait for longer than they should send again, or say what has come."""
        for channel, end in list(self._waiting.items()):
            wake_us = end.wake_us()
            if wake_us is None:
                del self._waiting[channel]
            elif wake_us <= now_us and isinstance(end, Receiver):
                end.ack_now = True
            elif wake_us <= now_us and not (held and self._leads_to(channel, held)):
                assert isinstance(end, Sender)
                end.tick(now_us)
                end.bell.rung = True

    def _next_us(self, held: Collection[InstanceId]) -> int:
        """When something is to be sent again, or an acknowledgement is due."""
        soonest = NEVER_US
        for channel, end in self._waiting.items():
            wake = end.wake_us()
            if wake is not None and wake < soonest and not (held and self._leads_to(channel, held)):
                soonest = wake
        return soonest

    def _acknowledge(self, channel: ChannelId, receiver: Receiver, ack: Ack) -> bytes:
        return m.encode(
            m.Acknowledge(
                edge=channel.edge,
                producer=channel.producer,
                consumer=channel.consumer,
                incarnation=self._incarnation,
                generation=receiver.generation,
                received=ack.received,
                consumed=ack.consumed,
                gap=ack.gap,
            )
        )

    def _leads_to(self, channel: ChannelId, held: Collection[InstanceId]) -> bool:
        return (self._plan.edges[channel.edge].consumer, channel.consumer) in held

    @property
    def wake_us(self) -> int:
        """When something is to be sent without a message."""
        return 0 if self._left else self._timer_us
