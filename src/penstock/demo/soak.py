"""What `penstock chaos` does besides killing, for hours if need be: forms, workers and replicas that change at random,
and what a job holds.

`Holdings` judges and is pure; `Gauge` looks at the processes, `Switcher` changes forms, `Scaler` numbers of processes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from statistics import median

import msgspec
import psutil

from penstock.control.asked import bounds
from penstock.control.monitor import Status
from penstock.errors import InvalidOption, PenstockError
from penstock.operators import Form
from penstock.pipeline.plan import Plan
from penstock.runtime.clock import now_us
from penstock.runtime.job import Job

LOOK_US = 2_000_000
SCALE_EVERY_US_MIN = 500_000
"""A change takes about as long; more often, few would come about."""
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


WORKERS = "workers"


class Rescale(msgspec.Struct):
    """A number of workers, or of replicas of an operation, that was changed on purpose."""

    at_us: int
    what: str
    """``workers``, or the operation."""
    before: int
    to: int
    arrived_s: float | None = None
    """Until the job had that many; None: another change came first."""
    committed_s: float | None = None
    """Until the next epoch was committed."""


class Rescales:
    """Decides when the job gets how many workers or replicas, and finds in its status what came of it. Pure.

    Parameters
    ----------
    every_us : int
        Mean time between changes; each interval is drawn from half to one and a half of it.
    """

    def __init__(self, plan: Plan, seed: int, every_us: int) -> None:
        self.done: list[Rescale] = []
        self._random = random.Random(seed)
        self._every_us = every_us
        self._next_us: int | None = None
        options = plan.options
        most = options.workers_most or options.parallelism
        self._bounds = {WORKERS: (plan.workers if options.workers_most else 1, most)}
        for unit in plan.units:
            for chosen, (least, most) in bounds(unit).items():
                self._bounds[unit.name_at(chosen.first)] = max(1, least), min(most, plan.replicas)
        self._bounds = {what: each for what, each in self._bounds.items() if each[0] < each[1]}
        others = [what for what in self._bounds if what != WORKERS]
        # Every other change is one of workers, whatever else there is: their instances are what has most to lose.
        self._drawn = [WORKERS] * max(1, len(others)) * (WORKERS in self._bounds) + others
        self._wanted = {what: plan.workers if what == WORKERS else least for what, (least, _) in self._bounds.items()}

    @property
    def can(self) -> list[str]:
        """What can be changed."""
        return list(self._bounds)

    def arrived(self, *what: str) -> int:
        """Changes after which the job had as many as it was to have; of all, or of these."""
        return sum(each.arrived_s is not None for each in self.done if not what or each.what in what)

    def choose(self, status: Status) -> Rescale | None:
        """Return the change to be made now, if it is time to."""
        self.observe(status)
        if status.phase != "running" or not self._bounds:
            return None
        if self._next_us is None:
            self._next_us = status.at_us + self._interval_us()
        if status.at_us < self._next_us:
            return None
        self._next_us = status.at_us + self._interval_us()
        what = self._random.choice(self._drawn)
        least, most = self._bounds[what]
        before = self._wanted[what]
        to = self._random.choice([each for each in range(least, most + 1) if each != before])
        return Rescale(status.at_us, what, before, to)

    def made(self, rescale: Rescale) -> None:
        """Take note of a change that was ordered."""
        self._wanted[rescale.what] = rescale.to
        self.done.append(rescale)

    def _interval_us(self) -> int:
        return int(self._every_us * self._random.uniform(0.5, 1.5))

    def observe(self, status: Status) -> None:
        """Take note of changes that have come about; `choose` does so too."""
        latest = {each.what: each for each in self.done}
        for each in self.done[-len(latest) - 8 :]:
            if each.committed_s is None and status.committed_us > each.at_us:
                each.committed_s = (status.committed_us - each.at_us) / 1e6
        for what, each in latest.items():
            if each.arrived_s is None and _present(status, what) == each.to:
                each.arrived_s = (status.at_us - each.at_us) / 1e6


def _present(status: Status, what: str) -> int:
    """How many workers have instances and processes, or how many processes compute an operation; 0: on the way."""
    if what == WORKERS:
        held, pids = set(status.placement), {each.pid for each in status.workers}
        return len(held) if len(held) == len(pids) else 0
    return next((max(1, each.degree) for each in status.replicas if what in each.operations), 0)


class Scaler:
    """Carries such changes out on a job."""

    def __init__(self, rescales: Rescales) -> None:
        self._rescales = rescales

    @staticmethod
    def check(rescales: Rescales, every_us: int) -> None:
        """Refuse what cannot be done, before the start."""
        if every_us < SCALE_EVERY_US_MIN:
            raise InvalidOption(option="--scale-every", given=f"{every_us / 1e6:g}s", allowed="500ms or longer")
        if not rescales.can:
            raise InvalidOption(
                option="--scale-every",
                given=f"{every_us / 1e6:g}s",
                allowed="a job with --parallelism 2 or more, or an operation with replicas=(1, 4)",
            )

    def __call__(self, job: Job) -> None:
        """Look at the job, and change a number if it is time to; called again and again while it runs."""
        chosen = self._rescales.choose(job.status())
        if chosen is None:
            return
        if chosen.what == WORKERS:
            job.scale(chosen.to)
        else:
            job.replicate(chosen.what, chosen.to)
        self._rescales.made(chosen)
