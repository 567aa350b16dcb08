"""The numbers of `foreign/programs/chance.py` for each transformation: fixed, so that every engine draws the same."""

from __future__ import annotations

import hashlib

from penstock_bench.foreign.programs.chance import PRIME


def numbers(seed: int, label: str, count: int) -> list[int]:
    """Return ``count`` fixed numbers below the prime: 32-bit words of SHA-256 of ``seed/label``, at most eight."""
    digest = hashlib.sha256(f"{seed}/{label}".encode()).digest()
    return [int.from_bytes(digest[4 * i : 4 * i + 4], "little") % PRIME for i in range(count)]


def drawing(seed: int, name: str) -> list[int]:
    """The numbers of a transformation's draws: they tell nothing about those of another."""
    a, b, c = numbers(seed, name, 3)
    return [a or 1, b, c]


def limit(probability: float) -> int:
    """Return below what a draw must be for something that has this probability."""
    return round(probability * PRIME)


def relabelling(seed: int, name: str, copy: int) -> list[int]:
    """The numbers of a copy's ids; copy 0 keeps those that it has."""
    if copy == 0:
        return [1, 0]
    a, b = numbers(seed, f"{name}#{copy}", 2)
    return [a or 1, b]


def combining(seed: int, name: str) -> list[int]:
    """The numbers of the ids of what a transformation makes from two messages, or from a window."""
    a, b, c = numbers(seed, f"{name}#id", 3)
    return [a or 1, b or 1, c]
