"""Faults on purpose: kills a running job's workers at random and measures how soon it goes on; for `penstock chaos`.

`Campaign` decides and measures and is pure; `Killer` looks at the job and sends the signals.
"""

from __future__ import annotations

import math
import os
import random
import signal
from collections.abc import Iterable, Sequence

import msgspec
import psutil

from penstock.control.monitor import Status, WorkerFigures
from penstock.demo.oracle import Verdict
from penstock.demo.soak import Rescale, Trend
from penstock.errors import InvalidOption
from penstock.pipeline.plan import Plan
from penstock.runtime.clock import now_us
from penstock.runtime.job import Job
from penstock.runtime.report import Report

KILL_EVERY_US_MIN = 1_000_000
"""A worker needs about as long to come back; killed more often, the job would get nowhere."""

NOTICED_US = 1_000_000
"""A lost worker, whose successor is then the next to be killed, is noticed and replaced within this time."""

RESCALES_MIN = 8
"""Of so many changes of a number some must have come about; of fewer, the next one may have come first each time."""


class Kill(msgspec.Struct):
    """One worker that was killed."""

    at_us: int
    worker: int
    pid: int
    restored_s: float | None = None
    """Until everyone concerned was restored and told to go on."""
    resumed_s: float | None = None
    """Until the first epoch after its recovery was committed: every instance has worked and shown its output again."""


class Times(msgspec.Struct):
    """How long something took, over all kills, in seconds."""

    p50: float
    p95: float
    max: float

    @staticmethod
    def of(values: Iterable[float | None]) -> Times | None:
        """Sum up those that are known, if any."""
        known = sorted(each for each in values if each is not None)
        return Times(quantile(known, 0.5), quantile(known, 0.95), known[-1]) if known else None

    def __str__(self) -> str:
        return f"p50 {self.p50:.2f} s   p95 {self.p95:.2f} s   max {self.max:.2f} s"


class Findings(msgspec.Struct):
    """What a campaign has come to."""

    seed: int
    kills: list[Kill]
    recoveries: int
    epochs: int
    restored_s: Times | None
    resumed_s: Times | None
    """None if no kill was recovered from."""
    unresumed: int
    """Kills after which nothing was seen to go on."""
    lost: int
    duplicated: int
    reordered: int
    switches: int = 0
    """Forms that were changed on purpose."""
    holdings: dict[str, dict[str, Trend]] = {}
    """What the processes held, where the run was long enough to tell."""
    rescales: list[Rescale] = []
    """Numbers of workers and replicas that were changed on purpose."""
    arrived_s: Times | None = None
    """Until the job had as many as it was to have, where no other change came first."""
    planned: dict[str, int] = {}
    """The least number of faults of each kind that so long a run must have had."""
    verdict: Verdict | None = None
    """The output compared with what it must be, where that is known."""

    @property
    def growing(self) -> list[str]:
        """What has grown over the run though it should not."""
        return [f"{who}: {name}" for who, held in self.holdings.items() for name, each in held.items() if each.grows]

    @property
    def passed(self) -> bool:
        """Whether faults were injected, the job went on after each, nothing was lost, doubled or reordered or grew."""
        return bool(self.kills and self.epochs) and not self.faults

    @property
    def stalled(self) -> int:
        """Changes of a number after which no epoch was committed."""
        return sum(each.committed_s is None for each in self.rescales)

    @property
    def missing(self) -> dict[str, int]:
        """Faults that should have been injected, and were not."""
        injected = {"kills": len(self.kills), "switches": self.switches, "rescales": len(self.rescales)}
        return {kind: least - injected[kind] for kind, least in self.planned.items() if least > injected[kind]}

    @property
    def faults(self) -> list[str]:
        """What speaks against the job, or against the run, in words."""
        wrong = self.verdict.wrong if self.verdict is not None else []
        counts = [
            ("kills without recovery", self.unresumed),
            ("rescales without a commit after them", self.stalled),
            ("lost on the way", self.lost),
            ("duplicated on the way", self.duplicated),
            ("blocks reordered on the way", self.reordered),
            *wrong,
        ]
        found = [f"{name}: {count:,}" for name, count in counts if count]
        if self.verdict is not None and not self.verdict.records:
            found.append("nothing came to the sinks")
        if len(self.rescales) >= RESCALES_MIN and self.arrived_s is None:
            found.append("no rescale has come about")
        found += [f"{count:,} {kind} fewer than planned" for kind, count in self.missing.items()]
        return found + [f"grows: {each}" for each in self.growing]

    @property
    def lines(self) -> list[str]:
        """The findings as text."""
        rows = [
            ("seed", str(self.seed)),
            ("kills", f"{len(self.kills):,}" + (f"   ({self.unresumed:,} without recovery)" if self.unresumed else "")),
            ("recoveries", f"{self.recoveries:,}"),
            ("epochs", f"{self.epochs:,}"),
            ("restored", str(self.restored_s or "never")),
            ("output again", str(self.resumed_s or "never")),
            *([("switches", f"{self.switches:,}")] if self.switches else []),
        ]
        if self.rescales:
            arrived = sum(each.arrived_s is not None for each in self.rescales)
            rows.append(("rescales", f"{len(self.rescales):,}   ({arrived:,} before the next one)"))
            rows.append(("rescaled", str(self.arrived_s or "never")))
        if self.verdict is not None:
            told = ", ".join(f"{count:,} {name}" for name, count in self.verdict.wrong)
            exact = "exact" if self.verdict.is_exact else "wrong"
            rows.append(("output", f"{self.verdict.records:,} records, {exact}: {told}"))
        for who, held in self.holdings.items():
            rows.append((who, "   ".join(f"{_NAMES[name]} {_shown(name, each)}" for name, each in held.items())))
        rows += [("growing", ", ".join(self.growing))] if self.growing else []
        return [f"{name:<13} {value}" for name, value in rows]


