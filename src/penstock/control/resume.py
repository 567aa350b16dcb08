"""Whether a pipeline can go on from another run's checkpoint: what held state or offsets is matched by name. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from penstock.connectors.base import RESUME_ONCE, Position, Sink
from penstock.engine.snapshot import UnitSnapshot
from penstock.errors import CheckpointMismatch, PenstockError
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m


class Anchor(msgspec.Struct, frozen=True):
    """What a checkpoint is about: a source, a stateful operation, or a sink in a unit of its own.

    Other operations may come and go.
    """

    name: str
    unit: int
    instances: int
    signature: str
    may_go: bool
    """Whether a pipeline without it can be resumed: a source or a sink that nobody wants any more."""
    is_sink: bool = False


def anchors(plan: Plan) -> list[Anchor]:
    """What a checkpoint of this plan depends on."""
    found = []
    for unit in plan.units:
        if unit.source is not None:
            signature = f"{unit.source.kind} of {unit.partitions} partitions ({unit.source.schema.ddl})"
            found.append(Anchor(unit.name, unit.id, unit.instances, signature, True))
        for spec in unit.ops:
            if spec.operation.state_signature is not None:
                signature = f"{spec.operation.state_signature} → ({spec.output.ddl})"
                found.append(Anchor(spec.name, unit.id, unit.instances, signature, False))
            elif spec.sink is not None and not any(anchor.unit == unit.id for anchor in found):
                # Its last output may be prepared, committed, and not visible yet.
                found.append(Anchor(spec.name, unit.id, unit.instances, spec.operation.kind, True, True))
    return found


class Output(msgspec.Struct, frozen=True):
    """A sink and where it was: what it had prepared at the last commit may not be published yet."""

    name: str
    kind: str
    schema: str
    unit: int
    instances: int


def outputs(plan: Plan) -> list[Output]:
    """Every sink of a plan."""
    return [
        Output(spec.name, spec.operation.kind, spec.schema.ddl, unit.id, unit.instances)
        for unit in plan.units
        for spec in unit.ops
        if spec.sink is not None
    ]


def carried(stored: Iterable[Output], units: dict[int, int], plan: Plan, place: str) -> list[tuple[Output, Sink]]:
    """Return the sinks of the last run whose prepared output no instance of this plan would find.

    They are in another unit than before, or in a unit of another number of instances, or their schema has changed. A
    sink that is of another kind is refused: it cannot publish what the other one has prepared. One that is gone is not
    wanted any more.

    Parameters
    ----------
    units : dict
        Which unit of the plan each stored unit has become.
    """
    sinks = plan.sinks
    present = {output.name: output for output in outputs(plan)}
    found = []
    for old in stored:
        new = present.get(old.name)
        if new is None:
            continue
        if new.kind != old.kind:
            raise CheckpointMismatch(
                f"the checkpoint in '{place}' does not fit this pipeline: sink '{old.name}' was {old.kind}, now "
                f"{new.kind}, and what it had prepared at the last commit may not be published yet.",
                operation=old.name,
                hint=RESUME_ONCE,
            )
        stays = units.get(old.unit) == new.unit and (old.instances, old.schema) == (new.instances, new.schema)
        if not stays:
            found.append((old, sinks[old.name]))
    return found


def match(stored: Iterable[Anchor], plan: Plan, place: str) -> dict[int, int]:
    """Return which unit of the plan each stored unit has become, or raise CheckpointMismatch naming the difference."""
    present = {anchor.name: anchor for anchor in anchors(plan)}
    units: dict[int, int] = {}
    problems = []
    for old in stored:
        new = present.get(old.name)
        if new is None:
            if not old.may_go:
                problems.append(f"operation '{old.name}' held state and is gone")
        elif old.is_sink and (new.signature, new.instances) != (old.signature, old.instances):
            pass  # nothing but its prepared output is at stake, which `carried` sees to
        elif new.signature != old.signature:
            problems.append(f"'{old.name}' was {old.signature}, now {new.signature}")
        elif new.instances != old.instances:
            problems.append(f"'{old.name}' had {old.instances} instances, now {new.instances}")
        else:
            units[old.unit] = new.unit
    if problems:
        raise CheckpointMismatch(
            f"the checkpoint in '{place}' does not fit this pipeline: {'; '.join(problems)}.",
            hint="Run the pipeline as it was, with the same parallelism, or give it a checkpoint directory of its own.",
        )
    return units


def take_up_sources(plan: Plan, snapshots: Iterable[tuple[int, UnitSnapshot]]) -> None:
    """Let the sources of a plan know where the last run has left them; ``snapshots`` are the newest, by unit."""
    positions: dict[int, dict[int, Position]] = {}
    for unit, snapshot in snapshots:
        positions.setdefault(unit, {}).update(snapshot.positions)
    for spec in plan.units:
        if spec.source is not None and spec.id in positions:
            try:
                spec.source = spec.source.resumed(positions[spec.id])
            except PenstockError as error:
                raise error.at(spec.name) from None


def moved(snapshots: Iterable[m.Stored], units: dict[int, int]) -> list[m.Stored]:
    """Give snapshots the unit ids of the new plan, and leave out those of units that are gone."""
    return [msgspec.structs.replace(each, unit=units[each.unit]) for each in snapshots if each.unit in units]
