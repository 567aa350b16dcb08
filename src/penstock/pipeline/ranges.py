"""Ranges of operations within a unit's chain, as laws want them, messages carry them and ways compute them."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec


class Range(msgspec.Struct, array_like=True, frozen=True):
    """Operations ``first`` to ``last`` of a chain, both included; -1 is the source. Empty where first is larger."""

    first: int
    last: int

    def __bool__(self) -> bool:
        return self.first <= self.last

    def __contains__(self, index: int) -> bool:
        return self.first <= index <= self.last

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1))

    def __len__(self) -> int:
        return max(0, self.last - self.first + 1)


NONE = Range(0, -1)
"""No operation."""
