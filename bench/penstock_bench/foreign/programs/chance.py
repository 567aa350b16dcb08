"""Chance that any engine can repeat: ids and draws made from ids, of whole numbers, arrays of them and columns alike.

Only ``+``, ``*`` and ``%`` on 64-bit whole numbers are needed, and nothing overflows: the same formula is a Penstock
expression, a SQL expression and three operations of NumPy. The numbers are those of a step's specification.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

PRIME = (1 << 31) - 1  # ids and draws are whole numbers from 0 up to, not including, this one
X = TypeVar("X")


def draw(numbers: Sequence[int], id: X) -> X:
    """Draw for an id: ``((a·id + b) mod P · id + c) mod P``, evenly spread below P."""
    a, b, c = numbers
    return ((a * id + b) % PRIME * id + c) % PRIME  # type: ignore[operator, return-value]


def relabel(numbers: Sequence[int], id: X) -> X:
    """New id of a copy, so that what happens to one is not what happens to the other: ``(a·id + b) mod P``."""
    a, b = numbers
    return (a * id + b) % PRIME  # type: ignore[operator, return-value]


def combine(numbers: Sequence[int], x: X, y: X) -> X:
    """Id of what is made from two numbers, a pair of messages or a window: ``((a·x) mod P + b·y + c) mod P``."""
    a, b, c = numbers
    return (a * x % PRIME + b * y + c) % PRIME  # type: ignore[operator, return-value]
