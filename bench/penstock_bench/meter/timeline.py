"""Latency of every event through a failure, seen from the output alone; for Penstock and for its peer. Pure.

An output of growing counts shows its n-th event, in the order of their scheduled times, when it first shows a count of
at least n. That needs nothing of the engine but its rows and when they were shown, so both are measured alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from penstock.metrics import Histogram

WINDOW_US = 1_000_000
"""Latency is judged by the events that were due in so long a time: an epoch's work is in each."""
STEP_US = 50_000
"""How exactly the moment is sought from which it is normal."""
NORMAL_FACTOR = 2.0
DEFINITION = (
    f"from the first moment on, sought in steps of {STEP_US // 1000} ms, after which the p99 of the events due in the "
    f"next {WINDOW_US // 1000} ms is at most {NORMAL_FACTOR:g} times the p99 of the calm time before the first kill"
)

NEVER_US = 1 << 62

Times = npt.NDArray[np.int64]
Group = tuple[Any, ...]
"""What a row counts: a campaign and its window, a word, the number of a line."""


class Shown(NamedTuple):
    """A row of the output: a group's count, and when it could be seen."""

    at_us: int
    group: Group
    total: int


class Recovery(msgspec.Struct):
    """What one failure did to the output."""

    at_us: int
    caught_up_s: float | None
    """Until every event that was due before the failure was shown; None if some never were."""
    normal_s: float | None
    """Events due from then on had their normal latency again; None if not before the next failure."""
    silent_ms: float
    """Longest time without a new result."""
    peak_ms: float
    """Highest latency of an event."""


class Timeline(NamedTuple):
    """When each event was due and when it was seen, in the order in which they were due."""

    due_us: Times
    seen_us: Times
    """NEVER_US for those that were not."""

    @staticmethod
    def of(due_us: Mapping[Group, Times], shown: Iterable[Shown]) -> Timeline:
        """Find out when each event was seen, from the scheduled times of each group's events, ascending, and the rows.

        Rows may come in any order, and those that come again after a failure show nothing new.
        """
        rows: dict[Group, list[tuple[int, int]]] = {}
        for each in shown:
            rows.setdefault(each.group, []).append((each.at_us, each.total))
        due, seen = [], []
        for group, times in due_us.items():
            history = np.array(sorted(rows.get(group, [])), dtype=np.int64).reshape(-1, 2)
            highest = np.maximum.accumulate(history[:, 1])
            first = np.searchsorted(highest, np.arange(1, len(times) + 1))
            due.append(times)
            seen.append(np.append(history[:, 0], NEVER_US)[first])
        all_due, all_seen = (np.concatenate(each) if each else np.empty(0, np.int64) for each in (due, seen))
        order = np.argsort(all_due, kind="stable")
        return Timeline(all_due[order], all_seen[order])

    def between(self, first_us: int, end_us: int) -> Timeline:
        """Only the events that were due in this time."""
        start, stop = np.searchsorted(self.due_us, [first_us, end_us])
        return Timeline(self.due_us[start:stop], self.seen_us[start:stop])

    def calm(self, first_us: int, failure_us: int) -> Timeline:
        """Only the events due from ``first_us`` on that a failure had nothing to do with: all were seen before it."""
        due = self.between(first_us, failure_us)
        touched = np.flatnonzero(due.seen_us >= failure_us)
        count = int(touched[0]) if len(touched) else len(due.due_us)
        return Timeline(due.due_us[:count], due.seen_us[:count])

    @property
    def latency_us(self) -> Histogram:
        """Latencies of all events that were seen."""
        histogram = Histogram()
        known = self.seen_us < NEVER_US
        for value, times in zip(*np.unique((self.seen_us - self.due_us)[known], return_counts=True), strict=True):
            histogram.record(int(value), int(times))
        return histogram

    @property
    def p99_us(self) -> float:
        """The latency that 99 % of the events do not exceed; infinite if more were never seen, or none was due."""
        waits_us = np.where(self.seen_us < NEVER_US, self.seen_us - self.due_us, np.inf)
        return float(np.quantile(waits_us, 0.99, method="higher")) if len(waits_us) else float("inf")

    def silent_us(self, first_us: int, end_us: int) -> int:
        """Longest time in which nothing new was seen, within these bounds."""
        seen = np.unique(self.seen_us[(self.seen_us > first_us) & (self.seen_us < end_us)])
        return int(np.diff(np.concatenate([[first_us], seen, [end_us]])).max())

    def recovery(self, at_us: int, end_us: int, calm_p99_us: float) -> Recovery:
        """Judge a failure at ``at_us``, after which nothing else happened until ``end_us``."""
        concerned = (self.seen_us >= at_us) & (self.seen_us < end_us)
        latency_us = (self.seen_us - self.due_us)[concerned]
        waiting = self.seen_us[(self.due_us <= at_us) & (self.seen_us >= at_us)]
        caught_up_us = int(waiting.max(initial=at_us)) - at_us
        normal_us = self._normal_us(at_us, end_us, calm_p99_us)
        # A silence is that of the failure, not the engine's usual pace while it is calm again.
        judged_us = end_us if normal_us is None else min(end_us, at_us + max(normal_us, caught_up_us) + STEP_US)
        return Recovery(
            at_us,
            caught_up_us / 1e6 if at_us + caught_up_us < NEVER_US else None,
            None if normal_us is None else normal_us / 1e6,
            self.silent_us(at_us, judged_us) / 1000,
            float(latency_us.max()) / 1000 if len(latency_us) else 0.0,
        )

    def _normal_us(self, at_us: int, end_us: int, calm_p99_us: float) -> int | None:
        for first_us in range(at_us, end_us - WINDOW_US + 1, STEP_US):
            p99_us = self.between(first_us, first_us + WINDOW_US).p99_us
            if np.isfinite(calm_p99_us) and p99_us <= NORMAL_FACTOR * calm_p99_us:
                return first_us - at_us
        return None
