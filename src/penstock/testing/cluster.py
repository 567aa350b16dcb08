"""A whole job in one process and in made-up time: the real scheduler and the real workers, joined by queues.

The user-facing harness drives it; nothing here knows of Spark, sockets or the wall clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from zlib import crc32

from penstock.control.deliveries import Deliveries
from penstock.control.events import (
    CommitRecorded,
    DrainRequested,
    Event,
    Finish,
    FromWorker,
    RecordCommit,
    Replace,
    Send,
    Tick,
)
from penstock.control.scheduler import Phase, Resumption, Scheduler
from penstock.engine.slot import Identity, Slot, State
from penstock.engine.snapshot import InstanceId
from penstock.engine.worker import Persist, Worker
from penstock.errors import PenstockError
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m
from penstock.protocol.slots import decode_from_slot, decode_to_slot

START_US = 1_700_000_000_000_000
"""When made-up time begins: an ordinary day, so that times of day look like times of day."""
STEPS_MAX = 10_000_000


class Cluster:
    """Runs a plan step by step; time moves only when nothing can be done at the present moment."""

    def __init__(self, plan: Plan, resumption: Resumption | None = None, disk: dict[str, bytes] | None = None) -> None:
        self.now_us = START_US
        self.error: PenstockError | None = None
        self.disk: dict[str, bytes] = dict(disk or {})
        self.commits: list[RecordCommit] = []
        self._plan = plan
        self._scheduler = Scheduler(plan, self.now_us, resumption)
        self._workers: dict[int, Worker] = {}
        self._incarnations = 0
        self._frames: deque[tuple[int, list[bytes]]] = deque()
        self._deliveries = Deliveries(plan)
        self._slots: dict[str, Slot] = {}
        self._slot_frames: deque[tuple[str, list[bytes]]] = deque()
        self._switches = 0
        for worker in range(plan.workers):
            self._register(worker)

    def _register(self, worker: int) -> None:
        self._incarnations += 1
        self._hear(
            FromWorker(m.Register(worker=worker, incarnation=self._incarnations, endpoint=f"memory:{worker}", pid=0))
        )

    def crash(self, worker: int) -> None:
        """Lose a worker with all it holds; another takes its place, as Spark would have it."""
        self._workers.pop(worker)
        self._register(worker)

    def add_slot(self, slot: int, group: int = 0, quota: int = 1_000_000) -> str:
        """Start a slot of the batch path, as a task of a group would; return its name."""
        self._incarnations += 1
        name = f"slot:{self._incarnations}"
        identity = Identity(group, slot, self._incarnations, name)
        self._slots[name] = Slot(self._plan, identity, quota, {}, lambda: self.now_us * 1000)
        self._slots[name].on_workers(list(self._scheduler.peers.values()), self.start_us)
        return name

    def lose_slot(self, name: str) -> None:
        """Lose a slot with all it holds; another takes its place, as Spark would have it."""
        lost = self._slots.pop(name).identity
        self.add_slot(lost.slot, lost.group)

    @property
    def slots(self) -> list[str]:
        """Names of the slots that are up."""
        return list(self._slots)

    def reroute(self, unit: int, first: int, last: int, interval_us: int = 50_000) -> None:
        """Order operations ``first`` to ``last`` of a unit into slots, or back where ``first`` is larger."""
        self._switches += 1
        for worker in self._workers:
            self._order(
                worker, m.Reroute(switch=self._switches, unit=unit, first=first, last=last, interval_us=interval_us)
            )

    @property
    def ended(self) -> bool:
        """Whether the job is over."""
        return self._scheduler.phase is Phase.ENDED

    @property
    def start_us(self) -> int:
        """When the sources' schedules began."""
        return self._scheduler.start_us

    @property
    def committed_epoch(self) -> int:
        """Last epoch committed everywhere."""
        return self._scheduler.committed_epoch

    @property
    def workers(self) -> list[Worker]:
        """The workers, for their figures."""
        return list(self._workers.values())

    def _hear(self, event: Event) -> None:
        for command in self._scheduler.handle(event, self.now_us):
            match command:
                case Send(worker=worker, message=message):
                    self._order(worker, message)
                case RecordCommit():
                    self.commits.append(command)
                    self._hear(CommitRecorded(command.epoch))
                case Replace():
                    raise AssertionError("no worker is ever silent here")
                case Finish(error=error):
                    self.error = error
                    for each in self._workers.values():
                        each.close()

    def _order(self, worker: int, message: m.ToWorker) -> None:
        decoded = m.decode_to_worker(m.encode(message))  # through the codec, as on the wire
        if isinstance(decoded, m.Start):
            plan = replace(self._plan, start_us=decoded.start_us)
            incarnation = next(peer.incarnation for peer in decoded.peers if peer.worker == worker)
            self._workers[worker] = Worker(plan, worker, incarnation, lambda: self.now_us * 1000)
            self._workers[worker].start(decoded, self._read(decoded.restore))
        elif self._workers[worker].stopping:
            pass  # its process is gone
        elif isinstance(decoded, m.Rollback):
            self._workers[worker].roll_back(decoded, self._read(decoded.restore))
        else:
            self._workers[worker].on_driver(decoded)

    def _read(self, restore: m.Restore | None) -> dict[InstanceId, list[bytes]]:
        found: dict[InstanceId, list[bytes]] = {}
        for stored in restore.snapshots if restore else ():
            found.setdefault((stored.unit, stored.instance), []).append(self.disk[stored.name])
        return found

    def _store(self, worker: Worker, persist: Persist) -> None:
        self.disk[persist.name] = persist.data
        worker.on_stored(
            m.Stored(
                unit=persist.unit,
                instance=persist.instance,
                epoch=persist.epoch,
                full=persist.full,
                name=persist.name,
                crc=crc32(persist.data),
            )
        )

    def drain(self) -> None:
        """Ask the job to finish what it has."""
        self._hear(DrainRequested())

    def run_until(self, until_us: int) -> None:
        """Run until nothing is left to do before ``until_us``, or the job has ended."""
        for _ in range(STEPS_MAX):
            if self.ended:
                break
            if self._step():
                continue
            wake_us = self._wake_us()
            if wake_us > until_us:
                break
            self.now_us = max(self.now_us, wake_us)
            self._hear(Tick())
        else:
            raise AssertionError("the job makes no progress: it went through more steps than it can need")
        if not self.ended:
            self.now_us = max(self.now_us, until_us)
        if self.error is not None:
            raise self.error

    def _wake_us(self) -> int:
        wakes = [self._scheduler.wake_us(self.now_us)]
        wakes += [w for each in self._workers.values() if (w := each.wake_us(self.now_us)) is not None]
        wakes += [w for slot in self._slots.values() if (w := slot.wake_us()) is not None]
        return min(wakes)

    def _step(self) -> bool:
        worked = False
        while self._frames:
            to, frames = self._frames.popleft()
            payload = frames[1] if len(frames) > 1 else None
            self._workers[to].on_peer(m.decode_peer(frames[0]), payload, self.now_us)
            worked = True
        worked |= self._step_slots()
        for worker in list(self._workers.values()):
            if worker.stopping:
                continue
            worked |= worker.step(self.now_us)
            for name, frames in worker.to_slots(self.now_us):
                self._slot_frames.append((name, frames))
                worked = True
            for persist in worker.to_store():
                self._store(worker, persist)
                worked = True
            for target, frames in worker.to_peers(self.now_us):
                self._frames.append((target, frames))
                worked = True
        for worker in list(self._workers.values()):
            for message in worker.to_driver():
                worked = True
                decoded = m.decode_from_worker(m.encode(message))
                if isinstance(decoded, m.Deliver):
                    self._deliveries.take(decoded)
                self._hear(FromWorker(decoded))
        return worked

    def _step_slots(self) -> bool:
        worked = False
        while self._slot_frames:
            name, frames = self._slot_frames.popleft()
            if name in self._slots:
                payload = frames[1] if len(frames) > 1 else None
                self._slots[name].on_message(decode_to_slot(frames[0]), payload)
            worked = True
        for name, slot in list(self._slots.items()):
            slot.on_workers(list(self._scheduler.peers.values()), self.start_us)
            worked |= slot.step(self.now_us)
            for to, frames in slot.to_workers():
                worked = True
                if to in self._workers and not self._workers[to].stopping:
                    self._workers[to].on_slot(decode_from_slot(frames[0]), frames[1:])
            slot.to_driver()
            if slot.state is State.ENDED:
                del self._slots[name]
        return worked
