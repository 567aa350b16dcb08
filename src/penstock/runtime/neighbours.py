"""Connections between processes of one machine: Unix sockets that the loop itself reads and writes, no thread between.

A message between two processes wakes up one thread, not three as with ZeroMQ's, which costs more than the message. The
name of a socket is made from the job's secret and lies in Linux's abstract namespace: no file is left behind. Only a
process of the same user that holds the secret is listened to, so nothing is encrypted. Where there is no such socket
(another machine, another system) `transport` takes ZeroMQ.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import select
import socket
import struct
import sys
import threading
from collections import deque
from collections.abc import Sequence

VARIABLE = "PENSTOCK_UNIX_SOCKETS"
"""0: processes of one machine speak over the network too, encrypted."""
TOKEN_BYTES = 32
FRAMES_MAX = 100_000
READ_BYTES = 1 << 18
_COUNT = struct.Struct("<I")
_CREDENTIALS = struct.Struct("3i")


def is_possible() -> bool:
    """Whether this system has sockets without files, and nobody has forbidden them."""
    return sys.platform == "linux" and os.environ.get(VARIABLE) != "0"


def _name(secret: bytes, endpoint: str) -> bytes:
    told = hmac.new(secret, b"name " + endpoint.encode(), hashlib.sha256).hexdigest()
    return b"\0penstock-" + told.encode()


def _token(secret: bytes, endpoint: str) -> bytes:
    return hmac.new(secret, b"token " + endpoint.encode(), hashlib.sha256).digest()


def _is_own_user(peer: socket.socket) -> bool:
    told = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(told)[1] == os.geteuid())


def pack_message(frames: Sequence[bytes]) -> bytes:
    """One message as it goes through the socket: how many frames, their sizes, the frames."""
    count = len(frames)
    return b"".join([struct.pack(f"<{count + 1}I", count, *map(len, frames)), *frames])


class Outlet:
    """The way to a neighbour. What the socket cannot take at once is sent by a thread, until all of it is gone."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._lock = threading.Lock()
        self._waiting: deque[memoryview] = deque()
        self._thread: threading.Thread | None = None
        self.broken = False
        """The neighbour is gone."""

    def send(self, frames: Sequence[bytes]) -> None:
        """Send one message; lost if the neighbour is gone."""
        self.write(pack_message(frames))

    def write(self, packed: bytes) -> None:
        """Send bytes."""
        with self._lock:
            if self._waiting:
                self._waiting.append(memoryview(packed))
                return
            try:
                sent = self._socket.send(packed, socket.MSG_DONTWAIT)
            except BlockingIOError:
                sent = 0
            except OSError:
                self.broken = True
                return
            if sent < len(packed):
                self._waiting.append(memoryview(packed)[sent:])
                self._thread = threading.Thread(target=self._drain, name="penstock-outlet", daemon=True)
                self._thread.start()

    def _drain(self) -> None:
        while True:
            try:
                self._socket.sendall(self._waiting[0])
            except OSError:
                self.broken = True
                with self._lock:
                    self._waiting.clear()
                return
            with self._lock:
                self._waiting.popleft()
                if not self._waiting:
                    return

    def close(self, linger_ms: int) -> None:
        """Give what waits so long to get there."""
        thread = self._thread
        if thread is not None and linger_ms:
            thread.join(linger_ms / 1000)
        try:
            if thread is not None:
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread up, if it is still there
        except OSError:
            pass
        self._socket.close()


