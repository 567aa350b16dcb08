"""The shell around a worker: runs inside a Spark task, moves messages between the sockets and the pure `Worker`."""

from __future__ import annotations

import gc
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import msgspec
import pyarrow as pa
from pyspark import cloudpickle

from penstock.connectors.patience import signing
from penstock.engine.snapshot import Persist
from penstock.engine.ways.desk import Begin, Cancel
from penstock.engine.worker import (
    HEARTBEAT_US,
    Chore,
    Connect,
    Fetch,
    ReadBack,
    WorkerIdentity,
    WorkerMachine,
    last_words,
)
from penstock.errors import LimitExceeded, PenstockError, WorkerFailed
from penstock.operators.errors import describe_error
from penstock.pipeline.options import Forms
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m
from penstock.runtime.addresses import Address
from penstock.runtime.calling import Caller
from penstock.runtime.checkpoints import CheckpointStore
from penstock.runtime.clock import Clock, adopt, now_ns, now_us, sleep_finely
from penstock.runtime.connections import Connections
from penstock.runtime.queries import QueryAssignment, offer_service
from penstock.runtime.scratch import ScratchClient
from penstock.runtime.sharing import Directory, inside, look_for_sign
from penstock.runtime.shipping import stay_findable
from penstock.runtime.storing import Fetched, SnapshotStore, SnapshotWriter
from penstock.runtime.suspects import open_guard
from penstock.runtime.tables import TableAssignment, offer_tables
from penstock.runtime.transport import LOOPBACK, Keys, Node

SWITCH_INTERVAL_S = 0.001
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
ARROW_AFTER_S = 1.0
"""After a worker's start: the first results do not wait for what the first micro-batch needs."""


class Assignment(msgspec.Struct, frozen=True):
    """What a task is told through Spark: where the driver is, and the key of the job."""

    driver: str
    keys: Keys
    host: str = LOOPBACK
    """Where the worker listens; empty: at its machine's address towards the driver."""
    sign: str = ""
    """What the driver has left in the checkpoint directory, to be seen by every worker; empty: nothing."""
    clock: Clock = Clock()
    """The driver's: every process of its machine goes by it."""
    ports: tuple[int, int] = (0, 0)
    """First and last of the ports that may be listened at; (0, 0): any."""
    directory: Directory = ("", 0)
    """Where the driver is, on a cluster: relative paths begin there."""
    scratch: str = ""
    """Where the driver keeps snapshots of workers that do not see its directory; empty: nowhere."""
    queries: QueryAssignment | None = None
    """The query service, where operations need it."""
    tables: TableAssignment | None = None
    """Where the tables are that Spark has loaded."""


def run_worker(packed: bytes, worker: int, assignment: Assignment, order: int) -> None:
    """Host one worker until the job ends; called in a Spark task, which has brought the plan along, packed.

    ``order`` is the driver's number for the Spark job of the task.
    """
    # Ctrl-C reaches the whole process group; only the driver decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Records are not tracked by the collector; what is left is long-lived, so passes may be rare.
    gc.freeze()
    sleep_finely()
    # The loop waits this long at most for a thread that writes snapshots or speaks to a server, not for 5 ms.
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    adopt(assignment.clock)
    gc.set_threshold(50_000, 20, 100)
    incarnation = int.from_bytes(os.urandom(6), "big")
    try:
        plan = open_plan(packed)
    except Exception as error:
        hint = "Modules must lie beside the program, or be named by py_files, or be installed (see penstock pack)."
        what = f"a worker cannot open the pipeline: {describe_error(error)}."
        _tell_why(assignment, worker, incarnation, WorkerFailed(what, hint=hint))
        return
    offer_service(assignment.queries, plan)
    offer_tables(assignment.tables)
    try:
        sees_driver = look_for_sign(assignment.sign, needed=not assignment.scratch)
        entered = ExitStack()
        entered.enter_context(inside(assignment.directory, plan))
    except PenstockError as error:
        _tell_why(assignment, worker, incarnation, error)
        return
    options = plan.options
    store: SnapshotStore = CheckpointStore(options.checkpoint, durable=options.durable)
    if not sees_driver:
        store = ScratchClient(assignment.keys, assignment.scratch)
    with entered:
        host = _Host(plan, worker, incarnation, assignment, order, store)
        try:
            with signing(host._sign):
                host.serve()
        finally:
            host.close()


def open_plan(packed: bytes) -> Plan:
    """Open the plan that Spark's own closure has brought; nothing that comes from a socket is opened like this."""
    stay_findable()
    plan: Plan = cloudpickle.loads(packed)
    return plan


def _tell_why(assignment: Assignment, worker: int, incarnation: int, error: PenstockError) -> None:
    """The worker cannot begin: tell the driver what is missing, and end in order."""
    node = Node(assignment.keys, own_place(assignment))
    node.connect(assignment.driver)
    for endpoint, kind, frames in last_words(worker, incarnation, assignment.driver, error, now_us()):
        node.send(endpoint, kind, frames)
    node.close()


