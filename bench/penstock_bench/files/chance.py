"""Chance that any engine can repeat: draws made from a message's id by a polynomial, for `build` and `exact`.

Only ``+``, ``*`` and ``%`` on 64-bit whole numbers are needed, and nothing overflows: the same formula is a Penstock
expression, a SQL expression and three operations of NumPy.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TypeVar

PRIME = (1 << 31) - 1
"""Ids and draws are whole numbers from 0 up to, not including, this one."""

X = TypeVar("X")


def numbers(seed: int, label: str, count: int) -> list[int]:
    """Return ``count`` fixed numbers below the prime: 32-bit words of SHA-256 of ``seed/label``, at most eight."""
    digest = hashlib.sha256(f"{seed}/{label}".encode()).digest()
    return [int.from_bytes(digest[4 * i : 4 * i + 4], "little") % PRIME for i in range(count)]


@dataclass(frozen=True, slots=True)
class Chance:
    """Draws of one transformation: ``((a·id + b) mod P · id + c) mod P``, evenly spread below P.

    With fixed numbers for each transformation, its draws tell nothing about those of another.
    """

    a: int
    b: int
    c: int

    @staticmethod
    def of(seed: int, name: str) -> Chance:
        """Return the draws of the transformation ``name``."""
        a, b, c = numbers(seed, name, 3)
        return Chance(a or 1, b, c)

    def draw(self, id: X) -> X:
        """Draw for an id: an int, an array of int64 or a column."""
        return ((self.a * id + self.b) % PRIME * id + self.c) % PRIME  # type: ignore[operator, return-value]


def limit(probability: float) -> int:
    """Return below what a draw must be for something that has this probability."""
    return round(probability * PRIME)


@dataclass(frozen=True, slots=True)
class Relabel:
    """New ids for copies, so that what happens to one is not what happens to the other: ``(a·id + b) mod P``."""

    a: int
    b: int

    @staticmethod
    def of(seed: int, name: str, copy: int) -> Relabel:
        """Return how the ids of a copy are made; copy 0 keeps those that it has."""
        if copy == 0:
            return Relabel(1, 0)
        a, b = numbers(seed, f"{name}#{copy}", 2)
        return Relabel(a or 1, b)

    def id(self, id: X) -> X:
        """Return the copy's id."""
        return (self.a * id + self.b) % PRIME  # type: ignore[operator, return-value]


@dataclass(frozen=True, slots=True)
class Combined:
    """Ids of what is made from two numbers, a pair of messages or a window: ``((a·x) mod P + b·y + c) mod P``."""

    a: int
    b: int
    c: int

    @staticmethod
    def of(seed: int, name: str) -> Combined:
        """Return how the transformation ``name`` makes ids."""
        a, b, c = numbers(seed, f"{name}#id", 3)
        return Combined(a or 1, b or 1, c)

    def id(self, x: X, y: X) -> X:
        """Return the id of a result."""
        return (self.a * x % PRIME + self.b * y + self.c) % PRIME  # type: ignore[operator, return-value]
