"""The HTTP source: a small receiver on this machine; lines that are posted are answered when they are on disk."""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import json
import os
import socket
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from penstock.checks import Whole, local_path
from penstock.connectors.base import Position, Run, Source, SourceBatch, Spot
from penstock.connectors.lines_reader import SCHEMA, LinesReader, files_in
from penstock.connectors.ports import bound, check_free, family_of
from penstock.connectors.secrets import Secret
from penstock.connectors.spool import Spool, SpoolFull, check_gap, committed, note_committed
from penstock.connectors.tracking import Entry, entries
from penstock.errors import InvalidOption, TypeMismatch
from penstock.types import Schema

BODY_BYTES_MAX = 8 * 1024 * 1024
REQUESTS_MAX = 64
"""Requests that are handled at once; others are told to come again."""
REQUEST_S = 10.0
BIND_S = 30.0
"""How long the port is waited for, which the process before this one may still hold."""
RESERVE_S = 10.0
"""The same, before the job starts."""
_TOKEN_MIN = 8


class Http(Source):
    """A receiver of lines; build it with :func:`http`."""

    def __init__(self, host: str, port: int, token: str | None, spool: str, bytes_max: int) -> None:
        self._host = host
        self._port = port
        self._token = token
        self._spool = Path(spool)
        self._bytes_max = bytes_max

    @property
    def schema(self) -> Schema:
        return SCHEMA

    @property
    def kind(self) -> str:
        return "http"

    def check(self) -> None:
        above = self._spool.absolute()
        while not above.exists():
            above = above.parent
        if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
            raise InvalidOption(option="spool", given=str(self._spool), allowed="a directory that can be written to")

    def reserve(self, *, is_local: bool) -> None:
        if is_local:
            check_free((self._host, self._port), socket.SOCK_STREAM, RESERVE_S)

    def spots(self, run: Run, indexes: Sequence[int]) -> list[Spot]:
        with contextlib.closing(LinesReader(list, lambda _: False, follow=False)) as reader:
            return reader.spots(run, indexes)

    def resumed(self, positions: Mapping[int, Position]) -> Http:
        for position in positions.values():
            check_gap(self._spool, [each.path for each in files_in(position)])
        return self

    def partitions(self, parallelism: int) -> int:
        del parallelism
        return 1

    def reader(self, partition: int, partitions: int, start_us: int) -> _HttpReader:
        del partition, partitions, start_us
        return _HttpReader(self._host, self._port, self._token, self._spool, self._bytes_max)


class _HttpReader(LinesReader):
    """Reads the spool; the receiver is up from the first poll on."""

    def __init__(self, host: str, port: int, token: str | None, spool: Path, bytes_max: int) -> None:
        super().__init__(self._entries, lambda _: True, follow=True, sized=True)
        self._address = host, port
        self._token = token
        self._directory = spool
        self._bytes_max = bytes_max
        self._spool: Spool | None = None
        self._receiver: _Receiver | None = None
        self._sought = False
        self._closed = False

    def _entries(self) -> list[Entry]:
        return entries(str(self._directory)) if self._spool is None else self._spool.entries()

    def poll(self, now_us: int, records_max: int) -> SourceBatch | None:
        if self._receiver is None and not self._closed:
            self._begin_receiving()
        return super().poll(now_us, records_max)

    def _begin_receiving(self) -> None:
        # Who has the port owns the spool: the process before this one may be writing to it until then.
        address, token = self._address, self._token
        receiver = bound(lambda: _Receiver(address, token), address, BIND_S)
        try:
            self._spool = spool = Spool(self._directory, self._bytes_max)
            before = committed(self._directory)
            if not self._sought and before is not None:
                offset = self.offset
                self.seek(before)
                self.offset = offset
        except BaseException:
            receiver.server_close()
            raise
        receiver.begin(spool)
        self._receiver = receiver

    def seek(self, position: Position) -> None:
        receiver, spool = self._receiver, self._spool
        self._receiver = self._spool = None
        super().seek(position)
        self._receiver, self._spool = receiver, spool
        self._sought, self._closed = True, False

    def committed(self, position: Position) -> None:
        assert isinstance(position, bytes)
        note_committed(self._directory, position)
        for each in files_in(position):
            if each.ended and not each.gone and self._spool is not None:
                self._spool.remove(each.path, each.byte)

    def close(self) -> None:
        if self._receiver is not None:
            self._closed = True
            self._receiver.stop()
            self._receiver = None
        if self._spool is not None:
            self._spool.close()
        super().close()