class _Host:
    def __init__(
        self, plan: Plan, worker: int, incarnation: int, assignment: Assignment, order: int, store: SnapshotStore
    ) -> None:
        self._worker = worker
        self._checkpoint = plan.options.checkpoint
        self._node = Node(assignment.keys, own_place(assignment))
        self._node.connect(assignment.driver)
        self._connections = Connections(self._node, (plan.options.slots or plan.workers) + plan.replicas)
        self._careful = False
        """Whether what is being read back is for careful mode."""
        self._store = store
        self._writer = SnapshotWriter(store)
        self._caller = Caller(now_us)
        if any(op.waits for unit in plan.units for op in unit.ops):
            self._caller.warm_up()
        if plan.options.forms is not Forms.RECORD:
            beside = threading.Timer(ARROW_AFTER_S, warm_arrow_up)
            beside.daemon = True
            beside.start()
        identity = WorkerIdentity(worker, incarnation, self._node.endpoint, os.getpid(), order)
        self._began_ns, self._slept_ns = now_ns(), 0
        self._present_us = 0
        self._machine = WorkerMachine(plan, identity, assignment.driver, now_ns, self._usage, now_us())

    def serve(self) -> None:
        """Run until told to stop, or until the driver is gone."""
        machine, node, send = self._machine, self._node, self._connections.send
        while not machine.ended:
            arrived = node.receive()
            now = now_us()
            for frames in arrived:
                machine.receive(frames, now)
            if called := self._caller.done():
                machine.on_called(called, now)
            left = machine.step(now)
            left |= self._do_chores(now)
            for endpoint, kind, outgoing in machine.sends(now):
                try:
                    send(endpoint, kind, outgoing)
                except LimitExceeded as error:
                    machine.fail(error, now)
            if not left:
                wake_us, caller = machine.wake_us(now), self._caller
                if caller.is_calling:
                    wake_us = min(wake_us, caller.wake_us() or wake_us)
                before_ns = now_ns()
                if not caller.is_calling and machine.rests(wake_us, now):
                    node.rest(wake_us - before_ns // 1000)
                else:
                    node.wait(wake_us - before_ns // 1000, self._writer.fileno, *caller.filenos)
                self._slept_ns += now_ns() - before_ns

    def _usage(self) -> tuple[int, int, int]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        busy_ns = now_ns() - self._began_ns - self._slept_ns
        return _rss_bytes(), int((usage.ru_utime + usage.ru_stime) * 1e6), busy_ns // 1000

    def _do_chores(self, now: int) -> bool:
        worked = False
        calls: list[Begin | Cancel] = []
        try:
            for chore in self._machine.chores():
                if isinstance(chore, Begin | Cancel):
                    calls.append(chore)
                else:
                    self._do(chore)
                worked = True  # coroutines, too, begin with the next turn
            if calls:
                self._caller.order(calls)
            for done in self._writer.done():
                if isinstance(done, m.Stored):
                    self._machine.on_stored(done)
                elif isinstance(done, Fetched):
                    self._machine.on_fetched(done.stored, done.data)
                else:
                    guard = open_guard(self._checkpoint, self._worker) if self._careful else None
                    with self._speaking():
                        self._machine.on_restored(done, guard, now)
                worked = True
        except Exception as error:  # a snapshot that cannot be read or written
            self._machine.fail(error, now)
        return worked

    def _do(self, chore: Chore) -> None:
        match chore:
            case Connect(endpoint=endpoint, former=former):
                self._connections.expect(endpoint, former)
            case ReadBack(snapshots=snapshots, careful=careful):
                self._careful = careful
                self._writer.read(snapshots)
            case Fetch(snapshot=stored):
                self._writer.fetch(stored)
            case Persist():
                self._writer.submit(chore)

    @contextmanager
    def _speaking(self) -> Iterator[None]:
        """Have another thread tell the driver that the worker is there, while the loop builds from large snapshots.

        The loop sends and receives nothing meanwhile, so the sockets are the thread's alone.
        """
        over = threading.Event()

        def speak() -> None:
            while not over.wait(HEARTBEAT_US / 1e6):
                self._say_present(now_us())

        thread = threading.Thread(target=speak, name="penstock-present", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _say_present(self, now: int) -> None:
        self._present_us = now
        for endpoint, kind, frames in self._machine.sends_beside(now):
            self._connections.send(endpoint, kind, frames)

    def _sign(self) -> None:
        """The loop waits for a server, within a turn: nothing of it is being sent."""
        now = now_us()
        if now - self._present_us >= HEARTBEAT_US:
            self._say_present(now)

    def close(self) -> None:
        """Free sockets, sinks and sources."""
        self._machine.close()
        self._caller.close()
        self._writer.close()
        if isinstance(self._store, ScratchClient):
            self._store.close()
        self._node.close()


def warm_arrow_up() -> None:
    """Arrow imports pandas, some tenths of a second, when it first takes values of Python's: have that behind."""
    pa.array([], pa.int8())


def own_place(assignment: Assignment) -> Address:
    """Where a worker or a slot listens."""
    return Address(assignment.host or own_address(assignment.driver), ports=assignment.ports)


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
