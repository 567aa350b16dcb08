"""Commit records are written beside the driver's loop, and what is outdated goes without holding anybody up."""

from __future__ import annotations

import select
import threading
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.errors import CheckpointFenced, CheckpointUnavailable
from penstock.protocol import messages as m
from penstock.runtime.attempts import Attempt
from penstock.runtime.checkpoints import CheckpointStore, CommitRecord, new_record
from penstock.runtime.committing import CommitWriter
from penstock.runtime.job import plan_of
from waiting import WAIT_S


def begun(place: str) -> Attempt:
    source = ps.records([(1,)], schema="n bigint")
    plan = plan_of(ps.stream("numbers", source).to(ps.memory()), checkpoint=place, parallelism=1)
    return Attempt.begin(plan)


def record(attempt: Attempt, epoch: int, *names: str) -> CommitRecord:
    stored = [m.Stored(unit=0, instance=0, epoch=epoch, depth=0, name=name, crc=0) for name in names]
    options = attempt.plan.options
    return new_record(
        job=options.name, job_id=attempt.plan.job_id, attempt=attempt.number, epoch=epoch, generation=0, start_us=1,
        final=False, anchors=[], sinks={}, snapshots=stored, outputs=[],
    )  # fmt: skip


def wait_for(writer: CommitWriter, *epochs: int) -> None:
    """Wait as the driver does: until the descriptor is readable."""
    found: list[int] = []
    while len(found) < len(epochs):
        assert select.select([writer.fileno], [], [], 10)[0], "the writer says nothing"
        found += writer.recorded()
    assert found == list(epochs)


def test_a_store_that_does_not_answer_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt, answers = begun(str(tmp_path)), threading.Event()
    write = CheckpointStore.write_commit

    def slow(store: CheckpointStore, written: CommitRecord) -> None:
        assert answers.wait(WAIT_S)
        write(store, written)

    monkeypatch.setattr(CheckpointStore, "write_commit", slow)
    writer = CommitWriter(attempt)
    for epoch in (1, 2, 3):
        writer.submit(record(attempt, epoch))
    assert writer.recorded() == []
    answers.set()
    wait_for(writer, 1, 2, 3)
    last = attempt.store.last_commit()
    assert last is not None
    assert last.epoch == 3
    writer.close()
    attempt.release()


def test_cleaning_that_hangs_delays_no_commit_and_misses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = set(threading.enumerate())  # of jobs that other tests have just ended
    attempt, goes_on = begun(str(tmp_path)), threading.Event()
    clean, cleaned = CheckpointStore.clean, []

    def slow(store: CheckpointStore, needed: Any, epoch: int) -> None:
        assert goes_on.wait(WAIT_S)
        clean(store, needed, epoch)
        cleaned.append(epoch)

    monkeypatch.setattr(CheckpointStore, "clean", slow)
    writer = CommitWriter(attempt)
    names = {epoch: f"u0-i0-e{epoch:08d}-1-0" for epoch in range(1, 21)}
    for epoch, name in names.items():
        attempt.store.write_snapshot(name, b"state")
        writer.submit(record(attempt, epoch, name))
    wait_for(writer, *names)
    goes_on.set()
    writer.close()
    assert not any(thread.name == "penstock-cleaning" for thread in set(threading.enumerate()) - others)
    assert cleaned[-1] == 20
    assert len(cleaned) <= 2, "what waited is cleared away at once"
    assert sorted(path.name for path in (tmp_path / "snapshots").iterdir()) == [names[18], names[19], names[20]]
    attempt.release()


def test_what_comes_in_the_way_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.runtime.attempts.lock_place", lambda *_: None)
    old = begun(str(tmp_path))
    writer = CommitWriter(old)
    writer.submit(record(old, 1))
    wait_for(writer, 1)
    new = begun(str(tmp_path))
    writer.submit(record(old, 2))
    with pytest.raises(CheckpointFenced):
        wait_for(writer, 2)
    writer.close()

    def full(*_: Any) -> None:
        raise OSError("no room")

    monkeypatch.setattr(CheckpointStore, "write_commit", full)
    writer = CommitWriter(new)
    writer.submit(record(new, 2))
    with pytest.raises(CheckpointUnavailable, match="no room"):
        wait_for(writer, 2)
    writer.close()
