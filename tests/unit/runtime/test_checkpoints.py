"""Snapshots and commit records on disk: whole or not there, refused by name when damaged, removed when not needed."""

from __future__ import annotations

import select
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.control.resume import Output, moved_shifts
from penstock.engine.worker import Persist
from penstock.errors import CheckpointDamaged
from penstock.pipeline.routes import Shift
from penstock.protocol import messages as m
from penstock.runtime.checkpoints import KEPT_COMMITS, CheckpointStore, CommitRecord, new_record
from penstock.runtime.places import Directory, open_place
from penstock.runtime.storing import SnapshotWriter


@pytest.fixture(params=[False, True], ids=["fast", "durable"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> CheckpointStore:
    made = CheckpointStore(str(tmp_path / "deep" / "checkpoint"), durable=request.param)
    made.create()
    return made


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "checkpoint"


def name_of(epoch: int, unit: int = 0) -> str:
    return f"u{unit}-i0-e{epoch:08d}-abc-0"


def write(store: CheckpointStore, epoch: int, data: bytes = b"state", *, depth: int = 0, unit: int = 0) -> m.Stored:
    name = name_of(epoch, unit)
    return m.Stored(unit=unit, instance=0, epoch=epoch, depth=depth, name=name, crc=store.write_snapshot(name, data))


def record(epoch: int, *snapshots: m.Stored, attempt: int = 1) -> CommitRecord:
    return new_record(
        job="job",
        job_id="ab12",
        attempt=attempt,
        epoch=epoch,
        generation=2,
        start_us=5,
        final=False,
        anchors=[],
        sinks={"out": {"first_part": 3}},
        snapshots=list(snapshots),
        outputs=[Output("out", "files", "n bigint", 0, 1)],
        routes=[Shift(unit=1, old=0, new=1, groups=[3, 4], epoch=epoch)],
    )


def test_a_commit_says_where_key_groups_are(store: CheckpointStore) -> None:
    store.write_commit(record(7))
    last = store.last_commit()
    assert last is not None
    shift = Shift(unit=1, old=0, new=1, groups=[3, 4], epoch=7)
    assert last.routes == [shift]
    assert moved_shifts(last.routes, {1: 5}, []) == [msgspec.structs.replace(shift, unit=5)]
    assert moved_shifts(last.routes, {1: 5}, [5]) == [], "all groups are dealt out anew"
    assert moved_shifts(last.routes, {2: 5}, []) == [], "the unit is gone"


def test_what_is_written_is_read(store: CheckpointStore, root: Path) -> None:
    stored = write(store, 1, b"\x00state")
    assert store.read_snapshot(stored) == b"\x00state"
    assert write(store, 1, b"later").crc != stored.crc, "written again after a rollback"
    assert [path.name for path in (root / "snapshots").iterdir()] == [name_of(1)], "nothing half-written is left"


def test_a_missing_or_damaged_snapshot_is_named(store: CheckpointStore, root: Path) -> None:
    stored = write(store, 1, b"state of the job")
    path = root / "snapshots" / stored.name
    for damaged in (b"state of the jab", b"state", b""):
        path.write_bytes(damaged)
        with pytest.raises(CheckpointDamaged, match=f"{path}.*checksum"):
            store.read_snapshot(stored)
    path.unlink()
    with pytest.raises(CheckpointDamaged, match=f"{path}.*No such file"):
        store.read_snapshot(stored)


def test_a_half_written_file_has_another_name(store: CheckpointStore, root: Path) -> None:
    """A process that died in the middle leaves its temporary file, which nobody reads."""
    store.write_commit(record(1))
    (root / "commits" / "000001-0000000002.json.tmp").write_bytes(b"0")
    last = store.last_commit()
    assert last is not None
    assert last.epoch == 1


def test_the_newest_commit_counts(store: CheckpointStore) -> None:
    assert store.last_commit() is None
    for epoch in (1, 2, 10):
        store.write_commit(record(epoch, write(store, epoch)))
    assert store.last_commit() == record(10, write(store, 10))


def test_what_a_newer_run_has_committed_counts_more_than_a_later_epoch_of_an_older_one(store: CheckpointStore) -> None:
    for attempt, epoch in ((1, 8), (2, 7), (1, 9), (1, 10)):
        store.write_commit(record(epoch, attempt=attempt))
    last = store.last_commit()
    assert last is not None
    assert (last.attempt, last.epoch) == (2, 7)


def test_a_run_has_a_number_of_its_own(store: CheckpointStore) -> None:
    assert store.newest_attempt() == 0
    assert [store.claim(attempt) for attempt in (1, 1, 2, 3)] == [True, False, True, True]
    assert store.newest_attempt() == 3
    assert not store.claim(2), "its mark was removed, and yet there is a newer run"


def test_a_new_directory_has_no_commit(tmp_path: Path) -> None:
    assert CheckpointStore(str(tmp_path / "none"), durable=True).last_commit() is None


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda data: data[:-10], "checksum"),
        (lambda data: data.replace(b'"epoch":1', b'"epoch":7'), "checksum"),
        (lambda data: b"", "cannot be read"),
        (lambda data: b"not a record at all", "cannot be read"),
    ],
)
def test_a_damaged_commit_record_is_named(store: CheckpointStore, root: Path, damage: Any, says: str) -> None:
    store.write_commit(record(1))
    path = root / "commits" / "000001-0000000001.json"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CheckpointDamaged, match=f"{path}.*{says}"):
        store.last_commit()


