"""A slot: ready, at work, leaving, ended; what it answers, and to whom."""

from __future__ import annotations

from typing import Any

import penstock as ps
from penstock.connectors.base import Run
from penstock.dataset import pack
from penstock.engine.event_time import Origin
from penstock.engine.line import Item, Line
from penstock.engine.slot import LEAVE_US, READY_US, Identity, SlotMachine, State
from penstock.engine.ways.pool import LOST_US, SlotPool, Work
from penstock.engine.ways.slots import Slots
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.pipeline.ranges import Range
from penstock.protocol import messages as m
from penstock.protocol import slots as s
from penstock.protocol.link import Header, decode_header

S = 1_000_000
PEERS = [m.Peer(worker=0, incarnation=70, endpoint="tcp://w0"), m.Peer(worker=1, incarnation=71, endpoint="tcp://w1")]
NUMBERS = ps.stream("in", ps.records([(1,), (2,)], schema="n bigint"))


def refuse(record: Any) -> Any:
    if record.n == 13:
        raise ValueError("thirteen")
    return record.n * 2


def to_driver(slot: SlotMachine) -> list[s.ToDriver]:
    """What the slot says to the driver now; the driver confirms it."""
    sent = [(decode_header(frames[0]), frames[1]) for frames in slot._link.frames(0) if len(frames) > 1]
    for header, _ in sent:
        slot._link.receive(Header(link=header.link, number=0, seen=header.number), None, 0)
    return [s.decode_to_driver(packed) for _, packed in sent]


class Play:
    """A slot of group 5 under a clock that stands still unless it is moved."""

    def __init__(self, quota: int = 100) -> None:
        pipeline = NUMBERS.map(refuse, schema="n bigint", name="double").to(ps.memory())
        self.plan = Plan.of(pipeline.graph(), Options.of(parallelism=2))
        self.now_us = 10 * S
        self.slot = SlotMachine(self.plan, Identity(5, 2, 99, "tcp://s", 1234), quota, {}, lambda: self.now_us * 1000)
        self.slot.on_workers(PEERS, S)

    def do(self, item: int, *numbers: int, worker: int = 0, incarnation: int = 70, slot: int = 99) -> None:
        schema = self.plan.units[0].schema
        payload = pack(schema.to_batch([schema.record_type(n) for n in numbers]))
        do = s.Do(
            slot=slot,
            worker=worker,
            incarnation=incarnation,
            item=item,
            attempt=0,
            unit=0,
            instance=0,
            range=Range(0, 0),
            partition=0,
            runs=[],
            count=len(numbers),
            due_us=9 * S,
            sample=False,
        )
        self.slot.on_message(do, payload)

    def sample(self, *numbers: int) -> None:
        schema = self.plan.units[0].schema
        do = s.Do(
            slot=99, worker=0, incarnation=70, item=0, attempt=0, unit=0, instance=0, range=Range(0, 0), partition=0,
            runs=[], count=len(numbers), due_us=0, sample=True,
        )  # fmt: skip
        self.slot.on_message(do, pack(schema.to_batch([schema.record_type(n) for n in numbers])))

    def steps(self, count: int = 1) -> list[bool]:
        return [self.slot.step(self.now_us) for _ in range(count)]

    def told(self) -> list[tuple[int, s.FromSlot]]:
        """What workers hear, without frames."""
        return [(worker, s.decode_from_slot(frames[0])) for worker, frames in self.slot.to_workers()]

    def kinds(self) -> list[tuple[int, str]]:
        return [(worker, type(message).__name__) for worker, message in self.told()]


def test_workers_hear_that_it_is_ready_and_successors_too() -> None:
    play = Play()
    assert to_driver(play.slot) == [s.SlotUp(group=5, slot=2, incarnation=99, endpoint="tcp://s", pid=1234)]
    assert play.told() == [
        (0, s.Ready(group=5, slot=2, incarnation=99, endpoint="tcp://s")),
        (1, s.Ready(group=5, slot=2, incarnation=99, endpoint="tcp://s")),
    ]
    play.slot.on_workers(PEERS, S)
    assert play.told() == []
    play.slot.on_message(
        s.Workers(peers=[PEERS[0], m.Peer(worker=1, incarnation=88, endpoint="tcp://w1b")], start_us=S), None
    )
    assert play.told() == [(1, s.Ready(group=5, slot=2, incarnation=99, endpoint="tcp://s"))]


