"""Locks and ports of sources and sinks: a job that cannot have them is refused before Spark starts."""

from __future__ import annotations

import socket
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

import penstock as ps
from penstock.connectors.sse import Sse
from penstock.errors import InvalidOption, PenstockError, PortOccupied, SinkFailed
from penstock.runtime import job as module
from penstock.runtime.job import Job, plan_of
from penstock.testing.servers import free_port

TOKEN = "a token of the test"


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(module, "open_fitted", opened)
    # A port that is taken stays so in a test.
    for name, wait in (("sse", "BIND_S"), ("http", "RESERVE_S"), ("sockets", "RESERVE_S")):
        monkeypatch.setattr(import_module(f"penstock.connectors.{name}"), wait, 0.0)


def numbers() -> ps.Stream:
    return ps.stream("n", ps.records([{"n": 1}], schema="n bigint"))


def pages(port: int, out: Path) -> ps.Pipeline:
    stream = numbers()
    return stream.to(ps.files(out)) + stream.to(ps.sse(port=port, token=TOKEN))


def requests(port: int, out: Path) -> ps.Pipeline:
    return ps.stream("in", ps.http(port=port, spool=out / "spool")).to(ps.files(out))


def packets(port: int, out: Path) -> ps.Pipeline:
    return ps.stream("in", ps.udp_lines(port)).to(ps.files(out))


def refused(pipeline: ps.Pipeline, kind: type[PenstockError]) -> None:
    with pytest.raises(kind):
        Job(plan_of(pipeline, parallelism=1))


@pytest.mark.parametrize("make", [pages, requests, packets])
def test_a_port_that_is_taken_is_refused_before_spark_and_locks_are_given_back(
    make: Callable[[int, Path], ps.Pipeline], tmp_path: Path
) -> None:
    kind = socket.SOCK_DGRAM if make is packets else socket.SOCK_STREAM
    with socket.socket(socket.AF_INET, kind) as holder:
        holder.bind(("127.0.0.1", free_port()))
        if kind is socket.SOCK_STREAM:
            holder.listen()
        port = int(holder.getsockname()[1])
        refused(make(port, tmp_path / "out"), PortOccupied)
    with pytest.raises(AssertionError, match="Spark was started"):
        Job(plan_of(make(port, tmp_path / "out"), parallelism=1))
    sink = ps.sse(port=port, token=TOKEN)
    sink.reserve(is_local=True)  # the job that failed has left the port free
    sink.release()


def test_a_directory_that_another_job_writes_to_is_refused_before_spark(tmp_path: Path) -> None:
    for make in (ps.files, ps.parquet):
        place = tmp_path / make.__name__
        other = make(place)
        other.reserve(is_local=True)
        refused(numbers().to(make(place)), SinkFailed)
        other.release()


def test_only_ports_of_this_machine_are_looked_at_and_others_are_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = int(holder.getsockname()[1])
        ps.http(port=port, spool=tmp_path, token=TOKEN).reserve(is_local=False)
    with pytest.raises(InvalidOption, match="an address of this machine"):
        Sse("192.0.2.1", port, TOKEN, None, 1).claim()