class _Inlet:
    """What a neighbour sends: first its token, then messages."""

    def __init__(self, accepted: socket.socket, token: bytes, frame_bytes_max: int) -> None:
        self.socket = accepted
        self._token: bytes | None = token
        self._frame_bytes_max = frame_bytes_max
        self._rest = b""
        self._parts: list[bytes] = []
        self._missing = 0
        """Bytes that the message at the head lacks at the least."""

    def read(self, arrived: list[list[bytes]]) -> bool:
        """Take what is there; False when the connection has ended, or should."""
        try:
            came = self.socket.recv(READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not came:
            return False
        if len(came) < self._missing:
            self._missing -= len(came)
            self._parts.append(came)
            return True
        if self._parts:
            came = b"".join([*self._parts, came])
            self._parts.clear()
        at = 0
        if self._token is not None:
            if len(came) < TOKEN_BYTES:
                return self._wait_for(came, TOKEN_BYTES - len(came))
            if not hmac.compare_digest(came[:TOKEN_BYTES], self._token):
                return False
            self._token, at = None, TOKEN_BYTES
        return self._split(came, at, arrived)

    def _split(self, came: bytes, at: int, arrived: list[list[bytes]]) -> bool:
        """Cut what has come into messages; keep the rest."""
        end = len(came)
        while end - at >= 4:
            (count,) = _COUNT.unpack_from(came, at)
            if not 0 < count <= FRAMES_MAX:
                return False
            first = at + 4 + 4 * count
            if first > end:
                break
            sizes = struct.unpack_from(f"<{count}I", came, at + 4)
            if max(sizes) > self._frame_bytes_max:
                return False
            following = first + sum(sizes)
            if following > end:
                return self._wait_for(came[at:], following - end)
            frames: list[bytes] = []
            for size in sizes:
                frames.append(came[first : first + size])
                first += size
            arrived.append(frames)
            at = following
        return self._wait_for(came[at:], 1) if at < end else self._wait_for(b"", 0)

    def _wait_for(self, rest: bytes, missing: int) -> bool:
        self._missing = missing
        if rest:
            self._parts.append(rest)
        return True


class Neighbours:
    """The inbox of a process for those of its own machine; `fileno` is readable when something is there.

    Parameters
    ----------
    secret : bytes
        The job's.
    endpoint : str
        Under which the others know this process.
    frame_bytes_max : int
        Whoever announces a larger frame is not listened to any more.
    beside : int
        Another descriptor that is looked at, so that one system call answers for both.
    """

    def __init__(self, secret: bytes, endpoint: str, frame_bytes_max: int, beside: int) -> None:
        self._secret = secret
        self._token = _token(secret, endpoint)
        self._frame_bytes_max = frame_bytes_max
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(_name(secret, endpoint))
        self._listener.listen(128)
        self._listener.setblocking(False)
        self._inlets: dict[int, _Inlet] = {}
        self._poll = select.epoll()
        self._poll.register(self._listener.fileno(), select.EPOLLIN)
        self._beside = beside
        self._poll.register(beside, select.EPOLLIN)
        self.fileno = self._poll.fileno()

    def open(self, endpoint: str) -> Outlet | None:
        """Return the way to another process; None: it is not on this machine."""
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connected.connect(_name(self._secret, endpoint))
            if _is_own_user(connected):
                outlet = Outlet(connected)
                outlet.write(_token(self._secret, endpoint))
                return outlet
        except OSError:
            pass
        connected.close()
        return None

    def receive(self, arrived: list[list[bytes]]) -> bool:
        """Add what has arrived, without waiting; say whether the descriptor beside is readable."""
        is_beside_ready = False
        for number, _ in self._poll.poll(0):
            inlet = self._inlets.get(number)
            if inlet is not None:
                if not inlet.read(arrived):
                    self._poll.unregister(number)
                    self._inlets.pop(number).socket.close()
            elif number == self._beside:
                is_beside_ready = True
            else:
                self._accept()
        return is_beside_ready

    def _accept(self) -> None:
        try:
            accepted, _ = self._listener.accept()
        except OSError:
            return
        if not _is_own_user(accepted):
            accepted.close()
            return
        self._inlets[accepted.fileno()] = _Inlet(accepted, self._token, self._frame_bytes_max)
        self._poll.register(accepted.fileno(), select.EPOLLIN)

    def close(self) -> None:
        """Hear nobody any more."""
        self._poll.close()
        self._listener.close()
        for inlet in self._inlets.values():
            inlet.socket.close()
