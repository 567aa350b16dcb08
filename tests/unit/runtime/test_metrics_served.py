"""Metrics to InfluxDB and for Prometheus, and the exporter that feeds them: answers, limits, credentials."""

from __future__ import annotations

import http.client
import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from time import monotonic

import msgspec
import pytest
from test_metrics_out import (
    SECRET,
    eventually,
    exposition,
    snapshot,
    status,
)

import penstock as ps
from penstock.control.monitor import Status
from penstock.errors import InvalidOption, PortOccupied
from penstock.metrics import Histogram
from penstock.pipeline.outlets import InfluxOutlet, PrometheusOutlet, read_outlets
from penstock.runtime.job import plan_of
from penstock.runtime.metrics_out import exporter, prometheus
from penstock.runtime.metrics_out.exporter import Exporter
from penstock.runtime.metrics_out.feeder import OutletFailed
from penstock.runtime.metrics_out.files import Line
from penstock.runtime.metrics_out.influx import InfluxWriter, credentials, lines_of
from penstock.runtime.metrics_out.processes import Meter
from penstock.runtime.metrics_out.prometheus import Endpoint
from penstock.runtime.metrics_out.samples import OutletFigures
from waiting import WAIT_S

# --- InfluxDB ---------------------------------------------------------------------------------------------------------


@contextmanager
def server(status_code: int, said: str = "") -> Iterator[tuple[InfluxOutlet, list[tuple[str, str | None, bytes]]]]:
    """A server that answers every POST alike and remembers what came."""
    got: list[tuple[str, str | None, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.path, self.headers["Authorization"], body))
            self.send_response(status_code)
            self.send_header("Content-Length", str(len(said)))
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.end_headers()
            self.wfile.write(said.encode())

        def log_message(self, *_: object) -> None:
            pass

    listening = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield InfluxOutlet(False, "127.0.0.1", listening.server_port, "", "mydb"), got
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()


def test_credentials_go_into_the_header_alone() -> None:
    with server(204) as (outlet, got):
        for environment in ({}, {"PENSTOCK_INFLUX_TOKEN": SECRET}, {"PENSTOCK_INFLUX_USER": "me"}):
            writer = InfluxWriter(outlet, environment)
            writer.write(snapshot())
            writer.close()
    assert [each[0] for each in got] == ["/write?db=mydb&precision=u"] * 3
    assert [each[1] for each in got] == [None, f"Token {SECRET}", "Basic bWU6"]
    assert all(SECRET.encode() not in each[2] for each in got)
    assert all(each[2] == lines_of(snapshot()) for each in got)


@pytest.mark.parametrize(("code", "again"), [(400, False), (401, False), (404, False), (307, False), (503, True)])
def test_answers_of_a_server_that_does_not_take_it(code: int, again: bool) -> None:
    with server(code, f"you said Token {SECRET}, " + "x" * 100_000) as (outlet, got):
        writer = InfluxWriter(outlet, {"PENSTOCK_INFLUX_TOKEN": SECRET})
        with pytest.raises(OutletFailed) as raised:
            writer.write(snapshot())
        writer.close()
    assert raised.value.again is again
    assert str(raised.value).startswith(f"HTTP {code} you said Token …")
    assert len(str(raised.value)) <= 200
    assert len(got) == 1  # no redirection is followed


def test_a_server_that_is_not_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        writer = InfluxWriter(InfluxOutlet(False, "127.0.0.1", taken.getsockname()[1], "", "db"), {})
        with pytest.raises(OutletFailed, match="refused") as raised:
            writer.write(snapshot())
    assert raised.value.again


def test_credentials_that_would_break_the_header_are_refused_and_not_shown() -> None:
    with pytest.raises(InvalidOption, match="printable") as raised:
        credentials({"PENSTOCK_INFLUX_TOKEN": f"{SECRET}\r\nX: y"})
    assert SECRET not in str(raised.value)


# --- Prometheus -------------------------------------------------------------------------------------------------------


@contextmanager
def endpoint() -> Iterator[Endpoint]:
    one = Endpoint(PrometheusOutlet("127.0.0.1", 0))
    try:
        yield one
    finally:
        one.close(monotonic())


