"""A run through a burst as a series: what is due, what waits, and how long it took until all was as before."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.control.changes import ChangeReport
from penstock.control.monitor import OperationFigures, Status
from penstock.demo.series import Sampler, Scene
from penstock.demo.story import Demo
from penstock.errors import InvalidOption
from penstock.metrics import Histogram
from penstock.pipeline.options import Forms
from penstock.pipeline.plan import Plan
from penstock.runtime.report import Latency

SCENE = Scene.of(100.0, 1_000.0, 12.0)
START_US = 1_000_000


def figures(name: str, records_in: int, p99_ms: float) -> OperationFigures:
    return OperationFigures(
        name, "files", "record", 2, 100.0, 100.0, 1.0, 3, 1.0, 1.0, p99_ms, records_in, records_in, 0, 0, 0, 0, 1, 1, 1
    )


@dataclass
class Played:
    """A job whose heartbeats are given, one after the other."""

    plan: Plan
    at_s: float = 0.0
    done: int = 0
    p99_ms: float = 5.0
    latency: Histogram = field(default_factory=Histogram)

    def beat(self, at_s: float, done: int, latency_ms: float) -> Played:
        self.latency = self.latency.copy()
        self.latency.record(int(latency_ms * 1000), done - self.done)
        self.at_s, self.done, self.p99_ms = at_s, done, latency_ms
        return self

    def status(self) -> Status:
        heard_us = START_US + int(self.at_s * 1e6)
        operations = [figures("events", self.done, 1.0), figures("to_files", self.done, self.p99_ms)]
        return Status("demo", "running", 1, heard_us, 1.0, 1, 1.0, operations, [], start_us=START_US, heard_us=heard_us)

    def latency_us(self) -> Histogram:
        return self.latency


@pytest.fixture
def job(tmp_path: Any) -> Played:
    return Played(Demo(SCENE, tmp_path).plan(Forms.RECORD, parallelism=2))


def report(*switches: ChangeReport) -> Any:
    return SimpleNamespace(latency_ms=Latency(1.0, 2.0, 3.0, 4.0, 5.0), switches=list(switches))


def test_a_scene_is_calm_then_a_burst_then_calm() -> None:
    assert (SCENE.calm_s, SCENE.burst_s, SCENE.burst_end_s, SCENE.seconds) == (4.0, 3.0, 7.0, 12.0)
    assert [SCENE.rate_eps(at_s) for at_s in (0.0, 3.9, 4.0, 6.9, 7.0, 12.0)] == [100, 100, 1000, 1000, 100, 0]
    assert [SCENE.word(at_s) for at_s in (1.0, 5.0, 9.0)] == ["calm", "burst", "after the burst"]


@pytest.mark.parametrize("peak", [100.0, 50.0, float("nan")])
def test_a_burst_is_more_than_the_base_rate(peak: float) -> None:
    with pytest.raises(InvalidOption, match="peak"):
        Scene.of(100.0, peak, 12.0)


def test_the_backlog_is_what_is_due_and_not_at_the_end(job: Played) -> None:
    sampler = Sampler(SCENE)
    sampler(job.beat(2.0, 200, 5.0))  # type: ignore[arg-type]
    sampler(job.beat(5.0, 700, 5.0))  # type: ignore[arg-type]
    sampler(job.beat(20.0, 3_900, 5.0))  # type: ignore[arg-type]
    assert [each.backlog_records for each in sampler.samples] == [0, 700, 0]
    assert [each.queue_records for each in sampler.samples] == [6, 6, 6]
    assert sampler.samples[0].forms == {"events": "record", "to_files": "record"}


def test_a_status_without_news_is_no_sample(job: Played) -> None:
    sampler = Sampler(SCENE)
    for _ in range(3):
        sampler(job.beat(2.0, 200, 5.0))  # type: ignore[arg-type]
    assert len(sampler.samples) == 1


def test_figures_of_a_run(job: Played) -> None:
    sampler = Sampler(SCENE)
    for at_s, done, latency_ms in [
        (1.0, 100, 80.0),  # warming up: not counted as calm
        (3.0, 300, 4.0),
        (4.0, 400, 4.0),
        (6.0, 900, 500.0),
        (8.0, 3_000, 900.0),
        (9.0, 3_600, 900.0),
        (10.0, 3_700, 6.0),
        (11.0, 3_800, 4.0),
    ]:
        sampler(job.beat(at_s, done, latency_ms))  # type: ignore[arg-type]
    found = sampler.figures(
        "adaptive",
        report(
            ChangeReport(
                at_s=5.0,
                operations=["score"],
                to="batch",
                pause_ms=12.5,
                total_ms=20.0,
                carried_records=3,
                reason="queue",
                inputs={},
            )
        ),
    )
    assert found.calm_p99_ms == pytest.approx(4.0, rel=0.04)
    assert found.burst_p99_ms == pytest.approx(900.0, rel=0.04)
    assert found.backlog_max == 1_500
    assert found.drained_s == 2.0
    assert found.normal_s == 3.0
    assert (found.switches, found.pause_ms_max) == (1, 12.5)
    assert (found.p50_ms, found.p99_ms, found.max_ms) == (1.0, 3.0, 5.0)


def test_a_backlog_that_outlasts_the_run_counts_as_far_as_it_was_handled(job: Played) -> None:
    sampler = Sampler(SCENE)
    for at_s, done, latency_ms in [(4.0, 400, 4.0), (8.0, 900, 3_000.0), (20.0, 1_500, 9_000.0)]:
        sampler(job.beat(at_s, done, latency_ms))  # type: ignore[arg-type]
    found = sampler.figures("record", report())
    assert found.burst_p99_ms == pytest.approx(9_000.0, rel=0.04)
    assert (found.drained_s, found.normal_s) == (None, None)


def test_a_run_that_was_cut_short_has_no_such_figures(job: Played) -> None:
    sampler = Sampler(SCENE)
    sampler(job.beat(2.0, 200, 5.0))  # type: ignore[arg-type]
    found = sampler.figures("record", report())
    assert (found.burst_p99_ms, found.drained_s, found.normal_s) == (None, None, None)
    assert Sampler(SCENE).figures("record", report()).calm_p99_ms is None
