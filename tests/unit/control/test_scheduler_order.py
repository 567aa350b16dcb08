"""What no order of events may break in the scheduler."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from scheduling import DURABLE, Driver, all_stored

from penstock.control.events import (
    CommitRecorded,
    DrainRequested,
    Finish,
    FromWorker,
    HostEnded,
    OrderEnded,
    RecordCommit,
    Replace,
    Send,
    StopRequested,
    Tick,
    Withdraw,
)
from penstock.control.presence import LOSSES_MAX
from penstock.control.scheduler import ALIVE_US, Phase
from penstock.protocol import messages as m

# --- any order --------------------------------------------------------------------------------------------------------

WORKER, INCARNATION, ORDERS = st.integers(0, 1), st.integers(1, 3), st.integers(0, 3)
EVENTS = st.one_of(
    st.sampled_from([Tick(), Tick(), DrainRequested()]),
    st.builds(CommitRecorded, st.integers(0, 4)),
    st.builds(OrderEnded, WORKER, ORDERS, st.none()),
    st.builds(
        FromWorker,
        st.one_of(
            st.builds(
                m.Register, worker=WORKER, incarnation=INCARNATION, endpoint=st.just("e"), pid=st.just(1), order=ORDERS
            ),
            st.builds(m.EpochDone, worker=WORKER, incarnation=INCARNATION, epoch=st.integers(0, 3), stored=st.just([])),
            st.builds(m.Finished, worker=WORKER, incarnation=INCARNATION, stored=st.just([])),
            st.builds(m.RolledBack, worker=WORKER, incarnation=INCARNATION, generation=st.integers(0, 4)),
            st.builds(m.EpochWanted, worker=WORKER, incarnation=INCARNATION),
            st.builds(m.Present, worker=WORKER, incarnation=INCARNATION),
            st.builds(m.Stopped, worker=WORKER, incarnation=INCARNATION),
        ),
    ),
)
RARE = st.sampled_from([StopRequested(), HostEnded(None), HostEnded("x")])


class Rules:
    """What holds of a scheduler's commands whatever the order of events."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.begun = self.committed = self.recorded = self.finished = self.generation = 0
        self.orders: dict[int, int] = {}

    def follow(self, event: Any, after_us: int) -> list[Any]:
        scheduler = self.driver.scheduler
        was_recovering, before = scheduler.recovering, scheduler.generation
        commands = self.driver.hear(event, after_us)
        self._end_orders(event)
        for command in commands:
            assert not self.finished, "nothing is ordered after the end"
            match command:
                case Replace(worker=worker, order=order):
                    assert worker not in self.orders, "one order at a time"
                    self.orders[worker] = order
                case Withdraw(worker=worker, order=order):
                    self.orders = {w: o for w, o in self.orders.items() if (w, o) != (worker, order)}
                case Finish(error=error):
                    self.finished += 1
                    assert scheduler.phase is (Phase.ENDED if error is None else Phase.FAILED)
                case RecordCommit(epoch=epoch):
                    assert not (was_recovering and scheduler.recovering)
                    assert epoch > self.recorded, "an epoch is recorded once"
                    assert epoch > scheduler.committed_epoch
                    self.recorded = epoch
                case Send(message=m.BeginEpoch(epoch=epoch)):
                    assert not scheduler.recovering
                    assert epoch in (self.begun, self.begun + 1)
                    assert epoch > self.committed
                    self.begun = epoch
                case Send(message=m.Commit(epoch=epoch)):
                    assert self.committed <= epoch == scheduler.committed_epoch == self.recorded
                    self.committed = epoch
                case Send(message=m.Rollback(generation=generation) | m.Start(generation=generation)):
                    assert generation == scheduler.generation
                    assert generation == 0 or generation == before + 1
                case Send(message=m.Resume(generation=generation)):
                    assert was_recovering
                    assert generation == scheduler.generation
                    assert not scheduler.recovering
        self.begun = max(self.begun, scheduler.begun_epoch)
        assert scheduler.phase.is_over == bool(self.finished)
        assert scheduler.generation >= before
        if not self.finished:
            assert scheduler.wake_us(self.driver.now_us) <= self.driver.now_us + ALIVE_US
        return commands

    def _end_orders(self, event: Any) -> None:
        match event:
            case OrderEnded(worker=worker, order=order) | FromWorker(message=m.Register(worker=worker, order=order)):
                if self.orders.get(worker) == order:
                    del self.orders[worker]