class _Receiver(ThreadingHTTPServer):
    spool: Spool

    def __init__(self, address: tuple[str, int], token: str | None) -> None:
        self.address_family = family_of(address[0])
        self.token = token
        self.room = threading.BoundedSemaphore(REQUESTS_MAX)
        super().__init__(address, _Request)

    def begin(self, spool: Spool) -> None:
        """Take requests; those that came since the port was bound have waited."""
        self.spool = spool
        threading.Thread(target=self.serve_forever, args=(0.05,), name="penstock-http", daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that went away is its own affair."""

    def stop(self) -> None:
        self.shutdown()
        self.server_close()


class _Request(BaseHTTPRequestHandler):
    server: _Receiver
    protocol_version = "HTTP/1.1"
    server_version = "penstock"
    sys_version = ""
    timeout = REQUEST_S

    def do_POST(self) -> None:
        if not self.server.room.acquire(blocking=False):
            self._answer(503, "too many requests at once", retry=True)
            return
        try:
            self._take()
        finally:
            self.server.room.release()

    def do_GET(self) -> None:
        self._answer(405, "POST lines of JSON")

    do_PUT = do_DELETE = do_HEAD = do_OPTIONS = do_PATCH = do_GET

    def _take(self) -> None:
        if not self._is_allowed():
            return
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or self.headers.get("Transfer-Encoding"):
            self._answer(411, "a Content-Length is needed")
            return
        if self.headers.get("Content-Encoding", "identity") != "identity":
            self._answer(415, "no Content-Encoding is known here")
            return
        bytes_max = min(BODY_BYTES_MAX, self.server.spool.bytes_max // 2)
        if int(length) > bytes_max:
            self._answer(413, f"at most {bytes_max} bytes at once")
            return
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            self.close_connection = True
            return
        lines = b"".join(line.strip() + b"\n" for line in body.split(b"\n") if line.strip())
        try:
            if lines:
                self.server.spool.append(lines)
        except SpoolFull:
            self._answer(429, "the job is behind; come again", retry=True)
        except OSError:
            self._answer(503, "the lines could not be stored", retry=True)
        else:
            self._answer(200, lines=lines.count(b"\n"))

    def _is_allowed(self) -> bool:
        token = self.server.token
        if token is None:
            # A page in a browser could post here, too.
            if self.headers.get("Origin") is not None:
                self._answer(403, "pages may not post here")
                return False
            return True
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode("utf-8", "replace"), token.encode()):
            self._answer(401, "the token is missing or wrong")
            return False
        return True

    def _answer(self, status: int, error: str | None = None, *, retry: bool = False, **more: int) -> None:
        body = json.dumps({"error": error} if error is not None else more).encode() + b"\n"
        if status != 200:
            self.close_connection = True  # the body was not read
        with contextlib.suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            if retry:
                self.send_header("Retry-After", "1")
            if self.close_connection:
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: a line for each request would be a line for each record."""


def http(
    *,
    port: int,
    spool: str | os.PathLike[str],
    token: str | None = None,
    host: str = "127.0.0.1",
    spool_bytes: int = 256 * 1024 * 1024,
) -> Http:
    """Receive lines of JSON over HTTP; ``.parse_json(schema)`` turns them into columns.

    ``POST`` lines to ``http://host:port/``; the answer is 200 when they are on disk: in a file of ``spool``, synced.
    From then on each is read once, also after a crash of the job or the machine; they are lost with the disk. A request
    that got no answer may have been taken, or some lines of it: send it again, and drop duplicates where that matters.
    429 (the job is behind) and 503 (too many requests at once, or the disk is full) mean that nothing was taken; come
    again. One worker listens, on its machine.

    Parameters
    ----------
    port : int
        Where to listen.
    spool : path
        A directory of this source's own. What was received and not committed stays there for the next run.
    token : str
        Requests must have ``Authorization: Bearer <token>``; at least 8 characters.
    host : str
        The address to listen on. Any other than a loopback address needs a token.
    spool_bytes : int
        How much may lie in the spool; more is refused until some of it is committed.

    Examples
    --------
    >>> events = ps.stream("events", ps.http(port=8080, spool="spool", token=TOKEN))   # doctest: +SKIP
    >>> events.parse_json("ad string, at timestamp")                                   # doctest: +SKIP
    """
    try:
        loopback = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host).is_loopback
    except ValueError:
        raise InvalidOption(option="host", given=host, allowed="an IP address, or localhost") from None
    if token is not None and (not isinstance(token, str) or len(token) < _TOKEN_MIN):
        raise InvalidOption(option="token", given="***", allowed=f"a text of at least {_TOKEN_MIN} characters")
    if token is None and not loopback:
        raise InvalidOption(option="host", given=host, allowed="a loopback address, unless there is a token=")
    if not isinstance(spool, str | os.PathLike):
        raise TypeMismatch(what=f"spool={spool!r} is no path.")
    return Http(
        host,
        Whole(1, 65_535).read("port", port),
        None if token is None else Secret(token),
        local_path("spool", os.fspath(spool)),
        Whole(1_024).read("spool_bytes", spool_bytes),
    )
