"""The central scheduler of one job as a pure state machine: events and the time in, commands out.

===========  =====================================  ==============================================  ===========
phase        event                                  commands                                        next
===========  =====================================  ==============================================  ===========
STARTING     Register, not yet from everyone        —                                               STARTING
STARTING     Register, now from everyone            Start to all                                    RUNNING
STARTING     Tick, no Register for too long         Finish(error)                                   FAILED
STARTING     TasksFailed, too often                 Finish(error)                                   FAILED
RUNNING      Tick, interval over, none pending      BeginEpoch(n) to all                            RUNNING
RUNNING      EpochWanted, none pending              BeginEpoch(n) to all                            RUNNING
any live     EpochDone(n) from everyone             RecordCommit(n)                                 same
any live     CommitRecorded(n)                      Commit(n) to all                                same
RUNNING      DrainRequested                         Drain to all                                    DRAINING
DRAINING     durable: none pending                  BeginEpoch(last) to all                         DRAINING
DRAINING     durable: CommitRecorded(last)          Commit(last, final) to all                      ENDING
any live     Finished from everyone                 RecordCommit(last + 1, final)                   ENDING
ENDING       CommitRecorded                         Commit(final) to all                            ENDING
ENDING       Stopped from everyone                  Finish                                          ENDED
any live     Register of a known worker (it died)   Start to it, Rollback to the others             recovering
recovering   RolledBack from everyone               Resume to all; BeginEpoch, Drain, Commit again  as before
recovering   Register of a known worker             a new recovery of both losses                   recovering
any live     Failed                                 Stop to all, Finish(error)                      FAILED
any live     Tick                                   Alive to all; Replace who is silent             same
any live     Register that does not count           Dismiss                                         same
RUNNING      ScaleRequested                         Replace: more workers; columns move             same
any live     Register of a worker that joins        Start with nothing to run                       same
any live     OrderEnded, too often                  Stop to all, Finish(error)                      FAILED
any          HostEnded                              Finish(error), or Finish in ENDING              FAILED, ENDED
any          StopRequested                          Stop to all, Finish                             ENDED
===========  =====================================  ==============================================  ===========

*Recovering* is no phase of its own but a generation that not everyone has confirmed: the phase before goes on after
it. A message from an incarnation that is not the registered one is refused and counted. Which process counts, and who
is replaced when, is in the table of `presence`; what moves between workers while they work, in that of `rescaling`;
what the job waits for is told by `waits`.
"""

from __future__ import annotations

from penstock.control.events import (
    Command,
    CommitRecorded,
    CoresSeen,
    Dismiss,
    DrainRequested,
    Event,
    Finish,
    FromWorker,
    HostEnded,
    OrderEnded,
    RecordCommit,
    ScaleRequested,
    Send,
    StopRequested,
    TasksFailed,
    Tick,
)
from penstock.control.phases import Phase, Resumption, SchedulerView, first_interval_us
from penstock.control.presence import LOSSES_US, Presence
from penstock.control.recovery import InstanceId, SnapshotChains, downstream, everything, hosted
from penstock.control.rescaling import Rescaling
from penstock.control.staff import Staff
from penstock.control.waits import QUIET_US, Waits, too_few
from penstock.errors import PenstockError, SparkFailed, WorkerLost, rebuilt
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m

__all__ = ["Phase", "Resumption", "Scheduler", "SchedulerView"]

ALIVE_US = 1_000_000
START_DELAY_US = 100_000
"""Schedules begin so long after Start, when every worker has built its units."""
START_FAILURES_MAX = 4
"""Tasks that may fail, for each worker that is missing, before the job has started."""


