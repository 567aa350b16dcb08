"""From what came out of an engine to figures: exactness, latency from the scheduled time, throughput, backlog. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from penstock.metrics import Histogram
from penstock_bench.meter.engine import Observation, Rate, RunOptions
from penstock_bench.meter.subject import Came, Subject
from penstock_bench.meter.timeline import NEVER_US, Timeline, Times
from penstock_bench.workloads import Comparison

GROWTH_MAX = 0.03
"""A rate is sustained while the backlog grows by less than this share of what is offered."""
BACKLOG_STEP_US = 20_000
"""How often the backlog is looked at."""


class Backlog(msgspec.Struct, kw_only=True):
    """Events that are due and not out yet, on average over a quarter of the measured time."""

    second_quarter: float
    last_quarter: float
    growth: float
    """Their difference as a share of the events that were offered between the middles of the two."""


@dataclass(frozen=True)
class Evaluation:
    """A run in figures."""

    events: int
    results: int
    latency: Histogram
    """In microseconds, of the events that were due after the warm-up."""
    throughput_eps: float
    """Events per second whose result came out in the measured time."""
    backlog: Backlog
    found: Comparison
    timeline: Timeline
    start_us: int
    """When the schedule began."""

    @property
    def sustained(self) -> bool:
        """Whether the engine kept up: its backlog did not grow, and everything came out."""
        return self.backlog.growth <= GROWTH_MAX and not self.found.lost


def evaluate(subject: Subject, observation: Observation, rate: Rate, seconds: float, options: RunOptions) -> Evaluation:
    """Judge a run by its output alone."""
    given = subject.input(rate, options.warm_up_s + seconds, seed=options.seed)
    rows = [(output.out_us, output.values) for output in observation.outputs]
    came = Came(rows, observation.start_us, observation.event_start_us, observation.partitions)
    timeline, found = subject.judge(given, came)
    first_us = observation.start_us + round(options.warm_up_s * 1e6)
    end_us = first_us + round(seconds * 1e6)
    # A line may count in several groups or in none: throughput is told in lines.
    share = len(timeline.due_us) / max(given.total, 1)
    seen = np.count_nonzero((timeline.seen_us >= first_us) & (timeline.seen_us < end_us))
    return Evaluation(
        events=given.total,
        results=len(observation.outputs),
        latency=timeline.between(first_us, end_us).latency_us,
        throughput_eps=float(seen / share / seconds) if share else 0.0,
        backlog=backlog_of(timeline.due_us, timeline.seen_us, first_us, end_us),
        found=found,
        timeline=timeline,
        start_us=observation.start_us,
    )


def backlog_of(due_us: Times, seen_us: Times, first_us: int, end_us: int) -> Backlog:
    """Average the backlog over the second and the last quarter of a time, and tell how fast it grows between them.

    The first quarter is left to settle. An average over a quarter does not mind that micro-batches come in steps.
    """
    quarter_us = (end_us - first_us) // 4
    out_us = np.sort(seen_us[seen_us < NEVER_US])

    def mean(begin_us: int) -> float:
        at = np.arange(begin_us, begin_us + quarter_us, BACKLOG_STEP_US, dtype=np.int64)
        waiting = np.searchsorted(due_us, at, side="right") - np.searchsorted(out_us, at, side="right")
        return float(waiting.mean()) if len(waiting) else 0.0

    second, last = mean(first_us + quarter_us), mean(end_us - quarter_us)
    middles_us = np.array([first_us + 3 * quarter_us // 2, end_us - quarter_us // 2])
    offered = float(np.diff(np.searchsorted(due_us, middles_us))[0])
    return Backlog(
        second_quarter=round(second, 1),
        last_quarter=round(last, 1),
        growth=round((last - second) / offered, 4) if offered else 0.0,
    )