def test_results_go_to_their_owner_with_figures() -> None:
    play = Play()
    play.told()
    play.do(7, 1, 2, 3)
    play.do(8, 4, worker=1, incarnation=71)
    assert play.steps(3) == [True, True, False]
    (first, done), (second, other) = play.told()
    assert isinstance(done, s.Done)
    assert isinstance(other, s.Done)
    assert (first, done.item, done.incarnation, done.carried, done.due_us) == (0, 7, 99, [3], 9 * S)
    assert [(each.records_in, each.records_out) for each in done.stages] == [(3, 3)]
    assert (second, other.item, other.carried) == (1, 8, [1])


def test_work_for_or_of_someone_else_is_left_alone() -> None:
    play = Play()
    play.do(1, 1, slot=98)
    play.do(2, 1, incarnation=69)
    play.do(3, 1, worker=5)
    assert play.steps() == [False]
    play.do(4, 1)
    play.slot.on_workers([m.Peer(worker=0, incarnation=72, endpoint="tcp://w0b"), PEERS[1]], S)
    assert play.steps() == [False], "its owner is gone"


def test_a_record_that_fails_is_named_and_the_slot_goes_on() -> None:
    play = Play()
    play.told()
    play.do(1, 5, 13)
    play.do(2, 6)
    play.steps(2)
    (_, failed), (_, done) = play.told()
    assert isinstance(failed, s.NotDone)
    assert (failed.item, failed.operation) == (1, "double")
    assert "thirteen" in failed.what
    assert isinstance(done, s.Done)


def test_it_leaves_after_its_share_when_all_have_answered() -> None:
    play = Play(quota=2)
    to_driver(play.slot)
    for item in (1, 2, 3):
        play.do(item, 1)
    play.told()
    play.steps(2)
    assert play.kinds() == [(0, "Done"), (0, "Done"), (0, "Leave"), (1, "Leave")]
    assert play.slot.state is State.LEAVING
    play.slot.on_message(s.Left(slot=99, worker=0, incarnation=70), None)
    play.slot.on_message(s.Left(slot=98, worker=1, incarnation=71), None)
    play.slot.on_message(s.Left(slot=99, worker=1, incarnation=70), None)
    assert play.steps(2) == [True, False], "what was sent before is done"
    assert play.slot.state is State.LEAVING, "worker 1 has not answered yet"
    play.slot.on_message(s.Left(slot=99, worker=1, incarnation=71), None)
    play.steps()
    assert play.slot.state is State.ENDED
    (down,) = to_driver(play.slot)
    assert isinstance(down, s.SlotDown)
    assert (down.group, down.slot, down.incarnation, down.batches) == (5, 2, 99, 3)


def test_a_worker_that_does_not_answer_is_not_waited_for() -> None:
    play = Play()
    play.slot.on_message(s.End(at_once=False), None)
    play.slot.on_message(s.Left(slot=99, worker=0, incarnation=70), None)
    play.steps()
    assert play.slot.state is State.LEAVING
    wake_us = play.slot.wake_us()
    assert wake_us is not None
    assert play.now_us < wake_us <= play.now_us + LEAVE_US
    play.now_us += LEAVE_US
    play.steps()
    assert play.slot.state is State.ENDED


def test_workers_that_come_while_it_leaves_get_nothing() -> None:
    play = Play()
    play.slot.on_message(s.End(at_once=False), None)
    play.told()
    play.slot.on_workers(
        [
            m.Peer(worker=0, incarnation=72, endpoint="tcp://w0b"),
            m.Peer(worker=1, incarnation=73, endpoint="tcp://w1b"),
        ],
        S,
    )
    assert play.told() == []
    play.steps()
    assert play.slot.state is State.ENDED


def test_the_end_of_the_job_is_at_once() -> None:
    play = Play()
    play.slot.on_message(s.End(at_once=True), None)
    assert play.slot.state is State.ENDED


