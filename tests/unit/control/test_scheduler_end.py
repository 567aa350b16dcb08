"""The scheduler's table, row by row: every way to end."""

from __future__ import annotations

from typing import Any

import pytest
from scheduling import DURABLE, OPTIONS, Driver, all_stored, finish_of, sent, to_all, without_alive

from penstock.control.events import (
    CommitRecorded,
    DrainRequested,
    HostEnded,
    RecordCommit,
    StopRequested,
    Tick,
)
from penstock.control.scheduler import ALIVE_US, Phase
from penstock.errors import OperationFailed, PenstockError, SparkFailed, UnknownColumn
from penstock.protocol import messages as m

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
    assert str(error).startswith("[OPERATION_FAILED] operation 'parse'")
    assert str(error).endswith("\nTraceback: user")


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
