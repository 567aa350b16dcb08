"""Reads lines from the feeder's socket, for engines that have no source for that themselves."""

from __future__ import annotations

import socket

RECEIVE_BYTES = 1 << 18


class Lines:
    """A connection to the feeder."""

    def __init__(self, port: int, *, blocking: bool) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setblocking(blocking)
        self._rest = b""

    def read(self) -> list[bytes] | None:
        """Return the whole lines that have come: none if there are none yet, None at the end."""
        try:
            data = self._socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return []
        if not data:
            return None
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        return lines

    def close(self) -> None:
        self._socket.close()
