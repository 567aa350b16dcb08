"""What the instances of a unit go on from when there are more or fewer of them than before. Pure.

Key groups go to whoever owns them now, source partitions likewise, with how far their event time had come. What the
instances have counted goes to the first one, so that a report counts it once. Outputs that sinks had prepared are
published before (`runtime/restart.py`), and no block is under way at a marker.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.engine.snapshot import LaneState, OpCounters, UnitSnapshot
from penstock.engine.stage import Stage
from penstock.engine.state.copier import StateSnapshot, restore_state
from penstock.operators import StatefulOperator
from penstock.operators.keys import owned_groups
from penstock.pipeline.plan import UnitSpec


def dealt(spec: UnitSpec, chains: Sequence[Sequence[UnitSnapshot]]) -> list[UnitSnapshot]:
    """Return the snapshots of the instances of a unit; ``chains`` are those of the instances that were.

    Parameters
    ----------
    spec : UnitSpec
        The unit as it is now.
    chains : sequence of sequences of UnitSnapshot
        Of each instance that was the newest snapshot, and those before it that it needs.
    """
    newest = [chain[-1] for chain in chains]
    positions = {partition: position for each in newest for partition, position in each.positions.items()}
    if spec.source is not None and len(positions) != spec.partitions:
        positions = spec.source.redealt(positions, spec.partitions)
    counted = _summed(each.operations for each in newest)
    return [
        UnitSnapshot(
            epoch=max(each.epoch for each in newest),
            depth=0,
            finished=False,
            next_id=0,
            inputs=[],
            written=[],
            positions={p: at for p, at in positions.items() if p % spec.instances == instance},
            operations=counted if not instance else [OpCounters(name=each.name) for each in counted],
            sinks={},
            state=_state(spec, instance, chains) if spec.is_stateful else None,
            lanes=_lanes(spec, newest),
        )
        for instance in range(spec.instances)
    ]


def _state(spec: UnitSpec, instance: int, chains: Sequence[Sequence[UnitSnapshot]]) -> StateSnapshot:
    operator = Stage.of(spec.ops[0]).operator
    assert isinstance(operator, StatefulOperator)
    logs = [[each.state for each in chain if each.state is not None] for chain in chains]
    restore_state(operator, *logs, owned=owned_groups(instance, spec.instances))
    return StateSnapshot(operator.header(), [operator.state.whole()])


def _summed(counters: Iterable[Sequence[OpCounters]]) -> list[OpCounters]:
    summed: dict[str, OpCounters] = {}
    for each in (one for instance in counters for one in instance):
        total = summed.setdefault(each.name, OpCounters(name=each.name))
        total.records_in += each.records_in
        total.records_out += each.records_out
        total.late += each.late
        total.skipped += each.skipped
        total.retried += each.retried
        total.dead_letters += each.dead_letters
        total.timed_out += each.timed_out
        total.over_bound += each.over_bound
    return list(summed.values())


def _lanes(spec: UnitSpec, newest: Sequence[UnitSnapshot]) -> list[LaneState]:
    """The lanes of source partitions, by the numbers that they have now; other lanes begin anew."""
    lanes = [lane for each in newest for lane in each.lanes]
    if spec.source is None or len(lanes) != spec.partitions:
        return []
    first = min(lane.lane for lane in lanes)
    return [LaneState(input=lane.input, lane=lane.lane - first + spec.lane, newest_us=lane.newest_us) for lane in lanes]