TIMES = st.sampled_from([0, 1, 500_000, 1_000_000, 31_000_000])


@given(st.lists(st.tuples(EVENTS, TIMES), max_size=60), st.tuples(RARE, TIMES), st.booleans())
def test_any_order_of_events_keeps_the_rules(events: list[Any], last: Any, started: bool) -> None:
    rules = Rules(Driver.running() if started else Driver())
    for event, after_us in [*events, last]:
        rules.follow(event, after_us)


MOVES = st.lists(
    st.tuples(st.sampled_from(["answer", "answer", "answer", "lose", "tick", "finish"]), WORKER), max_size=80
)


@given(MOVES, st.booleans(), st.booleans())
def test_a_job_whose_workers_answer_comes_to_its_end(
    moves: list[tuple[str, int]], drained: bool, durable: bool
) -> None:
    """Workers answer what they are told, in order, and die at any moment: however that goes, the job ends well."""
    rules = Rules(Driver.running(plan=DURABLE if durable else None))
    driver = rules.driver
    incarnations, ready, inbox = [1, 1], [False, False], [[], []]
    held = [0, 0]
    disk: list[int] = []

    def follow(event: Any, after_us: int = 0) -> None:
        for command in rules.follow(event, after_us):
            if isinstance(command, Send):
                inbox[command.worker].append(command.message)
            elif isinstance(command, RecordCommit):
                disk.append(command.epoch)
            elif isinstance(command, Finish):
                assert command.error is None

    def say(message: Any) -> None:
        follow(FromWorker(message))

    def answer(worker: int) -> None:
        if disk:
            follow(CommitRecorded(disk.pop(0)))
        if not inbox[worker]:
            return
        incarnation, message = incarnations[worker], inbox[worker].pop(0)
        match message:
            case m.Start(generation=generation) | m.Rollback(generation=generation):
                ready[worker] = False
                held[worker] = generation
                if generation:
                    say(m.RolledBack(worker=worker, incarnation=incarnation, generation=generation))
            case m.BeginEpoch(epoch=epoch):
                say(m.EpochDone(worker=worker, incarnation=incarnation, epoch=epoch, stored=all_stored(epoch, worker)))
            case m.Resume(generation=generation):
                held[worker] = 0 if generation == held[worker] else held[worker]
            case m.Commit(final=True):
                say(m.Stopped(worker=worker, incarnation=incarnation))
                inbox[worker].clear()

    def finish(worker: int) -> None:
        if not ready[worker] and not held[worker] and not any(isinstance(each, m.Start) for each in inbox[worker]):
            ready[worker] = True
            say(m.Finished(worker=worker, incarnation=incarnations[worker], stored=[]))

    def lose(worker: int) -> None:
        incarnations[worker] += 1
        ready[worker] = False
        inbox[worker].clear()
        say(m.Register(worker=worker, incarnation=incarnations[worker], endpoint="e", pid=1))

    losses = 0
    for move, worker in moves:
        if move == "lose" and losses < LOSSES_MAX and worker in driver.scheduler._waiting_stop:
            losses += 1
            lose(worker)
        elif move == "answer":
            answer(worker)
        elif move == "finish":
            finish(worker)
        elif move == "tick":
            follow(Tick(), 500_000)
    if drained:
        follow(DrainRequested())
    for _ in range(60):
        for worker in (0, 1):
            answer(worker)
            if not inbox[worker] and not (drained and durable):
                finish(worker)
    assert driver.scheduler.phase is Phase.ENDED
