"""What instances tell of themselves in a `Pulse`: how busy they are, what alternatives cost, what replicas do."""

from __future__ import annotations

import msgspec

from penstock.pipeline.ranges import Range


class AlternativePulse(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """The alternatives of one operation, as an instance sees them."""

    index: int
    active: str
    costs_ns: dict[str, float]
    """What a record costs in each, as far as that is known."""
    failures: dict[str, int]
    """Blocks that each has failed on so far."""
    error: str = ""
    """What the last of these failures was."""
    given_up: str = ""
    """The one that the instance should use, and does not ask first any more, because it has failed."""


class ReplicaPulse(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """What the replicas of a range have done for one instance so far."""

    range: Range
    records_in: int
    """Records dealt out to them."""
    records_out: int
    """Records that they have handled."""
    busy_us: int
    """What those have taken; divided by their number: the execution time."""
    cpu_us: int
    """Processor time of that; the rest was waiting."""
    utilisation: dict[int, float]
    """U of each active replica in the last interval, by its number: what this instance has given it."""
    began_us: dict[int, int] = {}
    """When each of them began its first item since it became active."""


class GroupHeat(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """A key group of an edge, and how many of the samples were of it."""

    group: int
    samples: int
    key: str
    """One of its keys, for people."""


class UnitPulse(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """How busy an instance is."""

    unit: int
    instance: int
    arrived: int
    """Records that have come to it so far, waiting ones included."""
    waiting: int
    blocked_us: int = 0
    """How long it has waited for room in its outputs so far."""
    alternatives: list[AlternativePulse] = []
    replicas: ReplicaPulse | None = None
    """If a range of it is in replicas."""
    busy_us: int = 0
    """How long its operations have taken so far, wherever they ran."""
