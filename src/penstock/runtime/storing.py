"""Stores a worker's snapshots beside its work, and reads them back; its loop is woken when something is done.

Several threads: where a store takes 100 ms for a call, the snapshots of ten instances shall not take a second.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import NamedTuple, Protocol

from penstock.connectors.store import OUTAGE_S
from penstock.engine.snapshot import InstanceId, Persist, by_instance
from penstock.errors import PenstockError
from penstock.protocol import messages as m

_THREADS = 4
_CLOSE_S = 5.0
"""How long a call to a store may still take when the worker ends."""

Restored = dict[InstanceId, list[bytes]]
"""Snapshots that were read back, by instance, in the order that was asked for."""


class Fetched(NamedTuple):
    """A snapshot that was read beside the work; None: it is not there any more."""

    stored: m.Stored
    data: bytes | None


Done = m.Stored | Restored | Fetched
_Work = Callable[[], "Done | None"]


class SnapshotStore(Protocol):
    """Where snapshots are kept: the checkpoint, or the driver."""

    def write_snapshot(self, name: str, data: bytes) -> int: ...

    def read_snapshot(self, stored: m.Stored) -> bytes: ...

    def wait_for(self, outage_s: float) -> None: ...


class SnapshotWriter:
    """Writes and reads snapshots in the background."""

    def __init__(self, store: SnapshotStore) -> None:
        self._store = store
        store.wait_for(OUTAGE_S)
        self._todo: list[SimpleQueue[_Work | None]] = [SimpleQueue() for _ in range(_THREADS)]
        self._done: SimpleQueue[Done | Exception] = SimpleQueue()
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self._threads = [
            threading.Thread(target=self._run, args=[todo], name="penstock-snapshots", daemon=True)
            for todo in self._todo
        ]
        for thread in self._threads:
            thread.start()

    @property
    def fileno(self) -> int:
        """Becomes readable when something has been stored or read."""
        return self._read_end

    def submit(self, persist: Persist) -> None:
        """Have a snapshot stored, behind those of the same instance."""
        self._todo[(persist.unit + persist.instance) % _THREADS].put(lambda: self._write(persist))

    def read(self, snapshots: Sequence[m.Stored]) -> None:
        """Have snapshots read back, all of them for one answer."""
        found = [b""] * len(snapshots)
        left, lock = [len(snapshots)], threading.Lock()

        def read_one(at: int) -> Restored | None:
            found[at] = self._store.read_snapshot(snapshots[at])
            with lock:
                left[0] -= 1
                return None if left[0] else by_instance(zip(snapshots, found, strict=True))

        if not snapshots:
            self._todo[0].put(dict)
        for at in range(len(snapshots)):
            self._todo[at % _THREADS].put(partial(read_one, at))

    def fetch(self, stored: m.Stored) -> None:
        """Have a snapshot read that nobody waits for."""

        def read() -> Fetched:
            try:
                return Fetched(stored, self._store.read_snapshot(stored))
            except (OSError, PenstockError):
                return Fetched(stored, None)  # whoever counts on it, in a recovery, finds out why

        self._todo[-1].put(read)

    def done(self) -> list[Done]:
        """Return what has been stored and read since the last call, or raise what the disk has answered."""
        if self._done.empty():
            return []
        try:
            os.read(self._read_end, 4096)
        except BlockingIOError:
            pass  # what is done is told in a moment; taken now, it is not there then
        found: list[Done] = []
        while not self._done.empty():
            each = self._done.get()
            if isinstance(each, Exception):
                raise each
            found.append(each)
        return found

    def _write(self, persist: Persist) -> m.Stored:
        for upload in persist.uploads:
            upload()
        return persist.stored(self._store.write_snapshot(persist.name, persist.data))

    def _run(self, todo: SimpleQueue[_Work | None]) -> None:
        while (work := todo.get()) is not None:
            try:
                done = work()
            except Exception as error:
                self._done.put(error)
            else:
                if done is None:
                    continue
                self._done.put(done)
            os.write(self._write_end, b"x")

    def close(self) -> None:
        """Finish what was submitted, and end; a store that is away is not waited for."""
        self._store.wait_for(0)
        for todo in self._todo:
            todo.put(None)
        for thread in self._threads:
            thread.join(_CLOSE_S)
        if not any(thread.is_alive() for thread in self._threads):
            os.close(self._read_end)
            os.close(self._write_end)
