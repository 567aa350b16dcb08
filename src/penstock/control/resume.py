"""Whether a pipeline can go on from another run's checkpoint: what held state or offsets is matched by name. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from penstock.connectors.base import Position, Sink
from penstock.engine.snapshot import UnitSnapshot
from penstock.errors import CheckpointMismatch, PenstockError
from penstock.pipeline.plan import Plan
from penstock.pipeline.routes import Shift
from penstock.protocol import messages as m


def check_name(before: str, now: str, place: str) -> None:
    """Refuse a checkpoint of a job that has another name."""
    if before != now:
        raise CheckpointMismatch(
            f"the checkpoint in '{place}' is of job '{before}', and this is job '{now}'.",
            hint=f"Give name='{before}' to go on with that job, or a checkpoint directory of its own to this one.",
        )


def check_renamed(before: Mapping[str, dict[str, object]], now: Mapping[str, Sink]) -> None:
    """Refuse a sink under a new name where one that is gone has written: what that one prepared would be lost.

    Parameters
    ----------
    before : mapping
        State of each sink of the run before, with its kind.
    """
    for old, state in before.items():
        if old in now:
            continue
        for new, sink in now.items():
            if new not in before and sink.kind == state["kind"] and sink.writes_where(state):
                raise CheckpointMismatch(
                    f"it writes where sink '{old}' did, which is gone.",
                    operation=new,
                    hint=f"Keep the name, .to(…, name='{old}'), or give the new sink a place of its own.",
                )


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
    sources: list[str] = []
    """What it is made of: names of the sources upstream."""


def anchors(plan: Plan) -> list[Anchor]:
    """What a checkpoint of this plan depends on."""
    found = []
    for unit in plan.units:
        fed = sorted(_sources(plan, unit.id))
        if unit.source is not None:
            signature = unit.source.signature(unit.partitions)
            found.append(Anchor(unit.name, unit.id, unit.instances, signature, True, False, fed))
        for spec in unit.ops:
            if spec.operation.state_signature is not None:
                signature = f"{spec.operation.state_signature} → ({spec.output.ddl})"
                found.append(Anchor(spec.name, unit.id, unit.instances, signature, False, False, fed))
            elif spec.sink is not None and not any(anchor.unit == unit.id for anchor in found):
                # Its last output may be prepared, committed, and not visible yet.
                found.append(Anchor(spec.name, unit.id, unit.instances, spec.operation.kind, True, True, fed))
    return found


def _sources(plan: Plan, unit: int) -> set[str]:
    """Names of the sources that a unit's records come from."""
    if plan.units[unit].source is not None:
        return {plan.units[unit].name}
    return {name for edge in plan.inputs(unit) for name in _sources(plan, edge.producer)}


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


def carried(stored: Iterable[Output], units: dict[int, int], plan: Plan) -> list[tuple[Output, Sink]]:
    """Return the sinks of the last run whose prepared output no instance of this plan would find.

    They are in another unit than before, or in a unit of another number of instances, or their schema has changed. One
    that is of another kind was refused when it was planned, and one that is gone is not wanted any more.

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
        stays = units.get(old.unit) == new.unit and (old.instances, old.schema) == (new.instances, new.schema)
        if not stays:
            found.append((old, sinks[old.name]))
    return found


def match(stored: Iterable[Anchor], plan: Plan, place: str) -> dict[int, int]:
    """Return which unit of the plan each stored unit has become, or raise CheckpointMismatch naming the difference."""
    stored = list(stored)
    present = {anchor.name: anchor for anchor in anchors(plan)}
    known = {anchor.name for anchor in stored}
    units: dict[int, int] = {}
    problems = []
    for old in stored:
        new = present.get(old.name)
        if new is None:
            like = [each for each in present.values() if each.signature == old.signature and each.name not in known]
            if not old.may_go:
                problems.append(f"operation '{old.name}' held state and is gone")
            elif like and not old.is_sink:
                # It would be read from its beginning again.
                problems.append(f"source '{old.name}' is gone, and '{like[0].name}' is new and like it")
        elif old.is_sink and (new.signature, new.instances) != (old.signature, old.instances):
            pass  # nothing but its prepared output is at stake, which `carried` sees to
        elif not old.may_go and not set(new.sources) & set(old.sources):
            was, now = ("', '".join(each.sources) for each in (old, new))
            problems.append(f"'{old.name}' was made of '{was}', now of '{now}'")
        elif new.signature != old.signature and not _takes_state(plan, new, old):
            problems.append(f"'{old.name}' was {old.signature}, now {new.signature}")
        else:
            units[old.unit] = new.unit
    if problems:
        raise CheckpointMismatch(
            f"the checkpoint in '{place}' does not fit this pipeline: {'; '.join(problems)}.",
            hint="Run the pipeline as it was, with the same names and as many partitions of each source, "
            "or give it a checkpoint directory of its own.",
        )
    return units


def _takes_state(plan: Plan, new: Anchor, old: Anchor) -> bool:
    """Whether an operation with state can go on with that of an operation that differs from it."""
    (spec,) = (op for op in plan.units[new.unit].ops if op.name == new.name) if not new.may_go else (None,)
    if spec is None:
        return False
    before, _, output = old.signature.rpartition(" → ")
    return output == f"({spec.output.ddl})" and spec.operation.takes_state_of(before)


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


def dealt_anew(stored: Iterable[Anchor], units: dict[int, int], plan: Plan) -> list[int]:
    """Return the units of a plan that have another number of instances than what they were, and keep something."""
    return sorted(
        {
            units[old.unit]
            for old in stored
            if old.unit in units and plan.units[units[old.unit]].instances != old.instances
        }
    )


def moved_shifts(routes: Iterable[Shift], units: Mapping[int, int], anew: Collection[int]) -> list[Shift]:
    """Give shifts the unit ids of the new plan, and leave out those of units that are gone or dealt out ``anew``."""
    kept = [(each, units[each.unit]) for each in routes if each.unit in units]
    return [msgspec.structs.replace(each, unit=unit) for each, unit in kept if unit not in anew]


def moved(snapshots: Iterable[m.Stored], units: dict[int, int]) -> list[m.Stored]:
    """Give snapshots the unit ids of the new plan, and leave out those of units that are gone."""
    return [msgspec.structs.replace(each, unit=units[each.unit]) for each in snapshots if each.unit in units]
