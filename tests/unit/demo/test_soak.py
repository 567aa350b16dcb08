"""What counts as growing over a long run, and when forms and numbers of processes are changed on purpose."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.control.monitor import Status, WorkerFigures
from penstock.control.replicas import ReplicasView
from penstock.demo import soak
from penstock.demo.soak import SAMPLES_MIN, WORKERS, Gauge, Held, Holdings, Rescales, Scaler, Switcher, Trend
from penstock.errors import InvalidOption
from penstock.pipeline.plan import Plan
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


def scaled(replicas: tuple[int, int] | None = (1, 3), **options: Any) -> Plan:
    stream = ps.stream("numbers", ps.generator({"n": ps.fields.sequence()}, rate=10, format="columns"))
    mapped = stream.map(lambda r: r, schema="n bigint", name="slow", replicas=replicas)
    return plan_of(mapped.key_by("n").count().to(ps.memory(), name="out"), **options)


def at(at_us: int, workers: int = 1, degree: int = 0, *, committed_us: int = 0, phase: str = "running") -> Status:
    """A job that has so many workers, all of which have instances, and so many active replicas."""
    figures = [WorkerFigures(each, 100 + each, 0.0, 0.0) for each in range(workers)]
    views = [ReplicasView(["slow"], degree, degree, 1, 3, [])]
    found = Status("job", phase, 1, at_us, 0.0, 0, 0.0, [], figures, 0, 0, committed_us)
    found.placement, found.replicas = [each % workers for each in range(4)], views
    return found


def changes(seed: int) -> list[tuple[int, str, int, int]]:
    """Of a job that obeys at once."""
    rescales, present = Rescales(scaled(parallelism=4, workers=2), seed, 1_000_000), {WORKERS: 2, "slow": 1}
    for at_us in range(0, 100_000_000, 100_000):
        found = rescales.choose(at(at_us, present[WORKERS], present["slow"], committed_us=at_us))
        if found is not None:
            rescales.made(found)
            present[found.what] = found.to
    assert rescales.arrived() >= len(rescales.done) - 1
    assert all(each.committed_s for each in rescales.done[:-1])
    return [(each.at_us, each.what, each.before, each.to) for each in rescales.done]


def test_numbers_are_changed_at_random_within_bounds_and_the_same_by_the_same_seed() -> None:
    first = changes(1)
    assert first == changes(1) != changes(2)
    assert 80 < len(first) < 120
    assert 30 < sum(what == WORKERS for _, what, _, _ in first) < 70
    assert {to for _, what, _, to in first if what == WORKERS} == {1, 2, 3, 4}
    assert {to for _, what, _, to in first if what == "slow"} == {1, 2, 3}
    assert all(before != to for _, _, before, to in first)


def test_a_change_has_arrived_when_the_workers_have_instances_and_no_other_process_is_left() -> None:
    rescales = Rescales(scaled(None, parallelism=4, workers=1), 0, 1_000_000)
    rescales.choose(at(0))
    found = rescales.choose(at(2_000_000))
    assert found is not None
    rescales.made(found)
    status = at(3_000_000, found.to, committed_us=2_000_000)
    status.workers.append(WorkerFigures(9, 99, 0.0, 0.0))
    rescales.observe(status)
    assert (found.arrived_s, found.committed_s) == (None, None), "one that has left is still there; no commit since"
    rescales.observe(at(4_000_000, found.to, committed_us=3_500_000))
    assert (found.arrived_s, found.committed_s) == (2.0, 1.5)


def test_nothing_is_changed_before_the_start_or_while_draining() -> None:
    rescales = Rescales(scaled(parallelism=4), 0, 1_000_000)
    assert rescales.choose(at(0, phase="starting")) is None
    assert rescales.choose(at(100)) is None
    assert rescales.choose(at(5_000_000, phase="draining")) is None
    assert rescales.choose(at(5_000_000)) is not None


def test_bounds_of_the_user_count_and_what_cannot_change_is_refused() -> None:
    assert Rescales(scaled(workers=(2, 3)), 0, 1_000_000).can == [WORKERS, "slow"]
    fixed = Rescales(scaled((2, 2), parallelism=1), 0, 1_000_000)
    assert fixed.can == []
    with pytest.raises(InvalidOption, match="--scale-every"):
        Scaler.check(fixed, 1_000_000)
    with pytest.raises(InvalidOption, match="500ms or longer"):
        Scaler.check(Rescales(scaled(parallelism=2), 0, 1), 1)
