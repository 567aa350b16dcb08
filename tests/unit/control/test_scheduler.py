"""The scheduler's table, row by row, and what no order of events may break."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.events import DrainRequested, Finish, FromWorker, HostEnded, Send, StopRequested, Tick
from penstock.control.scheduler import ALIVE_US, START_DELAY_US, Phase, Scheduler
from penstock.errors import OperationFailed, PenstockError, SparkFailed, UnknownColumn, WorkerLost
from penstock.pipeline.options import Options
from penstock.protocol import messages as m

OPTIONS = Options(epoch_us=1_000_000, start_timeout_us=60_000_000, silence_us=30_000_000)


class Driver:
    """A scheduler with its clock; commands in short form."""

    def __init__(self, workers: int = 2) -> None:
        self.now_us = 5_000_000
        self.scheduler = Scheduler(OPTIONS, workers, self.now_us)

    def hear(self, event: Any, after_us: int = 0) -> list[Any]:
        self.now_us += after_us
        return self.scheduler.handle(event, self.now_us)

    def worker(self, message: Any, after_us: int = 0) -> list[Any]:
        return self.hear(FromWorker(message), after_us)

    def register(self, worker: int, incarnation: int = 1) -> list[Any]:
        return self.worker(m.Register(worker, incarnation, f"tcp://w{worker}", 100 + worker))

    @classmethod
    def running(cls, workers: int = 2) -> Driver:
        driver = cls(workers)
        for worker in range(workers):
            driver.register(worker)
        assert driver.scheduler.phase is Phase.RUNNING
        return driver

    @classmethod
    def ending(cls) -> Driver:
        driver = cls.running()
        driver.worker(m.Finished(0, 1))
        driver.worker(m.Finished(1, 1))
        assert driver.scheduler.phase is Phase.ENDING
        return driver


def sent(commands: list[Any]) -> list[tuple[int, Any]]:
    return [(command.worker, command.message) for command in commands if isinstance(command, Send)]


def to_all(message: Any, workers: int = 2) -> list[tuple[int, Any]]:
    return [(worker, message) for worker in range(workers)]


def finish_of(commands: list[Any]) -> PenstockError | None:
    (finish,) = [command for command in commands if isinstance(command, Finish)]
    assert commands[-1] is finish
    return finish.error


def without_alive(commands: list[Any]) -> list[tuple[int, Any]]:
    return [each for each in sent(commands) if not isinstance(each[1], m.Alive)]


def test_it_waits_for_every_worker() -> None:
    driver = Driver()
    assert driver.register(1) == []
    assert driver.register(1, incarnation=2) == [], "started again before the start: the later one counts"
    assert driver.scheduler.phase is Phase.STARTING


def test_it_starts_when_everyone_is_there() -> None:
    driver = Driver()
    driver.register(1)
    commands = driver.register(0)
    peers = [m.Peer(0, 1, "tcp://w0"), m.Peer(1, 1, "tcp://w1")]
    assert sent(commands) == to_all(m.Start(peers, driver.now_us + START_DELAY_US))
    assert driver.scheduler.phase is Phase.RUNNING


def test_workers_that_do_not_come_up() -> None:
    driver = Driver()
    driver.register(0)
    assert driver.hear(Tick(), OPTIONS.start_timeout_us - 1) == []
    commands = driver.hear(Tick(), 1)
    error = finish_of(commands)
    assert isinstance(error, SparkFailed)
    assert "1 of 2 workers" in str(error)
    assert sent(commands) == [(0, m.Stop())]
    assert driver.scheduler.phase is Phase.ENDED


def test_epochs_begin_at_their_interval_and_one_at_a_time() -> None:
    driver = Driver.running()
    assert without_alive(driver.hear(Tick(), OPTIONS.epoch_us - 1)) == []
    assert without_alive(driver.hear(Tick(), 1)) == to_all(m.BeginEpoch(1))
    assert without_alive(driver.hear(Tick(), OPTIONS.epoch_us)) == [], "epoch 1 is pending"
    assert driver.worker(m.EpochDone(0, 1, 1)) == []
    assert driver.worker(m.EpochDone(0, 1, 1)) == [], "the same worker again"
    assert driver.worker(m.EpochDone(1, 1, 7)) == [], "another epoch"
    assert sent(driver.worker(m.EpochDone(1, 1, 1))) == to_all(m.Commit(1, False))
    assert driver.scheduler.committed_epoch == 1
    assert driver.scheduler.epoch_us_last == OPTIONS.epoch_us
    assert without_alive(driver.hear(Tick())) == to_all(m.BeginEpoch(2))


def test_draining_lets_the_pending_epoch_pass_and_begins_no_other() -> None:
    driver = Driver.running()
    driver.hear(Tick(), OPTIONS.epoch_us)
    assert sent(driver.hear(DrainRequested())) == to_all(m.Drain())
    assert driver.scheduler.phase is Phase.DRAINING
    assert driver.hear(DrainRequested()) == [], "once is enough"
    driver.worker(m.EpochDone(0, 1, 1))
    assert sent(driver.worker(m.EpochDone(1, 1, 1))) == to_all(m.Commit(1, False))
    assert driver.scheduler.phase is Phase.DRAINING
    assert without_alive(driver.hear(Tick(), 2 * OPTIONS.epoch_us)) == []


@pytest.mark.parametrize("drained", [False, True])
def test_the_end_is_one_last_commit(drained: bool) -> None:
    driver = Driver.running()
    driver.hear(Tick(), OPTIONS.epoch_us)
    if drained:
        driver.hear(DrainRequested())
    assert driver.worker(m.Finished(0, 1)) == []
    assert driver.worker(m.Finished(0, 1)) == []
    assert sent(driver.worker(m.Finished(1, 1))) == to_all(m.Commit(2, True))
    assert driver.scheduler.phase is Phase.ENDING
    assert driver.worker(m.Finished(1, 1)) == [], "only one last commit"
    assert driver.worker(m.EpochDone(1, 1, 1)) == [], "its epoch is part of the last one"
    assert driver.worker(m.Stopped(1, 1)) == []
    assert finish_of(driver.worker(m.Stopped(0, 1))) is None
    assert driver.scheduler.phase is Phase.ENDED
    assert driver.scheduler.committed_epoch == 2


@pytest.mark.parametrize("make", [Driver.running, Driver.ending])
def test_a_failure_stops_everyone_with_the_same_error(make: Any) -> None:
    driver = make()
    commands = driver.worker(m.Failed(1, 1, "OPERATION_FAILED", "parse", "what", "hint", "Traceback: user"))
    assert sent(commands) == to_all(m.Stop())
    error = finish_of(commands)
    assert isinstance(error, OperationFailed)
    assert (error.operation, error.what, error.hint) == ("parse", "what", "hint")
    assert str(error).startswith("Traceback: user\n[OPERATION_FAILED] operation 'parse'")


@pytest.mark.parametrize(("code", "kind"), [("UNKNOWN_COLUMN", UnknownColumn), ("NO_SUCH_CODE", PenstockError)])
def test_errors_keep_their_class(code: str, kind: type[PenstockError]) -> None:
    error = finish_of(Driver.running().worker(m.Failed(0, 1, code, None, "what", "", "")))
    assert type(error) is kind
    assert "what" in str(error)


def test_a_silent_worker_is_lost() -> None:
    driver = Driver.running()
    driver.now_us += OPTIONS.silence_us
    driver.worker(m.EpochDone(0, 1, 0))
    commands = driver.hear(Tick(), 1)
    error = finish_of(commands)
    assert isinstance(error, WorkerLost)
    assert "worker 1" in str(error)
    assert sent(commands) == to_all(m.Stop())


@pytest.mark.parametrize("make", [Driver, Driver.running])
def test_the_host_ended_too_early(make: Any) -> None:
    error = finish_of(make().hear(HostEnded("executor lost")))
    assert isinstance(error, SparkFailed)
    assert "executor lost" in str(error)


def test_the_host_ended_at_the_end() -> None:
    assert finish_of(Driver.ending().hear(HostEnded(None))) is None
    assert isinstance(finish_of(Driver.ending().hear(HostEnded("killed"))), SparkFailed)


@pytest.mark.parametrize("make", [Driver, Driver.running, Driver.ending])
def test_a_stop_ends_at_once(make: Any) -> None:
    driver = make()
    commands = driver.hear(StopRequested())
    assert finish_of(commands) is None
    assert [message for _, message in sent(commands)] == [m.Stop()] * len(driver.scheduler.peers)
    assert driver.scheduler.phase is Phase.ENDED


def test_a_drain_before_the_start_ends_the_job() -> None:
    driver = Driver()
    driver.register(0)
    commands = driver.hear(DrainRequested())
    assert sent(commands) == [(0, m.Stop())]
    assert finish_of(commands) is None


def test_other_incarnations_are_refused_and_counted() -> None:
    driver = Driver.running()
    for message in (m.Finished(0, 2), m.EpochDone(1, 0, 1), m.Failed(0, 9, "X", None, "", "", ""), m.Stopped(7, 1)):
        assert driver.worker(message) == []
    assert driver.scheduler.refused_messages == 4
    assert driver.scheduler.phase is Phase.RUNNING


def test_a_worker_that_starts_again_ends_the_job() -> None:
    assert isinstance(finish_of(Driver.running().register(0, incarnation=2)), WorkerLost)


def test_workers_hear_that_the_driver_lives() -> None:
    driver = Driver.running()
    assert (0, m.Alive()) in sent(driver.hear(Tick(), ALIVE_US))
    assert (0, m.Alive()) not in sent(driver.hear(Tick(), ALIVE_US - 1))


EVENTS = st.one_of(
    st.sampled_from([Tick(), DrainRequested(), StopRequested(), HostEnded(None), HostEnded("x")]),
    st.builds(
        FromWorker,
        st.one_of(
            st.builds(m.Register, st.integers(0, 1), st.integers(1, 2), st.just("e"), st.just(1)),
            st.builds(m.EpochDone, st.integers(0, 1), st.just(1), st.integers(0, 3)),
            st.builds(m.Finished, st.integers(0, 1), st.just(1)),
            st.builds(m.Stopped, st.integers(0, 1), st.just(1)),
        ),
    ),
)


@given(st.lists(st.tuples(EVENTS, st.sampled_from([0, 1, 500_000, 1_000_000])), max_size=60), st.booleans())
def test_any_order_of_events_keeps_the_rules(events: list[Any], started: bool) -> None:
    driver = Driver.running() if started else Driver()
    begun, committed, finished = 0, 0, 0
    for event, after_us in events:
        for command in driver.hear(event, after_us):
            assert not finished, "nothing is ordered after the end"
            if isinstance(command, Finish):
                finished += 1
            elif isinstance(command.message, m.BeginEpoch):
                assert command.message.epoch in (begun, begun + 1)
                begun = command.message.epoch
            elif isinstance(command.message, m.Commit):
                assert command.message.epoch >= committed
                assert command.message.epoch <= begun + command.message.final
                committed = command.message.epoch
        assert (driver.scheduler.phase is Phase.ENDED) == bool(finished)
        if not finished:
            assert driver.scheduler.wake_us(driver.now_us) <= driver.now_us + ALIVE_US
