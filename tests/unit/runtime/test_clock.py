"""All processes of a job go by one clock, though somebody sets the machine's while it runs."""

from __future__ import annotations

import subprocess
import sys
import time

import msgspec
import pytest

from penstock.runtime import clock

HOUR_S = 3600

STARTED_LATER = """
import sys, time
real = time.time_ns
time.time_ns = lambda: real() - {step_s} * 10**9   # somebody has set the clock
import msgspec
from penstock.runtime import clock
print(clock.now_us())
clock.adopt(msgspec.json.decode(sys.argv[1], type=clock.Clock))
print(clock.now_us())
"""


def started_later(step_s: int) -> list[int]:
    """What a process says that was started when the clock had been set back by so much: its own time, and then ours."""
    own = msgspec.json.encode(clock.own_clock()).decode()
    command = [sys.executable, "-c", STARTED_LATER.format(step_s=step_s), own]
    return [int(each) for each in subprocess.run(command, check=True, capture_output=True).stdout.split()]


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S])
def test_a_process_that_is_started_after_the_clock_was_set_goes_by_the_drivers(step_s: int) -> None:
    before_us = clock.now_us()
    without_us, told_us = started_later(step_s)
    assert before_us <= told_us <= clock.now_us()
    assert abs(without_us - clock.now_us()) > HOUR_S * 500_000, "the test would show it"


def test_a_clock_does_not_step_while_a_process_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    before_us = clock.now_us()
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert clock.now_us() >= before_us


def test_the_clock_of_another_machine_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    before = clock.own_clock()
    clock.adopt(clock.Clock("another", 5))
    clock.adopt(clock.Clock("", 5))
    assert clock.own_clock() == before
