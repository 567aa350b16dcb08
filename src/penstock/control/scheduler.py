"""The central scheduler of one job as a pure state machine: events and the time in, commands out.

=========  =================================  =============================================  =========
phase      event                              commands                                       next
=========  =================================  =============================================  =========
STARTING   Register, not yet from everyone    —                                              STARTING
STARTING   Register, now from everyone        Start to all                                   RUNNING
STARTING   Tick after the start timeout       Finish(error)                                  ENDED
RUNNING    Tick, interval over, none pending  BeginEpoch(n) to all                           RUNNING
any live   EpochDone(n) from everyone         Commit(n) to all                               same
RUNNING    DrainRequested                     Drain to all                                   DRAINING
any live   Finished from everyone             Commit(last + 1, final) to all                 ENDING
ENDING     Stopped from everyone              Finish                                         ENDED
any live   Failed                             Stop to all, Finish(error)                     ENDED
any live   Tick, a worker silent too long     Stop to all, Finish(error)                     ENDED
any        HostEnded                          Finish(error), or Finish in ENDING             ENDED
any        StopRequested                      Stop to all, Finish                            ENDED
=========  =================================  =============================================  =========

A message from an incarnation that is not the registered one is refused and counted.
"""

from __future__ import annotations

from enum import Enum

from penstock.control.events import (
    Command,
    DrainRequested,
    Event,
    Finish,
    FromWorker,
    HostEnded,
    Send,
    StopRequested,
    Tick,
)
from penstock.errors import OperationFailed, PenstockError, SparkFailed, WorkerLost
from penstock.pipeline.options import Options
from penstock.protocol import messages as m

ALIVE_US = 1_000_000
START_DELAY_US = 100_000
"""Schedules begin so long after Start, when every worker has built its units."""


class Phase(Enum):
    """Where a job is in its life."""

    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    ENDING = "ending"
    ENDED = "ended"


