"""Snapshots and commit records on disk: written whole or not at all, checked when read; workers and the driver use it.

``snapshots/NAME`` is a worker's; ``commits/RUN-EPOCH.json`` is the driver's, the last write of an epoch: what it names
is all there. ``runs/RUN`` says that a run has begun; see `runtime/attempts.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from zlib import crc32

import msgspec

from penstock.control.events import WantedAlternative
from penstock.control.resume import Anchor, Output
from penstock.errors import CheckpointDamaged
from penstock.pipeline.routes import Shift
from penstock.protocol import messages as m
from penstock.runtime.places import open_place

_FORMAT = 6
KEPT_COMMITS = 2


class CommitRecord(msgspec.Struct):
    """What a job goes on from."""

    format: int
    job: str
    job_id: str
    """Drawn when the job began with nothing, and kept by every run that goes on from it."""
    attempt: int
    """Which run of the job has written this: the fencing token."""
    epoch: int
    generation: int
    start_us: int
    final: bool
    anchors: list[Anchor]
    """What holds state and offsets, to be compared before a resume."""
    sinks: dict[str, dict[str, object]]
    """State of each sink that the next run must know."""
    snapshots: list[m.Stored]
    outputs: list[Output]
    """Where each sink was: what it had prepared may be wanted elsewhere."""
    alternatives: dict[str, WantedAlternative] = {}
    """Which alternative each operation that has some was to use."""
    routes: list[Shift] = []
    """Key groups that go to another instance than they would at first; those of this epoch are about to."""


class CheckpointStore:
    """One job's directory of checkpoints.

    Parameters
    ----------
    path : str
        Directory, on a cluster one that all machines share; or a URL that fsspec can open.
    durable : bool
        Whether what is written must survive the machine, not only the process.
    """

    def __init__(self, path: str, *, durable: bool) -> None:
        self._snapshots = open_place(path, "snapshots", durable=durable)
        self._commits = open_place(path, "commits", durable=durable)
        self._runs = open_place(path, "runs", durable=durable)
        self._needed: deque[set[str]] = deque(maxlen=KEPT_COMMITS)
        """Names of the snapshots that each of the kept commits needs."""

    def create(self) -> None:
        """Make the directories."""
        self._snapshots.create()
        self._commits.create()
        self._runs.create()

    def claim(self, attempt: int) -> bool:
        """Begin a run under a number that no other has; False where there is one, or a newer one."""
        if not self._runs.claim(f"{attempt:06d}", b"begun\n") or self.newest_attempt() > attempt:
            return False
        self._runs.remove([name for name in self._runs.names() if _run_of(name) < attempt])
        return True

    def newest_attempt(self) -> int:
        """Number of the run that has begun last; 0 before there was any."""
        return max(map(_run_of, self._runs.names()), default=0)

    def wait_for(self, outage_s: float) -> None:
        """Wait for so long for a store that does not answer; a directory always does."""
        for place in (self._snapshots, self._commits, self._runs):
            place.wait_for(outage_s)

    def write_snapshot(self, name: str, data: bytes) -> int:
        """Store a snapshot and return its checksum."""
        self._snapshots.write(name, data)
        return crc32(data)

    def read_snapshot(self, stored: m.Stored) -> bytes:
        """Read a snapshot that a commit record names, or raise CheckpointDamaged naming the file."""
        path = self._snapshots.path(stored.name)
        try:
            data = self._snapshots.read(stored.name)
        except OSError as error:
            raise CheckpointDamaged(path=path, cause=error.strerror or str(error)) from None
        if crc32(data) != stored.crc:
            raise CheckpointDamaged(path=path, cause="its checksum is wrong")
        return data

    def write_commit(self, record: CommitRecord) -> None:
        """Make an epoch count."""
        packed = msgspec.json.encode(record)
        self._commits.write(f"{record.attempt:06d}-{record.epoch:010d}.json", b"%08x\n%b\n" % (crc32(packed), packed))

    def last_commit(self) -> CommitRecord | None:
        """Return the newest record of the newest run, or None in a new directory; a damaged one is refused by name."""
        names = self._commits.names()
        if not names:
            return None
        path = self._commits.path(names[-1])
        checksum, _, packed = self._commits.read(names[-1]).rstrip(b"\n").partition(b"\n")
        try:
            if int(checksum, 16) != crc32(packed):
                raise CheckpointDamaged(path=path, cause="its checksum is wrong")
            record = msgspec.json.decode(packed, type=CommitRecord)
        except (ValueError, msgspec.DecodeError) as error:
            raise CheckpointDamaged(path=path, cause=f"it cannot be read: {error}") from None
        if record.format != _FORMAT:
            raise CheckpointDamaged(path=path, cause=f"it is of format {record.format}, not {_FORMAT}")
        return record

    def keep(self, record: CommitRecord) -> None:
        """Count a record of a run before among those that are kept, with what it needs."""
        self._needed.append({stored.name for stored in record.snapshots})

    def clean(self, needed: Iterable[m.Stored], epoch: int) -> None:
        """Remove commit records but the newest, and snapshots of committed epochs that none of the kept ones needs."""
        self._commits.remove(self._commits.names()[:-KEPT_COMMITS])
        self._needed.append({stored.name for stored in needed})
        names = set().union(*self._needed)
        old = [name for name in self._snapshots.names() if -1 < _epoch_of(name) < epoch - KEPT_COMMITS]
        self._snapshots.remove([name for name in old if name not in names])


def new_record(
    *,
    job: str,
    job_id: str,
    attempt: int,
    epoch: int,
    generation: int,
    start_us: int,
    final: bool,
    anchors: list[Anchor],
    sinks: dict[str, dict[str, object]],
    snapshots: list[m.Stored],
    outputs: list[Output],
    alternatives: Mapping[str, WantedAlternative] | None = None,
    routes: Sequence[Shift] = (),
) -> CommitRecord:
    """Make a record in the present format."""
    return CommitRecord(
        _FORMAT,
        job,
        job_id,
        attempt,
        epoch,
        generation,
        start_us,
        final,
        anchors,
        sinks,
        snapshots,
        outputs,
        dict(alternatives or {}),
        list(routes),
    )


def _run_of(name: str) -> int:
    """Number of a run, of which there is a file of this name; 0 for what else there may be."""
    number = name.partition("-")[0]
    return int(number) if number.isdigit() else 0


def _epoch_of(name: str) -> int:
    """Epoch in a snapshot's name, ``u1-i0-e00000007-…``; -1 where there is none."""
    parts = name.split("-")
    return int(parts[2][1:]) if len(parts) > 2 and parts[2][1:].isdigit() else -1
