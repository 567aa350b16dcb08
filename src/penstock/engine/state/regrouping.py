"""An instance that goes on with fewer key groups than its snapshots have, or with some of another's; see `Shift`. Pure.

Both instances of a shift are built anew from the snapshots of the epoch behind whose marker it takes effect. The old
one leaves the groups out, and its next snapshot says that their entries are removed; the new one takes them from the
old one's snapshots, and its next snapshot has them. So both logs go on, and nothing before is read for it again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from penstock.engine.snapshot import UnitSnapshot
from penstock.engine.stage import Stage
from penstock.engine.state.copier import StateSnapshot
from penstock.operators import StatefulOperator
from penstock.pipeline.plan import UnitSpec


class Regrouped:
    """The first operation of an instance whose key groups change at the commit that it goes on from.

    Parameters
    ----------
    groups : collection of int
        Those that leave it or come to it.
    lent : sequence of UnitSnapshot or None
        The snapshots of the instance that has had them; None: they leave.
    """

    def __init__(self, spec: UnitSpec, groups: Collection[int], lent: Sequence[UnitSnapshot] | None) -> None:
        self.stage = Stage.of(spec.ops[0])
        self._groups = frozenset(groups)
        self._lent = None if lent is None else [each.state for each in lent if each.state is not None]

    def restore(self, operator: StatefulOperator, own: Sequence[StateSnapshot]) -> None:
        """Bring the state in, and have the operator go on."""
        if self._lent is None:
            operator.prepare([own[-1].header])
            operator.state.restore_without(self._groups, _pieces(own))
            operator.restored([own[-1].header])
            return
        headers = [own[-1].header, self._lent[-1].header]
        operator.prepare(headers)
        if not operator.state.restore_with(self._groups, _pieces(own), _pieces(self._lent)):
            operator.wants_whole = True  # all of its entries have other ids now
        operator.restored(headers)


def _pieces(log: Sequence[StateSnapshot]) -> Iterator[bytes]:
    return (piece for each in log for piece in each.pieces)
