"""What counts as growing over a long run, and when forms are changed on purpose."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.demo import soak
from penstock.demo.soak import SAMPLES_MIN, Gauge, Held, Holdings, Switcher, Trend
from penstock.runtime.job import plan_of

MB = 1 << 20


def looked(values: list[int]) -> Holdings:
    holdings = Holdings()
    for value in values:
        holdings.add("driver", [Held(value * MB, 20, 10), Held(1 * MB, 30, 5)])
    return holdings


def test_the_first_third_is_compared_with_the_last_and_noise_is_none() -> None:
    assert looked([100] * (SAMPLES_MIN - 1)).trends() == {}
    flat = looked([100, 180, 90] * 10).trends()["driver"]
    assert [flat[name].grows for name in ("memory_bytes", "descriptors", "threads")] == [False] * 3
    assert (flat["descriptors"].first, flat["threads"].first) == (30, 10), "the most that one of them holds"
    leaking = looked(list(range(100, 400, 10))).trends()["driver"]
    assert leaking["memory_bytes"].grows
    assert not leaking["descriptors"].grows


@pytest.mark.parametrize(("last", "grows"), [(20, False), (42, False), (43, True), (900, True)])
def test_some_slack_is_left(last: int, grows: bool) -> None:
    assert Trend.of([20] * 5 + [last] * 5, 16).grows is grows


class FakeJob:
    """Says that it runs, and takes note of what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def status(self) -> Any:
        return type("Status", (), {"phase": "running", "workers": []})

    def switch(self, operation: str, *, to: str) -> None:
        self.told.append((operation, to))


def test_forms_are_changed_at_random_and_the_same_by_the_same_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = ps.stream("numbers", ps.generator({"n": ps.fields.sequence()}, rate=10, format="columns"))
    plan = plan_of(stream.filter(ps.col("n") > 1, name="some").to(ps.memory(), name="out"))
    jobs = [FakeJob(), FakeJob()]
    for job in jobs:
        clock = iter(range(0, 100_000_000, 100_000))
        monkeypatch.setattr(soak, "now_us", lambda clock=clock: next(clock))
        switch = Switcher(plan, 7, 1_000_000)
        for _ in range(900):
            switch(job)  # type: ignore[arg-type]
        assert switch.switches == len(job.told)
    assert jobs[0].told == jobs[1].told
    assert 60 < len(jobs[0].told) < 120
    assert {to for _, to in jobs[0].told} == {"record", "batch"}
    assert {operation for operation, _ in jobs[0].told} <= {"numbers", "some", "out"}


def test_a_gauge_looks_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(10_000_000, 10_000_000_000, 500_000))
    monkeypatch.setattr(soak, "now_us", lambda: next(clock))
    gauge = Gauge()
    for _ in range(4 * SAMPLES_MIN):
        gauge(FakeJob())  # type: ignore[arg-type]
    trends = gauge.holdings.trends()
    assert set(trends) == {"driver"}
    assert trends["driver"]["threads"].first >= 1
