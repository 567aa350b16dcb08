"""A worker process of the simulation: what `runtime.host` does, without sockets, threads and the wall clock."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from zlib import crc32

from penstock.dataset import ChannelId
from penstock.engine.snapshot import InstanceId
from penstock.engine.worker import Persist, Worker
from penstock.errors import OperationFailed
from penstock.protocol import messages as m
from penstock.protocol import slots as s
from penstock.testing.simulation.faults import Moment
from penstock.testing.simulation.invariants import Audit
from penstock.testing.simulation.lines import LineAudit
from penstock.testing.simulation.poison import Killed
from penstock.testing.simulation.world import Violation

if TYPE_CHECKING:
    from penstock.testing.simulation.driver import DriverProcess
    from penstock.testing.simulation.run import Simulation

HEARTBEAT_US = 500_000
PULSE_US = 100_000
EARLY_MESSAGES_MAX = 100
TURN_US_MIN = 100


class Died(Exception):
    """The process was killed in the middle of what it did."""


@dataclass(frozen=True)
class SlotWord:
    """A message of a slot, as frames."""

    frames: list[bytes]


Arrived = m.ToWorker | list[bytes] | m.Stored | SlotWord


class Process:
    """One incarnation of a worker; an address of its own, and nothing that survives it."""

    def __init__(self, simulation: Simulation, driver: DriverProcess, worker: int, incarnation: int) -> None:
        self.name = f"w{worker}#{incarnation}"
        self.id = worker
        self.incarnation = incarnation
        self.driver = driver
        self.dead = False
        """Killed, or ended by itself."""
        self.frozen = False
        self.worker: Worker | None = None
        self._simulation = simulation
        self._world = simulation.world
        self._to_driver = simulation.network.connection(self.name, driver.name)
        self._inbox: list[Arrived] = []
        self._early: list[list[bytes] | SlotWord] = []
        self._endpoints: dict[int, str] = {}
        self._audit = Audit(simulation.plan)
        self._lines = LineAudit()
        self._has_slots = simulation.scenario.has_slots
        self._pulse_us = 0
        self._spent_ns = 0
        self._heard_us = self._beat_us = self._world.now_us
        self._turn_us: int | None = None
        self._tell(m.Register(worker=worker, incarnation=incarnation, endpoint=self.name, pid=0))
        self._wake(self._world.now_us + HEARTBEAT_US)

    def clock_ns(self) -> int:
        """The time as this process sees it: work takes some."""
        self._spent_ns += self._world.work_ns(self._simulation.scenario.work_ns_max)
        return self._world.now_us * 1000 + self._spent_ns

    def _tell(self, message: m.FromWorker) -> None:
        packed, driver = m.encode(message), self.driver
        self._to_driver.send(
            type(message).__name__, lambda: driver.on_message(m.decode_from_worker(packed)) if not driver.dead else None
        )

    def take(self, arrived: Arrived) -> None:
        """Something has come by network or from the disk."""
        if not self.dead:
            self._inbox.append(arrived)
            self._wake(self._world.now_us)

    def kill(self, *, lose: bool) -> None:
        """End at once; what is on its way to the driver may be lost."""
        self.dead = True
        if lose:
            self._to_driver.break_off()

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
                except Exception as error:
                    self._fail(error)
            elif self._turn_us == at_us:
                self._turn_us = None

        self._world.at(at_us, self.name, turn)

    def _fail(self, error: Exception) -> None:
        """End with an error, which must not happen to a worker that counts; the driver is told, and must not care."""
        peer = self.driver.scheduler.peers.get(self.id)
        counts = peer is not None and peer.incarnation == self.incarnation
        wanted = isinstance(error, OperationFailed) and self._simulation.scenario.poison
        if counts and not (self.driver.dead or self.driver.finished or wanted):
            raise error
        self._world.note(f"{self.name} fails: {type(error).__name__}")
        operation = error.operation if isinstance(error, OperationFailed) else None
        code = error.code if isinstance(error, OperationFailed) else "FAILED"
        self._tell(
            m.Failed(
                worker=self.id,
                incarnation=self.incarnation,
                code=code,
                operation=operation,
                what=str(error),
                hint="",
                user_traceback="",
            )
        )
        self.dead = True

    def _reach(self, moment: Moment) -> None:
        self._simulation.reach(moment, self)
        if self.dead:
            raise Died

    def _turn(self) -> None:
        now_us = self._world.now_us
        self._spent_ns = 0
        arrived = bool(self._inbox)
        while self._inbox:
            self._handle(self._inbox.pop(0), now_us)
            if self.frozen:
                return
        worked = self._work(now_us) if self.worker is not None else False
        if now_us - self._beat_us >= HEARTBEAT_US or self.worker is None:
            self._beat_us = now_us
            if now_us - self._heard_us > self._simulation.plan.options.silence_us:
                self._world.note(f"{self.name} ends in silence")
                self.dead = True
                return
            if self.worker is not None:
                figures = self.worker.figures() if self._simulation.scenario.decides else []
                self._tell(
                    m.Heartbeat(
                        worker=self.id,
                        incarnation=self.incarnation,
                        at_us=now_us,
                        stats=figures,
                        rss_bytes=0,
                        cpu_us=0,
                        edges=[],
                        offsets={},
                    )
                )
        if self.worker is not None and self.worker.stopping:
            self.dead = True
            self.worker.close()
            return
        self._wake(self._next_us(now_us, worked or arrived))

    def _next_us(self, now_us: int, busy: bool) -> int:
        soonest_us = max(now_us + TURN_US_MIN, now_us + self._spent_ns // 1000)
        if busy and self.worker is not None:
            return soonest_us
        wake_us = self.worker.wake_us(now_us) if self.worker is not None else None
        beat_us = self._beat_us + HEARTBEAT_US
        if self._has_slots and self.worker is not None:
            beat_us = min(beat_us, self._pulse_us + PULSE_US)
        return max(soonest_us, min(beat_us, wake_us if wake_us is not None else beat_us))

    def _work(self, now_us: int) -> bool:
        worker = self.worker
        assert worker is not None
        worked = worker.step(now_us) if not worker.stopping else False
        persists = worker.to_store()
        if persists:
            self._reach(Moment.MARKER)
        for persist in persists:
            self._store(persist)
        if persists:
            self._reach(Moment.STORING)
        for target, frames in worker.to_peers(now_us):
            self._simulation.send_peer(self, self._endpoints[target], frames)
        if self._has_slots:
            self._deal_with_slots(worker, now_us)
        self._audit.check(worker.inspect(), self._simulation.disk.committed_epoch)
        for message in worker.to_driver():
            self._tell(message)
            sent = _SENT.get(type(message))
            if sent is not None:
                self._reach(sent)
        return worked

    def _deal_with_slots(self, worker: Worker, now_us: int) -> None:
        away = worker.to_slots(now_us)
        for endpoint, frames in away:
            self._simulation.send_to_slot(self, endpoint, frames)
        self._lines.check(worker.inspect())
        if self._lines.closing:
            self._reach(Moment.CLOSING)
        if self._lines.markers:
            self._reach(Moment.MARKER_AWAY)
        if any(isinstance(s.decode_to_slot(frames[0]), s.Do) for _, frames in away):
            self._reach(Moment.AWAY)
        if now_us - self._pulse_us >= PULSE_US:
            self._pulse_us = now_us
            self._tell(worker.pulse(now_us))

    def _store(self, persist: Persist) -> None:
        stored = m.Stored(
            unit=persist.unit,
            instance=persist.instance,
            epoch=persist.epoch,
            full=persist.full,
            name=persist.name,
            crc=crc32(persist.data),
        )
        self._simulation.disk.write(self, persist.name, persist.data, lambda: self.take(stored))

    # --- messages -----------------------------------------------------------------------------------------------------

    def _handle(self, arrived: Arrived, now_us: int) -> None:
        if isinstance(arrived, list):
            self._on_peer(arrived, now_us)
        elif isinstance(arrived, SlotWord):
            self._on_slot(arrived)
        elif isinstance(arrived, m.Stored):
            assert self.worker is not None
            self.worker.on_stored(arrived)
            self._reach(Moment.STORED)
        else:
            self._heard_us = now_us
            self._on_driver(arrived, now_us)

    def _on_peer(self, frames: list[bytes], now_us: int) -> None:
        worker = self.worker
        if worker is None:
            if len(self._early) < EARLY_MESSAGES_MAX:
                self._early.append(frames)
            return
        message = m.decode_peer(frames[0])
        payload = frames[1] if len(frames) > 1 else None
        channel = ChannelId(message.edge, message.producer, message.consumer)
        sends = message.producer if isinstance(message, m.Data) else message.consumer
        sender = worker.inspect().peers.get(self._simulation.plan.worker_of(sends))
        before = _ends(worker, channel)
        worker.on_peer(message, payload, now_us)
        if sender != message.incarnation and _ends(worker, channel) != before:
            raise Violation(f"{self.name} takes {message} of an incarnation that was replaced by {sender}")

    def _on_slot(self, word: SlotWord) -> None:
        if self.worker is None:
            if len(self._early) < EARLY_MESSAGES_MAX:
                self._early.append(word)
            return
        message = s.decode_from_slot(word.frames[0])
        self._lines.before(self.worker.inspect(), message)
        self.worker.on_slot(message, word.frames[1:])
        self._lines.after(self.worker.inspect(), message)
        if isinstance(message, s.Done):
            self._reach(Moment.RESULT)

    def _on_driver(self, message: m.ToWorker, now_us: int) -> None:
        reached = _RECEIVED.get(type(message))
        if reached is not None and self.worker is not None:
            self._reach(reached)
            if self.frozen:
                self._inbox.insert(0, message)
                return
        if isinstance(message, m.Start):
            if message.generation:
                self._reach(Moment.RESTART)
            self._connect(message.peers)
            plan = replace(self._simulation.plan, start_us=message.start_us)
            self.worker = Worker(plan, self.id, self.incarnation, self.clock_ns)
            guard = self._simulation.notes.open(self.id) if message.careful else None
            self.worker.start(message, self._read(message.restore), guard)
            early, self._early = self._early, []
            for frames in early:
                self._handle(frames, now_us)
        elif self.worker is not None:
            if isinstance(message, m.Rollback):
                self._connect(message.peers)
                self.worker.roll_back(message, self._read(message.restore))
            else:
                self.worker.on_driver(message)
            if isinstance(message, m.Commit):
                self._reach(Moment.COMMITTED)
        elif isinstance(message, m.Stop):
            self.dead = True
            raise Died

    def _connect(self, peers: list[m.Peer]) -> None:
        self._endpoints = {peer.worker: peer.endpoint for peer in peers}

    def _read(self, restore: m.Restore | None) -> dict[InstanceId, list[bytes]]:
        found: dict[InstanceId, list[bytes]] = {}
        for stored in restore.snapshots if restore else ():
            if self._simulation.plan.worker_of(stored.instance) == self.id:
                data = self._simulation.disk.read(stored)
                found.setdefault((stored.unit, stored.instance), []).append(data)
        return found


def _ends(worker: Worker, channel: ChannelId) -> tuple[object, ...]:
    """What a message of a channel could change."""
    view = worker.inspect()
    receiver, sender = view.receivers.get(channel), view.senders.get(channel)
    return (
        receiver and (receiver.received, receiver.owes_ack),
        sender and (sender.received, sender.in_flight_records),
    )


_SENT = {
    m.EpochDone: Moment.EPOCH_DONE,
    m.Deliver: Moment.DELIVERED,
    m.RolledBack: Moment.ROLLED_BACK,
    m.Finished: Moment.FINISHED,
    m.Stopped: Moment.STOPPED,
    m.Rerouted: Moment.RETURNED,
}
_RECEIVED = {
    m.Rollback: Moment.ROLLBACK,
    m.Resume: Moment.RESUME,
    m.Commit: Moment.COMMIT,
    m.BeginEpoch: Moment.BEGIN,
    m.Reroute: Moment.REROUTE,
}
