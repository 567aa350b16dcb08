"""How key groups go from one instance to another while a job runs, one shift at a time; `control/rescaling.py` asks.

A hot instance cannot be cut, but some of its key groups can go elsewhere. Unit, both instances and groups are a *shift*
(`pipeline/routes.py`). It takes effect behind an epoch marker, n, of which every step can be lost:

==========  =====================================  ===========================================  ==========
shift       event                                  commands                                     next
==========  =====================================  ===========================================  ==========
none        one is wanted                          Prepare(commit m) to the owners of both      PREPARING
                                                   instances
PREPARING   Prepared from both, m is not the       Prepare(the last commit): what is missing,   PREPARING
            last commit                            a few times
PREPARING   Prepared, no epoch is under way        BeginShift(n) to all                         ROUTING
ROUTING     Holding(n) from everyone               the shift is among the routes;               MARKED
                                                   BeginEpoch(n) to all
MARKED      CommitRecorded(n), with the shift      Commit(n), Rollback(n) of both instances     MOVING
MOVING      RolledBack from everyone               Resume to all                                none
before      a worker is lost, or joins or leaves   a recovery without the shift: nobody has     none
MARKED                                             dealt out by it
MARKED      a worker is lost                       a recovery with it; BeginEpoch(n) again;     MARKED
                                                   who holds behind the marker still does
MOVING      a worker is lost                       a recovery of the loss, both instances and   MOVING
                                                   what is behind them
any         the driver is lost before the commit   the next one begins without the shift        none
any         the driver is lost after the commit    the next one restores both instances by it   none
==========  =====================================  ===========================================  ==========

Once the marker is on its way the shift stands: producers that have passed it have dealt records out anew, and their
logs keep those. So it is told with every recovery, and each producer follows it behind the marker whenever it gets
there. Both instances take nothing behind the marker. When epoch n is committed they are built anew from its snapshots:
the old instance without the groups, the new one with them; this is also how each of them is restored from epoch n
later. The snapshots of the next epoch no longer need that: the old instance names the groups' entries as removed there,
the new one writes them. Records of a key keep their order: whoever reads both instances aligns at the marker. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from penstock.control.recovery import InstanceId
from penstock.operators.keys import KEY_GROUPS
from penstock.pipeline.plan import Mode, Plan
from penstock.pipeline.routes import NEVER, Shift, owner_at_first, routed, settled
from penstock.protocol import messages as m

ROUNDS_MAX = 3
"""So often the owners load what was written while they loaded."""
SHIFTS_MAX = 10_000
"""Shifts that are remembered for reports."""


class ShiftReport(msgspec.Struct):
    """Key groups that have gone from one instance to another, as reports show it.

    Attributes
    ----------
    pause_ms : float
        From the marker, in the first of both instances, until they went on: no record of theirs waited for longer. What
        was queued before the marker was worked off until then.
    total_ms : float
        From the decision on; while their state was loaded ahead, they worked.
    """

    at_s: float
    operation: str
    old: int
    new: int
    groups: int
    pause_ms: float
    total_ms: float
    loaded_bytes: int
    reason: str

    def __str__(self) -> str:
        groups = f"{self.groups} key group{'s' * (self.groups != 1)} of {self.operation}"
        return f"{groups} have gone from instance {self.old} to {self.new}, pause {self.pause_ms:.0f} ms"


class Stage(Enum):
    """How far a shift has come."""

    PREPARING = "loads its state"
    ROUTING = "tells everyone"
    MARKED = "waits for the commit"
    MOVING = "arrives"


@dataclass(slots=True)
class Shifted:
    """A shift under way."""

    number: int
    shift: Shift
    reason: str
    began_us: int
    stage: Stage = Stage.PREPARING
    rounds: int = 0
    asked_epoch: int = 0
    prepared: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By worker: the commit that it has loaded, and how many bytes."""
    confirmed: set[int] = field(default_factory=set)
    marked_us: int = 0
    stopped_us: int | None = None
    """When the first of both instances stopped, if that is known."""


