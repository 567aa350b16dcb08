"""Ways to slots, which come and go all the time: a bounded number of sockets; the driver and the workers use it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.runtime.transport import Kind, Node

if TYPE_CHECKING:
    import zmq

WAYS_MIN = 16
WAYS_PER_SLOT = 4
"""One group works, one stands by, one may be on its way out: a slot has that many places at the most."""


class Ways:
    """Sockets to slots; the one that was not used for the longest time is given up for a new one."""

    def __init__(self, node: Node, slots: int) -> None:
        self._node = node
        self._ways_max = max(WAYS_MIN, WAYS_PER_SLOT * slots)
        self._sockets: dict[str, zmq.Socket[bytes]] = {}

    @property
    def endpoints(self) -> list[str]:
        """Where there is a way to, the longest unused first."""
        return list(self._sockets)

    def send(self, endpoint: str, kind: Kind, frames: Sequence[bytes]) -> None:
        """Send one message, over a way that is opened if there is none."""
        socket = self._sockets.pop(endpoint, None) or self._node.open(endpoint)
        self._sockets[endpoint] = socket
        while len(self._sockets) > self._ways_max:
            # What still waits there waits for a process that is gone.
            self._sockets.pop(next(iter(self._sockets))).close(linger=0)
        self._node.send_over(socket, kind, frames)
