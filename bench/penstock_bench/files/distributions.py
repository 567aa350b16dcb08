"""Distributions by the names that files give them, as weights of whole numbers; `sources` draws from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from penstock.connectors.draws import Picker
from penstock_bench.files.problems import Problem, unknown_word

_COMMONS = "org.apache.commons.math3.distribution."
_TAIL_SD = 8.0  # normal and Poisson distributions are cut this many standard deviations from their mean


class Kind(Enum):
    """What a file may name; the value is the short name."""

    UNIFORM = "uniform"
    ZIPF = "zipf"
    NORMAL = "normal"
    POISSON = "poisson"
    CONSTANT = "constant"
    TRACE = "trace"
    BURST = "burst"
    STEPS = "steps"


DRAWN = (Kind.UNIFORM, Kind.ZIPF, Kind.NORMAL, Kind.POISSON, Kind.CONSTANT)
_CLASSES = {"UniformIntegerDistribution": Kind.UNIFORM}
_CLASSES |= {f"{kind.value.title()}Distribution": kind for kind in (Kind.ZIPF, Kind.NORMAL, Kind.POISSON)}


def kind_of(word: str, allowed: tuple[Kind, ...], path: str, problems: list[Problem]) -> Kind | None:
    """Return what a name means: a short one, a class of Apache Commons Math, with or without its package."""
    kinds = {kind.value: kind for kind in allowed} | _CLASSES
    found = kinds.get(word.removeprefix(_COMMONS))
    if found is None:
        problems.append(unknown_word(path, "distribution", word.removeprefix(_COMMONS), kinds))
    return found


@dataclass(frozen=True)
class Discrete:
    """Whole numbers ``low`` … ``low + count - 1`` with weights; None where all weigh the same."""

    low: int
    count: int
    weights: tuple[float, ...] | None
    text: str  # in words, for `penstock bench check`

    @property
    def picker(self) -> Picker:
        return Picker(self.count, self.weights, None)

    @property
    def shares(self) -> npt.NDArray[np.float64]:
        weights = np.ones(self.count) if self.weights is None else np.array(self.weights)
        return np.asarray(weights / weights.sum())

    @property
    def mean(self) -> float:
        return float(self.low + (self.shares * np.arange(self.count)).sum())


def uniform(low: int, high: int) -> Discrete:
    return Discrete(low, high - low + 1, None, f"uniform {low:,} to {high:,}" if low < high else f"always {low:,}")


def zipf(count: int, exponent: float, low: int = 1) -> Discrete:
    """Zipf's law: the i-th of ``count`` numbers has the weight ``1 / i ** exponent``."""
    weights = np.arange(1, count + 1, dtype=np.float64) ** -exponent
    return Discrete(low, count, tuple(weights.tolist()), f"Zipf over {count:,}, exponent {exponent:g}")


def normal(mean: float, sd: float, low: int, high: int) -> Discrete | None:
    """A normal distribution rounded to whole numbers; those outside of the range are drawn again, None if all are."""
    near, scale = _near(mean, _TAIL_SD * sd, low, high), sd * math.sqrt(2.0)
    edges = [math.erf((k - 0.5 - mean) / scale) for k in (*near, near.stop)]
    weights = [after - before for before, after in pairwise(edges)]
    return _weighted(near.start, weights, f"normal, mean {mean:g}, standard deviation {sd:g}")


def poisson(mean: float, low: int, high: int) -> Discrete | None:
    """A Poisson distribution; numbers outside of the range are drawn again, None if all are."""
    near = _near(mean, _TAIL_SD * math.sqrt(mean) + 20, low, high)
    weights = [math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in near]
    return _weighted(near.start, weights, f"Poisson, mean {mean:g}")


def _near(mean: float, spread: float, low: int, high: int) -> range:
    return range(max(low, math.floor(mean - spread)), min(high, math.ceil(mean + spread)) + 1)


def _weighted(low: int, weights: list[float], text: str) -> Discrete | None:
    return Discrete(low, len(weights), tuple(weights), text) if sum(weights) > 0 else None
