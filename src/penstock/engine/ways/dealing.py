"""Which replica gets the next item: the load-balancing grouping of predictive replication (PS-3), or in turn. Pure.

The utilisation of a replica in an interval is the share of it that the replica was at work: U = μ·et/td. Each item that
it is given in the next one adds the item's share. The replica with the least is chosen; when all are full, they take
turns. A replica that has as much as it may hold is not asked: its queue would only be longer than that of others.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from penstock.pipeline.options import Grouping


class Dealing:
    """Deals the items of one unit instance.

    Parameters
    ----------
    interval_us : int
        td, the same as that of the loop which decides how many replicas there are.
    """

    def __init__(self, grouping: Grouping, interval_us: int) -> None:
        self._grouping = grouping
        self._interval_us = interval_us
        self._began_us = 0
        self._used: dict[int, float] = {}
        """U of each replica: of the last interval, and what it was given in this one."""
        self._measured: dict[int, float] = {}
        """U of each replica in the last interval, without what was dealt out since."""
        self._busy_us: dict[int, int] = {}
        """What each has worked in this interval."""
        self._turn = 0

    def utilisation(self, active: Sequence[int], now_us: int) -> dict[int, float]:
        """U of each of these replicas in the last interval, of what this instance has given it alone."""
        self._roll(now_us)
        return {each: self._measured.get(each, 0.0) for each in active}

    def choose(self, active: Sequence[int], free: Collection[int], cost_us: float, now_us: int) -> int | None:
        """The replica for an item of so much work, of those that are active and free; None: it has to wait."""
        self._roll(now_us)
        if self._grouping is Grouping.SHUFFLE:
            found = active[self._turn % len(active)] if active else None
            return self._taken(active, found) if found in free and found is not None else None
        # In turn among equals, beginning behind the last one.
        order = [active[(self._turn + i) % len(active)] for i in range(len(active))]
        order = [each for each in order if each in free]
        if not order:
            return None
        least = min(order, key=lambda each: self._used.get(each, 0.0))
        used = self._used.get(least, 0.0)
        if used >= 1.0:
            return self._taken(active, order[0])
        self._used[least] = used + cost_us / self._interval_us
        return self._taken(active, least)

    def _taken(self, active: Sequence[int], number: int) -> int:
        self._turn = active.index(number) + 1
        return number

    def done(self, number: int, busy_us: int) -> None:
        """A replica has worked for so long."""
        self._busy_us[number] = self._busy_us.get(number, 0) + busy_us

    def _roll(self, now_us: int) -> None:
        """Begin the next interval with what was measured in the last one."""
        passed_us = now_us - self._began_us
        if passed_us < self._interval_us:
            return
        self._used = {each: busy_us / passed_us for each, busy_us in self._busy_us.items()}
        self._measured = dict(self._used)
        self._busy_us.clear()
        self._began_us = now_us