class Shifting:
    """The shifts of a job: what is wanted, what is under way, what has been."""

    def __init__(self, plan: Plan) -> None:
        self.now: Shifted | None = None
        self.wanted: tuple[Shift, str] | None = None
        """What comes next, and why; its epoch is not known yet."""
        self.reports: list[ShiftReport] = []
        self._plan = plan

    def can(self, unit: int) -> bool:
        """Whether key groups of a unit can go elsewhere.

        Not where it reads others than by key, nor where alternatives have states, of which its instances may use
        different ones for a while.
        """
        spec, inputs = self._plan.units[unit], self._plan.inputs(unit)
        by_key = bool(inputs) and all(each.mode is Mode.SHUFFLE for each in inputs)
        return by_key and spec.instances > 1 and (not spec.ops or spec.ops[0].operation.can_shift)

    def owned(self, unit: int, instance: int) -> list[int]:
        """The key groups of an instance."""
        count = self._plan.units[unit].instances
        table = routed(self._plan.routes, unit, count, NEVER)
        return [g for g in range(KEY_GROUPS) if table.get(g, owner_at_first(g, count)) == instance]

    def want(self, unit: int, old: int, new: int, groups: Collection[int], reason: str) -> bool:
        """Have key groups go from one instance to another as soon as can be; say whether they will."""
        if self.now is not None or not self.can(unit) or old == new:
            return False
        found = sorted(set(groups) & set(self.owned(unit, old)))
        if found:
            self.wanted = Shift(unit=unit, old=old, new=new, groups=found, epoch=0), reason
        return bool(found)

    @property
    def is_busy(self) -> bool:
        """Whether no epoch may begin: everyone is being told of what comes behind its marker."""
        return self.now is not None and self.now.stage is Stage.ROUTING

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way or wanted."""
        return self.now is None and self.wanted is None

    def instances(self) -> set[InstanceId]:
        """What is built anew, if the shift is committed and not everyone has confirmed it."""
        if self.now is None or self.now.stage is not Stage.MOVING:
            return set()
        return _both(self.now.shift)

    def lenders(self, instances: Collection[InstanceId], epoch: int) -> set[InstanceId]:
        """Instances whose snapshots are needed to restore others from ``epoch``."""
        fresh = [each for each in self._plan.routes if each.epoch == epoch]
        return {(each.unit, each.old) for each in fresh if (each.unit, each.new) in instances}

    # --- a shift ------------------------------------------------------------------------------------------------------

    def begin(
        self, number: int, committed: int, stored: Mapping[InstanceId, list[m.Stored]], now_us: int
    ) -> list[tuple[int, m.Prepare | m.BeginShift]]:
        """Take up what is wanted, if anything is."""
        if self.wanted is None:
            return []
        (shift, reason), self.wanted = self.wanted, None
        self.now = now = Shifted(number, shift, reason, now_us)
        return self._prepare(now, committed, stored)

    def _prepare(
        self, now: Shifted, committed: int, stored: Mapping[InstanceId, list[m.Stored]]
    ) -> list[tuple[int, m.Prepare | m.BeginShift]]:
        shift, orders = now.shift, []
        now.asked_epoch = committed
        for worker in sorted(self._owners(shift)):
            mine = {key for key in _both(shift) if self._plan.worker_of(key[1]) == worker}
            mine |= {(shift.unit, shift.old)}  # whoever has the new instance reads the old one's state too
            snapshots = [each for key in sorted(mine) for each in stored.get(key, ())]
            orders.append((worker, m.Prepare(move=now.number, epoch=committed, snapshots=snapshots, shift=shift)))
        return list(orders)

    def _owners(self, shift: Shift) -> set[int]:
        return {self._plan.worker_of(shift.old), self._plan.worker_of(shift.new)}

    def advance(
        self, committed: int, pending: bool, stored: Mapping[InstanceId, list[m.Stored]]
    ) -> list[tuple[int, m.Prepare | m.BeginShift]]:
        """Take the next step, as far as it can be taken now; the parameters are those of `Rescaling.advance`."""
        now = self.now
        if now is None or now.stage is not Stage.PREPARING:
            return []
        loaded = [now.prepared.get(worker, (-1, 0))[0] for worker in self._owners(now.shift)]
        if min(loaded) < now.asked_epoch:
            return []
        if now.asked_epoch < committed and now.rounds < ROUNDS_MAX:
            now.rounds += 1
            return self._prepare(now, committed, stored)
        if pending:
            return []
        now.stage, now.shift = Stage.ROUTING, msgspec.structs.replace(now.shift, epoch=committed + 1)
        return [
            (worker, m.BeginShift(move=now.number, shift=now.shift)) for worker in sorted(set(self._plan.placement))
        ]

    def on_prepared(self, message: m.Prepared) -> None:
        """An owner has loaded what it was told to."""
        if self.now is not None and self.now.number == message.move:
            self.now.prepared[message.worker] = message.epoch, message.loaded_bytes

    def on_holding(self, message: m.Holding, now_us: int) -> bool:
        """Somebody will deal out by the shift: say whether the marker can be sent now."""
        now = self.now
        told = (message.move, message.epoch)
        if now is None or now.stage is not Stage.ROUTING or (now.number, now.shift.epoch) != told:
            return False
        now.confirmed.add(message.worker)
        if not now.confirmed.issuperset(self._plan.placement):
            return False
        now.stage, now.marked_us = Stage.MARKED, now_us
        self._plan.routes.append(now.shift)
        return True

    def recorded(self, epoch: int, committed: int) -> list[Shift]:
        """What the commit record of ``epoch`` says about routes; one that nobody has come to is no part of it."""
        return [each for each in self._plan.routes if each.epoch <= committed or each.epoch == epoch]

    def on_committed(self, epoch: int) -> bool:
        """An epoch is committed: say whether key groups change hands with it."""
        counts = {unit.id: unit.instances for unit in self._plan.units}
        self._plan.routes[:] = settled(self._plan.routes, counts, epoch)
        now = self.now
        if now is None or now.stage is not Stage.MARKED or now.shift.epoch != epoch:
            return False
        now.stage = Stage.MOVING
        return True

    def on_recovery(self) -> None:
        """Everyone rolls back: a shift that nobody has dealt out by is given up."""
        self.wanted = None
        if self.now is not None and self.now.stage in (Stage.PREPARING, Stage.ROUTING):
            self.now = None

    def on_rolled_back(self, worker: int, held_us: int, now_us: int) -> None:
        """A worker has built anew what had held for a while."""
        now = self.now
        if now is not None and now.stage is Stage.MOVING and held_us and worker in self._owners(now.shift):
            stopped_us = now_us - held_us
            now.stopped_us = stopped_us if now.stopped_us is None else min(stopped_us, now.stopped_us)

    def on_resumed(self, began_us: int, now_us: int) -> None:
        """Everyone goes on; the sources began to read at ``began_us``."""
        now = self.now
        if now is None or now.stage is not Stage.MOVING:
            return
        self.now = None
        unit = self._plan.units[now.shift.unit]
        self.reports.append(
            ShiftReport(
                at_s=(now_us - began_us) / 1e6,
                operation=unit.display_at(0) if unit.ops else unit.name,
                old=now.shift.old,
                new=now.shift.new,
                groups=len(now.shift.groups),
                pause_ms=(now_us - (now.marked_us if now.stopped_us is None else now.stopped_us)) / 1000,
                total_ms=(now_us - now.began_us) / 1000,
                loaded_bytes=sum(size_bytes for _, size_bytes in now.prepared.values()),
                reason=now.reason,
            )
        )
        del self.reports[:-SHIFTS_MAX]


def _both(shift: Shift) -> set[InstanceId]:
    return {(shift.unit, shift.old), (shift.unit, shift.new)}
