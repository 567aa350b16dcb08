"""What one worker sends another: messages cut by bytes, windows of bytes, blocks in several frames."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import penstock as ps
from penstock.dataset import NEVER_US, Block, ChannelId, Log, Receiver, Sender
from penstock.engine.channels import LINGER_PEERS_MIN, LINGER_US_PER_PEER, Channels
from penstock.engine.edges import READER
from penstock.errors import LimitExceeded
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m

MS = 1_000


class Play:
    """Two workers, and a log of worker 0 that worker 1 reads."""

    def __init__(self, workers: int = 2, **sizes: int) -> None:
        stream = ps.stream("in", ps.records([("a",)], schema="k string")).filter(ps.col("k") != "", name="kept")
        pipeline = stream.key_by("k").filter(ps.col("k") != "").to(ps.memory())
        self.plan = Plan.of(pipeline.graph(), replace(Options.of(parallelism=workers), **sizes))
        (edge,) = [each for each in self.plan.edges if each.keys]
        self.record = edge.schema.record_type
        self.log = Log("log", [READER])
        self.ends = Channels(self.plan, 10), Channels(self.plan, 11)
        for end in self.ends:
            end.peers = {0: 10, 1: 11}  # others are not heard of here
        channel = ChannelId(edge.id, 0, 1)
        self.ends[0].open_sender(channel, self.log)
        self.receiver = self.ends[1].open_receiver(channel, 0)
        self.sender = self.ends[0].senders[channel]

    def write(self, *lengths: int, size_bytes: int = 0) -> None:
        rows = [self.record("x" * length) for length in lengths]
        self.log.append(Block(self.log.next_id, self.log.next_id, 1, rows, None, len(rows), 5, size_bytes=size_bytes))

    def send(self, now_us: int = 0) -> list[list[bytes]]:
        """Send, hand over, and return the messages."""
        messages = []
        for peer, frames in self.ends[0].sends(now_us, ()):
            assert peer == 1
            messages.append(frames)
            self.ends[1].receive(frames, now_us)
        return messages

    def answer(self, now_us: int = 0) -> None:
        for _, frames in self.ends[1].sends(now_us, ()):
            self.ends[0].receive(frames, now_us)

    def read(self) -> list[int]:
        lengths = []
        while self.receiver.peek() is not None:
            lengths += [len(row.k) for row in self.receiver.pop().rows or []]
        return lengths


def test_light_blocks_share_a_message_and_heavy_ones_do_not() -> None:
    play = Play(block_bytes=1_000)
    for _ in range(5):
        play.write(10)
    assert len(play.send()) == 1
    for _ in range(5):
        play.write(600)
    sizes = [sum(map(len, message)) for message in play.send()]
    assert len(sizes) == 3
    assert max(sizes) < 2_000
    assert play.read() == [10] * 5 + [600] * 5


def test_the_window_counts_the_bytes_that_blocks_really_have() -> None:
    play = Play(queue_bytes=2_000)
    for _ in range(5):
        play.write(400, size_bytes=1)
    play.send()
    assert play.sender.inspect().in_flight_bytes == 3 * 405, "the third one was let through as a light one"
    assert play.receiver.inspect().queued_bytes == 3 * 405
    assert play.log.retained_bytes == 3 * 405 + 2
    assert play.read() == [400] * 3
    play.answer()
    assert play.sender.inspect().in_flight_bytes == 0
    assert play.log.retained_bytes == 3 * 405 + 2, "until the epoch is committed"
    play.send()
    assert play.read() == [400] * 2
    play.answer(100 * MS)
    play.log.commit(1)
    assert play.log.retained_bytes == 0


def test_a_block_larger_than_the_window_goes_alone() -> None:
    play = Play(queue_bytes=100)
    for _ in range(3):
        play.write(1_000, size_bytes=1_000)
    for step in range(3):
        assert len(play.send(step)) == 1
        assert play.read() == [1_000]
        play.answer(step)


def test_a_block_that_is_heavier_than_it_was_estimated_travels_in_several_frames(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(m, "MESSAGE_BYTES_MAX", 1_000)
    play = Play()
    play.write(10, 900, 20, 900, 30, 900)
    play.write(5)
    (message,) = play.send()
    assert max(map(len, message)) <= 1_000
    assert play.read() == [10, 900, 20, 900, 30, 900, 5]


def test_a_record_that_is_too_large_by_itself_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(m, "MESSAGE_BYTES_MAX", 1_000)
    play = Play()
    play.write(10, 1_001)
    with pytest.raises(LimitExceeded) as raised:
        play.send()
    assert raised.value.operation == "kept"


def test_a_timer_looks_only_at_channels_that_wait_for_something(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two hundred that a worker has, few are at work at a moment."""
    play = Play()
    sending, receiving = play.ends
    for number in range(2, 200):
        sending.open_sender(ChannelId(play.sender.channel.edge, 0, number), Log(f"log {number}", [READER]))
        receiving.open_receiver(ChannelId(play.sender.channel.edge, number, 1), 0)
    play.send()
    play.answer()
    looks = []
    for kind, name in ((Sender, "next"), (Sender, "tick"), (Receiver, "ack")):
        method = getattr(kind, name)

        def counted(end: object, now_us: int, method: Any = method, name: str = name) -> object:
            looks.append(name)
            return method(end, now_us)

        monkeypatch.setattr(kind, name, counted)
    play.write(1, 2)
    assert len(play.send()) == 1
    assert play.read() == [1, 2]
    play.answer(100 * MS)
    play.send(2_000 * MS)
    assert sending.wake_us == receiving.wake_us == NEVER_US
    assert len(looks) < 10, looks


def test_in_a_large_job_blocks_for_one_peer_are_sent_together_and_the_first_at_once() -> None:
    play = Play(workers=LINGER_PEERS_MIN)
    linger_us = LINGER_PEERS_MIN * LINGER_US_PER_PEER
    play.write(1)
    assert len(play.send(10 * MS)) == 1
    play.write(2)
    play.write(3)
    assert play.send(10 * MS + linger_us - 1) == []
    assert play.ends[0].wake_us == 10 * MS + linger_us
    assert len(play.send(10 * MS + linger_us)) == 1
    assert play.read() == [1, 2, 3]
    play.write(4)
    assert len(play.send(10 * MS + 2 * linger_us)) == 1
    small = Play()
    for length in (1, 2):
        small.write(length)
        assert len(small.send(10 * MS)) == 1
