"""The thread that samples a running job and hands the samples to every place; the job handle owns it."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from time import monotonic
from typing import Protocol

from penstock.control.monitor import Status
from penstock.metrics import Histogram
from penstock.pipeline.outlets import FileOutlet, InfluxOutlet, Outlet, PrometheusOutlet
from penstock.pipeline.plan import Plan
from penstock.runtime.metrics_out.feeder import Feeder, warn
from penstock.runtime.metrics_out.files import FileWriter
from penstock.runtime.metrics_out.influx import InfluxWriter
from penstock.runtime.metrics_out.processes import Meter
from penstock.runtime.metrics_out.prometheus import Endpoint
from penstock.runtime.metrics_out.samples import Layout, OutletFigures, Sampler, Snapshot, Tags

SAMPLE_S = 0.5
"""As often as workers send their figures."""
CLOSE_S_MAX = 3.0
"""How long the end of a job waits for places that are slow to take the last samples."""


class Place(Protocol):
    """Takes snapshots without ever blocking."""

    figures: OutletFigures

    def offer(self, snapshot: Snapshot) -> None:
        """Take one."""

    def close(self, deadline_s: float) -> None:
        """Finish until this moment of the monotonic clock."""


class Exporter:
    """Samples a job for as long as it runs; does nothing where no metrics are wanted.

    Made before Spark starts, so that a port in use or a file that cannot be written is refused at once.
    """

    def __init__(self, plan: Plan) -> None:
        name = plan.options.name
        self.run = f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
        self._sampler = Sampler(Tags(name, self.run, version("penstock")), Layout.of(plan))
        self._meter = Meter(local=plan.options.master.startswith("local"))
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._places: list[Place] = []
        try:
            for outlet in plan.options.metrics:
                self._places.append(_open(outlet))
        except BaseException:
            self.close()
            raise

    @property
    def figures(self) -> list[OutletFigures]:
        """How each place fares, in the order given."""
        return [each.figures for each in self._places]

    def start(self, status: Callable[[], Status], latency_us: Callable[[], Histogram]) -> None:
        """Begin to sample a driver by its own methods, in a thread beside it."""
        if self._places:
            self._thread = threading.Thread(
                target=self._run, args=(status, latency_us), name="penstock-metrics", daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        """Take a last sample, hand over what waits for a bounded time, and let go of files and sockets."""
        deadline_s = monotonic() + CLOSE_S_MAX
        self._ending.set()
        if self._thread is not None:
            self._thread.join(CLOSE_S_MAX)
        for each in self._places:
            each.close(deadline_s)

    def _run(self, status: Callable[[], Status], latency_us: Callable[[], Histogram]) -> None:
        warned = False
        ended = False
        next_s = monotonic()
        while not ended:
            next_s = max(next_s + SAMPLE_S, monotonic())
            ended = self._ending.wait(next_s - monotonic())
            try:
                now = status()
                snapshot = self._sampler.take(now, latency_us(), self._meter.read(now), self.figures)
            except Exception as error:  # whatever it is, the job does not hang on its metrics
                if not warned:
                    warned = True
                    warn(f"no sample could be taken: {error!r}. The job goes on.")
                continue
            for each in self._places:
                each.offer(snapshot)


def _open(outlet: Outlet) -> Place:
    match outlet:
        case FileOutlet():
            return Feeder(str(outlet), FileWriter(outlet))
        case PrometheusOutlet():
            return Endpoint(outlet)
        case InfluxOutlet():
            return Feeder(str(outlet), InfluxWriter(outlet))
