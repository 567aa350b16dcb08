"""What a blow did to the output: TFR and recovery from the times at which events were due and seen."""

from __future__ import annotations

import numpy as np
import pytest

from penstock_bench.meter.timeline import NEVER_US, Shown, Timeline
from penstock_bench.studies.kills import SHAPES, WARM_UP_S, judge
from penstock_bench.workloads import WORKLOADS

START_US = 1_000_000_000
SECONDS = 12
KILL_US = START_US + 6_000_000


def timeline(outage_us: int) -> Timeline:
    """A thousand events a second, each seen after a millisecond, but for those of an outage: they come at its end."""
    due = START_US + np.arange(SECONDS * 1000, dtype=np.int64) * 1000
    seen = due + 1000
    late = (seen >= KILL_US) & (seen < KILL_US + outage_us)
    seen[late] = KILL_US + outage_us
    return Timeline(due, seen)


def test_throughput_and_recovery_of_an_outage() -> None:
    outcome = judge(timeline(500_000), [(KILL_US, 2)], START_US, START_US + SECONDS * 1_000_000, 4)
    (loss,) = outcome.losses
    assert outcome.calm_eps == pytest.approx(1000, rel=0.01)
    assert outcome.calm_p99_ms == 1.0
    assert (loss.at_s, loss.size) == (6.0, 2)
    assert loss.caught_up_s == pytest.approx(0.5)
    assert loss.recovered_s == pytest.approx(0.5)
    assert loss.tfr == 0.0
    assert loss.peak_ms == pytest.approx(500, abs=2)
    assert loss.normal_s is not None
    assert loss.normal_s <= 0.5


def test_without_an_outage_throughput_is_what_it_was() -> None:
    outcome = judge(timeline(0), [(KILL_US, 1)], START_US, START_US + SECONDS * 1_000_000, 4)
    assert outcome.losses[0].normal_s == 0.0
    assert (outcome.losses[0].tfr, outcome.losses[0].recovered_s) == (1.0, 0.0)
    assert outcome.losses[0].peak_ms == 1.0


def test_a_part_that_goes_on_counts_for_the_throughput() -> None:
    partly = timeline(0)
    out = (partly.due_us >= KILL_US) & (partly.due_us < KILL_US + 1_000_000) & (partly.due_us % 4000 == 0)
    partly.seen_us[out] = KILL_US + 1_000_000
    outcome = judge(partly, [(KILL_US, 1)], START_US, START_US + SECONDS * 1_000_000, 4)
    assert outcome.losses[0].tfr == pytest.approx(0.75, abs=0.02)
    assert outcome.losses[0].recovered_s == pytest.approx(1.0, abs=0.03)


def test_events_that_are_never_seen_are_no_recovery() -> None:
    gone = timeline(0)
    gone.seen_us[5_999:] = NEVER_US
    outcome = judge(gone, [(KILL_US, 1)], START_US, START_US + SECONDS * 1_000_000, 4)
    assert outcome.losses[0].caught_up_s is None
    assert outcome.losses[0].tfr is None
    assert outcome.losses[0].normal_s is None


def test_moments_cover_the_run_in_tenths_of_a_second() -> None:
    outcome = judge(timeline(500_000), [(KILL_US, 1)], START_US, START_US + SECONDS * 1_000_000, 4)
    assert len(outcome.moments) == SECONDS * 10
    by_time = {moment.at_s: moment for moment in outcome.moments}
    assert by_time[5.0].max_ms == 1.0
    assert by_time[6.0].max_ms == pytest.approx(500, abs=2)
    assert WARM_UP_S < 6.0


def test_an_event_that_came_twice_was_seen_the_first_time() -> None:
    source = WORKLOADS["identity"].source(100.0, total=3)
    shown = [Shown(50, ("", 1), 1), Shown(40, ("", 1), 1), Shown(60, ("", 0), 1)]
    found = SHAPES["stateless"].timeline(source, 0, shown)
    assert found.seen_us.tolist() == [60, 40, NEVER_US]
    assert found.due_us.tolist() == source.schedule.times_us(0, 3).tolist()  # type: ignore[union-attr]
