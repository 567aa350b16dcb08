"""Stores a worker's snapshots beside its work: one thread writes, the worker's loop is woken when a file is there."""

from __future__ import annotations

import os
import threading
from queue import SimpleQueue

from penstock.engine.share import Persist
from penstock.protocol import messages as m
from penstock.runtime.checkpoints import CheckpointStore


class SnapshotWriter:
    """Writes snapshots in order, in the background."""

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store
        self._todo: SimpleQueue[Persist | None] = SimpleQueue()
        self._done: SimpleQueue[m.Stored | Exception] = SimpleQueue()
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self._thread = threading.Thread(target=self._run, name="penstock-snapshots", daemon=True)
        self._thread.start()

    @property
    def fileno(self) -> int:
        """Becomes readable when something has been stored."""
        return self._read_end

    def submit(self, persist: Persist) -> None:
        """Have a snapshot stored."""
        self._todo.put(persist)

    def stored(self) -> list[m.Stored]:
        """Return what has been stored since the last call, or raise what the disk has answered."""
        if self._done.empty():
            return []
        try:
            os.read(self._read_end, 4096)
        except BlockingIOError:
            pass  # what is done is told in a moment; taken now, it is not there then
        found = []
        while not self._done.empty():
            each = self._done.get()
            if isinstance(each, Exception):
                raise each
            found.append(each)
        return found

    def _run(self) -> None:
        while (persist := self._todo.get()) is not None:
            try:
                crc = self._store.write_snapshot(persist.name, persist.data)
            except Exception as error:
                self._done.put(error)
            else:
                self._done.put(
                    m.Stored(
                        unit=persist.unit,
                        instance=persist.instance,
                        epoch=persist.epoch,
                        depth=persist.depth,
                        name=persist.name,
                        crc=crc,
                    )
                )
            os.write(self._write_end, b"x")

    def close(self) -> None:
        """Finish what was submitted, and end."""
        self._todo.put(None)
        self._thread.join()
        os.close(self._read_end)
        os.close(self._write_end)
