"""Sinks whose output is completed in the driver, an epoch at a time and beside its loop: `spark_sink`, `delta`.

An epoch is handed over when it is committed and all of its records are in the driver. The next epoch is computed
meanwhile, but recorded only when that is done. So after a crash of the driver the last recorded epoch, which is in the
snapshots of the sink's instances, is all that may have to be handed over again:

==========================================  ===========================================================================
a crash                                     what the next run does
==========================================  ===========================================================================
before epoch n is recorded                  its records are read and computed again, as another epoch n
after that, before n is handed over         the instances deliver n again; it is handed over
while it is handed over, or right after     likewise: n is handed over again, with the same records
when n + 1 is recorded                      the record says that n is done; n + 1 is handed over
==========================================  ===========================================================================

A crash of a worker repeats deliveries to a driver that recognises them; each epoch is handed over once.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from queue import SimpleQueue

from penstock.connectors.base import Sink
from penstock.errors import PenstockError, SinkFailed
from penstock.types import Record, Schema

_DRIVERS = ("_lock", "_rows", "_todo", "_waiting", "_reached", "_error", "_thread", "_is_released", "_done")
"""What stays in the driver's process."""


class FollowingSink(Sink):
    """A sink that gets committed epochs in the driver's process; its writers say ``is_followed``."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self, done: int = 0) -> None:
        """Begin a run, after the epoch that is done; `check` and `resume` do."""
        self._lock = threading.Condition()
        self._rows: dict[int, list[Record]] = {}
        """By epoch, what is not complete or not handed over."""
        self._todo: SimpleQueue[tuple[int, list[Record], Schema] | None] = SimpleQueue()
        self._waiting: set[int] = set()
        """Epochs that are complete, and not done."""
        self._reached = 0
        self._error: PenstockError | None = None
        self._thread: threading.Thread | None = None
        self._is_released = False
        self._done = done

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name not in _DRIVERS}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._begin()

    @abstractmethod
    def hand_over(self, epoch: int, rows: list[Record], schema: Schema) -> None:
        """Complete an epoch, in a thread of its own; raises a PenstockError, which fails the job."""

    # --- in the driver's loop -----------------------------------------------------------------------------------------

    def deliver_epoch(self, epoch: int, rows: list[Record], schema: Schema) -> None:
        del schema
        if epoch > self._done:
            self._rows.setdefault(epoch, []).extend(rows)

    def reached(self, epoch: int, schema: Schema) -> None:
        with self._lock:
            for each in sorted(number for number in self._rows if number <= epoch):
                self._waiting.add(each)
                self._todo.put((each, self._rows.pop(each), schema))
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="penstock-following", daemon=True)
                    self._thread.start()
            self._reached = epoch
            self._lock.notify_all()

    # --- beside it ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (given := self._todo.get()) is not None and self._error is None:
            try:
                self.hand_over(*given)
            except PenstockError as error:
                self._error = error
            except Exception as error:
                self._error = SinkFailed(sink=self.kind, cause=f"{type(error).__name__}: {error}")
            with self._lock:
                self._waiting.discard(given[0])
                self._lock.notify_all()

    def settle(self, epoch: int) -> dict[str, object]:
        with self._lock:
            self._lock.wait_for(
                lambda: (
                    self._error is not None
                    or self._is_released
                    or (self._reached >= epoch and not any(each <= epoch for each in self._waiting))
                )
            )
        if self._error is not None:
            raise self._error
        return {"done": epoch}

    def finish(self) -> None:
        with self._lock:
            self._lock.wait_for(lambda: self._error is not None or not self._waiting)
        if self._error is not None:
            raise self._error

    def release(self) -> None:
        with self._lock:
            self._is_released = True
            self._lock.notify_all()
        self._todo.put(None)
