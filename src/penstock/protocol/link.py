"""A reliable link for control messages: numbered, confirmed, repeated; what is below may lose, double or reorder.

Both ends of every link between the driver and a worker or slot hold one. A link belongs to one incarnation of the
process at its far end, whose number it carries; a message for another one is nobody's.

=========  ===================================  ================================================================
end        event                                effect
=========  ===================================  ================================================================
sender     `post`                               the next number; kept until it is confirmed
sender     too many bytes are unconfirmed       what is posted waits until others are confirmed
sender     `tell`                               no number: it may be lost, for the next one says more
sender     a header comes: seen n               everything up to n is confirmed and forgotten
sender     nothing confirmed for a while        everything unconfirmed is sent again; wait twice as long next time
receiver   the next number                      it is taken, with those that waited for it; it will be confirmed
receiver   a later number                       it waits for those before it
receiver   an earlier number                    it is refused, and what was seen is confirmed again
receiver   something to confirm, nothing sent   a header alone
=========  ===================================  ================================================================
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum

import msgspec

from penstock.errors import LimitExceeded

AGAIN_US_MIN = 300_000
AGAIN_US_MAX = 2_000_000
UNCONFIRMED_MAX = 100_000
"""Messages that may wait for the other end."""
WINDOW_BYTES = 4 << 20
"""Bytes that may be on their way and not confirmed; one message may be larger."""
AHEAD_MAX = 1_000
"""Messages that may wait for one before them; more are sent again."""


class Kind(bytes, Enum):
    """Who speaks; the first frame of a message."""

    DRIVER = b"D"
    WORKER = b"W"
    PEER = b"P"
    SLOT = b"S"
    QUERY = b"Q"


Outgoing = tuple[str, Kind, Sequence[bytes]]
"""What a machine has to send: where to, as whom, and the frames."""


class Header(msgspec.Struct, array_like=True, kw_only=True):
    """Goes before every control message."""

    link: int
    """Incarnation of the worker or slot."""
    number: int
    """0: not numbered."""
    seen: int
    """Last number that has come from the other end, all before it included."""


_encode = msgspec.msgpack.Encoder().encode
decode_header = msgspec.msgpack.Decoder(Header).decode


class Link:
    """One end. Pure: the time comes in, frames go out.

    Parameters
    ----------
    link : int
        Incarnation of the worker or slot that it belongs to.
    """

    def __init__(self, link: int) -> None:
        self.link = link
        self._posted = 0
        self._unconfirmed: deque[tuple[int, bytes]] = deque()
        self._unconfirmed_bytes = 0
        self._waiting: deque[tuple[int, bytes]] = deque()
        """Posted, and not sent yet."""
        self._out: list[tuple[int, bytes]] = []
        self._seen = 0
        self._ahead: dict[int, bytes] = {}
        """What has come before its turn."""
        self._owes = False
        self._progress_us: int | None = None
        """Since when something waits to be confirmed."""
        self._again_us = AGAIN_US_MIN
        self.confirmed_us = 0
        """When the other end last confirmed something."""

    @property
    def is_confirmed(self) -> bool:
        """Whether the other end has all that was posted."""
        return not self._unconfirmed

    def post(self, packed: bytes) -> None:
        """Send a message that must arrive."""
        count = len(self._unconfirmed) + len(self._waiting)
        if count >= UNCONFIRMED_MAX:
            raise LimitExceeded(what="unconfirmed control messages", limit=UNCONFIRMED_MAX, got=count)
        self._posted += 1
        self._waiting.append((self._posted, packed))
        self._send_more()

    def _send_more(self) -> None:
        waiting = self._waiting
        while waiting and (not self._unconfirmed or self._unconfirmed_bytes + len(waiting[0][1]) <= WINDOW_BYTES):
            message = waiting.popleft()
            self._unconfirmed.append(message)
            self._unconfirmed_bytes += len(message[1])
            self._out.append(message)

    def tell(self, packed: bytes) -> None:
        """Send a message that may be lost."""
        self._out.append((0, packed))

    def receive(self, header: Header, packed: bytes | None, now_us: int) -> list[bytes]:
        """Take what has come; return the messages that are to be acted upon now."""
        while self._unconfirmed and self._unconfirmed[0][0] <= header.seen:
            self._unconfirmed_bytes -= len(self._unconfirmed.popleft()[1])
            self._progress_us, self._again_us = now_us, AGAIN_US_MIN
            self.confirmed_us = now_us
        self._send_more()
        if packed is None:
            return []
        if not header.number:
            return [packed]
        self._owes = True
        if header.number > self._seen and len(self._ahead) < AHEAD_MAX:
            self._ahead[header.number] = packed
        found: list[bytes] = []
        while (following := self._ahead.pop(self._seen + 1, None)) is not None:
            self._seen += 1
            found.append(following)
        return found

    def frames(self, now_us: int) -> list[list[bytes]]:
        """Take what is to be sent now."""
        if not self._unconfirmed:
            self._progress_us = None
        elif self._progress_us is None:
            self._progress_us, self._again_us = now_us, AGAIN_US_MIN
        elif now_us - self._progress_us >= self._again_us:
            self._progress_us, self._again_us = now_us, min(2 * self._again_us, AGAIN_US_MAX)
            self._out = [*self._unconfirmed, *(each for each in self._out if not each[0])]
        if not self._out and not self._owes:
            return []
        self._owes = False
        out, self._out = self._out, []
        if not out:
            return [[self._header(0)]]
        return [[self._header(number), packed] for number, packed in out]

    def _header(self, number: int) -> bytes:
        return _encode(Header(link=self.link, number=number, seen=self._seen))

    def wake_us(self) -> int | None:
        """When something is to be sent without a message."""
        return None if self._progress_us is None else self._progress_us + self._again_us
