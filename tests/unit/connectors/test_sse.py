"""Rows for pages: what a page gets, what it loses when it is behind, and who gets nothing."""

from __future__ import annotations

import http.client
import pickle
import socket
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.connectors.base import WriterContext
from penstock.connectors.sse import Feed, Sse, events
from penstock.errors import InvalidOption, PortOccupied, TypeMismatch
from penstock.testing.servers import free_port
from penstock.types import Schema
from waiting import WAIT_S

module = import_module("penstock.connectors.sse")  # the package has the function under this name
SCHEMA = Schema.parse("n bigint, at timestamp")
TOKEN = "a token of the test"


def rows(*numbers: int) -> list[Any]:
    return [SCHEMA.record_type(n, 0) for n in numbers]


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def sink(port: int) -> Iterator[Sse]:
    sink = ps.sse(port=port, token=TOKEN, history=2)
    sink.check(SCHEMA)
    sink.claim()
    yield sink
    sink.release()


def ask(port: int, path: str, **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    connection.request("GET", path, headers=headers)
    return connection.getresponse()


def read(answer: http.client.HTTPResponse, count: int) -> list[bytes]:
    """Read so many events."""
    return [b"".join(iter(answer.readline, b"\n")) for _ in range(count)]


def test_pages_get_the_newest_rows_then_what_comes_and_go_on_where_they_were(sink: Sse, port: int) -> None:
    sink.deliver(rows(1, 2, 3), SCHEMA)
    page = ask(port, "/events", Authorization=f"Bearer {TOKEN}")
    assert page.headers["Content-Type"] == "text/event-stream"
    two, three = read(page, 2)
    assert two == b'id: 1\ndata: {"n":2,"at":"1970-01-01T00:00:00.000000Z"}\n'
    sink.deliver(rows(4), SCHEMA)
    (four,) = read(page, 1)
    assert [each.splitlines()[0] for each in (three, four)] == [b"id: 2", b"id: 3"]
    again = ask(port, f"/events?token={TOKEN.replace(' ', '%20')}", **{"Last-Event-ID": "0"})
    assert [each.splitlines()[0] for each in read(again, 3)] == [b"id: 1", b"id: 2", b"id: 3"]
    sink.release()
    assert page.read() == b"", "the end of the job is the end of the stream"


def test_who_has_no_token_gets_nothing(sink: Sse, port: int) -> None:
    for path in ("/", "/events", "/events?token=wrong", "/events?token="):
        answer = ask(port, path)
        assert answer.status == 401
        assert TOKEN not in answer.read().decode()
    given = {"Authorization": f"Bearer {TOKEN}"}
    assert ask(port, "/other", **given).status == 404
    page = ask(port, "/", **given)
    assert b"EventSource" in page.read()
    assert page.headers["Referrer-Policy"] == "no-referrer"


def test_a_page_that_is_behind_loses_the_oldest_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEHIND_ROWS_MAX", 3)
    feed = Feed(1)
    feed.put([b"0", b"1"])
    page = events(feed, None, 0.001)
    assert next(page) == b"id: 1\ndata: 1\n\n"
    assert next(page) == b": still here\n\n"
    feed.put([b"%d" % n for n in range(2, 8)])
    assert next(page) == b"event: lost\ndata: 3\n\n" + b"".join(b"id: %d\ndata: %d\n\n" % (n, n) for n in (5, 6, 7))
    # A number of a job before this one, that is not there yet, is none of ours.
    assert next(events(feed, "99", 0.001)) == b"id: 7\ndata: 7\n\n"
    feed.close()
    assert next(page, None) is None


def test_too_many_pages_are_sent_away(sink: Sse, port: int) -> None:
    given = {"Authorization": f"Bearer {TOKEN}"}
    room = sink._server.room  # type: ignore[union-attr]
    for _ in range(module.CLIENTS_MAX):
        room.acquire()
    assert ask(port, "/events", **given).status == 503


def test_a_job_delivers_through_the_driver_and_workers_do_not_know_the_token(sink: Sse) -> None:
    sent = pickle.dumps(sink)
    assert TOKEN.encode() not in sent
    writer = pickle.loads(sent).writer(SCHEMA, WriterContext("job", "view", 0, 1))
    writer.write(rows(1))
    writer.prepare(1)
    assert writer.commit(1) == rows(1)
    pickle.loads(sent).deliver(rows(1), SCHEMA)  # nobody listens there, and nothing happens


def test_what_is_refused(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good: dict[str, Any] = {"port": port, "token": TOKEN}
    for wrong in (
        {"token": "short"},
        {"token": None},
        {"port": 0},
        {"port": "80"},
        {"host": "no address"},
        {"page": tmp_path / "missing.html"},
        {"history": -1},
    ):
        with pytest.raises(InvalidOption) as caught:
            ps.sse(**{**good, **wrong})
        assert "short" not in str(caught.value)
    with pytest.raises(TypeMismatch, match="binary"):
        ps.sse(**good).check(Schema.parse("b binary"))
    monkeypatch.setattr(module, "BIND_S", 0.0)
    with socket.create_server(("127.0.0.1", port)), pytest.raises(PortOccupied, match=str(port)):
        ps.sse(**good).claim()
    own = tmp_path / "own.html"
    own.write_text("mine")
    sink = ps.sse(**good, page=own)
    sink.claim()
    assert ask(port, "/", Authorization=f"Bearer {TOKEN}").read() == b"mine"
    sink.release()
