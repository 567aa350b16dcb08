"""DO-5: which operations after a switch point are hit by its burst too; `control/candidates.py` asks."""

from __future__ import annotations

from collections.abc import Sequence

TOLERANCE = 0.01
"""λ is measured: a product this close to 1 is 1. A parser that drops one record in a thousand does not end a burst."""


def switch_range(selectivities: Sequence[float], point: int, *, tolerance: float = TOLERANCE) -> range:
    """Return the positions that change form when the burst begins at ``point``.

    The range ends at the first q at which ``λ_{p-1}·λ_p·…·λ_q``, the number of records for each one that went into
    the operation before the burst, is below 1, or is back to 1 after it was above. Operation p-1 is not in the range.
    If there is no such q the range runs to the last operation.

    Parameters
    ----------
    selectivities : sequence of float
        λ of each operation in chain order.
    point : int
        Position of the switch point, from 0. The first operation has none before it, and λ_{p-1} is 1.
    tolerance : float
        How far from 1 a product may be and still count as 1.

    Notes
    -----
    The paper's formula (8) says "below 1", its figure 5 ends the range where the count is "reduced to 1" by an
    operation that has another one after it, and figure 7 speaks of the count that "decreases down to the input
    volume". All three agree in this: a multiplication that has been undone ends the range. Where nothing was
    multiplied, only a real decrease ends it: a chain of operations with λ = 1 carries the whole burst to its end.
    """
    if not 0 <= point < len(selectivities):
        raise IndexError(f"switch point {point} is outside of a chain of {len(selectivities)} operations")
    product = selectivities[point - 1] if point else 1.0
    above = product > 1 + tolerance
    for position in range(point, len(selectivities)):
        product *= selectivities[position]
        if product < 1 - tolerance or (above and product <= 1 + tolerance):
            return range(point, position + 1)
        above = above or product > 1 + tolerance
    return range(point, len(selectivities))
