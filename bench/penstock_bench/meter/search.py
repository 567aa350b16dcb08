"""Sustainable throughput: the highest rate at which the backlog does not grow, found by search. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.errors import InvalidOption

FACTOR = 2.0
PRECISION = 0.1
"""The rate that is found is sustained, and one that is higher by this share is not."""
TRIALS_MAX = 16
RATE_EPS_MIN = 1.0


@dataclass
class Found:
    """What a search came to.

    Attributes
    ----------
    sustained_eps : float
        Highest rate that was sustained; 0 if none was.
    failed_eps : float or None
        Lowest rate above it that was not; None if the search ended at a bound.
    trials : list
        Every rate that was tried, and whether it was sustained.
    """

    sustained_eps: float = 0.0
    failed_eps: float | None = None
    trials: list[tuple[float, bool]] = field(default_factory=list)

    def take(self, rate_eps: float, sustained: bool) -> None:
        """Narrow the range by a trial."""
        self.trials.append((rate_eps, sustained))
        if sustained:
            self.sustained_eps = max(self.sustained_eps, rate_eps)
        else:
            self.failed_eps = min(self.failed_eps or math.inf, rate_eps)


def search(
    sustains: Callable[[float], bool],
    first_eps: float,
    *,
    precision: float = PRECISION,
    factor: float = FACTOR,
    ceiling_eps: float = math.inf,
    trials_max: int = TRIALS_MAX,
) -> Found:
    """Look for the highest rate that is sustained: by doubling or halving, or by ``factor``, then by halving the range.

    Parameters
    ----------
    sustains : callable
        Tries a rate; a whole run of the engine.
    first_eps : float
        Where to begin.
    precision : float
        The range that is left at the end, as a share of its lower end.
    factor : float
        From the first rate to the second; then wider, until one is found on either side of the limit.
    ceiling_eps : float
        No rate above this one is tried: the generator's own limit.
    trials_max : int
        No more trials than this.
    """
    check_precision(precision)
    found = Found()
    rate_eps: float | None = min(max(first_eps, RATE_EPS_MIN), ceiling_eps)
    while rate_eps is not None and len(found.trials) < trials_max:
        found.take(rate_eps, sustains(rate_eps))
        rate_eps = _next(found, precision, factor, ceiling_eps)
    return found


def check_precision(precision: float) -> None:
    """Refuse a precision that no search can end with."""
    if not 0 < precision <= 1:
        raise InvalidOption(option="--precision", given=precision, allowed="a share above 0, at most 1")


def _next(found: Found, precision: float, factor: float, ceiling_eps: float) -> float | None:
    # Step by step wider, up to doubling: where to begin may have been far off.
    factor = min(FACTOR, factor ** len(found.trials))
    if found.failed_eps is None:
        return min(found.sustained_eps * factor, ceiling_eps) if found.sustained_eps < ceiling_eps else None
    if not found.sustained_eps:
        return found.failed_eps / factor if found.failed_eps > RATE_EPS_MIN else None
    if found.failed_eps <= found.sustained_eps * (1 + precision):
        return None
    # The middle of the range as a ratio: rates are judged by how many times one is of the other.
    return math.sqrt(found.sustained_eps * found.failed_eps)
