"""A running count of a given size: its exact result, and when each event was seen in it."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.testing import Harness
from penstock_bench.meter.timeline import NEVER_US, Shown
from penstock_bench.studies.keyed import counting, timeline_of
from penstock_bench.workloads import replay

START_US = 1_000_000
KEYS = 3


@pytest.mark.parametrize("zipf", [None, 1.0])
def test_the_pipeline_gives_the_exact_counts(zipf: float | None) -> None:
    workload = counting(KEYS, zipf)
    source = workload.source(None, total=40)
    exact = workload.expected(replay(source, START_US))
    assert sum(exact.values()) == 40
    assert set(exact) == set(range(KEYS)), "the first events touch every key"
    harness = Harness(workload.pipeline(None, ps.memory(), total=40))
    harness.run()
    rows = harness.rows()
    assert workload.compare(exact, rows, 1).exact
    assert not workload.compare(exact, rows[1:-1], 1).exact


def test_an_event_is_seen_with_the_first_count_that_it_is_in() -> None:
    workload = counting(KEYS)
    source = workload.source(1_000.0)
    events = list(replay(source, START_US, [12]))
    key = events[3].drawn
    own = [event.number for event in events[3:] if event.drawn == key]
    assert len(own) > 1, "a seed with several events of one key"
    shown = [Shown(START_US + 90_000, ("", own[1]), key), Shown(START_US + 95_000, ("", own[0]), key)]
    found = timeline_of(source, START_US, [12], KEYS, shown)
    by_number = dict(zip(range(KEYS, 12), found.seen_us.tolist(), strict=True))
    # The later event's row came first, and counts the earlier one too.
    assert by_number[own[0]] == by_number[own[1]] == START_US + 90_000
    assert all(by_number[number] == NEVER_US for number in by_number if number not in own[:2])
    assert found.due_us.tolist() == (START_US + source.schedule.times_us(KEYS, 9)).tolist()  # type: ignore[union-attr]


def test_rows_that_come_again_show_nothing_new() -> None:
    source = counting(1).source(1_000.0)
    shown = [Shown(START_US + at_us, ("", number), 0) for at_us, number in ((10, 1), (20, 2), (900, 1), (910, 2))]
    found = timeline_of(source, START_US, [4], 1, shown)
    assert found.seen_us.tolist() == [START_US + 10, START_US + 20, NEVER_US]


def test_nothing_shown_is_nothing_seen() -> None:
    found = timeline_of(counting(1).source(1_000.0), START_US, [3], 1, [])
    assert found.seen_us.tolist() == [NEVER_US, NEVER_US]
