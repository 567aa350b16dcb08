"""Which instance each key group goes to: dealt out evenly, except for groups that have been shifted since. Pure data.

A *shift* takes some key groups of a unit from one instance to another behind the marker of an epoch. Every producer
deals the blocks of later epochs out by it, whenever it comes to them; so the list of shifts, and the epoch of a block,
say where a record belongs. `control/shifting.py` has the table of the protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from penstock.operators.keys import KEY_GROUPS

NEVER = 1 << 62
"""An epoch that does not come."""


class Shift(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """Some key groups of a unit go to another instance.

    Attributes
    ----------
    old : int
        The instance that had them; -1 where that no longer matters.
    epoch : int
        Behind whose marker; the snapshots of this epoch are the last ones in which the old instance has them.
    """

    unit: int
    old: int
    new: int
    groups: list[int]
    epoch: int


def owner_at_first(group: int, instances: int) -> int:
    """The instance that a group goes to unless it has been shifted."""
    return group * instances // KEY_GROUPS


def routed(shifts: Iterable[Shift], unit: int, instances: int, epoch: int) -> dict[int, int]:
    """The groups of a unit whose records of ``epoch`` do not go where they would at first, and where they go.

    Examples
    --------
    >>> away = Shift(unit=1, old=0, new=1, groups=[7, 8], epoch=3)
    >>> routed([away], unit=1, instances=2, epoch=3), routed([away], unit=1, instances=2, epoch=4)
    ({}, {7: 1, 8: 1})
    """
    found: dict[int, int] = {}
    for each in shifts:
        if each.unit == unit and each.epoch < epoch:
            found.update(dict.fromkeys(each.groups, each.new))
    return {group: new for group, new in found.items() if new != owner_at_first(group, instances)}


def next_flip(shifts: Iterable[Shift], unit: int, epoch: int) -> int:
    """The epoch behind whose marker the next shift of a unit takes effect, for a producer that writes ``epoch``."""
    return min((each.epoch for each in shifts if each.unit == unit and each.epoch >= epoch), default=NEVER)


def settled(shifts: Iterable[Shift], instances: Mapping[int, int], committed: int) -> list[Shift]:
    """The same list, shorter: of shifts before the last commit only where the groups are now is kept.

    Parameters
    ----------
    instances : mapping of int to int
        How many instances each unit has.
    """
    shifts = list(shifts)
    found: list[Shift] = []
    for unit in sorted({each.unit for each in shifts if each.epoch < committed}):
        by_owner: dict[int, list[int]] = {}
        for group, new in sorted(routed(shifts, unit, instances[unit], committed).items()):
            by_owner.setdefault(new, []).append(group)
        found += [Shift(unit=unit, old=-1, new=new, groups=held, epoch=0) for new, held in sorted(by_owner.items())]
    return found + [each for each in shifts if each.epoch >= committed]
