"""What the central scheduler hears and what it orders: events in, commands out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.errors import PenstockError
from penstock.operators import Form
from penstock.pipeline.ranges import Range
from penstock.pipeline.routes import Shift
from penstock.protocol import messages as m


@dataclass(frozen=True, slots=True)
class FromWorker:
    """A worker has sent a message."""

    message: m.FromWorker


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """The user wants the job to finish what it has and end."""

    by: str = ""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The user wants the job to end at once."""

    by: str = ""


@dataclass(frozen=True, slots=True)
class HostEnded:
    """Spark says that the workers' job has ended, with an error or without."""

    error: str | None


@dataclass(frozen=True, slots=True)
class OrderEnded:
    """Spark has ended the job that was to bring another process for a worker, with an error or without."""

    worker: int
    order: int
    error: str | None


@dataclass(frozen=True, slots=True)
class TasksFailed:
    """Tasks of the workers' job have failed, so many until now; the error is that of one of them."""

    count: int
    error: str


@dataclass(frozen=True, slots=True)
class CoresSeen:
    """So many tasks can run side by side in the cluster now, those of this job included."""

    cores: int


@dataclass(frozen=True, slots=True)
class CommitRecorded:
    """The commit record of an epoch is on disk."""

    epoch: int


@dataclass(frozen=True, slots=True)
class GroupJobEnded:
    """Spark says that the job of a group of micro-batches has ended; for the control loop."""

    group: int
    error: str | None


@dataclass(frozen=True, slots=True)
class AlternativePinned:
    """The user has an operation use an alternative, or leaves it to the control loop again (None)."""

    operation: str
    alternative: str | None
    by: str = ""
    """Who it was, where that was not the job's own process."""


@dataclass(frozen=True, slots=True)
class FormsPinned:
    """The user pins the form of operations, or leaves it to the control loop again (None)."""

    operations: tuple[str, ...]
    form: Form | None
    by: str = ""


@dataclass(frozen=True, slots=True)
class DegreeWanted:
    """The user wants so many processes to compute an operation that may have replicas; None: the law is to choose."""

    operation: str
    degree: int | None
    by: str = ""


@dataclass(frozen=True, slots=True)
class ScaleRequested:
    """The user, or the job itself, wants the job to have so many workers; 0: the job is to choose."""

    workers: int
    by: str = ""
    reason: str = ""
    """Why the job itself wants it."""


@dataclass(frozen=True, slots=True)
class ReplicasWanted:
    """Somebody wants so many processes to compute a range of a unit's operations; 1: the worker itself."""

    unit: int
    range: Range
    degree: int
    reason: str


@dataclass(frozen=True, slots=True)
class ShiftWanted:
    """Somebody wants key groups of a unit to go from one instance to another."""

    unit: int
    old: int
    new: int
    groups: tuple[int, ...]
    reason: str


Wish = FormsPinned | AlternativePinned | DegreeWanted | ReplicasWanted | ShiftWanted
"""What is wanted of a running job, for the driver's machine alone."""

Event = (
    FromWorker
    | Tick
    | DrainRequested
    | StopRequested
    | HostEnded
    | OrderEnded
    | TasksFailed
    | CoresSeen
    | CommitRecorded
    | ScaleRequested
)


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to one worker."""

    worker: int
    message: m.ToWorker


@dataclass(frozen=True, slots=True)
class Finish:
    """The job has ended; ``error`` says why, if it did not end well."""

    error: PenstockError | None


@dataclass(frozen=True, slots=True)
class WantedAlternative:
    """Which alternative an operation is to use, in a commit record."""

    alternative: str
    pin: str | None = None
    """What the user has pinned; None: the job chooses. They differ while that one has failed."""


@dataclass(frozen=True, slots=True)
class RecordCommit:
    """Write the commit record of an epoch, then say CommitRecorded."""

    epoch: int
    generation: int
    start_us: int
    final: bool
    snapshots: list[m.Stored]
    alternatives: Mapping[str, WantedAlternative] = field(default_factory=dict)
    """By operation, where there are any; the driver's machine fills it in."""
    routes: list[Shift] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Replace:
    """Have Spark start another process for a worker that is silent; should the old one wake up, it is refused."""

    worker: int
    order: int
    """Number of the order, which its processes register with."""


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Nobody needs the processes of an order any more."""

    worker: int
    order: int


@dataclass(frozen=True, slots=True)
class Dismiss:
    """Tell a process that has registered, and does not count, to stop."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class Retire:
    """A worker has left the job: its figures are history."""

    worker: int


Command = Send | Finish | RecordCommit | Replace | Withdraw | Dismiss | Retire
