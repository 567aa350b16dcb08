"""An instance that moves to another worker, as its old and its new owner see it. Pure: time is handed in.

`control/rescaling.py` has the table of a move. Here are the two owners' parts of it:

==========  =======================================  ===================================================================
owner       message                                  effect
==========  =======================================  ===================================================================
new         Prepare                                  snapshots of instances with state are fetched, one file at a time,
                                                     and brought into an operator that nobody uses, a little in each
                                                     turn; what is loaded already is not loaded again. Then Prepared
new         Rollback                                 the operator becomes the instance's; only what was written since
                                                     Prepared is read back
old         Hold(n)                                  the next marker is the last thing that the column's instances take;
                                                     Holding
old         Hold(-1), or Rollback                    they go on
old         Release                                  they are closed; Released. Their state is given back to the system
                                                     in turns, for that takes long
==========  =======================================  ===================================================================

A file that cannot be read, because a later commit has made it unnecessary, begins the loading anew. Whatever is not
loaded ahead is read back when the instance is built, as in a recovery: then it takes longer, and is as right.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.engine.chain import ClockNs
from penstock.engine.snapshot import InstanceId, UnitSnapshot, decode_snapshot
from penstock.engine.stage import Stage
from penstock.engine.state.copier import StateSnapshot
from penstock.engine.state.regrouping import Regrouped
from penstock.operators import StatefulOperator
from penstock.operators.keyed.loading import Loading
from penstock.operators.keyed.state import KeyedState
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m

if TYPE_CHECKING:
    from penstock.engine.share import Share

TURN_US = 4_000
"""Time between two turns that load or give back."""
WORK_US = 1_000
"""How long such a turn takes, about."""
BURIED_ENTRIES = 200
"""Entries that are given back between two looks at the clock."""


class Loaded:
    """The first operation of an instance, with the state of the files that were loaded so far."""

    def __init__(self, stage: Stage, operator: StatefulOperator) -> None:
        self.stage = stage
        self.last = ""
        """Name of the last file."""
        self.loaded_bytes = 0
        self._loading = Loading(operator)

    def begin(self, state: StateSnapshot) -> None:
        """Pieces of another file come."""
        self._loading.begin(state.header)

    def apply(self, piece: bytes) -> None:
        """Load a piece."""
        self.loaded_bytes += len(piece)
        self._loading.apply(piece)

    def restore(self, operator: StatefulOperator, rest: Sequence[StateSnapshot]) -> None:
        """Bring in what was written after what is loaded, and have the operator go on."""
        del operator  # which is the one that it was loaded into
        for each in rest:
            self._loading.begin(each.header)
            for piece in each.pieces:
                self._loading.apply(piece)
        self._loading.end(rest[-1].header)


Ahead = Loaded | Regrouped
"""The first operation of an instance that is built, made before the rest of it, and how its state comes in."""


def _load_into(plan: Plan, key: InstanceId) -> Loaded | None:
    """Where the state of an instance can be loaded; None: it has none."""
    unit = plan.units[key[0]]
    if not unit.is_stateful:
        return None
    stage = Stage.of(unit.ops[0])
    operator = stage.operator
    return Loaded(stage, operator) if isinstance(operator, StatefulOperator) else None


class Moves:
    """What one worker has to do with moves."""

    def __init__(self, share: Share, plan: Plan, clock_ns: ClockNs) -> None:
        self._share, self._plan, self._clock_ns = share, plan, clock_ns
        self._asked: m.Prepare | None = None
        self._todo: deque[m.Stored] = deque()
        """Files to be loaded for what was asked last."""
        self._fetching: m.Stored | None = None
        self._pieces: deque[bytes] = deque()
        """Of the file that was fetched last."""
        self._of: InstanceId = (0, 0)
        self._loaded: dict[InstanceId, Loaded] = {}
        self._buried: list[KeyedState] = []
        self._due_us = 0

    # --- messages -----------------------------------------------------------------------------------------------------

    def on_driver(self, message: m.Prepare | m.Hold | m.Reroute | m.Release) -> None:
        """Do, or begin, what a move asks of this worker."""
        share = self._share
        match message:
            case m.Prepare():
                self._asked = message
                if message.shift is None:
                    self._plan_loading(message)
            case m.Hold(move=move, epoch=epoch, column=column):
                for unit in share.units:
                    unit.hold(holds=unit.instance == column)
                share.tell(m.Holding(worker=share.worker, incarnation=share.incarnation, move=move, epoch=epoch))
            case m.Reroute(move=move, shift=shift):
                self._plan.routes.append(shift)
                share.reroute()
                for unit in share.units:
                    if unit.spec.id == shift.unit and unit.instance in (shift.old, shift.new):
                        unit.hold(holds=True)
                told = m.Holding(worker=share.worker, incarnation=share.incarnation, move=move, epoch=shift.epoch)
                share.tell(told)
            case m.Release(move=move, column=column):
                for unit in share.units:
                    if unit.instance == column:
                        share.forget((unit.spec.id, column))
                        if unit.chain.stateful is not None:
                            self._buried.append(unit.chain.stateful.state)
                share.tell(m.Released(worker=share.worker, incarnation=share.incarnation, move=move))

    def call_off(self, epoch: int) -> None:
        """Everyone rolls back to ``epoch``: who holds, and is not built anew, goes on; nothing more is loaded.

        Not who holds behind the marker of a shift that stands: that marker is still to be committed.
        """
        for unit in self._share.units:
            unit.hold(holds=self.holds((unit.spec.id, unit.instance), epoch))
        self._asked = self._fetching = None
        self._todo.clear()
        self._pieces.clear()

    def holds(self, key: InstanceId, epoch: int) -> bool:
        """Whether an instance is to hold behind a marker after ``epoch``, because its key groups change there."""
        unit, instance = key
        return any(s.epoch > epoch and s.unit == unit and instance in (s.old, s.new) for s in self._plan.routes)

    # --- the new owner ------------------------------------------------------------------------------------------------

    def _plan_loading(self, message: m.Prepare) -> None:
        chains: dict[InstanceId, list[m.Stored]] = {}
        for each in message.snapshots:
            if self._plan.units[each.unit].is_stateful:
                chains.setdefault((each.unit, each.instance), []).append(each)
        for key in [key for key in self._loaded if key not in chains]:
            self._drop(key)
        self._todo.clear()
        self._pieces.clear()
        self._fetching = None
        for key, chain in chains.items():
            self._todo += self._rest(key, chain)

    def _rest(self, key: InstanceId, chain: Sequence[m.Stored]) -> Sequence[m.Stored]:
        """What of a chain is not loaded; all of it, into nothing, if the chain does not follow what is."""
        loaded = self._loaded.get(key)
        names = [each.name for each in chain]
        if loaded is not None and loaded.last in names:
            return chain[names.index(loaded.last) + 1 :]
        self._drop(key)
        made = _load_into(self._plan, key)
        if made is None:
            return []
        self._loaded[key] = made
        return chain

    def _drop(self, key: InstanceId) -> None:
        loaded = self._loaded.pop(key, None)
        if loaded is not None and isinstance(loaded.stage.operator, StatefulOperator):
            self._buried.append(loaded.stage.operator.state)

    def wants(self) -> m.Stored | None:
        """Take the name of the file that is to be fetched now."""
        if self._fetching is not None or self._pieces or not self._todo:
            return None
        self._fetching = self._todo.popleft()
        return self._fetching

    def on_fetched(self, stored: m.Stored, data: bytes | None) -> None:
        """A file is there, or cannot be read."""
        if self._fetching != stored:
            return
        self._fetching, self._of = None, (stored.unit, stored.instance)
        if data is None:
            self._drop(self._of)
            self._todo = deque(each for each in self._todo if (each.unit, each.instance) != self._of)
            return
        snapshot = decode_snapshot(data)
        loaded = self._loaded[self._of]
        if snapshot.state is not None:
            loaded.begin(snapshot.state)
            self._pieces.extend(snapshot.state.pieces)
        loaded.last = stored.name

    def missing(self, snapshots: Sequence[m.Stored]) -> list[m.Stored]:
        """Those that have to be read back to build what has moved here."""
        chains: dict[InstanceId, list[m.Stored]] = {}
        for each in snapshots:
            chains.setdefault((each.unit, each.instance), []).append(each)
        wanted: list[m.Stored] = []
        partly = (self._of,) if self._pieces else ()
        for key, chain in chains.items():
            loaded = self._loaded.get(key)
            names = [each.name for each in chain]
            # The newest one is read in any case: it says where the instance stands.
            if loaded is None or key in partly or loaded.last not in names[:-1]:
                self._drop(key)
                wanted += chain
            else:
                wanted += chain[names.index(loaded.last) + 1 :]
        return wanted

    def claim(
        self,
        key: InstanceId,
        snapshots: Sequence[UnitSnapshot],
        epoch: int,
        others: Mapping[InstanceId, Sequence[bytes]],
    ) -> Ahead | None:
        """Take what is loaded of an instance that is built now from ``epoch``; what it lacks is in ``others``."""
        loaded = self._loaded.pop(key, None)
        unit, instance = key
        if not snapshots or not self._plan.units[unit].is_stateful:
            return None
        for each in self._plan.routes:
            if (each.unit, each.epoch) == (unit, epoch) and instance in (each.old, each.new):
                lent = [decode_snapshot(packed) for packed in others[unit, each.old]] if instance == each.new else None
                return Regrouped(self._plan.units[unit], each.groups, lent)
        return loaded

    # --- in turns -----------------------------------------------------------------------------------------------------

    def turn(self, now_us: int) -> None:
        """Load, or give back, a little."""
        if (self._asked is None and not self._buried) or now_us < self._due_us:
            return
        self._due_us = now_us + TURN_US
        until_ns = self._clock_ns() + WORK_US * 1000
        while self._pieces and self._clock_ns() < until_ns:
            self._loaded[self._of].apply(self._pieces.popleft())
        while self._buried and self._clock_ns() < until_ns:
            self._bury(self._buried[-1])
        if self._asked is not None and not self._pieces and not self._todo and self._fetching is None:
            asked, self._asked = self._asked, None
            share = self._share
            share.tell(
                m.Prepared(
                    worker=share.worker,
                    incarnation=share.incarnation,
                    move=asked.move,
                    epoch=asked.epoch,
                    loaded_bytes=sum(each.loaded_bytes for each in self._loaded.values()),
                )
            )

    def _bury(self, state: KeyedState) -> None:
        for name, space in list(state.spaces.items()):
            for _ in range(min(len(space), BURIED_ENTRIES)):
                space.popitem()
            if not space:
                del state.spaces[name]
            return
        self._buried.pop()

    def wake_us(self) -> int | None:
        """When there is something to do in a turn."""
        if self._pieces or self._buried or (self._asked is not None and not self._todo and self._fetching is None):
            return self._due_us
        return None
