"""Metrics for Prometheus: text exposition, served to GET /metrics and to nothing else.

The format is a dozen lines, and a server that answers one path, to few at a time and not for long, is needed in any
case: the client library's registry of live objects would only stand between a snapshot and its text.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from penstock.errors import InvalidOption, PortOccupied
from penstock.pipeline.outlets import PrometheusOutlet
from penstock.runtime.metrics_out.catalogue import LATENCY, LATENCY_HELP, METRICS
from penstock.runtime.metrics_out.samples import BOUNDS_US, OutletFigures, Snapshot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
REQUEST_S_MAX = 5.0
REQUESTS_MAX = 8
"""Requests that are answered at the same time; who comes in addition is sent away."""
_ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def exposition(snapshot: Snapshot) -> bytes:
    """Render a snapshot in the text format, version 0.0.4."""
    return "\n".join([*_lines(snapshot), ""]).encode()


def _lines(snapshot: Snapshot) -> Iterator[str]:
    tags = snapshot.tags
    common = [("job", tags.job), ("run", tags.run), ("engine", tags.engine), ("version", tags.version)]
    for metric in METRICS:
        points = [p for p in snapshot.points if p.measurement == metric.measurement and metric.field in p.fields]
        if not points:
            continue
        yield f"# HELP {metric.name} {metric.help}"
        yield f"# TYPE {metric.name} {metric.kind.value}"
        for point in points:
            yield f"{metric.name}{_labels([*common, *point.tags.items()])} {point.fields[metric.field]!r}"
    latency = snapshot.latency
    yield f"# HELP {LATENCY} {LATENCY_HELP}"
    yield f"# TYPE {LATENCY} histogram"
    bounds = [*(repr(bound_us / 1e6) for bound_us in BOUNDS_US), "+Inf"]
    for bound, count in zip(bounds, [*latency.counts, latency.total], strict=True):
        yield f"{LATENCY}_bucket{_labels([*common, ('le', bound)])} {count}"
    yield f"{LATENCY}_sum{_labels(common)} {latency.sum_s!r}"
    yield f"{LATENCY}_count{_labels(common)} {latency.total}"


def _labels(pairs: Iterable[tuple[str, str]]) -> str:
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in pairs) + "}"


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.0"
    server_version = "penstock"
    sys_version = ""
    timeout = REQUEST_S_MAX

    def setup(self) -> None:
        super().setup()
        # The timeout above is one of silence; this one is for those who speak slowly.
        self._limit = threading.Timer(self.server.request_s_max, self._cut)
        self._limit.daemon = True
        self._limit.start()

    def _cut(self) -> None:
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def finish(self) -> None:
        self._limit.cancel()
        try:
            super().finish()
        except OSError:
            pass  # they have gone

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self._answer(HTTPStatus.NOT_FOUND, b"only /metrics is here\n")
            return
        snapshot = self.server.snapshot
        body = exposition(snapshot) if snapshot is not None else b""
        self._answer(HTTPStatus.OK, body, CONTENT_TYPE)
        self.server.count(sent=1)

    def _refuse(self) -> None:
        self._answer(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET is allowed\n")

    do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = do_OPTIONS = _refuse

    def _answer(self, status: HTTPStatus, body: bytes, content_type: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are counted, not logged."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 16

    def __init__(self, address: tuple[str, int], family: socket.AddressFamily, figures: OutletFigures) -> None:
        self.address_family = family
        self.snapshot: Snapshot | None = None
        self.figures = figures
        self.request_s_max = REQUEST_S_MAX
        self._free = threading.BoundedSemaphore(REQUESTS_MAX)
        self._counting = threading.Lock()
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # The library's own would ask for the host's name, which may take long where there is no name server.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def count(self, sent: int = 0, failed: int = 0, dropped: int = 0) -> None:
        """Count what became of a request; several threads do."""
        with self._counting:
            self.figures.sent += sent
            self.figures.failed += failed
            self.figures.dropped += dropped

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.count(dropped=1)
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        self.count(failed=1)  # they went before they had their answer


class Endpoint:
    """The address that Prometheus scrapes; it holds the last snapshot."""

    def __init__(self, outlet: PrometheusOutlet) -> None:
        try:
            family, *_, address = socket.getaddrinfo(outlet.host, outlet.port, type=socket.SOCK_STREAM)[0]
            figures = OutletFigures(str(outlet))
            self._server = _Server((str(address[0]), int(address[1])), family, figures)
        except socket.gaierror:
            allowed = "a host of this machine"
            raise InvalidOption(option="metrics", given=str(outlet), allowed=allowed) from None
        except OSError as error:
            if isinstance(error, PermissionError):
                allowed = "a port that may be listened on"
                raise InvalidOption(option="metrics", given=str(outlet), allowed=allowed) from None
            raise PortOccupied(address=f"{outlet.host}:{outlet.port}") from None
        self.figures = figures
        self.port = self._server.server_port
        figures.outlet = str(PrometheusOutlet(outlet.host, self.port))
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="penstock-prometheus", daemon=True
        )
        self._thread.start()

    def offer(self, snapshot: Snapshot) -> None:
        """Serve this one from now on."""
        self._server.snapshot = snapshot

    def close(self, deadline_s: float) -> None:
        """Stop to listen."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
