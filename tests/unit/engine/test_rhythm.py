"""When a worker wakes up for its sources: at its phase of the clock, later where few records come."""

from __future__ import annotations

import pytest

from penstock.engine.inputs.rhythm import FEW_RECORDS, MANY_WORKERS, STAGGER_US, Rhythm


@pytest.mark.parametrize("late_us", [0, 40, 200])
def test_a_turn_that_begins_late_does_not_shift_those_after_it(late_us: int) -> None:
    rhythm = Rhythm(600, worker=1, workers=2)
    tick_us = 600_000 + STAGGER_US
    for _ in range(10):
        rhythm.read(tick_us + late_us, FEW_RECORDS)
        tick_us += 600
        assert rhythm.next_us == tick_us


def test_turns_are_half_a_period_apart_at_least() -> None:
    rhythm = Rhythm(600)
    rhythm.read(600_000 + 350, FEW_RECORDS)
    assert rhythm.next_us == 601_200


def test_records_of_all_sources_count_and_many_workers_wait_for_more() -> None:
    rhythm = Rhythm(600, workers=MANY_WORKERS)
    rhythm.read(600_000, FEW_RECORDS - 1)
    assert rhythm.next_us == 601_200
    rhythm.read(600_000, 1)
    assert rhythm.next_us == 600_600


def test_many_workers_share_the_period() -> None:
    rhythms = [Rhythm(600, worker, 8) for worker in range(8)]
    for rhythm in rhythms:
        rhythm.read(600_000, FEW_RECORDS)
    assert sorted(rhythm.next_us % 600 for rhythm in rhythms) == list(range(0, 600, 75))


def test_a_pair_of_workers_waits_for_no_more_records() -> None:
    rhythm = Rhythm(600, workers=MANY_WORKERS - 1)
    rhythm.read(600_000, 1)
    assert rhythm.next_us == 600_600
