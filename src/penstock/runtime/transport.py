"""Sockets: every process has one inbox and a way to every other inbox; ZeroMQ with CURVE, allow-listed by key.

Frames are ``[kind, header, payload…]``. The windows of the channels and links above bound what is under way, in bytes
too, so the queues of the sockets themselves need no mark of their own. An inbox closes the connection on a frame that
is too large; nobody would hear of what is lost with it, so it is refused before it is sent.
"""

from __future__ import annotations

import select
from collections.abc import Sequence

import msgspec
import zmq
from zmq.auth.thread import ThreadAuthenticator

from penstock.errors import PortOccupied
from penstock.protocol.link import Kind
from penstock.protocol.messages import MESSAGE_BYTES_MAX, check_size

LINGER_MS = 2_000
RECEIVE_MAX = 256
RECEIVE_BYTES_MAX = 16 << 20
"""About the most that is taken from the inbox at once; the rest waits there."""
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


class _AllowList:
    """Lets in who holds the job's key, and nobody else."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def callback(self, domain: str, key: bytes) -> bool:
        """Answer the authenticator, which gives the key in Z85 form, as `curve_keypair` does."""
        del domain
        return key == self._key


class Node:
    """One process on the job's network."""

    def __init__(self, keys: Keys, host: str = LOOPBACK, port: int = 0) -> None:
        self._keys = keys
        self._context = zmq.Context()
        self._authenticator = ThreadAuthenticator(self._context)
        self._authenticator.start()
        self._authenticator.configure_curve_callback(domain="*", credentials_provider=_AllowList(keys.public))
        self._inbox = self._socket(zmq.PULL)
        self._inbox.curve_server = True
        self._inbox.maxmsgsize = MESSAGE_BYTES_MAX + (1 << 20)
        try:
            if port:
                self._inbox.bind(f"tcp://{host}:{port}")
            else:
                port = self._inbox.bind_to_random_port(f"tcp://{host}")
        except zmq.ZMQError:
            self.close(linger_ms=0)
            raise PortOccupied(address=f"{host}:{port}") from None
        self.endpoint = f"tcp://{host}:{port}"
        self._fd = int(self._inbox.getsockopt(zmq.FD))
        self._outs: dict[str, zmq.Socket[bytes]] = {}

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

    def open(self, endpoint: str) -> zmq.Socket[bytes]:
        """Return a socket to another inbox, for whoever keeps it; closed with the node at the latest."""
        socket = self._socket(zmq.PUSH)
        socket.curve_serverkey = self._keys.public
        socket.connect(endpoint)
        return socket

    def disconnect(self, endpoint: str | None, linger_ms: int = 0) -> None:
        """Give up a way to an inbox that is gone; what waits for it has so long to get there."""
        socket = self._outs.pop(endpoint, None) if endpoint else None
        if socket is not None:
            socket.close(linger=linger_ms)

    def is_connected(self, endpoint: str) -> bool:
        """Whether `connect` was called for it."""
        return endpoint in self._outs

    def send(self, endpoint: str, kind: Kind, frames: Sequence[bytes]) -> None:
        """Send one message; it waits in the socket until the other side is there."""
        self.send_over(self._outs[endpoint], kind, frames)

    @staticmethod
    def send_over(socket: zmq.Socket[bytes], kind: Kind, frames: Sequence[bytes]) -> None:
        """Send one message over a socket that `open` has returned.

        Raises
        ------
        LimitExceeded
            If a frame is larger than an inbox takes; nothing is sent.
        """
        for frame in frames:
            check_size(frame)
        socket.send_multipart([kind.value, *frames], zmq.NOBLOCK)

    def receive(self) -> list[list[bytes]]:
        """Return what has arrived, without waiting."""
        inbox = self._inbox
        arrived: list[list[bytes]] = []
        size_bytes = 0
        while (
            len(arrived) < RECEIVE_MAX
            and size_bytes < RECEIVE_BYTES_MAX
            and int(inbox.getsockopt(zmq.EVENTS)) & _POLLIN
        ):
            try:
                frames = inbox.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break  # the rest of a large message is still on its way: it is received at the next turn
            arrived.append(frames)
            size_bytes += len(frames[-1])
        return arrived

    def wait(self, timeout_us: int, *others: int) -> None:
        """Sleep until something arrives, here or at other descriptors, or the time is over.

        Finer than ZeroMQ's own poll, which counts in milliseconds.
        """
        if timeout_us > 0 and not int(self._inbox.getsockopt(zmq.EVENTS)) & _POLLIN:
            select.select([self._fd, *others], [], [], timeout_us / 1e6)

    def close(self, linger_ms: int = LINGER_MS) -> None:
        """Send what waits, for a moment, and close."""
        self._authenticator.stop()
        self._context.destroy(linger=linger_ms)
