"""A job under test is started again: what a real start finds in its checkpoint directory is kept in memory here."""

from __future__ import annotations

from zlib import crc32

from penstock.control.events import RecordCommit
from penstock.control.resume import anchors, outputs
from penstock.control.scheduler import Resumption
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m
from penstock.runtime.checkpoints import CheckpointStore, new_record
from penstock.runtime.restart import Restart


class _InMemory(CheckpointStore):
    """Snapshots in a dict."""

    def __init__(self, disk: dict[str, bytes]) -> None:
        self._disk = disk

    def write_snapshot(self, name: str, data: bytes) -> int:
        self._disk[name] = data
        return crc32(data)

    def read_snapshot(self, stored: m.Stored) -> bytes:
        return self._disk[stored.name]


Committed = tuple[Plan, RecordCommit]
"""The last commit of a job, and the plan of the run that made it."""


def resumption_of(committed: Committed | None, plan: Plan, disk: dict[str, bytes]) -> Resumption | None:
    """What a plan goes on from, after the job of another plan; None where that has committed nothing.

    Raises
    ------
    CheckpointMismatch
        When the pipeline does not fit; the difference is named.
    """
    if committed is None:
        return None
    before, last = committed
    record = new_record(
        job=plan.options.name,
        job_id=plan.job_id,
        attempt=1,
        epoch=last.epoch,
        generation=last.generation,
        start_us=last.start_us,
        final=last.final,
        anchors=anchors(before),
        sinks={},
        snapshots=list(last.snapshots),
        outputs=outputs(before),
        alternatives=last.alternatives,
    )
    return Restart(_InMemory(disk), record, plan).resumption()
