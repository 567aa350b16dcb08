"""Which worker has which column: spread over machines at the start, balanced by load afterwards. Pure.

Instance i of every unit is in column i, so a unit with few instances has the first columns: neighbours among them go to
different machines, and losing one machine takes as little of any unit as can be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

GAIN = 0.1
"""By this share the busiest worker must get less busy for a column to move where nobody joins or leaves."""
BUSY = 0.5
"""A worker that is busy for less of its time is left as it is."""
TRACE = 1e-3
"""Load of a column that has none: many of them are some."""


def host_of(endpoint: str) -> str:
    """The machine of an endpoint.

    Examples
    --------
    >>> host_of("tcp://10.0.0.7:40001")
    '10.0.0.7'
    """
    return endpoint.rpartition("://")[2].rpartition(":")[0] or endpoint


def spread(hosts: Mapping[int, str], columns: int) -> list[int]:
    """Return the worker of each column, so that neighbours are on different machines.

    Examples
    --------
    Workers 0 and 1 are on one machine, 2 and 3 on another:

    >>> spread({0: "a", 1: "a", 2: "b", 3: "b"}, 6)
    [0, 2, 1, 3, 0, 2]
    """
    turns: Counter[str] = Counter()
    order: list[tuple[int, int]] = []
    for worker in sorted(hosts):
        order.append((turns[hosts[worker]], worker))
        turns[hosts[worker]] += 1
    workers = [worker for _, worker in sorted(order)]
    return [workers[column % len(workers)] for column in range(columns)]


def next_move(
    placement: Sequence[int],
    wanted: Collection[int],
    ready: Collection[int],
    loads: Mapping[int, float],
    hosts: Mapping[int, str],
) -> tuple[int, int] | None:
    """Which column moves next, and to whom.

    Away from who leaves; then to who has none; then from the busiest to the least busy, if that helps much.

    Parameters
    ----------
    placement : sequence of int
        Worker of each column.
    wanted, ready : collection of int
        Workers that the job is to have; those of them that columns can move to.
    loads : mapping of int to float
        By column, the share of a worker's time that it keeps busy; none: nothing is known, and all count alike.
    hosts : mapping of int to str
        By worker, its machine.
    """
    if not ready:
        return None
    held: dict[int, list[int]] = {}
    for column, worker in enumerate(placement):
        held.setdefault(worker, []).append(column)
    weight = [loads.get(column, 0.0) + TRACE if loads else 1.0 for column in range(len(placement))]
    total = {worker: sum(weight[column] for column in held.get(worker, ())) for worker in ready}
    machines = Counter(hosts.get(worker, "") for worker in placement)
    new = min(sorted(ready), key=lambda each: (round(total[each], 1), machines[hosts.get(each, "")], total[each]))
    leaving = sorted(set(held) - set(wanted))
    if leaving:
        return max(held[leaving[0]], key=lambda each: (weight[each], -each)), new
    several = [worker for worker in sorted(ready) if len(held.get(worker, ())) > 1]
    if not several:
        return None
    old = max(several, key=total.__getitem__)
    empty = [worker for worker in sorted(ready) if worker not in held]
    if empty:
        new = min(empty, key=lambda each: machines[hosts.get(each, "")])

    def busier(column: int) -> float:
        return max(total[old] - weight[column], total[new] + weight[column])

    column = min(held[old], key=lambda each: (busier(each), -weight[each], each))
    if empty:
        return column, new
    gain = total[old] - busier(column)
    uneven = len(held[old]) - len(held[new]) > 1 and gain > 0
    pressed = bool(loads) and total[old] >= BUSY and gain >= GAIN * total[old]
    return (column, new) if uneven or pressed else None


def taken_over(placement: list[int], lost: int, others: Collection[int], hosts: Mapping[int, str]) -> None:
    """Give the columns of a worker that does not come back to the others, to who has fewest."""
    counts = Counter(placement)
    for column, owner in enumerate(placement):
        if owner == lost:
            machines = Counter(hosts.get(worker, "") for worker in placement if worker != lost)
            new = min(sorted(others), key=lambda each: (counts[each], machines[hosts.get(each, "")]))
            placement[column] = new
            counts[new] += 1
