"""How busy workers are, and which of their columns keep them busy; the driver feeds it with pulses. Pure.

A worker is busy while it does not sleep: it computes, or it waits inside a function. One whose outputs are full sleeps,
so what is held up by others is not busy. A worker's time is charged to its columns by what their operations took.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m

WEIGHT = 0.3
"""Of the newest look, in the load of a column that its placement goes by."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """A worker at one moment."""

    incarnation: int
    at_us: int
    busy_us: int
    cpu_us: int


@dataclass(slots=True)
class _Instance:
    """An instance at one moment, and the worker that told it."""

    worker: int
    busy_us: int = 0
    arrived: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class Look:
    """Everybody between two looks.

    Attributes
    ----------
    workers : dict of int to float
        By worker: the share of its time for which it was busy.
    cpu : float
        Processor time for each second at work, over all workers.
    columns : dict of int to float
        By column: the share of a worker's time that it kept busy.
    instances : dict of (int, int) to float
        The same by unit and instance.
    arrived, taken : int
        Records that came from outside, and that were taken of them or of those that waited.
    waiting : int
        Records that wait outside now.
    seconds : float
        Between the looks, on average over the workers.
    """

    workers: dict[int, float]
    cpu: float
    columns: dict[int, float]
    arrived: int
    taken: int
    waiting: int
    seconds: float
    instances: dict[tuple[int, int], float] = field(default_factory=dict)


@dataclass(slots=True)
class Loads:
    """The last figures of every worker and instance."""

    plan: Plan
    columns: dict[int, float] = field(default_factory=dict)
    """By column: its load, averaged over the last looks."""
    _now: dict[int, _Seen] = field(default_factory=dict)
    _before: dict[int, _Seen] = field(default_factory=dict)
    _instances: dict[tuple[int, int], _Instance] = field(default_factory=dict)
    _last: dict[tuple[int, int], _Instance] = field(default_factory=dict)

    def on_pulse(self, pulse: m.Pulse) -> None:
        """Take a worker's word."""
        self._now[pulse.worker] = _Seen(pulse.incarnation, pulse.at_us, pulse.busy_us, pulse.cpu_us)
        for each in pulse.units:
            told = _Instance(pulse.worker, each.busy_us, each.arrived, each.waiting)
            self._instances[each.unit, each.instance] = told

    def forget(self, worker: int) -> None:
        """A worker has left."""
        self._now.pop(worker, None)
        self._before.pop(worker, None)

    def look(self, members: Collection[int]) -> Look | None:
        """Compare with the last look; None if somebody has not been heard of since, or has begun anew."""
        before, now = self._before, {worker: self._now[worker] for worker in members if worker in self._now}
        if len(now) < len(members) or any(
            worker in before and before[worker].at_us >= each.at_us for worker, each in now.items()
        ):
            return None  # the next pulses will tell
        last, instances = self._last, {key: each for key, each in self._instances.items() if each.worker in now}
        self._before, self._last = now, instances
        known = all(w in before and before[w].incarnation == each.incarnation for w, each in now.items())
        if not known or any(
            key not in last or each.worker != last[key].worker or each.arrived < last[key].arrived
            for key, each in instances.items()
        ):
            return None  # rolled back, or moved: counts begin anew
        return self._compared(before, now, last, instances)

    def _compared(
        self,
        before: dict[int, _Seen],
        now: dict[int, _Seen],
        last: dict[tuple[int, int], _Instance],
        instances: dict[tuple[int, int], _Instance],
    ) -> Look:
        passed_us = {worker: each.at_us - before[worker].at_us for worker, each in now.items()}
        busy_us = {worker: each.busy_us - before[worker].busy_us for worker, each in now.items()}
        cpu_us = {worker: each.cpu_us - before[worker].cpu_us for worker, each in now.items()}
        used = {w: min(1.0, max(0, busy_us[w], cpu_us[w]) / passed_us[w]) for w in now}
        took: dict[int, dict[int, int]] = {worker: {} for worker in now}
        for (unit, column), each in instances.items():
            held = took[each.worker]
            held[column] = held.get(column, 0) + max(0, each.busy_us - last[unit, column].busy_us)
        columns: dict[int, float] = {}
        for worker, held in took.items():
            total = sum(held.values())
            for column, took_us in held.items():
                columns[column] = used[worker] * (took_us / total if total else 1 / len(held))
                self.columns[column] = columns[column] + (1 - WEIGHT) * (
                    self.columns.get(column, columns[column]) - columns[column]
                )
        shares = {worker: used[worker] / (sum(held.values()) or 1) for worker, held in took.items()}
        sources = {unit.id for unit in self.plan.units if unit.source is not None}
        read = [(each, last[key]) for key, each in instances.items() if key[0] in sources]
        return Look(
            workers=used,
            cpu=sum(cpu_us.values()) / max(1, sum(busy_us.values())),
            columns=columns,
            arrived=sum(each.arrived - old.arrived for each, old in read),
            taken=sum(each.arrived - each.waiting - old.arrived + old.waiting for each, old in read),
            waiting=sum(each.waiting for each, _ in read),
            seconds=sum(passed_us.values()) / len(passed_us) / 1e6 if passed_us else 0.0,
            instances={
                key: shares[each.worker] * max(0, each.busy_us - last[key].busy_us) for key, each in instances.items()
            },
        )
