"""Messages between the workers, who own the work, and the slots and replicas, who do it; and to the driver.

A *slot* is a task of a Spark job that runs a group of micro-batches. A *replica* is a slot whose task lives as long as
the job, and which runs the record form: its items are rows. Groups of slots are numbered upwards from 1, pools of
replicas downwards from -1. Columns, or rows, travel as frames of their own behind the message, in the order that it
lists them.
"""

from __future__ import annotations

import msgspec

from penstock.connectors.base import Run
from penstock.pipeline.ranges import Range
from penstock.protocol.messages import Peer


class _Message(msgspec.Struct, array_like=True, tag=True):
    pass


# --- slot to worker ---------------------------------------------------------------------------------------------------


class Ready(_Message, kw_only=True):
    """A slot is up and takes work from this worker; said again and again, so that neither it nor work is missed."""

    group: int
    slot: int
    incarnation: int
    endpoint: str
    holds: list[int] = []
    """Micro-batches of this worker that wait here: what was sent long before and is not among them did not get here,
    or its result did not get back."""


class Leave(_Message, kw_only=True):
    """The slot has done its group: it finishes what was sent to it before the worker's Left, and ends."""

    incarnation: int
    ended: bool = False
    """It has ended: what it has given no result for by now, it did not get."""


class StageFigures(msgspec.Struct, array_like=True, kw_only=True):
    """What one operation did with one micro-batch."""

    records_in: int
    records_out: int
    busy_ns: int
    done_us: int
    skipped: int = 0
    retried: int = 0
    dead_letters: int = 0
    fallbacks: int = 0
    failures: int = 0
    """Of an alternative: whether it has failed, and another one has computed this."""


class Part(msgspec.Struct, array_like=True, kw_only=True):
    """Records for one reader of one edge; its columns are one of the frames that follow. Many are in several parts."""

    edge: int
    consumer: int
    """Index among the consumers of the producing instance."""
    count: int


class Side(msgspec.Struct, array_like=True, kw_only=True):
    """Records that an operation has put aside, as rows; one of the frames that follow."""

    index: int
    """Of the operation in the unit's chain."""
    port: str
    count: int


class TimesRead(msgspec.Struct, array_like=True, kw_only=True):
    """What the times of a micro-batch are, as the lane that it belongs to needs to know.

    Attributes
    ----------
    newest_us : int
        The largest one.
    late_at_us : int
        If its lane had come this far before, some record of it is a straggler.
    straggles : bool
        Whether there are stragglers anyway: behind other records of the micro-batch.
    """

    newest_us: int
    late_at_us: int
    straggles: bool


class Done(_Message, kw_only=True):
    """An item is through: frames follow for each part, for the records that go on, for the sink, for each side."""

    incarnation: int
    item: int
    attempt: int
    began_us: int
    done_us: int
    source_ns: int
    due_us: int
    times: TimesRead | None
    """What its records say about event time, if that is read in the range."""
    stages: list[StageFigures]
    parts: list[Part]
    carried: list[int]
    """Records that leave the range for the operations behind it, in each frame."""
    staged: list[int]
    """Records that were made ready for the sink, in each frame."""
    sides: list[Side] = []
    """Of an item in rows: what operations have put aside."""
    cpu_ns: int = 0
    """Processor time of an item in rows; what it took in all is from ``began_us`` to ``done_us``."""


class NotDone(_Message, kw_only=True):
    """An operation has failed for good on a record of a micro-batch."""

    incarnation: int
    item: int
    attempt: int
    code: str
    operation: str | None
    what: str
    hint: str
    user_traceback: str


FromSlot = Ready | Leave | Done | NotDone


# --- worker to slot ---------------------------------------------------------------------------------------------------


class Do(_Message, kw_only=True):
    """One micro-batch: a range of operations, and runs of a source to read or columns that follow as a frame.

    One without records has the slot build the operations, so that the first micro-batch need not wait for that.
    """

    slot: int
    """Incarnation of the slot that it is meant for."""
    worker: int
    incarnation: int
    item: int
    attempt: int
    unit: int
    instance: int
    range: Range
    partition: int
    runs: list[Run]
    """Where the source records are that it reads, or was made of."""
    count: int
    due_us: int
    sample: bool
    """Measure both forms on these records, tell the driver, and give no results."""
    using: dict[int, str] = {}
    """Which alternatives compute it, by index of the operation."""
    rows: bool = False
    """In record form: rows follow as a frame."""
    skip: int = 0
    """Of an item in rows: how many records of the same runs went before it in other items."""


class Ask(_Message, kw_only=True):
    """Say what you hold: a replica that has nothing to do keeps quiet otherwise."""

    slot: int
    worker: int
    incarnation: int


class Left(_Message, kw_only=True):
    """The worker sends this slot no more work."""

    slot: int
    worker: int
    incarnation: int


# --- slot and driver --------------------------------------------------------------------------------------------------


class SlotUp(_Message, kw_only=True):
    """A task of a group has started."""

    group: int
    slot: int
    incarnation: int
    endpoint: str
    pid: int


class SlotDown(_Message, kw_only=True):
    """A task of a group ends: what it did."""

    group: int
    slot: int
    incarnation: int
    batches: int
    busy_us: int
    worked_us: int
    """From the begin of its first micro-batch on."""


class Calibrated(_Message, kw_only=True):
    """What both forms of the operations of a unit that may be repeated cost on a sample of one instance."""

    unit: int
    instance: int
    records: int
    record_ns: dict[int, int]
    """By index in the chain, in all; -1 is the source."""
    batch_ns: dict[int, int]
    records_in: dict[int, int]
    using: dict[int, str] = {}
    """Which alternatives were measured, by index."""


ToDriver = SlotUp | SlotDown | Calibrated


class Workers(_Message, kw_only=True):
    """Who the workers are now, and when the sources' schedules began."""

    peers: list[Peer]
    start_us: int


class End(_Message, kw_only=True):
    """End after the work that is under way; or at once, when the job is over."""

    at_once: bool


class StillThere(_Message):
    """The driver is alive."""


ToSlotFromDriver = Workers | End | StillThere
ToSlot = Do | Ask | Left | Workers | End | StillThere

decode_from_slot = msgspec.msgpack.Decoder(FromSlot).decode
decode_to_slot = msgspec.msgpack.Decoder(ToSlot).decode
decode_to_driver = msgspec.msgpack.Decoder(ToDriver).decode
