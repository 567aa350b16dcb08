"""Metrics for Prometheus: the client library writes the text and serves it, to GET /metrics and to a few at a time."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.errors import InvalidOption, PortOccupied
from penstock.pipeline.outlets import PrometheusOutlet
from penstock.runtime.metrics_out.catalogue import LATENCY, LATENCY_HELP, METRICS
from penstock.runtime.metrics_out.samples import BOUNDS_US, OutletFigures, Snapshot

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

SILENCE_S_MAX = 5.0
"""How long a request may keep silent before it is cut."""
REQUESTS_MAX = 8
"""Requests that are answered at the same time; who comes in addition is sent away."""


class Collected(Collector):
    """The last snapshot, as the library's metrics."""

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None

    def collect(self) -> Iterator[Metric]:
        """Turn it into one metric after another, those without a sample left out."""
        if (snapshot := self.snapshot) is None:
            return
        tags = snapshot.tags
        common = {"job": tags.job, "run": tags.run, "engine": tags.engine, "version": tags.version}
        for each in METRICS:
            points = [p for p in snapshot.points if p.measurement == each.measurement and each.field in p.fields]
            # The library puts the "_total" of counters back.
            metric = Metric(each.name.removesuffix("_total"), each.help, each.kind.value)
            for point in points:
                metric.add_sample(each.name, {**common, **point.tags}, point.fields[each.field])
            if points:
                yield metric
        latency = snapshot.latency
        bounds = [*(repr(bound_us / 1e6) for bound_us in BOUNDS_US), "+Inf"]
        histogram = HistogramMetricFamily(LATENCY, LATENCY_HELP, labels=list(common))
        histogram.add_metric(
            list(common.values()), list(zip(bounds, [*latency.counts, latency.total], strict=True)), latency.sum_s
        )
        yield histogram


class _Handler(WSGIRequestHandler):
    timeout = SILENCE_S_MAX

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are counted, not logged."""


class _Server(ThreadingWSGIServer):
    """The library's server with a bound on requests, which it counts."""

    request_queue_size = 2 * REQUESTS_MAX

    def __init__(self, address: tuple[str, int], family: socket.AddressFamily, figures: OutletFigures) -> None:
        self.address_family = family
        self.collected = Collected()
        self._figures = figures
        self._counting = threading.Lock()
        self._free = threading.BoundedSemaphore(REQUESTS_MAX)
        registry = CollectorRegistry()
        registry.register(self.collected)
        self._metrics = make_wsgi_app(registry)
        super().__init__(address, _Handler)
        self.set_app(self._answer)

    def _answer(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] != "/metrics":
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [b"only /metrics is here\n"]
        body: Iterable[bytes] = self._metrics(environ, start_response)
        if environ["REQUEST_METHOD"] == "GET":
            self._count(sent=1)
        return body

    def _count(self, sent: int = 0, failed: int = 0, dropped: int = 0) -> None:
        with self._counting:
            self._figures.sent += sent
            self._figures.failed += failed
            self._figures.dropped += dropped

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self._count(dropped=1)
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        self._count(failed=1)  # they went, or fell silent, before they had their answer


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
        self._server.collected.snapshot = snapshot

    def close(self, deadline_s: float) -> None:
        """Stop to listen."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