def test_it_says_again_that_it_is_ready_and_what_it_holds() -> None:
    play = Play()
    play.told()
    play.do(7, 1)
    play.do(8, 2)
    play.steps()
    play.told()
    play.now_us += READY_US
    play.steps()
    found = [(worker, message.holds) for worker, message in play.told() if isinstance(message, s.Ready)]
    assert found == [(0, [8]), (1, [])]


SLOW_US = 5_000
clock_us = [0]


def slow(record: Any) -> Any:
    clock_us[0] += SLOW_US
    return record.n


class SlowPlay:
    """A worker's pool, and a slot that takes its time over every record."""

    def __init__(self, quota: int) -> None:
        pipeline = NUMBERS.map(slow, schema="n bigint", name="slow").to(ps.memory())
        plan = Plan.of(pipeline.graph(), Options.of(parallelism=1))
        clock_us[0] = 10 * S
        self.schema = plan.units[0].schema
        self.slot = SlotMachine(plan, Identity(5, 0, 99, "tcp://s"), quota, {}, lambda: clock_us[0] * 1000)
        self.pool = SlotPool(0, 70)
        self.slot.on_workers(PEERS[:1], S)
        self.exchange()

    def submit(self, count: int) -> None:
        item = self.pool.next_item()
        payload = pack(self.schema.to_batch([self.schema.record_type(n) for n in range(count)]))
        do = s.Do(
            slot=0,
            worker=0,
            incarnation=70,
            item=item,
            attempt=0,
            unit=0,
            instance=0,
            range=Range(0, 0),
            partition=0,
            runs=[],
            count=count,
            due_us=9 * S,
            sample=False,
        )
        way = Slots(Range(0, 0), S, self.pool, Line(), self.schema, (0, 0))
        self.pool.submit(Work(do, Item(way.range, count, 0, 0, 0, Origin(0, 0), payload=payload), way))

    def exchange(self) -> list[tuple[int, int]]:
        """Let messages through in both directions; return attempt and records of results that are accepted."""
        done = []
        for _, frames in self.slot.to_workers():
            match s.decode_from_slot(frames[0]):
                case s.Ready() as ready:
                    self.pool.on_ready(ready)
                case s.Leave(incarnation=incarnation, ended=ended):
                    self.pool.on_leave(incarnation, ended)
                case s.Done(item=item, attempt=attempt, carried=carried):
                    if self.pool.take(99, item, attempt) is not None:
                        done.append((attempt, sum(carried)))
        for _, frames in self.pool.send(clock_us[0]):
            self.slot.on_message(s.decode_to_slot(frames[0]), frames[1] if len(frames) > 1 else None)
        return done

    def work(self) -> list[tuple[int, int]]:
        """Let the slot work until it has nothing to do."""
        done = []
        while self.slot.step(clock_us[0]):
            done += self.exchange()
        return done


def test_a_block_that_takes_longer_than_a_silent_slot_is_waited_for_is_not_lost() -> None:
    play = SlowPlay(quota=100)
    records = 3 * LOST_US // SLOW_US
    play.submit(records)
    play.submit(1)
    play.exchange()
    assert play.work() == [(0, records), (0, 1)]
    assert clock_us[0] > 3 * LOST_US
    assert (play.pool.slots, play.pool.refused_results) == (1, 0)


def test_a_slot_that_leaves_is_waited_for_too_while_it_says_what_it_has() -> None:
    play = SlowPlay(quota=1)
    records = 3 * LOST_US // SLOW_US
    play.submit(1)
    play.submit(records)
    play.exchange()
    assert play.work() == [(0, 1), (0, records)]
    assert play.slot.state is State.ENDED
    assert play.pool.refused_results == 0


def test_samples_are_for_the_driver_and_count_as_no_work() -> None:
    play = Play(quota=1)
    to_driver(play.slot)
    play.told()
    play.sample(*range(10))
    while play.slot.step(play.now_us):
        pass
    (found,) = to_driver(play.slot)
    assert isinstance(found, s.Calibrated)
    assert (found.unit, found.records_in) == (0, {0: 10})
    assert found.record_ns.keys() == found.batch_ns.keys() == {0}
    assert play.told() == []
    assert play.slot.state is State.TAKING
    play.sample(13)
    assert play.steps(2) == [True, False], "it cannot be run"
    assert (to_driver(play.slot), play.told()) == ([], [])


