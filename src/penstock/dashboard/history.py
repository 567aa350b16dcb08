"""What a live view remembers: rate, queue and latency of the last while as lines of blocks; `view` draws them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.control.monitor import Status

POINTS_MAX = 120
_BLOCKS = "▁▂▃▄▅▆▇█"


@dataclass(slots=True)
class History:
    """The course of a job, one point for every status with news.

    Attributes
    ----------
    rate_eps, queue_records, p99_ms : deque of float
        Records per second that the sources read, records that wait anywhere, and the highest
        p99 of the operations that have seen records lately.
    workers : deque of float
        Workers that had instances.
    replicas : deque of dict
        By range that may have some: those that computed it.
    owners : deque of list of int
        The worker of each instance.
    """

    rate_eps: deque[float] = field(default_factory=lambda: deque(maxlen=POINTS_MAX))
    queue_records: deque[float] = field(default_factory=lambda: deque(maxlen=POINTS_MAX))
    p99_ms: deque[float] = field(default_factory=lambda: deque(maxlen=POINTS_MAX))
    workers: deque[float] = field(default_factory=lambda: deque(maxlen=POINTS_MAX))
    replicas: deque[dict[str, int]] = field(default_factory=lambda: deque(maxlen=POINTS_MAX))
    owners: deque[list[int]] = field(default_factory=lambda: deque(maxlen=POINTS_MAX))
    _heard_us: int = 0

    def add(self, status: Status) -> None:
        """Take a status; one that says nothing new is left out."""
        if not status.start_us or status.heard_us <= self._heard_us or not status.operations:
            return
        self._heard_us = status.heard_us
        self.rate_eps.append(sum(each.in_eps for each in status.operations if each.reads))
        self.queue_records.append(float(sum(each.queue_records for each in status.operations)))
        self.p99_ms.append(max((each.p99_ms for each in status.operations if each.in_eps > 0), default=0.0))
        self.workers.append(float(len(set(status.placement) or status.workers)))
        self.replicas.append({", ".join(each.operations): each.degree for each in status.replicas})
        self.owners.append(list(status.placement))

    def degrees(self) -> dict[str, list[float]]:
        """By range that may have replicas: how many it had at each point."""
        names = dict.fromkeys(name for each in self.replicas for name in each)
        return {name: [float(each.get(name, 0)) for each in self.replicas] for name in names}

    def moved(self) -> dict[int, list[int]]:
        """By instance that has moved lately: the worker that it was on, at each point."""
        found = {}
        for number in range(max(map(len, self.owners), default=0)):
            owners = [each[number] for each in self.owners if number < len(each)]
            if len(set(owners)) > 1:
                found[number] = owners
        return found


def blocks(values: Sequence[float], width: int) -> str:
    """Draw the last values as blocks from 0 to the highest of them."""
    shown = list(values)[-width:]
    highest = max(shown, default=0.0)
    if highest <= 0:
        return _BLOCKS[0] * len(shown)
    return "".join(_BLOCKS[min(len(_BLOCKS) - 1, int(value / highest * len(_BLOCKS)))] for value in shown)
