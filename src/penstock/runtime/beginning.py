"""What a job begins with where its own checkpoint is new: the state that `ps.bootstrap` has written, if it is given."""

from __future__ import annotations

import msgspec

from penstock.connectors.store import START_OUTAGE_S, shown
from penstock.errors import InvalidOption
from penstock.pipeline.options import Options
from penstock.runtime.checkpoints import CheckpointStore, CommitRecord


def given_start(options: Options) -> CommitRecord | None:
    """What the user gives the job to begin with, as a commit of its own; the place itself is never written to."""
    if not options.bootstrap:
        return None
    record = _store(options).last_commit()
    if record is None or not record.epoch:
        allowed = "a directory that ps.bootstrap has written"
        raise InvalidOption(option="bootstrap", given=shown(options.bootstrap), allowed=allowed)
    return msgspec.structs.replace(record, job=options.name, job_id="", attempt=0)


def take_start(options: Options, record: CommitRecord, store: CheckpointStore) -> None:
    """Copy the snapshots that the job begins with into its own checkpoint; doing it again changes nothing."""
    place = _store(options)
    for stored in record.snapshots:
        store.write_snapshot(stored.name, place.read_snapshot(stored))


def _store(options: Options) -> CheckpointStore:
    store = CheckpointStore(options.bootstrap, durable=True)
    store.wait_for(START_OUTAGE_S)
    return store
