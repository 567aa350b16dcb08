"""Which alternative each operation should use: the user's, else the best one that works and holds its target. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.control.candidates import UnitMeasure, capacity_eps
from penstock.control.exchanges import Standing
from penstock.control.laws.alternatives import Candidate, Load, above, below
from penstock.control.laws.breaker import Breaker
from penstock.control.monitor import OperationFigures
from penstock.durations import format_us
from penstock.operators import BatchKind

DELTA = 0.2
HOLD_US = 3_000_000
"""Least time that an alternative is used before a better one is tried; twice as long when that did not hold."""
HOLD_US_MAX = 60_000_000
CALM_US = 1_000_000
PRESSED_MIN = 3
"""Looks in a row at which the target is missed before another one is wanted."""
ASSUMED_GAIN = 2.0
"""How much faster a vectorised form is taken to be than the record form, until it was measured."""


@dataclass(frozen=True, slots=True)
class WantedExchange:
    """What an operation should use, and why."""

    operation: str
    alternative: str
    reason: str
    inputs: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class _Memory:
    breakers: dict[str, Breaker]
    hold_us: int = HOLD_US
    since_us: int = 0
    rose_us: int | None = None
    pressed: int = 0
    calm_since_us: int | None = None
    fell: bool = False
    """The present one was chosen because the one before had failed."""


class Chooser:
    """Decides for every operation whose alternatives have an order of preference.

    Parameters
    ----------
    cores : int
        Processor cores that instances and slots share.
    """

    def __init__(self, cores: int) -> None:
        self._cores = cores
        self._memories: dict[str, _Memory] = {}

    def out(self, standing: Standing) -> dict[str, str]:
        """The alternatives that are left out for a while, with the error."""
        memory = self._memories.get(standing.name)
        if memory is None:
            return {}
        return {name: standing.error for name, breaker in memory.breakers.items() if breaker.is_out}

    def decide(
        self,
        standings: Sequence[Standing],
        units: Sequence[UnitMeasure],
        figures: Mapping[str, OperationFigures],
        slots: int,
        now_us: int,
    ) -> list[WantedExchange]:
        """Return what should change now; call it at every control interval."""
        found = []
        for each in standings:
            if not each.of.prefer or each.pending is not None:
                continue
            memory = self._memories.setdefault(
                each.name, _Memory({name: Breaker() for name in each.of.names}, since_us=now_us)
            )
            unit = next((unit for unit in units if unit.unit == each.unit), None)
            wanted = self._failing(each, memory, now_us)
            if wanted is None and each.pin is None and each.of.latency_us is not None:
                wanted = self._by_latency(each, memory, unit, figures.get(each.name), slots, now_us)
            if wanted is not None:
                memory.since_us, memory.pressed, memory.calm_since_us = now_us, 0, None
                found.append(wanted)
        return found

    # --- failures -----------------------------------------------------------------------------------------------------

    def _failing(self, standing: Standing, memory: _Memory, now_us: int) -> WantedExchange | None:
        present = standing.wanted
        for name, breaker in memory.breakers.items():
            given_up = name in standing.given_up.values()
            breaker.look(standing.failed(name), name == standing.active, now_us, given_up=given_up)
        usable = [name for name in standing.of.prefer if not memory.breakers[name].is_out]
        if not usable:
            return None  # it fails everywhere: whoever is active says so by its error policy
        best = standing.pin if standing.pin in usable else None
        if memory.breakers[present].is_out:
            pause_us = memory.breakers[present].pause_us
            memory.fell = True
            reason = f"{present} has failed ({standing.error}); it is tried again in {format_us(pause_us)}"
            return WantedExchange(standing.name, best or usable[0], reason)
        back = best or (usable[0] if standing.pin is None and standing.of.latency_us is None else None)
        if standing.of.latency_us is not None and standing.pin is None and memory.fell:
            memory.fell, back = False, usable[0]
        if back is not None and back != present:
            return WantedExchange(standing.name, back, f"{back} is better, and is tried again")
        return None

    # --- latency ------------------------------------------------------------------------------------------------------

    def _by_latency(
        self,
        standing: Standing,
        memory: _Memory,
        unit: UnitMeasure | None,
        figures: OperationFigures | None,
        slots: int,
        now_us: int,
    ) -> WantedExchange | None:
        target_us = standing.of.latency_us
        assert target_us is not None
        if unit is None or figures is None or not figures.in_eps:
            memory.pressed, memory.calm_since_us = 0, None
            return None
        usable = [name for name in standing.of.prefer if not memory.breakers[name].is_out]
        candidates = [self._candidate(standing, name, unit, slots) for name in usable]
        load = Load(unit.arrival_eps, unit.queue_records, unit.interval_us, unit.schedule_us)
        measured_us, present = 1000 * figures.p99_ms, standing.wanted
        inputs = {
            "arrival_eps": load.arrival_eps,
            "queue_records": load.queue_records,
            "p99_ms": figures.p99_ms,
            "target_ms": target_us / 1000,
            **{f"{each.name}_eps": max(each.record_eps or 0.0, each.batch_eps or 0.0) for each in candidates},
        }
        if measured_us > target_us:
            memory.pressed, memory.calm_since_us = memory.pressed + 1, None
            if memory.pressed < PRESSED_MIN:
                return None
            name = below(candidates, present, load, target_us, DELTA)
            if name is None or (name in usable and usable.index(name) < usable.index(present)):
                return None
            if memory.rose_us is not None and now_us - memory.rose_us < 2 * memory.hold_us:
                memory.hold_us = min(2 * memory.hold_us, HOLD_US_MAX)
            reason = (
                f"p99 {figures.p99_ms:.1f} ms > {format_us(target_us)} with {present}: {load.arrival_eps:,.0f}/s arrive"
            )
            return WantedExchange(standing.name, name, reason, inputs)
        memory.pressed = 0
        if memory.calm_since_us is None:
            memory.calm_since_us = now_us
        if now_us - memory.calm_since_us < CALM_US or now_us - memory.since_us < memory.hold_us:
            return None
        name = above(candidates, present, load, target_us, DELTA)
        if name is None:
            return None
        memory.rose_us = now_us
        reason = f"{name} is better and would hold {format_us(target_us)}: {load.arrival_eps:,.0f}/s arrive"
        return WantedExchange(standing.name, name, reason, inputs)

    def _candidate(self, standing: Standing, name: str, unit: UnitMeasure, slots: int) -> Candidate:
        """What the unit would carry with an alternative in record form, and with it in batch form."""
        cost_ns = standing.cost_ns(name)
        if cost_ns is None or cost_ns <= 0:
            return Candidate(name, None, None)
        alternative = standing.of.alternative(name)
        if alternative.calls is not None:
            # Its cost is the time of a call, shared by as many as may be under way; no core is busy with it.
            at_once = alternative.steps[alternative.calls].operation.at_once
            return Candidate(name, standing.instances * 1e9 / cost_ns, None, cost_ns * at_once / 1000)
        loops = any(step.operation.batch_kind is not BatchKind.VECTORISED for step in alternative.steps)
        record_eps = min(unit.processes, self._cores) * 1e9 / cost_ns
        batch_eps = min(max(1, slots), self._cores) * 1e9 / cost_ns * (1.0 if loops else ASSUMED_GAIN)
        operations = [
            replace(op, record_eps=record_eps, batch_eps=batch_eps) if op.index == standing.index else op
            for op in unit.operations
        ]
        at = next((position for position, op in enumerate(operations) if op.index == standing.index), None)
        whole_eps = capacity_eps(operations) or record_eps
        if at is None or not operations[at].batchable or not slots:
            return Candidate(name, whole_eps, None, cost_ns / 1000)
        return Candidate(name, whole_eps, capacity_eps(operations, range(at, at + 1)), cost_ns / 1000)
