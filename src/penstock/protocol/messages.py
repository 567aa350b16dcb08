"""Every message on the wire, as tagged msgpack structs: control between driver and workers, data between workers."""

from __future__ import annotations

import msgspec

from penstock.dataset import Mark
from penstock.errors import LimitExceeded
from penstock.metrics.message import StatsMessage
from penstock.pipeline.ranges import Range
from penstock.pipeline.routes import Shift
from penstock.protocol.pulses import GroupHeat, UnitPulse

MESSAGE_BYTES_MAX = 64 << 20
"""The most that one frame of a message may weigh: an inbox closes the connection on more. Records are cut far below it;
one that is larger by itself cannot travel."""
TEXT_MAX = 100_000
"""Characters of an error that are told to the driver."""


class _Message(msgspec.Struct, array_like=True, tag=True):
    pass


# --- worker to driver -------------------------------------------------------------------------------------------------


class Register(_Message, kw_only=True):
    """A worker is up and listens at ``endpoint``."""

    worker: int
    incarnation: int
    endpoint: str
    pid: int
    order: int = 0
    """The driver's order that its task belongs to; 0: the first one, for all workers."""


class Present(_Message, kw_only=True):
    """A worker that waits for its Start, or restores its state, is there and has no figures to tell."""

    worker: int
    incarnation: int


class EdgeFigures(msgspec.Struct, array_like=True, kw_only=True):
    """What an edge has carried, as one worker sees it."""

    edge: int
    records_written: int = 0
    records_read: int = 0
    blocks_disordered: int = 0
    """Taken out of order by a unit."""
    blocks_duplicate: int = 0
    """Refused by a receiver because they had come before."""
    blocks_refused: int = 0
    """Refused by a receiver because one before them was missing."""
    blocks_resent: int = 0
    samples: int = 0
    """Records written that were looked at for their key groups, of late, and the groups with most of them."""
    hottest: list[GroupHeat] = []


class Heartbeat(_Message, kw_only=True):
    """Figures of everything a worker runs."""

    worker: int
    incarnation: int
    at_us: int
    stats: list[StatsMessage]
    rss_bytes: int
    cpu_us: int
    edges: list[EdgeFigures]
    offsets: dict[str, dict[int, int]]
    """Next offset of every partition that is read here, by source."""


