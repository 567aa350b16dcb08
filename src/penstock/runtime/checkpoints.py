"""Snapshots and commit records on disk: written whole or not at all, checked when read; workers and the driver use it.

``snapshots/NAME`` is a worker's; ``commits/EPOCH.json`` is the driver's, the last write of an epoch: what it names is
all there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from zlib import crc32

import msgspec

from penstock.control.resume import Anchor
from penstock.errors import CheckpointDamaged
from penstock.protocol import messages as m

_FORMAT = 1
KEPT_COMMITS = 2


class CommitRecord(msgspec.Struct):
    """What a job goes on from."""

    format: int
    job: str
    epoch: int
    generation: int
    start_us: int
    final: bool
    anchors: list[Anchor]
    """What holds state and offsets, to be compared before a resume."""
    sinks: dict[str, dict[str, object]]
    """State of each sink that the next run must know."""
    snapshots: list[m.Stored]


class CheckpointStore:
    """One job's directory of checkpoints.

    Parameters
    ----------
    path : str
        Directory; on a cluster one that all machines share.
    durable : bool
        Whether what is written must survive the machine, not only the process.
    """

    def __init__(self, path: str, *, durable: bool) -> None:
        self._root = Path(path)
        self._durable = durable
        self._snapshots = self._root / "snapshots"
        self._commits = self._root / "commits"

    def create(self) -> None:
        """Make the directories."""
        self._snapshots.mkdir(parents=True, exist_ok=True)
        self._commits.mkdir(parents=True, exist_ok=True)

    def write_snapshot(self, name: str, data: bytes) -> int:
        """Store a snapshot and return its checksum."""
        self._write(self._snapshots / name, data)
        return crc32(data)

    def read_snapshot(self, stored: m.Stored) -> bytes:
        """Read a snapshot that a commit record names, or raise CheckpointDamaged naming the file."""
        path = self._snapshots / stored.name
        try:
            data = path.read_bytes()
        except OSError as error:
            raise CheckpointDamaged(path=str(path), cause=error.strerror or str(error)) from None
        if crc32(data) != stored.crc:
            raise CheckpointDamaged(path=str(path), cause="its checksum is wrong")
        return data

    def write_commit(self, record: CommitRecord) -> None:
        """Make an epoch count."""
        packed = msgspec.json.encode(record)
        self._write(self._commits / f"{record.epoch:010d}.json", b"%08x\n%b\n" % (crc32(packed), packed))

    def last_commit(self) -> CommitRecord | None:
        """Return the newest commit record, or None in a new directory; a damaged one is refused by name."""
        if not self._commits.is_dir():
            return None
        paths = sorted(self._commits.glob("*.json"))
        if not paths:
            return None
        checksum, _, packed = paths[-1].read_bytes().rstrip(b"\n").partition(b"\n")
        try:
            if int(checksum, 16) != crc32(packed):
                raise CheckpointDamaged(path=str(paths[-1]), cause="its checksum is wrong")
            record = msgspec.json.decode(packed, type=CommitRecord)
        except (ValueError, msgspec.DecodeError) as error:
            raise CheckpointDamaged(path=str(paths[-1]), cause=f"it cannot be read: {error}") from None
        if record.format != _FORMAT:
            raise CheckpointDamaged(path=str(paths[-1]), cause=f"it is of format {record.format}, not {_FORMAT}")
        return record

    def clean(self, needed: Iterable[m.Stored], epoch: int) -> None:
        """Remove commit records but the newest, and snapshots of committed epochs that none of the kept ones needs."""
        commits = sorted(self._commits.glob("*.json"))
        for path in commits[:-KEPT_COMMITS]:
            path.unlink(missing_ok=True)
        names = {stored.name for stored in needed}
        for path in self._snapshots.iterdir():
            written_in = _epoch_of(path.name)
            if path.name not in names and written_in is not None and written_in < epoch - KEPT_COMMITS:
                path.unlink(missing_ok=True)

    def _write(self, path: Path, data: bytes) -> None:
        temporary = path.with_name(path.name + ".tmp")
        with temporary.open("wb") as file:
            file.write(data)
            if self._durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
        if self._durable:
            directory = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)


def new_record(
    *,
    job: str,
    epoch: int,
    generation: int,
    start_us: int,
    final: bool,
    anchors: list[Anchor],
    sinks: dict[str, dict[str, object]],
    snapshots: list[m.Stored],
) -> CommitRecord:
    """Make a record in the present format."""
    return CommitRecord(_FORMAT, job, epoch, generation, start_us, final, anchors, sinks, snapshots)


def _epoch_of(name: str) -> int | None:
    """Epoch in a snapshot's name, ``u1-i0-e00000007-…``."""
    parts = name.split("-")
    return int(parts[2][1:]) if len(parts) > 2 and parts[2][1:].isdigit() else None
