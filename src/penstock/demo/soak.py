"""What `penstock chaos` does besides killing, for hours if need be: forms that change at random, and what a job holds.

`Holdings` judges and is pure; `Gauge` looks at the processes, `Switcher` changes forms.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from statistics import median

import msgspec
import psutil

from penstock.errors import PenstockError
from penstock.operators import Form
from penstock.pipeline.plan import Plan
from penstock.runtime.clock import now_us
from penstock.runtime.job import Job

LOOK_US = 2_000_000
SETTLED_US = 20_000_000
"""A process that is younger is still filling its caches."""
SAMPLES_MIN = 12
"""Fewer say nothing about growth."""
_GROWTH = 1.3
"""How much larger the last third of a run may be than the first."""
_MEMORY_SLACK_BYTES = 64 << 20
_THREADS_SLACK = 16
_DESCRIPTORS_SLACK = 96
"""The driver keeps the ways to the last 64 workers that were replaced, in case one of them wakes up."""


class Held(msgspec.Struct):
    """What a process holds at a moment."""

    memory_bytes: int
    descriptors: int
    threads: int


class Trend(msgspec.Struct):
    """One figure in the first and in the last third of a run."""

    first: int
    last: int
    grows: bool

    @staticmethod
    def of(values: Sequence[int], slack: int) -> Trend:
        """Compare the thirds."""
        third = max(1, len(values) // 3)
        first, last = int(median(values[:third])), int(median(values[-third:]))
        return Trend(first, last, last > first * _GROWTH + slack)


class Holdings:
    """What the driver, and the largest of the workers, hold over time. Pure."""

    def __init__(self) -> None:
        self._seen: dict[str, list[Held]] = {}

    def add(self, who: str, held: Sequence[Held]) -> None:
        """Take a look at the processes of one kind; the most that one of them holds counts."""
        if held:
            most = Held(*(max(getattr(each, name) for each in held) for name in Held.__struct_fields__))
            self._seen.setdefault(who, []).append(most)

    def trends(self) -> dict[str, dict[str, Trend]]:
        """How each figure has gone, by kind of process; nothing where there were too few looks."""
        slacks = {"memory_bytes": _MEMORY_SLACK_BYTES, "descriptors": _DESCRIPTORS_SLACK, "threads": _THREADS_SLACK}
        return {
            who: {name: Trend.of([getattr(each, name) for each in seen], slack) for name, slack in slacks.items()}
            for who, seen in self._seen.items()
            if len(seen) >= SAMPLES_MIN
        }


class Gauge:
    """Looks at a job's processes now and then."""

    def __init__(self) -> None:
        self.holdings = Holdings()
        self._since_us: dict[int, int] = {}
        self._looked_us = 0

    def __call__(self, job: Job) -> None:
        """Look, if it is time to; called again and again while the job runs."""
        now = now_us()
        if now - self._looked_us < LOOK_US or job.status().phase != "running":
            return
        self._looked_us = now
        self.holdings.add("driver", _held([psutil.Process().pid]))
        pids = [worker.pid for worker in job.status().workers if worker.pid]
        self._since_us = {pid: self._since_us.get(pid, now) for pid in pids}
        settled = [pid for pid, since_us in self._since_us.items() if now - since_us >= SETTLED_US]
        self.holdings.add("workers", _held(settled))


def _held(pids: Sequence[int]) -> list[Held]:
    found = []
    for pid in pids:
        with suppress(psutil.Error):  # it has just been killed
            process = psutil.Process(pid)
            found.append(Held(process.memory_info().rss, process.num_fds(), process.num_threads()))
    return found


class Switcher:
    """Changes the form of an operation now and then, whether that is wise or not.

    Parameters
    ----------
    every_us : int
        Mean time between switches; each interval is drawn from half to one and a half of it.
    """

    def __init__(self, plan: Plan, seed: int, every_us: int) -> None:
        self.switches = 0
        self._random = random.Random(seed)
        self._every_us = every_us
        self._next_us: int | None = None
        self._operations = [unit.name_at(index) for unit in plan.units for index in unit.movable]

    def __call__(self, job: Job) -> None:
        """Switch, if it is time to; called again and again while the job runs."""
        now = now_us()
        if not self._operations or job.status().phase != "running":
            return
        if self._next_us is not None and now >= self._next_us:
            with suppress(PenstockError):  # this one cannot: another one next time
                job.switch(self._random.choice(self._operations), to=self._random.choice(list(Form)).value)
                self.switches += 1
            self._next_us = None
        if self._next_us is None:
            self._next_us = now + int(self._every_us * self._random.uniform(0.5, 1.5))
