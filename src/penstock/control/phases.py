"""The life of a job: its phases, what it may go on from, and what its scheduler waits for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from penstock.control.events import WantedAlternative
from penstock.pipeline.routes import Shift
from penstock.protocol import messages as m

FIRST_EPOCH_US = 100_000
"""Where first results are to be seen soon, the first epoch begins after so long, and the next after twice that,"""
HASTY_EPOCH_US = 10_000_000
"""if epochs are not longer than this: who wants long ones wants few commits."""


def first_interval_us(epoch_us: int, *, hasty: bool) -> int:
    """After what time the first epoch begins; from there on it doubles, up to what was asked for."""
    return min(FIRST_EPOCH_US, epoch_us) if hasty and epoch_us <= HASTY_EPOCH_US else epoch_us


class Phase(Enum):
    """Where a job is in its life."""

    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    ENDING = "ending"
    ENDED = "ended"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        """Whether the job has come to its end, well or not."""
        return self in (Phase.ENDED, Phase.FAILED)


@dataclass(frozen=True)
class Resumption:
    """What a job goes on from when it is started again: its last commit."""

    epoch: int
    start_us: int
    generation: int
    snapshots: list[m.Stored] = field(default_factory=list)
    alternatives: Mapping[str, WantedAlternative] = field(default_factory=dict)
    """Which alternative each operation was to use."""
    routes: list[Shift] = field(default_factory=list)
    """Key groups that go to another instance than they would at first."""


@dataclass(frozen=True)
class SchedulerView:
    """What a scheduler waits for, to be looked at."""

    phase: Phase
    generation: int
    begun_epoch: int
    committed_epoch: int
    is_recording: bool
    waiting_epoch: frozenset[int]
    waiting_finish: frozenset[int]
    waiting_stop: frozenset[int]
    waiting_rollback: frozenset[int]
