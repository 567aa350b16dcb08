"""A run through a burst as a time series, and what it comes to; the demo and the studies of bursts take these."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import msgspec

from penstock.connectors.rates import RateSchedule, steps
from penstock.control.changes import ChangeReport
from penstock.errors import InvalidOption
from penstock.metrics import Histogram
from penstock.runtime.job import Job
from penstock.runtime.report import Latency, Report, measured_operations

WARM_UP_S = 1.0
"""The calm time is judged from here on: caches and connections are new before."""
DRAINED_S = 0.25
"""A backlog of no more than this much of the base rate is what any moment has: the burst's queue is gone."""
NORMAL_FACTOR = 2.0
"""Latency is normal again when its p99 is at most so many times that of the calm time."""


class Scene(msgspec.Struct, frozen=True):
    """A calm stream, a burst, and calm again."""

    base_eps: float
    peak_eps: float
    calm_s: float
    burst_s: float
    rest_s: float

    @staticmethod
    def of(base_eps: float, peak_eps: float, seconds: float) -> Scene:
        """Divide so many seconds: a third is calm, a quarter is the burst."""
        if not peak_eps > base_eps:
            raise InvalidOption(option="peak", given=peak_eps, allowed=f"more than the base rate, {base_eps:g}")
        return Scene(base_eps, peak_eps, seconds / 3, seconds / 4, seconds * 5 / 12)

    @property
    def schedule(self) -> RateSchedule:
        """When each event is due."""
        pieces = [(self.calm_s, self.base_eps), (self.burst_s, self.peak_eps), (self.rest_s, self.base_eps)]
        return steps(pieces)

    @property
    def burst_end_s(self) -> float:
        """When the burst is over."""
        return self.calm_s + self.burst_s

    @property
    def seconds(self) -> float:
        """How long the input lasts."""
        return self.burst_end_s + self.rest_s

    def rate_eps(self, at_s: float) -> float:
        """The rate at which events are due at a moment."""
        if not 0 <= at_s < self.seconds:
            return 0.0
        return self.peak_eps if self.calm_s <= at_s < self.burst_end_s else self.base_eps

    def word(self, at_s: float) -> str:
        """What the moment is called."""
        if at_s < self.calm_s:
            return "calm"
        return "burst" if at_s < self.burst_end_s else "after the burst"


class Sample(msgspec.Struct):
    """A job at one moment; rates and latencies are those of the last half second."""

    at_s: float
    offered_eps: float
    handled_eps: float
    backlog_records: int
    """Due and not at the end of the pipeline yet, wherever they are."""
    queue_records: int
    """Waiting before operations, as the live view shows it."""
    p50_ms: float
    p99_ms: float
    forms: dict[str, str]
    components_ms: dict[str, float]


class BurstFigures(msgspec.Struct):
    """What a run through a burst came to. None: there was no such time, or it did not come to pass."""

    forms: str
    p50_ms: float
    p99_ms: float
    max_ms: float
    calm_p99_ms: float | None
    burst_p99_ms: float | None
    """Of the events that were due in the burst, as exactly as heartbeats tell; of those that were handled at all."""
    backlog_max: int
    drained_s: float | None
    """From the end of the burst until its queue was gone."""
    normal_s: float | None
    """From the end of the burst until latency was normal again."""
    switches: int
    pause_ms_max: float
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    wrong: int = 0


class Load(Protocol):
    """What a job is offered over time."""

    @property
    def schedule(self) -> RateSchedule:
        """When each event is due."""

    @property
    def seconds(self) -> float:
        """How long the input lasts."""

    def rate_eps(self, at_s: float) -> float:
        """The rate at which events are due at a moment."""


L = TypeVar("L", bound=Load)