class Stored(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """A snapshot that is on disk."""

    unit: int
    instance: int
    epoch: int
    depth: int
    """How many of the instance's snapshots before this one are needed with it."""
    name: str
    crc: int


class EpochDone(_Message, kw_only=True):
    """Every unit of a worker has passed the marker of ``epoch``, and every snapshot up to it is stored."""

    worker: int
    incarnation: int
    epoch: int
    stored: list[Stored]
    """Snapshots that no commit has taken in yet."""


class Finished(_Message, kw_only=True):
    """Every unit of a worker has come to its end; final output is prepared, final snapshots are stored."""

    worker: int
    incarnation: int
    stored: list[Stored]


class RolledBack(_Message, kw_only=True):
    """What a worker hosts of a recovery is restored; it waits for Resume."""

    worker: int
    incarnation: int
    generation: int
    before: list[StatsMessage] | None = None
    """Where a run begins from a checkpoint: what the runs before it have counted."""
    held_us: int = 0
    """For how long the first instance here had held behind a marker."""


class EpochWanted(_Message, kw_only=True):
    """A worker keeps much for replay; an epoch should be committed soon."""

    worker: int
    incarnation: int


class Deliver(_Message, kw_only=True):
    """Committed records of a sink that lives in the driver's process."""

    worker: int
    incarnation: int
    sink: str
    instance: int
    epoch: int
    part: int
    """Counted within the epoch; what was delivered before a crash is recognised by it."""
    rows: bytes


class Delivered(_Message, kw_only=True):
    """All that an instance of a sink had to deliver up to ``epoch`` is delivered, or visible where the sink writes."""

    worker: int
    incarnation: int
    sink: str
    instance: int
    epoch: int


class Changed(_Message, kw_only=True):
    """An instance computes as it was told to: a switch, or an exchange of alternatives, is made there."""

    worker: int
    incarnation: int
    number: int
    """Of the switch or exchange; they share their numbers."""
    unit: int
    instance: int
    pause_us: int
    carried_records: int
    case: str = ""
    """Of an exchange: how the new alternative stood to the one before when they synchronised."""
    moved_records: int = 0
    """Of an exchange: records under way to the alternative before that went to the new one."""
    warm_us: int = 0
    """Of an exchange: how long the new alternative was warmed up."""


class Pulse(_Message, kw_only=True):
    """How busy a worker's instances are; sent more often than a heartbeat, because bursts are short."""

    worker: int
    incarnation: int
    at_us: int
    units: list[UnitPulse]
    slots: int
    """Slots that take work from this worker."""
    replicas: list[int] = []
    """Replicas that do, by number."""
    busy_us: int = 0
    """How long the process has been at work so far: it did not sleep, whether it computed or waited in a function."""
    cpu_us: int = 0
    """Processor time of that, its other threads included."""


class Prepared(_Message, kw_only=True):
    """The state of a column that is to move here is loaded as it was at the commit of ``epoch``."""

    worker: int
    incarnation: int
    move: int
    epoch: int
    loaded_bytes: int


class Holding(_Message, kw_only=True):
    """What is to move away takes nothing behind the marker of ``epoch``."""

    worker: int
    incarnation: int
    move: int
    epoch: int


class Released(_Message, kw_only=True):
    """What moves away is closed here: nobody writes, reads or commits in its name."""

    worker: int
    incarnation: int
    move: int
    held_us: int = 0
    """For how long it had held behind the marker."""


class Failed(_Message, kw_only=True):
    """A worker cannot go on."""

    worker: int
    incarnation: int
    code: str
    operation: str | None
    what: str
    hint: str
    user_traceback: str


class Stopped(_Message, kw_only=True):
    """A worker has committed and ends."""

    worker: int
    incarnation: int


FromWorker = (
    Register
    | Present
    | Heartbeat
    | EpochDone
    | Finished
    | RolledBack
    | EpochWanted
    | Deliver
    | Delivered
    | Changed
    | Pulse
    | Prepared
    | Holding
    | Released
    | Failed
    | Stopped
)


# --- driver to worker -------------------------------------------------------------------------------------------------


class Peer(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """Where a worker listens."""

    worker: int
    incarnation: int
    endpoint: str


class Restore(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """Which instances are built anew, and from what; without snapshots: from nothing."""

    epoch: int
    instances: list[tuple[int, int]]
    snapshots: list[Stored]
    """For each instance a whole one and the changes after it, in order."""
    renumber: bool
    """The snapshots are another run's: block ids begin anew."""


class Start(_Message, kw_only=True):
    """All workers are up: connect and begin; in a recovery: build what is restored and wait for Resume."""

    peers: list[Peer]
    start_us: int
    generation: int
    restore: Restore | None
    careful: bool
    """The worker was lost more than once since the last commit: find the record that does it."""
    placement: list[int] = []
    """Worker of each instance; empty: as it was."""
    routes: list[Shift] = []


class Rollback(_Message, kw_only=True):
    """Another worker was lost: build what was downstream of it anew and wait for Resume with that."""

    peers: list[Peer]
    generation: int
    restore: Restore
    placement: list[int] = []
    routes: list[Shift] = []


class Prepare(_Message, kw_only=True):
    """A column is to move here: load its state ahead, as it was at the commit of ``epoch``."""

    move: int
    epoch: int
    snapshots: list[Stored]
    shift: Shift | None = None
    """Not a column: key groups are to go to another instance."""


class Depart(_Message, kw_only=True):
    """A column is about to move away from here: its snapshots hold what changes, and no walk through the rest."""

    move: int
    column: int


class Hold(_Message, kw_only=True):
    """Take nothing behind the marker of ``epoch`` in a column, which comes only when this is confirmed; -1: go on."""

    move: int
    epoch: int
    column: int


class BeginShift(_Message, kw_only=True):
    """Deal out by a shift behind the marker of its epoch, and hold what it concerns there; confirmed as a Hold is."""

    move: int
    shift: Shift


class Release(_Message, kw_only=True):
    """The epoch behind which a column waits is committed: close it here."""

    move: int
    column: int


class Resume(_Message, kw_only=True):
    """Everyone has rolled back: go on."""

    generation: int


class BeginEpoch(_Message, kw_only=True):
    """Sources put the marker of ``epoch`` into their output."""

    epoch: int


class Commit(_Message, kw_only=True):
    """``epoch`` is complete everywhere: make output visible and drop logs; ``final`` means: then end."""

    epoch: int
    final: bool


class Drain(_Message, kw_only=True):
    """Sources stop reading; everything under way is finished.

    With ``keep`` the job is to be resumed: sources pause instead of ending, so that windows stay open.
    """

    keep: bool


class Switch(_Message, kw_only=True):
    """Compute a range of a unit's operations in slots or replicas from the next item on; empty: everything here.

    Where only the replicas are others, what is under way stays as it is.
    """

    number: int
    unit: int
    range: Range
    interval_us: int
    """How long a micro-batch gathers at the most."""
    replicas: tuple[int, ...] = ()
    """Numbers of the replicas that compute it; their count is the degree. None: slots do."""


class Exchange(_Message, kw_only=True):
    """Have another alternative of an operation compute what comes next."""

    number: int
    unit: int
    index: int
    """Of the operation in the unit's chain."""
    alternative: str


class Calibrate(_Message, kw_only=True):
    """Have a slot measure both forms of an instance's operations, as far as they may be repeated, on some records."""

    unit: int
    instance: int
    records: int


class GroupEnded(_Message, kw_only=True):
    """The tasks of a group of micro-batches are gone."""

    group: int


class Stop(_Message):
    """End at once; nothing more is committed."""


class Alive(_Message):
    """The driver is still there."""


ToWorker = (
    Start
    | Rollback
    | Resume
    | BeginEpoch
    | Commit
    | Drain
    | Switch
    | Exchange
    | Calibrate
    | GroupEnded
    | Prepare
    | Depart
    | Hold
    | BeginShift
    | Release
    | Stop
    | Alive
)


# --- worker to worker -------------------------------------------------------------------------------------------------


class Data(_Message, kw_only=True):
    """Header of a block; the payload follows as a frame of its own."""

    edge: int
    producer: int
    consumer: int
    incarnation: int
    generation: int
    first: int
    last: int
    epoch: int
    count: int
    due_us: int
    event_time_us: int | None
    lane: int
    straggler_us: int | None
    idle: bool | None
    mark: Mark
    packed: bool = False
    """The payload is columns, not rows."""
    frames: int = 1
    """How many frames the payload is, if there are records."""


class Acknowledge(_Message, kw_only=True):
    """The receiver's word on a channel, sent back to the producer."""

    edge: int
    producer: int
    consumer: int
    incarnation: int
    generation: int
    received: int
    consumed: int
    gap: bool


PeerMessage = Data | Acknowledge

encode = msgspec.msgpack.Encoder().encode


def check_size(packed: bytes, operation: str | None = None) -> None:
    """Refuse a frame that no inbox would take, so that it is not lost without a word."""
    if len(packed) > MESSAGE_BYTES_MAX:
        raise LimitExceeded(
            what="bytes of one record",
            limit=MESSAGE_BYTES_MAX,
            got=len(packed),
            operation=operation,
            hint="Keep large values in a store, and send their names.",
        )


decode_from_worker = msgspec.msgpack.Decoder(FromWorker).decode
decode_to_worker = msgspec.msgpack.Decoder(ToWorker).decode
decode_peer = msgspec.msgpack.Decoder(PeerMessage).decode
