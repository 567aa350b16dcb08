"""Writes commit records beside the driver's loop, which is woken when one is there, and clears away what is outdated.

A store may take long, or be away: the loop goes on meanwhile, and no worker hears of the epoch before it is recorded.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from queue import SimpleQueue

from penstock.connectors.store import OUTAGE_S, shown
from penstock.errors import CheckpointUnavailable, naming
from penstock.runtime.attempts import Attempt
from penstock.runtime.checkpoints import CommitRecord

CLOSE_S = 5.0
"""How long the end of a job waits for what is outdated to be gone; the next run clears away what is left."""


class CommitWriter:
    """Writes one run's commit records in order, in the background."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        attempt.store.wait_for(OUTAGE_S)
        self._settled_epoch = attempt.epoch
        """The last epoch that is recorded: sinks must be done with it before the next one is."""
        self._todo: SimpleQueue[CommitRecord | None] = SimpleQueue()
        self._outdated: SimpleQueue[CommitRecord | None] = SimpleQueue()
        self._done: SimpleQueue[int | Exception] = SimpleQueue()
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self._closed = threading.Lock()
        self._is_closed = False
        self._threads = [
            threading.Thread(target=self._write, name="penstock-commits", daemon=True),
            threading.Thread(target=self._clean, name="penstock-cleaning", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def fileno(self) -> int:
        """Becomes readable when a record has been written."""
        return self._read_end

    def submit(self, record: CommitRecord) -> None:
        """Have a record written."""
        self._todo.put(record)

    def recorded(self) -> list[int]:
        """Return the epochs that were recorded since the last call, or raise what has come in the way."""
        if self._done.empty():
            return []
        with suppress(BlockingIOError):  # what is done is told in a moment; taken now, it is not there then
            os.read(self._read_end, 4096)
        found = []
        while not self._done.empty():
            each = self._done.get()
            if isinstance(each, Exception):
                raise each
            found.append(each)
        return found

    def _write(self) -> None:
        while (record := self._todo.get()) is not None:
            try:
                record.sinks = self._settled(record.sinks)
                self._attempt.commit(record)
                self._settled_epoch = record.epoch
            except OSError as error:
                self._tell(CheckpointUnavailable(place=shown(self._attempt.plan.options.checkpoint), cause=error))
            except Exception as error:
                self._tell(error)
            else:
                self._tell(record.epoch)
                self._outdated.put(record)
        self._outdated.put(None)

    def _settled(self, states: dict[str, dict[str, object]]) -> dict[str, dict[str, object]]:
        """Wait until the driver's part of all that is recorded is done; return the states of the sinks with it."""
        settled = dict(states)
        for name, sink in self._attempt.plan.sinks.items():
            with naming(name):
                told = sink.settle(self._settled_epoch)
            if told:
                settled[name] = {**states.get(name, {}), **told}
        return settled

    def _tell(self, done: int | Exception) -> None:
        with self._closed:
            self._done.put(done)
            if not self._is_closed:
                os.write(self._write_end, b"x")

    def _clean(self) -> None:
        store, latest = self._attempt.store, self._outdated.get()
        while latest is not None:
            following: CommitRecord | None = latest
            while following is not None and not self._outdated.empty():
                following = self._outdated.get()
                if following is not None:
                    store.keep(latest)  # the next one clears away for both
                    latest = following
            # What cannot be removed today is found again tomorrow.
            with suppress(OSError):
                store.clean(latest.snapshots, latest.epoch)
            latest = self._outdated.get() if following is not None else None

    def close(self) -> None:
        """Finish, for a moment, what was submitted, and end."""
        self._todo.put(None)
        self._attempt.store.wait_for(0)
        for thread in self._threads:
            thread.join(CLOSE_S)
        with self._closed:
            self._is_closed = True
            os.close(self._read_end)
            os.close(self._write_end)
