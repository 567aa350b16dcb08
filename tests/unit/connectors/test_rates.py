"""Rate schedules: times of offsets, what is due, and options that make no sense."""

from __future__ import annotations

import math
import pickle
from pathlib import Path

import pytest

from penstock.connectors import rates
from penstock.errors import InvalidOption, SourceMissing


def test_constant_rate_spaces_records_evenly() -> None:
    schedule = rates.constant(1000)
    assert [schedule.time_us(offset) for offset in (0, 1, 2, 1_000_000)] == [0, 1000, 2000, 1_000_000_000]
    assert schedule.times_us(5, 3, 2).tolist() == [5000, 7000, 9000]
    assert [schedule.due(elapsed_us) for elapsed_us in (-1, 0, 999, 1000, 10_500)] == [0, 1, 1, 2, 11]


def test_rate_above_one_per_microsecond() -> None:
    schedule = rates.constant(4_000_000)
    assert schedule.times_us(0, 9).tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2]
    assert [schedule.due(elapsed_us) for elapsed_us in (0, 1, 1000)] == [4, 8, 4004]


def test_steps_go_on_with_the_last_rate_and_pause_at_zero() -> None:
    schedule = rates.steps([("1s", 2), ("3s", 0), (1, 4)])
    expected = [0, 500_000, 4_000_000, 4_250_000, 4_500_000, 4_750_000, 5_000_000]
    assert [schedule.time_us(offset) for offset in range(7)] == expected
    assert schedule.times_us(0, 7).tolist() == expected
    assert [schedule.due(us) for us in (499_999, 500_000, 3_999_999, 4_000_000, 5_000_000)] == [1, 2, 2, 3, 7]


def test_first_record_waits_for_a_rate_above_zero() -> None:
    schedule = rates.steps([("2s", 0), ("1s", 10)])
    assert schedule.time_us(0) == 2_000_000
    assert schedule.due(1_999_999) == 0
    assert schedule.due(2_000_000) == 1


def test_burst_repeats() -> None:
    schedule = rates.burst(base=1, peak=10, every="10s", length="2s", first="5s")
    starts_us = [5_000_000, 15_000_000, 25_000_000]
    # 5 records before the first burst; 20 in a burst, 8 until the next.
    assert [schedule.due(start_us - 1) for start_us in starts_us] == [5, 33, 61]
    assert [schedule.due(start_us + 2_000_000 - 1) for start_us in starts_us] == [25, 53, 81]
    assert schedule.times_us(5, 3).tolist() == [5_000_000, 5_100_000, 5_200_000]
    assert schedule.times_us(33, 3).tolist() == [15_000_000, 15_100_000, 15_200_000]


def test_burst_from_nothing_at_once() -> None:
    schedule = rates.burst(base=0, peak=2, every="10s", length="1s", first=0)
    assert schedule.times_us(0, 4).tolist() == [0, 500_000, 10_000_000, 10_500_000]


def test_trace_repeats_scales_and_speeds_up(tmp_path: Path) -> None:
    path = tmp_path / "load.csv"
    path.write_text("time,value\n0,2\n1,0\n2,4\n")
    schedule = rates.trace(path)
    assert schedule.times_us(0, 8).tolist() == [
        0, 500_000, 2_000_000, 2_250_000, 2_500_000, 2_750_000, 3_000_000, 3_500_000,
    ]  # fmt: skip
    path.unlink()
    again = pickle.loads(pickle.dumps(schedule))
    assert again == schedule
    assert again.due(3_000_000) == 7


def test_trace_options(tmp_path: Path) -> None:
    path = tmp_path / "load.csv"
    path.write_text("time,value\n0,2\n1,0\n2,4\n")
    assert rates.trace(path, scale=0.5).times_us(0, 4).tolist() == [0, 2_000_000, 2_500_000, 3_000_000]
    assert rates.trace(path, scale=2, speed=2).times_us(0, 7).tolist() == [
        0, 250_000, 1_000_000, 1_125_000, 1_250_000, 1_375_000, 1_500_000,
    ]  # fmt: skip


def test_plain_number_is_a_constant_rate() -> None:
    assert rates.as_schedule(50) == rates.constant(50)
    assert rates.as_schedule(None) is None


@pytest.mark.parametrize("rate", [0, -1, math.nan, math.inf, 2e9, "10", True])
def test_bad_rates_are_refused(rate: object) -> None:
    with pytest.raises(InvalidOption, match="rate"):
        rates.as_schedule(rate)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "build",
    [
        lambda: rates.steps([]),
        lambda: rates.steps([("1s", 0)]),
        lambda: rates.steps([("1s", 10), ("1s", 0)]),
        lambda: rates.steps([("1s", -5), ("1s", 1)]),
        lambda: rates.steps([("0s", 5)]),
        lambda: rates.steps([5]),
        lambda: rates.burst(base=0, peak=0),
        lambda: rates.burst(base=1, peak=math.nan),
        lambda: rates.burst(base=1, peak=2, every="10s", length="10s"),
        lambda: rates.burst(base=1, peak=2, every="soon"),
    ],
)
def test_bad_schedules_are_refused(build: object) -> None:
    with pytest.raises(InvalidOption):
        build()  # type: ignore[operator]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "time,value\n",
        "a,b\n1,2\n",
        "time,value\n0,x\n",
        "time,value\n0\n",
        "time,value\n0,0\n",
        "time,value\n0,-1\n",
    ],
)
def test_bad_traces_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "load.csv"
    path.write_text(text)
    with pytest.raises(InvalidOption):
        rates.trace(path)


def test_missing_trace(tmp_path: Path) -> None:
    with pytest.raises(SourceMissing, match=r"none\.csv"):
        rates.trace(tmp_path / "none.csv")
    with pytest.raises(InvalidOption, match="speed"):
        rates.trace(tmp_path / "none.csv", speed=0)
