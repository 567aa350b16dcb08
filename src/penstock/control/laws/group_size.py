"""DZ-3: how many micro-batches make a group, and how long one lasts; the batch path asks at every group boundary."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from penstock.errors import InvalidOption

INTERVAL_STEP_US = 10_000
"""Intervals are whole steps, so that a rate that trembles does not move them."""


@dataclass(frozen=True, slots=True)
class GroupBounds:
    """What the tuning keeps to.

    Attributes
    ----------
    overhead_min, overhead_max : float
        Scheduling's share of a group's time: below, the group gets smaller; above, larger.
    size_min, size_max : int
        Least and greatest number of micro-batches in a group. The greatest bounds how long a change of plan waits.
    factor : int
        What a group that is too small is multiplied with.
    step : int
        What is subtracted from a group that is too large.
    weight : float
        Weight of the newest measurement in the exponential average. At 0.6 one spike (a collection of garbage) moves
        the average but is half forgotten at the next group; the paper gives no value.
    """

    overhead_min: float = 0.05
    overhead_max: float = 0.10
    size_min: int = 1
    size_max: int = 128
    factor: int = 2
    step: int = 1
    weight: float = 0.6

    def __post_init__(self) -> None:
        if not 0.0 < self.overhead_min < self.overhead_max < 1.0:
            given = (self.overhead_min, self.overhead_max)
            raise InvalidOption(option="overhead", given=given, allowed="0 < overhead_min < overhead_max < 1")
        if not 1 <= self.size_min <= self.size_max:
            raise InvalidOption(
                option="size", given=(self.size_min, self.size_max), allowed="1 <= size_min <= size_max"
            )
        if self.factor < 2 or self.step < 1:
            raise InvalidOption(option="factor, step", given=(self.factor, self.step), allowed="factor >= 2, step >= 1")
        if not 0.0 < self.weight <= 1.0:
            raise InvalidOption(option="weight", given=self.weight, allowed="above 0 and at most 1")


@dataclass(frozen=True, slots=True)
class GroupSize:
    """The tuned size and the averaged overhead behind it; None before the first group was measured."""

    size: int = 2
    overhead: float | None = None


def tune(state: GroupSize, schedule_us: float, execute_us: float, bounds: GroupBounds | None = None) -> GroupSize:
    """Return the next group's size after one group took ``schedule_us`` to schedule and ``execute_us`` to execute.

    Additive decrease, multiplicative increase: coordination that costs too much is cut fast, and what is won back by
    it is given up slowly, so that groups stay as short, and the job as ready for a change, as the bounds allow. A step
    down is not taken where it would lead into the upper half of the band: with few long micro-batches one less is a
    large share, and the next disturbance would double the size again, and so for ever.
    """
    bounds = bounds if bounds is not None else GroupBounds()
    size = min(max(state.size, bounds.size_min), bounds.size_max)
    schedule_us, execute_us = max(0.0, schedule_us), max(0.0, execute_us)
    if schedule_us + execute_us <= 0.0:
        # A group that took no time says nothing about its overhead.
        return replace(state, size=size)
    share = schedule_us / (schedule_us + execute_us)
    overhead = share if state.overhead is None else bounds.weight * share + (1 - bounds.weight) * state.overhead
    if overhead > bounds.overhead_max:
        size = min(size * bounds.factor, bounds.size_max)
    elif overhead < bounds.overhead_min:
        smaller = max(size - bounds.step, bounds.size_min)
        if _at_size(smaller, size, overhead) <= (bounds.overhead_min + bounds.overhead_max) / 2:
            size = smaller
    return GroupSize(size, overhead)


def _at_size(smaller: int, size: int, overhead: float) -> float:
    """Foretell the overhead of a smaller group: scheduling costs the same, and there is less to execute."""
    execute = (1.0 - overhead) * smaller / size
    return overhead / (overhead + execute) if overhead else 0.0


@dataclass(frozen=True, slots=True)
class IntervalBounds:
    """What the micro-batch interval keeps to.

    Attributes
    ----------
    interval_us_min, interval_us_max : int
        Least and greatest interval.
    overhead_max : float
        Greatest share of the interval that may go into what a micro-batch costs however small it is.
    fill_max : float
        Greatest share of the interval that processing a micro-batch may take; the rest is the reserve for the records
        that arrive unevenly.
    """

    interval_us_min: int = 50_000
    interval_us_max: int = 1_000_000
    overhead_max: float = 0.10
    fill_max: float = 0.80

    def __post_init__(self) -> None:
        if not 0 < self.interval_us_min <= self.interval_us_max:
            given = (self.interval_us_min, self.interval_us_max)
            raise InvalidOption(option="interval", given=given, allowed="0 < interval_us_min <= interval_us_max")
        if not (0.0 < self.overhead_max < 1.0 and 0.0 < self.fill_max <= 1.0):
            given_shares = (self.overhead_max, self.fill_max)
            raise InvalidOption(option="overhead_max, fill_max", given=given_shares, allowed="shares between 0 and 1")


def interval_us(
    arrival_eps: float,
    service_us: float,
    slots: int,
    overhead_us: float,
    bounds: IntervalBounds | None = None,
) -> int:
    """Return the shortest micro-batch interval that the load allows.

    Parameters
    ----------
    arrival_eps : float
        V, records that arrive each second.
    service_us : float
        Time of one slot for one record in batch form.
    slots : int
        Slots among which a micro-batch is divided.
    overhead_us : float
        What a micro-batch costs however small it is: scheduling, opening, handing on.
    bounds : IntervalBounds, optional
        Limits.

    Notes
    -----
    A record waits half an interval on average, so the shortest one is the best that satisfies both:

    - ``overhead <= overhead_max * T``: little is lost to what every micro-batch costs;
    - ``overhead + V*T*service/slots <= fill_max * T``: a micro-batch is done before the next one is due. With the load
      ``rho = V*service/slots`` that is ``T >= overhead / (fill_max - rho)``; from ``rho = fill_max`` on no interval
      satisfies it, and the longest loses least.
    """
    bounds = bounds if bounds is not None else IntervalBounds()
    if slots < 1:
        raise InvalidOption(option="slots", given=slots, allowed="1 or more")
    overhead_us = max(0.0, overhead_us)
    spare = bounds.fill_max - max(0.0, arrival_eps) * max(0.0, service_us) / slots / 1_000_000
    if spare <= 0.0:
        return bounds.interval_us_max
    needed_us = max(overhead_us / bounds.overhead_max, overhead_us / spare)
    if needed_us >= bounds.interval_us_max:
        return bounds.interval_us_max
    # Less than a millionth of a step is the division's rounding, not a need.
    stepped_us = math.ceil(needed_us / INTERVAL_STEP_US - 1e-6) * INTERVAL_STEP_US
    return min(max(stepped_us, bounds.interval_us_min), bounds.interval_us_max)
