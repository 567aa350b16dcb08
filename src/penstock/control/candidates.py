"""What the switcher knows of a unit, and what a range of its operations would carry in batch form. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from penstock.control.laws.switch_range import switch_range
from penstock.operators import Form

SOURCE_INDEX = -1
"""Chain index of a unit's source."""
WIDER_GAIN_MIN = 1.05
"""A range grows only if its unit then carries at least this much more; a switch is a pause, too."""
NOWHERE = range(0)


@dataclass(frozen=True, slots=True)
class OpMeasure:
    """One operation of a unit, over all of its instances.

    Attributes
    ----------
    index : int
        Position in its unit's chain; -1 is the source.
    switchable : bool
        Stateless, and has a batch form.
    pinned : Form or None
        The form that the user has pinned it to. BATCH was checked before the start and counts as switchable.
    arrival_eps : float
        Records that the operation has taken in; under load that is what got through, not what arrived at the unit.
    record_eps, batch_eps : float or None
        PD over all instances and PO over all slots, of the operation alone; None while unknown.
    selectivity : float
        λ: records out for each record in.
    queue_records : float
        Records waiting before the operation: real where there is a queue, otherwise derived along the chain.
    """

    name: str
    unit: int
    index: int
    form: Form
    switchable: bool
    pinned: Form | None
    arrival_eps: float
    record_eps: float | None
    batch_eps: float | None
    selectivity: float
    queue_records: float

    @property
    def batchable(self) -> bool:
        """Whether the operation may be put in batch form."""
        return self.pinned is Form.BATCH or (self.switchable and self.pinned is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Relieved:
    """A unit without back-pressure: what it would show if those behind it took all that it gives them.

    Attributes
    ----------
    taken_eps : float
        Records that it takes in, which is what those behind it let through.
    arrival_eps, queue_records : float
        What arrives and waits, without that of instances whose outputs have no room.
    """

    taken_eps: float
    arrival_eps: float
    queue_records: float


@dataclass(frozen=True, slots=True)
class UnitMeasure:
    """One unit: its operations in chain order, source first if it has one, and the times of its batch form.

    Attributes
    ----------
    interval_us, schedule_us, batch_transmit_us, record_transmit_us : float
        T, t_s, t_ot and t_dt.
    queue_records : float
        Records waiting before the unit: the source's backlog, or the input queue and what waits before that.
    arrival_eps : float
        V: records that arrive at the unit, whether or not it keeps up with them.
    spread : float
        By how much a record takes longer in the slowest instance than on average, in record form; 1 or more.
    relieved : Relieved or None
        The unit without back-pressure from those behind it; None if there is none.
    processes : int
        Workers that have instances of it, each of which computes one record at a time.
    """

    unit: int
    operations: tuple[OpMeasure, ...]
    interval_us: float
    schedule_us: float
    batch_transmit_us: float
    record_transmit_us: float
    queue_records: float
    arrival_eps: float
    spread: float = 1.0
    relieved: Relieved | None = None
    processes: int = 1

    def without_back_pressure(self, reserve: float) -> UnitMeasure:
        """The unit as decisions see it: what waits for those behind it is no load of its own.

        That holds if the record form carries what they let through with ``reserve`` to spare; otherwise the unit may be
        as much to blame as they are, and is taken as it is.
        """
        relieved, carried_eps = self.relieved, capacity_eps(self.operations)
        if relieved is None or carried_eps is None or relieved.taken_eps > (1 - reserve) * carried_eps:
            return self
        share = relieved.queue_records / self.queue_records if self.queue_records > 0.0 else 0.0
        operations = tuple(replace(op, queue_records=op.queue_records * share) for op in self.operations)
        return replace(
            self,
            operations=operations,
            queue_records=relieved.queue_records,
            arrival_eps=relieved.arrival_eps,
        )


def reaches(operations: Sequence[OpMeasure]) -> list[float]:
    """Records that reach each operation for one that enters the unit: the product of λ before it."""
    found, product = [], 1.0
    for op in operations:
        found.append(product)
        product *= max(0.0, op.selectivity)
    return found


def capacity_eps(operations: Sequence[OpMeasure], batch: range = NOWHERE) -> float | None:
    """Records each second that the chain carries with the positions ``batch`` in batch form; None while unknown.

    The operations share their cores, so their times for one record add up. One that no record reaches costs nothing.
    """
    seconds = 0.0
    for position, (op, reach) in enumerate(zip(operations, reaches(operations), strict=True)):
        rate_eps = op.batch_eps if position in batch else op.record_eps
        if reach == 0.0:
            continue
        if not _known(rate_eps):
            return None
        seconds += reach / rate_eps
    return 1.0 / seconds if seconds > 0.0 else None


def gains(op: OpMeasure, gain_min: float) -> bool:
    """Whether an operation is worth being put in batch form.

    A source is, wherever it can be: its range then begins where the records are, and nothing has to be handed over.
    """
    if not (op.batchable and _known(op.record_eps) and _known(op.batch_eps)):
        return False
    return op.index == SOURCE_INDEX or op.batch_eps >= gain_min * op.record_eps


def candidate(operations: Sequence[OpMeasure], needed_eps: float, gain_min: float) -> range:
    """Positions that should change to batch form, all being in record form; empty if that raises no capacity.

    The switch point is the first operation that gains, the range that of DO-5 as far as operations can change. If what
    is then left in record form keeps the unit from carrying ``needed_eps``, the range is widened at once: the same
    would follow one switch later. If the unit does not carry ``gain_min`` times as much by all that, the next
    operation that gains and is not in the range is tried.
    """
    record_eps = capacity_eps(operations)
    if record_eps is None:
        return NOWHERE
    selectivities = [op.selectivity for op in operations]
    point = 0
    while point < len(operations):
        if not gains(operations[point], gain_min):
            point += 1
            continue
        stop = min(switch_range(selectivities, point).stop, _reachable(operations, point))
        span = _gaining(operations, point, stop, gain_min)
        carried_eps = capacity_eps(operations, span) or 0.0
        if carried_eps < needed_eps:
            span = _following(operations, span, gain_min) or span
            carried_eps = capacity_eps(operations, span) or 0.0
        if carried_eps >= gain_min * record_eps:
            return span
        point = span.stop
    return NOWHERE


def wider(operations: Sequence[OpMeasure], span: range, gain_min: float) -> range:
    """A range in batch form and what should join it: operations that follow, else some that precede; empty if none."""
    return _following(operations, span, gain_min) or _preceding(operations, span, gain_min)


def _following(operations: Sequence[OpMeasure], span: range, gain_min: float) -> range:
    stops = range(span.stop + 1, _reachable(operations, span.stop) + 1)
    spans = [range(span.start, stop) for stop in stops if gains(operations[stop - 1], gain_min)]
    return _best(operations, span, spans)


def _preceding(operations: Sequence[OpMeasure], span: range, gain_min: float) -> range:
    spans = []
    for start in range(span.start - 1, -1, -1):
        if not _usable(operations, start):
            break
        if gains(operations[start], gain_min):
            spans.append(range(start, span.stop))
    return _best(operations, span, spans)


def _best(operations: Sequence[OpMeasure], span: range, spans: Sequence[range]) -> range:
    """The range that carries most, the smallest of equals, if that is worth a switch."""
    present_eps = capacity_eps(operations, span)
    if present_eps is None:
        return NOWHERE
    best, best_eps = NOWHERE, present_eps * WIDER_GAIN_MIN
    for each in spans:
        carried_eps = capacity_eps(operations, each)
        if carried_eps is not None and carried_eps > best_eps:
            best, best_eps = each, carried_eps
    return best


def _gaining(operations: Sequence[OpMeasure], start: int, stop: int, gain_min: float) -> range:
    """The range without the operations at its end that gain nothing."""
    while stop - 1 > start and not gains(operations[stop - 1], gain_min):
        stop -= 1
    return range(start, stop)


def _reachable(operations: Sequence[OpMeasure], start: int) -> int:
    """First position from ``start`` on that cannot be in batch form."""
    return next((p for p in range(start, len(operations)) if not _usable(operations, p)), len(operations))


def _usable(operations: Sequence[OpMeasure], position: int) -> bool:
    op = operations[position]
    unreached = reaches(operations)[position] == 0.0
    return op.batchable and (unreached or (_known(op.record_eps) and _known(op.batch_eps)))


def _known(rate_eps: float | None) -> TypeGuard[float]:
    return rate_eps is not None and rate_eps > 0.0
