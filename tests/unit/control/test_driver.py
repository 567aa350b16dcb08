"""The driver's machine: who is listened to, who is told to stop, what the shell has to do."""

from __future__ import annotations

import penstock as ps
from penstock.control.driver import Connect, DriverMachine, FinishSinks, Hand
from penstock.control.events import CoresSeen, GroupJobEnded, RecordCommit, Replace, StopRequested
from penstock.control.groups import Submit
from penstock.control.scheduler import Resumption
from penstock.errors import SparkFailed
from penstock.metrics import OpStats
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m
from penstock.protocol import slots as s
from penstock.protocol.link import Kind, Link, decode_header

S = 1_000_000


class Play:
    """The machine of a job with two workers, and the far ends of its links."""

    def __init__(self, resumption: Resumption | None = None) -> None:
        source = ps.generator({"n": ps.fields.sequence()}, rate=10, format="columns")
        plan = Plan.of(ps.stream("in", source).to(ps.memory()).graph(), Options.of(parallelism=2))
        self.now_us = 1_000 * S
        self.machine = DriverMachine(plan, self.now_us, 2, resumption)
        self.links: dict[int, Link] = {}
        self.chores: list[object] = []
        self._heard: dict[int, list[object]] = {}

    def say(self, link: int, message: m.FromWorker | s.ToDriver, kind: Kind = Kind.WORKER) -> None:
        far = self.links.setdefault(link, Link(link))
        (far.tell if isinstance(message, m.Heartbeat | m.Pulse) else far.post)(m.encode(message))
        for frames in far.frames(self.now_us):
            self.machine.receive([kind.value, *frames], self.now_us)
        self.chores += self.machine.chores()

    def register(self, worker: int, incarnation: int, order: int = 0) -> None:
        endpoint = f"tcp://{incarnation}"
        register = m.Register(worker=worker, incarnation=incarnation, endpoint=endpoint, pid=incarnation, order=order)
        self.say(incarnation, register)

    def heard(self, link: int) -> list[object]:
        """What the far end of a link has heard since it was last asked."""
        for endpoint, kind, frames in self.machine.sends(self.now_us):
            assert kind is Kind.DRIVER
            header = decode_header(frames[0])
            assert endpoint == f"tcp://{header.link}"
            packed = self.links[header.link].receive(header, frames[1] if len(frames) > 1 else None, self.now_us)
            decode = s.decode_to_slot if header.link >= 500 else m.decode_to_worker
            self._heard.setdefault(header.link, []).extend(decode(each) for each in packed)
        return self._heard.pop(link, [])

    def heartbeat(self, incarnation: int, at_us: int, offset: int) -> m.Heartbeat:
        return m.Heartbeat(
            worker=0,
            incarnation=incarnation,
            at_us=at_us,
            stats=[],
            rss_bytes=0,
            cpu_us=0,
            edges=[],
            offsets={"in": {0: offset}},
        )

    def deliver(self, incarnation: int) -> m.Deliver:
        return m.Deliver(
            worker=0, incarnation=incarnation, sink="to_memory", instance=0, epoch=1, part=0, rows=m.encode([])
        )


def test_workers_are_connected_to_and_started_when_all_are_there() -> None:
    play = Play()
    play.register(0, 10)
    assert play.chores == [Connect("tcp://10")]
    assert play.heard(10) == []
    play.register(1, 11)
    assert [type(each) for each in play.heard(10)] == [m.Start]
    assert play.machine.pids == {0: 10, 1: 11}


def test_a_replaced_worker_is_told_to_stop_and_not_listened_to() -> None:
    play = Play()
    play.register(0, 10)
    play.register(1, 11)
    play.heard(10)
    play.register(0, 20)
    assert m.Stop() in play.heard(10)
    before = play.machine.scheduler.inspect()
    play.say(10, m.EpochDone(worker=0, incarnation=10, epoch=1, stored=[]))
    play.say(10, play.deliver(10))
    assert play.machine.scheduler.inspect() == before
    assert not any(isinstance(chore, Hand) for chore in play.chores)
    assert play.machine.scheduler.refused_messages == 2
    play.say(20, play.deliver(20))
    assert any(isinstance(chore, Hand) for chore in play.chores)


def test_a_process_that_nobody_needs_is_told_to_stop_and_changes_nothing() -> None:
    play = Play()
    play.register(0, 10)
    play.register(1, 11)
    play.heard(10)
    play.register(0, 20, order=1)
    assert play.heard(20) == [m.Stop()]
    assert m.Stop() not in play.heard(10)
    assert play.machine.pids == {0: 10, 1: 11}
    play.say(20, play.deliver(20))
    assert not any(isinstance(chore, Hand) for chore in play.chores)
    play.say(10, play.deliver(10))
    assert any(isinstance(chore, Hand) for chore in play.chores)


def test_slots_give_their_cores_up_when_some_are_lost() -> None:
    play = Play()
    play.register(0, 10)
    play.register(1, 11)
    play.machine.tick(play.now_us)
    play.chores += play.machine.chores()
    (submit,) = [chore for chore in play.chores if isinstance(chore, Submit)]
    play.say(500, s.SlotUp(group=submit.group, slot=0, incarnation=500, endpoint="tcp://500", pid=1), Kind.SLOT)
    play.heard(500)
    play.machine.handle(CoresSeen(8), play.now_us)
    assert not [each for each in play.heard(500) if isinstance(each, s.End)]
    play.machine.handle(CoresSeen(1), play.now_us)
    assert s.End(at_once=False) in play.heard(500)
    assert play.machine.waits(play.now_us) == ["cores: 2 are needed, the cluster offers 1, 7 were lost"]


