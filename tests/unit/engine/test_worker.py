"""A worker's machine: registration, restoring, figures, last words, and who it listens to."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import penstock as ps
from penstock.engine import worker as worker_module
from penstock.engine.snapshot import Persist
from penstock.engine.worker import (
    HEARTBEAT_US,
    LAST_WORD_US,
    Connect,
    ReadBack,
    WorkerIdentity,
    WorkerMachine,
    last_words,
)
from penstock.errors import CheckpointDamaged
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.protocol import link as link_module
from penstock.protocol import messages as m
from penstock.protocol.link import Kind, Link, decode_header

S = 1_000_000
T0 = 1_000 * S
OWN = 77


class Play:
    """Worker 0 of two, and the driver's end of its link."""

    def __init__(self, fn: object = None) -> None:
        stream = ps.stream("in", ps.generator({"n": ps.fields.sequence()}, rate=1000, total=100_000, format="columns"))
        if fn is not None:
            stream = stream.map(fn, schema="n bigint", name="fn")
        self.plan = Plan.of(stream.to(ps.memory()).graph(), Options.of(parallelism=2))
        self.now_us = T0
        identity = WorkerIdentity(0, OWN, "tcp://w0", 4321)
        self.machine = WorkerMachine(
            self.plan, identity, "tcp://driver", lambda: self.now_us * 1000, lambda: (5, 6, 7), self.now_us
        )
        self.link = Link(OWN)
        self.peers = [m.Peer(worker=i, incarnation=OWN + i, endpoint=f"tcp://w{i}") for i in (0, 1)]

    def said(self) -> list[m.FromWorker]:
        """What the driver hears now, and confirms."""
        heard: list[m.FromWorker] = []
        for endpoint, kind, frames in self.machine.sends(self.now_us):
            if kind is Kind.WORKER:
                assert endpoint == "tcp://driver"
                packed = frames[1] if len(frames) > 1 else None
                found = self.link.receive(decode_header(frames[0]), packed, self.now_us)
                heard += [m.decode_from_worker(each) for each in found]
        return heard

    def tell(self, *messages: m.ToWorker) -> None:
        for message in messages:
            self.link.post(m.encode(message))
        for frames in self.link.frames(self.now_us):
            self.machine.receive([Kind.DRIVER.value, *frames], self.now_us)

    def start(self, generation: int = 0, snapshots: Sequence[m.Stored] = ()) -> None:
        restore = m.Restore(epoch=1, instances=[], snapshots=list(snapshots), renumber=False) if generation else None
        self.tell(
            m.Start(peers=self.peers, start_us=self.now_us, generation=generation, restore=restore, careful=False)
        )

    def started(self) -> Play:
        self.start()
        self.machine.chores()
        self.machine.on_restored({}, None, self.now_us)
        self.said()
        return self


def test_it_registers_first_and_again_until_it_is_heard() -> None:
    play = Play()
    expected = m.Register(worker=0, incarnation=OWN, endpoint="tcp://w0", pid=4321)
    assert len(list(play.machine.sends(play.now_us))) == 1, "which is lost"
    play.now_us = play.machine.wake_us(play.now_us)
    assert play.said() == [expected]
    play.tell()
    play.now_us += 60 * S
    assert [each for each in play.said() if isinstance(each, m.Register)] == []


def test_it_shows_that_it_is_there_while_it_waits_for_its_start() -> None:
    play = Play()
    play.said()
    told = 0
    for _ in range(40):
        play.now_us += 50_000
        play.machine.step(play.now_us)
        told += play.said().count(m.Present(worker=0, incarnation=OWN))
    assert told == 40 * 50_000 // HEARTBEAT_US
    play.started()
    play.now_us += HEARTBEAT_US
    play.machine.step(play.now_us)
    assert not [each for each in play.said() if isinstance(each, m.Present)], "its figures say as much"


def test_start_has_the_shell_connect_and_read_back_what_is_its_own() -> None:
    play = Play()
    mine, other = (m.Stored(unit=0, instance=i, epoch=1, depth=0, name=f"u0-i{i}", crc=0) for i in (0, 1))
    play.start(generation=3, snapshots=[mine, other])
    assert play.machine.chores() == [Connect("tcp://w1", None), ReadBack((mine,), False)]
    assert play.machine.share is None, "until it is read back"


def test_what_comes_while_snapshots_are_read_back_is_taken_afterwards() -> None:
    play = Play()
    play.start()
    play.machine.chores()
    play.tell(m.BeginEpoch(epoch=1))
    play.machine.on_restored({}, None, play.now_us)
    for _ in range(3):
        play.machine.step(play.now_us)
    stored = [chore for chore in play.machine.chores() if isinstance(chore, Persist)]
    assert {each.epoch for each in stored} == {1}


def test_it_listens_to_its_own_link_only() -> None:
    play = Play().started()
    stranger = Link(OWN + 5)
    stranger.post(m.encode(m.Stop()))
    for frames in stranger.frames(play.now_us):
        play.machine.receive([Kind.DRIVER.value, *frames], play.now_us)
    play.machine.step(play.now_us)
    assert not play.machine.ended
    play.tell(m.Stop())
    assert play.machine.ended


