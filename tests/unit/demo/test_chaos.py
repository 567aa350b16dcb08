"""The pure half of chaos: when which worker is killed, and what counts as recovered."""

from __future__ import annotations

from itertools import pairwise

import pytest

from penstock.control.monitor import Status, WorkerFigures
from penstock.demo.chaos import RESCALES_MIN, Campaign, Findings, Kill, Times, at_least, quantile
from penstock.demo.oracle import Verdict
from penstock.demo.soak import Rescale

EVERY_US = 1_000_000


def status(at_us: int, pids: dict[int, int], *, resumed_us: int = 0, committed_us: int = 0, phase: str = "running"):
    workers = [WorkerFigures(worker, pid, 0.0, 0.0) for worker, pid in pids.items()]
    return Status("job", phase, 1, at_us, 0.0, 0, 0.0, [], workers, 0, resumed_us, committed_us)


def moments(seed: int) -> list[tuple[int, int]]:
    """Kills of a job whose workers come back at once under a new pid."""
    campaign, pids, found = Campaign(seed, EVERY_US), {0: 10, 1: 11}, []
    for at_us in range(0, 20 * EVERY_US, EVERY_US // 10):
        chosen = campaign.choose(status(at_us, pids))
        if chosen is not None:
            campaign.killed(chosen, at_us)
            found.append((at_us, chosen.worker))
            pids[chosen.worker] += 2
    return found


def test_a_seed_repeats_its_choices_and_another_makes_others() -> None:
    first = moments(1)
    assert first == moments(1) != moments(2)
    assert {worker for _, worker in first} == {0, 1}
    assert all(0.4 * EVERY_US <= b[0] - a[0] <= 1.6 * EVERY_US for a, b in pairwise(first))


def test_nobody_is_killed_before_the_start_or_while_draining() -> None:
    campaign = Campaign(0, EVERY_US)
    assert campaign.choose(status(0, {}, phase="starting")) is None
    assert campaign.choose(status(100, {0: 10})) is None
    assert campaign.choose(status(100 + 2 * EVERY_US, {0: 10}, phase="draining")) is None
    assert campaign.choose(status(100 + 2 * EVERY_US, {0: 10})) is not None


def test_a_pid_is_killed_once() -> None:
    campaign = Campaign(0, EVERY_US)
    campaign.choose(status(0, {0: 10}))
    chosen = campaign.choose(status(2 * EVERY_US, {0: 10}))
    assert chosen is not None
    campaign.killed(chosen, 2 * EVERY_US)
    assert campaign.choose(status(9 * EVERY_US, {0: 10})) is None
    assert campaign.choose(status(9 * EVERY_US, {0: 12})) is not None


@pytest.mark.parametrize(
    ("pid", "resumed_us", "committed_us", "expected"),
    [
        (10, 600, 700, None),  # another worker's recovery; this one has no successor yet
        (12, 400, 700, None),  # its recovery is not over
        (12, 600, 550, None),  # nothing is committed since
        (12, 600, 700, 0.0002),
    ],
)
def test_recovered_means_replaced_resumed_and_committed(
    pid: int, resumed_us: int, committed_us: int, expected: float | None
) -> None:
    campaign = Campaign(0, EVERY_US)
    campaign.killed(WorkerFigures(0, 10, 0.0, 0.0), 500)
    campaign.choose(status(800, {0: pid}, resumed_us=resumed_us, committed_us=committed_us))
    assert campaign.kills[0].resumed_s == expected
    assert (campaign.kills[0].restored_s is not None) == (pid == 12 and resumed_us == 600)


def test_quantiles_are_values_that_were_measured() -> None:
    values = [float(n) for n in range(1, 101)]
    assert [quantile(values, q) for q in (0.0, 0.5, 0.95, 1.0)] == [1.0, 50.0, 95.0, 100.0]
    assert quantile([7.0], 0.95) == 7.0


@pytest.mark.parametrize(
    ("kills", "epochs", "lost", "unresumed", "passed"),
    [(1, 1, 0, 0, True), (0, 1, 0, 0, False), (1, 0, 0, 0, False), (1, 1, 1, 0, False), (1, 1, 0, 1, False)],
)
def test_a_run_without_faults_or_with_losses_does_not_pass(
    kills: int, epochs: int, lost: int, unresumed: int, passed: bool
) -> None:
    found = Findings(0, [Kill(0, 0, 1)] * kills, kills, epochs, None, None, unresumed, lost, 0, 0)
    assert found.passed is passed
    assert found.lines[1].startswith("kills")


GOOD = Rescale(0, "workers", 1, 2, arrived_s=0.5, committed_s=0.7)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({}, ""),
        ({"verdict": Verdict(5, phantom=1)}, "phantom: 1"),
        ({"verdict": Verdict(0)}, "nothing came to the sinks"),
        ({"rescales": [GOOD, Rescale(1, "workers", 2, 1)]}, "rescales without a commit after them: 1"),
        ({"arrived_s": None, "rescales": [GOOD] * RESCALES_MIN}, "no rescale has come about"),
        ({"arrived_s": None, "rescales": [GOOD] * (RESCALES_MIN - 1)}, ""),
        ({"planned": {"kills": 1, "rescales": 2}}, "1 rescales fewer than planned"),
        ({"planned": {"switches": 3}}, "3 switches fewer than planned"),
    ],
)
def test_what_speaks_against_a_run_is_named(changes: dict[str, object], fault: str) -> None:
    found = Findings(0, [Kill(0, 0, 1)], 1, 1, None, None, 0, 0, 0, 0)
    found.rescales, found.arrived_s, found.verdict, found.planned = [GOOD], Times(0.5, 0.5, 0.5), Verdict(5), {}
    for name, value in changes.items():
        setattr(found, name, value)
    assert found.faults == ([fault] if fault else [])
    assert found.passed == (not fault)
    assert {"rescales", "output"} <= {line.split()[0] for line in found.lines}


def test_the_least_number_of_faults_is_that_of_the_longest_intervals() -> None:
    assert at_least(40.0, 2_000_000) == 10
    assert at_least(3.0, 2_000_000) == 0
