"""The processes of the batch path in the simulation: what `runtime.slots` and Spark do around the slot machine.

A *seat* is a Python process that Spark uses for one task after another; it keeps its address, and what was built in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.control.groups import Submit
from penstock.engine.slot import Identity, Slices, SlotMachine, State
from penstock.protocol import slots as s
from penstock.protocol.link import Kind
from penstock.testing.simulation.faults import Moment
from penstock.testing.simulation.poison import Killed
from penstock.testing.simulation.process import Died

if TYPE_CHECKING:
    from penstock.testing.simulation.driver import DriverProcess
    from penstock.testing.simulation.run import Simulation

LOOK_US = 200_000
"""How long a slot waits at the most before it looks around."""
TURN_US_MIN = 50
KEPT_MESSAGES_MAX = 1_000
PLACE_US = 50_000
"""How long a task waits before it looks for a free core again."""


@dataclass(frozen=True)
class Task:
    """One task of a group's job."""

    command: Submit
    slot: int


class Seat:
    """A process that hosts slots, one after another."""

    def __init__(self, simulation: Simulation, spark: SparkGroups, number: int) -> None:
        self.name = f"s{number}"
        self.driver = spark.driver
        self.dead = False
        self.frozen = False
        self.task: Task | None = None
        self.slot: SlotMachine | None = None
        self._simulation = simulation
        self._spark = spark
        self._world = simulation.world
        self.mute = False
        self._slices: Slices = {}
        self._inbox: list[Sequence[bytes]] = []
        """What comes between two tasks waits for the next one."""
        self._spent_ns = 0
        self._turn_us: int | None = None

    @property
    def busy(self) -> bool:
        """Whether a task runs here."""
        return self.task is not None and not self.dead

    def clock_ns(self) -> int:
        """The time as this process sees it: work takes some."""
        self._spent_ns += self._world.work_ns(self._simulation.scenario.work_ns_max)
        return self._world.now_us * 1000 + self._spent_ns

    def run(self, task: Task, incarnation: int) -> None:
        """Begin a task."""
        command = task.command
        self.task = task
        self._spent_ns = 0
        identity = Identity(command.group, task.slot, incarnation, self.name)
        plan = self._simulation.plan
        self.slot = SlotMachine(plan, identity, command.micro_batches, self._slices, self.clock_ns, self.driver.name)
        self._wake(self._world.now_us)

    def take(self, frames: Sequence[bytes]) -> None:
        """Something has come by network."""
        if not self.dead and len(self._inbox) < KEPT_MESSAGES_MAX:
            self._inbox.append(frames)
            if self.slot is not None:
                self._wake(self._world.now_us)

    def kill(self) -> None:
        """End at once, with all it holds."""
        self.dead = True
        self.slot = None
        self.mute = self._world.chance(0.5)

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
            if self._turn_us != at_us:
                return
            self._turn_us = None
            if self.slot is not None and not self.dead and not self.frozen:
                try:
                    self._turn(self.slot)
                except Died:
                    pass
                except Killed:
                    self._world.note(f"{self.name} is killed by a record")
                    self._simulation.killed_by_record += 1
                    self._spark.kill(self)

        self._world.at(at_us, self.name, turn)

    def _reach(self, moment: Moment) -> None:
        self._simulation.reach(moment, self)
        if self.dead:
            raise Died

    def _turn(self, slot: SlotMachine) -> None:
        now_us = self._world.now_us
        self._spent_ns = 0
        arrived, self._inbox = self._inbox, []
        for frames in arrived:
            if frames[0] == Kind.SLOT.value and isinstance(s.decode_to_slot(frames[1]), s.Do):
                self._reach(Moment.WORKING)
            slot.receive(frames, now_us)
        was = slot.state
        worked = slot.step(now_us)
        slot.connects()
        for endpoint, _, frames in slot.sends(now_us):
            to_driver = endpoint == self.driver.name
            if to_driver and len(frames) > 1 and isinstance(s.decode_to_driver(frames[1]), s.SlotUp):
                self._reach(Moment.SLOT_UP)
            self._simulation.send(self, endpoint, Kind.SLOT, frames)
            if not to_driver and isinstance(s.decode_from_slot(frames[0]), s.Done):
                self._reach(Moment.DONE)
        if slot.state is State.LEAVING and was is State.TAKING:
            self._reach(Moment.SLOT_LEAVES)
        if slot.ended:
            self._spark.on_end(self)
        elif not self.frozen:
            later_us = min(slot.wake_us(), now_us + LOOK_US)
            self._wake(max(now_us + TURN_US_MIN + self._spent_ns // 1000, now_us if worked or arrived else later_us))


class SparkGroups:
    """The jobs of groups in one life of the driver: tasks wait, run, are lost, are tried again."""

    def __init__(self, simulation: Simulation, driver: DriverProcess) -> None:
        self.driver = driver
        self.seats: list[Seat] = []
        self._simulation = simulation
        self._world = simulation.world
        self._left: dict[int, set[int]] = {}
        """By group that runs: slots whose tasks have not ended."""

    def submit(self, command: Submit) -> None:
        """Begin a group's job."""
        self._left[command.group] = set(range(command.slots))
        for slot in range(command.slots):
            self._start(Task(command, slot))

    def _start(self, task: Task) -> None:
        """Have a task begin, sooner or later: in a process that is free, or in a new one."""

        def start() -> None:
            if self.driver.dead or self.driver.finished or task.slot not in self._left.get(task.command.group, ()):
                return
            if self._simulation.hosting.is_full(self.driver) or self._simulation.hosting.waiting:
                self._world.after(PLACE_US, f"task {task.command.group}.{task.slot} waits", start)
                return
            free = [seat for seat in self.seats if seat.task is None and not seat.dead]
            if free and self._world.chance(0.8):
                seat = self._world.random.choice(free)
            else:
                seat = Seat(self._simulation, self, self._simulation.next_seat())
                self.seats.append(seat)
                self._simulation.seats[seat.name] = seat
            seat.run(task, self._simulation.next_incarnation())

        delay_us = self._world.between(500, self._simulation.scenario.submit_us_max)
        self._world.after(delay_us, f"task {task.command.group}.{task.slot}", start)

    def on_end(self, seat: Seat) -> None:
        """A task has returned."""
        task, seat.task, seat.slot = seat.task, None, None
        assert task is not None
        left = self._left.get(task.command.group)
        if left is None:
            return
        left.discard(task.slot)
        if not left:
            self._ended(task.command.group, None)

    def _ended(self, group: int, error: str | None) -> None:
        del self._left[group]
        self._world.after(
            self._world.between(10, 5_000),
            f"job of group {group} ends",
            lambda: self.driver.on_group_ended(group, error),
        )

    def kill(self, seat: Seat) -> None:
        """Lose a process; its task is tried again."""
        task = seat.task
        seat.kill()
        if task is not None:
            self._simulation.slot_losses += 1
            self._start(task)

    def retry(self, seat: Seat) -> None:
        """Try a task again although it runs."""
        if seat.task is not None:
            self._start(seat.task)

    def fail(self) -> None:
        """Give a job up, with all of its tasks."""
        if self._left:
            group = self._world.random.choice(sorted(self._left))
            self._ended(group, "Job aborted")
            for seat in self.seats:
                if seat.task is not None and seat.task.command.group == group:
                    seat.kill()
