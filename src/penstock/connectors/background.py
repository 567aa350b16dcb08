"""Writers of servers: a commit hands its epochs to a thread, so that no record waits for a server.

Databases, Redis and the webhook use it. The rows of an epoch stay in the writer, and in its snapshots, until the server
has them; so the state of an epoch is always one of these:

==========  =================================================  =======================================================
state       event                                              effect
==========  =================================================  =======================================================
open        ``prepare``                                        prepared: part of this snapshot and those that follow
prepared    ``commit``                                         queued: the thread writes it, behind those before it
queued      the server has it                                  done: forgotten, no later snapshot has it
queued      the server is away                                 the thread tries again, for `retry_s`; beyond
                                                               `QUEUED_ROWS_MAX` the instance takes no more records
queued      the server refuses, or is away for too long        failed: the next call raises, and the job fails
queued      the process is lost, or the instance rolled back   the next writer has it from the snapshot, and writes it
                                                               when it hears of the commit; the server knows what it
                                                               has (ledger, token, key of the request)
==========  =================================================  =======================================================
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections import deque

from penstock.connectors import patience
from penstock.connectors.buffered import BufferedWriter
from penstock.errors import PenstockError, SinkFailed
from penstock.types import Record, Schema

QUEUED_ROWS_MAX = 200_000
"""Committed rows that may wait for the server; then the instance takes no more."""
FINISH_S = 60.0
CLOSE_S = 2.0

Epochs = list[tuple[int, list[Record]]]
"""Rows by epoch, in the order of the epochs."""


class Stopped(Exception):
    """The writer was closed while the thread waited for the server."""


class BackgroundWriter(BufferedWriter):
    """Holds the rows of epochs that the server does not have yet; a subclass says how they get there.

    Attributes
    ----------
    shown : str
        How errors name the place.
    retry_s : float
        How long `publish` waits for a server that is away.
    """

    shown: str = ""
    retry_s: float = 0.0

    def __init__(self, schema: Schema, operation: str) -> None:
        super().__init__(schema)
        self._operation = operation
        self._submitted = -1
        self._done = -1
        self._queue: deque[tuple[int, list[Record]]] = deque()
        self._queued_rows = 0
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._failure: PenstockError | None = None
        self._thread: threading.Thread | None = None

    @abstractmethod
    def publish(self, ready: Epochs) -> None:
        """Write epochs to the server, those that it has not; called in the thread. It waits with `pause` only.

        A server that is away is asked again for `retry_s` (`Patience`): by then the job has gone on, or waits for it.
        """

    @abstractmethod
    def disconnect(self) -> None:
        """Free what `publish` holds."""

    def pause(self, seconds: float) -> None:
        """Wait within `publish`, unless the writer is closed meanwhile."""
        if self._stopping.wait(seconds):
            raise Stopped

    # --- the worker's side --------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def write(self, rows: list[Record]) -> None:
        self._check()
        super().write(rows)

    def prepare(self, epoch: int) -> None:
        self._check()
        super().prepare(epoch)

    def snapshot(self, epoch: int) -> bytes | None:
        self._settle()
        return super().snapshot(epoch)

    def commit(self, epoch: int) -> list[Record] | None:
        self._check()
        for each in sorted(self._prepared):
            if self._submitted < each <= epoch:
                self._submitted = each
                if rows := self._prepared[each]:
                    self._submit(each, rows)
                else:
                    del self._prepared[each]
        self._settle()
        return None

    def _submit(self, epoch: int, rows: list[Record]) -> None:
        with self._changed:
            self._queue.append((epoch, rows))
            self._queued_rows += len(rows)
            self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="penstock-sink", daemon=True)
            self._thread.start()

    def _settle(self) -> None:
        """Forget what the server has."""
        for each in [each for each in self._prepared if each <= self._done]:
            del self._prepared[each]

    @property
    def is_blocked(self) -> bool:
        return self._queued_rows > QUEUED_ROWS_MAX

    def finish(self) -> None:
        def until(seconds: float) -> bool:
            with self._changed:
                return self._changed.wait_for(lambda: not self._queue or self._failure is not None, seconds)

        limit_s = self.retry_s + FINISH_S
        ended = patience.wait(until, limit_s)
        self._check()
        if not ended:
            hint = "The job can be resumed from its checkpoint: it writes them."
            cause = f"the last epochs are committed and were not written within {limit_s:g} s"
            raise SinkFailed(sink=self.shown, cause=cause, hint=hint, operation=self._operation)

    def close(self) -> None:
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread is None:
            self.disconnect()
        else:
            self._thread.join(CLOSE_S)

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while (ready := self._next()) is not None:
                self.publish(ready)
                with self._changed:
                    self._done = ready[-1][0]
                    for _, rows in ready:
                        self._queue.popleft()
                        self._queued_rows -= len(rows)
                    self._changed.notify_all()
        except Stopped:
            pass
        except Exception as error:
            failure = error if isinstance(error, PenstockError) else None
            cause = f"{type(error).__name__}: {error}"
            with self._changed:
                self._failure = failure or SinkFailed(sink=self.shown, cause=cause, operation=self._operation)
                self._changed.notify_all()
        finally:
            self.disconnect()

    def _next(self) -> Epochs | None:
        """Wait for epochs, and return all that are there; None: the writer is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._stopping.is_set())
            return None if self._stopping.is_set() else list(self._queue)
