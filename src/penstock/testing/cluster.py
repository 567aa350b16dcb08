"""A whole job in one process and in made-up time: the real machines of driver, workers and slots, joined by queues.

The user-facing harness drives it; nothing here knows of Spark, sockets or the wall clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from zlib import crc32

from penstock.control.adaptation import Adaptation
from penstock.control.deliveries import Deliveries
from penstock.control.driver import Chore as DriverChore
from penstock.control.driver import DriverMachine, FinishSinks, Hand
from penstock.control.events import (
    AlternativePinned,
    CommitRecorded,
    DrainRequested,
    FormsPinned,
    GroupJobEnded,
    RecordCommit,
    Replace,
    ReplicasWanted,
    ScaleRequested,
)
from penstock.control.groups import Submit
from penstock.control.rescaling import MoveReport
from penstock.control.scheduler import Resumption
from penstock.engine.share import Share
from penstock.engine.slot import Identity, SlotMachine
from penstock.engine.snapshot import Persist, by_instance
from penstock.engine.ways.desk import Begin, Cancel
from penstock.engine.worker import Chore, Fetch, ReadBack, WorkerIdentity, WorkerMachine
from penstock.errors import PenstockError
from penstock.operators import Form
from penstock.pipeline.plan import Plan
from penstock.pipeline.ranges import Range
from penstock.protocol.link import Kind
from penstock.testing.calling import MadeUpCalls

START_US = 1_700_000_000_000_000
"""When made-up time begins: an ordinary day, so that times of day look like times of day."""
STEPS_MAX = 10_000_000
DRIVER = "driver"
SWITCH_ROUNDS = 3


class Cluster:
    """Runs a plan step by step; time moves only when nothing can be done at the present moment."""

    def __init__(
        self,
        plan: Plan,
        resumption: Resumption | None = None,
        disk: dict[str, bytes] | None = None,
        now_us: int = START_US,
    ) -> None:
        self.now_us = now_us
        self.disk: dict[str, bytes] = dict(disk or {})
        self.commits: list[RecordCommit] = []
        self._plan = plan
        self._driver = DriverMachine(plan, self.now_us, plan.workers, resumption)
        self._machines: dict[int, WorkerMachine] = {}
        self._calls: dict[WorkerMachine, MadeUpCalls] = {}
        self._rest_us: dict[WorkerMachine, int] = {}
        """By worker that has nothing to do: until when, unless something comes for it."""
        self._incarnations = 0
        self._mail: deque[tuple[str, Sequence[bytes]]] = deque()
        self._deliveries = Deliveries(plan)
        self._slots: dict[str, SlotMachine] = {}
        self._by_hand = False
        """Whether slots come and go as the test says, and not as the driver wants them."""
        self._groups: dict[int, set[str]] = {}
        """By group that the driver has submitted: its slots that are up."""
        for unit in plan.units:
            self._pin([unit.name_at(index) for index in unit.movable if index not in plan.whole(unit)], Form.RECORD)
        for worker in range(plan.workers):
            self._start(worker)
        self._settle()

    def _start(self, worker: int, order: int = 0) -> None:
        self._incarnations += 1
        identity = WorkerIdentity(worker, self._incarnations, f"worker:{worker}:{self._incarnations}", order=order)
        machine = WorkerMachine(self._plan, identity, DRIVER, self._clock_ns, lambda: (0, 0, 0), self.now_us)
        self._machines[worker] = machine
        self._calls[machine] = MadeUpCalls(lambda: self.now_us)

    def _clock_ns(self) -> int:
        return self.now_us * 1000

    def _settle(self) -> None:
        """Let everything happen that happens at this moment, without the work of workers."""
        for _ in range(10):
            self._step(work=False)

    def crash(self, worker: int) -> None:
        """Lose a worker with all it holds; another takes its place, as Spark would have it."""
        self._calls.pop(self._machines.pop(worker)).close()
        self._start(worker)
        self._settle()

    def add_slot(self, slot: int, group: int = 0, quota: int = 1_000_000) -> str:
        """Start a slot of the batch path, of which the driver does not know; from now on it gets no others."""
        self._by_hand = True
        return self._add_slot(slot, group, quota)

    def _add_slot(self, slot: int, group: int, quota: int) -> str:
        self._incarnations += 1
        name = f"slot:{self._incarnations}"
        identity = Identity(group, slot, self._incarnations, name)
        self._slots[name] = SlotMachine(self._plan, identity, quota, {}, self._clock_ns, DRIVER)
        self._slots[name].on_workers(list(self._driver.scheduler.peers.values()), self.start_us)
        return name

    def lose_slot(self, name: str) -> None:
        """Lose a slot or replica with all it holds; another takes its place, as Spark would have it."""
        lost = self._slots.pop(name).identity
        another = self._add_slot(lost.slot, lost.group, 1_000_000 if lost.group >= 0 else 0)
        if name in (group := self._groups.get(lost.group, set())):
            group.symmetric_difference_update((name, another))

    def want(self, unit: int, first: int, last: int, degree: int) -> None:
        """Have so many processes compute a range of a unit, as a law would."""
        self._driver.handle(ReplicasWanted(unit, Range(first, last), degree, "wanted"), self.now_us)
        self._driver.tick(self.now_us)
        self._settle()

    @property
    def slots(self) -> list[str]:
        """Names of the slots that are up."""
        return list(self._slots)

    def switch(self, unit: int, first: int, last: int) -> None:
        """Have operations ``first`` to ``last`` of a unit computed in slots, or here where ``first`` is larger.

        The user says so, and the driver does it as soon as it can: at this moment, if all workers know a slot.
        """
        spec, chosen = self._plan.units[unit], Range(first, last)
        for form, there in ((Form.RECORD, False), (Form.BATCH, True)):
            self._pin([spec.name_at(index) for index in spec.movable if (index in chosen) is there], form)
        self._rest_us.clear()
        for _ in range(SWITCH_ROUNDS):  # groups are submitted, slots say that they are there, all change
            self._driver.tick(self.now_us)
            self._settle()
            for machine in self._machines.values():
                machine.tell_now(self.now_us)
            self._settle()

    def _pin(self, operations: Sequence[str], form: Form) -> None:
        if operations:
            self._driver.handle(FormsPinned(tuple(operations), form), self.now_us)

    def scale(self, workers: int) -> None:
        """Have the job run on so many workers, as the user would; it takes a few epochs."""
        self._driver.handle(ScaleRequested(workers), self.now_us)
        self._settle()

    @property
    def moves(self) -> list[MoveReport]:
        """Columns that have moved from one worker to another."""
        return self._driver.scheduler.rescaling.reports

    @property
    def placement(self) -> list[int]:
        """The worker of each instance."""
        return list(self._driver.scheduler.placement)

    def use(self, operation: str, alternative: str | None) -> None:
        """Have an operation use an alternative, as the user would; None: the job chooses."""
        self._driver.handle(AlternativePinned(operation, alternative), self.now_us)
        self._driver.tick(self.now_us)
        self._settle()

    @property
    def adaptation(self) -> Adaptation:
        """What the control loop has done."""
        return self._driver.adaptation()

    @property
    def error(self) -> PenstockError | None:
        """Why the job has failed, if it has."""
        return self._driver.error

    @property
    def ended(self) -> bool:
        """Whether the job is over."""
        return self._driver.ended

    @property
    def start_us(self) -> int:
        """When the sources' schedules began."""
        return self._driver.scheduler.start_us

    @property
    def committed_epoch(self) -> int:
        """Last epoch committed everywhere."""
        return self._driver.scheduler.committed_epoch

    @property
    def workers(self) -> list[Share]:
        """What the workers host, for their figures."""
        return [each.share for each in self._machines.values() if each.share is not None]

    def drain(self) -> None:
        """Ask the job to finish what it has."""
        self._driver.handle(DrainRequested(), self.now_us)
        self._settle()

    def run_until(self, until_us: int, *, steps: int = STEPS_MAX) -> None:
        """Run until nothing is left to do before ``until_us``, or the job has ended, or so many steps are done."""
        self._rest_us.clear()  # whoever calls may have changed what sources read
        for _ in range(steps):
            if self.ended:
                break
            if self._step() or any(each.waits_for_world() for each in self._calls.values()):
                continue
            wake_us = self._wake_us()
            if wake_us > until_us:
                break
            self.now_us = max(self.now_us, wake_us)
            self._driver.tick(self.now_us)
        else:
            if steps == STEPS_MAX:
                raise AssertionError("the job makes no progress: it went through more steps than it can need")
            until_us = self.now_us
        if self.ended:
            self.close()
        else:
            self.now_us = max(self.now_us, until_us)
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        """Free what the workers hold."""
        for each in self._machines.values():
            each.close()
            self._calls[each].close()

    def _wake_us(self) -> int:
        wakes = [self._driver.wake_us(self.now_us)]
        for each in self._machines.values():
            if not each.ended:
                rest_us = self._rest_us.get(each)
                wakes.append(each.wake_us(self.now_us) if rest_us is None else rest_us)
        wakes += [slot.wake_us() for slot in self._slots.values()]
        wakes += [wake for each in self._calls.values() if (wake := each.wake_us()) is not None]
        return min(wakes)

    def _step(self, *, work: bool = True) -> bool:
        now_us, worked = self.now_us, bool(self._mail)
        while self._mail:
            self._deliver(*self._mail.popleft())
        for name, slot in list(self._slots.items()):
            slot.on_workers(list(self._driver.scheduler.peers.values()), self.start_us)
            worked |= slot.step(now_us)
            for endpoint, kind, frames in slot.sends(now_us):
                if endpoint != DRIVER or slot.identity.group < 0 or slot.identity.group in self._groups:
                    self._mail.append((endpoint, [kind.value, *frames]))
                    worked = True
            if slot.ended:
                self._end(name)
        for machine in list(self._machines.values()):
            if not machine.ended:
                worked |= self._turn(machine, work=work)
        while chores := self._driver.chores():
            for chore in chores:
                self._do(chore)
                worked = True
        for endpoint, kind, frames in self._driver.sends(now_us):
            self._mail.append((endpoint, [kind.value, *frames]))
            worked = True
        return worked

    def _end(self, name: str) -> None:
        """A slot's task is over; with the last one of a group, so is the group's job."""
        group = self._slots.pop(name).identity.group
        if group in self._groups:
            self._groups[group].discard(name)
            if not self._groups[group]:
                del self._groups[group]
                self._driver.handle(GroupJobEnded(group, None), self.now_us)

    def _deliver(self, to: str, frames: Sequence[bytes]) -> None:
        if to == DRIVER:
            self._driver.receive(frames, self.now_us)
        elif to in self._slots:
            self._slots[to].receive(frames, self.now_us)
        for machine in self._machines.values():
            if machine.identity.endpoint == to and not machine.ended:
                self._rest_us.pop(machine, None)
                machine.receive(frames, self.now_us)

    def _turn(self, machine: WorkerMachine, *, work: bool) -> bool:
        if called := self._calls[machine].done():
            machine.on_called(called, self.now_us)
        elif self._rest_us.get(machine, self.now_us) > self.now_us:
            return False
        worked = machine.step(self.now_us) if work else False
        for chore in machine.chores():
            self._do_for(machine, chore)
            worked = True
        for endpoint, kind, frames in machine.sends(self.now_us):
            self._mail.append((endpoint, [kind.value, *frames]))
            # Figures are told again and again; they alone are no progress.
            worked = worked or kind is not Kind.WORKER or len(frames) > 1
        if worked or not work:
            self._rest_us.pop(machine, None)
        else:
            self._rest_us[machine] = machine.wake_us(self.now_us)
        return worked

    def _do_for(self, machine: WorkerMachine, chore: Chore) -> None:
        match chore:
            case Begin() | Cancel():
                self._calls[machine].order([chore])
            case Persist():
                for upload in chore.uploads:
                    upload()
                self.disk[chore.name] = chore.data
                machine.on_stored(chore.stored(crc32(chore.data)))
            case Fetch(snapshot=stored):
                machine.on_fetched(stored, self.disk.get(stored.name))
            case ReadBack(snapshots=snapshots):
                found = by_instance((stored, self.disk[stored.name]) for stored in snapshots)
                machine.on_restored(found, None, self.now_us)
            case _:
                pass

    def _do(self, chore: DriverChore) -> None:
        match chore:
            case RecordCommit():
                self.commits.append(chore)
                self._driver.handle(CommitRecorded(chore.epoch), self.now_us)
            case Hand(message=message):
                self._deliveries.take(message)
            case FinishSinks():
                self._deliveries.finish()
            case Submit(group=group, slots=slots, micro_batches=quota) if group < 0 or not self._by_hand:
                names = {self._add_slot(number, group, quota) for number in range(slots)}
                if group >= 0:
                    self._groups[group] = names
            case Replace(worker=worker, order=order):
                self._start(worker, order)  # nobody is ever silent here: one more is wanted
            case _:
                pass
