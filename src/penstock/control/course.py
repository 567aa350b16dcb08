"""The figures of instances over a whole run, whatever is lost and restored in it; the monitor asks. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from penstock.metrics import Histogram
from penstock.metrics.message import StatsMessage

Key = tuple[str, int, int]
"""Operation, unit and instance."""


def _key(stats: StatsMessage) -> Key:
    return stats.operation, stats.unit, stats.instance


class Course:
    """Figures of instances over a whole run, however often they were built anew, and without the runs before it.

    A snapshot holds how many records an instance has counted, over all runs: what a run began with is taken off. It
    holds no latencies and no times: an instance that is built anew begins with none, and what it had told before is
    added. A record that is replayed thus counts once among the records, and each time among the latencies.
    """

    def __init__(self) -> None:
        self._before: dict[Key, StatsMessage] = {}
        self._told: dict[Key, tuple[tuple[int, int], StatsMessage]] = {}
        self._lives: dict[Key, StatsMessage] = {}
        """Sums over the lives of each instance that are over."""

    def begin_after(self, before: Iterable[StatsMessage]) -> None:
        """Take what instances have counted in the runs before this one."""
        self._before.update((_key(each), each) for each in before)

    def records_before(self, operations: Collection[str]) -> int:
        """Records that came to these operations in the runs before this one."""
        return sum(each.records_in for each in self._before.values() if each.operation in operations)

    def take(self, incarnation: int, told: StatsMessage) -> StatsMessage:
        """Turn what an instance has told into what it has done in this run."""
        key, life = _key(told), (incarnation, told.built)
        last = self._told.get(key)
        if last is not None and last[0] != life:
            self._lives[key] = _sum(last[1], self._lives.get(key))
        self._told[key] = life, told
        before = self._before.get(key)
        if before is not None:
            told = msgspec.structs.replace(
                told,
                records_in=told.records_in - before.records_in,
                records_out=told.records_out - before.records_out,
                late=told.late - before.late,
                skipped=told.skipped - before.skipped,
                retried=told.retried - before.retried,
                dead_letters=told.dead_letters - before.dead_letters,
                timed_out=told.timed_out - before.timed_out,
                over_bound=told.over_bound - before.over_bound,
            )
        return _sum(told, self._lives.get(key))


def _sum(stats: StatsMessage, earlier: StatsMessage | None) -> StatsMessage:
    """Add what an earlier life of an instance has counted and no snapshot holds."""
    if earlier is None:
        return stats
    latency = Histogram(stats.latency_counts, stats.latency_max_us)
    latency.merge(Histogram(earlier.latency_counts, earlier.latency_max_us))
    return msgspec.structs.replace(
        stats,
        blocks=stats.blocks + earlier.blocks,
        busy_ns=stats.busy_ns + earlier.busy_ns,
        latency_counts=latency.counts,
        latency_max_us=latency.maximum,
        entered_us=stats.entered_us + earlier.entered_us,
        left_us=stats.left_us + earlier.left_us,
        wait_us=stats.wait_us + earlier.wait_us,
        schedule_us=stats.schedule_us + earlier.schedule_us,
        fallbacks=stats.fallbacks + earlier.fallbacks,
    )
