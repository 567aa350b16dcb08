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
old         Depart                                   snapshots of the column have only what changes, for a while
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
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from penstock.engine.chain import ClockNs
from penstock.engine.snapshot import InstanceId, UnitSnapshot, decode_snapshot
from penstock.engine.stage import Stage
from penstock.engine.state.copier import StateSnapshot
from penstock.engine.state.regrouping import Regrouped
from penstock.operators import StatefulOperator
from penstock.operators.keyed.loading import Loading, parts
from penstock.operators.keyed.state import KeyedState
from penstock.pipeline.plan import Plan, UnitSpec
from penstock.pipeline.routes import Shift
from penstock.protocol import messages as m

if TYPE_CHECKING:
    from penstock.engine.share import Share

TURN_US = 4_000
"""Time between two turns that load or give back."""
WORK_US = 1_000
"""How long such a turn takes, about."""
REST_US = 10_000_000
"""So long after it was last told of a move the old owner does not walk through its state, whatever comes of it."""
BURIED_ENTRIES = 200
"""Entries that are given back between two looks at the clock."""


class Loaded:
    """The first operation of an instance, with the state of the files that were loaded so far.

    Parameters
    ----------
    shift : Shift or None
        Where key groups go from one instance to another: the instance is one of the two.
    """

    def __init__(self, spec: UnitSpec, instance: int, shift: Shift | None = None) -> None:
        self.stage = Stage.of(spec.ops[0])
        self.shift = shift
        self.last: dict[int, str] = {}
        """Name of the last file, by the instance whose log it is of."""
        self.loaded_bytes = 0
        self.lent: Sequence[StateSnapshot] = ()
        """What was written after what is loaded by the instance that key groups come from."""
        operator = self.stage.operator
        assert isinstance(operator, StatefulOperator)
        self._instance, self._operator = instance, operator
        self._loadings = {instance: Loading(operator)}
        if shift is not None:
            leaves, own, lent = parts(shift.groups)
            self._loadings = {instance: Loading(operator, leaves)}
            if instance == shift.new:
                self._loadings = {shift.new: Loading(operator, own), shift.old: Loading(operator, lent)}

    @property
    def logs(self) -> Collection[int]:
        """The instances whose logs it is loaded from."""
        return self._loadings

    @property
    def can_load(self) -> bool:
        """Whether it can be loaded ahead: not where entries of two logs would have the same ids."""
        return len(self._loadings) == 1 or not self._operator.state.is_numbered

    def begin(self, log: int, state: StateSnapshot) -> None:
        """Pieces of another file come."""
        self._loadings[log].begin(state.header)

    def apply(self, log: int, piece: bytes) -> None:
        """Load a piece."""
        self.loaded_bytes += len(piece)
        self._loadings[log].apply(piece)

    def restore(self, operator: StatefulOperator, rest: Sequence[StateSnapshot]) -> None:
        """Bring in what was written after what is loaded, and have the operator go on."""
        del operator  # which is the one that it was loaded into
        rests = {self._instance: rest}
        if self.shift is not None and self._instance == self.shift.new:
            rests[self.shift.old] = self.lent
        for log, states in rests.items():
            for each in states:
                self._loadings[log].begin(each.header)
                for piece in each.pieces:
                    self._loadings[log].apply(piece)
        self._loadings[self._instance].end([states[-1].header for states in rests.values()])


Ahead = Loaded | Regrouped
"""The first operation of an instance that is built, made before the rest of it, and how its state comes in."""


