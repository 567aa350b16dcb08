"""The scheduler's table, row by row, and what no order of events may break."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.control.events import (
    CommitRecorded,
    CoresSeen,
    Dismiss,
    DrainRequested,
    Finish,
    FromWorker,
    HostEnded,
    OrderEnded,
    RecordCommit,
    Replace,
    Send,
    StopRequested,
    TasksFailed,
    Tick,
    Withdraw,
)
from penstock.control.presence import LOSSES_MAX, LOSSES_US, ORDERS_FAILED_MAX
from penstock.control.recovery import everything
from penstock.control.scheduler import ALIVE_US, START_DELAY_US, START_FAILURES_MAX, Phase, Resumption, Scheduler
from penstock.errors import OperationFailed, PenstockError, SparkFailed, UnknownColumn, WorkerLost
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m

OPTIONS = Options(epoch_us=1_000_000, start_timeout_us=60_000_000, silence_us=30_000_000)
READ, COUNT = 0, 1
"""Units of the plan: a source, and a running count behind its shuffle."""


def plan_for(workers: int, *, durable: bool = False) -> Plan:
    rows: list[list[Any]] = [[] for _ in range(workers)]
    counted = ps.stream("in", ps.records(partitions=rows, schema="k string")).key_by("k").aggregate(n=ps.agg.count())
    return Plan.of(counted.to(ps.memory()).graph(), replace(OPTIONS, parallelism=workers, durable=durable))


PLANS = {workers: plan_for(workers) for workers in (1, 2, 3)}
DURABLE = plan_for(2, durable=True)


def stored(unit: int, instance: int, epoch: int, *, depth: int = 0) -> m.Stored:
    return m.Stored(unit=unit, instance=instance, epoch=epoch, depth=depth, name=f"u{unit}-i{instance}-e{epoch}", crc=0)


def all_stored(epoch: int, instance: int) -> list[m.Stored]:
    return [stored(READ, instance, epoch), stored(COUNT, instance, epoch)]


class Driver:
    """A scheduler with its clock; commands in short form."""

    def __init__(self, workers: int = 2, resumption: Resumption | None = None, plan: Plan | None = None) -> None:
        self.now_us = 5_000_000
        self.plan = plan or PLANS[workers]
        self.scheduler = Scheduler(self.plan, self.now_us, resumption)

    def hear(self, event: Any, after_us: int = 0) -> list[Any]:
        self.now_us += after_us
        return self.scheduler.handle(event, self.now_us)

    def worker(self, message: Any, after_us: int = 0) -> list[Any]:
        return self.hear(FromWorker(message), after_us)

    def register(self, worker: int, incarnation: int = 1, order: int = 0, after_us: int = 0) -> list[Any]:
        endpoint = f"tcp://w{worker}"
        register = m.Register(worker=worker, incarnation=incarnation, endpoint=endpoint, pid=100 + worker, order=order)
        return self.worker(register, after_us)

    @classmethod
    def running(cls, workers: int = 2, plan: Plan | None = None) -> Driver:
        driver = cls(workers, plan=plan)
        for worker in range(workers):
            driver.register(worker)
        assert driver.scheduler.phase is Phase.RUNNING
        return driver

    @classmethod
    def ending(cls) -> Driver:
        driver = cls.running()
        driver.worker(m.Finished(worker=0, incarnation=1, stored=[]))
        driver.worker(m.Finished(worker=1, incarnation=1, stored=[]))
        assert driver.scheduler.phase is Phase.ENDING
        return driver

    @classmethod
    def ending_recorded(cls) -> Driver:
        driver = cls.ending()
        driver.hear(CommitRecorded(1))
        return driver

    @classmethod
    def recovering(cls) -> Driver:
        driver = cls.running()
        driver.register(1, incarnation=2)
        assert driver.scheduler.recovering
        return driver

    def begin(self) -> int:
        """Begin the next epoch."""
        self.hear(Tick(), OPTIONS.epoch_us)
        return self.scheduler.begun_epoch

    def done(self, epoch: int, incarnations: tuple[int, ...] = (1, 1)) -> list[Any]:
        """Have every worker report an epoch; return the last answer."""
        commands: list[Any] = []
        for worker, incarnation in enumerate(incarnations):
            commands = self.worker(
                m.EpochDone(worker=worker, incarnation=incarnation, epoch=epoch, stored=all_stored(epoch, worker))
            )
        return commands

    def commit_one(self) -> int:
        epoch = self.begin()
        self.done(epoch)
        self.hear(CommitRecorded(epoch))
        assert self.scheduler.committed_epoch == epoch
        return epoch


def sent(commands: list[Any]) -> list[tuple[int, Any]]:
    return [(command.worker, command.message) for command in commands if isinstance(command, Send)]


def to_all(message: Any, workers: int = 2) -> list[tuple[int, Any]]:
    return [(worker, message) for worker in range(workers)]


def what(restore: m.Restore) -> tuple[int, list[tuple[int, int]], list[m.Stored]]:
    return restore.epoch, restore.instances, restore.snapshots


def finish_of(commands: list[Any]) -> PenstockError | None:
    (finish,) = [command for command in commands if isinstance(command, Finish)]
    assert commands[-1] is finish
    error: PenstockError | None = finish.error
    return error


def without_alive(commands: list[Any]) -> list[tuple[int, Any]]:
    return [each for each in sent(commands) if not isinstance(each[1], m.Alive)]


# --- the start --------------------------------------------------------------------------------------------------------


def test_it_waits_for_every_worker() -> None:
    driver = Driver()
    assert driver.register(1) == []
    assert driver.register(1, incarnation=2) == [], "started again before the start: the later one counts"
    assert driver.scheduler.phase is Phase.STARTING


def test_it_starts_when_everyone_is_there() -> None:
    driver = Driver()
    driver.register(1)
    commands = driver.register(0)
    peers = [m.Peer(worker=0, incarnation=1, endpoint="tcp://w0"), m.Peer(worker=1, incarnation=1, endpoint="tcp://w1")]
    assert sent(commands) == to_all(
        m.Start(peers=peers, start_us=driver.now_us + START_DELAY_US, generation=0, restore=None, careful=False)
    )
    assert driver.scheduler.phase is Phase.RUNNING
    assert not driver.scheduler.recovering, "nobody waits for a Resume"


def present(driver: Driver, worker: int, incarnation: int = 1) -> list[Any]:
    return driver.worker(m.Present(worker=worker, incarnation=incarnation))


def test_workers_that_do_not_come_up() -> None:
    driver = Driver()
    driver.register(0)
    driver.now_us += OPTIONS.start_timeout_us - 1
    present(driver, 0)
    assert sent(driver.hear(Tick())) == [(0, m.Alive())]
    commands = driver.hear(Tick(), 1)
    error = finish_of(commands)
    assert isinstance(error, SparkFailed)
    assert "1 of 2 workers" in str(error)
    assert sent(commands) == [(0, m.Stop())]
    assert driver.scheduler.phase is Phase.FAILED


def test_the_cores_that_are_missing_are_named() -> None:
    driver = Driver(3)
    driver.hear(CoresSeen(2))
    driver.register(0)
    assert driver.scheduler.waits(driver.now_us).lines() == [
        "workers 1, 2 of 3 to start",
        "cores: 3 are needed, the cluster offers 2",
    ]
    error = finish_of(driver.hear(Tick(), OPTIONS.start_timeout_us))
    assert "the cluster offers 2 cores, 3 are needed" in str(error)


def test_workers_that_come_up_one_by_one_are_waited_for_and_hear_that_the_driver_lives() -> None:
    """However long it takes in all: those that are there must not take the silence for a lost driver."""
    driver = Driver(3)
    for worker in range(3):
        driver.now_us += OPTIONS.start_timeout_us - ALIVE_US
        for known in range(worker):
            present(driver, known)
        assert sent(driver.hear(Tick())) == [(known, m.Alive()) for known in range(worker)]
        assert driver.scheduler.phase is Phase.STARTING
        commands = driver.register(worker)
    assert [type(message) for _, message in sent(commands)] == [m.Start] * 3
    assert not any(isinstance(each, Replace) for each in driver.hear(Tick(), OPTIONS.silence_us))


def test_tasks_that_fail_before_they_speak_end_the_start() -> None:
    driver = Driver()
    driver.register(0)
    assert driver.hear(TasksFailed(START_FAILURES_MAX - 1, "why")) == []
    error = finish_of(driver.hear(TasksFailed(START_FAILURES_MAX, "No module named x")))
    assert isinstance(error, SparkFailed)
    assert "No module named x" in str(error)
    assert Driver.running().hear(TasksFailed(100, "why")) == [], "they are recovered"


def test_a_job_that_is_started_again_restores_everything_from_its_last_commit() -> None:
    snapshots = all_stored(7, 0) + all_stored(7, 1)
    driver = Driver(resumption=Resumption(7, 1_234, 3, snapshots))
    driver.register(0)
    commands = driver.register(1)
    peers = [m.Peer(worker=0, incarnation=1, endpoint="tcp://w0"), m.Peer(worker=1, incarnation=1, endpoint="tcp://w1")]
    restore = sent(commands)[0][1].restore
    assert what(restore) == (7, sorted(everything(driver.plan)), sorted(snapshots, key=lambda s: (s.unit, s.instance)))
    generation = driver.scheduler.generation
    assert generation > 3, "what the run before sent is of another generation"
    assert sent(commands) == to_all(
        m.Start(peers=peers, start_us=1_234, generation=generation, restore=restore, careful=False)
    ), "schedules go on from the start"
    assert driver.scheduler.recovering
    assert without_alive(driver.hear(Tick(), OPTIONS.epoch_us)) == [], "no epoch before everyone has restored"
    assert driver.worker(m.RolledBack(worker=0, incarnation=1, generation=generation)) == []
    assert sent(driver.worker(m.RolledBack(worker=1, incarnation=1, generation=generation))) == to_all(
        m.Resume(generation=generation)
    )
    assert driver.scheduler.phase is Phase.RUNNING
    assert without_alive(driver.hear(Tick(), OPTIONS.epoch_us)) == to_all(m.BeginEpoch(epoch=8))


def test_a_worker_that_dies_before_a_resumed_job_is_up_gets_the_same_again() -> None:
    driver = Driver(resumption=Resumption(7, 1_234, 3, all_stored(7, 0)))
    driver.register(0)
    driver.register(1)
    commands = driver.register(1, incarnation=2)
    starts = [message for _, message in sent(commands)]
    assert [worker for worker, _ in sent(commands)] == [0, 1]
    assert all(isinstance(message, m.Start) for message in starts), "the other one is not built either"
    assert all(message.restore.instances == sorted(everything(driver.plan)) for message in starts)


# --- epochs -----------------------------------------------------------------------------------------------------------


def test_epochs_begin_at_their_interval_and_one_at_a_time() -> None:
    driver = Driver.running()
    assert without_alive(driver.hear(Tick(), OPTIONS.epoch_us - 1)) == []
    assert without_alive(driver.hear(Tick(), 1)) == to_all(m.BeginEpoch(epoch=1))
    assert without_alive(driver.hear(Tick(), OPTIONS.epoch_us)) == [], "epoch 1 is pending"
    assert driver.worker(m.EpochDone(worker=0, incarnation=1, epoch=1, stored=all_stored(1, 0))) == []
    assert driver.worker(m.EpochDone(worker=0, incarnation=1, epoch=1, stored=all_stored(1, 0))) == [], (
        "the same worker again"
    )
    assert driver.worker(m.EpochDone(worker=1, incarnation=1, epoch=7, stored=[])) == [], "another epoch"
    (record,) = driver.worker(m.EpochDone(worker=1, incarnation=1, epoch=1, stored=all_stored(1, 1)))
    snapshots = sorted(all_stored(1, 0) + all_stored(1, 1), key=lambda s: (s.unit, s.instance))
    assert record == RecordCommit(1, 0, driver.scheduler.start_us, False, snapshots)
    assert driver.scheduler.committed_epoch == 0, "not before the record is on disk"
    assert without_alive(driver.hear(Tick())) == [], "nor is another epoch begun"
    assert driver.hear(CommitRecorded(2)) == [], "another record"
    assert sent(driver.hear(CommitRecorded(1)))[:2] == to_all(m.Commit(epoch=1, final=False))
    assert driver.scheduler.committed_epoch == 1
    assert driver.scheduler.snapshots() == snapshots
    assert driver.scheduler.epoch_us_last == OPTIONS.epoch_us
    assert driver.hear(CommitRecorded(1)) == [], "once"


def test_the_next_epoch_begins_when_the_last_one_is_recorded_and_its_time_has_come() -> None:
    driver = Driver.running()
    driver.done(driver.begin())
    commands = driver.hear(CommitRecorded(1), OPTIONS.epoch_us) + driver.hear(Tick())
    assert without_alive(commands) == [*to_all(m.Commit(epoch=1, final=False)), *to_all(m.BeginEpoch(epoch=2))]


def test_a_commit_names_as_many_snapshots_as_the_newest_needs() -> None:
    driver = Driver.running(1)
    for epoch, depth in ((1, 0), (2, 1), (3, 2), (4, 1), (5, 0)):
        driver.begin()
        (record,) = driver.worker(
            m.EpochDone(
                worker=0,
                incarnation=1,
                epoch=epoch,
                stored=[stored(READ, 0, epoch), stored(COUNT, 0, epoch, depth=depth)],
            )
        )
        assert [s.epoch for s in record.snapshots if s.unit == READ] == [epoch]
        chain = [s.epoch for s in record.snapshots if s.unit == COUNT]
        assert chain == list(range(epoch - depth, epoch + 1))
        driver.hear(CommitRecorded(epoch))


def test_a_worker_that_keeps_much_has_an_epoch_begun_at_once() -> None:
    driver = Driver.running()
    assert sent(driver.worker(m.EpochWanted(worker=0, incarnation=1))) == to_all(m.BeginEpoch(epoch=1))
    assert driver.worker(m.EpochWanted(worker=1, incarnation=1)) == [], "one is pending"
    driver.done(1)
    commands = driver.hear(CommitRecorded(1)) + driver.hear(Tick())
    assert without_alive(commands) == [*to_all(m.Commit(epoch=1, final=False)), *to_all(m.BeginEpoch(epoch=2))], (
        "it was remembered"
    )
    assert Driver.recovering().worker(m.EpochWanted(worker=0, incarnation=1)) == []


# --- the end ----------------------------------------------------------------------------------------------------------


def test_draining_lets_the_pending_epoch_pass_and_begins_no_other() -> None:
    driver = Driver.running()
    driver.begin()
    assert sent(driver.hear(DrainRequested())) == to_all(m.Drain(keep=False))
    assert driver.scheduler.phase is Phase.DRAINING
    assert driver.hear(DrainRequested()) == [], "once is enough"
    driver.done(1)
    assert sent(driver.hear(CommitRecorded(1))) == to_all(m.Commit(epoch=1, final=False))
    assert driver.scheduler.phase is Phase.DRAINING
    assert without_alive(driver.hear(Tick(), 2 * OPTIONS.epoch_us)) == []


@pytest.mark.parametrize("pending", [False, True])
def test_a_drain_that_can_be_resumed_ends_with_one_more_epoch(pending: bool) -> None:
    driver = Driver.running(plan=DURABLE)
    if pending:
        driver.begin()
    commands = sent(driver.hear(DrainRequested()))
    if pending:
        assert commands == to_all(m.Drain(keep=True))
        driver.done(1)
        commands += sent(driver.hear(CommitRecorded(1)))
        assert to_all(m.Commit(epoch=1, final=False)) == commands[2:4]
    last = 2 if pending else 1
    assert commands[-2:] == to_all(m.BeginEpoch(epoch=last))
    driver.done(last)
    assert sent(driver.hear(CommitRecorded(last))) == to_all(m.Commit(epoch=last, final=True))
    assert driver.scheduler.phase is Phase.ENDING
    driver.worker(m.Stopped(worker=0, incarnation=1))
    assert finish_of(driver.worker(m.Stopped(worker=1, incarnation=1))) is None


@pytest.mark.parametrize("drained", [False, True])
def test_the_end_is_one_last_commit(drained: bool) -> None:
    driver = Driver.running()
    driver.begin()
    if drained:
        driver.hear(DrainRequested())
    assert driver.worker(m.Finished(worker=0, incarnation=1, stored=all_stored(1, 0))) == []
    assert driver.worker(m.Finished(worker=0, incarnation=1, stored=all_stored(1, 0))) == []
    (record,) = driver.worker(m.Finished(worker=1, incarnation=1, stored=all_stored(1, 1)))
    assert (record.epoch, record.final) == (2, True)
    assert len(record.snapshots) == 4
    assert driver.scheduler.phase is Phase.ENDING
    assert driver.worker(m.Finished(worker=1, incarnation=1, stored=[])) == [], "only one last commit"
    assert driver.worker(m.EpochDone(worker=1, incarnation=1, epoch=1, stored=[])) == [], (
        "its epoch is part of the last one"
    )
    assert sent(driver.hear(CommitRecorded(2))) == to_all(m.Commit(epoch=2, final=True))
    assert driver.worker(m.Stopped(worker=1, incarnation=1)) == []
    assert finish_of(driver.worker(m.Stopped(worker=0, incarnation=1))) is None
    assert driver.scheduler.phase is Phase.ENDED
    assert driver.scheduler.committed_epoch == 2


def test_the_end_waits_for_a_commit_that_is_being_recorded() -> None:
    driver = Driver.running()
    driver.done(driver.begin())
    assert driver.worker(m.Finished(worker=0, incarnation=1, stored=all_stored(2, 0))) == []
    assert driver.worker(m.Finished(worker=1, incarnation=1, stored=all_stored(2, 1))) == []
    assert driver.scheduler.phase is Phase.RUNNING
    commands = driver.hear(CommitRecorded(1))
    assert sent(commands) == to_all(m.Commit(epoch=1, final=False))
    assert isinstance(commands[2], RecordCommit)
    assert (commands[2].epoch, commands[2].final) == (2, True)


@pytest.mark.parametrize("make", [Driver.running, Driver.ending, Driver.recovering])
def test_a_failure_stops_everyone_with_the_same_error(make: Any) -> None:
    driver = make()
    commands = driver.worker(
        m.Failed(
            worker=0,
            incarnation=1,
            code="OPERATION_FAILED",
            operation="parse",
            what="what",
            hint="hint",
            user_traceback="Traceback: user",
        )
    )
    assert sent(commands) == to_all(m.Stop())
    error = finish_of(commands)
    assert isinstance(error, OperationFailed)
    assert (error.operation, error.what, error.hint) == ("parse", "what", "hint")
    assert str(error).startswith("Traceback: user\n[OPERATION_FAILED] operation 'parse'")


@pytest.mark.parametrize(("code", "kind"), [("UNKNOWN_COLUMN", UnknownColumn), ("NO_SUCH_CODE", PenstockError)])
def test_errors_keep_their_class(code: str, kind: type[PenstockError]) -> None:
    error = finish_of(
        Driver.running().worker(
            m.Failed(worker=0, incarnation=1, code=code, operation=None, what="what", hint="", user_traceback="")
        )
    )
    assert type(error) is kind
    assert "what" in str(error)


@pytest.mark.parametrize("make", [Driver, Driver.running, Driver.recovering])
def test_the_host_ended_too_early(make: Any) -> None:
    error = finish_of(make().hear(HostEnded("executor lost")))
    assert isinstance(error, SparkFailed)
    assert "executor lost" in str(error)


def test_the_host_ended_at_the_end() -> None:
    assert finish_of(Driver.ending_recorded().hear(HostEnded(None))) is None
    assert isinstance(finish_of(Driver.ending_recorded().hear(HostEnded("killed"))), SparkFailed)


@pytest.mark.parametrize("make", [Driver, Driver.running, Driver.ending, Driver.recovering])
def test_a_stop_ends_at_once(make: Any) -> None:
    driver = make()
    commands = driver.hear(StopRequested())
    assert finish_of(commands) is None
    assert sent(commands) == [(worker, m.Stop()) for worker in sorted(driver.scheduler.peers)]
    assert driver.scheduler.phase is Phase.ENDED
    assert driver.hear(Tick(), 10 * ALIVE_US) == []


def test_a_drain_before_the_start_ends_the_job() -> None:
    driver = Driver()
    driver.register(0)
    commands = driver.hear(DrainRequested())
    assert sent(commands) == [(0, m.Stop())]
    assert finish_of(commands) is None


def test_workers_hear_that_the_driver_lives() -> None:
    for make in (Driver.running, Driver.recovering):
        driver = make()
        assert [each for each in sent(driver.hear(Tick(), ALIVE_US)) if each[1] == m.Alive()] == to_all(m.Alive())
        assert (0, m.Alive()) not in sent(driver.hear(Tick(), ALIVE_US - 1))


def test_other_incarnations_are_refused_and_counted() -> None:
    driver = Driver.running()
    messages = (
        m.Finished(worker=0, incarnation=2, stored=[]),
        m.EpochDone(worker=1, incarnation=0, epoch=1, stored=[]),
        m.Failed(worker=0, incarnation=9, code="X", operation=None, what="", hint="", user_traceback=""),
        m.Stopped(worker=7, incarnation=1),
        m.RolledBack(worker=0, incarnation=3, generation=0),
    )
    for message in messages:
        assert driver.worker(message) == []
    assert driver.scheduler.refused_messages == len(messages)
    assert driver.scheduler.phase is Phase.RUNNING
    driver.register(0, incarnation=2)
    assert (
        driver.worker(m.Failed(worker=0, incarnation=1, code="X", operation=None, what="", hint="", user_traceback=""))
        == []
    ), "the one that was replaced"


# --- losses -----------------------------------------------------------------------------------------------------------


def replaced(commands: list[Any]) -> list[Any]:
    return [command for command in commands if isinstance(command, Replace | Withdraw | Dismiss)]


def silent() -> Driver:
    """A job whose worker 1 says nothing, and is ordered again."""
    driver = Driver.running()
    driver.now_us += OPTIONS.silence_us
    present(driver, 0)
    assert replaced(driver.hear(Tick(), 1)) == [Replace(1, 1)]
    return driver


def test_a_silent_worker_is_ordered_once_however_long_it_takes() -> None:
    driver = silent()
    for _ in range(5):
        driver.now_us += OPTIONS.silence_us
        present(driver, 0)
        assert replaced(driver.hear(Tick())) == []
    assert driver.scheduler.waits(driver.now_us).lines()[0] == (
        "worker 1, silent for 180 s; another process was ordered 150 s ago"
    )
    assert replaced(driver.register(1, incarnation=2, order=1)) == []
    assert driver.scheduler.recovering
    assert driver.scheduler.waits(driver.now_us).lines()[0] == "workers 0, 1 to restore state"


def test_an_order_is_withdrawn_when_the_worker_is_back() -> None:
    driver = silent()
    assert replaced(present(driver, 1)) == [Withdraw(1, 1)]
    assert replaced(driver.register(1, incarnation=2, order=1)) == [Dismiss(2)], "it was under way already"
    assert not driver.scheduler.recovering
    assert driver.worker(m.Finished(worker=1, incarnation=2, stored=[])) == []
    assert driver.scheduler.refused_messages == 1
    driver.now_us += OPTIONS.silence_us
    present(driver, 0)
    assert replaced(driver.hear(Tick(), 1)) == [Replace(1, 2)], "silent once more"


def test_spark_starts_a_lost_worker_again_and_the_order_is_not_needed() -> None:
    driver = silent()
    assert replaced(driver.register(1, incarnation=2)) == [Withdraw(1, 1)]
    assert driver.scheduler.recovering


def test_orders_that_spark_ends_are_given_up_after_some() -> None:
    driver = silent()
    for order in range(1, ORDERS_FAILED_MAX + 1):
        assert driver.hear(OrderEnded(1, order, "no")) == []
        driver.now_us += OPTIONS.silence_us
        present(driver, 0)
        assert replaced(driver.hear(Tick(), 1)) == [Replace(1, order + 1)]
    error = finish_of(driver.hear(OrderEnded(1, ORDERS_FAILED_MAX + 1, "no such machine")))
    assert isinstance(error, WorkerLost)
    assert "no such machine" in str(error)


def test_a_worker_that_has_stopped_may_be_silent() -> None:
    driver = Driver.ending_recorded()
    driver.worker(m.Stopped(worker=1, incarnation=1))
    driver.now_us += OPTIONS.silence_us
    driver.worker(m.EpochDone(worker=0, incarnation=1, epoch=0, stored=[]))
    assert not any(isinstance(command, Replace) for command in driver.hear(Tick(), 1))


def test_a_loss_restores_what_is_downstream_of_it_and_then_the_epoch_goes_on() -> None:
    driver = Driver.running()
    driver.commit_one()
    driver.begin()
    driver.worker(m.EpochDone(worker=0, incarnation=1, epoch=2, stored=all_stored(2, 0)))
    commands = driver.register(1, incarnation=2)
    peers = [m.Peer(worker=0, incarnation=1, endpoint="tcp://w0"), m.Peer(worker=1, incarnation=2, endpoint="tcp://w1")]
    instances = [(READ, 1), (COUNT, 0), (COUNT, 1)]
    restore = sent(commands)[0][1].restore
    assert what(restore) == (1, instances, [stored(unit, i, 1) for unit, i in instances])
    assert sent(commands) == [
        (0, m.Rollback(peers=peers, generation=1, restore=restore)),
        (1, m.Start(peers=peers, start_us=driver.scheduler.start_us, generation=1, restore=restore, careful=False)),
    ]
    assert driver.scheduler.recovering
    assert driver.scheduler.recoveries == 1
    assert driver.worker(m.EpochDone(worker=0, incarnation=1, epoch=2, stored=[])) == [], "sent before it rolled back"
    assert driver.worker(m.Finished(worker=0, incarnation=1, stored=[])) == []
    assert without_alive(driver.hear(Tick(), OPTIONS.epoch_us)) == [], "nothing begins meanwhile"
    assert driver.worker(m.RolledBack(worker=0, incarnation=1, generation=0)) == [], "of another generation"
    assert driver.worker(m.RolledBack(worker=0, incarnation=1, generation=1)) == []
    commands = driver.worker(m.RolledBack(worker=1, incarnation=2, generation=1))
    assert sent(commands) == [*to_all(m.Resume(generation=1)), *to_all(m.BeginEpoch(epoch=2))]
    assert not driver.scheduler.recovering
    assert driver.worker(m.EpochDone(worker=0, incarnation=1, epoch=2, stored=all_stored(2, 0))) == []
    (record,) = driver.worker(m.EpochDone(worker=1, incarnation=2, epoch=2, stored=all_stored(2, 1)))
    assert (record.epoch, record.generation) == (2, 1)
    assert {each.epoch for each in record.snapshots} == {2}


def test_without_a_commit_it_begins_from_nothing() -> None:
    ((_, rollback), (_, start)) = sent(Driver.running().register(1, incarnation=2))
    assert rollback.restore == start.restore
    assert what(start.restore) == (0, [(READ, 1), (COUNT, 0), (COUNT, 1)], [])


def test_without_a_pending_epoch_none_is_asked_for_again() -> None:
    driver = Driver.recovering()
    driver.worker(m.RolledBack(worker=0, incarnation=1, generation=1))
    assert sent(driver.worker(m.RolledBack(worker=1, incarnation=2, generation=1))) == to_all(m.Resume(generation=1))
    assert without_alive(driver.hear(Tick(), OPTIONS.epoch_us)) == to_all(m.BeginEpoch(epoch=1))


def test_those_that_had_finished_are_asked_again() -> None:
    driver = Driver.running()
    driver.worker(m.Finished(worker=0, incarnation=1, stored=all_stored(1, 0)))
    driver.register(1, incarnation=2)
    driver.worker(m.RolledBack(worker=0, incarnation=1, generation=1))
    driver.worker(m.RolledBack(worker=1, incarnation=2, generation=1))
    assert driver.worker(m.Finished(worker=1, incarnation=2, stored=all_stored(1, 1))) == []
    (record,) = driver.worker(m.Finished(worker=0, incarnation=1, stored=all_stored(1, 0)))
    assert record.final


def test_a_drain_is_repeated_after_a_recovery() -> None:
    driver = Driver.running()
    driver.hear(DrainRequested())
    driver.register(1, incarnation=2)
    assert driver.scheduler.phase is Phase.DRAINING
    driver.worker(m.RolledBack(worker=1, incarnation=2, generation=1))
    assert sent(driver.worker(m.RolledBack(worker=0, incarnation=1, generation=1))) == [
        *to_all(m.Resume(generation=1)),
        *to_all(m.Drain(keep=False)),
    ]


def test_a_drain_during_a_recovery_waits_for_its_end() -> None:
    driver = Driver.recovering()
    assert driver.hear(DrainRequested()) == []
    driver.worker(m.RolledBack(worker=1, incarnation=2, generation=1))
    assert sent(driver.worker(m.RolledBack(worker=0, incarnation=1, generation=1))) == [
        *to_all(m.Resume(generation=1)),
        *to_all(m.Drain(keep=False)),
    ]


def test_a_loss_during_the_last_epoch_of_a_drain_that_can_be_resumed() -> None:
    driver = Driver.running(plan=DURABLE)
    driver.hear(DrainRequested())
    driver.register(0, incarnation=2)
    driver.worker(m.RolledBack(worker=0, incarnation=2, generation=1))
    commands = sent(driver.worker(m.RolledBack(worker=1, incarnation=1, generation=1)))
    assert commands == [*to_all(m.Resume(generation=1)), *to_all(m.BeginEpoch(epoch=1)), *to_all(m.Drain(keep=True))]
    driver.done(1, (2, 1))
    assert sent(driver.hear(CommitRecorded(1))) == to_all(m.Commit(epoch=1, final=True))


def test_a_loss_during_a_recovery_is_a_recovery_of_both() -> None:
    driver = Driver.running(3)
    driver.register(1, incarnation=2)
    driver.worker(m.RolledBack(worker=0, incarnation=1, generation=1))
    commands = sent(driver.register(2, incarnation=2))
    both = [(READ, 1), (READ, 2), (COUNT, 0), (COUNT, 1), (COUNT, 2)]
    assert [type(message) for _, message in commands] == [m.Rollback, m.Start, m.Start], "1 has not been built yet"
    assert all(message.restore.instances == both for _, message in commands)
    assert {message.generation for _, message in commands} == {2}
    assert driver.worker(m.RolledBack(worker=1, incarnation=2, generation=1)) == [], "of the recovery before"
    assert driver.worker(m.RolledBack(worker=1, incarnation=2, generation=2)) == []
    assert driver.worker(m.RolledBack(worker=0, incarnation=1, generation=2)) == []
    assert sent(driver.worker(m.RolledBack(worker=2, incarnation=2, generation=2))) == to_all(m.Resume(generation=2), 3)


def test_the_next_recovery_does_not_remember_one_that_is_over() -> None:
    driver = Driver.recovering()
    driver.worker(m.RolledBack(worker=0, incarnation=1, generation=1))
    driver.worker(m.RolledBack(worker=1, incarnation=2, generation=1))
    ((_, start), (_, rollback)) = sent(driver.register(0, incarnation=2))
    assert start.restore.instances == rollback.restore.instances == [(READ, 0), (COUNT, 0), (COUNT, 1)]


def test_a_worker_that_is_lost_twice_between_commits_is_started_with_care() -> None:
    driver = Driver.running()
    assert [m_.careful for _, m_ in sent(driver.register(1, incarnation=2)) if isinstance(m_, m.Start)] == [False]
    assert [m_.careful for _, m_ in sent(driver.register(1, incarnation=3)) if isinstance(m_, m.Start)] == [True]


def test_a_loss_while_a_commit_is_being_recorded_waits_for_the_record() -> None:
    driver = Driver.running()
    driver.done(driver.begin())
    assert driver.register(1, incarnation=2) == []
    assert not driver.scheduler.recovering
    commands = sent(driver.hear(CommitRecorded(1)))
    assert commands[0] == (0, m.Commit(epoch=1, final=False)), "the lost one commits when it restores"
    assert [(worker, type(message)) for worker, message in commands[1:]] == [(0, m.Rollback), (1, m.Start)]
    assert all(message.restore.epoch == 1 for _, message in commands[1:])
    assert {each.epoch for each in commands[1][1].restore.snapshots} == {1}
    driver.worker(m.RolledBack(worker=0, incarnation=1, generation=1))
    assert sent(driver.worker(m.RolledBack(worker=1, incarnation=2, generation=1))) == to_all(m.Resume(generation=1))


@pytest.mark.parametrize("recorded", [False, True])
def test_a_loss_at_the_end_is_restored_from_the_last_commit(recorded: bool) -> None:
    driver = Driver.ending()
    if recorded:
        driver.hear(CommitRecorded(1))
        commands = sent(driver.register(1, incarnation=2))
    else:
        assert driver.register(1, incarnation=2) == []
        commands = sent(driver.hear(CommitRecorded(1)))
        assert commands.pop(0) == (0, m.Commit(epoch=1, final=True))
    assert [(worker, type(message)) for worker, message in commands] == [(0, m.Rollback), (1, m.Start)]
    driver.worker(m.RolledBack(worker=0, incarnation=1, generation=1))
    assert sent(driver.worker(m.RolledBack(worker=1, incarnation=2, generation=1))) == [
        *to_all(m.Resume(generation=1)),
        *to_all(m.Commit(epoch=1, final=True)),
    ]
    assert driver.scheduler.phase is Phase.ENDING
    driver.worker(m.Stopped(worker=0, incarnation=1))
    assert finish_of(driver.worker(m.Stopped(worker=1, incarnation=2))) is None


def test_a_worker_that_stops_instead_of_rolling_back_is_not_waited_for() -> None:
    driver = Driver.ending_recorded()
    driver.register(1, incarnation=2)
    assert driver.worker(m.RolledBack(worker=1, incarnation=2, generation=1)) == []
    assert sent(driver.worker(m.Stopped(worker=0, incarnation=1))) == [
        (1, m.Resume(generation=1)),
        (1, m.Commit(epoch=1, final=True)),
    ]
    assert finish_of(driver.worker(m.Stopped(worker=1, incarnation=2))) is None


def test_a_worker_that_comes_back_after_its_end_is_not_needed() -> None:
    driver = Driver.ending_recorded()
    driver.worker(m.Stopped(worker=1, incarnation=1))
    assert driver.register(1, incarnation=2) == [Dismiss(2)]
    assert not driver.scheduler.recovering
    assert finish_of(driver.worker(m.Stopped(worker=0, incarnation=1))) is None


def test_the_same_register_twice_is_no_loss() -> None:
    driver = Driver.running()
    assert driver.register(1) == []
    assert driver.scheduler.recoveries == 0


def test_a_worker_that_is_lost_again_and_again_ends_the_job() -> None:
    driver = Driver.running()
    for incarnation in range(2, LOSSES_MAX + 2):
        assert sent(driver.register(1, incarnation))
    commands = driver.register(1, LOSSES_MAX + 2)
    error = finish_of(commands)
    assert isinstance(error, WorkerLost)
    assert f"worker 1 was lost {LOSSES_MAX + 1} times" in str(error)
    assert sent(commands) == to_all(m.Stop())


def test_losses_of_many_workers_or_in_a_long_time_do_not() -> None:
    driver = Driver.running(3)
    for incarnation in range(2, LOSSES_MAX + 2):
        for worker in range(3):
            driver.register(worker, incarnation)
    assert driver.scheduler.phase is Phase.RUNNING
    assert driver.scheduler.recoveries == 3 * LOSSES_MAX
    driver = Driver.running()
    for incarnation in range(2, 5 * LOSSES_MAX):
        driver.register(1, incarnation, after_us=LOSSES_US // LOSSES_MAX + 1)
    assert driver.scheduler.phase is Phase.RUNNING


def test_a_commit_forgives_losses() -> None:
    driver = Driver.running()
    incarnation = 1
    for _ in range(3):
        for _ in range(LOSSES_MAX):
            incarnation += 1
            driver.register(1, incarnation)
        driver.worker(m.RolledBack(worker=0, incarnation=1, generation=driver.scheduler.generation))
        driver.worker(m.RolledBack(worker=1, incarnation=incarnation, generation=driver.scheduler.generation))
        epoch = driver.begin()
        driver.done(epoch, (1, incarnation))
        driver.hear(CommitRecorded(epoch))
    assert driver.scheduler.phase is Phase.RUNNING
    assert driver.scheduler.recoveries == 3 * LOSSES_MAX


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


def test_a_run_begins_when_its_sources_do_and_a_resumed_one_when_everything_is_restored() -> None:
    driver = Driver()
    assert driver.scheduler.began_us == 0
    for worker in (0, 1):
        driver.register(worker)
    assert driver.scheduler.began_us == driver.scheduler.start_us > 0
    first_us = driver.scheduler.start_us
    resumed = Driver(resumption=Resumption(3, first_us, 0))
    resumed.now_us = first_us + 3_600_000_000
    for worker in (0, 1):
        resumed.register(worker)
    assert (resumed.scheduler.start_us, resumed.scheduler.began_us) == (first_us, 0)
    for worker in (0, 1):
        resumed.worker(m.RolledBack(worker=worker, incarnation=1, generation=resumed.scheduler.generation), after_us=5)
    began_us = resumed.scheduler.began_us
    assert began_us == first_us + 3_600_000_010
    resumed.register(1, incarnation=2)
    for worker, incarnation in ((0, 1), (1, 2)):
        generation = resumed.scheduler.generation
        resumed.worker(m.RolledBack(worker=worker, incarnation=incarnation, generation=generation), after_us=5)
    assert not resumed.scheduler.recovering
    assert resumed.scheduler.began_us == began_us, "a loss later on changes nothing about that"
