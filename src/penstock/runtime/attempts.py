"""Which run may write to a checkpoint directory: one at a time, and a run that was overtaken commits nothing.

Every start of a job is an attempt with a number of its own, which is in the name and in the text of each commit record
that it writes. Records count in the order of attempt and epoch. A is the older run, B the one that is starting:

====  ===  =============================================  ===========================================================
step  who  what                                           why
====  ===  =============================================  ===========================================================
1     B    locks the directory                            refused while A lives; object stores have no locks
2     B    reads the newest record, of attempt a          a pipeline that does not fit it is refused, and A goes on
3     B    creates ``runs/a+1``, which must be new        of two that start at once, one is refused
4     B    reads the newest record once more: (a, n)      A may have gone on committing since step 2
5     B    writes it as its own, (a + 1, n)               a record that A writes from now on never counts
6     B    publishes n, goes on with n + 1
any   A    writes (a, n), then looks for a run above a    there is one: A fails, and no worker hears of n
====  ===  =============================================  ===========================================================

If A finds no newer run when (a, n) is written, B has not done step 3 yet, finds (a, n) in step 4, and publishes n as A
does, which is idempotent. If A finds one, nobody publishes n for A; B goes on from n, or from the one before, and A's
output of n stays invisible. A job that begins with nothing writes a record of epoch 0 in step 5.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import IO

import msgspec

from penstock.connectors.store import START_OUTAGE_S, is_url, shown
from penstock.errors import CheckpointFenced, CheckpointInUse, CheckpointUnavailable, InvalidOption
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Basis, Plan
from penstock.runtime.checkpoints import CheckpointStore, CommitRecord, new_record
from penstock.runtime.places import lock_place
from penstock.runtime.restart import Restart

_START_AGAIN = "Start it again, so that it goes on from there."


class Attempt:
    """One run's turn at its checkpoint directory, from its start to `release`.

    Attributes
    ----------
    plan : Plan
        What runs, with the identity of the job.
    store : CheckpointStore
        Where it keeps snapshots and commits.
    restart : Restart or None
        What it goes on from, if there is anything.
    number : int
        The fencing token; 0 in a directory that no other run can know of.
    """

    def __init__(self, plan: Plan, store: CheckpointStore, number: int = 0, restart: Restart | None = None) -> None:
        self.plan = plan
        self.store = store
        self.number = number
        self.restart = restart
        self._lock: IO[str] | None = None

    @property
    def epoch(self) -> int:
        """The epoch that it goes on from; 0 where it begins with nothing."""
        return self.restart.epoch if self.restart is not None else 0

    @staticmethod
    def begin(plan: Plan) -> Attempt:
        """Take the checkpoint directory over, from a run that has ended.

        Raises
        ------
        CheckpointInUse
            When another run has it, or has been there since the plan was made.
        CheckpointMismatch
            When the pipeline does not fit; the difference is named.
        """
        options = plan.options
        store = _opened(options)
        if not options.durable:
            store.create()
            return Attempt(replace(plan, job_id=_new_id()), store)
        lock = _lock(options)
        try:
            with _reached(options):
                attempt = _claim(plan, store)
        except BaseException:
            if lock is not None:
                lock.close()
            raise
        attempt._lock = lock
        return attempt

    def commit(self, record: CommitRecord) -> None:
        """Write a commit record; CheckpointFenced if a newer run has begun, and then nobody may hear of the epoch."""
        self.store.write_commit(record)
        if self.number and (newer := self.store.newest_attempt()) > self.number:
            raise CheckpointFenced(place=self.plan.options.checkpoint, attempt=self.number, newer=newer)

    def release(self) -> None:
        """Let the next run in."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def look(options: Options) -> tuple[CommitRecord | None, Basis]:
    """Look at what a job would go on from, and change nothing; for planning."""
    if not options.durable:
        return None, Basis()
    store = _opened(options)
    with _reached(options):
        begun, last = store.newest_attempt(), store.last_commit()
    if last is None or not last.epoch:
        return None, Basis(begun=begun)
    return last, Basis(last.job_id, last.attempt, begun)


def _opened(options: Options) -> CheckpointStore:
    store = CheckpointStore(options.checkpoint, durable=options.durable)
    store.wait_for(START_OUTAGE_S)
    return store


@contextmanager
def _reached(options: Options) -> Iterator[None]:
    """Turn what a store refuses into an error that names it; a directory speaks for itself."""
    try:
        yield
    except OSError as error:
        if not is_url(options.checkpoint):
            raise
        raise CheckpointUnavailable(place=shown(options.checkpoint), cause=error) from None


def _lock(options: Options) -> IO[str] | None:
    holder = f"job '{options.name}', process {os.getpid()} on {socket.gethostname()}"
    try:
        return lock_place(options.checkpoint, holder)
    except BlockingIOError as held:
        raise CheckpointInUse(
            place=options.checkpoint,
            cause=f"is in use by {held}" if str(held) else "is in use by another run",
            hint="Wait for its end, or stop it; two jobs need two directories.",
        ) from None
    except OSError as error:
        allowed = f"a directory that can be written ({error.strerror})"
        raise InvalidOption(option="checkpoint", given=options.checkpoint, allowed=allowed) from None


def _claim(plan: Plan, store: CheckpointStore) -> Attempt:
    """Steps 2 to 5."""
    options, number = plan.options, plan.basis.begun + 1
    last, basis = look(options)
    changed = CheckpointInUse(
        place=options.checkpoint, cause="was used by another run after this one was planned", hint=_START_AGAIN
    )
    if basis != plan.basis:
        raise changed
    restart = Restart(store, last, plan) if last is not None else None
    store.create()
    if not store.claim(number):
        raise changed
    last, basis = look(options)
    if (basis.job_id, basis.attempt) != (plan.basis.job_id, plan.basis.attempt):
        raise changed
    if last is None or restart is None:
        own = new_record(
            job=options.name,
            job_id=_new_id(),
            attempt=number,
            epoch=0,
            generation=0,
            start_us=0,
            final=False,
            anchors=[],
            sinks={},
            snapshots=[],
            outputs=[],
        )
    else:
        restart.go_on_from(last)
        own = msgspec.structs.replace(last, attempt=number)
    store.write_commit(own)
    store.keep(own)
    return Attempt(replace(plan, job_id=own.job_id), store, number, restart)


def _new_id() -> str:
    return os.urandom(8).hex()
