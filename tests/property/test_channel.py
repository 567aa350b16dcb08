"""Sender and receiver over a network that loses, repeats and reorders: every block once, in order, in the window."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from penstock.dataset import Ack, Block, ChannelId, Log, Mark, Receiver, Sender
from penstock.dataset.channel import ACK_DELAY_US, RESEND_US_MIN

STEPS_MAX = 20_000
CHANNEL = ChannelId(0, 0, 0)


@dataclass
class Faults:
    """Shares of messages that meet a fault, until the network heals at ``heal_us``."""

    loss: float
    repeat: float
    delay_us: int
    heal_us: int


@dataclass
class Network:
    """Messages under way with the time they arrive; all randomness comes from one seed."""

    random: Random
    faults: Faults
    under_way: list[tuple[int, int, str, Block | Ack]] = field(default_factory=list)
    sent: int = 0

    def send(self, kind: str, message: Block | Ack, now_us: int) -> None:
        faults = self.faults
        if now_us < faults.heal_us and self.random.random() < faults.loss:
            return
        for _ in range(2 if self.random.random() < faults.repeat else 1):
            self.sent += 1
            # Equal delays keep the order; different ones do not.
            self.under_way.append((now_us + self.random.randint(0, faults.delay_us), self.sent, kind, message))

    def arrived(self, now_us: int) -> list[tuple[str, Block | Ack]]:
        here = sorted(each for each in self.under_way if each[0] <= now_us)
        self.under_way = [each for each in self.under_way if each[0] > now_us]
        return [(kind, message) for _, _, kind, message in here]


def carry(counts: list[int], window: int, faults: Faults, seed: int, pause_us: int) -> tuple[list[Block], Sender]:
    """Send blocks of these sizes and return them as consumed; the consumer takes one block every ``pause_us``."""
    log = Log("sent", ["edge"])
    for i, count in enumerate(counts):
        mark = Mark.END if i == len(counts) - 1 else Mark.NONE
        # Every third block covers two ids, as after a filter.
        first = log.next_id
        log.append(Block(first, first + (i % 3 == 0), 1, list(range(count)) or None, None, count, mark=mark))
    sender, receiver = Sender(CHANNEL, log, "edge", window), Receiver(CHANNEL, window)
    network = Network(Random(seed), faults)
    largest = max(counts)
    now_us, consume_at_us, stuck = 0, 0, 0
    got: list[Block] = []
    for _ in range(STEPS_MAX):
        sender.tick(now_us)
        while (block := sender.next(now_us)) is not None:
            network.send("block", block, now_us)
        for kind, message in network.arrived(now_us):
            if kind == "block":
                receiver.accept(message, now_us)
            else:
                sender.on_ack(message, now_us)
        assert receiver.queued_records <= max(window, largest), "the window was not respected"
        if receiver.peek() is not None and now_us >= consume_at_us:
            got.append(receiver.pop())
            consume_at_us = now_us + pause_us
        if (ack := receiver.ack(now_us)) is not None:
            network.send("ack", ack, now_us)
        if len(got) == len(counts) and sender.inspect().in_flight_records == 0 and log.unread_records("edge") == 0:
            return got, sender
        wakes = [at for at, *_ in network.under_way]
        wakes += [at for at in (sender.wake_us(), receiver.wake_us()) if at is not None]
        if receiver.peek() is not None:
            wakes.append(consume_at_us)
        stuck = 0 if wakes else stuck + 1
        assert stuck < 3, (
            f"nothing will ever happen again: {len(got)} of {len(counts)} blocks, "
            f"{sender.inspect().in_flight_records} records believed to be in flight"
        )
        now_us = max(now_us + 1, min(wakes, default=now_us))
    raise AssertionError(f"no end: {len(got)} of {len(counts)} blocks after {STEPS_MAX} steps")


FAULTS = st.builds(
    Faults,
    loss=st.sampled_from([0.0, 0.1, 0.5, 0.9]),
    repeat=st.sampled_from([0.0, 0.3]),
    delay_us=st.sampled_from([0, 100, 100_000, 3_000_000]),
    heal_us=st.sampled_from([0, 5_000_000, 120_000_000]),
)
COUNTS = st.lists(st.integers(0, 9), min_size=1, max_size=40)


@given(COUNTS, st.integers(1, 20), FAULTS, st.integers(0, 2**32), st.sampled_from([0, 1_000, 2_500_000]))
def test_every_block_arrives_once_and_in_order(
    counts: list[int], window: int, faults: Faults, seed: int, pause_us: int
) -> None:
    got, _ = carry(counts, window, faults, seed, pause_us)
    assert [block.count for block in got] == counts
    assert [block.last for block in got[:-1]] == [block.first - 1 for block in got[1:]]
    assert got[-1].mark is Mark.END


@given(COUNTS, st.integers(1, 20), st.integers(0, 2**32))
def test_nothing_is_sent_twice_over_a_sound_network(counts: list[int], window: int, seed: int) -> None:
    faults = Faults(loss=0.0, repeat=0.0, delay_us=0, heal_us=0)
    _, sender = carry(counts, window, faults, seed, pause_us=100)
    assert sender.resent_blocks == 0


def test_a_lost_last_acknowledgement_does_not_close_the_window_for_ever() -> None:
    log = Log("sent", ["edge"])
    for i in range(4):
        log.append(Block(i, i, 1, [i], None, 1))
    sender, receiver = Sender(CHANNEL, log, "edge", 2), Receiver(CHANNEL, 2)
    for _ in range(2):
        receiver.accept(sender.next(0), 0)
    assert sender.next(0) is None, "the window is full"
    sender.on_ack(Ack(received=1, consumed=-1), 10)
    receiver.pop()
    receiver.pop()
    assert receiver.ack(20) is not None, "this one is lost"
    wake_us = sender.wake_us()
    assert wake_us is not None
    sender.tick(wake_us)
    probe = sender.next(wake_us)
    assert probe is not None
    assert not receiver.accept(probe, wake_us)
    sender.on_ack(receiver.ack(wake_us), wake_us)
    assert [sender.next(wake_us).first, sender.next(wake_us).first] == [2, 3]


@given(COUNTS, st.integers(1, 20), st.integers(1, 5), st.data())
def test_a_channel_begun_anew_carries_what_follows_the_epoch(
    counts: list[int], window: int, generation: int, data: st.DataObject
) -> None:
    """The consumer is lost: the log goes back to the first block after the epoch, both ends begin anew there."""
    log = Log("replayed", ["edge"], first_id=7)
    blocks = []
    for i, count in enumerate(counts):
        first = log.next_id
        blocks.append(Block(first, first + i % 2, 1 + i // 4, list(range(count)) or None, None, count))
        log.append(blocks[-1])
    sender, receiver = Sender(CHANNEL, log, "edge", window), Receiver(CHANNEL, window, first_id=7)
    for _ in range(data.draw(st.integers(0, 3 * len(counts)))):
        if (block := sender.next(0)) is not None:
            assert receiver.accept(block, 0)
        if receiver.peek() is not None and data.draw(st.booleans()):
            receiver.pop()
            sender.on_ack(receiver.ack(1_000_000) or Ack(-1, -1), 0)
    epoch = data.draw(st.integers(0, 1 + len(counts) // 4))
    first_id = log.seek_after_epoch("edge", epoch)
    sender = Sender(CHANNEL, log, "edge", window, generation)
    receiver = Receiver(CHANNEL, window, generation, first_id)
    assert sender.generation == receiver.generation == generation
    assert sender.inspect().in_flight_records == 0
    assert receiver.ack(1_000_000) is None, "there is nothing to acknowledge yet"
    got, now_us = [], 0
    for _ in range(4 * len(counts)):
        now_us += 50_000
        while (block := sender.next(now_us)) is not None:
            assert receiver.accept(block, now_us)
        if receiver.peek() is not None:
            got.append(receiver.pop())
        if (ack := receiver.ack(now_us + 50_000)) is not None:
            sender.on_ack(ack, now_us)
    assert got == [block for block in blocks if block.epoch > epoch]
    assert sender.resent_blocks == 0
    assert log.unread_records("edge") == 0


def test_a_receiver_refuses_what_lies_before_its_beginning() -> None:
    receiver = Receiver(CHANNEL, first_id=5)
    assert not receiver.accept(Block(4, 4, 1), 0)
    assert receiver.duplicate_blocks == 1
    assert receiver.ack(0) == Ack(4, 4)
    assert not receiver.accept(Block(6, 6, 1), 0)
    assert receiver.ack(0) == Ack(4, 4, gap=True)
    assert receiver.accept(Block(5, 5, 1), 0)


def test_a_receiver_whose_consumer_stands_still_says_less_and_less_and_tells_at_once_when_it_goes_on() -> None:
    receiver = Receiver(CHANNEL)
    for i in range(3):
        assert receiver.accept(Block(i, i, 1, count=1), 0)
    told, now_us = [], 0
    while now_us < 10_000_000:
        now_us = receiver.wake_us() or now_us
        assert receiver.ack(now_us) == Ack(2, -1)
        told.append(now_us)
    assert told[0] == ACK_DELAY_US
    assert len(told) < 30
    assert max(later - earlier for earlier, later in pairwise(told)) < RESEND_US_MIN, "nobody has a reason to ask"
    receiver.pop()
    assert receiver.ack(now_us + 1) == Ack(2, 0)
    assert receiver.wake_us() == now_us + 1 + ACK_DELAY_US