@dataclass
class Sampler(Generic[L]):
    """Takes samples of a job while it runs: call it some times a second."""

    scene: L
    samples: list[Sample] = field(default_factory=list)
    _marks: list[tuple[float, int, Histogram]] = field(default_factory=list)
    """By sample: when, how many events were at the end, and their latencies."""
    _heard_us: int = 0

    def __call__(self, job: Job) -> None:
        """Take a sample, if there is news since the last one."""
        status = job.status()
        if not status.start_us or status.heard_us <= max(self._heard_us, status.start_us):
            return
        self._heard_us = status.heard_us
        at_s = (status.heard_us - status.start_us) / 1e6
        measured = [each for each in status.operations if each.name in measured_operations(job.plan)]
        done = sum(each.records_in for each in measured)
        self._marks.append((at_s, done, job.latency_us()))
        self.samples.append(
            Sample(
                at_s=round(at_s, 3),
                offered_eps=self.scene.rate_eps(at_s),
                handled_eps=round(sum(each.in_eps for each in measured), 1),
                backlog_records=max(0, self._due(at_s) - done),
                queue_records=sum(each.queue_records for each in status.operations),
                p50_ms=max((each.p50_ms for each in measured), default=0.0),
                p99_ms=max((each.p99_ms for each in measured), default=0.0),
                forms={each.name: each.form for each in status.operations},
                components_ms=status.components_ms,
            )
        )

    def _due(self, at_s: float) -> int:
        return self.scene.schedule.due(int(min(at_s, self.scene.seconds) * 1e6) - 1)

    def figures(self: Sampler[Scene], forms: str, report: Report) -> BurstFigures:
        """Sum the run through a burst up; the comparison with the exact result comes from elsewhere."""
        scene, calm_p99_ms = self.scene, self._calm_p99_ms()
        after = [each for each in self.samples if each.at_s >= scene.burst_end_s]
        drained = [each.at_s for each in after if each.backlog_records <= scene.base_eps * DRAINED_S]
        normal = [
            each.at_s
            for each in after
            if drained and each.at_s >= drained[0] and calm_p99_ms and each.p99_ms <= NORMAL_FACTOR * calm_p99_ms
        ]
        latency = report.latency_ms or Latency(0.0, 0.0, 0.0, 0.0, 0.0)
        return BurstFigures(
            forms=forms,
            p50_ms=latency.p50,
            p99_ms=latency.p99,
            max_ms=latency.max,
            calm_p99_ms=calm_p99_ms,
            burst_p99_ms=self._burst_p99_ms(),
            backlog_max=max((each.backlog_records for each in self.samples), default=0),
            drained_s=round(drained[0] - scene.burst_end_s, 3) if drained else None,
            normal_s=round(normal[0] - scene.burst_end_s, 3) if normal else None,
            switches=len(report.switches),
            pause_ms_max=max((each.pause_ms for each in report.switches), default=0.0),
        )

    def _calm_p99_ms(self: Sampler[Scene]) -> float | None:
        calm = [latency for at_s, _, latency in self._marks if min(WARM_UP_S, self.scene.calm_s / 2) <= at_s]
        before = [latency for at_s, _, latency in self._marks if at_s <= self.scene.calm_s]
        return _p99_ms(calm[0], before[-1]) if calm and before else None

    def _burst_p99_ms(self: Sampler[Scene]) -> float | None:
        due = self._due(self.scene.burst_end_s)
        before = [latency for at_s, _, latency in self._marks if at_s <= self.scene.calm_s]
        if not before or not self._marks or self._marks[-1][0] < self.scene.burst_end_s:
            return None
        after = [latency for _, done, latency in self._marks if done >= due] or [self._marks[-1][2]]
        return _p99_ms(before[-1], after[0])


class Course(msgspec.Struct):
    """One run: its samples, its switches and its figures."""

    figures: BurstFigures
    samples: list[Sample]
    switches: list[ChangeReport]

    @property
    def forms(self) -> str:
        """How the run was made: adaptive, record or batch."""
        return self.figures.forms


def _p99_ms(first: Histogram, last: Histogram) -> float | None:
    between = last.since(first)
    return between.quantile(0.99) / 1000 if between.total else None
