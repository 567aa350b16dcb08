"""The scheduler's table, row by row: silence, losses, recoveries."""

from __future__ import annotations

from typing import Any

import pytest
from scheduling import (
    COUNT,
    DURABLE,
    OPTIONS,
    READ,
    Driver,
    all_stored,
    finish_of,
    present,
    sent,
    stored,
    to_all,
    what,
    without_alive,
)

from penstock.control.events import (
    CommitRecorded,
    Dismiss,
    DrainRequested,
    OrderEnded,
    Replace,
    Tick,
    Withdraw,
)
from penstock.control.presence import LOSSES_MAX, LOSSES_US, ORDERS_FAILED_MAX
from penstock.control.scheduler import Phase
from penstock.errors import WorkerLost
from penstock.protocol import messages as m

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
        assert replaced(driver.be_at_work(OPTIONS.silence_us, 0)) == []
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
    assert replaced(driver.be_at_work(OPTIONS.silence_us, 0)) == []
    assert replaced(driver.hear(Tick(), 1)) == [Replace(1, 2)], "silent once more"


def test_spark_starts_a_lost_worker_again_and_the_order_is_not_needed() -> None:
    driver = silent()
    assert replaced(driver.register(1, incarnation=2)) == [Withdraw(1, 1)]
    assert driver.scheduler.recovering


def test_orders_that_spark_ends_are_given_up_after_some() -> None:
    driver = silent()
    for order in range(1, ORDERS_FAILED_MAX + 1):
        assert driver.hear(OrderEnded(1, order, "no")) == []
        assert replaced(driver.be_at_work(OPTIONS.silence_us, 0)) == []
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
