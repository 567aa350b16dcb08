"""Alternatives are exchanged on real Spark, through the control channel, while a worker dies and a service is away."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner

import penstock as ps
from penstock.cli import app
from penstock_bench.meter.job import read_rows

pytestmark = pytest.mark.spark

Eventually = Callable[[Callable[[], object]], None]
SCHEMA = "seq bigint, by string"


def events(rate: float) -> ps.Stream:
    return ps.stream("in", ps.generator({"seq": ps.fields.sequence()}, rate=rate, format="columns"))


def by_exact(r: object) -> object:
    return r.seq, "exact"  # type: ignore[attr-defined]


def by_fast(r: object) -> object:
    return r.seq, "fast"  # type: ignore[attr-defined]


def is_exact(out: Path, offsets: list[int]) -> bool:
    """Whether every record that was read is there once: partitions take turns in the numbers."""
    parts = len(offsets)
    given = [number for at, read in enumerate(offsets) for number in range(at, at + parts * read, parts)]
    return sorted(row["seq"] for row in read_rows(out)) == sorted(given)


def test_exchanges_from_another_terminal_while_a_worker_dies(tmp_path: Path, eventually: Eventually) -> None:
    out = tmp_path / "out"
    stream = events(2_000).alternatives(
        "score", exact=lambda s: s.map(by_exact, schema=SCHEMA), fast=lambda s: s.map(by_fast, schema=SCHEMA)
    )
    run = CliRunner()
    with ps.start(stream.to(ps.files(out)), name="exchanged", parallelism=2, forms="record") as job:
        eventually(lambda: job.status().epoch >= 1)
        refused = run.invoke(app, ["use", "exchanged", "score", "fsat"])
        assert refused.exit_code == 2
        assert "Did you mean 'fast'?" in refused.output
        for number in range(10):
            name = ("fast", "exact")[number % 2]
            told = run.invoke(app, ["use", "exchanged", "score", name])
            assert told.output == f"'score' uses '{name}' from here on\n"
            eventually(lambda n=number: len(job.adaptation().switches) == n + 1)
            if number == 4:
                os.kill(job.status().workers[1].pid, signal.SIGKILL)
                eventually(lambda: job.status().recoveries == 1)
        assert run.invoke(app, ["use", "exchanged", "score", "fast"]).exit_code == 0
        eventually(lambda: job.status().alternatives["score"].active == "fast")
        assert run.invoke(app, ["stop", "exchanged"]).exit_code == 0
        report = job.wait()
    assert report is not None
    assert (report.lost, report.duplicated, report.reordered) == (0, 0, 0)
    assert is_exact(out, report.offsets["in"])
    assert {row["by"] for row in read_rows(out)} == {"exact", "fast"}
    assert report.adaptation is not None
    actions = [(each.by.split(", ")[1], each.what) for each in report.adaptation.actions]
    assert actions[0] == (f"process {os.getpid()}", "score: use fast")
    assert actions[-1][1] == "finish and end"


class Service:
    """A scoring service over HTTP that can be taken away."""

    def __init__(self) -> None:
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200 if service.is_up else 503)
                self.end_headers()
                self.wfile.write(b"remote")

            def log_message(self, *_: object) -> None:
                pass

        self.is_up = True
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    yield made
    made.close()


class Ask:
    """Calls the service for each record."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self, r: object) -> object:
        with urlopen(self._url, timeout=60) as answer:
            return r.seq, answer.read().decode()  # type: ignore[attr-defined]


def test_a_service_that_goes_away_gives_way_and_comes_back(
    tmp_path: Path, service: Service, eventually: Eventually
) -> None:
    out = tmp_path / "out"
    stream = events(50).alternatives(
        "score",
        remote=lambda s: s.map(Ask(service.url), schema=SCHEMA),
        local=lambda s: s.map(by_fast, schema=SCHEMA),
        prefer=["remote", "local"],
    )
    with ps.start(stream.to(ps.files(out)), name="remote", parallelism=1, forms="record") as job:
        eventually(lambda: job.status().epoch >= 1)
        service.is_up = False
        eventually(lambda: "remote" in job.status().alternatives["score"].out)
        eventually(lambda: job.status().alternatives["score"].active == "local")
        service.is_up = True
        eventually(lambda: job.status().alternatives["score"].active == "remote")
        seen = job.status().epoch
        eventually(lambda: job.status().epoch >= seen + 2)
        job.drain()
        report = job.wait()
    assert report is not None
    assert is_exact(out, report.offsets["in"])
    assert {row["by"] for row in read_rows(out)} == {"remote", "fast"}
    assert "remote has failed (HTTPError: HTTP Error 503" in report.switches[0].reason
    assert [each.to for each in report.switches][-1] == "remote"
