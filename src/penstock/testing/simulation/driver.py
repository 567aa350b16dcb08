"""The driver process of the simulation: moves bytes and time around the driver's machine, as `runtime.driver` does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.control.deliveries import Deliveries
from penstock.control.driver import Chore, DriverMachine, FinishSinks, Hand
from penstock.control.events import (
    CommitRecorded,
    DrainRequested,
    Event,
    FormsPinned,
    GroupJobEnded,
    HostEnded,
    RecordCommit,
    Replace,
    ReplicasWanted,
    ShiftWanted,
    Wish,
    Withdraw,
)
from penstock.control.groups import Submit
from penstock.control.resume import anchors, match, moved
from penstock.control.scheduler import Phase, Resumption
from penstock.errors import PenstockError
from penstock.operators import Form
from penstock.pipeline.ranges import Range
from penstock.protocol import messages as m
from penstock.protocol.link import Kind
from penstock.testing.simulation.draws import Degree, Pin, Regroup
from penstock.testing.simulation.faults import Moment
from penstock.testing.simulation.forms import FormAudit
from penstock.testing.simulation.invariants import StaffingAudit
from penstock.testing.simulation.seats import SparkGroups
from penstock.testing.simulation.world import Violation

if TYPE_CHECKING:
    from penstock.testing.simulation.run import Simulation

TICK_US_MIN = 1_000
TICK_US_MAX = 100_000
"""Where there are slots: the control loop looks as often."""
_LIVE = (Phase.STARTING, Phase.RUNNING, Phase.DRAINING)
"""Before the end begins: afterwards a worker that has ended may be started again for nothing."""


class DriverProcess:
    """One life of the driver, from a start or a restart to its end."""

    def __init__(self, simulation: Simulation, life: int) -> None:
        self.name = f"driver#{life}"
        self.dead = False
        self.mute = False
        """What it has sent and has not arrived is lost."""
        self.sinks_finished = False
        """Whether it has been seen to that the driver's part of every sink is done."""
        self._simulation = simulation
        self._world = simulation.world
        last, plan, resumption = simulation.disk.last_commit(), simulation.plan, None
        if last is not None:
            snapshots = moved(last.snapshots, match(anchors(plan), plan, "the simulated disk"))
            rest = last.alternatives, last.routes
            resumption = Resumption(last.epoch, last.start_us, last.generation, snapshots, *rest)
        cores = max(plan.workers, plan.options.workers_most)
        hasty = simulation.scenario.seed % 5 == 4  # first epochs begin sooner, as in jobs on Spark
        self.machine = DriverMachine(plan, self._world.now_us, cores, resumption, hasty=hasty)
        self._deliveries = Deliveries(plan)
        self._incarnations: dict[int, list[int]] = {}
        """By worker: all that have come to count, the present one last."""
        self._orders: dict[int, int] = {}
        """By worker: the order that is under way."""
        self._committed_epoch = self.machine.scheduler.committed_epoch
        self._tick_us: int | None = None
        self.spark = SparkGroups(simulation, self)
        self._forms = FormAudit(simulation)
        self._staffing = StaffingAudit()
        self._tick()

    @property
    def finished(self) -> bool:
        """Whether the job has ended."""
        return self.machine.ended

    @property
    def error(self) -> PenstockError | None:
        """Why it has failed, if it has."""
        return self.machine.error

    # --- time ---------------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Keep the next tick in step with what the machine waits for."""
        now_us = self._world.now_us
        at_us = max(self.machine.wake_us(now_us), now_us + TICK_US_MIN)
        if self._simulation.scenario.has_slots:
            at_us = min(at_us, now_us + TICK_US_MAX)
        if self.finished or self.dead or (self._tick_us is not None and self._tick_us <= at_us):
            return
        self._tick_us = at_us

        def tick() -> None:
            if self._tick_us == at_us and not self.dead:
                self._tick_us = None
                self._tick()

        self._world.at(at_us, "tick", tick)

    def _tick(self) -> None:
        before = self._switches()
        self.machine.tick(self._world.now_us)
        if self._switches() - before:
            self._simulation.reach(Moment.ORDERED, None)
        self._exchange()
        if not self.dead and not self.finished:
            self._forms.check(self)

    def _switches(self) -> set[int]:
        """Numbers of the switches that are under way."""
        return {each.pending for each in self.machine.loop.inspect().values() if each.pending is not None}

    def _exchange(self) -> None:
        """Do the machine's chores, send what it has to say, and check that nothing is wrong."""
        while not self.dead and (chores := self.machine.chores()):
            for chore in chores:
                self._do(chore)
        now_us = self._world.now_us
        for endpoint, _, frames in [] if self.dead else list(self.machine.sends(now_us)):
            if len(frames) > 1 and endpoint in self._simulation.processes:
                match m.decode_to_worker(frames[1]):
                    case m.Switch():
                        self._simulation.reach(Moment.PREPARED, None)
                    case m.Exchange():
                        self._simulation.reach(Moment.EXCHANGE_ORDERED, None)
                    case _:
                        pass
                if self.dead:
                    return
            self._simulation.send(self, endpoint, Kind.DRIVER, frames)
        if not self.dead:
            self._wake()
            self._check()

    def _check(self) -> None:
        scheduler = self.machine.scheduler
        if scheduler.committed_epoch < self._committed_epoch:
            raise Violation(f"epoch {self._committed_epoch} was committed, now it is {scheduler.committed_epoch}")
        self._committed_epoch = scheduler.committed_epoch
        for worker, peer in scheduler.peers.items():
            if peer.incarnation not in self._incarnations[worker][-1:] and scheduler.phase in _LIVE:
                raise Violation(f"{peer} counts, but {self._incarnations[worker][-1]} has registered after it")

        self._check_owners()
        if self._simulation.scenario.is_elastic:
            self._staffing.check(self.machine, self._world.now_us)

    def _check_owners(self) -> None:
        """No two processes that count have the same instance, whatever moves."""
        owners: dict[tuple[int, int], str] = {}
        for process in self._simulation.processes.values() if self._simulation.scenario.moves else ():
            peer = self.machine.scheduler.peers.get(process.id)
            if process.worker is None or process.dead or peer is None or peer.incarnation != process.incarnation:
                continue
            for unit in process.worker.units:
                other = owners.setdefault((unit.spec.id, unit.instance), process.name)
                if other != process.name:
                    raise Violation(f"{unit.spec.name}.{unit.instance} is on {other} and on {process.name}")

    def _do(self, chore: Chore) -> None:
        if self.dead:
            return
        match chore:
            case RecordCommit():
                self._record(chore)
            case Replace(worker=worker, order=order):
                self._world.note(f"replaces {worker} by order {order}")
                if worker in self._orders:
                    raise Violation(f"{worker} is ordered again, while order {self._orders[worker]} is under way")
                self._orders[worker] = order
                self._simulation.hosting.order(worker, self, order)
            case Withdraw(worker=worker, order=order):
                if self._orders.get(worker) == order:
                    del self._orders[worker]
                self._simulation.hosting.withdraw(self, order)
            case Submit():
                if self._simulation.scenario.has_slots:
                    self.spark.submit(chore)
            case Hand(message=message):
                if message.epoch > self._simulation.disk.committed_epoch:
                    raise Violation(f"{message.sink} delivers epoch {message.epoch} before its commit")
                self._deliveries.take(message)
            case FinishSinks():
                self._deliveries.finish()
                self.sinks_finished = True
            case _:
                pass

    def _record(self, command: RecordCommit) -> None:
        instances = {(stored.unit, stored.instance) for stored in command.snapshots}
        for unit in self._simulation.plan.units:
            for i in range(unit.instances):
                if (unit.id, i) not in instances:
                    raise Violation(f"the commit of epoch {command.epoch} lacks {unit.name}.{i}")

        def recorded() -> None:
            self.handle(CommitRecorded(command.epoch))
            self._simulation.reach(Moment.RECORDED, None)

        self._simulation.disk.write_commit(self, command, recorded)
        self._simulation.reach(Moment.RECORDING, None)

    # --- events -------------------------------------------------------------------------------------------------------

    def handle(self, event: Event | GroupJobEnded | Wish) -> None:
        """Hand an event in."""
        if not self.dead and not self.finished:
            self.machine.handle(event, self._world.now_us)
            self._exchange()

    def drain(self) -> None:
        """The user wants the job to end."""
        self.handle(DrainRequested())

    def kill(self, *, lose: bool) -> None:
        """End at once; what is on its way to the workers may be lost."""
        self.dead = True
        self.mute = lose

    def on_group_ended(self, group: int, error: str | None) -> None:
        """Spark says that a group's job has ended."""
        if self.dead or self.finished:
            return
        self._simulation.reach(Moment.GROUP_ENDED, None)
        self.handle(GroupJobEnded(group, error))

    def on_host_ended(self, error: str | None) -> None:
        """Spark says that the workers' job has ended."""
        self.handle(HostEnded(error))

    def pin(self, pin: Pin) -> None:
        """The user settles the forms of a unit's operations."""
        units = [unit for unit in self._simulation.plan.units if len(unit.movable)]
        unit = units[int(pin.unit * len(units))]
        movable = list(unit.movable)
        names = [unit.name if index < 0 else unit.ops[index].name for index in movable]
        first, last = int(pin.first * len(movable)), int(pin.last * len(movable))
        self.handle(FormsPinned(tuple(names), None if pin.free else Form.RECORD))
        if not pin.back and not pin.free:
            self.handle(FormsPinned(tuple(names[first : last + 1]), Form.BATCH))

    def regroup(self, wanted: Regroup) -> None:
        """Somebody wants key groups to go elsewhere."""
        shifting = self.machine.scheduler.rescaling.shifting
        units = [unit for unit in self._simulation.plan.units if shifting.can(unit.id)]
        if self.dead or self.finished or not units:
            return
        unit = units[int(wanted.unit * len(units))]
        old, new = (int(share * unit.instances) for share in (wanted.old, wanted.new))
        groups = shifting.owned(unit.id, old)
        step = max(1, round(1 / wanted.share))
        shift = ShiftWanted(unit.id, old, new, tuple(groups[::step]), "drawn")
        self.machine.handle(shift, self._world.now_us)

    def want(self, degree: Degree) -> None:
        """Somebody wants another number of replicas."""
        if self.dead or self.finished:
            return
        units = [unit for unit in self._simulation.plan.units if len(unit.replicable)]
        unit = units[int(degree.unit * len(units))]
        indexes = list(unit.replicable)
        first, last = (indexes[int(share * len(indexes))] for share in (degree.first, degree.last))
        replicas = ReplicasWanted(unit.id, Range(first, last), degree.degree, "drawn")
        self.machine.handle(replicas, self._world.now_us)
        self._tick()

    def _on_register(self, message: m.Register) -> None:
        known, peer = self._incarnations[message.worker], self.machine.scheduler.peers.get(message.worker)
        if peer is None or message.incarnation in known:
            return
        if peer.incarnation != message.incarnation:
            self._simulation.dismissed.add(message.incarnation)
            return
        former = [each for each in self._simulation.processes.values() if each.incarnation in known[-1:]]
        if former and former[0].order != message.order and message.worker not in self._orders:
            raise Violation(f"{message} takes the place of {former[0].name}, which nobody has missed")
        known.append(message.incarnation)
        if self._orders.get(message.worker) == message.order:
            del self._orders[message.worker]

    def take(self, frames: Sequence[bytes]) -> None:
        """Something has come by network."""
        if self.dead:
            return
        scheduler, before = self.machine.scheduler, self.machine.scheduler.inspect()
        message: m.FromWorker | None = None
        if frames[0] == Kind.WORKER.value and len(frames) > 2:
            message = m.decode_from_worker(frames[2])
            self._incarnations.setdefault(message.worker, [])
        self.machine.receive(frames, self._world.now_us)
        if isinstance(message, m.Register):
            self._on_register(message)
        if isinstance(message, m.Register) and scheduler.recovering:
            self._simulation.reach(Moment.REGISTERED, None)
        elif (
            message is not None
            and [message.incarnation] != self._incarnations[message.worker][-1:]
            and (scheduler.inspect() != before)
        ):
            raise Violation(f"the scheduler listens to a {type(message).__name__} of a worker that was replaced")
        if frames[0] == Kind.SLOT.value or isinstance(message, m.Changed | m.Pulse):
            self._tick()  # the control loop looks at once
        else:
            self._exchange()
