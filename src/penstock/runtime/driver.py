"""The shell around the scheduler: one thread that moves messages, keeps time, and writes the job's status."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

from penstock.connectors.base import Sink
from penstock.control.adaptation import Adaptation, ControlLoop, View
from penstock.control.adaptation import Command as LoopCommand
from penstock.control.deliveries import Deliveries
from penstock.control.events import (
    CommitRecorded,
    Event,
    Finish,
    FormsSettled,
    FromWorker,
    GroupJobEnded,
    RecordCommit,
    Replace,
    Send,
    Tick,
)
from penstock.control.groups import Submit, TellSlot
from penstock.control.monitor import Monitor, Status
from penstock.control.resume import anchors, outputs
from penstock.control.scheduler import Phase, Resumption, Scheduler
from penstock.errors import PenstockError
from penstock.metrics import Histogram
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m
from penstock.protocol.slots import End, SlotUp, ToDriver, decode_to_driver
from penstock.runtime.checkpoints import CheckpointStore, new_record
from penstock.runtime.clock import now_us
from penstock.runtime.report import measured_operations
from penstock.runtime.status import StatusFile
from penstock.runtime.transport import LINGER_MS, Kind, Node
from penstock.runtime.ways import Ways

WAIT_US_MAX = 100_000
STATUS_US = 500_000
DISMISS_S = 0.1
SWITCHES_SHOWN = 5
NOTE_S = 5.0
"""What the switcher notes is news for so long."""


class Driver:
    """Runs a job's scheduler until the job has ended."""

    def __init__(
        self,
        plan: Plan,
        node: Node,
        replace: Callable[[int], None],
        submit: Callable[[Submit], None],
        resumption: Resumption | None = None,
    ) -> None:
        self._replace = replace
        self._submit = submit
        self.ended = threading.Event()
        self.error: PenstockError | None = None
        self.first_result_us: int | None = None
        self._plan = plan
        self._node = node
        self._store = CheckpointStore(plan.options.checkpoint, durable=plan.options.durable)
        self._store.create()
        self._anchors, self._outputs = anchors(plan), outputs(plan)
        self._scheduler = Scheduler(plan, now_us(), resumption)
        self._monitor = Monitor(plan)
        self._measured = measured_operations(plan)
        cores = (os.cpu_count() or 1) if plan.options.master.startswith("local") else 1 << 20
        self._loop = ControlLoop(plan, cores)
        self._beaten = False
        self._slots = Ways(node, plan.options.slots or plan.workers)
        self._pids: dict[int, int] = {}
        self._replaced: set[int] = set()
        self._resumed_us = self._committed_us = 0
        self._events: SimpleQueue[Event | GroupJobEnded | FormsSettled] = SimpleQueue()
        self._status = StatusFile(plan.options.name)
        self._status_us = 0
        self._started_us = now_us()
        self._lock = threading.Lock()
        self._deliveries = Deliveries(plan)
        self._sinks = {
            spec.name: spec.operation.state()
            for unit in plan.units
            for spec in unit.ops
            if isinstance(spec.operation, Sink)
        }
        self._thread = threading.Thread(target=self._run, name="penstock-driver", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def dismiss(self) -> None:
        """Send home who comes after the end: Spark starts a task again whose process was killed in the last moment."""
        self._thread.join(DISMISS_S)
        if self._thread.is_alive():
            return
        for frames in self._node.receive():
            if frames[0] == Kind.WORKER.value:
                message = m.decode_from_worker(frames[1])
                if isinstance(message, m.Register):
                    self._node.connect(message.endpoint)
                    self._node.send(message.endpoint, Kind.DRIVER, [m.encode(m.Stop())])
            elif frames[0] == Kind.SLOT.value:
                told = decode_to_driver(frames[1])
                if isinstance(told, SlotUp):
                    self._slots.send(told.endpoint, Kind.DRIVER, [m.encode(End(at_once=True))])

    def post(self, event: Event | GroupJobEnded | FormsSettled) -> None:
        """Hand an event in from another thread."""
        self._events.put(event)

    @property
    def phase(self) -> Phase:
        """Where the job is."""
        return self._scheduler.phase

    @property
    def start_us(self) -> int:
        """When the sources' schedules began."""
        return self._scheduler.start_us

    @property
    def monitor(self) -> Monitor:
        """Figures; complete once the job has ended."""
        return self._monitor

    def adaptation(self) -> Adaptation:
        """What the control loop has done."""
        with self._lock:
            return self._loop.report()

    def begin_measuring(self) -> None:
        """Cut the warm-up from the report's latencies, CPU and memory."""
        with self._lock:
            self._monitor.begin_measuring()

    def latency_us(self) -> Histogram:
        """Latencies so far at the measured operations."""
        found = Histogram()
        with self._lock:
            for name in self._measured:
                found.merge(self._monitor.latency(name))
        return found

    def status(self) -> Status:
        """The job at this moment."""
        with self._lock:
            now = now_us()
            operations = self._monitor.operations()
            done = self._loop.report()
            shown = done.advice if self._plan.options.advise else done.switches
            return Status(
                job=self._plan.options.name,
                phase=self._scheduler.phase.value,
                pid=os.getpid(),
                at_us=now,
                uptime_s=(now - self._started_us) / 1e6,
                epoch=self._scheduler.committed_epoch,
                epoch_ms=self._scheduler.epoch_us_last / 1000,
                operations=operations,
                workers=self._monitor.workers(self._pids),
                recoveries=self._scheduler.recoveries,
                resumed_us=self._resumed_us,
                committed_us=self._committed_us,
                slots=self._loop.slot_pids,
                start_us=self._scheduler.start_us,
                heard_us=self._monitor.heard_us,
                components_ms=self._monitor.components_ms(self._measured[0], operations) if self._measured else {},
                group_size=done.group_size,
                overhead=done.overhead,
                switches=shown[-SWITCHES_SHOWN:],
                switches_total=len(shown),
                advise=self._plan.options.advise,
                switch_note=_recent(done.notes, now),
            )

    def _run(self) -> None:
        try:
            while not self.ended.is_set():
                self._turn()
        except Exception as error:
            self.error = error if isinstance(error, PenstockError) else PenstockError(f"the driver failed: {error!r}.")
            self._dismiss_slots()
            self.ended.set()
        finally:
            self._status.remove()

    def _turn(self) -> None:
        for frames in self._node.receive():
            if frames[0] == Kind.WORKER.value:
                self._on_message(m.decode_from_worker(frames[1]))
            elif frames[0] == Kind.SLOT.value:
                self._on_slot(decode_to_driver(frames[1]))
        while True:
            try:
                event = self._events.get_nowait()
            except Empty:
                break
            match event:
                case GroupJobEnded(group=group, error=error):
                    with self._lock:
                        commands = self._loop.on_group_ended(group, error, now_us())
                    self._obey(commands)
                case FormsSettled(operations=operations, form=form):
                    with self._lock:
                        self._loop.pin(operations, form)
                case _:
                    self._handle(event)
        self._handle(Tick())
        now = now_us()
        self._control(now)
        if now - self._status_us >= STATUS_US:
            self._status_us = now
            self._status.write(self.status())
        if not self.ended.is_set():
            self._node.wait(min(max(0, self._scheduler.wake_us(now) - now), WAIT_US_MAX))

    def _control(self, now: int) -> None:
        """Let the control loop look, and do what it wants done."""
        scheduler = self._scheduler
        running = scheduler.phase in (Phase.RUNNING, Phase.DRAINING) and not scheduler.recovering
        ending = scheduler.phase in (Phase.ENDING, Phase.ENDED)
        view = View(
            running, ending, [scheduler.peers[worker] for worker in sorted(scheduler.peers)], scheduler.start_us
        )
        with self._lock:
            figures = self._monitor.operations() if self._beaten else None
            self._beaten = False
            commands = self._loop.tick(view, figures, now)
        self._obey(commands)

    def _on_slot(self, message: ToDriver) -> None:
        with self._lock:
            commands = self._loop.on_slot(message, now_us())
        self._obey(commands)

    def _obey(self, commands: Sequence[LoopCommand]) -> None:
        for command in commands:
            match command:
                case Send(worker=worker, message=message):
                    self._node.send(self._scheduler.peers[worker].endpoint, Kind.DRIVER, [m.encode(message)])
                case TellSlot(endpoint=endpoint, message=told):
                    self._slots.send(endpoint, Kind.DRIVER, [m.encode(told)])
                case Submit():
                    self._submit(command)

    def _dismiss_slots(self) -> None:
        for endpoint in self._slots.endpoints:
            self._slots.send(endpoint, Kind.DRIVER, [m.encode(End(at_once=True))])

    def _on_message(self, message: m.FromWorker) -> None:
        peer = self._scheduler.peers.get(message.worker)
        current = peer is not None and peer.incarnation == message.incarnation
        match message:
            case m.Register(endpoint=endpoint, pid=pid, worker=worker):
                if peer is not None and peer.endpoint != endpoint:
                    self._part_from(peer)
                self._node.connect(endpoint)
                self._pids[worker] = pid
            case m.Heartbeat() if current:
                with self._lock:
                    self._monitor.on_heartbeat(message)
                self._beaten = True
            case m.Deliver() if current:
                self._deliveries.take(message)
                self.first_result_us = self.first_result_us or now_us()
            case _:
                pass
        if current or isinstance(message, m.Register):
            with self._lock:
                self._loop.on_worker(message, now_us())
        self._handle(FromWorker(message))

    def _part_from(self, peer: m.Peer) -> None:
        """Forget a worker that has a successor; one that was only silent may wake up, and finds that it is to stop."""
        if peer.worker in self._replaced:
            self._node.send(peer.endpoint, Kind.DRIVER, [m.encode(m.Stop())])
            self._node.disconnect(peer.endpoint, linger_ms=LINGER_MS)
        else:
            self._node.disconnect(peer.endpoint)

    def _handle(self, event: Event) -> None:
        resumed = False
        for command in self._scheduler.handle(event, now_us()):
            match command:
                case Send(worker=worker, message=message):
                    endpoint = self._scheduler.peers[worker].endpoint
                    self._node.send(endpoint, Kind.DRIVER, [m.encode(message)])
                    if isinstance(message, m.Resume):
                        self._resumed_us = now_us()
                        resumed = True
                case RecordCommit():
                    self._record(command)
                case Replace(worker=worker):
                    self._replaced.add(worker)
                    self._replace(worker)
                    with self._lock:
                        commands = self._loop.on_replaced(now_us())
                    self._obey(commands)
                case Finish(error=error):
                    self.error = error
                    self._dismiss_slots()
                    self.ended.set()
        if resumed:
            self._obey(self._loop.on_resumed())

    def _record(self, command: RecordCommit) -> None:
        self._store.write_commit(
            new_record(
                job=self._plan.options.name,
                epoch=command.epoch,
                generation=command.generation,
                start_us=command.start_us,
                final=command.final,
                anchors=self._anchors,
                sinks=self._sinks,
                snapshots=command.snapshots,
                outputs=self._outputs,
            )
        )
        self._handle(CommitRecorded(command.epoch))
        self._committed_us = now_us()
        self._store.clean(command.snapshots, command.epoch)


def _recent(notes: Sequence[str], now: int) -> str:
    """The last note, without its time, while it is news."""
    at_s, _, text = notes[-1].partition(" s: ") if notes else ("", "", "")
    return text if text and now / 1e6 - float(at_s) <= NOTE_S else ""