class Campaign:
    """Decides when which worker is killed, and finds in the job's status when each loss was made good. Pure.

    Parameters
    ----------
    seed : int
        Seed of the moments and of the choice of workers.
    every_us : int
        Mean time between kills; each interval is drawn from half to one and a half of it.
    """

    def __init__(self, seed: int, every_us: int) -> None:
        self.kills: list[Kill] = []
        self._seed = seed
        self._every_us = every_us
        self._random = random.Random(seed)
        self._next_us: int | None = None

    def choose(self, status: Status) -> WorkerFigures | None:
        """Return the worker to be killed now, if it is time to."""
        self.observe(status)
        if status.phase != "running":
            return None
        if self._next_us is None:
            self._next_us = status.at_us + self._interval_us()
        if status.at_us < self._next_us or not self._alive(status):
            return None
        self._next_us = status.at_us + self._interval_us()
        return self._random.choice(self._alive(status))

    def draw(self, status: Status, count: int) -> list[WorkerFigures]:
        """Return so many workers to be killed at once, or as many as there are."""
        alive = self._alive(status)
        return self._random.sample(alive, min(count, len(alive)))

    def _alive(self, status: Status) -> list[WorkerFigures]:
        # A pid that was killed is shown until its successor registers; it is nobody's then, or a stranger's.
        dead = {kill.pid for kill in self.kills}
        return [worker for worker in status.workers if worker.pid and worker.pid not in dead]

    def killed(self, worker: WorkerFigures, at_us: int) -> None:
        """Take note of a kill."""
        self.kills.append(Kill(at_us, worker.worker, worker.pid))

    def _interval_us(self) -> int:
        return int(self._every_us * self._random.uniform(0.5, 1.5))

    def observe(self, status: Status) -> None:
        """Take note of losses that have been made good; `choose` does so too."""
        present = {worker.pid for worker in status.workers}
        for kill in self.kills:
            if kill.pid in present or status.resumed_us < kill.at_us:
                continue
            if kill.restored_s is None:
                kill.restored_s = (status.resumed_us - kill.at_us) / 1e6
            if kill.resumed_s is None and status.committed_us > status.resumed_us:
                kill.resumed_s = (status.committed_us - kill.at_us) / 1e6

    def findings(
        self,
        report: Report,
        switches: int = 0,
        holdings: dict[str, dict[str, Trend]] | None = None,
        *,
        rescales: Sequence[Rescale] = (),
        planned: dict[str, int] | None = None,
        verdict: Verdict | None = None,
    ) -> Findings:
        """Sum up."""
        return Findings(
            seed=self._seed,
            kills=self.kills,
            recoveries=report.recoveries,
            epochs=report.epochs,
            restored_s=Times.of(kill.restored_s for kill in self.kills),
            resumed_s=Times.of(kill.resumed_s for kill in self.kills),
            unresumed=sum(kill.resumed_s is None for kill in self.kills),
            lost=report.lost,
            duplicated=report.duplicated,
            reordered=report.reordered,
            switches=switches,
            holdings=holdings or {},
            rescales=list(rescales),
            arrived_s=Times.of(each.arrived_s for each in rescales),
            planned=planned or {},
            verdict=verdict,
        )


_NAMES = {"memory_bytes": "memory", "descriptors": "descriptors", "threads": "threads"}


def _shown(name: str, trend: Trend) -> str:
    if name == "memory_bytes":
        return f"{trend.first / 1e6:,.0f} → {trend.last / 1e6:,.0f} MB"
    return f"{trend.first:,} → {trend.last:,}"


def at_least(seconds: float, every_us: int) -> int:
    """How many faults a run of so long must have: the longest interval, and the time until one is noticed."""
    return int(seconds * 1e6 / (1.5 * every_us + NOTICED_US))


def quantile(ascending: Sequence[float], q: float) -> float:
    """Smallest of the values that at least the share ``q`` of them does not exceed."""
    return ascending[max(0, math.ceil(q * len(ascending)) - 1)]


class Killer:
    """Carries a campaign out on a job whose workers run on this machine, below this process."""

    def __init__(self, campaign: Campaign) -> None:
        self._campaign = campaign

    @staticmethod
    def check(plan: Plan, every_us: int) -> None:
        """Refuse what cannot be done, before the start."""
        if not plan.options.master.startswith("local"):
            raise InvalidOption(
                option="master", given=plan.options.master, allowed="local: only processes of this machine are killed"
            )
        if every_us < KILL_EVERY_US_MIN:
            raise InvalidOption(option="--kill-every", given=f"{every_us / 1e6:g}s", allowed="1s or longer")

    def __call__(self, job: Job) -> None:
        """Look at the job, and kill a worker if it is time to; called again and again while it runs."""
        chosen = self._campaign.choose(job.status())
        if chosen is not None:
            self._kill(chosen)

    def strike(self, job: Job, count: int = 1) -> int:
        """Kill so many workers now, chosen by the seed among those there are; returns how many were."""
        return sum(self._kill(worker) for worker in self._campaign.draw(job.status(), count))

    def _kill(self, worker: WorkerFigures) -> bool:
        try:
            process = psutil.Process(worker.pid)
            if os.getpid() not in {parent.pid for parent in process.parents()}:
                return False
            process.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            return False  # it has ended by itself
        self._campaign.killed(worker, now_us())
        return True
