"""The shell around a worker: runs inside a Spark task, moves messages between the sockets and the pure `Worker`."""

from __future__ import annotations

import gc
import os
import resource
import signal
import socket
from dataclasses import replace

import msgspec
from pyspark import cloudpickle

from penstock.engine.snapshot import InstanceId
from penstock.engine.worker import Worker
from penstock.errors import OperationFailed, PenstockError, WorkerFailed
from penstock.operators.errors import describe_error, user_traceback
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m
from penstock.protocol.slots import decode_from_slot
from penstock.runtime.checkpoints import CheckpointStore
from penstock.runtime.clock import now_ns, now_us
from penstock.runtime.storing import SnapshotWriter
from penstock.runtime.suspects import open_guard
from penstock.runtime.transport import LOOPBACK, Keys, Kind, Node
from penstock.runtime.ways import Ways

HEARTBEAT_US = 500_000
PULSE_US = 100_000
IDLE_WAIT_US = 200_000
EARLY_MESSAGES_MAX = 10_000
"""Blocks kept from peers that were told to start before this worker; more are sent again by their channel."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Assignment(msgspec.Struct, frozen=True):
    """What a task is told through Spark: where the driver is, and the key of the job."""

    driver: str
    keys: Keys
    host: str = LOOPBACK
    """Where the worker listens; empty: at its machine's address towards the driver."""


def run_worker(packed: bytes, worker: int, assignment: Assignment) -> None:
    """Host one worker until the job ends; called in a Spark task, which has brought the plan along, packed."""
    # Ctrl-C reaches the whole process group; only the driver decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Records are not tracked by the collector; what is left is long-lived, so passes may be rare.
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    incarnation = int.from_bytes(os.urandom(6), "big")
    try:
        plan = open_plan(packed)
    except Exception as error:
        _tell_why(assignment, worker, incarnation, error)
        return
    host = _Host(plan, worker, incarnation, assignment)
    try:
        host.serve()
    finally:
        host.close()


def open_plan(packed: bytes) -> Plan:
    """Open the plan that Spark's own closure has brought; nothing that comes from a socket is opened like this."""
    plan: Plan = cloudpickle.loads(packed)
    return plan


def _tell_why(assignment: Assignment, worker: int, incarnation: int, error: Exception) -> None:
    """The plan cannot be opened here: tell the driver what is missing, and end in order."""
    what = f"a worker cannot open the pipeline: {describe_error(error)}."
    hint = "Modules that the pipeline imports must be installed, or lie beside the program, on every worker's machine."
    node = Node(assignment.keys, assignment.host or own_address(assignment.driver))
    node.connect(assignment.driver)
    failed = m.Failed(
        worker=worker,
        incarnation=incarnation,
        code=WorkerFailed.code,
        operation=None,
        what=what,
        hint=hint,
        user_traceback="",
    )
    node.send(assignment.driver, Kind.WORKER, [m.encode(failed)])
    node.close()


