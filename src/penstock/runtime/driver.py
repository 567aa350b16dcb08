"""The shell around the scheduler: one thread that moves messages, keeps time, and writes the job's status."""

from __future__ import annotations

import os
import threading
from queue import Empty, SimpleQueue
from typing import Any

import msgspec

from penstock.connectors.base import Sink
from penstock.control.events import Event, Finish, FromWorker, Send, Tick
from penstock.control.monitor import Monitor, Status
from penstock.control.scheduler import Phase, Scheduler
from penstock.errors import PenstockError, SinkFailed
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m
from penstock.runtime.clock import now_us
from penstock.runtime.status import StatusFile
from penstock.runtime.transport import Kind, Node
from penstock.types import Schema

WAIT_US_MAX = 100_000
STATUS_US = 500_000


class Driver:
    """Runs a job's scheduler until the job has ended."""

    def __init__(self, plan: Plan, node: Node) -> None:
        self.ended = threading.Event()
        self.error: PenstockError | None = None
        self.first_result_us: int | None = None
        self.results_delivered = 0
        self._plan = plan
        self._node = node
        self._scheduler = Scheduler(plan.options, plan.workers, now_us())
        self._monitor = Monitor(plan)
        self._pids: dict[int, int] = {}
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._status = StatusFile(plan.options.name)
        self._status_us = 0
        self._started_us = now_us()
        self._lock = threading.Lock()
        self._sinks: dict[str, tuple[Sink, msgspec.msgpack.Decoder[Any], Schema]] = {
            spec.name: (
                spec.operation,
                msgspec.msgpack.Decoder(list[spec.schema.record_type]),  # type: ignore[name-defined]
                spec.schema,
            )
            for unit in plan.units
            for spec in unit.ops
            if isinstance(spec.operation, Sink)
        }
        self._thread = threading.Thread(target=self._run, name="penstock-driver", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def post(self, event: Event) -> None:
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

    def begin_measuring(self) -> None:
        """Cut the warm-up from the report's latencies, CPU and memory."""
        with self._lock:
            self._monitor.begin_measuring()

    def status(self) -> Status:
        """The job at this moment."""
        with self._lock:
            now = now_us()
            return Status(
                job=self._plan.options.name,
                phase=self._scheduler.phase.value,
                pid=os.getpid(),
                at_us=now,
                uptime_s=(now - self._started_us) / 1e6,
                epoch=self._scheduler.committed_epoch,
                epoch_ms=self._scheduler.epoch_us_last / 1000,
                operations=self._monitor.operations(),
                workers=self._monitor.workers(self._pids),
            )

    def _run(self) -> None:
        try:
            while not self.ended.is_set():
                self._turn()
        except Exception as error:
            self.error = error if isinstance(error, PenstockError) else PenstockError(f"the driver failed: {error!r}.")
            self.ended.set()
        finally:
            self._status.remove()

    def _turn(self) -> None:
        for frames in self._node.receive():
            if frames[0] == Kind.WORKER.value:
                self._on_message(m.decode_from_worker(frames[1]))
        while True:
            try:
                self._handle(self._events.get_nowait())
            except Empty:
                break
        self._handle(Tick())
        now = now_us()
        if now - self._status_us >= STATUS_US:
            self._status_us = now
            self._status.write(self.status())
        if not self.ended.is_set():
            self._node.wait(min(max(0, self._scheduler.wake_us(now) - now), WAIT_US_MAX))

    def _on_message(self, message: m.FromWorker) -> None:
        match message:
            case m.Register(endpoint=endpoint, pid=pid, worker=worker):
                self._node.connect(endpoint)
                self._pids[worker] = pid
            case m.Heartbeat():
                with self._lock:
                    self._monitor.on_heartbeat(message)
            case m.Deliver(sink=name, rows=rows):
                self._deliver(name, rows)
            case _:
                pass
        self._handle(FromWorker(message))

    def _deliver(self, name: str, packed: bytes) -> None:
        sink, decoder, schema = self._sinks[name]
        rows = decoder.decode(packed)
        self.first_result_us = self.first_result_us or now_us()
        self.results_delivered += len(rows)
        try:
            sink.deliver(rows, schema)
        except PenstockError as error:
            raise error.at(name) from None
        except Exception as error:
            raise SinkFailed(sink=sink.kind, cause=error, operation=name) from error

    def _handle(self, event: Event) -> None:
        for command in self._scheduler.handle(event, now_us()):
            match command:
                case Send(worker=worker, message=message):
                    endpoint = self._scheduler.peers[worker].endpoint
                    self._node.send(endpoint, Kind.DRIVER, [m.encode(message)])
                case Finish(error=error):
                    self.error = error
                    self.ended.set()