def test_figures_that_were_overtaken_are_left_alone() -> None:
    play = Play()
    play.register(0, 10)
    play.register(1, 11)
    play.say(10, play.heartbeat(10, 2 * S, 20))
    play.say(10, play.heartbeat(10, 1 * S, 10))
    assert play.machine.monitor.offsets() == {"in": [20]}


def test_whoever_comes_after_the_end_is_told_to_stop() -> None:
    play = Play()
    play.register(0, 10)
    play.machine.handle(StopRequested(), play.now_us)
    assert play.machine.ended
    play.register(1, 11)
    assert play.heard(11) == [m.Stop()]
    up = s.SlotUp(group=1, slot=0, incarnation=500, endpoint="tcp://500", pid=1)
    play.say(500, up, Kind.SLOT)
    assert play.heard(500) == [s.End(at_once=True)]


def test_slots_of_a_group_hear_who_the_workers_are_and_are_forgotten_with_it() -> None:
    play = Play()
    play.register(0, 10)
    play.register(1, 11)
    for _ in range(20):
        play.now_us += S // 10
        play.machine.tick(play.now_us)
        play.chores += play.machine.chores()
    (submit,) = [chore for chore in play.chores if isinstance(chore, Submit)]
    play.say(500, s.SlotUp(group=submit.group, slot=0, incarnation=500, endpoint="tcp://500", pid=1), Kind.SLOT)
    assert any(isinstance(each, s.Workers) for each in play.heard(500))
    play.machine.handle(GroupJobEnded(submit.group, None), play.now_us)
    assert m.GroupEnded(group=submit.group) in play.heard(10)
    assert play.machine._slots == {}


def test_a_silent_worker_is_replaced_and_epochs_are_recorded_by_the_shell() -> None:
    play = Play()
    play.register(0, 10)
    play.register(1, 11)
    play.now_us += 2 * S
    play.machine.tick(play.now_us)
    for incarnation in (10, 11):
        assert any(isinstance(each, m.BeginEpoch) for each in play.heard(incarnation))
        done = m.EpochDone(worker=incarnation - 10, incarnation=incarnation, epoch=1, stored=[])
        play.say(incarnation, done)
    assert any(isinstance(chore, RecordCommit) for chore in play.chores)
    for _ in range(6):
        play.now_us += 10 * S
        play.machine.tick(play.now_us)
    assert {chore.worker for chore in play.machine.chores() if isinstance(chore, Replace)} == {0, 1}


def test_an_error_of_the_shell_ends_the_job_and_is_kept() -> None:
    play = Play()
    play.register(0, 10)
    play.register(1, 11)
    play.heard(10)
    failed = ps.PenstockError("the disk is full.")
    play.machine.fail(failed)
    assert play.machine.error is failed
    assert m.Stop() in play.heard(10)


def test_a_job_that_fails_ends_as_failed_and_one_that_is_stopped_as_ended() -> None:
    for told in (SparkFailed("no."), None):
        play = Play()
        for worker in (0, 1):
            play.register(worker, 10 + worker)
        if told is not None:
            play.machine.fail(told)
        else:
            play.machine.handle(StopRequested(), play.now_us)
        assert play.machine.ended
        assert play.machine.error is told
        assert play.machine.scheduler.phase.value == ("ended" if told is None else "failed")


def test_what_a_worker_begins_with_reaches_the_monitor() -> None:
    play = Play(Resumption(1, 1_000 * S, 0))
    for worker in (0, 1):
        play.register(worker, 10 + worker)
    for worker in (0, 1):
        before = [OpStats("in", "record").message(0, worker)]
        play.say(10 + worker, m.RolledBack(worker=worker, incarnation=10 + worker, generation=1, before=before))
    play.say(10, play.heartbeat(10, 1_001 * S, 7))
    assert play.machine.monitor.offsets() == {"in": [7]}


def test_sinks_finish_where_the_job_has_ended_well_and_nowhere_else() -> None:
    well, badly = Play(), Play()
    for play in (well, badly):
        play.register(0, 10)
        play.register(1, 11)
    well.machine.handle(StopRequested(), well.now_us)
    assert well.machine.chores().count(FinishSinks()) == 1
    badly.machine.fail(SparkFailed("gone."))
    assert FinishSinks() not in badly.machine.chores()


def test_slots_hear_of_the_end() -> None:
    play = Play()
    play.register(0, 10)
    play.register(1, 11)
    play.machine.tick(play.now_us)
    play.chores += play.machine.chores()
    (submit,) = [chore for chore in play.chores if isinstance(chore, Submit)]
    play.say(500, s.SlotUp(group=submit.group, slot=0, incarnation=500, endpoint="tcp://500", pid=1), Kind.SLOT)
    play.heard(500)
    play.machine.handle(StopRequested(), play.now_us)
    assert s.End(at_once=True) in play.heard(500)
