"""Every message on the wire, as tagged msgpack structs: control between driver and workers, data between workers."""

from __future__ import annotations

import msgspec

from penstock.metrics.stats import StatsMessage

MESSAGE_BYTES_MAX = 64 << 20


class _Message(msgspec.Struct, array_like=True, tag=True):
    pass


# --- worker to driver -------------------------------------------------------------------------------------------------


class Register(_Message):
    """A worker is up and listens at ``endpoint``."""

    worker: int
    incarnation: int
    endpoint: str
    pid: int


class EdgeFigures(msgspec.Struct, array_like=True):
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


class Heartbeat(_Message):
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


class EpochDone(_Message):
    """Every unit of a worker has passed the marker of ``epoch``."""

    worker: int
    incarnation: int
    epoch: int


class Finished(_Message):
    """Every unit of a worker has come to its end; final output is prepared."""

    worker: int
    incarnation: int


class Deliver(_Message):
    """Committed records of a sink that lives in the driver's process."""

    worker: int
    incarnation: int
    sink: str
    rows: bytes


class Failed(_Message):
    """A worker cannot go on."""

    worker: int
    incarnation: int
    code: str
    operation: str | None
    what: str
    hint: str
    user_traceback: str


class Stopped(_Message):
    """A worker has committed and ends."""

    worker: int
    incarnation: int


FromWorker = Register | Heartbeat | EpochDone | Finished | Deliver | Failed | Stopped


# --- driver to worker -------------------------------------------------------------------------------------------------


class Peer(msgspec.Struct, array_like=True, frozen=True):
    """Where a worker listens."""

    worker: int
    incarnation: int
    endpoint: str


class Start(_Message):
    """All workers are up: connect and begin."""

    peers: list[Peer]
    start_us: int


class BeginEpoch(_Message):
    """Sources put the marker of ``epoch`` into their output."""

    epoch: int


class Commit(_Message):
    """``epoch`` is complete everywhere: make output visible and drop logs; ``final`` means: then end."""

    epoch: int
    final: bool


class Drain(_Message):
    """Sources stop reading; everything under way is finished."""


class Stop(_Message):
    """End at once; nothing more is committed."""


class Alive(_Message):
    """The driver is still there."""


ToWorker = Start | BeginEpoch | Commit | Drain | Stop | Alive


# --- worker to worker -------------------------------------------------------------------------------------------------


class Data(_Message):
    """Header of a block; the payload follows as a frame of its own."""

    edge: int
    producer: int
    consumer: int
    incarnation: int
    first: int
    last: int
    epoch: int
    count: int
    due_us: int
    event_time_us_max: int | None
    idle: bool
    mark: int


class Acknowledge(_Message):
    """The receiver's word on a channel, sent back to the producer."""

    edge: int
    producer: int
    consumer: int
    incarnation: int
    received: int
    consumed: int
    gap: bool


PeerMessage = Data | Acknowledge

encode = msgspec.msgpack.Encoder().encode
decode_from_worker = msgspec.msgpack.Decoder(FromWorker).decode
decode_to_worker = msgspec.msgpack.Decoder(ToWorker).decode
decode_peer = msgspec.msgpack.Decoder(PeerMessage).decode