def ask(port: int, method: str = "GET", path: str = "/metrics") -> tuple[int, bytes, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    connection.request(method, path)
    answer = connection.getresponse()
    found = answer.status, answer.read(), answer.headers["Content-Type"]
    connection.close()
    return found


def test_the_endpoint_serves_the_last_snapshot() -> None:
    with endpoint() as one:
        assert ask(one.port)[:2] == (200, b"")
        one.offer(snapshot())
        assert ask(one.port) == (200, exposition(snapshot()), "text/plain; version=0.0.4; charset=utf-8")
        assert ask(one.port, path="/metrics?x=1")[0] == 200
        eventually(lambda: one.figures.sent == 3)


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/", 404),
        ("GET", "/metrics/../etc/passwd", 404),
        ("GET", "/metricsx", 404),
        ("POST", "/metrics", 405),
        ("PUT", "/metrics", 405),
        ("DELETE", "/metrics", 405),
        ("HEAD", "/metrics", 405),
        ("BREW", "/metrics", 405),
    ],
)
def test_nothing_but_get_metrics(method: str, path: str, code: int) -> None:
    with endpoint() as one:
        one.offer(snapshot())
        found, body, _ = ask(one.port, method, path)
    assert found == code
    assert b"penstock_" not in body


def test_the_endpoint_listens_on_loopback_unless_told_otherwise() -> None:
    (outlet,) = read_outlets("prometheus:0")
    one = Endpoint(outlet)
    try:
        assert one.figures.outlet == f"prometheus:127.0.0.1:{one.port}"
    finally:
        one.close(monotonic())


def answers(port: int) -> bool:
    try:
        return ask(port)[0] == 200
    except OSError:
        return False


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)


def test_more_requests_than_a_few_at_a_time_are_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus._Handler, "timeout", WAIT_S)
    with endpoint() as one:
        held = [connected(one.port) for _ in range(prometheus.REQUESTS_MAX)]
        for _ in range(3):
            with connected(one.port) as more:
                assert more.recv(1) == b"", "cut off, without an answer"
        assert one.figures.dropped == 3
        for each in held:
            each.close()
        eventually(lambda: answers(one.port))


def test_a_silent_request_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus._Handler, "timeout", 0.01)
    with endpoint() as one:
        with connected(one.port) as silent:
            assert silent.recv(1) == b""
        eventually(lambda: one.figures.failed == 1)


def test_a_port_in_use_is_refused_before_anything_starts() -> None:
    numbers = ps.stream("numbers", ps.records([(1,)], schema="n bigint"))
    others = set(threading.enumerate())  # of endpoints that other tests have just closed
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortOccupied, match=f"127.0.0.1:{port}"):
            ps.start(numbers.to(ps.memory()), metrics=["prometheus:0", f"prometheus:{port}"])
    assert not [each for each in set(threading.enumerate()) - others if each.name == "penstock-prometheus"]


def test_a_host_that_is_not_ours() -> None:
    with pytest.raises(InvalidOption, match="a host of this machine"):
        Endpoint(PrometheusOutlet("no-such-host.invalid", 0))


# --- the exporter -----------------------------------------------------------------------------------------------------


def test_the_exporter_samples_until_the_end_and_survives_a_failing_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "SAMPLE_S", 0.01)
    numbers = ps.stream("numbers", ps.records([(1,)], schema="n bigint"))
    path = tmp_path / "run.jsonl"
    one = Exporter(plan_of(numbers.to(ps.memory()), name="ads", metrics=f"file:{path}"))
    calls = 0

    def figures() -> Status:
        nonlocal calls
        calls += 1
        if calls <= 2:
            raise ValueError("not yet")
        return status(at_us=calls, phase="ended" if calls > 5 else "running")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ResourceWarning)  # for what other tests have left behind
        one.start(figures, Histogram)
        eventually(lambda: calls > 6)
        one.close()
    lines = [msgspec.json.decode(line, type=Line) for line in path.read_bytes().splitlines()]
    assert [line.at_us for line in lines] == list(range(3, calls + 1))
    assert {line.run for line in lines} == {one.run}
    assert {p.tags["process"] for p in lines[0].points if p.measurement == "process"} >= {"worker-0", "driver"}
    assert ["no sample could be taken" in str(each.message) for each in caught] == [True]
    assert one.figures == [OutletFigures(f"file:{path}", sent=calls - 2)]


def test_two_runs_have_two_names() -> None:
    numbers = ps.stream("numbers", ps.records([(1,)], schema="n bigint"))
    plan = plan_of(numbers.to(ps.memory()), name="ads")
    assert Exporter(plan).run != Exporter(plan).run


def test_slots_are_read_together_and_never_fall() -> None:
    import os

    meter = Meter(local=True)
    busy = [{p.name: p for p in meter.read(status(slots=pids))}["slots"] for pids in ([os.getpid()], [], [2**30])]
    assert [each.cpu_s for each in busy] == [0.0, 0.0, 0.0]
    assert busy[0].rss_bytes > 0 == busy[1].rss_bytes
    assert "slots" not in {p.name for p in Meter(local=False).read(status(slots=[1]))}
