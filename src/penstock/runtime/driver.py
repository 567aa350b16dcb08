"""The shell around the driver's machine: one thread that moves messages, keeps time, and writes the job's status."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

from penstock.control.adaptation import Action, Adaptation
from penstock.control.deliveries import Deliveries
from penstock.control.driver import Chore, Connect, Disconnect, DriverMachine, FinishSinks, Hand
from penstock.control.events import CommitRecorded, Event, GroupJobEnded, RecordCommit, Replace, Wish, Withdraw
from penstock.control.groups import Submit
from penstock.control.monitor import Monitor, Status
from penstock.control.rescaling import MoveReport
from penstock.control.resume import anchors, outputs
from penstock.control.scheduler import Phase, Resumption
from penstock.errors import PenstockError
from penstock.metrics import Histogram
from penstock.protocol.commands import Command
from penstock.runtime.attempts import Attempt
from penstock.runtime.checkpoints import new_record
from penstock.runtime.clock import now_us
from penstock.runtime.commands import Channel, checked, socket_path
from penstock.runtime.committing import CommitWriter
from penstock.runtime.connections import Connections
from penstock.runtime.report import measured_operations
from penstock.runtime.status import StatusFile
from penstock.runtime.transport import LINGER_MS, Node

WAIT_US_MAX = 100_000
STATUS_US = 500_000
DISMISS_S = 0.1
SWITCHES_SHOWN = 5
ACTIONS_SHOWN = 3
MOVES_SHOWN = 16
"""More than there can be between two samples of metrics."""
NOTE_S = 5.0
"""What the switcher notes is news for so long."""


class Driver:
    """Runs a job's machine until the job has ended."""

    def __init__(
        self,
        attempt: Attempt,
        node: Node,
        have_spark: Callable[[Replace | Withdraw | Submit], None],
        resumption: Resumption | None = None,
    ) -> None:
        self._have_spark = have_spark
        self.ended = threading.Event()
        self.first_result_us: int | None = None
        self._attempt = attempt
        self._plan = plan = attempt.plan
        self._node = node
        self._connections = Connections(node, (plan.options.slots or plan.workers) + plan.replicas)
        self._anchors, self._outputs = anchors(plan), outputs(plan)
        cores = (os.cpu_count() or 1) if plan.options.master.startswith("local") else 1 << 20
        self._machine = DriverMachine(plan, now_us(), cores, resumption, hasty=True)
        self._measured = measured_operations(plan)
        self._committed_us = 0
        self._events: SimpleQueue[Event | GroupJobEnded | Wish] = SimpleQueue()
        self._status = StatusFile(plan.options.name)
        self._channel: Channel | None = None
        self._status_us = 0
        self._to_finish = False
        self._started_us = now_us()
        self._lock = threading.Lock()
        self._deliveries = Deliveries(plan)
        self._sinks = {name: sink.state() for name, sink in plan.sinks.items()}
        self._commits = CommitWriter(attempt)
        self._thread = threading.Thread(target=self._run, name="penstock-driver", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        try:
            self._channel = Channel(socket_path(self._status.path), self.obey)
        except OSError as error:
            warnings.warn(f"no commands will reach this job: {error}.", stacklevel=2)
        self._thread.start()

    def obey(self, command: Command, by: str = "") -> str:
        """Check what a user wants of the job, and have it done; return what that is, in words."""
        event, what = checked(self._plan, command, by)
        self.post(event)
        return what

    def dismiss(self) -> None:
        """Tell workers and slots that come after the job has ended to stop."""
        self._thread.join(DISMISS_S)
        if not self._thread.is_alive():
            self._exchange()

    def post(self, event: Event | GroupJobEnded | Wish) -> None:
        """Hand an event in from another thread."""
        self._events.put(event)

    @property
    def error(self) -> PenstockError | None:
        """Why the job has failed, if it has."""
        return self._machine.error

    @property
    def phase(self) -> Phase:
        """Where the job is."""
        return self._machine.scheduler.phase

    @property
    def is_drained(self) -> bool:
        """Whether everything that was under way has been finished."""
        return self._machine.scheduler.is_drained

    @property
    def start_us(self) -> int:
        """When the sources' schedules began."""
        return self._machine.scheduler.start_us

    @property
    def began_us(self) -> int:
        """When the sources began to read in this run; 0 before that."""
        return self._machine.scheduler.began_us

    @property
    def runs(self) -> int:
        """How often the job was started, this time included."""
        return max(1, self._attempt.number)

    @property
    def monitor(self) -> Monitor:
        """Figures; complete once the job has ended."""
        return self._machine.monitor

    def adaptation(self) -> Adaptation:
        """What the control loop has done."""
        with self._lock:
            return self._machine.adaptation()

    def moves(self) -> list[MoveReport]:
        """Moves between workers so far."""
        with self._lock:
            return list(self._machine.scheduler.rescaling.reports)

    def begin_measuring(self) -> None:
        """Cut the warm-up from the report's latencies, CPU and memory."""
        with self._lock:
            self.monitor.begin_measuring()

    def latency_us(self) -> Histogram:
        """Latencies so far at the measured operations."""
        found = Histogram()
        with self._lock:
            for name in self._measured:
                found.merge(self.monitor.latency(name))
        return found

    def status(self) -> Status:
        """The job at this moment."""
        with self._lock:
            now = now_us()
            machine, monitor, scheduler = self._machine, self.monitor, self._machine.scheduler
            operations = monitor.operations()
            done = machine.adaptation()
            advise = self._plan.options.advise
            return Status(
                job=self._plan.options.name,
                phase=scheduler.phase.value,
                pid=os.getpid(),
                at_us=now,
                uptime_s=(now - self._started_us) / 1e6,
                epoch=scheduler.committed_epoch,
                epoch_ms=scheduler.epoch_us_last / 1000,
                operations=operations,
                workers=monitor.workers(machine.pids),
                recoveries=scheduler.recoveries,
                resumed_us=machine.resumed_us,
                committed_us=self._committed_us,
                slots=machine.loop.slot_pids,
                start_us=scheduler.start_us,
                began_us=scheduler.began_us,
                heard_us=monitor.heard_us,
                components_ms=monitor.components_ms(self._measured[0], operations) if self._measured else {},
                group_size=done.group_size,
                overhead=done.overhead,
                switches=done.switches[-SWITCHES_SHOWN:],
                advice=done.advice[-SWITCHES_SHOWN:],
                switches_total=len(done.advice if advise else done.switches),
                advise=advise,
                switch_note=_recent(done.notes, now),
                waiting=machine.waits(now),
                alternatives=done.alternatives,
                placement=list(scheduler.placement),
                moves=scheduler.rescaling.reports[-MOVES_SHOWN:],
                moves_total=len(scheduler.rescaling.reports),
                replicas=done.replicas,
                replica_pids=machine.loop.replication.pids,
                saved=done.elastic.saved if done.elastic is not None else None,
                replica_s=done.elastic.replica_s if done.elastic is not None else 0.0,
                staffing=done.workers,
                actions=[_told(each, scheduler.began_us or now) for each in done.actions[-ACTIONS_SHOWN:]],
            )

    def _run(self) -> None:
        try:
            while not self._machine.ended:
                self._turn()
            if self._to_finish:
                self._deliveries.finish()
        except Exception as error:
            failed = error if isinstance(error, PenstockError) else PenstockError(f"the driver failed: {error!r}.")
            with self._lock:
                self._machine.fail(failed)
            self._exchange()
        finally:
            self._commits.close()
            self.ended.set()
            if self._channel is not None:
                self._channel.close()
            self._status.remove()

    def _turn(self) -> None:
        machine = self._machine
        while True:
            try:
                event = self._events.get_nowait()
            except Empty:
                break
            with self._lock:
                machine.handle(event, now_us())
        for epoch in self._commits.recorded():
            with self._lock:
                machine.handle(CommitRecorded(epoch), now_us())
            self._committed_us = now_us()
        self._exchange()
        now = now_us()
        if now - self._status_us >= STATUS_US:
            self._status_us = now
            self._status.write(self.status())
        if not machine.ended:
            self._node.wait(min(max(0, machine.wake_us(now) - now), WAIT_US_MAX), self._commits.fileno)

    def _exchange(self) -> None:
        """Take what has arrived, do the machine's chores, and send what it has to say."""
        machine = self._machine
        with self._lock:
            for frames in self._node.receive():
                machine.receive(frames, now_us())
            machine.tick(now_us())
        while chores := machine.chores():
            for chore in chores:
                self._do(chore)
        for endpoint, kind, outgoing in machine.sends(now_us()):
            self._connections.send(endpoint, kind, outgoing)

    def _do(self, chore: Chore) -> None:
        match chore:
            case Connect(endpoint=endpoint):
                self._node.connect(endpoint)
            case Disconnect(endpoint=endpoint):
                self._node.disconnect(endpoint, linger_ms=LINGER_MS)
            case Hand(message=message):
                if self._deliveries.take(message):
                    self.first_result_us = self.first_result_us or now_us()
            case FinishSinks():
                self._to_finish = True  # once everyone has heard that the job is over: it may take a while
            case RecordCommit():
                self._record(chore)
            case Replace() | Withdraw() | Submit():
                self._have_spark(chore)

    def _record(self, command: RecordCommit) -> None:
        self._commits.submit(
            new_record(
                job=self._plan.options.name,
                job_id=self._plan.job_id,
                attempt=self._attempt.number,
                epoch=command.epoch,
                generation=command.generation,
                start_us=command.start_us,
                final=command.final,
                anchors=self._anchors,
                sinks=self._sinks,
                snapshots=command.snapshots,
                outputs=self._outputs,
                alternatives=command.alternatives,
                routes=command.routes,
            )
        )


def _told(action: Action, began_us: int) -> str:
    return f"{max(0, action.at_us - began_us) / 1e6:.1f} s, {action.by}: {action.what}"


def _recent(notes: Sequence[str], now: int) -> str:
    """The last note, without its time, while it is news."""
    at_s, _, text = notes[-1].partition(" s: ") if notes else ("", "", "")
    return text if text and now / 1e6 - float(at_s) <= NOTE_S else ""
