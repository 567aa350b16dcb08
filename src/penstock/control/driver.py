"""The driver of a job as a pure machine: frames, events and the time in, frames and chores out. The shell moves bytes.

It joins the scheduler, the monitor, the control loop and the links to workers and slots. Who hears of what:

=====================  ==============================================================================================
event                  who hears of it, in this order
=====================  ==============================================================================================
Register               scheduler; if it counts: the link to the process that it replaces is given a Stop; control loop
Heartbeat              monitor, whose figures the control loop gets at its next look
Deliver                the shell, if the worker counts: records for a sink in the driver's process
any word of a worker   control loop, if the worker counts; scheduler, which refuses those that do not
any word of a slot     control loop
Replace (a command)    the shell; the control loop, which makes place in the cluster
CoresSeen              scheduler; the control loop, which makes place in the cluster where cores are lost
Resume (a command)     the control loop, which tells rebuilt instances what form they have
the end                slots are told to end; the shell, which finishes sinks, if there was no error; whoever comes
                       later is told to stop
=====================  ==============================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from penstock.control.adaptation import Action, Adaptation, ControlLoop, JobView
from penstock.control.adaptation import Command as LoopCommand
from penstock.control.changes import Advice
from penstock.control.events import (
    AlternativePinned,
    CoresSeen,
    DegreeWanted,
    Dismiss,
    DrainRequested,
    Event,
    Finish,
    FormsPinned,
    FromWorker,
    GroupJobEnded,
    RecordCommit,
    Replace,
    ReplicasWanted,
    Retire,
    ScaleRequested,
    Send,
    ShiftWanted,
    StopRequested,
    Tick,
    Wish,
    Withdraw,
)
from penstock.control.groups import Submit, TellSlot
from penstock.control.hot_groups import HotGroups
from penstock.control.laws.spreading import Picture, Spreader
from penstock.control.limits import Limits
from penstock.control.monitor import Monitor
from penstock.control.scheduler import Phase, Resumption, Scheduler
from penstock.control.staffing import Staffing, Standing
from penstock.errors import PenstockError
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m
from penstock.protocol import slots as s
from penstock.protocol.link import Kind, Link, Outgoing, decode_header

PARTED_MAX = 64
"""Replaced workers whose links are kept: one that wakes up hears that it is to stop."""
SLOT_LINKS_MAX = 1_024
STAFF_US = 100_000
"""Between two looks at whether there should be more or fewer workers."""
ACTIONS_MAX = 1_000
"""What users have wanted of the job: as many of these are kept."""


@dataclass(frozen=True, slots=True)
class Connect:
    """Open the way to a worker."""

    endpoint: str


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Give up the way to a worker that is gone."""

    endpoint: str


@dataclass(frozen=True, slots=True)
class Hand:
    """Hand committed records to a sink that lives in the driver's process."""

    message: m.Deliver | m.Delivered


@dataclass(frozen=True, slots=True)
class FinishSinks:
    """The job has ended well: have the driver's part of every sink finish; what fails there fails the job."""


Chore = Connect | Disconnect | Hand | FinishSinks | RecordCommit | Replace | Withdraw | Submit
_SLOTS_LAST = 1 << 40
_place = attrgetter("place")
_UNNUMBERED = (m.Alive, s.StillThere)
"""The next one says as much."""


@dataclass(slots=True)
class _Far:
    """A link, and where it leads."""

    link: Link
    place: int
    """In what order links are sent over."""
    endpoint: str = ""
    group: int = 0
    """Of a slot."""
    told_us: dict[type, int] = field(default_factory=dict)
    """By kind of figures: of which moment the newest are."""


