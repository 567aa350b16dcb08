"""Changes of what computes, as reports show them: switches of form, exchanges of alternatives; and advice."""

from __future__ import annotations

import msgspec

CHANGES_MAX = 10_000
"""Changes that are remembered for reports."""


class ChangeReport(msgspec.Struct, kw_only=True):
    """A switch of form, or of the number of replicas, or an exchange of alternatives.

    ``pause_ms`` is the longest time between the last record out of what computed before and the first out of what
    computes now, over the instances; ``total_ms`` counts from the moment at which it was wanted.
    """

    at_s: float
    operations: list[str]
    to: str
    pause_ms: float = 0.0
    total_ms: float = 0.0
    carried_records: int = 0
    reason: str
    inputs: dict[str, float]
    prepare_ms: float = 0.0
    case: str = ""
    """Of an exchange: how the new alternative stood to the one before when they synchronised."""
    moved_records: int = 0
    """Of an exchange: records under way to the alternative before that went to the new one."""
    warm_ms: float = 0.0
    """How long the new alternative was warmed up."""


class Advice(msgspec.Struct, kw_only=True):
    """What the job would do if the user wanted more than advice: a change, other workers, a shift of key groups."""

    at_s: float
    operations: list[str]
    to: str
    reason: str
    inputs: dict[str, float]
