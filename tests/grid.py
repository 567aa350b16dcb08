"""Many workers and their driver, all real machines, in one process and in made-up time: what each of them has to do.

Unlike `penstock.testing.cluster` it looks only at machines that have something to do, so that 200 of them take seconds.
"""

from __future__ import annotations

import heapq
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import process_time
from zlib import crc32

from penstock.control.deliveries import Deliveries
from penstock.control.driver import DriverMachine, Hand
from penstock.control.events import CommitRecorded, RecordCommit
from penstock.engine.snapshot import InstanceId, Persist
from penstock.engine.worker import Connect, Fetch, ReadBack, WorkerIdentity, WorkerMachine
from penstock.pipeline.options import Options
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m

DRIVER = "driver"
DELAY_US = 500
"""How long a message travels."""
START_US = 1_700_000_000_000_000


class Grid:
    """A job of many workers.

    Attributes
    ----------
    to_driver : int
        Messages that the driver has got.
    turns : int
        Turns of all workers together.
    calls : int
        Functions that were called in the driver's machine, while they are counted.
    driver_s : float
        What the driver's machine has taken of the clock.
    ways : set
        Pairs of workers of which one has sent something to the other.
    """

    def __init__(self, pipeline: Pipeline, workers: int, **options: object) -> None:
        self.plan = Plan.of(pipeline.graph(), Options.of(parallelism=workers, **options))  # type: ignore[arg-type]
        self.now_us = START_US
        self.to_driver = self.calls = self.turns = 0
        self.driver_s = 0.0
        self.ways: set[tuple[str, str]] = set()
        self.records: list[RecordCommit] = []
        self._disk: dict[str, bytes] = {}
        self._deliveries = Deliveries(self.plan)
        self._mail: deque[tuple[int, str, str, Sequence[bytes]]] = deque()
        self._due: list[tuple[int, str]] = []
        self.driver = DriverMachine(self.plan, self.now_us, workers)
        self._machines = {name: self._worker(at, name) for at in range(workers) for name in [f"w{at}"]}
        self._next_us = dict.fromkeys(self._machines, self.now_us)
        """When each worker has its next turn; what else is said of it in the list is out of date."""
        for name in self._machines:
            heapq.heappush(self._due, (self.now_us, name))
        self._tick_us = self.now_us

    def _worker(self, at: int, name: str) -> WorkerMachine:
        identity = WorkerIdentity(at, at + 1, name)
        return WorkerMachine(self.plan, identity, DRIVER, lambda: self.now_us * 1000, lambda: (0, 0, 0), self.now_us)

    def run(self, until: Callable[[], object], *, seconds: float = 60.0) -> None:
        """Run until something is so, for so much made-up time at the most."""
        end_us = self.now_us + int(seconds * 1e6)
        while not until():
            assert self.now_us < end_us, "it takes too long"
            if self.driver.error is not None:
                raise self.driver.error
            mail = self._mail[0][0] if self._mail else end_us
            worker = self._due[0][0] if self._due else end_us
            self.now_us = max(self.now_us, min(mail, worker, self._tick_us))
            touched: dict[str, None] = {}
            while self._mail and self._mail[0][0] <= self.now_us:
                _, source, to, frames = self._mail.popleft()
                if to == DRIVER:
                    self.to_driver += 1
                    with self._measured():
                        self.driver.receive(frames, self.now_us)
                else:
                    if source != DRIVER:
                        self.ways.add((source, to))
                    self._machines[to].receive(frames, self.now_us)
                    touched[to] = None
            while self._due and self._due[0][0] <= self.now_us:
                due_us, name = heapq.heappop(self._due)
                if self._next_us[name] == due_us:
                    touched[name] = None
            for name in touched:
                self._turn(name)
            self._drive()

    def _drive(self) -> None:
        with self._measured():
            if self.now_us >= self._tick_us:
                self.driver.tick(self.now_us)
            chores = self.driver.chores()
            sends = list(self.driver.sends(self.now_us))
        for chore in chores:
            if isinstance(chore, RecordCommit):
                self.records.append(chore)
                with self._measured():
                    self.driver.handle(CommitRecorded(chore.epoch), self.now_us)
            elif isinstance(chore, Hand):
                self._deliveries.take(chore.message)
        if chores:
            with self._measured():
                sends += self.driver.sends(self.now_us)
        for endpoint, kind, frames in sends:
            self._mail.append((self.now_us + DELAY_US, DRIVER, endpoint, [kind.value, *frames]))
        with self._measured():
            self._tick_us = max(self.now_us + 1, self.driver.wake_us(self.now_us))

    def _turn(self, name: str) -> None:
        machine = self._machines[name]
        if machine.ended:
            return
        left = machine.step(self.now_us)
        for chore in machine.chores():
            left = True
            match chore:
                case Persist():
                    self._disk[chore.name] = chore.data
                    who = {"unit": chore.unit, "instance": chore.instance, "epoch": chore.epoch, "depth": chore.depth}
                    machine.on_stored(m.Stored(**who, name=chore.name, crc=crc32(chore.data)))
                case ReadBack(snapshots=snapshots):
                    found: dict[InstanceId, list[bytes]] = {}
                    for stored in snapshots:
                        found.setdefault((stored.unit, stored.instance), []).append(self._disk[stored.name])
                    machine.on_restored(found, None, self.now_us)
                case Fetch(snapshot=stored):
                    machine.on_fetched(stored, self._disk.get(stored.name))
                case Connect():
                    pass
        for endpoint, kind, frames in machine.sends(self.now_us):
            self._mail.append((self.now_us + DELAY_US, name, endpoint, [kind.value, *frames]))
        wake_us = self.now_us + 100 if left else machine.wake_us(self.now_us)
        self._next_us[name] = max(self.now_us + 100, wake_us)
        heapq.heappush(self._due, (self._next_us[name], name))
        self.turns += 1

    @contextmanager
    def _measured(self) -> Iterator[None]:
        began = process_time()
        yield
        self.driver_s += process_time() - began

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the calls within the driver's machine; exact, and the same on any machine."""
        measured = self._measured

        def count(frame: object, event: str, argument: object) -> None:
            if event == "call":
                self.calls += 1

        @contextmanager
        def counted() -> Iterator[None]:
            sys.setprofile(count)
            try:
                yield
            finally:
                sys.setprofile(None)

        self._measured = counted  # type: ignore[method-assign]
        try:
            yield
        finally:
            self._measured = measured  # type: ignore[method-assign]

    def close(self) -> None:
        """Free what the workers hold."""
        for each in self._machines.values():
            each.close()
