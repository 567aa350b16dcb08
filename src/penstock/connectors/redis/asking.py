"""Asks a server for many keys in one message; lookups do. Redis's protocol as far as that needs it.

The client library packs and reads every command by itself, with options, callbacks and a pool around it: ten times what
the message costs. It still opens the connection, with its passwords and its TLS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.connectors.redis.link import Place, driver

RECEIVE_BYTES = 1 << 16
_END = b"\r\n"
Reply = bytes | int | None | list[Any]


def texts(names: Sequence[bytes]) -> bytes:
    """Pack arguments of a command."""
    return b"".join([b"$%d\r\n%b\r\n" % (len(name), name) for name in names])


def get_many(names: Sequence[bytes]) -> tuple[bytes, int]:
    """The message that asks for strings, and how many answers it has."""
    return b"*%d\r\n$4\r\nMGET\r\n%b" % (len(names) + 1, texts(names)), 1


def get_fields(fields: Sequence[str]) -> Callable[[Sequence[bytes]], tuple[bytes, int]]:
    """Return what makes the message that asks for fields of hashes, one command for each."""
    head, tail = b"*%d\r\n$5\r\nHMGET\r\n" % (len(fields) + 2), texts([each.encode() for each in fields])

    def message(names: Sequence[bytes]) -> tuple[bytes, int]:
        return b"".join([b"%b$%d\r\n%b\r\n%b" % (head, len(name), name, tail) for name in names]), len(names)

    return message


class Replies:
    """Reads answers off a stream of bytes.

    Parameters
    ----------
    receive : callable
        Waits for some more bytes; none at the end.
    """

    def __init__(self, receive: Callable[[int], bytes]) -> None:
        self._receive = receive
        self._data = b""
        self._at = 0

    def take(self, count: int) -> list[Reply]:
        """Read so many answers; what a server refuses is an error of the client library."""
        found = self._some(count)
        self._data, self._at = self._data[self._at :], 0
        return found

    def _more(self) -> None:
        data = self._receive(RECEIVE_BYTES)
        if not data:
            raise driver().ConnectionError("the server has closed the connection")
        self._data, self._at = self._data[self._at :] + data, 0

    def _some(self, count: int) -> list[Reply]:
        found: list[Reply] = []
        data, at = self._data, self._at
        while len(found) < count:
            end = data.find(_END, at)
            kind = data[at : at + 1]
            if end >= 0 and kind == b"$":  # nearly all are: no call for them
                size = int(data[at + 1 : end])
                if size < 0:
                    found.append(None)
                    at = end + 2
                    continue
                if len(data) >= end + size + 4:
                    found.append(data[end + 2 : end + 2 + size])
                    at = end + size + 4
                    continue
            elif end >= 0:
                self._data, self._at = data, end + 2
                found.append(self._other(kind, data[at + 1 : end]))
                data, at = self._data, self._at
                continue
            self._at = at
            self._more()
            data, at = self._data, self._at
        self._data, self._at = data, at
        return found

    def _other(self, kind: bytes, text: bytes) -> Reply:
        match kind:
            case b"*":
                return None if int(text) < 0 else self._some(int(text))
            case b"+":
                return text
            case b":":
                return int(text)
            case b"-":
                raise _refused(text.decode(errors="replace"))
            case _:
                raise driver().InvalidResponse(f"the server has answered {kind!r}")


def _refused(text: str) -> Exception:
    redis = driver()
    kinds = {"LOADING": redis.BusyLoadingError, "NOAUTH": redis.AuthenticationError}
    kind = kinds.get(text.partition(" ")[0], redis.ResponseError)
    error: Exception = kind(text)
    return error


class Line:
    """A connection of its own to a server, opened when it is first needed, and again after an error."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._client: Any = None
        self._connection: Any = None
        self._replies: Replies | None = None

    def ask(self, message: bytes, count: int) -> list[Reply]:
        """Send a message and return its answers; raises errors of the client library."""
        redis = driver()
        try:
            if self._replies is None:
                self._open()
            assert self._replies is not None
            self._connection.send_packed_command([message])
            return self._replies.take(count)
        except TimeoutError:
            self._drop()
            raise redis.TimeoutError("the server does not answer") from None
        except OSError as error:
            self._drop()
            raise redis.ConnectionError(str(error)) from None
        except BaseException:
            self._drop()  # what is left of the answers belongs to nobody
            raise

    def _open(self) -> None:
        if self._client is None:
            self._client = self._place.client(protocol=2)
        self._connection = self._client.connection_pool.get_connection()
        self._connection.connect()
        self._replies = Replies(self._connection._sock.recv)

    def _drop(self) -> None:
        self._replies = None
        if self._connection is not None:
            self._connection.disconnect()
            self._client.connection_pool.release(self._connection)
            self._connection = None