class Scheduler:
    """Decides for one job; knows nothing of sockets, threads or Spark."""

    def __init__(self, options: Options, workers: int, now_us: int) -> None:
        self.phase = Phase.STARTING
        self.committed_epoch = 0
        self.begun_epoch = 0
        self.refused_messages = 0
        self.start_us = 0
        """When the sources' schedules began."""
        self.peers: dict[int, m.Peer] = {}
        self.epoch_us_last = 0
        """How long the last epoch took from its beginning to its commit."""
        self._options = options
        self._workers = workers
        self._started_us = now_us
        self._heard_us: dict[int, int] = {}
        self._alive_us = now_us
        self._epoch_us = now_us
        self._waiting_epoch: set[int] = set()
        self._waiting_finish: set[int] = set(range(workers))
        self._waiting_stop: set[int] = set(range(workers))

    def handle(self, event: Event, now_us: int) -> list[Command]:
        """Advance by one event."""
        if self.phase is Phase.ENDED:
            return []
        match event:
            case FromWorker(message=message):
                return self._on_message(message, now_us)
            case Tick():
                return self._on_tick(now_us)
            case DrainRequested():
                if self.phase is Phase.RUNNING:
                    self.phase = Phase.DRAINING
                    return self._all(m.Drain())
                return self._stop(None) if self.phase is Phase.STARTING else []
            case StopRequested():
                return self._stop(None)
            case HostEnded(error=error):
                if self.phase is Phase.ENDING and error is None:
                    return self._stop(None)
                return self._stop(SparkFailed(f"Spark ended the workers: {error or 'without a reason'}."))

    def _all(self, message: m.ToWorker) -> list[Command]:
        return [Send(worker, message) for worker in sorted(self.peers)]

    def _stop(self, error: PenstockError | None) -> list[Command]:
        commands = self._all(m.Stop())
        self.phase = Phase.ENDED
        return [*commands, Finish(error)]

    def _on_message(self, message: m.FromWorker, now_us: int) -> list[Command]:
        if isinstance(message, m.Register):
            return self._on_register(message, now_us)
        peer = self.peers.get(message.worker)
        if peer is None or peer.incarnation != message.incarnation:
            self.refused_messages += 1
            return []
        self._heard_us[message.worker] = now_us
        match message:
            case m.EpochDone(worker=worker, epoch=epoch):
                if epoch == self.begun_epoch and worker in self._waiting_epoch:
                    self._waiting_epoch.discard(worker)
                    if not self._waiting_epoch:
                        self.committed_epoch = epoch
                        self.epoch_us_last = now_us - self._epoch_us
                        return self._all(m.Commit(epoch, False))
            case m.Finished(worker=worker):
                self._waiting_finish.discard(worker)
                if not self._waiting_finish and self.phase is not Phase.ENDING:
                    self.phase = Phase.ENDING
                    self.begun_epoch += 1
                    self.committed_epoch = self.begun_epoch
                    return self._all(m.Commit(self.begun_epoch, True))
            case m.Failed():
                return self._stop(_failure(message))
            case m.Stopped(worker=worker):
                self._waiting_stop.discard(worker)
                if not self._waiting_stop:
                    self.phase = Phase.ENDED
                    return [Finish(None)]
            case _:
                pass
        return []

    def _on_register(self, message: m.Register, now_us: int) -> list[Command]:
        if self.phase is not Phase.STARTING:
            lost = f"worker {message.worker} ended and was started again."
            return self._stop(WorkerLost(lost, hint="Its state is gone; run the job again."))
        self.peers[message.worker] = m.Peer(message.worker, message.incarnation, message.endpoint)
        self._heard_us[message.worker] = now_us
        if len(self.peers) < self._workers:
            return []
        self.phase = Phase.RUNNING
        self._epoch_us = now_us
        self.start_us = now_us + START_DELAY_US
        return self._all(m.Start([self.peers[w] for w in sorted(self.peers)], self.start_us))

    def _on_tick(self, now_us: int) -> list[Command]:
        if self.phase is Phase.STARTING:
            if now_us - self._started_us < self._options.start_timeout_us:
                return []
            missing = self._workers - len(self.peers)
            waited_s = self._options.start_timeout_us // 1_000_000
            return self._stop(
                SparkFailed(
                    f"{missing} of {self._workers} workers did not start in {waited_s} s.",
                    hint="The cluster must offer one task slot per worker; lower the parallelism or free slots.",
                )
            )
        silent = [w for w, heard in self._heard_us.items() if now_us - heard > self._options.silence_us]
        if silent:
            return self._stop(
                WorkerLost(
                    f"worker {silent[0]} has been silent for {self._options.silence_us // 1_000_000} s.",
                    hint="It may be stuck in a function that does not return, or its machine may be gone.",
                )
            )
        commands: list[Command] = []
        if now_us - self._alive_us >= ALIVE_US:
            self._alive_us = now_us
            commands += self._all(m.Alive())
        idle = not self._waiting_epoch and self.phase is Phase.RUNNING
        if idle and now_us - self._epoch_us >= self._options.epoch_us:
            self._epoch_us = now_us
            self.begun_epoch += 1
            self._waiting_epoch = set(self.peers)
            commands += self._all(m.BeginEpoch(self.begun_epoch))
        return commands

    def wake_us(self, now_us: int) -> int:
        """When the next Tick is useful."""
        if self.phase is Phase.RUNNING and not self._waiting_epoch:
            return min(self._epoch_us + self._options.epoch_us, self._alive_us + ALIVE_US)
        return max(self._alive_us, now_us) + ALIVE_US if self.phase is Phase.STARTING else self._alive_us + ALIVE_US


def _failure(message: m.Failed) -> PenstockError:
    """Rebuild a worker's error so that the user meets the same class, code and text."""
    known = {kind.code: kind for kind in PenstockError.__subclasses__()}
    kind = known.get(message.code, PenstockError)
    error = kind.__new__(kind)
    PenstockError.__init__(error, message.what, operation=message.operation, hint=message.hint)
    if isinstance(error, OperationFailed):
        error.user_traceback = message.user_traceback
    return error
