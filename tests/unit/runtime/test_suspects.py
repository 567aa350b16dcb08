"""The note of careful mode: what stands in it when a process is lost is counted, once, and quarantined in the end."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.runtime import suspects
from penstock.runtime.suspects import open_guard
from penstock.types import Schema

RECORD = Schema.parse("n bigint").record_type(7)
OTHER = Schema.parse("n bigint").record_type(8)


def lose(checkpoint: Path, operation: str = "deadly", worker: int = 0) -> int:
    """A process opens its note, begins with the record, and is gone; return what its guard said before."""
    return open_guard(str(checkpoint), worker).losses(operation, RECORD)


def test_a_record_is_quarantined_after_enough_losses(tmp_path: Path) -> None:
    assert [lose(tmp_path) for _ in range(4)] == [0, 0, 2, 2]
    assert open_guard(str(tmp_path), 0).losses("deadly", OTHER) == 0


def test_losses_of_several_workers_count_together(tmp_path: Path) -> None:
    assert [lose(tmp_path, worker=0), lose(tmp_path, worker=1)] == [0, 0]
    assert open_guard(str(tmp_path), 0).losses("deadly", OTHER) == 0
    assert lose(tmp_path, worker=1) == 2


def test_a_record_before_two_operations_is_two_suspects(tmp_path: Path) -> None:
    assert [lose(tmp_path, "first"), lose(tmp_path, "second"), lose(tmp_path, "first")] == [0, 0, 0]
    assert lose(tmp_path, "second") == 0
    assert lose(tmp_path, "first") == 2


def test_a_record_that_was_done_is_no_suspect(tmp_path: Path) -> None:
    for _ in range(3):
        guard = open_guard(str(tmp_path), 0)
        assert guard.losses("deadly", RECORD) == 0
        guard.done()


def test_a_loss_while_counting_counts_once(tmp_path: Path) -> None:
    lose(tmp_path)
    note = tmp_path / "suspects" / "worker-0.note"
    shutil.copy(note, tmp_path / "before")
    open_guard(str(tmp_path), 0)
    shutil.copy(tmp_path / "before", note)  # as if the process had gone before it began a new note
    assert lose(tmp_path) == 0
    assert lose(tmp_path) == 2


def test_a_loss_while_writing_leaves_the_count_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lose(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(suspects.os, "fsync", lambda descriptor: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            open_guard(str(tmp_path), 0)
    assert [lose(tmp_path), lose(tmp_path)] == [0, 2]
