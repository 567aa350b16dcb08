"""The sink for pages: committed rows as server-sent events on this machine. A view, not a record: it never waits."""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import os
import threading
from collections import deque
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from penstock.checks import Whole
from penstock.connectors.base import Sink, SinkWriter, WriterContext
from penstock.connectors.buffered import DeliveringWriter
from penstock.connectors.plain import check_json
from penstock.connectors.ports import bound, family_of
from penstock.connectors.secrets import Secret
from penstock.connectors.texts import json_writer
from penstock.errors import InvalidOption, TypeMismatch
from penstock.types import Record, Schema, TypeKind

CLIENTS_MAX = 64
BEHIND_ROWS_MAX = 10_000
"""A page that is further behind loses the oldest rows, and is told how many."""
ALIVE_S = 10.0
"""A page that has nothing to get hears from us so often, so that both sides notice when the other one is gone."""
SEND_S = 10.0
TAKE_ROWS = 500
BIND_S = 3.0
"""How long the port is waited for, which a run before this one may still hold."""
_TOKEN_MIN = 8
_PAGE = Path(__file__).with_name("sse.html")


class Feed:
    """The newest rows, numbered, and who waits for more; the job puts rows in, a thread for each page takes them."""

    def __init__(self, rows_max: int) -> None:
        self._rows: deque[bytes] = deque(maxlen=max(rows_max, BEHIND_ROWS_MAX))
        self._history = rows_max
        self._end = 0
        self._changed = threading.Condition()
        self._closed = False

    def put(self, rows: list[bytes]) -> None:
        """Add rows; nobody is waited for."""
        with self._changed:
            self._rows.extend(rows)
            self._end += len(rows)
            self._changed.notify_all()

    def close(self) -> None:
        """Let everybody go."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def begin(self, after: int | None) -> int:
        """The number of the first row for a page: behind the last one it had, or some of the newest."""
        with self._changed:
            if after is not None and after < self._end:
                return after + 1
            return max(0, self._end - min(self._history, len(self._rows)))

    def take(self, first: int, timeout_s: float) -> tuple[int, list[bytes]] | None:
        """Wait for rows from a number on; return the first that there is, and some; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._end > first, timeout_s)
            if self._end <= first:
                return None if self._closed else (first, [])
            oldest = self._end - len(self._rows)
            first = max(first, oldest)
            at = first - oldest
            return first, [self._rows[i] for i in range(at, min(at + TAKE_ROWS, len(self._rows)))]


