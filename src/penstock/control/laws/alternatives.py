"""Which alternative to use: the best one, as long as the latency target holds (QE, beyond the paper); `choices` asks.

Every alternative is judged in the form that suits it better: the exact one may hold the target in batch form where it
does not in record form, and is then preferred to a faster one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

US_PER_S = 1_000_000


class Judgement(Enum):
    """What is known of an alternative."""

    HOLDS = "holds the target"
    FAILS = "does not hold the target"
    UNKNOWN = "is not known"


@dataclass(frozen=True, slots=True)
class Candidate:
    """An alternative, and what a unit would carry with it.

    Attributes
    ----------
    record_eps, batch_eps : float or None
        Records that the unit would carry in either form; None: not known, or not allowed.
    service_us : float
        Time that one record takes.
    """

    name: str
    record_eps: float | None
    batch_eps: float | None
    service_us: float = 0.0


@dataclass(frozen=True, slots=True)
class Load:
    """What comes to the unit, and what a micro-batch takes however small it is."""

    arrival_eps: float
    queue_records: float
    interval_us: float = 50_000.0
    schedule_us: float = 5_000.0


def expected_us(candidate: Candidate, load: Load) -> float | None:
    """Latency that the alternative would have in its better form; infinite if it cannot carry the load.

    In record form a record waits for those before it, and as long as a server that is busy ρ of the time makes it wait:
    ``L/PD + s/(1-ρ)``. In batch form it waits for half an interval, for its turn and for its micro-batch:
    ``T/2 + t_s + V*T/PO + L/PO``.
    """
    found: list[float] = []
    if candidate.record_eps:
        busy = load.arrival_eps / candidate.record_eps
        wait_us = load.queue_records / candidate.record_eps * US_PER_S
        found.append(wait_us + candidate.service_us / (1 - busy) if busy < 1 else float("inf"))
    if candidate.batch_eps:
        busy = load.arrival_eps / candidate.batch_eps
        work_us = load.arrival_eps * load.interval_us / candidate.batch_eps
        wait_us = load.queue_records / candidate.batch_eps * US_PER_S
        floor_us = load.interval_us / 2 + load.schedule_us + work_us + wait_us
        found.append(floor_us if busy < 1 else float("inf"))
    return min(found) if found else None


def judge(candidate: Candidate, load: Load, target_us: float, reserve: float) -> Judgement:
    """Whether an alternative would hold the target with ``reserve`` to spare, in latency and in what it carries."""
    eased = Load(load.arrival_eps / (1 - reserve), load.queue_records, load.interval_us, load.schedule_us)
    latency_us = expected_us(candidate, eased)
    if latency_us is None:
        return Judgement.UNKNOWN
    return Judgement.HOLDS if latency_us <= (1 - reserve) * target_us else Judgement.FAILS


def below(candidates: Sequence[Candidate], present: str, load: Load, target_us: float, delta: float) -> str | None:
    """The one to go to when the present one does not hold the target: the best that does, else the fastest."""
    others = [each for each in candidates if each.name != present]
    for each in others:
        if judge(each, load, target_us, delta / 2) is Judgement.HOLDS:
            return each.name
    known = [(latency_us, each.name) for each in candidates if (latency_us := expected_us(each, load)) is not None]
    if not known:
        return None
    fastest = min(known)[1]
    return fastest if fastest != present else None


def above(candidates: Sequence[Candidate], present: str, load: Load, target_us: float, delta: float) -> str | None:
    """The best one before the present one that would hold the target with all of the hysteresis to spare.

    One whose cost is not known is taken for one that does: it is better, and only its use can tell.
    """
    # What waits now will not wait when the present one is calm, which is when this is asked.
    calm = Load(load.arrival_eps, 0.0, load.interval_us, load.schedule_us)
    for each in candidates:
        if each.name == present:
            return None
        if judge(each, calm, target_us, delta) is not Judgement.FAILS:
            return each.name
    return None
