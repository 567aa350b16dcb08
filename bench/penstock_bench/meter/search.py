"""Sustainable throughput: the highest rate at which the backlog does not grow, found by search. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from penstock.errors import InvalidOption

FACTOR = 2.0
PRECISION = 0.1
"""The rate that is found is sustained, and one that is higher by this share is not."""
TRIALS_MAX = 16
RATE_EPS_MIN = 1.0


class Found(NamedTuple):
    """What a search came to: every rate that was tried, and whether it was sustained."""

    sustained_eps: float
    """The highest that was; 0 if none was."""
    failed_eps: float | None
    """The lowest above it that was not; None if the search ended at a bound."""
    trials: list[tuple[float, bool]]


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

    ``sustains`` tries a rate, with a whole run of the engine. The range that is left at the end is ``precision`` of its
    lower end. Steps become wider than ``factor`` until a rate is found on either side of the limit. No rate above
    ``ceiling_eps``, the generator's own limit, is tried.
    """
    check_precision(precision)
    found, rate_eps = Found(0.0, None, []), min(max(first_eps, RATE_EPS_MIN), ceiling_eps)
    while rate_eps and len(found.trials) < trials_max:
        found.trials.append((rate_eps, sustains(rate_eps)))
        sustained_eps = max((rate for rate, good in found.trials if good), default=0.0)
        failed_eps = min((rate for rate, good in found.trials if not good), default=None)
        found = found._replace(sustained_eps=sustained_eps, failed_eps=failed_eps)
        rate_eps = _next(found, precision, factor, ceiling_eps) or 0.0
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
