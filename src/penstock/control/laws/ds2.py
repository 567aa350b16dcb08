"""DS2: as many replicas as true processing rates ask for, at most three steps to get there; a baseline. Pure.

The true rate of a replica is what it handles in a second of useful time, however long it was idle or held up. From the
rate of the sources follows, in graph order, what each operation would get if nothing held it up. What waits already is
not counted: that is where PS-1 differs.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.control.laws.replicas import Operator, Policy, needs

STEPS_MAX = 3
"""Steps that DS2 needs for one load, by its authors' account."""


def ds2(
    operators: Sequence[Operator], interval_us: float, *, incoming: float, policy: Policy | None = None
) -> dict[str, int]:
    """Return the number of replicas by operation for the load of this interval."""
    drained = [
        Operator(
            name=each.name,
            received=each.received,
            processed=each.processed,
            queue=0.0,
            execution_us=each.execution_us,
            replicas=each.replicas,
            least=each.least,
            most=each.most,
        )
        for each in operators
    ]
    found = needs(drained, interval_us, incoming=incoming, policy=policy or Policy())
    return {name: need.replicas for name, need in found.items()}
