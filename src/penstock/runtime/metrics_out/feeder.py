"""A thread between the exporter and a place that may be slow or gone: bounded, counted, with one warning."""

from __future__ import annotations

import threading
import warnings
from collections import deque
from time import monotonic
from typing import Protocol

from penstock.runtime.metrics_out.samples import OutletFigures, Snapshot

QUEUE_MAX = 240
"""Snapshots that wait for a place that does not answer: two minutes of them; then the oldest are dropped."""
BACKOFF_S_FIRST = 0.5
BACKOFF_S_MAX = 8.0


class OutletFailed(Exception):
    """A place did not take a snapshot."""

    def __init__(self, what: str, *, again: bool) -> None:
        super().__init__(what)
        self.again = again
        """Whether the same snapshot may be taken later."""


class Writer(Protocol):
    """Hands snapshots to one place; may block."""

    def write(self, snapshot: Snapshot) -> None:
        """Hand over, or raise OutletFailed."""

    def close(self) -> None:
        """Let go of what is held."""


class Feeder:
    """Feeds one writer from a thread of its own."""

    def __init__(self, name: str, writer: Writer, queue_max: int = QUEUE_MAX) -> None:
        self.figures = OutletFigures(name)
        self._writer = writer
        self._queue: deque[Snapshot] = deque()
        self._queue_max = queue_max
        self._changed = threading.Condition()
        self._ending = threading.Event()
        self._warned = False
        self._thread = threading.Thread(target=self._run, name="penstock-metrics-out", daemon=True)
        self._thread.start()

    def offer(self, snapshot: Snapshot) -> None:
        """Take a snapshot; returns at once."""
        with self._changed:
            if len(self._queue) >= self._queue_max:
                self._queue.popleft()
                self.figures.dropped += 1
            self._queue.append(snapshot)
            self._changed.notify()

    def close(self, deadline_s: float) -> None:
        """Hand over what waits, until this moment of the monotonic clock; then leave the place alone."""
        with self._changed:
            self._ending.set()
            self._changed.notify()
        self._thread.join(max(0.0, deadline_s - monotonic()))
        if self._thread.is_alive():
            # The thread is in a call that does not come back in time. It is a daemon, and ends with that call.
            with self._changed:
                self.figures.dropped += len(self._queue)
                self._queue.clear()
            self._warn("it did not answer in time")

    def _run(self) -> None:
        backoff_s = BACKOFF_S_FIRST
        while (snapshot := self._next()) is not None:
            while True:
                try:
                    self._writer.write(snapshot)
                except OutletFailed as failed:
                    self.figures.failed += 1
                    self._warn(str(failed))
                    if failed.again and not self._ending.is_set():
                        self._ending.wait(backoff_s)
                        backoff_s = min(2 * backoff_s, BACKOFF_S_MAX)
                        continue
                    self.figures.dropped += 1
                else:
                    self.figures.sent += 1
                    backoff_s = BACKOFF_S_FIRST
                break
        self._writer.close()

    def _next(self) -> Snapshot | None:
        with self._changed:
            while not self._queue:
                if self._ending.is_set():
                    return None
                self._changed.wait()
            return self._queue.popleft()

    def _warn(self, what: str) -> None:
        if self._warned:
            return
        self._warned = True
        warn(f"metrics to {self.figures.outlet}: {what}. The job goes on; further failures are only counted.")


def warn(text: str) -> None:
    """Warn; a user who turns warnings into errors must not thereby end a thread of metrics."""
    try:
        # Not a line of the user's program is at fault, nor one of ours: none is shown.
        warnings.warn_explicit(text, RuntimeWarning, "<penstock>", 1)
    except RuntimeWarning:
        pass
