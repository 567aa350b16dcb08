"""How many workers a job needs: the loads of its columns, packed onto as few as carry them; `control/staffing.py` asks.

A *load* is a share of one worker's time. Columns cannot be split, so what counts is not the sum of their loads but how
well they fit: two columns of 0.6 need two workers, and a third one would stand idle. Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

FULL = 0.8
"""A worker is to be busy for this share of its time at the most, so that records need not queue."""
SPARE = 0.6
"""A worker leaves when the others would be busy for less than this without it; the rest is hysteresis."""
PRESSED = 0.7
"""Below this nobody is busy enough for another worker to help, however much waits: it waits for something else."""
DRAIN_S = 10.0
"""What waits is to be worked off within this time."""
FACTOR_MAX = 4.0
"""A look does not believe in more than so many times the load that it sees."""
UP_LOOKS = 2
LOOKS_MAX = 64
"""Looks that are remembered for growing."""
DOWN_LOOKS = 10
"""A worker leaves when so many looks in a row had no use for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A job between two looks.

    Attributes
    ----------
    columns : mapping of int to float
        By column: the share of a worker's time that it has kept busy. Waiting for room in an output is not work.
    busiest : float
        The largest share of its time for which a worker was busy.
    demand : float
        Records that came from outside for each one that was taken; at least 1.
    backlog : float
        Workers that would be busy for `DRAIN_S` with what waits.
    ahead : float
        Records that a forecast expects for each one that comes now; at least 1.
    """

    columns: Mapping[int, float]
    busiest: float
    demand: float = 1.0
    backlog: float = 0.0
    ahead: float = 1.0

    @property
    def factor(self) -> float:
        """How much more there is to do than was done."""
        done = sum(self.columns.values())
        more = self.backlog / done if done > 0.0 else 0.0
        return min(FACTOR_MAX, max(1.0, self.demand) * max(1.0, self.ahead) + max(0.0, more))

    @property
    def work(self) -> float:
        """Workers that would be busy all the time, if columns could be split."""
        return self.factor * sum(self.columns.values())


def packed(loads: Sequence[float], workers: int) -> float:
    """The load of the busiest of so many workers, when each column goes to whoever has least, the largest ones first.

    Examples
    --------
    >>> packed([0.6, 0.3, 0.3, 0.2], 2)
    0.8
    """
    bins = [0.0] * max(1, workers)
    for load in sorted(loads, reverse=True):
        least = min(range(len(bins)), key=bins.__getitem__)
        bins[least] += load
    return round(max(bins), 9)


def workers_for(loads: Sequence[float], most_busy: float) -> int:
    """As few workers as keep the busiest below a share of its time; if no number does, as few as make it least busy.

    Examples
    --------
    >>> workers_for([0.3, 0.3, 0.3, 0.3], 0.8), workers_for([1.5, 0.1, 0.1], 0.8)
    (2, 2)
    """
    found = [packed(loads, number) for number in range(1, max(1, len(loads)) + 1)]
    enough = max(most_busy, found[-1])
    return next(number for number, busiest in enumerate(found, start=1) if busiest <= enough)


@dataclass(frozen=True, slots=True)
class Need:
    """What the law says: how many workers, and those that would be busy all the time."""

    workers: int
    work: float


class Headcount:
    """Decides from look to look; a constant load changes nothing.

    A number grows when `UP_LOOKS` looks in a row want more, to the least that they want, and falls when
    `DOWN_LOOKS` in a row had no use for it, to the most that any of them had use for.
    """

    def __init__(self) -> None:
        self._more: deque[int] = deque(maxlen=LOOKS_MAX)
        self._less: deque[int] = deque(maxlen=DOWN_LOOKS)

    def forget(self) -> None:
        """Something has changed: looks before it say nothing of what is now."""
        self._more.clear()
        self._less.clear()

    def decide(self, load: Load, *, present: int, least: int, most: int, patience: int = 0) -> Need:
        """Take a look; say how many workers there should be.

        Parameters
        ----------
        present : int
            Workers that there are, or that have been ordered.
        least, most : int
            Bounds of their number.
        patience : int
            Looks more than usual that must want more: somebody else, who costs less, may act first.
        """
        loads = [load.factor * each for each in load.columns.values()]
        pressed = load.busiest * max(1.0, load.ahead) >= PRESSED
        wanted = workers_for(loads, FULL) if pressed else 0
        self._less.append(max(wanted, workers_for(loads, SPARE)))
        self._more.append(wanted)
        looks = min(UP_LOOKS + patience, LOOKS_MAX)
        more, number = min(list(self._more)[-looks:]), present
        if len(self._more) >= looks and more > present:
            number = more
        elif len(self._less) == DOWN_LOOKS and max(self._less) < present:
            number = max(self._less)
        return Need(max(least, min(number, most)), load.work)