class _Host:
    def __init__(self, plan: Plan, worker: int, incarnation: int, assignment: Assignment) -> None:
        self._plan = plan
        self._id = worker
        self._incarnation = incarnation
        self._driver = assignment.driver
        self._node = Node(assignment.keys, assignment.host or own_address(assignment.driver))
        self._node.connect(self._driver)
        self._store = CheckpointStore(plan.options.checkpoint, durable=plan.options.durable)
        self._writer = SnapshotWriter(self._store)
        self._worker: Worker | None = None
        self._endpoints: dict[int, str] = {}
        self._slots = Ways(self._node, plan.options.slots or plan.workers)
        self._early: list[list[bytes]] = []
        self._ended = False
        self._heard_us = now_us()
        self._beat_us = 0
        self._pulse_us = 0
        self._stirred = True
        """Whether anything has happened since the last pulse."""
        self._tell(
            m.Register(worker=worker, incarnation=self._incarnation, endpoint=self._node.endpoint, pid=os.getpid())
        )

    def _tell(self, message: m.FromWorker) -> None:
        self._node.send(self._driver, Kind.WORKER, [m.encode(message)])

    def serve(self) -> None:
        """Run until told to stop, or until the driver is gone."""
        try:
            while not self._ended:
                self._turn()
        except (Exception, SystemExit) as error:
            # A function that calls sys.exit has failed like one that raises; it must not look like a lost process.
            self._tell(_failed(self._id, self._incarnation, error))

    def _turn(self) -> None:
        arrived = self._node.receive()
        now = now_us()
        for frames in arrived:
            self._take(frames, now)
        worker = self._worker
        if worker is None:
            self._check_driver(now)
            self._node.wait(IDLE_WAIT_US)
            return
        worked = worker.step(now) if not worker.stopping else False
        for persist in worker.to_store():
            self._writer.submit(persist)
        for stored in self._writer.stored():
            worker.on_stored(stored)
            worked = True
        for peer, frames in worker.to_peers(now):
            self._node.send(self._endpoints[peer], Kind.PEER, frames)
        for endpoint, frames in worker.to_slots(now):
            self._slots.send(endpoint, Kind.SLOT, frames)
        for message in worker.to_driver():
            if isinstance(message, m.Stopped):
                self._beat(now)  # the last figures go before the last word
            self._tell(message)
        self._stirred = self._stirred or worked or bool(arrived)
        # What waits may grow although nothing can be done: every heartbeat is a pulse too.
        if now - self._pulse_us >= (PULSE_US if self._stirred else HEARTBEAT_US):
            self._pulse_us = now
            self._stirred = False
            self._tell(worker.pulse(now))
        if now - self._beat_us >= HEARTBEAT_US:
            self._beat(now)
            self._check_driver(now)
        if worker.stopping:
            self._ended = True
        elif not worked and not arrived:
            wake = worker.wake_us(now)
            # Where nothing happens there is nothing to tell, and no reason to wake up for it.
            until = self._pulse_us + PULSE_US if self._stirred else self._beat_us + HEARTBEAT_US
            self._node.wait(min(until, wake if wake is not None else until) - now_us(), self._writer.fileno)

    def _take(self, frames: list[bytes], now: int) -> None:
        if frames[0] == Kind.PEER.value:
            if self._worker is not None:
                self._worker.on_peer(m.decode_peer(frames[1]), frames[2] if len(frames) > 2 else None, now)
            elif len(self._early) < EARLY_MESSAGES_MAX:
                self._early.append(frames)
            return
        if frames[0] == Kind.SLOT.value:
            if self._worker is not None:
                self._worker.on_slot(decode_from_slot(frames[1]), frames[2:])
            elif len(self._early) < EARLY_MESSAGES_MAX:
                self._early.append(frames)
            return
        message = m.decode_to_worker(frames[1])
        self._heard_us = now
        if isinstance(message, m.Start):
            self._connect(message.peers)
            plan = replace(self._plan, start_us=message.start_us)
            self._worker = Worker(plan, self._id, self._incarnation, now_ns)
            guard = open_guard(plan.options.checkpoint, self._id) if message.careful else None
            self._worker.start(message, self._read(message.restore), guard)
            early, self._early = self._early, []
            for each in early:
                self._take(each, now)
        elif self._worker is not None:
            if isinstance(message, m.Rollback):
                self._connect(message.peers)
                self._worker.roll_back(message, self._read(message.restore))
            else:
                self._worker.on_driver(message)
        elif isinstance(message, m.Stop):
            self._ended = True

    def _connect(self, peers: list[m.Peer]) -> None:
        for peer in peers:
            former = self._endpoints.get(peer.worker)
            if former not in (None, peer.endpoint):
                self._node.disconnect(former)
            self._endpoints[peer.worker] = peer.endpoint
            if peer.worker != self._id:
                self._node.connect(peer.endpoint)

    def _read(self, restore: m.Restore | None) -> dict[InstanceId, list[bytes]]:
        """Read the snapshots of the instances that live here."""
        found: dict[InstanceId, list[bytes]] = {}
        for stored in restore.snapshots if restore else ():
            if self._plan.worker_of(stored.instance) == self._id:
                data = self._store.read_snapshot(stored)
                found.setdefault((stored.unit, stored.instance), []).append(data)
        return found

    def _beat(self, now: int) -> None:
        assert self._worker is not None
        self._beat_us = now
        usage = resource.getrusage(resource.RUSAGE_SELF)
        self._tell(
            m.Heartbeat(
                worker=self._id,
                incarnation=self._incarnation,
                at_us=now,
                stats=self._worker.figures(),
                rss_bytes=_rss_bytes(),
                cpu_us=int((usage.ru_utime + usage.ru_stime) * 1e6),
                edges=self._worker.edge_figures(),
                offsets=self._worker.offsets(),
            )
        )

    def _check_driver(self, now: int) -> None:
        """End by oneself when the driver is gone, so that no process is left behind."""
        if now - self._heard_us > self._plan.options.silence_us:
            self._ended = True

    def close(self) -> None:
        """Free sockets, sinks and sources."""
        if self._worker is not None:
            self._worker.close()
        self._writer.close()
        self._node.close()


def own_address(driver: str) -> str:
    """The address of this machine on the way to the driver; nothing is sent."""
    host, _, port = driver.removeprefix("tcp://").rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, int(port)))
        address: str = probe.getsockname()[0]
    return address


def _rss_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 (hot enough to avoid Path)
        return int(file.read().split()[1]) * _PAGE_BYTES


def _failed(worker: int, incarnation: int, error: BaseException) -> m.Failed:
    if isinstance(error, PenstockError):
        trace = error.user_traceback if isinstance(error, OperationFailed) else ""
        return m.Failed(
            worker=worker,
            incarnation=incarnation,
            code=error.code,
            operation=error.operation,
            what=error.what,
            hint=error.hint,
            user_traceback=trace,
        )
    text = f"a worker failed: {describe_error(error)}.\n{user_traceback(error)}"
    return m.Failed(
        worker=worker,
        incarnation=incarnation,
        code=WorkerFailed.code,
        operation=None,
        what=text,
        hint="",
        user_traceback="",
    )