class Moves:
    """What one worker has to do with moves."""

    def __init__(self, share: Share, plan: Plan, clock_ns: ClockNs) -> None:
        self._share, self._plan, self._clock_ns = share, plan, clock_ns
        self._asked: m.Prepare | None = None
        self._todo: deque[tuple[InstanceId, m.Stored]] = deque()
        """Files to be loaded for what was asked last, and for which instance."""
        self._fetching: m.Stored | None = None
        self._pieces: deque[bytes] = deque()
        """Of the file that was fetched last."""
        self._of: InstanceId = (0, 0)
        self._log = 0
        """For which instance it is, and whose log it is of."""
        self._loaded: dict[InstanceId, Loaded] = {}
        self._buried: list[KeyedState] = []
        self._due_us = 0

    # --- messages -----------------------------------------------------------------------------------------------------

    def on_driver(self, message: m.Prepare | m.Depart | m.Hold | m.BeginShift | m.Release) -> None:
        """Do, or begin, what a move asks of this worker."""
        share = self._share
        match message:
            case m.Prepare():
                self._asked = message
                self._plan_loading(message)
                if (shift := message.shift) is not None:
                    self._rest({(shift.unit, shift.old), (shift.unit, shift.new)})
            case m.Depart(column=column):
                self._rest({(unit.spec.id, column) for unit in share.units})
            case m.Hold(move=move, epoch=epoch, column=column):
                for unit in share.units:
                    unit.hold(holds=unit.instance == column)
                share.tell(m.Holding(worker=share.worker, incarnation=share.incarnation, move=move, epoch=epoch))
            case m.BeginShift(move=move, shift=shift):
                self._plan.routes.append(shift)
                share.follow_shifts()
                for unit in share.units:
                    if unit.spec.id == shift.unit and unit.instance in (shift.old, shift.new):
                        unit.hold(holds=True)
                told = m.Holding(worker=share.worker, incarnation=share.incarnation, move=move, epoch=shift.epoch)
                share.tell(told)
            case m.Release(move=move, column=column):
                held_us = self.held_us()
                for unit in share.units:
                    if unit.instance == column:
                        share.forget((unit.spec.id, column))
                        if unit.chain.stateful is not None:
                            self._buried.append(unit.chain.stateful.state)
                who = share.worker, share.incarnation
                share.tell(m.Released(worker=who[0], incarnation=who[1], move=move, held_us=held_us))

    def _rest(self, instances: Collection[InstanceId]) -> None:
        """Have what is written between the last loading and the marker be little: it is read in the pause."""
        until_us = self._clock_ns() // 1000 + REST_US
        for unit in self._share.units:
            if (unit.spec.id, unit.instance) in instances and unit.copier is not None:
                unit.copier.rests_until_us = until_us

    def call_off(self, epoch: int) -> None:
        """Everyone rolls back to ``epoch``: who holds, and is not built anew, goes on; nothing more is loaded.

        Not who holds behind the marker of a shift that stands: that marker is still to be committed.
        """
        for unit in self._share.units:
            unit.hold(holds=self.holds((unit.spec.id, unit.instance), epoch))
        self._asked = self._fetching = None
        self._todo.clear()
        self._pieces.clear()

    def held_us(self) -> int:
        """For how long the first instance here has held behind a marker."""
        since_us = [unit.held_us for unit in self._share.units if unit.held_us]
        return max(0, self._clock_ns() // 1000 - min(since_us)) if since_us else 0

    def holds(self, key: InstanceId, epoch: int) -> bool:
        """Whether an instance is to hold behind a marker after ``epoch``, because its key groups change there."""
        unit, instance = key
        return any(s.epoch > epoch and s.unit == unit and instance in (s.old, s.new) for s in self._plan.routes)

    # --- the new owner ------------------------------------------------------------------------------------------------

    def _plan_loading(self, message: m.Prepare) -> None:
        chains = _chains(each for each in message.snapshots if self._plan.units[each.unit].is_stateful)
        shift, wanted = message.shift, list(chains)
        if shift is not None:
            mine = self._share.worker
            both = [(shift.unit, each) for each in (shift.old, shift.new)]
            wanted = [key for key in both if key in chains and self._plan.worker_of(key[1]) == mine]
        for key in [key for key in self._loaded if key not in wanted]:
            self._drop(key)
        self._todo.clear()
        self._pieces.clear()
        self._fetching = None
        for key in wanted:
            self._begin_loading(key, chains, shift)

    def _begin_loading(self, key: InstanceId, chains: Mapping[InstanceId, list[m.Stored]], shift: Shift | None) -> None:
        """Load what is not loaded of an instance; all of it, into nothing, if the logs do not follow what is."""
        loaded = self._loaded.get(key)
        if loaded is None or loaded.shift != shift or not self._follows(loaded, key[0], chains):
            self._drop(key)
            loaded = Loaded(self._plan.units[key[0]], key[1], shift)
            if not loaded.can_load:
                return
            self._loaded[key] = loaded
        for log in loaded.logs:
            chain = chains[key[0], log]
            names = [each.name for each in chain]
            first = names.index(loaded.last[log]) + 1 if log in loaded.last else 0
            self._todo += [(key, each) for each in chain[first:]]

    @staticmethod
    def _follows(loaded: Loaded, unit: int, chains: Mapping[InstanceId, list[m.Stored]]) -> bool:
        """Whether logs go on behind what is loaded of them."""
        names = {log: [each.name for each in chains.get((unit, log), ())] for log in loaded.logs}
        return all(loaded.last.get(log) in names[log] for log in loaded.logs)

    def _drop(self, key: InstanceId) -> None:
        loaded = self._loaded.pop(key, None)
        if loaded is not None and isinstance(loaded.stage.operator, StatefulOperator):
            self._buried.append(loaded.stage.operator.state)

    def wants(self) -> m.Stored | None:
        """Take the name of the file that is to be fetched now."""
        if self._fetching is not None or self._pieces or not self._todo:
            return None
        self._of, self._fetching = self._todo.popleft()
        return self._fetching

    def on_fetched(self, stored: m.Stored, data: bytes | None) -> None:
        """A file is there, or cannot be read."""
        if self._fetching != stored:
            return
        self._fetching, self._log = None, stored.instance
        if data is None:
            self._drop(self._of)
            self._todo = deque(each for each in self._todo if each[0] != self._of)
            return
        snapshot = decode_snapshot(data)
        loaded = self._loaded[self._of]
        if snapshot.state is not None:
            loaded.begin(self._log, snapshot.state)
            self._pieces.extend(snapshot.state.pieces)
        loaded.last[self._log] = stored.name

    def missing(self, snapshots: Sequence[m.Stored], epoch: int) -> list[m.Stored]:
        """Those that have to be read back to build what is restored here from ``epoch``."""
        chains = _chains(snapshots)
        mine = [key for key in chains if self._plan.worker_of(key[1]) == self._share.worker]
        # The newest one is read in any case: it says where the instance stands.
        before = {key: chain[:-1] for key, chain in chains.items()}
        partly = (self._of,) if self._pieces else ()
        for key in mine:
            loaded = self._loaded.get(key)
            fits = loaded is not None and key not in partly and loaded.shift == self._shift_of(key, epoch)
            if loaded is not None and not (fits and self._follows(loaded, key[0], before)):
                self._drop(key)
        readers: dict[InstanceId, list[InstanceId]] = {}
        for key in mine:
            shift = self._shift_of(key, epoch)
            for log in {key[1], shift.old if shift is not None and shift.new == key[1] else key[1]}:
                readers.setdefault((key[0], log), []).append(key)
        for (_, log), keys in readers.items():
            if len({self._loaded[key].last[log] if key in self._loaded else "" for key in keys}) > 1:
                for key in keys:
                    self._drop(key)
        wanted: list[m.Stored] = []
        for (unit, log), chain in chains.items():
            held = [key for key in readers.get((unit, log), ()) if key in self._loaded]
            names = [each.name for each in chain]
            wanted += chain[names.index(self._loaded[held[0]].last[log]) + 1 :] if held else chain
        return wanted

    def _shift_of(self, key: InstanceId, epoch: int) -> Shift | None:
        """The shift that changes the key groups of an instance when it is restored from ``epoch``, if one does."""
        for each in self._plan.routes:
            if (each.unit, each.epoch) == (key[0], epoch) and key[1] in (each.old, each.new):
                return msgspec.structs.replace(each, epoch=0)
        return None

    def claim(
        self,
        key: InstanceId,
        snapshots: Sequence[UnitSnapshot],
        epoch: int,
        others: Mapping[InstanceId, Sequence[bytes]],
    ) -> Ahead | None:
        """Take what is loaded of an instance that is built now from ``epoch``; what it lacks is in ``others``."""
        loaded, shift, spec = self._loaded.pop(key, None), self._shift_of(key, epoch), self._plan.units[key[0]]
        if not snapshots or not spec.is_stateful:
            return None
        lent = None
        if shift is not None and shift.new == key[1]:
            lent = [decode_snapshot(packed) for packed in others[key[0], shift.old]]
        if loaded is not None:
            loaded.lent = [each.state for each in lent or () if each.state is not None]
            return loaded
        return Regrouped(spec, shift.groups, lent) if shift is not None else None

    # --- in turns -----------------------------------------------------------------------------------------------------

    def turn(self, now_us: int) -> None:
        """Load, or give back, a little."""
        if (self._asked is None and not self._buried) or now_us < self._due_us:
            return
        self._due_us = now_us + TURN_US
        until_ns = self._clock_ns() + WORK_US * 1000
        while self._pieces and self._clock_ns() < until_ns:
            self._loaded[self._of].apply(self._log, self._pieces.popleft())
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


def _chains(snapshots: Iterable[m.Stored]) -> dict[InstanceId, list[m.Stored]]:
    chains: dict[InstanceId, list[m.Stored]] = {}
    for each in snapshots:
        chains.setdefault((each.unit, each.instance), []).append(each)
    return chains
