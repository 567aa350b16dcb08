"""The table of a move, the choice of what moves, and workers that join, leave and stay away."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from scheduling import COUNT, OPTIONS, READ, Driver, all_stored, plan_for, sent, without_alive

from penstock.control.events import CommitRecorded, CoresSeen, Dismiss, Replace, Retire, ScaleRequested, Tick
from penstock.control.rescaling import Rescaling, Step
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m
from penstock.protocol.pulses import UnitPulse


def plan_on(workers: int, columns: int = 2) -> Plan:
    plan = plan_for(columns)
    return replace(plan, options=replace(plan.options, workers=workers)).placed()


def report(driver: Driver, epoch: int, workers: tuple[int, ...]) -> list[Any]:
    """Have these workers report an epoch, each with the columns that it has."""
    commands: list[Any] = []
    for worker in workers:
        columns = [i for i, each in enumerate(driver.plan.placement) if each == worker]
        stored = [each for column in columns for each in all_stored(epoch, column)]
        commands = driver.worker(m.EpochDone(worker=worker, incarnation=1, epoch=epoch, stored=stored))
    return commands


def grown() -> Driver:
    """One worker has both columns and a commit; a second one is up and hosts nothing."""
    driver = Driver.running(1, plan=plan_on(1))
    driver.begin()
    report(driver, 1, (0,))
    driver.hear(CommitRecorded(1))
    (ordered,) = [each for each in driver.hear(ScaleRequested(2)) if isinstance(each, Replace)]
    assert (ordered.worker, ordered.order) == (1, 1)
    return driver


def to(driver: Driver, step: Step) -> list[Any]:
    """Go on until a move has come to a step; return the last commands."""
    commands = driver.register(1, order=1)
    words = [
        (Step.HOLDING, lambda: driver.worker(m.Prepared(worker=1, incarnation=1, move=1, epoch=1, loaded_bytes=9))),
        (Step.MARKED, lambda: driver.worker(m.Holding(worker=0, incarnation=1, move=1, epoch=2))),
        (Step.RELEASING, lambda: (report(driver, 2, (0,)), driver.hear(CommitRecorded(2)))[1]),
        (Step.MOVING, lambda: driver.worker(m.Released(worker=0, incarnation=1, move=1))),
    ]
    for reached, word in words:
        if now(driver) is step:
            break
        commands = word()
        assert now(driver) is reached
    return commands


def now(driver: Driver) -> Step | None:
    move = driver.scheduler.rescaling.move
    return move.step if move is not None else None


def test_a_worker_that_joins_gets_nothing_to_run_and_what_it_is_to_load() -> None:
    driver = grown()
    (start, prepare) = [message for worker, message in without_alive(driver.register(1, order=1)) if worker == 1]
    assert isinstance(start, m.Start)
    assert start.restore is not None
    assert (start.restore.instances, start.placement) == ([], [0, 0])
    assert isinstance(prepare, m.Prepare)
    assert [(each.unit, each.instance) for each in prepare.snapshots] == [(READ, 0), (COUNT, 0)]


def test_the_old_owner_writes_little_while_the_new_one_loads() -> None:
    driver = grown()
    assert (0, m.Depart(move=1, column=0)) in sent(driver.register(1, order=1))


def test_the_marker_is_not_sent_before_the_old_owner_holds() -> None:
    driver = grown()
    assert without_alive(to(driver, Step.HOLDING)) == [(0, m.Hold(move=1, epoch=2, column=0))]
    assert without_alive(driver.hear(Tick(), 5 * OPTIONS.epoch_us)) == []
    marked = without_alive(driver.worker(m.Holding(worker=0, incarnation=1, move=1, epoch=2)))
    assert marked == [(0, m.BeginEpoch(epoch=2))]


def test_the_placement_changes_with_the_commit_and_the_old_owner_lets_go_first() -> None:
    driver = grown()
    to(driver, Step.MARKED)
    assert driver.plan.placement == [0, 0]
    commands = sent(to_commit(driver))
    assert driver.plan.placement == [1, 0]
    assert commands == [(0, m.Commit(epoch=2, final=False)), (0, m.Release(move=1, column=0))]
    moved = sent(driver.worker(m.Released(worker=0, incarnation=1, move=1)))
    assert [(worker, type(message)) for worker, message in moved] == [(0, m.Rollback), (1, m.Rollback)]
    assert {repr(message.restore.instances) for _, message in moved} == {repr([(READ, 0), (COUNT, 0)])}
    assert driver.scheduler.recoveries == 0
    driver.worker(m.RolledBack(worker=0, incarnation=1, generation=1))
    resumed = sent(driver.worker(m.RolledBack(worker=1, incarnation=1, generation=1)))
    assert resumed[:2] == [(0, m.Resume(generation=1)), (1, m.Resume(generation=1))]
    (done,) = driver.scheduler.rescaling.reports
    assert (done.column, done.old, done.new, done.loaded_bytes) == (0, 0, 1, 9)


def to_commit(driver: Driver) -> list[Any]:
    report(driver, 2, (0,))
    return driver.hear(CommitRecorded(2))


@pytest.mark.parametrize("step", [Step.PREPARING, Step.HOLDING, Step.MARKED])
def test_a_loss_before_the_commit_leaves_everything_where_it_was(step: Step) -> None:
    driver = grown()
    to(driver, step)
    driver.register(0, incarnation=2)
    assert now(driver) is None
    assert driver.plan.placement == [0, 0]
    assert driver.scheduler.recoveries == 1


@pytest.mark.parametrize("step", [Step.HOLDING, Step.MARKED])
def test_who_holds_goes_on_when_the_new_owner_is_lost(step: Step) -> None:
    driver = grown()
    to(driver, step)
    told = sent(driver.register(1, incarnation=2, order=1))
    assert (0, m.Hold(move=1, epoch=0, column=-1)) in told
    assert driver.scheduler.recoveries == 0


def test_a_loss_while_a_column_is_let_go_waits_for_that() -> None:
    driver = grown()
    to(driver, Step.RELEASING)
    assert sent(driver.register(1, incarnation=2, order=1)) == []
    commands = sent(driver.worker(m.Released(worker=0, incarnation=1, move=1)))
    assert [(worker, type(message)) for worker, message in commands] == [(0, m.Rollback), (1, m.Start)]
    assert driver.plan.placement == [1, 0]


def test_an_old_owner_that_is_lost_has_let_go() -> None:
    driver = grown()
    to(driver, Step.RELEASING)
    commands = sent(driver.register(0, incarnation=2))
    assert [(worker, type(message)) for worker, message in commands] == [(0, m.Start), (1, m.Rollback)]
    (restored,) = {repr(message.restore.instances) for _, message in commands}
    assert restored == repr([(READ, 0), (READ, 1), (COUNT, 0), (COUNT, 1)])


def test_a_worker_without_columns_leaves() -> None:
    driver = grown()
    to(driver, Step.MOVING)
    driver.hear(ScaleRequested(1))
    driver.worker(m.RolledBack(worker=0, incarnation=1, generation=1))
    driver.worker(m.RolledBack(worker=1, incarnation=1, generation=1))
    assert now(driver) is Step.PREPARING, "it has a column that goes back first"
    assert driver.scheduler.rescaling.move is not None
    assert driver.scheduler.rescaling.move.new == 0
    driver.worker(m.Prepared(worker=0, incarnation=1, move=2, epoch=2, loaded_bytes=0))
    driver.worker(m.Holding(worker=1, incarnation=1, move=2, epoch=3))
    report(driver, 3, (0, 1))
    driver.hear(CommitRecorded(3))
    driver.worker(m.Released(worker=1, incarnation=1, move=2))
    driver.worker(m.RolledBack(worker=1, incarnation=1, generation=2))
    last = driver.worker(m.RolledBack(worker=0, incarnation=1, generation=2))
    assert Dismiss(1) in last
    assert Retire(1) in last
    assert set(driver.scheduler.peers) == {0}
    assert driver.register(1, incarnation=5) == [Dismiss(5)], "Spark may start its task again"


def test_a_worker_that_never_comes_keeps_nobody_waiting() -> None:
    driver = grown()
    assert driver.scheduler.waits(driver.now_us).lines() == ["worker 1 to join"]
    epoch = driver.begin()
    report(driver, epoch, (0,))
    driver.hear(CommitRecorded(epoch))
    assert driver.scheduler.committed_epoch == 2
    driver.hear(ScaleRequested(1))
    assert driver.scheduler.waits(driver.now_us).lines() == []


def test_a_worker_that_spark_cannot_bring_back_leaves_and_others_take_over() -> None:
    plan = plan_on(2)
    driver = Driver.running(2, plan=plan)
    driver.commit_one()
    commands: list[Any] = []
    while not commands and driver.now_us < 2 * plan.options.shrink_after_us:
        driver.worker(m.Present(worker=0, incarnation=1))
        commands = [each for each in driver.hear(Tick(), 10_000_000) if isinstance(each, Retire)]
    assert commands == [Retire(1)]
    assert plan.placement == [0, 0]
    assert driver.scheduler.recovering
    driver.worker(m.RolledBack(worker=0, incarnation=1, generation=1))
    assert not driver.scheduler.recovering
    assert driver.register(1, incarnation=9) == [Dismiss(9)]


@pytest.mark.parametrize("after_s", [2, 5, 29, 40])
def test_a_worker_leaves_when_it_was_silent_for_as_long_as_is_wanted(after_s: int) -> None:
    plan = plan_on(2)
    plan = replace(plan, options=replace(plan.options, shrink_after_us=after_s * 1_000_000))
    driver = Driver.running(2, plan=plan)
    driver.commit_one()
    driver.worker(m.Present(worker=1, incarnation=1))
    heard_us = driver.now_us
    while not any(isinstance(each, Retire) for each in driver.hear(Tick(), 100_000)):
        driver.worker(m.Present(worker=0, incarnation=1))
        assert driver.now_us - heard_us <= after_s * 1_000_000, "it is still in the job"
    assert 0 <= driver.now_us - heard_us - after_s * 1_000_000 <= 100_000
    assert plan.placement == [0, 0]


def test_a_driver_that_stood_still_takes_nobody_for_silent() -> None:
    plan = plan_on(2)
    plan = replace(plan, options=replace(plan.options, shrink_after_us=4_000_000))
    driver = Driver.running(2, plan=plan)
    driver.commit_one()
    driver.hear(Tick(), 100_000)
    for after_us in (10_000_000, 1_000_000):
        assert not any(isinstance(each, Retire) for each in driver.hear(Tick(), after_us))
    assert sorted(set(plan.placement)) == [0, 1]


@pytest.mark.parametrize(("most", "cores", "within_s"), [(2, 1, 100), (2, 2, 700), (0, 1, 700)])
def test_a_job_that_chooses_its_workers_does_not_wait_for_a_core_that_is_gone(
    most: int, cores: int, within_s: int
) -> None:
    plan = plan_on(2)
    plan = replace(plan, options=replace(plan.options, workers_most=most))
    driver = Driver.running(2, plan=plan)
    driver.commit_one()
    driver.hear(CoresSeen(cores))
    begin_us = driver.now_us
    while not any(isinstance(each, Retire) for each in driver.hear(Tick(), 5_000_000)):
        driver.worker(m.Present(worker=0, incarnation=1))
    took_s = (driver.now_us - begin_us) / 1e6
    assert within_s - 100 < took_s < within_s
    assert plan.placement == [0, 0]


def test_columns_are_laid_out_over_machines() -> None:
    plan = plan_on(3, 4)
    driver = Driver(3, plan=plan)
    for worker, host in enumerate(["a", "a", "b"]):
        endpoint = f"tcp://{host}:{worker}"
        commands = driver.worker(m.Register(worker=worker, incarnation=1, endpoint=endpoint, pid=1))
    assert plan.placement == [0, 2, 1, 0]
    assert {repr(message.placement) for _, message in sent(commands)} == {repr([0, 2, 1, 0])}


def test_columns_are_spread_evenly_and_the_busiest_go_first() -> None:
    plan = plan_on(1, 3)
    rescaling = Rescaling(plan)
    assert rescaling.choose({0}) is None
    rescaling.want(3, "", {0})
    assert rescaling.choose({0}) is None, "nobody is up"
    rescaling.on_up(2)
    for at_us, busy_us in ((0, [0, 0, 0]), (1_000, [5, 50, 7])):
        pulses = [UnitPulse(unit=COUNT, instance=i, arrived=0, waiting=0, busy_us=us) for i, us in enumerate(busy_us)]
        busy = m.Pulse(worker=0, incarnation=1, at_us=at_us, units=pulses, slots=0, busy_us=62 * at_us // 1_000)
        rescaling.loads.on_pulse(busy)
        rescaling.loads.look({0})
    assert rescaling.choose({0}) == (1, 2)
    plan.placement[:] = [0, 2, 0]
    assert rescaling.choose({0, 2}) is None, "two and one are even"
    rescaling.on_up(1)
    assert rescaling.choose({0, 2}) == (2, 1)
    plan.placement[:] = [0, 2, 1]
    assert rescaling.choose({0, 1, 2}) is None
    rescaling.want(1, "", {0, 1, 2})
    assert rescaling.choose({0, 1, 2}) == (2, 0)
