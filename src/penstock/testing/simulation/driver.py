"""The driver process of the simulation: what `runtime.driver` does around the scheduler, in made-up time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.control.adaptation import Command as LoopCommand
from penstock.control.adaptation import ControlLoop, View
from penstock.control.deliveries import Deliveries
from penstock.control.events import (
    CommitRecorded,
    DrainRequested,
    Event,
    Finish,
    FromWorker,
    HostEnded,
    RecordCommit,
    Replace,
    Send,
    Tick,
)
from penstock.control.groups import Submit, TellSlot
from penstock.control.monitor import Monitor
from penstock.control.resume import anchors, match, moved
from penstock.control.scheduler import Phase, Resumption, Scheduler
from penstock.errors import PenstockError
from penstock.operators import Form
from penstock.protocol import messages as m
from penstock.protocol import slots as s
from penstock.testing.simulation.draws import Pin
from penstock.testing.simulation.faults import Moment
from penstock.testing.simulation.forms import FormAudit
from penstock.testing.simulation.network import Connection
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
        self.finished = False
        self.error: PenstockError | None = None
        self._simulation = simulation
        self._world = simulation.world
        last, plan, resumption = simulation.disk.last_commit(), simulation.plan, None
        if last is not None:
            snapshots = moved(last.snapshots, match(anchors(plan), plan, "the simulated disk"))
            resumption = Resumption(last.epoch, last.start_us, last.generation, snapshots)
        self.scheduler = Scheduler(plan, self._world.now_us, resumption)
        self._deliveries = Deliveries(plan)
        self._connections: dict[str, Connection] = {}
        self._incarnations: dict[int, list[int]] = {}
        """By worker: all that have registered, the present one last."""
        self._committed_epoch = self.scheduler.committed_epoch
        self._tick_us: int | None = None
        self.spark = SparkGroups(simulation, self)
        self.loop = ControlLoop(plan, plan.workers) if simulation.scenario.has_slots else None
        self._monitor = Monitor(plan)
        self._beaten = False
        self._forms = FormAudit(simulation)
        self._handle(Tick())

    def _wake(self) -> None:
        """Keep the next tick in step with what the scheduler waits for."""
        now_us = self._world.now_us
        at_us = max(self.scheduler.wake_us(now_us), now_us + TICK_US_MIN)
        if self.loop is not None:
            at_us = min(at_us, now_us + TICK_US_MAX)
        if self.finished or (self._tick_us is not None and self._tick_us <= at_us):
            return
        self._tick_us = at_us

        def tick() -> None:
            if self._tick_us == at_us and not self.dead:
                self._tick_us = None
                self._handle(Tick())
                self._control()

        self._world.at(at_us, "tick", tick)

    def drain(self) -> None:
        """The user wants the job to end."""
        self._handle(DrainRequested())

    def kill(self, *, lose: bool) -> None:
        """End at once; what is on its way to the workers may be lost."""
        self.dead = True
        if lose:
            for connection in self._connections.values():
                connection.break_off()

    def on_message(self, message: m.FromWorker) -> None:
        """Take a message of a worker, as the driver's shell does."""
        if self.finished:
            return
        known = self._incarnations.setdefault(message.worker, [])
        if isinstance(message, m.Register):
            if message.incarnation not in known:
                known.append(message.incarnation)
        elif isinstance(message, m.Deliver):
            if message.epoch > self._simulation.disk.committed_epoch:
                raise Violation(f"{message.sink} delivers epoch {message.epoch} before its commit")
            self._deliveries.take(message)
        current = message.incarnation == known[-1]
        if self.loop is not None and current:
            if isinstance(message, m.Heartbeat) and self._simulation.scenario.decides:
                self._monitor.on_heartbeat(message)
                self._beaten = True
            self.loop.on_worker(message, self._world.now_us)
        before = self._state()
        self._handle(FromWorker(message))
        if isinstance(message, m.Rerouted | m.Pulse):
            self._control()
        if not isinstance(message, m.Register) and message.incarnation != known[-1] and self._state() != before:
            raise Violation(f"the scheduler listens to a {type(message).__name__} of a worker that was replaced")

    def _state(self) -> tuple[object, ...]:
        """What a message of somebody who was replaced must not change."""
        s = self.scheduler
        waiting = (s._waiting_epoch, s._waiting_finish, s._waiting_stop, s._waiting_rollback)
        return (*(len(each) for each in waiting), s.phase, s.generation, s.begun_epoch, s._recording is None)

    # --- the control loop ---------------------------------------------------------------------------------------------

    def on_slot(self, packed: bytes) -> None:
        """Take a word of a slot."""
        if self.dead or self.finished or self.loop is None:
            return
        self._obey(self.loop.on_slot(s.decode_to_driver(packed), self._world.now_us))
        self._control()

    def on_group_ended(self, group: int, error: str | None) -> None:
        """Spark says that a group's job has ended."""
        if self.dead or self.finished or self.loop is None:
            return
        self._simulation.reach(Moment.GROUP_ENDED, None)
        if not self.dead and not self.finished:
            self._obey(self.loop.on_group_ended(group, error, self._world.now_us))
            self._control()

    def on_host_ended(self, error: str | None) -> None:
        """Spark says that the workers' job has ended."""
        self._handle(HostEnded(error))

    def pin(self, pin: Pin) -> None:
        """The user settles the forms of a unit's operations."""
        if self.dead or self.finished or self.loop is None:
            return
        units = [unit for unit in self._simulation.plan.units if len(unit.movable)]
        unit = units[int(pin.unit * len(units))]
        movable = list(unit.movable)
        names = [unit.name if index < 0 else unit.ops[index].name for index in movable]
        first, last = int(pin.first * len(movable)), int(pin.last * len(movable))
        self.loop.pin(names, None if pin.free else Form.RECORD)
        if not pin.back and not pin.free:
            self.loop.pin(names[first : last + 1], Form.BATCH)

    def _control(self) -> None:
        """Let the control loop look, and do what it wants done."""
        loop, scheduler = self.loop, self.scheduler
        if loop is None or self.dead or self.finished:
            return
        running = scheduler.phase in (Phase.RUNNING, Phase.DRAINING) and not scheduler.recovering
        ending = scheduler.phase in (Phase.ENDING, Phase.ENDED)
        peers = [scheduler.peers[worker] for worker in sorted(scheduler.peers)]
        view = View(running, ending, peers, scheduler.start_us)
        figures = self._monitor.operations() if self._beaten else None
        self._beaten = False
        before = self._forms.pending(loop)
        commands = loop.tick(view, figures, self._world.now_us)
        if self._forms.pending(loop) - before:
            self._simulation.reach(Moment.ORDERED, None)
        if any(isinstance(each, Send) and isinstance(each.message, m.Reroute) for each in commands):
            self._simulation.reach(Moment.PREPARED, None)
        if not self.dead and not self.finished:
            self._obey(commands)
            self._forms.check(self, loop, running)

    def _obey(self, commands: Sequence[LoopCommand]) -> None:
        for command in commands:
            match command:
                case Send(worker=worker, message=message):
                    self._send(worker, message)
                case TellSlot(endpoint=endpoint, message=told):
                    self._tell_slot(endpoint, told)
                case Submit():
                    self.spark.submit(command)

    def _tell_slot(self, endpoint: str, message: s.ToSlotFromDriver) -> None:
        if endpoint not in self._connections:
            self._connections[endpoint] = self._simulation.network.connection(self.name, endpoint)
        packed, seat = m.encode(message), self._simulation.seats[endpoint]
        self._connections[endpoint].send(type(message).__name__, lambda: seat.take([packed], from_driver=True))

    # --- the scheduler ------------------------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        resumed = False
        for command in self.scheduler.handle(event, self._world.now_us):
            if self.dead:
                return
            match command:
                case Send(worker=worker, message=message):
                    self._send(worker, message)
                    resumed = resumed or isinstance(message, m.Resume)
                case RecordCommit():
                    self._record(command)
                case Replace(worker=worker):
                    self._world.note(f"replaces {worker}")
                    self._simulation.spawn(worker, self)
                case Finish(error=error):
                    self.finished = True
                    self.error = error
                    for seat in self.spark.seats:
                        self._tell_slot(seat.name, s.End(at_once=True))
        if resumed and self.loop is not None:
            self._obey(self.loop.on_resumed())
        self._wake()
        if self.scheduler.committed_epoch < self._committed_epoch:
            raise Violation(f"epoch {self._committed_epoch} was committed, now it is {self.scheduler.committed_epoch}")
        self._committed_epoch = self.scheduler.committed_epoch
        for worker, peer in self.scheduler.peers.items():
            if peer.incarnation not in self._incarnations[worker][-1:] and self.scheduler.phase in _LIVE:
                raise Violation(f"{peer} counts, but {self._incarnations[worker][-1]} has registered after it")
        if isinstance(event, FromWorker) and isinstance(event.message, m.Register) and self.scheduler.recovering:
            self._simulation.reach(Moment.REGISTERED, None)

    def _send(self, worker: int, message: m.ToWorker) -> None:
        target = self.scheduler.peers[worker].endpoint
        if target not in self._connections:
            self._connections[target] = self._simulation.network.connection(self.name, target)
        packed = m.encode(message)
        process = self._simulation.processes[target]
        self._connections[target].send(type(message).__name__, lambda: process.take(m.decode_to_worker(packed)))

    def _record(self, command: RecordCommit) -> None:
        instances = {(stored.unit, stored.instance) for stored in command.snapshots}
        for unit in self._simulation.plan.units:
            for i in range(unit.instances):
                if (unit.id, i) not in instances:
                    raise Violation(f"the commit of epoch {command.epoch} lacks {unit.name}.{i}")

        def recorded() -> None:
            self._handle(CommitRecorded(command.epoch))
            self._simulation.reach(Moment.RECORDED, None)

        self._simulation.disk.write_commit(self, command, recorded)
        self._simulation.reach(Moment.RECORDING, None)
