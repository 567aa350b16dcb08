"""Which key groups leave an instance that is much hotter than the others, and where they go. Pure.

A column that fills its worker cannot be helped by another worker: it moves as a whole. Its key groups can. As many
leave, the hottest first, as make the busiest worker least busy; a group that has more than that alone stays where it
is, and what is beside it leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

BUSY = 0.7
"""A worker that is busy for less of its time has nothing to give away."""
GAIN = 0.15
"""By this share the busiest worker must get less busy."""
LOOKS = 3
"""Looks in a row that must want the same."""
REST_LOOKS = 10
"""Looks after a shift before the next one: what it has changed must show first."""
GROUPS_MAX = 2_048
"""Key groups that go at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A job as one look has found it.

    Attributes
    ----------
    workers : mapping of int to float
        By worker: the share of its time for which it was busy.
    placement : sequence of int
        Worker of each column.
    instances : mapping of (int, int) to float
        By unit and instance, where key groups can go elsewhere: the share of a worker's time that it kept busy.
    groups : callable
        From unit and instance to the key groups that it has.
    shares : callable
        From a unit to the share of its records that its hottest key groups have.
    """

    workers: Mapping[int, float]
    placement: Sequence[int]
    instances: Mapping[tuple[int, int], float]
    groups: Callable[[int, int], Collection[int]]
    shares: Callable[[int], Mapping[int, float]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A shift that would help."""

    unit: int
    old: int
    new: int
    groups: tuple[int, ...]
    moved: float
    """Share of a worker's time that goes with them."""
    before: tuple[float, float]
    """How busy the two workers are."""


def spread(picture: Picture) -> Wanted | None:
    """The shift that helps the busiest worker most; None: none helps much."""
    workers = {worker: picture.workers[worker] for worker in set(picture.placement) if worker in picture.workers}
    if len(workers) < 2:
        return None
    hot = max(sorted(workers), key=workers.__getitem__)
    cool = min(sorted(workers), key=workers.__getitem__)
    aim = (workers[hot] - workers[cool]) / 2
    if workers[hot] < BUSY or aim < GAIN * workers[hot]:
        return None
    loads = {key: load for key, load in picture.instances.items() if picture.placement[key[1]] == hot}
    for unit, old in sorted(loads, key=loads.__getitem__, reverse=True):
        there = [i for u, i in picture.instances if u == unit and picture.placement[i] == cool]
        if not there:
            continue
        chosen, moved = _chosen(picture, unit, old, aim)
        if moved >= GAIN * workers[hot]:
            new = min(there, key=lambda each: (picture.instances[unit, each], each))
            return Wanted(unit, old, new, tuple(sorted(chosen)), moved, (workers[hot], workers[cool]))
    return None


def _chosen(picture: Picture, unit: int, old: int, aim: float) -> tuple[list[int], float]:
    """Key groups of an instance with about ``aim`` of its load, and how much they have."""
    own, load = set(picture.groups(unit, old)), picture.instances[unit, old]
    total = sum(each for (u, _), each in picture.instances.items() if u == unit)
    known = {group: min(load, share * total) for group, share in picture.shares(unit).items() if group in own}
    chosen: list[int] = []
    moved = 0.0
    for group in sorted(known, key=lambda each: (-known[each], each)):
        if moved + known[group] <= aim:
            chosen.append(group)
            moved += known[group]
    cold = sorted(own - known.keys())
    each = max(0.0, load - sum(known.values())) / len(cold) if cold else 0.0
    count = min(len(cold), int((aim - moved) / each) if each else 0, GROUPS_MAX - len(chosen))
    return chosen + cold[:count], moved + count * each


class Spreader:
    """Asks again and again, and says so when it is sure."""

    def __init__(self) -> None:
        self._looks = 0
        self._rest = 0
        self._last: tuple[int, int] | None = None

    def forget(self) -> None:
        """Something else changes: what was seen before does not count."""
        self._looks, self._last = 0, None

    def decide(self, picture: Picture) -> Wanted | None:
        """Look once more; return what is to be done now, if anything is."""
        if self._rest:
            self._rest -= 1
            return None
        found = spread(picture)
        key = (found.unit, found.old) if found is not None else None
        self._looks = self._looks + 1 if key is not None and key == self._last else int(key is not None)
        self._last = key
        if found is None or self._looks < LOOKS:
            return None
        self.forget()
        self._rest = REST_LOOKS
        return found
