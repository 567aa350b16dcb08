"""A node of an expression whose type is known: what inference makes, and what both compilers read."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.expr.column import Op
from penstock.types import DataType


@dataclass(frozen=True, slots=True)
class Typed:
    """A node whose type is known; literals hold the value as records hold it, calls hold their `Function`."""

    op: Op
    type: DataType
    nullable: bool
    args: tuple[Typed, ...] = ()
    payload: object = None

    @property
    def is_literal(self) -> bool:
        """Whether the value is known now."""
        return self.op is Op.LITERAL
