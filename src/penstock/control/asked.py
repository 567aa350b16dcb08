"""The replicas that users ask for: by ``replicas=`` where an operation is made, and of a running job."""

from __future__ import annotations

from penstock.control.exchanges import AUTO
from penstock.errors import InvalidOption, nearest
from penstock.pipeline.plan import Plan, UnitSpec
from penstock.pipeline.ranges import Range


def ranges_of(plan: Plan, operation: str) -> list[tuple[int, Range]]:
    """The ranges with replicas that an operation is in, by the name that users know, and their units."""
    return [
        (unit.id, chosen)
        for unit in plan.units
        for chosen in bounds(unit)
        if operation in (unit.display_at(index) for index in chosen)
    ]


def checked_replicas(plan: Plan, operation: str, replicas: int | str) -> int | None:
    """Return how many processes are to compute an operation; None: the job is to choose.

    Raises
    ------
    InvalidOption
        If the name is unknown, the operation has no replicas, or cannot have so many of them.
    """
    asked = {unit.display_at(i): range_ for unit in plan.units for each, range_ in bounds(unit).items() for i in each}
    if operation not in asked:
        known = [unit.display_at(index) for unit in plan.units for index in range(len(unit.ops))]
        raise InvalidOption(
            option="operation",
            given=operation,
            allowed=f"an operation with replicas=: {', '.join(asked) or 'there is none'}",
            hint="Its own processes are asked for where it is made: .map(fn, replicas=(1, 8))."
            if operation in known
            else nearest(operation, list(asked)),
        )
    if replicas == AUTO:
        return None
    least, most = asked[operation]
    most = max(least, min(most, plan.replicas))
    if not isinstance(replicas, int) or isinstance(replicas, bool) or not least <= replicas <= most:
        bound = f"{least} to {most}" if least < most else f"{most}"
        raise InvalidOption(
            option="replicas",
            given=replicas,
            allowed=f"{bound}, by its replicas= and the job's pool of {plan.replicas}, or {AUTO}",
            hint="An operation that is to have more is started with replicas=(least, most), and a pool as large.",
        )
    return replicas


def bounds(unit: UnitSpec) -> dict[Range, tuple[int, int]]:
    """The ranges of a unit that users have asked replicas for: neighbours that ask for the same are one."""
    found: dict[Range, tuple[int, int]] = {}
    begin = 0
    for index in range(len(unit.ops) + 1):
        here = unit.ops[index].replicas if index < len(unit.ops) else None
        before = unit.ops[begin].replicas if begin < len(unit.ops) else None
        if here != before:
            if before is not None:
                found[Range(begin, index - 1)] = before
            begin = index
    return found
