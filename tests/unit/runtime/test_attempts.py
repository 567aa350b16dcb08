"""Runs of a job at one checkpoint directory: one at a time, and one that was overtaken commits nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import fsspec
import pytest

import penstock as ps
from penstock.errors import CheckpointDamaged, CheckpointFenced, CheckpointInUse, CheckpointMismatch, InvalidOption
from penstock.pipeline.plan import Plan
from penstock.runtime.attempts import Attempt
from penstock.runtime.checkpoints import CheckpointStore, CommitRecord, new_record
from penstock.runtime.job import plan_of
from waiting import WAIT_S

PLACES = ["directory", "memory://penstock-attempts"]


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A directory, which can be locked, and an object store, which cannot."""
    yield str(tmp_path / "checkpoint") if request.param == "directory" else request.param
    memory = fsspec.filesystem("memory")
    if memory.exists("/penstock-attempts"):
        memory.rm("/penstock-attempts", recursive=True)


def planned(place: str, name: str = "job") -> Plan:
    source = ps.records([(1,)], schema="n bigint")
    return plan_of(ps.stream("numbers", source).to(ps.memory()), checkpoint=place, name=name, parallelism=1)


def record(attempt: Attempt, epoch: int) -> CommitRecord:
    return new_record(
        job=attempt.plan.options.name,
        job_id=attempt.plan.job_id,
        attempt=attempt.number,
        epoch=epoch,
        generation=0,
        start_us=1,
        final=False,
        anchors=[],
        sinks={},
        snapshots=[],
        outputs=[],
    )


def last(place: str) -> tuple[int, int]:
    found = CheckpointStore(place, durable=True).last_commit()
    assert found is not None
    return found.attempt, found.epoch


def test_a_job_keeps_its_identity_over_its_runs_and_another_one_has_another(place: str, tmp_path: Path) -> None:
    first = Attempt.begin(planned(place))
    assert (first.number, first.restart, len(first.plan.job_id)) == (1, None, 16)
    first.commit(record(first, 1))
    first.release()
    second = Attempt.begin(planned(place))
    assert (second.number, second.plan.job_id, last(place)) == (2, first.plan.job_id, (2, 1))
    assert second.restart is not None
    second.release()
    other = Attempt.begin(planned(str(tmp_path / "other")))
    other.release()
    assert other.plan.job_id != first.plan.job_id


def test_a_run_that_has_committed_nothing_leaves_nothing_to_go_on_from(place: str) -> None:
    first = Attempt.begin(planned(place))
    first.release()
    second = Attempt.begin(planned(place, name="renamed"))
    assert (second.number, second.restart) == (2, None)
    assert second.plan.job_id != first.plan.job_id
    second.release()


def test_without_a_checkpoint_directory_every_run_is_a_job_of_its_own(tmp_path: Path) -> None:
    source = ps.records([(1,)], schema="n bigint")
    plan = plan_of(ps.stream("numbers", source).to(ps.memory()))
    plan = replace(plan, options=replace(plan.options, checkpoint=str(tmp_path)))
    ids = {Attempt.begin(plan).plan.job_id for _ in range(3)}
    assert len(ids) == 3


def test_a_second_driver_is_refused_before_it_reads(tmp_path: Path) -> None:
    place = str(tmp_path / "checkpoint")
    plan = planned(place)
    first = Attempt.begin(plan)
    commits = tmp_path / "checkpoint" / "commits"
    next(commits.iterdir()).write_bytes(b"half of a rec")
    with pytest.raises(CheckpointInUse, match=r"in use by job 'job', process \d+ on .*Wait for its end"):
        Attempt.begin(plan)
    first.release()
    with pytest.raises(CheckpointDamaged):
        Attempt.begin(plan)
    with pytest.raises(CheckpointDamaged):
        Attempt.begin(plan)  # what was refused holds no lock


def test_a_job_of_another_name_is_refused_with_both_names(place: str) -> None:
    first = Attempt.begin(planned(place, name="clicks"))
    first.commit(record(first, 3))
    first.release()
    with pytest.raises(CheckpointMismatch, match=r"is of job 'clicks', and this is job 'views'.*name='clicks'"):
        planned(place, name="views")


def test_a_plan_that_another_run_has_overtaken_is_refused(place: str) -> None:
    early = planned(place)
    first = Attempt.begin(planned(place))
    first.commit(record(first, 1))
    first.release()
    with pytest.raises(CheckpointInUse, match="was used by another run after this one was planned"):
        Attempt.begin(early)
    assert last(place) == (1, 1)


