"""The nodes of a pipeline under construction; the builder in `stream` makes them and settles their names at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from penstock.connectors.base import Sink, Source
from penstock.errors import InvalidOption, TypeMismatch
from penstock.expr import Column, col
from penstock.operators import ErrorPolicy, Operation
from penstock.pipeline.graph import Input, Node

_fresh = count(1)


@dataclass(frozen=True)
class Step:
    """A node under construction: its inputs are steps, and a name that was not chosen by the user may change."""

    node: Node
    inputs: tuple[Step, ...]
    named: bool
    serial: int


def make_step(
    body: Source | Operation | Sink | None,
    inputs: tuple[tuple[Step, Input], ...],
    name: str | None,
    default: str,
    on_error: str = "fail",
) -> Step:
    """Make one step; ``default`` is its name where the user gives none."""
    label = name if name is not None else default
    if not isinstance(label, str) or not label.strip() or len(label) > 100 or "/" in label:
        raise InvalidOption(option="name", given=label, allowed="1 to 100 characters without '/'")
    policy = ErrorPolicy.parse(on_error, label)
    node = Node(label, body, tuple(edge for _, edge in inputs), policy)
    return Step(node, tuple(step for step, _ in inputs), name is not None, next(_fresh))


def settle(sinks: tuple[Step, ...]) -> list[Node]:
    """Collect all steps below the sinks and settle the names nobody chose: filter, filter-2, filter-3 …"""
    steps: dict[int, Step] = {}

    def visit(step: Step) -> None:
        if step.serial not in steps:
            for upstream in step.inputs:
                visit(upstream)
            steps[step.serial] = step

    for sink in sinks:
        visit(sink)
    ordered = [steps[serial] for serial in sorted(steps)]
    taken = {step.node.name for step in ordered if step.named}
    names: dict[int, str] = {}
    for step in ordered:
        name = step.node.name
        if not step.named:
            base, n = name, 1
            while name in taken:
                n += 1
                name = f"{base}-{n}"
            taken.add(name)
        names[step.serial] = name
    return [
        replace(
            step.node,
            name=names[step.serial],
            inputs=tuple(
                replace(edge, node=names[up.serial]) for edge, up in zip(step.node.inputs, step.inputs, strict=True)
            ),
        )
        for step in ordered
    ]


def named_columns(columns: Sequence[str | Column], named: Mapping[str, Any], operation: str) -> tuple[Column, ...]:
    """The columns that `select` or `with_columns` is given, named ones last."""

    def column(value: object) -> Column:
        if isinstance(value, Column):
            return value
        if not isinstance(value, str):
            raise TypeMismatch(
                what=f"{value!r} is not a column.", operation=operation, hint="Write ps.lit(…) for a constant."
            )
        return col(value)

    return (*map(column, columns), *(column(value).alias(name) for name, value in named.items()))
