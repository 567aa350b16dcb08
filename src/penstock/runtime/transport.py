"""Sockets: every process has an inbox and a way to every other inbox; ZeroMQ with CURVE, allow-listed by key.

Processes of one machine speak over `neighbours` instead. Frames are ``[kind, header, payload…]``. The windows of the
channels and links above bound what is under way, in bytes too, so the queues of the sockets themselves need no mark of
their own. An inbox closes the connection on a frame that is too large; nobody would hear of what is lost with it, so it
is refused before it is sent.
"""

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from weakref import WeakSet

import msgspec
import zmq
from zmq.auth.thread import ThreadAuthenticator

from penstock.errors import PenstockError
from penstock.protocol.link import Kind
from penstock.protocol.messages import MESSAGE_BYTES_MAX, check_size
from penstock.runtime.addresses import Address
from penstock.runtime.neighbours import Neighbours, Outlet, is_possible

LINGER_MS = 2_000
RECEIVE_MAX = 256
RECEIVE_BYTES_MAX = 16 << 20
"""About the most that is taken from the inbox at once; the rest waits there."""
FRAME_BYTES_MAX = MESSAGE_BYTES_MAX + (1 << 20)
LOOPBACK = "127.0.0.1"
_POLLIN = int(zmq.POLLIN)
"""A plain number: the operators of enumerations take longer than what they are asked for."""


class Keys(msgspec.Struct, frozen=True):
    """The job's key pair: made by the driver, handed to the workers through Spark, known to nobody else."""

    public: bytes
    secret: bytes

    @staticmethod
    def create() -> Keys:
        """Make a new pair."""
        public, secret = zmq.curve_keypair()
        return Keys(public, secret)

    def __repr__(self) -> str:
        return "Keys(…)"


class AllowList:
    """Lets in who holds the job's key, and nobody else."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def callback(self, domain: str, key: bytes) -> bool:
        """Answer the authenticator, which gives the key in Z85 form, as `curve_keypair` does."""
        del domain
        return key == self._key


class FarOutlet:
    """The way to a process that may be on another machine; a socket of ZeroMQ, which sends by itself."""

    broken = False

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self._socket = socket

    def send(self, frames: Sequence[bytes]) -> None:
        """Send one message; it waits in the socket until the other side is there."""
        self._socket.send_multipart(frames, zmq.NOBLOCK)

    def close(self, linger_ms: int) -> None:
        """Give what waits so long to get there."""
        self._socket.close(linger=linger_ms)


class Node:
    """One process on the job's network."""

    def __init__(self, keys: Keys, host: str | Address = LOOPBACK, port: int = 0) -> None:
        address = Address(host) if isinstance(host, str) else host
        self._keys = keys
        self._context = zmq.Context()
        self._authenticator = ThreadAuthenticator(self._context)
        self._authenticator.start()
        self._authenticator.configure_curve_callback(domain="*", credentials_provider=AllowList(keys.public))
        self._inbox = self._socket(zmq.PULL)
        self._inbox.curve_server = True
        self._inbox.maxmsgsize = FRAME_BYTES_MAX
        self._outs: dict[str, Outlet | FarOutlet] = {}
        self._near: WeakSet[Outlet] = WeakSet()
        self._neighbours: Neighbours | None = None
        try:
            self.endpoint = address.take(self._inbox, port)
        except PenstockError:
            self.close(linger_ms=0)
            raise
        self._host = address.host
        self._fileno = int(self._inbox.getsockopt(zmq.FD))
        """Readable when something is there, in one inbox or the other."""
        if is_possible():
            self._neighbours = Neighbours(keys.secret, self.endpoint, FRAME_BYTES_MAX, self._fileno)
            self._fileno = self._neighbours.fileno
        self._is_far_left = True
        """Something may wait in the inbox of ZeroMQ though its descriptor is not readable."""

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        socket: zmq.Socket[bytes] = self._context.socket(kind)
        socket.sndhwm = socket.rcvhwm = 0
        socket.linger = LINGER_MS
        socket.curve_publickey = self._keys.public
        socket.curve_secretkey = self._keys.secret
        return socket

    def connect(self, endpoint: str) -> None:
        """Open the way to another inbox."""
        if endpoint not in self._outs:
            self._outs[endpoint] = self.open(endpoint)

    def open(self, endpoint: str) -> Outlet | FarOutlet:
        """Return a way to another inbox, for whoever keeps it; closed with the node at the latest."""
        if self._neighbours is not None and endpoint.startswith(f"tcp://{self._host}:"):
            outlet = self._neighbours.open(endpoint)
            if outlet is not None:
                self._near.add(outlet)
                return outlet
        socket = self._socket(zmq.PUSH)
        socket.curve_serverkey = self._keys.public
        socket.connect(endpoint)
        return FarOutlet(socket)

    def disconnect(self, endpoint: str | None, linger_ms: int = 0) -> None:
        """Give up a way to an inbox that is gone; what waits for it has so long to get there."""
        outlet = self._outs.pop(endpoint, None) if endpoint else None
        if outlet is not None:
            outlet.close(linger_ms)

    def is_connected(self, endpoint: str) -> bool:
        """Whether `connect` was called for it."""
        return endpoint in self._outs

    def send(self, endpoint: str, kind: Kind, frames: Sequence[bytes]) -> None:
        """Send one message."""
        outlet = self._outs[endpoint]
        if outlet.broken:
            outlet = self._outs[endpoint] = self.open(endpoint)
        self.send_over(outlet, kind, frames)

    @staticmethod
    def send_over(outlet: Outlet | FarOutlet, kind: Kind, frames: Sequence[bytes]) -> None:
        """Send one message on a way that `open` has returned.

        Raises
        ------
        LimitExceeded
            If a frame is larger than an inbox takes; nothing is sent.
        """
        for frame in frames:
            check_size(frame)
        outlet.send([kind, *frames])

    def receive(self) -> list[list[bytes]]:
        """Return what has arrived, without waiting."""
        arrived: list[list[bytes]] = []
        is_far_ready = self._neighbours is None or self._neighbours.receive(arrived)
        if is_far_ready or self._is_far_left:
            self._receive_far(arrived)
        return arrived

    def _receive_far(self, arrived: list[list[bytes]]) -> None:
        inbox, most, size_bytes = self._inbox, len(arrived) + RECEIVE_MAX, 0
        self._is_far_left = True
        while len(arrived) < most and size_bytes < RECEIVE_BYTES_MAX:
            if not int(inbox.getsockopt(zmq.EVENTS)) & _POLLIN:
                self._is_far_left = False  # only after this answer does the descriptor tell of what comes next
                break
            try:
                frames = inbox.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break  # the rest of a large message is still on its way: it is received at the next turn
            arrived.append(frames)
            size_bytes += len(frames[-1])

    def wait(self, timeout_us: int, *others: int) -> None:
        """Sleep until something arrives, here or at other descriptors, or the time is over.

        Finer than ZeroMQ's own poll, which counts in milliseconds.
        """
        if timeout_us > 0 and not self._is_far_left:
            select.select([self._fileno, *others], [], [], timeout_us / 1e6)

    @staticmethod
    def rest(time_us: int) -> None:
        """Sleep, whatever arrives: it costs less than to be woken up for it, for whoever sends it too."""
        if time_us > 0:
            time.sleep(time_us / 1e6)

    def close(self, linger_ms: int = LINGER_MS) -> None:
        """Send what waits, for a moment, and close."""
        for outlet in self._near:
            outlet.close(linger_ms)
        if self._neighbours is not None:
            self._neighbours.close()
        self._authenticator.stop()
        self._context.destroy(linger=linger_ms)