class Scheduler:
    """Decides for one job; knows nothing of sockets, disks, threads or Spark."""

    def __init__(self, plan: Plan, now_us: int, resumption: Resumption | None = None, *, hasty: bool = False) -> None:
        self.phase = Phase.STARTING
        self.committed_epoch = self.begun_epoch = resumption.epoch if resumption else 0
        self.refused_messages = 0
        self.start_us = resumption.start_us if resumption else 0
        """When the sources' schedules began."""
        self.began_us = 0
        """When the sources began to read in this run; 0 before that."""
        self.peers: dict[int, m.Peer] = {}
        self.epoch_us_last = 0
        """How long the last epoch took from its beginning to its commit."""
        self.recoveries = 0
        self.generation = resumption.generation + 1 if resumption else 0
        self._resumed = self._renumber = resumption is not None
        self._plan = plan
        self._options = plan.options
        self._chains = SnapshotChains(resumption.snapshots if resumption else ())
        self._came_us = now_us
        """When the last worker came up, while the job starts."""
        self._presence = Presence(plan.workers, plan.options.silence_us, plan.options.shrink_after_us)
        self._cores: int | None = None
        self._cores_most = 0
        self._alive_us = now_us
        self._epoch_us = now_us
        self._interval_us = first_interval_us(self._options.epoch_us, hasty=hasty)
        """Time until the next epoch: it doubles from one to the next, up to what is asked for."""
        self._epoch_soon = False
        self._waiting_epoch: set[int] = set()
        self._waiting_finish = set(range(plan.workers))
        self._waiting_stop = set(range(plan.workers))
        self._waiting_rollback: set[int] = set()
        self._recovering: set[InstanceId] = set()
        self._unbuilt: set[int] = set()
        """New workers that have not confirmed their Start."""
        self._recording: RecordCommit | None = None
        self._new: dict[int, list[m.Stored]] = {}
        self._final: dict[int, list[m.Stored]] = {}
        self._lost: set[int] = set()
        """Workers that came back while a commit was being recorded: their recovery must know how that ends."""
        self._last_epoch: int | None = None
        """The epoch after which a job that can be resumed ends."""
        plan.routes[:] = resumption.routes if resumption else []
        self.rescaling = Rescaling(plan, now_us)
        self._staff = Staff(self, self.rescaling)

    @property
    def recovering(self) -> bool:
        """Whether some worker has not confirmed the present generation."""
        return bool(self._waiting_rollback)

    def inspect(self) -> SchedulerView:
        """A read-only view."""
        return SchedulerView(
            self.phase,
            self.generation,
            self.begun_epoch,
            self.committed_epoch,
            self._recording is not None,
            frozenset(self._waiting_epoch),
            frozenset(self._waiting_finish),
            frozenset(self._waiting_stop),
            frozenset(self._waiting_rollback),
        )

    def waits(self, now_us: int) -> Waits:
        """What the job waits for."""
        live = self.phase is not Phase.ENDED
        return Waits(
            workers=len(self._waiting_stop),
            missing=self._waiting_stop.difference(self.peers) if self.phase is Phase.STARTING else (),
            absent=self._presence.absences(self._waiting_stop, QUIET_US, now_us) if live else [],
            restoring=self._waiting_rollback if live else (),
            epoch=self.begun_epoch,
            epoch_us=now_us - self._epoch_us,
            unreported=self._waiting_epoch if live else (),
            cores=self._cores,
            cores_most=self._cores_most,
            joining=self.rescaling.joining - self.rescaling.up if live else (),
        )

    @property
    def members(self) -> frozenset[int]:
        """Workers that have something to do, and have not ended."""
        return frozenset(self._waiting_stop)

    @property
    def placement(self) -> list[int]:
        """The worker of each instance."""
        return self._plan.placement

    def snapshots(self) -> list[m.Stored]:
        """Snapshots that the last commit needs."""
        return self._chains.all()

    def handle(self, event: Event, now_us: int) -> list[Command]:
        """Advance by one event."""
        if self.phase.is_over:
            return []
        match event:
            case FromWorker(message=message):
                return self._on_message(message, now_us)
            case Tick():
                return self._on_tick(now_us)
            case CommitRecorded(epoch=epoch):
                return self._on_recorded(epoch, now_us)
            case DrainRequested():
                if self.phase is Phase.RUNNING:
                    self.phase = Phase.DRAINING
                    return [] if self.recovering else self._drain(now_us)
                return self._stop(None) if self.phase is Phase.STARTING else []
            case StopRequested():
                return self._stop(None)
            case ScaleRequested(workers=workers, reason=reason):
                return self._staff.scale(workers, reason) + self._on_tick(now_us)
            case OrderEnded(worker=worker, order=order, error=error):
                return self._on_order_ended(worker, order, error, now_us)
            case TasksFailed(count=count, error=error):
                return self._on_tasks_failed(count, error)
            case CoresSeen(cores=cores):
                self._cores, self._cores_most = cores, max(cores, self._cores_most)
                return []
            case HostEnded(error=error):
                if self.phase is Phase.ENDING and error is None:
                    return self._stop(None)
                return self._stop(SparkFailed(f"Spark ended the workers: {error or 'without a reason'}."))

    @property
    def is_drained(self) -> bool:
        """Whether everyone has finished what was under way."""
        return self.phase is Phase.ENDED and not self._waiting_stop

    def _all(self, message: m.ToWorker) -> list[Command]:
        built = self._waiting_stop - self._unbuilt - self._lost
        return [Send(worker, message) for worker in sorted(self.peers) if worker in built]

    def _everyone(self, message: m.ToWorker) -> list[Command]:
        """Also to those that wait for their Start, and to those that are to join."""
        wanted = self._waiting_stop | self.rescaling.joining
        return [Send(worker, message) for worker in sorted(self.peers) if worker in wanted]

    def _stop(self, error: PenstockError | None) -> list[Command]:
        commands = self._everyone(m.Stop())
        self.phase = Phase.ENDED if error is None else Phase.FAILED
        return [*commands, Finish(error)]

    def _drain(self, now_us: int) -> list[Command]:
        """Have the sources end; or, if the job can be resumed, pause them and commit one more epoch."""
        commands = self._all(m.Drain(keep=self._options.durable))
        return commands + self._begin_epoch(now_us)

    # --- messages -----------------------------------------------------------------------------------------------------

    def _on_message(self, message: m.FromWorker, now_us: int) -> list[Command]:
        if isinstance(message, m.Register):
            return self._on_register(message, now_us)
        peer = self.peers.get(message.worker)
        if isinstance(message, m.Failed) and self.phase is Phase.STARTING:
            return self._stop(_failure(message))  # it may not even have come to register
        if peer is None or peer.incarnation != message.incarnation:
            self.refused_messages += 1
            return []
        return [*self._presence.on_word(message.worker, now_us), *self._on_word(message, now_us)]

    def _on_word(self, message: m.FromWorker, now_us: int) -> list[Command]:
        match message:
            case m.EpochDone(worker=worker, epoch=epoch, stored=stored):
                return self._on_epoch_done(worker, epoch, stored)
            case m.Finished(worker=worker, stored=stored):
                return self._on_finished(worker, stored)
            case m.RolledBack(worker=worker, generation=generation, held_us=held_us):
                self.rescaling.shifting.on_rolled_back(worker, held_us, now_us)
                return self._on_rolled_back(worker, generation, now_us)
            case m.EpochWanted():
                self._epoch_soon = True
                return self._begin_epoch(now_us)
            case m.Pulse():
                self.rescaling.loads.on_pulse(message)
            case m.Prepared():
                self.rescaling.on_prepared(message)
                return self._staff.move_on(now_us)
            case m.Holding():
                self._epoch_soon = self.rescaling.on_holding(message, now_us) or self._epoch_soon
                return self._begin_epoch(now_us)
            case m.Released() if self.rescaling.on_closed(message, now_us):
                return self._recover_lost()
            case m.Failed():
                return self._stop(_failure(message))
            case m.Stopped(worker=worker):
                self._waiting_stop.discard(worker)
                if not self._waiting_stop:
                    return self._stop(None)  # those who were to join have nothing to finish
                if worker in self._waiting_rollback:
                    # It had its last commit and was gone before it heard of the recovery.
                    return self._on_rolled_back(worker, self.generation, now_us)
            case _:
                pass
        return []

    def _on_register(self, message: m.Register, now_us: int) -> list[Command]:
        known = self.peers.get(message.worker)
        if known is not None and known.incarnation == message.incarnation:
            return []
        if message.worker in self.rescaling.joining:
            return self._staff.on_join(message, now_us)
        if message.worker not in self._waiting_stop:
            return [Dismiss(message.incarnation)]  # its work is done and committed; Spark started its task for nothing
        counts, commands = self._presence.on_register(message.worker, message.order, now_us)
        if not counts:
            return [Dismiss(message.incarnation)]
        self._staff.meet(message)
        if self.phase is Phase.STARTING:
            self._came_us = now_us
            return [*commands, *(self._start(now_us) if len(self.peers) == self._plan.workers else [])]
        if self._presence.is_lost_too_often(message.worker):
            losses, span_s = self._presence.losses(message.worker), LOSSES_US // 1_000_000
            return self._stop(
                WorkerLost(
                    f"worker {message.worker} was lost {losses} times within {span_s} s, without a commit in between.",
                    hint="A record or a function may be killing the process; see the workers' log.",
                )
            )
        self._lost.add(message.worker)
        self.rescaling.on_released(message.worker)
        waits = self._recording is not None or self.rescaling.is_releasing
        return [*commands, *([] if waits else self._recover_lost())]

    def _on_order_ended(self, worker: int, order: int, error: str | None, now_us: int) -> list[Command]:
        if not self._presence.on_order_ended(worker, order, now_us):
            return []
        why = error or "its task ended before it began"
        return self._stop(WorkerLost(f"Spark cannot start worker {worker} again: {why}."))

    def _on_tasks_failed(self, count: int, error: str) -> list[Command]:
        """Fail where processes end before they can speak: Spark would start them again for hours."""
        missing = self._plan.workers - len(self.peers)
        if self.phase is not Phase.STARTING or count < START_FAILURES_MAX * missing:
            return []
        return self._stop(SparkFailed(f"the workers cannot start: their tasks failed {count} times. {error}"))

    def _recover_lost(self) -> list[Command]:
        """Recover what was lost and everything behind it; where nothing was, what moves has only to arrive."""
        lost, self._lost = self._lost, set()
        moves = self.rescaling.instances()
        if not lost and not self.recovering:
            return self._recover(moves, set())
        self.recoveries += 1
        self.rescaling.on_recovery()
        gone = {key for w in lost for key in hosted(self._plan, w)}
        return self._recover(downstream(self._plan, gone | moves | self._recovering), lost)

    def _start(self, now_us: int) -> list[Command]:
        self.phase = Phase.RUNNING
        self.rescaling.spread(self.peers)
        self._presence.forgive()
        self._epoch_us = now_us + (START_DELAY_US if self._interval_us < self._options.epoch_us else 0)
        if self._resumed:
            self.recoveries += 1
            return self._recover(everything(self._plan), set(self.peers))
        self.start_us = self.began_us = self.rescaling.began_us = now_us + START_DELAY_US
        return self._all(self._started(None))

    def _started(self, restore: m.Restore | None, *, careful: bool = False) -> m.Start:
        return m.Start(
            peers=self._peers(),
            start_us=self.start_us,
            generation=self.generation,
            restore=restore,
            careful=careful,
            placement=self._plan.placement,
            routes=self._plan.routes,
        )

    def _peers(self) -> list[m.Peer]:
        return [self.peers[worker] for worker in sorted(self.peers)]

    # --- recovery -----------------------------------------------------------------------------------------------------

    def _recover(self, concerned: set[InstanceId], new: set[int]) -> list[Command]:
        """Have everyone build what is concerned anew; what an unconfirmed recovery concerned is concerned again."""
        self.generation += 1
        self._recovering |= concerned
        lenders = self.rescaling.shifting.lenders(self._recovering, self.committed_epoch)
        restore = m.Restore(
            epoch=self.committed_epoch,
            instances=sorted(self._recovering),
            snapshots=self._chains.of(self._recovering | lenders),
            renumber=self._renumber,
        )
        self._waiting_rollback = set(self.peers) & self._waiting_stop
        self._waiting_epoch.clear()
        self._new.clear()
        self._final.clear()
        if self.phase is not Phase.ENDING:
            self._waiting_finish = set(self._waiting_stop)
        self._unbuilt |= new
        commands: list[Command] = []
        for worker in sorted(self._waiting_rollback):
            if worker in self._unbuilt:
                commands.append(Send(worker, self._started(restore, careful=self._presence.losses(worker) > 1)))
                continue
            who, at, routes = self._peers(), self._plan.placement, self._plan.routes
            rollback = m.Rollback(peers=who, generation=self.generation, restore=restore, placement=at, routes=routes)
            commands.append(Send(worker, rollback))
        return commands

    def _on_rolled_back(self, worker: int, generation: int, now_us: int) -> list[Command]:
        if generation != self.generation or worker not in self._waiting_rollback:
            return []
        self._unbuilt.discard(worker)
        self._waiting_rollback.discard(worker)
        if self._waiting_rollback:
            return []
        self._recovering.clear()
        self.began_us = self.rescaling.began_us = self.began_us or now_us
        commands = self._staff.settle(now_us) + self._all(m.Resume(generation=self.generation))
        if self.phase is Phase.ENDING:
            return commands + self._all(m.Commit(epoch=self.committed_epoch, final=True))
        if self.begun_epoch > self.committed_epoch and self._recording is None:
            self._waiting_epoch = set(self._waiting_stop)
            commands += self._all(m.BeginEpoch(epoch=self.begun_epoch))
        if self.phase is Phase.DRAINING:
            commands += self._drain(now_us)
        return commands + self._staff.move_on(now_us)

    # --- epochs -------------------------------------------------------------------------------------------------------

    def _begin_epoch(self, now_us: int) -> list[Command]:
        busy = self._waiting_epoch or self.recovering or self._recording is not None or self.rescaling.is_busy
        last = self.phase is Phase.DRAINING and self._options.durable and self._last_epoch is None
        if busy or not (self.phase is Phase.RUNNING or last):
            return []
        if not last and not self._epoch_soon and now_us - self._epoch_us < self._interval_us:
            return []
        if last:
            self._last_epoch = self.begun_epoch + 1
        self._epoch_us = now_us
        self._interval_us = min(2 * self._interval_us, self._options.epoch_us)
        self._epoch_soon = False
        self.begun_epoch += 1
        self._waiting_epoch = set(self._waiting_stop)
        self._new.clear()
        return self._all(m.BeginEpoch(epoch=self.begun_epoch))

    def _on_epoch_done(self, worker: int, epoch: int, stored: list[m.Stored]) -> list[Command]:
        if epoch != self.begun_epoch or worker not in self._waiting_epoch or self.recovering:
            return []
        self._waiting_epoch.discard(worker)
        self._new[worker] = stored
        return [] if self._waiting_epoch else self._record(epoch, final=False)

    def _on_finished(self, worker: int, stored: list[m.Stored]) -> list[Command]:
        if self.recovering or self.phase is Phase.ENDING or worker not in self._waiting_stop:
            return []
        self._waiting_finish.discard(worker)
        self._final[worker] = stored
        if self._waiting_finish or self._recording is not None or self.rescaling.is_releasing:
            return []
        return self._end()

    def _end(self) -> list[Command]:
        self.phase = Phase.ENDING
        self._waiting_epoch.clear()
        self.begun_epoch += 1
        return self._record(self.begun_epoch, final=True)

    def _record(self, epoch: int, *, final: bool) -> list[Command]:
        chains = SnapshotChains(self._chains.all())
        chains.add(stored for each in (self._final if final else self._new).values() for stored in each)
        routes = self.rescaling.shifting.recorded(epoch, self.committed_epoch)
        self._recording = RecordCommit(epoch, self.generation, self.start_us, final, chains.all(), routes=routes)
        return [self._recording]

    def _on_recorded(self, epoch: int, now_us: int) -> list[Command]:
        if self._recording is None or epoch != self._recording.epoch:
            return []
        self._chains = SnapshotChains(self._recording.snapshots)
        self._recording = None
        self.committed_epoch = epoch
        self._renumber = False
        self.epoch_us_last = now_us - self._epoch_us
        self._presence.forgive()
        if epoch == self._last_epoch:
            self.phase = Phase.ENDING
        shifted = self.rescaling.shifting.on_committed(epoch)
        commands = self._all(m.Commit(epoch=epoch, final=self.phase is Phase.ENDING))
        if self._lost or (shifted and self.phase is not Phase.ENDING):
            return commands + self._recover_lost()
        if self.phase is not Phase.ENDING and not self._waiting_finish:
            return commands + self._end()
        move = self.rescaling.on_committed(epoch) if self.phase is not Phase.ENDING else None
        if move is not None:
            self._waiting_stop.add(move.new)
            return [*commands, Send(move.old, m.Release(move=move.number, column=move.column))]
        return commands + self._staff.move_on(now_us) + self._begin_epoch(now_us)

    # --- time ---------------------------------------------------------------------------------------------------------

    def _on_tick(self, now_us: int) -> list[Command]:
        if self.phase is Phase.STARTING and now_us - self._came_us >= self._options.start_timeout_us:
            waited_us = now_us - self._came_us
            return self._stop(too_few(self._plan.workers, len(self.peers), waited_us, self._cores))
        commands: list[Command] = [*self._presence.tick(self._waiting_stop, now_us)]  # knows what was no silence
        commands += self._staff.tick(now_us)
        if now_us - self._alive_us >= ALIVE_US:
            self._alive_us = now_us
            commands += self._everyone(m.Alive())
        return commands + self._begin_epoch(now_us)

    def wake_us(self, now_us: int) -> int:
        """When the next Tick is useful."""
        alive_us = self._alive_us + ALIVE_US
        busy = self._waiting_epoch or self.recovering or self._recording is not None
        if self.phase is Phase.RUNNING and not busy:
            return min(self._epoch_us + self._interval_us, alive_us)
        return alive_us


def _failure(message: m.Failed) -> PenstockError:
    """Rebuild a worker's error so that the user meets the same class, code and text."""
    return rebuilt(message.code, message.what, message.operation, message.hint, message.user_traceback)