class DriverMachine:
    """One job, from its first registration to its end.

    Parameters
    ----------
    cores : int
        Processor cores that slots share with workers.
    hasty : bool
        Whether the first epochs begin sooner than the others, so that first results are seen soon.
    """

    def __init__(
        self, plan: Plan, now_us: int, cores: int, resumption: Resumption | None = None, *, hasty: bool = False
    ) -> None:
        plan = plan.placed()
        self.scheduler = Scheduler(plan, now_us, resumption, hasty=hasty)
        self.monitor = Monitor(plan, resumed=resumption is not None)
        self.loop = ControlLoop(plan, cores, resumption.alternatives if resumption is not None else None)
        self.staffing = Staffing(plan, cores, self.scheduler.rescaling.loads)
        self._staffed_us = 0
        self._hot, self._spreader = HotGroups(plan), Spreader()
        self._limits = Limits(plan)
        self.ended = False
        self.error: PenstockError | None = None
        self.pids: dict[int, int] = {}
        self.resumed_us = 0
        """When the last recovery was over."""
        self._chores: list[Chore] = []
        self._workers: dict[int, _Far] = {}
        """Links to workers by incarnation, the replaced ones included, in the order of their registration."""
        self._slots: dict[int, _Far] = {}
        self._stirred: dict[int, _Far] = {}
        """Links that something has come or gone over, or waits for its confirmation: all that a turn looks at."""
        self._links = 0
        self._beaten = False
        """A heartbeat has come since the control loop last looked."""
        self._actions: list[Action] = []
        self._advise = plan.options.advise
        self._cores: int | None = None
        """Of the cluster, when they were last looked at."""

    # --- in -----------------------------------------------------------------------------------------------------------

    def receive(self, frames: Sequence[bytes], now_us: int) -> None:
        """Take what a worker or a slot has sent."""
        header = decode_header(frames[1])
        payload = frames[2] if len(frames) > 2 else None
        if frames[0] == Kind.WORKER.value:
            far = self._far(self._workers, header.link)
            for packed in far.link.receive(header, payload, now_us):
                self._on_worker(m.decode_from_worker(packed), far, now_us)
        elif frames[0] == Kind.SLOT.value:
            far = self._far(self._slots, header.link)
            for packed in far.link.receive(header, payload, now_us):
                self._on_slot(s.decode_to_driver(packed), far, now_us)

    def _far(self, fars: dict[int, _Far], link: int) -> _Far:
        far = fars.get(link)
        if far is None:
            self._links += 1
            far = fars[link] = _Far(Link(link), self._links + (_SLOTS_LAST if fars is self._slots else 0))
        self._stirred[link] = far
        return far

    def handle(self, event: Event | GroupJobEnded | Wish, now_us: int) -> None:
        """Take an event of the user's or of the shell's."""
        if self.ended:
            return
        self._log(event, now_us)
        match event:
            case GroupJobEnded(group=group, error=error):
                self._obey(self.loop.on_group_ended(group, error, now_us))
                self._slots = {link: far for link, far in self._slots.items() if far.group != group}
            case FormsPinned(operations=operations, form=form):
                self.loop.pin(operations, form)
            case AlternativePinned(operation=operation, alternative=alternative, by=by):
                self.loop.pin_alternative(operation, alternative, by, now_us)
            case ReplicasWanted():
                self.loop.replication.want(event.unit, event.range, event.degree, event.reason, now_us=now_us)
            case ShiftWanted():
                self.scheduler.rescaling.shifting.want(event.unit, event.old, event.new, event.groups, event.reason)
            case DegreeWanted(operation=operation, degree=degree):
                self.loop.replicate(operation, degree, now_us)
            case CoresSeen(cores=cores):
                self._schedule(event, now_us)
                if self._cores is not None and cores < self._cores:
                    self._obey(self.loop.on_replaced(now_us, cores))  # a worker may have been lost with its core
                self._cores = self.loop.places = cores
            case ScaleRequested(workers=workers):
                self.staffing.settle(workers)
                if workers:
                    self._schedule(event, now_us)
            case _:
                self._schedule(event, now_us)

    def _log(self, event: Event | GroupJobEnded | Wish, now_us: int) -> None:
        """Note what a user wants of the job, with who and when."""
        match event:
            case FormsPinned(operations=operations, form=form):
                what = f"{', '.join(operations)}: form {form.value if form is not None else 'auto'}"
            case AlternativePinned(operation=operation, alternative=alternative):
                what = f"{operation}: use {alternative or 'auto'}"
            case DegreeWanted(operation=operation, degree=degree):
                wanted = "as many processes as the job chooses" if degree is None else f"{degree} processes"
                what = f"{operation}: {'each worker itself' if degree == 1 else wanted}"
            case ScaleRequested(workers=workers):
                what = f"{workers} workers" if workers else "as many workers as the job chooses"
            case DrainRequested():
                what = "finish and end"
            case StopRequested():
                what = "end at once"
            case _:
                return
        self._actions.append(Action(now_us, event.by or "this program", what))
        del self._actions[:-ACTIONS_MAX]

    def tick(self, now_us: int) -> None:
        """Let time pass: for the scheduler, then for the control loop."""
        if self.ended:
            return
        self._schedule(Tick(), now_us)
        scheduler = self.scheduler
        epochs = {"begun": scheduler.begun_epoch, "committed": scheduler.committed_epoch}
        if scheduler.phase is Phase.RUNNING and self._limits.tick(**epochs, recovering=scheduler.recovering):
            self.handle(DrainRequested(by="limit"), now_us)
        running = scheduler.phase in (Phase.RUNNING, Phase.DRAINING) and not scheduler.recovering
        ending = scheduler.phase is Phase.ENDING or scheduler.phase.is_over
        peers = [scheduler.peers[worker] for worker in sorted(scheduler.peers)]
        view = JobView(running, ending, peers, scheduler.start_us, scheduler.began_us)
        figures = self.monitor.operations() if self._beaten else None
        self._beaten = False
        try:
            self._obey(self.loop.tick(view, figures, now_us))
        except PenstockError as error:
            self.fail(error)
        if now_us - self._staffed_us >= STAFF_US and not self.ended:
            self._staffed_us = now_us
            self._staff(running, now_us)

    def _staff(self, running: bool, now_us: int) -> None:
        """Have the job get more workers, or fewer, if it should; the control loop's ways to carry the load go first."""
        scheduler, loop = self.scheduler, self.loop
        rescaling, at_s = scheduler.rescaling, (now_us - scheduler.began_us) / 1e6
        standing = Standing(
            members=scheduler.members,
            wanted=len(rescaling.wanted),
            joining=bool(rescaling.joining - rescaling.up),
            moving=rescaling.is_moving or bool(rescaling.up) or bool(scheduler.members - rescaling.wanted),
            running=running and scheduler.phase is Phase.RUNNING,
            switching=loop.is_switching,
            in_batch=loop.is_in_batch,
            replicas_left=loop.replication.is_left,
        )
        looked, found = self.staffing.look, self.staffing.tick(standing, at_s, now_us)
        if self.staffing.look is not looked:
            self._spread(standing, at_s)
        if found is None:
            return
        if self._advise:
            told = f"{found.workers} workers"
            loop.advise(
                Advice(at_s=found.at_s, operations=["the job"], to=told, reason=found.reason, inputs=found.inputs)
            )
            return
        self._schedule(ScaleRequested(found.workers, reason=found.reason), now_us)

    def _spread(self, at: Standing, at_s: float) -> None:
        """Have key groups leave an instance that is much hotter than others, where it would help nobody to move it."""
        look, rescaling = self.staffing.look, self.scheduler.rescaling
        busy = at.moving or at.switching or at.joining or not at.running or rescaling.choose(at.members) is not None
        if look is None or busy:
            self._spreader.forget()
            return
        shifting, units = rescaling.shifting, self.staffing.plan.units
        instances = {key: load for key, load in look.instances.items() if shifting.can(key[0])}
        picture = Picture(
            workers=look.workers, placement=self.scheduler.placement, instances=instances,
            groups=shifting.owned, shares=self._hot.shares,
        )  # fmt: skip
        found = self._spreader.decide(picture)
        if found is None:
            return
        count, name = len(found.groups), units[found.unit].display_at(0) if units[found.unit].ops else ""
        where = f"from instance {found.old} to {found.new}"
        busiest, other = found.before
        reason = f"a worker is {busiest:.0%} busy, another {other:.0%}: {found.moved:.0%} of its time go {where}"
        if self._advise:
            told = f"{count} key groups {where}"
            inputs = {"groups": float(count), "moved": round(found.moved, 3), "busiest": round(busiest, 3)}
            self.loop.advise(Advice(at_s=round(at_s, 3), operations=[name], to=told, reason=reason, inputs=inputs))
            return
        shifting.want(found.unit, found.old, found.new, found.groups, reason)

    def fail(self, error: PenstockError) -> None:
        """End the job: nothing more is committed."""
        for peer in self.scheduler.peers.values():
            self._tell(self._workers.get(peer.incarnation), m.Stop())
        self.scheduler.phase = Phase.FAILED
        self._finish(error)

    # --- workers ------------------------------------------------------------------------------------------------------

    def _on_worker(self, message: m.FromWorker, far: _Far, now_us: int) -> None:
        if isinstance(message, m.Register):
            far.endpoint = message.endpoint
            self._chores.append(Connect(message.endpoint))
        if self.ended:
            # Spark starts a task again whose process was killed in the last moment.
            self._tell(far, m.Stop())
            return
        if isinstance(message, m.Heartbeat | m.Pulse):
            if message.at_us < far.told_us.get(type(message), 0):
                return  # a newer one has overtaken it
            far.told_us[type(message)] = message.at_us
        peer = self.scheduler.peers.get(message.worker)
        counts = peer is not None and peer.incarnation == message.incarnation
        match message:
            case m.Heartbeat() if counts:
                self.monitor.on_heartbeat(message)
                self._hot.on_heartbeat(message)
                self._limits.on_figures(message.stats)
                self._beaten = True
            case m.RolledBack(worker=worker, before=before) if counts and before is not None:
                self.monitor.begin_after(worker, before)
            case m.Deliver() | m.Delivered() if counts:
                self._chores.append(Hand(message))
            case _:
                pass
        if counts:
            self.loop.on_worker(message, now_us)
        self._schedule(FromWorker(message), now_us)
        if isinstance(message, m.Register) and not counts:
            self._on_register(message, peer, now_us)

    def _on_register(self, message: m.Register, former: m.Peer | None, now_us: int) -> None:
        """If a process that has registered counts now: it takes the place of another one, or an empty one."""
        present = self.scheduler.peers.get(message.worker)
        if present is None or present.incarnation != message.incarnation:
            return
        self.pids[message.worker] = message.pid
        if former is not None:
            self._part_from(former)
        self.loop.on_worker(message, now_us)

    def _part_from(self, peer: m.Peer) -> None:
        """Tell a worker that has a successor to stop: if it was only silent, it may wake up."""
        self._tell(self._workers.get(peer.incarnation), m.Stop())
        present = {each.incarnation for each in self.scheduler.peers.values()} - {peer.incarnation}
        parted = [link for link in self._workers if link not in present]
        for link in parted[:-PARTED_MAX]:
            self._chores.append(Disconnect(self._workers.pop(link).endpoint))

    def _schedule(self, event: Event, now_us: int) -> None:
        resumed = False
        for command in self.scheduler.handle(event, now_us):
            match command:
                case Send(worker=worker, message=message):
                    self._send(worker, message)
                    resumed = resumed or isinstance(message, m.Resume)
                case RecordCommit():
                    self._chores.append(replace(command, alternatives=self.loop.wanted_alternatives()))
                case Withdraw():
                    self._chores.append(command)
                case Dismiss(incarnation=incarnation):
                    self._tell(self._workers.get(incarnation), m.Stop())
                case Replace(worker=worker):
                    self._chores.append(command)
                    if worker in self.scheduler.members or self.staffing.is_wanted:
                        # A job that grows by itself does not take the places of what it has.
                        self._obey(self.loop.on_replaced(now_us, self._cores))
                case Retire(worker=worker):
                    self.pids.pop(worker, None)
                    self.monitor.retire(worker)
                    self.scheduler.rescaling.loads.forget(worker)
                    self._hot.forget(worker)
                case Finish(error=error):
                    self._finish(error)
        if resumed:
            self.resumed_us = now_us
            self._obey(self.loop.on_resumed(list(self.scheduler.peers.values())))

    def _send(self, worker: int, message: m.ToWorker) -> None:
        peer = self.scheduler.peers.get(worker)
        if peer is not None:  # else it has just left
            self._tell(self._workers.get(peer.incarnation), message)

    def _tell(self, far: _Far | None, message: m.ToWorker | s.ToSlotFromDriver) -> None:
        if far is not None:
            self._stirred[far.link.link] = far
            (far.link.tell if isinstance(message, _UNNUMBERED) else far.link.post)(m.encode(message))

    # --- slots --------------------------------------------------------------------------------------------------------

    def _on_slot(self, message: s.ToDriver, far: _Far, now_us: int) -> None:
        if isinstance(message, s.SlotUp):
            far.endpoint, far.group = message.endpoint, message.group
        if self.ended:
            self._tell(far, s.End(at_once=True))
            return
        self._obey(self.loop.on_slot(message, now_us))
        while len(self._slots) > SLOT_LINKS_MAX:
            # The oldest, whose group has ended long ago; replicas live as long as the job.
            passing = (link for link, far in self._slots.items() if far.group >= 0)
            del self._slots[next(passing, next(iter(self._slots)))]

    def _obey(self, commands: Sequence[LoopCommand]) -> None:
        for command in commands:
            match command:
                case Send(worker=worker, message=message):
                    self._send(worker, message)
                case TellSlot(slot=slot, message=told):
                    self._tell(self._slots.get(slot), told)
                case Submit():
                    self._chores.append(command)

    def _finish(self, error: PenstockError | None) -> None:
        self.ended = True
        self.error = self.error or error
        if self.error is None:
            self._chores.append(FinishSinks())
        for far in self._slots.values():
            self._tell(far, s.End(at_once=True))

    # --- out ----------------------------------------------------------------------------------------------------------

    def chores(self) -> list[Chore]:
        """Take what the shell shall do."""
        chores, self._chores = self._chores, []
        return chores

    def sends(self, now_us: int) -> Iterator[Outgoing]:
        """Yield what the shell shall send."""
        for far in sorted(self._stirred.values(), key=_place):
            link = far.link.link
            if self._workers.get(link) is not far and self._slots.get(link) is not far:
                del self._stirred[link]
            elif far.endpoint:
                for frames in far.link.frames(now_us):
                    yield far.endpoint, Kind.DRIVER, frames
                if far.link.is_confirmed:
                    del self._stirred[link]

    def wake_us(self, now_us: int) -> int:
        """When there is something to do without a message."""
        wakes = [self.scheduler.wake_us(now_us)]
        wakes += [wake for far in self._stirred.values() if (wake := far.link.wake_us()) is not None]
        return min(wakes)

    def has_heard_all(self, incarnation: int) -> bool:
        """Whether a worker has confirmed everything that was posted to it."""
        far = self._workers.get(incarnation)
        return far is not None and far.link.is_confirmed

    def waits(self, now_us: int) -> list[str]:
        """What the job waits for, in words."""
        return [] if self.ended else [*self.scheduler.waits(now_us).lines(), *self.loop.waits(now_us)]

    def adaptation(self) -> Adaptation:
        """What the control loop has done, and what users have wanted of it."""
        report, scheduler = self.loop.report(), self.scheduler
        report.workers = self.staffing.view(scheduler.members, len(scheduler.rescaling.wanted))
        report.workers.hot = self._hot.found()
        report.workers.shifts = list(scheduler.rescaling.shifting.reports)
        report.actions = list(self._actions)
        return report
