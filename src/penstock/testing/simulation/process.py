"""A worker process of the simulation: moves bytes and time around the worker's machine, as `runtime.host` does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from zlib import crc32

from penstock.dataset import ChannelId
from penstock.engine.inspect import WorkerView
from penstock.engine.share import Share
from penstock.engine.snapshot import Persist, by_instance
from penstock.engine.ways.desk import Begin, Cancel
from penstock.engine.worker import Chore, Fetch, ReadBack, WorkerIdentity, WorkerMachine
from penstock.errors import OperationFailed
from penstock.metrics.times import sooner
from penstock.protocol import messages as m
from penstock.protocol import slots as s
from penstock.protocol.link import Kind
from penstock.testing.calling import MadeUpCalls
from penstock.testing.simulation.faults import Moment
from penstock.testing.simulation.invariants import Audit
from penstock.testing.simulation.lines import LineAudit
from penstock.testing.simulation.poison import Killed
from penstock.testing.simulation.world import Violation

if TYPE_CHECKING:
    from penstock.testing.simulation.driver import DriverProcess
    from penstock.testing.simulation.run import Simulation

TURN_US_MIN = 100


class Died(Exception):
    """The process was killed in the middle of what it did."""


Arrived = Sequence[bytes] | m.Stored


class Process:
    """One incarnation of a worker; an address of its own, and nothing that survives it."""

    def __init__(
        self, simulation: Simulation, driver: DriverProcess, worker: int, incarnation: int, order: int
    ) -> None:
        self.name = f"w{worker}#{incarnation}"
        self.id = worker
        self.incarnation = incarnation
        self.driver = driver
        self.order = order
        self.dead = False
        """Killed, or ended by itself."""
        self.mute = False
        """What it has sent to the driver and has not arrived is lost."""
        self.frozen = False
        self._simulation = simulation
        self._world = simulation.world
        self._inbox: list[Arrived] = []
        self._audit = Audit(simulation.plan)
        self._lines = LineAudit()
        self._spent_ns = 0
        self._busy_ns = 0
        """What the turns before have taken."""
        self._turn_us: int | None = None
        self._calls = MadeUpCalls(lambda: self._world.now_us)
        identity = WorkerIdentity(worker, incarnation, self.name, order=order)
        self.machine = WorkerMachine(
            simulation.plan, identity, driver.name, self.clock_ns, self._usage, self._world.now_us
        )
        self._wake(self._world.now_us)

    @property
    def worker(self) -> Share | None:
        """What it hosts, once it has started."""
        return self.machine.share

    def clock_ns(self) -> int:
        """The time as this process sees it: work takes some."""
        self._spent_ns += self._world.work_ns(self._simulation.scenario.work_ns_max)
        return self._world.now_us * 1000 + self._spent_ns

    def _usage(self) -> tuple[int, int, int]:
        """Nothing here sleeps in a function."""
        busy_us = (self._busy_ns + self._spent_ns) // 1000
        return 0, busy_us, busy_us

    def take(self, arrived: Arrived) -> None:
        """Something has come by network or from the disk."""
        if not self.dead:
            self._inbox.append(arrived)
            self._wake(self._world.now_us)

    def kill(self, *, lose: bool) -> None:
        """End at once; what is on its way to the driver may be lost."""
        self.dead = True
        self.mute = lose
        self._calls.close()

    def freeze(self, until_us: int) -> None:
        """Do nothing for a while, as a stopped process does; what arrives is kept."""
        self.frozen = True

        def thaw() -> None:
            self.frozen = False
            self._wake(self._world.now_us)

        self._world.at(until_us, f"{self.name} thaws", thaw)

    # --- turns --------------------------------------------------------------------------------------------------------

    def _wake(self, at_us: int) -> None:
        if self._turn_us is not None and self._turn_us <= at_us:
            return
        self._turn_us = at_us

        def turn() -> None:
            if self._turn_us == at_us and not self.dead and not self.frozen:
                self._turn_us = None
                try:
                    self._turn()
                except Died:
                    pass
                except Killed:
                    self._world.note(f"{self.name} is killed by a record")
                    self._simulation.killed_by_record += 1
                    self._simulation.kill(self)
            elif self._turn_us == at_us:
                self._turn_us = None

        self._world.at(at_us, self.name, turn)

    def _reach(self, moment: Moment | None) -> None:
        if moment is not None:
            self._simulation.reach(moment, self)
            if self.dead:
                raise Died

    def _turn(self) -> None:
        now_us, machine = self._world.now_us, self.machine
        self._busy_ns += self._spent_ns
        self._spent_ns = 0
        while self._inbox:
            self._handle(self._inbox.pop(0), now_us)
            if self.frozen:
                return
        if called := self._calls.done():
            machine.on_called(called, now_us)
        busy = machine.step(now_us)
        busy |= self._do(machine.chores(), now_us)
        self._send(now_us)
        self._check_failure()
        if machine.ended:
            self.dead = True
            machine.close()
            self._calls.close()
            return
        soonest_us = max(now_us + TURN_US_MIN, now_us + self._spent_ns // 1000)
        wake_us = sooner(machine.wake_us(now_us), self._calls.wake_us())
        self._wake(soonest_us if busy or wake_us is None else max(soonest_us, wake_us))

    @property
    def _counts(self) -> bool:
        """Whether its driver lives and listens to it, and not to a process that has replaced it."""
        peer = self.driver.machine.scheduler.peers.get(self.id)
        is_known = peer is not None and peer.incarnation == self.incarnation
        return is_known and not (self.driver.dead or self.driver.finished)

    def _check_failure(self) -> None:
        """An error must not happen to a worker that counts, unless a record was to cause it."""
        error = self.machine.failure
        if error is None:
            return
        wanted = isinstance(error, OperationFailed) and self._simulation.scenario.poison
        if self._counts and not wanted:
            raise error
        self._world.note(f"{self.name} fails: {type(error).__name__}")

    def _do(self, chores: Sequence[Chore], now_us: int) -> bool:
        persists = [chore for chore in chores if isinstance(chore, Persist)]
        if persists:
            self._reach(Moment.MARKER)
        for persist in persists:
            self._store(persist)
        if persists:
            self._reach(Moment.STORING)
        for chore in chores:
            if isinstance(chore, ReadBack):
                self._read_back(chore, now_us)
            elif isinstance(chore, Fetch):
                self._fetch(chore.snapshot)
            elif isinstance(chore, Begin | Cancel):
                self._calls.order([chore])
        return bool(chores)

    def _read_back(self, chore: ReadBack, now_us: int) -> None:
        try:
            found = by_instance((stored, self._simulation.disk.read(stored)) for stored in chore.snapshots)
        except Violation as error:
            if self._counts:
                raise
            # What it was told to read was needed while its driver lived, and until it was replaced.
            self.machine.fail(error, now_us)
            return
        guard = self._simulation.notes.open(self.id) if chore.careful else None
        self.machine.on_restored(found, guard, now_us)

    def _fetch(self, stored: m.Stored) -> None:
        def read() -> None:
            if not self.dead:
                self.machine.on_fetched(stored, self._simulation.disk.files.get(stored.name))
                self._wake(self._world.now_us)

        self._world.after(self._world.between(10, self._simulation.scenario.write_us_max), f"{self.name} reads", read)

    def _store(self, persist: Persist) -> None:
        stored = persist.stored(crc32(persist.data))

        def done() -> None:
            for upload in persist.uploads:
                upload()
            self.take(stored)

        self._simulation.disk.write(self, persist.name, persist.data, done)

    def _send(self, now_us: int) -> None:
        away = False
        to_driver: list[Sequence[bytes]] = []
        for endpoint, kind, frames in self.machine.sends(now_us):
            if kind is Kind.WORKER:
                to_driver.append(frames)
                continue
            away = away or (kind is Kind.SLOT and isinstance(s.decode_to_slot(frames[0]), s.Do))
            self._simulation.send(self, endpoint, kind, frames)
        self._check(away)
        for frames in to_driver:
            self._simulation.send(self, self.driver.name, Kind.WORKER, frames)
            if len(frames) > 1:
                message = m.decode_from_worker(frames[1])
                if isinstance(message, m.Changed) and message.case:
                    self._reach(Moment.EXCHANGED)
                else:
                    self._reach(_SENT.get(type(message).__name__))

    def _check(self, away: bool) -> None:
        if self.worker is None:
            return
        view = self.worker.inspect()
        self._audit.check(view, self._simulation.disk.committed_epoch)
        self._reach(Moment.WARMING if any(unit.is_exchanging for unit in view.units) else None)
        if self._simulation.scenario.has_slots:
            self._lines.check(view)
            self._reach(Moment.CLOSING if self._lines.closing else None)
            self._reach(Moment.MARKER_AWAY if self._lines.markers else None)
            self._reach(Moment.AWAY if away else None)

    # --- messages -----------------------------------------------------------------------------------------------------

    def _handle(self, arrived: Arrived, now_us: int) -> None:
        if isinstance(arrived, m.Stored):
            self.machine.on_stored(arrived)
            self._reach(Moment.STORED)
        elif arrived[0] == Kind.PEER.value:
            self._on_peer(arrived, now_us)
        elif arrived[0] == Kind.SLOT.value:
            self._on_slot(arrived, now_us)
        else:
            self._on_driver(arrived, now_us)
        self._do(self.machine.chores(), now_us)

    def _on_peer(self, frames: Sequence[bytes], now_us: int) -> None:
        worker = self.worker
        if worker is None:
            self.machine.receive(frames, now_us)
            return
        before = worker.inspect()
        for message in _headers(frames[1:]):
            sends = message.producer if isinstance(message, m.Data) else message.consumer
            sender = before.peers.get(self.machine.plan.worker_of(sends))
            if sender != message.incarnation:
                self._must_not_take(message, sender, frames, now_us)
                return
        self.machine.receive(frames, now_us)

    def _must_not_take(self, message: m.PeerMessage, sender: int | None, frames: Sequence[bytes], now_us: int) -> None:
        assert self.worker is not None
        channel = ChannelId(message.edge, message.producer, message.consumer)
        ends = _ends(self.worker.inspect(), channel)
        self.machine.receive(frames, now_us)
        if _ends(self.worker.inspect(), channel) != ends:
            raise Violation(f"{self.name} takes {message} of an incarnation that was replaced by {sender}")

    def _on_slot(self, frames: Sequence[bytes], now_us: int) -> None:
        message = s.decode_from_slot(frames[1])
        if self.worker is not None:
            self._lines.before(self.worker.inspect(), message)
        self.machine.receive(frames, now_us)
        if self.worker is not None:
            self._lines.after(self.worker.inspect(), message)
            self._reach(Moment.RESULT if isinstance(message, s.Done) else None)

    def _on_driver(self, frames: Sequence[bytes], now_us: int) -> None:
        message = m.decode_to_worker(frames[2]) if len(frames) > 2 else None
        kind = type(message).__name__
        if isinstance(message, m.Start) and message.generation:
            self._reach(Moment.RESTART)
        if self.worker is not None:
            self._reach(_RECEIVED.get(kind))
            if self.frozen:
                self._inbox.insert(0, frames)
                return
        self.machine.receive(frames, now_us)
        if self.worker is not None and isinstance(message, m.Commit):
            self._reach(Moment.COMMITTED)


def _headers(frames: Sequence[bytes]) -> Iterator[m.PeerMessage]:
    """The headers of a message between workers, without what follows them."""
    at = 0
    while at < len(frames):
        message = m.decode_peer(frames[at])
        at += 1 + (message.frames if isinstance(message, m.Data) and message.count else 0)
        yield message


def _ends(view: WorkerView, channel: ChannelId) -> tuple[object, ...]:
    """What a message of a channel could change."""
    receiver, sender = view.receivers.get(channel), view.senders.get(channel)
    return (
        receiver and (receiver.received, receiver.owes_ack),
        sender and (sender.received, sender.in_flight_records, sender.in_flight_bytes),
    )


_SENT = {
    "EpochDone": Moment.EPOCH_DONE,
    "Deliver": Moment.DELIVERED,
    "RolledBack": Moment.ROLLED_BACK,
    "Finished": Moment.FINISHED,
    "Stopped": Moment.STOPPED,
    "Changed": Moment.RETURNED,
    "Prepared": Moment.LOADED,
    "Holding": Moment.HOLDING,
    "Released": Moment.RELEASED,
}
_RECEIVED = {
    "Rollback": Moment.ROLLBACK,
    "Resume": Moment.RESUME,
    "Commit": Moment.COMMIT,
    "BeginEpoch": Moment.BEGIN,
    "Switch": Moment.SWITCH,
    "Exchange": Moment.EXCHANGE,
    "Prepare": Moment.LOAD,
    "Hold": Moment.HOLD,
    "BeginShift": Moment.HOLD,
    "Release": Moment.RELEASE,
}
