"""From what came out of an engine to figures: exactness, latency from the scheduled time, throughput, backlog. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from penstock.metrics import Histogram
from penstock_bench.meter.engine import Observation, Rate, RunOptions
from penstock_bench.meter.subject import Came, Subject
from penstock_bench.meter.timeline import NEVER_US, Timeline, Times
from penstock_bench.workloads import Comparison

GROWTH_MAX = 0.03
SUSTAINED = (
    f"the backlog grows by at most {GROWTH_MAX:.0%} of what is offered, from the second to the last quarter of the "
    "measured time"
)
"""The one meaning of it: whether an engine is judged by its output, or a job of ours by what waits at its sources."""
BACKLOG_STEP_US = 20_000
"""How often the backlog is looked at."""
Over = Callable[[Times], npt.NDArray[Any]]
"""A figure at some moments."""


class Backlog(msgspec.Struct, kw_only=True):
    """Events that are due and not out yet, on average over a quarter of the measured time."""

    second_quarter: float
    last_quarter: float
    growth: float
    """Their difference as a share of the events that were offered between the middles of the two."""

    @property
    def is_sustained(self) -> bool:
        """Whether it did not grow; see SUSTAINED."""
        return self.growth <= GROWTH_MAX


class Evaluation(NamedTuple):
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
        return self.backlog.is_sustained and not self.found.lost


def evaluate(subject: Subject, observation: Observation, rate: Rate, seconds: float, options: RunOptions) -> Evaluation:
    """Judge a run by its output alone."""
    given = subject.input(rate, options.warm_up_s + seconds, seed=options.seed)
    came = Came(observation.outputs, observation.start_us, observation.event_start_us, observation.partitions)
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
    """The backlog of events that were due and seen at these moments."""
    out_us = np.sort(seen_us[seen_us < NEVER_US])

    def due(at_us: Times) -> Times:
        return np.searchsorted(due_us, at_us, side="right")

    return backlog_between(lambda at: due(at) - np.searchsorted(out_us, at, side="right"), due, first_us, end_us)


def backlog_between(waiting: Over, due: Over, first_us: int, end_us: int) -> Backlog:
    """Average the backlog over the second and the last quarter of a time, and tell how fast it grows between them.

    The first quarter is left to settle. An average over a quarter does not mind that micro-batches come in steps.
    """
    quarter_us = (end_us - first_us) // 4

    def mean(begin_us: int) -> float:
        at = np.arange(begin_us, begin_us + quarter_us, BACKLOG_STEP_US, dtype=np.int64)
        return float(waiting(at).mean()) if len(at) else 0.0

    second, last = mean(first_us + quarter_us), mean(end_us - quarter_us)
    middles_us = np.array([first_us + 3 * quarter_us // 2, end_us - quarter_us // 2], dtype=np.int64)
    offered = float(np.diff(due(middles_us))[0])
    growth = round((last - second) / offered, 4) if offered else 0.0
    return Backlog(second_quarter=round(second, 1), last_quarter=round(last, 1), growth=growth)
