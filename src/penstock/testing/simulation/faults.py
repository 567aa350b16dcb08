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
    ORDERED = "the driver has decided on a switch and prepares it"
    PREPARED = "slots are ready everywhere, the order to switch is about to go out"
    SWITCH = "a worker has got the order to switch and not followed it"
    AWAY = "a worker has sent micro-batches to slots"
    WORKING = "a slot has got a micro-batch and not begun it"
    DONE = "a slot has sent a result"
    RESULT = "a worker has got a result and not let it through"
    MARKER_AWAY = "a marker waits in a line behind micro-batches that are away"
    CLOSING = "a unit is on its way back: it cuts nothing more and waits for results"
    RETURNED = "a worker has reported that it runs as it was ordered to"
    SLOT_UP = "a slot has come up, nobody knows"
    SLOT_LEAVES = "a slot has done its share and said so"
    GROUP_ENDED = "Spark has told the driver of a group's end, no worker knows"
    EXCHANGE_ORDERED = "the order to use another alternative is about to go out"
    EXCHANGE = "a worker has got the order to use another alternative and not followed it"
    WARMING = "an alternative is being warmed up"
    EXCHANGED = "a worker has reported that another alternative computes"
    LOAD = "a worker has been told to load what is to move to it"
    LOADED = "a worker has reported that it has loaded what is to move to it"
    HOLD = "a worker has been told to hold behind the next marker"
    HOLDING = "a worker has reported that it will"
    RELEASE = "a worker has been told to close what moves away, behind the commit"
    RELEASED = "a worker has reported that what moves away is closed"


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
    KILL_SLOT = "a slot dies"
    KILL_SLOTS = "all slots die"
    KILL_BOTH = "a worker and a slot die at once"
    FREEZE_SLOT = "a slot stops for a while, and goes on"
    CUT_SLOT = "a slot cannot be reached by the workers for a while"
    RETRY_SLOT = "Spark starts a slot's task once more although it lives"
    FAIL_GROUP = "Spark gives a group's job up"
    SHRINK = "some workers die with their cores, and nothing is free for a while"
    HOST_ENDS = "Spark ends the workers' job; the user starts the job again"


SWITCH_MOMENTS = (
    Moment.ORDERED,
    Moment.PREPARED,
    Moment.SWITCH,
    Moment.AWAY,
    Moment.WORKING,
    Moment.DONE,
    Moment.RESULT,
    Moment.MARKER_AWAY,
    Moment.CLOSING,
    Moment.RETURNED,
    Moment.SLOT_UP,
    Moment.SLOT_LEAVES,
    Moment.GROUP_ENDED,
)
"""Steps of the batch path; the others are there without it too."""
EXCHANGE_MOMENTS = (Moment.EXCHANGE_ORDERED, Moment.EXCHANGE, Moment.WARMING, Moment.EXCHANGED)
"""Steps of an exchange of alternatives."""
MOVE_MOMENTS = (Moment.LOAD, Moment.LOADED, Moment.HOLD, Moment.HOLDING, Moment.RELEASE, Moment.RELEASED)
"""Steps of a move between two workers."""
SLOT_ACTIONS = (
    Action.KILL_SLOT,
    Action.KILL_SLOTS,
    Action.KILL_BOTH,
    Action.FREEZE_SLOT,
    Action.CUT_SLOT,
    Action.RETRY_SLOT,
    Action.FAIL_GROUP,
)
"""What needs slots to happen to."""


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
    workers : int
        How many workers it takes, if it takes several; 0: some.
    """

    action: Action
    moment: Moment | None
    nth: int
    at_us: int
    duration_us: int
    workers: int = 0