def test_a_directory_that_cannot_be_made_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    plan = planned(str(tmp_path / "file" / "checkpoint"))
    with pytest.raises(InvalidOption, match="checkpoint="):
        Attempt.begin(plan)


def test_a_run_that_was_overtaken_commits_nothing(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.runtime.attempts.lock_place", lambda *_: None)  # a file system without locks
    old = Attempt.begin(planned(place))
    old.commit(record(old, 1))
    new = Attempt.begin(planned(place))
    with pytest.raises(CheckpointFenced, match=r"run 2 has taken over .* run 1, commits no more"):
        old.commit(record(old, 2))
    assert last(place) == (2, 1), "what it has written does not count"
    new.commit(record(new, 2))
    assert last(place) == (2, 2)


# --- every interleaving of two drivers --------------------------------------------------------------------------------


class Crashed(Exception):
    pass


class Stage:
    """Runs two drivers in threads, one access to the store at a time, in the order that a schedule says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._turn: dict[str, threading.Semaphore] = {}
        self._back = threading.Semaphore(0)
        self._over: set[str] = set()
        self._crash: set[str] = set()
        for name in ("claim", "last_commit", "newest_attempt", "write_commit"):
            monkeypatch.setattr(CheckpointStore, name, self._stepwise(getattr(CheckpointStore, name)))

    def _stepwise(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def step(store: CheckpointStore, *arguments: Any) -> Any:
            name = threading.current_thread().name
            if name in self._turn:
                self._back.release()
                assert self._turn[name].acquire(timeout=WAIT_S)
                if name in self._crash:
                    raise Crashed
            return method(store, *arguments)

        return step

    def start(self, name: str, work: Callable[[], None]) -> None:
        self._turn[name] = threading.Semaphore(0)

        def run() -> None:
            try:
                work()
            finally:
                self._over.add(name)
                self._back.release()

        threading.Thread(target=run, name=name, daemon=True).start()
        assert self._back.acquire(timeout=WAIT_S)

    def step(self, name: str) -> bool:
        """Let a driver make its next access; False when it has none left."""
        if name in self._over:
            return False
        self._turn[name].release()
        assert self._back.acquire(timeout=WAIT_S)
        return True

    def crash(self, name: str) -> None:
        self._crash.add(name)
        self.step(name)


NEW_STEPS = 8
"""Accesses of a new driver that begins, and looks what it goes on from."""


@pytest.mark.parametrize("crash_at", [None, *range(NEW_STEPS)])
def test_nothing_is_published_that_a_newer_run_replays_in_any_order(
    monkeypatch: pytest.MonkeyPatch, crash_at: int | None
) -> None:
    place = "memory://penstock-interleaved"
    memory = fsspec.filesystem("memory")
    commits = [2, 3] if crash_at is None else [2]
    moments = range(2 * len(commits) + NEW_STEPS)
    fenced = 0
    for at in combinations(moments, 2 * len(commits)):
        if memory.exists("/penstock-interleaved"):
            memory.rm("/penstock-interleaved", recursive=True)
        old = Attempt.begin(planned(place))
        old.commit(record(old, 1))
        published, began, plan = [1], [], planned(place)

        def commit(old: Attempt = old, published: list[int] = published) -> None:
            for epoch in commits:
                try:
                    old.commit(record(old, epoch))
                except CheckpointFenced:
                    return
                published.append(epoch)

        def begin(plan: Plan = plan, began: list[int] = began) -> None:
            with suppress(Crashed):
                assert Attempt.begin(plan).restart is not None
                began.append(last(place)[1])

        with monkeypatch.context() as patched:
            stage = Stage(patched)
            stage.start("old", commit)
            stage.start("new", begin)
            steps = 0
            for moment in moments:
                if moment in at:
                    stage.step("old")
                    continue
                if steps == crash_at:
                    stage.crash("new")
                else:
                    stage.step("new")
                steps += 1
            while stage.step("old") or stage.step("new"):
                pass
        fenced += len(published) <= len(commits)
        if crash_at is not None:
            began.clear()
            third = Attempt.begin(planned(place))
            assert third.restart is not None
            began.append(last(place)[1])
        assert began, "the newer run was not refused"
        assert published == list(range(1, len(published) + 1))
        assert began[0] >= published[-1], f"epoch {published[-1]} is published, and replayed from {began[0]} on ({at})"
    assert fenced or crash_at in (0, 1, 2), "the schedules reach the fence, unless the new run never claims"
