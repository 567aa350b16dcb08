"""Workers that come and go while a job runs: the part of the scheduler that lets them in and has them leave. Pure.

`control/rescaling.py` knows what is wanted, and what moves; here that is done to the scheduler's books.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.control.events import Command, Dismiss, Retire, Send
from penstock.control.phases import Phase
from penstock.control.recovery import downstream, hosted
from penstock.control.rescaling import Rescaling
from penstock.protocol import messages as m

if TYPE_CHECKING:
    from penstock.control.scheduler import Scheduler

SHORT_SILENCES = 2
"""Where the cluster has too few cores, and the job chooses its workers, one that is silent leaves after so many times
the time after which it counts as silent."""


class Staff:
    """Lets workers join and leave; friend of its scheduler, whose books it keeps."""

    def __init__(self, scheduler: Scheduler, rescaling: Rescaling) -> None:
        self.rescaling = rescaling
        self._scheduler = scheduler
        self._later: int | None = None
        """What was wanted before the job had started."""

    def tick(self, now_us: int) -> list[Command]:
        """Do what was wanted before the job had started; go on without who is lost for good; take the next step."""
        later, self._later = (None, self._later) if self._scheduler.phase is Phase.STARTING else (self._later, None)
        commands = self.scale(later) if later is not None else []
        return commands + (self.shrink(now_us) or self.move_on(now_us))

    def scale(self, workers: int, reason: str = "") -> list[Command]:
        """Aim at so many workers; the next tick orders those that are missing."""
        of = self._scheduler
        if of.phase is Phase.STARTING:
            self._later = workers
            return []
        reason = reason or f"{workers} workers are wanted"
        new, given_up = self.rescaling.want(workers, reason, of._waiting_stop)
        commands: list[Command] = []
        for worker in sorted(given_up):
            commands += [Send(old, order) for old, order in self.rescaling.call_off(worker)]
            commands += self._part(worker)
        for worker in new:
            of._presence.enlist(worker)
        return commands

    def on_join(self, message: m.Register, now_us: int) -> list[Command]:
        """A worker has come up that the job is to have: it gets a share with nothing in it."""
        of = self._scheduler
        counts, commands = of._presence.on_register(message.worker, message.order, now_us)
        if not counts:
            return [Dismiss(message.incarnation)]
        self.meet(message)
        nothing = m.Restore(epoch=of.committed_epoch, instances=[], snapshots=[], renumber=False)
        orders = [Send(worker, order) for worker, order in self.rescaling.on_up(message.worker)]
        return [*commands, Send(message.worker, of._started(nothing)), *orders, *self.move_on(now_us)]

    def meet(self, message: m.Register) -> None:
        """Take note of where a worker is that counts."""
        self._scheduler.peers[message.worker] = peer = peer_of(message)
        self.rescaling.know(peer)

    def move_on(self, now_us: int) -> list[Command]:
        """Take the next step of a move, if one can be taken."""
        of = self._scheduler
        if of.phase is not Phase.RUNNING or of.recovering or of._recording is not None:
            return []
        if of._renumber or not of.committed_epoch:
            return []  # nothing of this run can be loaded yet
        orders = self.rescaling.advance(
            of._waiting_stop, of.committed_epoch, bool(of._waiting_epoch), of._chains.by_instance, now_us
        )
        return [Send(worker, order) for worker, order in orders]

    def settle(self, now_us: int) -> list[Command]:
        """Everyone is where it should be: workers that have nothing to do, and are not wanted, leave."""
        of = self._scheduler
        leaving = self.rescaling.on_resumed(of._waiting_stop, now_us)
        return [command for worker in sorted(leaving) for command in self._part(worker)]

    def shrink(self, now_us: int) -> list[Command]:
        """Go on without a worker that Spark cannot bring back: others get its columns, as in a recovery."""
        of = self._scheduler
        members = of._waiting_stop
        silent = [w for w in members if of._presence.silent_us(w, now_us) > self._patience_us]
        waits = of._recording is not None or of.phase not in (Phase.RUNNING, Phase.DRAINING) or len(members) < 2
        if not silent or waits or (self.rescaling.is_releasing and not self.rescaling.on_released(silent[0])):
            return []
        gone = hosted(of._plan, silent[0]) | self.rescaling.instances() | of._recovering
        self.rescaling.lose(silent[0], members)
        of.recoveries += 1
        parting = self._part(silent[0])
        lost, of._lost = of._lost, set()
        gone |= {key for worker in lost for key in hosted(of._plan, worker)}
        return parting + of._recover(downstream(of._plan, gone), lost)

    @property
    def _patience_us(self) -> int:
        """How long a worker may be away: not for long where its core is gone and another worker joins by itself."""
        of, options = self._scheduler, self._scheduler._plan.options
        short = of._cores is not None and of._cores < len(of._waiting_stop)
        if short and options.workers_most and len(of._waiting_stop) > 1:
            return min(options.shrink_after_us, SHORT_SILENCES * options.silence_us)
        return options.shrink_after_us

    def _part(self, worker: int) -> list[Command]:
        of = self._scheduler
        peer = of.peers.pop(worker, None)
        for waiting in (of._waiting_stop, of._waiting_finish, of._waiting_epoch, of._lost, of._unbuilt):
            waiting.discard(worker)
        stop = [Dismiss(peer.incarnation)] if peer is not None else []
        return [*stop, *of._presence.retire(worker), Retire(worker)]


def peer_of(message: m.Register) -> m.Peer:
    """Where a worker that has registered is."""
    return m.Peer(worker=message.worker, incarnation=message.incarnation, endpoint=message.endpoint)
