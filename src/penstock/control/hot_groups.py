"""Key groups that have more than their share of the records, from samples that workers tell of their shuffles. Pure."""

from __future__ import annotations

import msgspec

from penstock.engine.heat import shares
from penstock.pipeline.plan import Mode, Plan
from penstock.pipeline.routes import NEVER, owner_at_first, routed
from penstock.protocol import messages as m
from penstock.protocol.pulses import GroupHeat

SAMPLES_MIN = 100
HOT_SHARE = 0.75
"""A group is hot when it has so much of what one instance would have if all had the same."""


class HotGroup(msgspec.Struct):
    """A key group with much of an operation's records.

    Attributes
    ----------
    instance : int
        Which one has it, and with it all keys of the group.
    share : float
        Of the operation's records, of late.
    key : str
        One of its keys; where a group is hot, mostly the one that makes it so.
    """

    operation: str
    group: int
    instance: int
    share: float
    key: str

    def __str__(self) -> str:
        has = f"has {self.share:.0%} of the records of {self.operation}"
        return f"key group {self.group} ({self.key}, instance {self.instance}) {has}"


class HotGroups:
    """What workers have told last, by edge."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._told: dict[int, dict[int, tuple[int, list[GroupHeat]]]] = {}

    def on_heartbeat(self, heartbeat: m.Heartbeat) -> None:
        """Take a worker's samples."""
        for each in heartbeat.edges:
            if each.samples:
                self._told.setdefault(each.edge, {})[heartbeat.worker] = each.samples, each.hottest

    def forget(self, worker: int) -> None:
        """A worker has left."""
        for told in self._told.values():
            told.pop(worker, None)

    def shares(self, unit: int) -> dict[int, float]:
        """Share of a unit's records that its hottest key groups have, as far as enough was told."""
        found: dict[int, float] = {}
        for edge in self._plan.inputs(unit):
            told = self._told.get(edge.id, {})
            if sum(each for each, _ in told.values()) >= SAMPLES_MIN:
                # Of several inputs nobody knows which one costs more: a group is as hot as it is in the hottest.
                found |= {group: max(share, found.get(group, 0.0)) for group, (share, _) in shares(told).items()}
        return found

    def found(self) -> list[HotGroup]:
        """Groups that are hot now, the hottest first."""
        hot: list[HotGroup] = []
        for edge in self._plan.edges:
            told, unit = self._told.get(edge.id, {}), self._plan.units[edge.consumer]
            if (
                edge.mode is not Mode.SHUFFLE
                or unit.instances < 2
                or sum(each for each, _ in told.values()) < SAMPLES_MIN
            ):
                continue
            name = unit.display_at(0) if unit.ops else unit.name
            table = routed(self._plan.routes, unit.id, unit.instances, NEVER)
            hot += [
                HotGroup(name, group, table.get(group, owner_at_first(group, unit.instances)), round(share, 3), key)
                for group, (share, key) in shares(told).items()
                if share * unit.instances >= HOT_SHARE
            ]
        return sorted(hot, key=lambda each: -each.share)
