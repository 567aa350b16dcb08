"""The scheduler's table, row by row: the start, and epochs."""

from __future__ import annotations

from dataclasses import replace

from scheduling import (
    COUNT,
    OPTIONS,
    PLANS,
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
    CoresSeen,
    RecordCommit,
    Replace,
    TasksFailed,
    Tick,
)
from penstock.control.phases import FIRST_EPOCH_US, HASTY_EPOCH_US, first_interval_us
from penstock.control.recovery import everything
from penstock.control.scheduler import ALIVE_US, START_DELAY_US, START_FAILURES_MAX, Phase, Resumption
from penstock.errors import SparkFailed
from penstock.protocol import messages as m

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


def test_the_first_epochs_may_begin_sooner_than_the_others() -> None:
    plan = PLANS[2]
    epoch_us = 3 * FIRST_EPOCH_US
    driver = Driver.running(plan=replace(plan, options=replace(plan.options, epoch_us=epoch_us)), hasty=True)
    driver.now_us += START_DELAY_US
    for epoch, time_us in enumerate((FIRST_EPOCH_US, 2 * FIRST_EPOCH_US, epoch_us, epoch_us), start=1):
        assert without_alive(driver.hear(Tick(), time_us - 1)) == []
        assert without_alive(driver.hear(Tick(), 1)) == to_all(m.BeginEpoch(epoch=epoch))
        for worker in (0, 1):
            driver.worker(m.EpochDone(worker=worker, incarnation=1, epoch=epoch, stored=all_stored(epoch, worker)))
        driver.hear(CommitRecorded(epoch))


def test_who_wants_long_epochs_or_is_in_no_haste_gets_all_of_them_alike() -> None:
    assert first_interval_us(HASTY_EPOCH_US, hasty=True) == FIRST_EPOCH_US
    assert first_interval_us(HASTY_EPOCH_US + 1, hasty=True) == HASTY_EPOCH_US + 1
    assert first_interval_us(10_000, hasty=True) == 10_000
    assert first_interval_us(HASTY_EPOCH_US, hasty=False) == HASTY_EPOCH_US


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