class _Server(ThreadingHTTPServer):
    def __init__(self, address: tuple[str, int], token: str, page: bytes, feed: Feed) -> None:
        self.address_family = family_of(address[0])
        self.token, self.page, self.feed = token, page, feed
        self.room = threading.BoundedSemaphore(CLIENTS_MAX)
        super().__init__(address, _Request)
        threading.Thread(target=self.serve_forever, args=(0.05,), name="penstock-sse", daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a page that went away is its own affair."""

    def stop(self) -> None:
        self.feed.close()
        self.shutdown()
        self.server_close()


class _Request(BaseHTTPRequestHandler):
    server: _Server
    server_version = "penstock"
    sys_version = ""
    timeout = SEND_S

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        asked = parse_qs(parts.query).get("token", [""])[0]
        given = self.headers.get("Authorization", "").removeprefix("Bearer ") or asked
        if not hmac.compare_digest(given.encode("utf-8", "replace"), self.server.token.encode()):
            self._answer(401, b"the token is missing or wrong\n")
        elif parts.path == "/":
            self._answer(200, self.server.page, "text/html; charset=utf-8")
        elif parts.path != "/events":
            self._answer(404, b"there are / and /events\n")
        elif not self.server.room.acquire(blocking=False):
            self._answer(503, b"too many pages at once\n")
        else:
            try:
                with contextlib.suppress(OSError):
                    self._stream()
            finally:
                self.server.room.release()

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        # Whoever has the token may read, from whichever page.
        self.send_header("Access-Control-Allow-Origin", "*")
        self.end_headers()
        for piece in events(self.server.feed, self.headers.get("Last-Event-ID")):
            self.wfile.write(piece)

    def _answer(self, status: int, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
        with contextlib.suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Referrer-Policy", "no-referrer")  # the token may be in the address
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the token is in the addresses."""


def events(feed: Feed, last: str | None, alive_s: float = ALIVE_S) -> Iterator[bytes]:
    """Make the stream of one page: rows with their numbers, how many were lost, and a sign of life now and then."""
    wanted = feed.begin(int(last) if last is not None and last.isdecimal() else None)
    while (taken := feed.take(wanted, alive_s)) is not None:
        first, rows = taken
        lost = b"event: lost\ndata: %d\n\n" % (first - wanted) if first > wanted else b""
        told = b"".join(b"id: %d\ndata: %b\n\n" % pair for pair in enumerate(rows, start=first))
        wanted = first + len(rows)
        yield lost + told if rows else b": still here\n\n"


class Sse(Sink):
    """A sink for pages; build it with :func:`sse`."""

    def __init__(self, host: str, port: int, token: str, page: Path | None, history: int) -> None:
        self._host, self._port, self._token, self._page, self._history = host, port, token, page, history
        self._server: _Server | None = None
        self._encode: Any = None

    def __getstate__(self) -> dict[str, Any]:
        # Workers serve nobody, and need not know the token.
        return {**self.__dict__, "_server": None, "_encode": None, "_token": ""}

    @property
    def kind(self) -> str:
        return "sse"

    @property
    def place(self) -> str:
        return f"http://{self._host}:{self._port}"

    def check(self, schema: Schema) -> None:
        check_json(schema)
        binary = [each.name for each in schema.fields if each.type.kind is TypeKind.BINARY]
        if binary:
            raise TypeMismatch(what=f"column '{binary[0]}' is binary, which JSON cannot hold.")

    def reserve(self, *, is_local: bool) -> None:
        del is_local  # the driver serves
        if self._server is None:
            page, address = (self._page or _PAGE).read_bytes(), (self._host, self._port)
            self._server = bound(lambda: _Server(address, self._token, page, Feed(self._history)), address, BIND_S)

    def claim(self) -> None:
        self.reserve(is_local=True)

    def release(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None

    def writer(self, schema: Schema, context: WriterContext) -> SinkWriter:
        del context
        return DeliveringWriter(schema)

    def deliver(self, rows: list[Record], schema: Schema) -> None:
        if self._server is not None:
            if self._encode is None:
                self._encode = json_writer(schema)
            self._server.feed.put([self._encode(row) for row in rows[-BEHIND_ROWS_MAX:]])


def sse(
    *, port: int, token: str, host: str = "127.0.0.1", page: str | os.PathLike[str] | None = None, history: int = 100
) -> Sse:
    """Show committed rows to pages, as server-sent events.

    ``http://host:port/events?token=…`` is for ``EventSource``: each row is a JSON object with a number. The address
    without ``/events`` shows a page. It is a view with best effort: a page that is over 10,000 rows behind loses the
    oldest (and gets an event ``lost`` with their number), and nobody waits for pages. Keep what counts in another sink.

    Parameters
    ----------
    port : int
        Where the driver listens while the job runs.
    token : str
        At least 8 characters; pages have to send it, as ``?token=`` or as ``Authorization: Bearer``.
    host : str
        An address of this machine; loopback unless it is given. There is no TLS: put a proxy before it.
    page : path, optional
        A file of HTML to show instead of the built-in table.
    history : int
        How many of the newest rows a new page gets first.

    Examples
    --------
    >>> import penstock as ps
    >>> counts = ps.stream("n", ps.records([{"n": 1}], schema="n bigint"))
    >>> pipeline = counts.to(ps.sse(port=8090, token="a-secret-of-mine"))
    """
    if not isinstance(token, str) or len(token) < _TOKEN_MIN:
        raise InvalidOption(option="token", given="…", allowed=f"at least {_TOKEN_MIN} characters")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise InvalidOption(option="host", given=host, allowed="an address such as '127.0.0.1'") from None
    path = None if page is None else Path(page)
    if path is not None and not path.is_file():
        raise InvalidOption(option="page", given=str(path), allowed="a file of HTML")
    whole = Whole(0, 1_000_000).read("history", history)
    return Sse(host, Whole(1, 65_535).read("port", port), Secret(token), path, whole)