def test_figures_are_told_at_once_and_in_their_rhythm() -> None:
    play = Play().started()
    play.machine.step(play.now_us)
    kinds = {type(each) for each in play.said()}
    assert kinds == {m.Pulse, m.Heartbeat}
    beats = 0
    for _ in range(40):
        play.now_us += 50_000
        play.machine.step(play.now_us)
        beats += sum(isinstance(each, m.Heartbeat) for each in play.said())
    assert beats == 40 * 50_000 // HEARTBEAT_US


def test_it_ends_by_itself_when_the_driver_is_silent() -> None:
    play = Play().started()
    silence_us = play.plan.options.silence_us
    for _ in range(4):
        play.now_us += silence_us // 4
        play.machine.step(play.now_us)
        assert not play.machine.ended
    play.now_us += 1
    play.machine.step(play.now_us)
    assert play.machine.ended


def test_while_it_stands_still_itself_the_driver_is_not_silent() -> None:
    """The machine was asleep: whoever is the first to be at work again waits for the others."""
    play = Play().started()
    play.machine.step(play.now_us)
    play.now_us += 100 * play.plan.options.silence_us
    play.machine.step(play.now_us)
    assert not play.machine.ended
    for _ in range(3):
        play.now_us += play.plan.options.silence_us // 3 + 1
        play.machine.step(play.now_us)
    assert play.machine.ended, "it waits no longer than for any other silence"


def raises(record: object) -> object:
    raise ValueError("no")


def leaves(record: object) -> object:
    raise SystemExit(3)


@pytest.mark.parametrize("fn", [raises, leaves])
def test_an_error_is_told_and_waited_for_to_be_heard(fn: object) -> None:
    play = Play(fn).started()
    play.now_us += S
    play.machine.step(play.now_us)
    assert play.machine.failure is not None
    assert not play.machine.ended, "until the driver has heard of it"
    (failed,) = [each for each in play.said() if isinstance(each, m.Failed)]
    assert (failed.worker, failed.incarnation) == (0, OWN)
    play.tell(m.Alive())
    play.machine.step(play.now_us)
    assert play.machine.ended


def test_last_words_are_not_waited_for_for_ever() -> None:
    play = Play().started()
    play.machine.fail(CheckpointDamaged(path="x", cause="torn"), play.now_us)
    play.machine.step(play.now_us + LAST_WORD_US - 1)
    assert not play.machine.ended
    play.machine.step(play.now_us + LAST_WORD_US)
    assert play.machine.ended


def test_last_words_are_waited_for_as_long_as_the_driver_confirms_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "WINDOW_BYTES", 1)
    play = Play().started()
    play.tell(m.Alive())
    for _ in range(4):
        play.machine.fail(CheckpointDamaged(path="x", cause="torn"), play.now_us)
    for left in (4, 3, 2, 1):
        play.now_us += LAST_WORD_US - 1
        play.machine.step(play.now_us)
        assert not play.machine.ended, f"{left} last words are not confirmed"
        play.said()
        play.tell(m.Alive())
    play.machine.step(play.now_us)
    assert play.machine.ended


def test_what_comes_while_snapshots_are_read_back_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "EARLY_BYTES_MAX", 1_000)
    play = Play()
    play.start()
    for _ in range(10):
        play.machine.receive([Kind.PEER.value, bytes(300)], play.now_us)
    assert len(play.machine._early) == 3, "channels send the rest again"
    play.tell(m.BeginEpoch(epoch=1))
    assert len(play.machine._early) == 4, "what the driver says is taken, whatever else waits"


def test_what_waits_wakes_it_up_in_time() -> None:
    play = Play()
    assert play.machine.wake_us(play.now_us) > play.now_us
    play.started()
    play.machine.step(play.now_us)
    play.said()
    assert play.now_us < play.machine.wake_us(play.now_us) <= play.now_us + HEARTBEAT_US


def test_a_worker_that_builds_for_long_has_another_thread_say_that_it_is_there() -> None:
    play = Play()
    told = []
    for endpoint, kind, frames in play.machine.sends_beside(play.now_us):
        assert (endpoint, kind) == ("tcp://driver", Kind.WORKER)
        told += Link(OWN).receive(decode_header(frames[0]), frames[1], play.now_us)
    assert [m.decode_from_worker(each) for each in told] == [m.Present(worker=0, incarnation=OWN)]


def test_a_process_that_cannot_begin_says_why_in_a_message_that_fits() -> None:
    error = CheckpointDamaged(path="x" * (2 * m.TEXT_MAX), cause="torn")
    ((endpoint, kind, frames),) = last_words(3, OWN, "tcp://driver", error, T0)
    assert (endpoint, kind) == ("tcp://driver", Kind.WORKER)
    ((packed),) = Link(OWN).receive(decode_header(frames[0]), frames[1], T0)
    told = m.decode_from_worker(packed)
    assert isinstance(told, m.Failed)
    assert (told.worker, told.incarnation, told.code, len(told.what)) == (3, OWN, error.code, m.TEXT_MAX)
