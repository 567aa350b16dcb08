"""What goes wrong in a run, and when: at a time, or when some process reaches a step of the protocol."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Moment(Enum):
    """Steps of the protocol at which a fault can strike."""

    BEGIN = "a worker has been asked for an epoch's marker"
    MARKER = "a marker has passed, the snapshot is taken and not handed to the disk"
    STORING = "a snapshot is being written"
    STORED = "a snapshot is on disk, nobody knows"
    EPOCH_DONE = "a worker has reported the epoch"
    RECORDING = "the commit record is being written"
    RECORDED = "the commit record is on disk, no worker knows"
    COMMIT = "a worker has been told of the commit and done nothing yet"
    COMMITTED = "a worker has published, nobody knows"
    DELIVERED = "a worker has handed records to the driver"
    REGISTERED = "a replacement has registered: a recovery begins"
    RESTART = "a replacement has been told what to restore"
    ROLLBACK = "a survivor has been told to roll back"
    ROLLED_BACK = "a worker has confirmed the recovery"
    RESUME = "a worker has been told to go on"
    FINISHED = "a worker has come to its end"
    STOPPED = "a worker has said its last word"


class Action(Enum):
    """What happens then."""

    KILL_IT = "the process that is there dies"
    KILL_OTHER = "another worker dies"
    KILL_TWO = "it and another worker die at once"
    FREEZE = "it stops for a while, and goes on"
    ISOLATE = "the driver cannot be reached by it for a while, its peers can"
    CUT = "its peers cannot be reached by it for a while, the driver can"
    KILL_DRIVER = "the driver dies and is started again"
    RETRY = "Spark starts its task once more although it lives"
    DRAIN = "the user stops the job and starts it again"


@dataclass(frozen=True)
class Fault:
    """One planned fault.

    Attributes
    ----------
    action : Action
        What happens.
    moment : Moment or None
        The step that triggers it; None: the time does.
    nth : int
        The how many-eth time the step is reached.
    at_us : int
        The time after the start, if that triggers it.
    duration_us : int
        How long it lasts, if it lasts.
    """

    action: Action
    moment: Moment | None
    nth: int
    at_us: int
    duration_us: int
