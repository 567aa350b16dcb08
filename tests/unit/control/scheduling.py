"""A scheduler with its clock, for the tests of its table; commands in short form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import penstock as ps
from penstock.control.events import (
    CommitRecorded,
    Finish,
    FromWorker,
    Send,
    Tick,
)
from penstock.control.scheduler import Phase, Resumption, Scheduler
from penstock.errors import PenstockError
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

    def __init__(
        self, workers: int = 2, resumption: Resumption | None = None, plan: Plan | None = None, *, hasty: bool = False
    ) -> None:
        self.now_us = 5_000_000
        self.plan = plan or PLANS[workers]
        self.scheduler = Scheduler(self.plan, self.now_us, resumption, hasty=hasty)

    def hear(self, event: Any, after_us: int = 0) -> list[Any]:
        self.now_us += after_us
        return self.scheduler.handle(event, self.now_us)

    def be_at_work(self, time_us: int, heard: int) -> list[Any]:
        """Let time pass in which the driver is at work and hears one worker; return what it does meanwhile."""
        done = []
        for _ in range(4):
            done += self.hear(Tick(), time_us // 4)
            done += self.worker(m.Present(worker=heard, incarnation=1))
        return done

    def worker(self, message: Any, after_us: int = 0) -> list[Any]:
        return self.hear(FromWorker(message), after_us)

    def register(self, worker: int, incarnation: int = 1, order: int = 0, after_us: int = 0) -> list[Any]:
        endpoint = f"tcp://w{worker}"
        register = m.Register(worker=worker, incarnation=incarnation, endpoint=endpoint, pid=100 + worker, order=order)
        return self.worker(register, after_us)

    @classmethod
    def running(cls, workers: int = 2, plan: Plan | None = None, *, hasty: bool = False) -> Driver:
        driver = cls(workers, plan=plan, hasty=hasty)
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


def present(driver: Driver, worker: int, incarnation: int = 1) -> list[Any]:
    return driver.worker(m.Present(worker=worker, incarnation=incarnation))
