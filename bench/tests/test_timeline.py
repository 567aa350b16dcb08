"""What an output of counts tells of each event's latency, and what counts as recovered."""

from __future__ import annotations

import numpy as np
import pytest

from penstock_bench.meter.timeline import NEVER_US, STEP_US, WINDOW_US, Shown, Timeline

A, B = ("a", 0), ("b", 0)
MS = 1_000


def steady(latency_us: int, seconds: float, stalls: dict[tuple[int, int], int] | None = None) -> Timeline:
    """An event every millisecond, seen after ``latency_us``, but those due in a stall not before its end."""
    due = np.arange(0, int(seconds * 1e6), MS)
    seen = due + latency_us
    for (first_us, end_us), until_us in (stalls or {}).items():
        held = (due >= first_us) & (due < end_us)
        seen[held] = np.maximum(seen[held], until_us)
    return Timeline(due, seen)


def test_an_event_is_seen_when_the_count_of_its_group_reaches_its_rank() -> None:
    due = {A: np.array([10, 20, 30]), B: np.array([15])}
    timeline = Timeline.of(due, [Shown(100, A, 1), Shown(140, B, 1), Shown(150, A, 3)])
    assert timeline.due_us.tolist() == [10, 15, 20, 30]
    assert timeline.seen_us.tolist() == [100, 140, 150, 150]


def test_rows_that_come_again_after_a_rollback_show_nothing_new() -> None:
    due = {A: np.array([10, 20, 30])}
    again = [Shown(100, A, 1), Shown(110, A, 2), Shown(500, A, 1), Shown(510, A, 2), Shown(520, A, 3)]
    assert Timeline.of(due, again).seen_us.tolist() == [100, 110, 520]
    assert Timeline.of(due, reversed(again)).seen_us.tolist() == [100, 110, 520]


def test_what_is_never_shown_is_never_seen_and_never_normal() -> None:
    timeline = Timeline.of({A: np.array([10, 20]), B: np.array([30])}, [Shown(100, A, 1)])
    assert timeline.seen_us.tolist() == [100, NEVER_US, NEVER_US]
    assert timeline.p99_us == float("inf")
    assert timeline.latency_us.total == 1
    nothing = timeline.recovery(50, 3 * WINDOW_US, timeline.p99_us)
    assert (nothing.caught_up_s, nothing.normal_s) == (None, None)


def test_a_stall_is_measured_from_the_kill() -> None:
    kill_us, back_us = 3_000_000, 3_400_000
    timeline = steady(2 * MS, 8, {(kill_us, back_us): back_us})
    found = timeline.recovery(kill_us, 8_000_000, 2 * MS)
    assert found.caught_up_s == pytest.approx(0.4)
    # Events due in the last moments of the stall had no more than twice the usual latency.
    assert back_us - STEP_US <= kill_us + found.normal_s * 1e6 <= back_us
    assert found.silent_ms == pytest.approx(398, abs=2)
    assert found.peak_ms == pytest.approx(400)


def test_latency_that_stays_higher_is_not_normal() -> None:
    kill_us = 3_000_000
    slower = steady(5 * MS, 8)
    assert slower.recovery(kill_us, 8_000_000, 2 * MS).normal_s is None
    assert slower.recovery(kill_us, 8_000_000, 2.5 * MS).normal_s == 0.0


def test_a_failure_is_judged_until_the_next_one() -> None:
    timeline = steady(2 * MS, 8, {(3_000_000, 6_000_000): 6_000_000})
    found = timeline.recovery(3_000_000, 5_000_000, 2 * MS)
    assert (found.caught_up_s, found.normal_s) == (3.0, None)
    assert found.silent_ms == pytest.approx(2_000, abs=2)


def test_silence_includes_that_at_the_bounds() -> None:
    timeline = Timeline(np.array([0, 1, 2]), np.array([100, 110, 900]))
    assert timeline.silent_us(0, 1_000) == 790
    assert timeline.silent_us(200, 800) == 600


def test_calm_is_what_was_seen_before_the_failure() -> None:
    timeline = steady(500 * MS, 5, {(2_000_000, 3_000_000): 4_000_000})
    calm = timeline.calm(1_000_000, 2_500_000)
    assert (calm.due_us[0], calm.due_us[-1]) == (1_000_000, 2_000_000 - MS)
    assert calm.p99_us == 500 * MS
    assert timeline.calm(2_000_000, 2_500_000).p99_us == float("inf")
    assert timeline.recovery(2_500_000, 5_000_000, float("inf")).normal_s is None
