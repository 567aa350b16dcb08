"""Simulated jobs with faults at every step of the protocol: nothing is lost, doubled, reordered or made up."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from penstock.dataset import Log
from penstock.testing.simulation import Outcome, Violation, simulate
from penstock.testing.simulation.faults import Action, Moment
from penstock.testing.simulation.oracle import Shape

SEEDS, CHUNK = 2_000, 100
AGAIN = [3, 44, 268, 850]
FOUND = [22_915, 43_206]
"""Beyond the range, and once failed: an epoch was delivered again under the next one's name; a window was overrun."""

outcomes: list[Outcome] = []


def simulate_all() -> None:
    for seed in range(SEEDS):
        simulate(seed)


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_seeds(first: int) -> None:
    for seed in range(first, first + CHUNK):
        outcome = simulate(seed)
        assert outcome.epochs > 0
        outcomes.append(outcome)


@pytest.mark.parametrize("seed", FOUND)
def test_a_seed_that_once_failed(seed: int) -> None:
    simulate(seed)


def test_the_seeds_have_tested_something() -> None:
    if len(outcomes) < SEEDS:
        pytest.skip("looks back on all seeds")
    struck: Counter[Moment] = Counter()
    actions: Counter[Action] = Counter()
    for outcome in outcomes:
        struck += outcome.moments
        actions += Counter(fault.action for fault in outcome.injected)
    assert {moment: struck[moment] for moment in Moment if struck[moment] < 20} == {}
    assert {action: actions[action] for action in Action if actions[action] < 20} == {}
    assert {outcome.scenario.shape for outcome in outcomes} == set(Shape)
    assert sum(not outcome.injected for outcome in outcomes) < SEEDS / 5
    assert sum(outcome.recoveries for outcome in outcomes) > SEEDS
    assert sum(outcome.epochs for outcome in outcomes) > 5 * SEEDS
    assert sum(outcome.refused for outcome in outcomes) > SEEDS / 10  # words of workers that had been replaced


@pytest.mark.parametrize("seed", AGAIN)
def test_a_seed_replays_exactly(seed: int) -> None:
    first, second = simulate(seed), simulate(seed)
    assert (first.trace, first.steps) == (second.trace, second.steps)


def test_a_seed_replays_exactly_in_another_process() -> None:
    traces = set()
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "penstock.testing.simulation", "--seed", "44"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        traces.add(done.stdout)
    assert len(traces) == 1
    assert f"trace {simulate(44).trace:08x}," in traces.pop()


def test_a_failure_says_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Log, "seek_after_epoch", lambda self, reader, epoch: self.position(reader))
    with pytest.raises(Violation, match=r"make simulate SEED=\d+$"):
        simulate_all()


def test_a_job_that_does_not_end_says_who_waits_for_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.dataset.Receiver.ack", lambda self, now_us: None)
    with pytest.raises(Violation, match="the job does not end") as raised:
        simulate_all()
    assert "waits for the epoch of" in str(raised.value)
    assert "no room in" in str(raised.value)
