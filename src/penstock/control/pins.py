"""Which operations are pinned to a form, by the user or by the job: what may be, and what is at first."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import InvalidOption, nearest
from penstock.operators import Form
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan, UnitSpec


def checked_operations(plan: Plan, operations: Sequence[str], form: Form | None) -> tuple[str, ...]:
    """Return the operations behind the names that users know, all of which can take the form.

    Raises
    ------
    InvalidOption
        If a name is unknown, an operation cannot take the form, or those in batch form are not next to each other.
    """
    movable = {unit.display_at(index): (unit.id, index) for unit in plan.units for index in unit.movable}
    known = dict.fromkeys(unit.display_at(index) for unit in plan.units for index in _indexes(unit))
    found: list[tuple[int, int]] = []
    for name in operations:
        if name not in known:
            raise InvalidOption(
                option="operation", given=name, allowed=", ".join(known), hint=nearest(name, list(known))
            )
        if name in movable:
            found.append(movable[name])
        elif form is Form.BATCH:
            raise InvalidOption(
                option="form of " + repr(name),
                given=form.value,
                allowed="record: it keeps state, is called in order, or its source cannot be read by several tasks",
            )
    if form is Form.BATCH:
        for unit in {unit for unit, _ in found}:
            indexes = sorted(index for each, index in found if each == unit)
            if indexes != list(range(indexes[0], indexes[-1] + 1)):
                missing = next(i for i in range(indexes[0], indexes[-1]) if i not in indexes)
                raise InvalidOption(
                    option="operations in batch form",
                    given=", ".join(operations),
                    allowed=f"neighbours: '{plan.units[unit].name_at(missing)}' lies between them",
                )
    return tuple(plan.units[unit].name_at(index) for unit, index in found)


def check_pins(plan: Plan) -> None:
    """Refuse pins of the job's options that `checked_operations` refuses."""
    for form in Form:
        checked_operations(plan, [name for name, pinned in plan.options.pins if pinned is form], form)


def _indexes(unit: UnitSpec) -> range:
    return range(-1 if unit.source is not None else 0, len(unit.ops))


def first_pins(plan: Plan) -> dict[str, Form]:
    """Which form every operation is pinned to at the start: what the user has pinned, else what the job's forms say."""
    options: Options = plan.options
    pins: dict[str, Form] = {}
    given = dict(options.pins)
    for unit in plan.units:
        for index in unit.movable:
            name = unit.name_at(index)
            pin = given.get(name, given.get(unit.display_at(index), options.forms.pin))
            if pin is None and index in plan.whole(unit):
                pin = Form.BATCH
            if pin is not None:
                pins[name] = pin
    return pins