def test_a_record_of_another_format_is_named(store: CheckpointStore) -> None:
    other = record(1)
    other.format = 99
    store.write_commit(other)
    with pytest.raises(CheckpointDamaged, match="format 99"):
        store.last_commit()


def test_cleaning_keeps_what_the_last_commit_needs_and_what_is_under_way(store: CheckpointStore, root: Path) -> None:
    chain: list[m.Stored] = []
    before: list[m.Stored] = []
    for epoch in range(1, 13):
        full = epoch in (1, 4)
        before = chain
        chain = [*([] if full else chain), write(store, epoch, depth=0 if full else len(chain))]
        write(store, epoch, unit=1)
        store.write_commit(
            record(epoch, *chain, m.Stored(unit=1, instance=0, epoch=epoch, depth=0, name=name_of(epoch, 1), crc=0))
        )
        write(store, epoch + 1, unit=2)  # the next epoch is already being written
        store.clean([*chain, m.Stored(unit=1, instance=0, epoch=epoch, depth=0, name=name_of(epoch, 1), crc=0)], epoch)
        for each in [*chain, *before]:
            assert store.read_snapshot(each) == b"state"
        assert (root / "snapshots" / name_of(epoch + 1, 2)).exists()
        commits = sorted((root / "commits").iterdir())
        assert [path.name for path in commits] == [
            f"000001-{kept:010d}.json" for kept in range(max(1, epoch - KEPT_COMMITS + 1), epoch + 1)
        ]
    names = {path.name for path in (root / "snapshots").iterdir()}
    assert name_of(3) not in names, "before the whole one"
    assert name_of(5, 1) not in names
    assert len(names) < 9 + 2 * (KEPT_COMMITS + 2)


def test_cleaning_leaves_strange_files_alone(store: CheckpointStore, root: Path) -> None:
    for name in ("README", "u1-i0", "u1-i0-exyz-1-0"):
        (root / "snapshots" / name).write_bytes(b"mine")
    store.clean([], 1000)
    assert len(list((root / "snapshots").iterdir())) == 3


# --- the thread that writes -------------------------------------------------------------------------------------------


def persist(epoch: int, data: bytes = b"state") -> Persist:
    return Persist(0, 0, epoch, True, name_of(epoch), data)


def wait_for(writer: SnapshotWriter, count: int) -> list[m.Stored]:
    """Wait as a worker does: until the descriptor is readable."""
    found: list[m.Stored] = []
    while len(found) < count:
        assert select.select([writer.fileno], [], [], 10)[0], "the writer says nothing"
        found += writer.done()
    return found


def test_snapshots_are_stored_in_order(store: CheckpointStore) -> None:
    writer = SnapshotWriter(store)
    assert writer.done() == []
    for epoch in range(1, 51):
        writer.submit(persist(epoch, b"%d" % epoch))
    found = wait_for(writer, 50)
    assert [each.epoch for each in found] == list(range(1, 51))
    assert [store.read_snapshot(each) for each in found] == [b"%d" % epoch for epoch in range(1, 51)]
    assert writer.done() == []
    writer.close()


def test_closing_finishes_what_was_submitted(store: CheckpointStore, root: Path) -> None:
    writer = SnapshotWriter(store)
    for epoch in range(1, 21):
        writer.submit(persist(epoch))
    writer.close()
    assert len(list((root / "snapshots").iterdir())) == 20


def test_what_the_disk_answers_is_raised(tmp_path: Path) -> None:
    writer = SnapshotWriter(CheckpointStore(str(tmp_path / "was never made"), durable=False))
    writer.submit(persist(1))
    with pytest.raises(OSError, match="was never made"):
        wait_for(writer, 1)
    writer.close()


def test_a_file_url_is_a_directory_with_all_that_it_promises(tmp_path: Path) -> None:
    place = open_place(f"file://{tmp_path}", "snapshots", durable=True)
    assert isinstance(place, Directory)
    place.create()
    place.write("a", b"1")
    assert (tmp_path / "snapshots" / "a").read_bytes() == b"1"
