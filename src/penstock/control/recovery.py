"""Which instances a loss concerns, and from which snapshots they are restored; the scheduler asks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.errors import ProtocolError
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m

InstanceId = tuple[int, int]


def hosted(plan: Plan, worker: int) -> set[InstanceId]:
    """Instances that live on a worker."""
    return {(unit.id, instance) for unit, instance in plan.instances(worker)}


def everything(plan: Plan) -> set[InstanceId]:
    """All instances of a job."""
    return {(unit.id, i) for unit in plan.units for i in range(unit.instances)}


def downstream(plan: Plan, lost: Iterable[InstanceId]) -> set[InstanceId]:
    """The lost instances and everything that has read their output, directly or not."""
    reached: set[InstanceId] = set()
    todo = list(lost)
    while todo:
        key = todo.pop()
        if key in reached:
            continue
        reached.add(key)
        unit, instance = key
        for edge in plan.outputs(unit):
            todo += [(edge.consumer, consumer) for consumer in edge.consumers(plan, instance)]
    return reached


class SnapshotChains:
    """The snapshots of the last commit: for each instance the newest, and as many before it as that needs."""

    def __init__(self, chains: Iterable[m.Stored] = ()) -> None:
        self._chains: dict[InstanceId, list[m.Stored]] = {}
        self.add(chains)

    def add(self, stored: Iterable[m.Stored]) -> None:
        """Take in the snapshots of a newly committed epoch."""
        for each in sorted(stored, key=lambda s: s.epoch):
            chain = self._chains.setdefault((each.unit, each.instance), [])
            if chain and chain[-1].epoch >= each.epoch:
                continue
            del chain[: max(0, len(chain) - each.depth)]
            chain.append(each)

    def of(self, instances: Iterable[InstanceId]) -> list[m.Stored]:
        """Snapshots of these instances, each instance's in order."""
        found = []
        for key in sorted(instances):
            chain = self._chains.get(key, [])
            if chain and chain[-1].depth != len(chain) - 1:
                newest = chain[-1]
                raise ProtocolError(f"snapshot {newest.name} needs {newest.depth} before it, not {len(chain) - 1}.")
            found += chain
        return found

    @property
    def by_instance(self) -> Mapping[InstanceId, list[m.Stored]]:
        """The chain of each instance."""
        return self._chains

    def all(self) -> list[m.Stored]:
        """Snapshots that the last commit needs."""
        return self.of(self._chains)
