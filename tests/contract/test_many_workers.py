"""A job of 200 workers: what its driver does grows with their number and no faster; who need not talk does not."""

from __future__ import annotations

import pytest

import penstock as ps
from grid import Grid
from penstock.engine.worker import PULSES_PER_S
from penstock.pipeline.pipeline import Pipeline

FEW, MANY = 25, 200
EPOCHS = 2


def calm(workers: int) -> Pipeline:
    """Ten events a second for each worker, which stay where they are."""
    source = ps.generator({"n": ps.fields.sequence()}, rate=10 * workers, format="columns", partitions=workers)
    return ps.stream("numbers", source).filter("n >= 0").to(ps.foreach(lambda row: None))


def through(workers: int) -> tuple[Grid, float]:
    """Some epochs of a job that is up, and how many seconds they took; made-up ones."""
    grid = Grid(calm(workers), workers)
    grid.run(lambda: grid.driver.scheduler.committed_epoch >= 1)
    grid.to_driver, began_us = 0, grid.now_us
    with grid.counting():
        grid.run(lambda: grid.driver.scheduler.committed_epoch >= 1 + EPOCHS)
    grid.close()
    return grid, (grid.now_us - began_us) / 1e6


def test_the_driver_of_many_workers_does_as_much_for_each_as_that_of_few() -> None:
    (few, few_s), (many, many_s) = through(FEW), through(MANY)
    assert few_s == pytest.approx(EPOCHS, abs=0.2)
    assert many_s == pytest.approx(EPOCHS, abs=0.2)
    assert many.calls / MANY < 1.3 * few.calls / FEW
    # Of each worker two heartbeats a second, a report of each epoch, two confirmations; and pulses, which are bounded.
    assert many.to_driver / many_s <= PULSES_PER_S + 5 * MANY
    assert not many.ways, "nobody talks to another worker where no record moves"
    assert len(many.records[-1].snapshots) == MANY
