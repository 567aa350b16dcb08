"""Connections to other processes: those to workers open with the first message and stay, those to slots are bounded."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.protocol.link import Kind
from penstock.runtime.neighbours import Outlet
from penstock.runtime.transport import FarOutlet, Node

PASSING_MIN = 16
PASSING_PER_SLOT = 4
"""One group works, one stands by, one may be on its way out: a slot has that many places at the most."""


class Connections:
    """Sends over the node's connections; where there is none, over one that is opened and given up by and by."""

    def __init__(self, node: Node, slots: int) -> None:
        self._node = node
        self._passing_max = max(PASSING_MIN, PASSING_PER_SLOT * slots)
        self._sockets: dict[str, Outlet | FarOutlet] = {}
        self._peers: set[str] = set()

    def expect(self, endpoint: str, former: str | None = None) -> None:
        """Know another worker, in place of a process that it replaces; in a large job few talk to all others."""
        self._peers.add(endpoint)
        if former is not None:
            self._peers.discard(former)
            self._node.disconnect(former)

    def send(self, endpoint: str, kind: Kind, frames: Sequence[bytes]) -> None:
        """Send one message."""
        if endpoint in self._peers:
            self._node.connect(endpoint)
        if self._node.is_connected(endpoint):
            self._node.send(endpoint, kind, frames)
            return
        outlet = self._sockets.pop(endpoint, None)
        if outlet is None or outlet.broken:
            outlet = self._node.open(endpoint)
        self._sockets[endpoint] = outlet
        while len(self._sockets) > self._passing_max:
            # The one that was not used for the longest time: what still waits there waits for a process that is gone.
            self._sockets.pop(next(iter(self._sockets))).close(linger_ms=0)
        self._node.send_over(outlet, kind, frames)