def test_micro_batches_do_not_wait_for_a_sample() -> None:
    """A sample is measured many times, which takes longer than anybody shall wait for a micro-batch."""
    play = Play()
    to_driver(play.slot)
    play.told()
    play.sample(*range(10))
    assert play.steps(2) == [True, True]
    play.do(7, 1, 2, 3)
    assert play.steps() == [True]
    assert play.kinds() == [(0, "Done")]
    assert to_driver(play.slot) == []
    while play.slot.step(play.now_us):
        pass
    (found,) = to_driver(play.slot)
    assert isinstance(found, s.Calibrated)
    assert play.told() == []


def test_a_sample_of_a_worker_that_was_replaced_is_not_begun() -> None:
    play = Play()
    to_driver(play.slot)
    play.sample(1)
    play.slot.on_workers([m.Peer(worker=0, incarnation=77, endpoint="tcp://w0b")], S)
    assert play.steps() == [False]


def test_what_a_slot_has_built_it_tries_where_nothing_comes_of_it() -> None:
    """The source, and functions that are declared pure, see a few recent records; others see none of them."""
    seen: dict[str, list[int]] = {"pure": [], "other": []}

    @ps.op(schema="n bigint", pure=True)
    def pure(record: Any) -> int:
        seen["pure"].append(record.n)
        return int(record.n)

    @ps.op(schema="n bigint")
    def other(record: Any) -> int:
        seen["other"].append(record.n)
        return int(record.n)

    source = ps.generator({"n": ps.fields.sequence()}, rate=10, total=100, format="columns", partitions=1)
    plan = Plan.of(ps.stream("in", source).map(pure).map(other).to(ps.memory()).graph(), Options.of(parallelism=1))
    slot = SlotMachine(plan, Identity(5, 2, 99, "tcp://s", 1234), 100, {}, lambda: 10 * S * 1000)
    slot.on_workers(PEERS[:1], S)
    slot.to_workers()
    do = s.Do(
        slot=99, worker=0, incarnation=70, item=7, attempt=0, unit=0, instance=0, range=Range(-1, 1), partition=0,
        runs=[Run(40, 3)], count=0, due_us=0, sample=False,
    )  # fmt: skip
    slot.on_message(do, None)
    slot.step(10 * S)
    assert seen == {"pure": [40, 41, 42], "other": []}
    ((_, frames),) = slot.to_workers()
    answer = s.decode_from_slot(frames[0])
    assert isinstance(answer, s.Done)
    assert (answer.item, answer.stages) == (7, [])
    assert len(frames) == 1, "no records come of it"


def test_what_fails_when_it_is_tried_fails_again_when_it_is_needed() -> None:
    """The trial is answered, so that nobody waits for it; the micro-batch says what is wrong, with its records."""

    @ps.op(schema="n bigint", pure=True)
    def picky(record: Any) -> int:
        if record.n < 42:
            raise ValueError("too small")
        return int(record.n)

    source = ps.generator({"n": ps.fields.sequence()}, rate=10, total=100, format="columns", partitions=1)
    plan = Plan.of(ps.stream("in", source).map(picky).to(ps.memory()).graph(), Options.of(parallelism=1))
    slot = SlotMachine(plan, Identity(5, 2, 99, "tcp://s", 1234), 100, {}, lambda: 10 * S * 1000)
    slot.on_workers(PEERS[:1], S)
    slot.to_workers()

    def told(item: int, run: Run, count: int) -> s.FromSlot:
        do = s.Do(
            slot=99, worker=0, incarnation=70, item=item, attempt=0, unit=0, instance=0, range=Range(-1, 0),
            partition=0, runs=[run], count=count, due_us=0, sample=False,
        )  # fmt: skip
        slot.on_message(do, None)
        slot.step(10 * S)
        ((_, frames),) = slot.to_workers()
        return s.decode_from_slot(frames[0])

    tried, bad, good = told(7, Run(40, 3), 0), told(8, Run(40, 3), 3), told(9, Run(50, 3), 3)
    assert isinstance(tried, s.NotDone)
    assert isinstance(bad, s.NotDone)
    assert "too small" in bad.what
    assert isinstance(good, s.Done)
    assert good.carried == [3]
