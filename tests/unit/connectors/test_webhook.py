"""The webhook sink: every row reaches a receiver that remembers keys exactly once."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import penstock as ps
from penstock.connectors.base import WriterContext
from penstock.errors import InvalidOption, SinkFailed, TypeMismatch
from penstock.types import Schema

SCHEMA = Schema.parse("n bigint, at timestamp")
SECRET = "a secret of the test"


class Receiver(ThreadingHTTPServer):
    """Answers as it is told to, and remembers keys."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[int] = []
        self.taken: dict[str, list[dict]] = {}
        self.requests: list[tuple[str, str]] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/hook?key=in-the-url"
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        key = self.headers["Idempotency-Key"]
        self.server.requests.append((key, self.headers["Authorization"]))
        status = self.server.answers.pop(0) if self.server.answers else 200
        if status in (0, 200):
            self.server.taken.setdefault(key, [json.loads(line) for line in body.splitlines()])
        if status == 0:  # taken, and nobody hears of it
            self.connection.close()
            return
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None: ...


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    yield server
    server.shutdown()
    server.server_close()


def writer(receiver: Receiver, instance: int = 0, **options: Any):
    sink = ps.webhook(receiver.url, headers={"Authorization": SECRET}, rows=2, **options)
    sink.check(SCHEMA)
    return sink.writer(SCHEMA, WriterContext("job", "alerts", instance, 2, "id"))


def rows(*numbers: int) -> list[Any]:
    return [SCHEMA.record_type(n, 0) for n in numbers]


def test_rows_come_once_by_key_through_lost_answers_and_a_crash(receiver: Receiver) -> None:
    first = writer(receiver)
    first.write(rows(1, 2, 3))
    first.prepare(1)
    snapshot = first.snapshot(1)
    assert receiver.requests == [], "nothing before the commit"
    receiver.answers = [503, 429, 0, 200]
    first.commit(1)
    first.finish()
    successor = writer(receiver)
    successor.restore(1, snapshot)
    successor.commit(1)
    successor.finish()
    other = writer(receiver, instance=1)
    other.write(rows(4))
    other.prepare(1)
    other.commit(1)
    other.finish()
    assert [key for key, _ in receiver.requests] == ["id/alerts/0/1/0"] * 4 + [
        "id/alerts/0/1/1",
        "id/alerts/0/1/0",
        "id/alerts/0/1/1",
        "id/alerts/1/1/0",
    ]
    assert {token for _, token in receiver.requests} == {SECRET}
    taken = [row for part in receiver.taken.values() for row in part]
    assert [row["n"] for row in taken] == [1, 2, 3, 4]
    assert taken[0]["at"] == "1970-01-01T00:00:00.000000Z"
    for each in (first, successor, other):
        each.close()


def test_a_receiver_that_refuses_or_is_away_fails_the_job_and_nothing_secret_is_shown(receiver: Receiver) -> None:
    receiver.answers = [400]
    refused = writer(receiver)
    refused.write(rows(1))
    refused.prepare(1)
    refused.commit(1)
    with pytest.raises(SinkFailed, match=r"operation 'alerts'.*has answered 400.*posted again") as caught:
        refused.finish()
    away = writer(receiver, retry="150ms")
    away.write(rows(1))
    away.prepare(1)
    receiver.answers = [500] * 10
    away.commit(1)
    with pytest.raises(SinkFailed, match=r"has answered 500, and has not taken the rows for 0\.15 s") as later:
        away.finish()
    for text in (str(caught.value), str(later.value)):
        assert SECRET not in text
        assert "in-the-url" not in text


def test_a_host_that_is_not_known_is_refused_before_anything_starts() -> None:
    sink = ps.webhook("https://no.such.host.invalid/hook?key=in-the-url", headers={"Authorization": SECRET})
    with pytest.raises(SinkFailed, match=r"no\.such\.host\.invalid' is not known") as caught:
        sink.check(SCHEMA)
    assert "in-the-url" not in str(caught.value)


def test_wrong_options() -> None:
    for url in ("ftp://x", "nothing", "http://", "https://user:pass@host/", "http://h:x"):
        with pytest.raises(InvalidOption, match="url") as caught:
            ps.webhook(url)
        assert "pass" not in str(caught.value)
    with pytest.raises(InvalidOption, match="headers"):
        ps.webhook("http://h", headers={"A": "b\r\nC: d"})
    with pytest.raises(InvalidOption, match="rows"):
        ps.webhook("http://h", rows=0)
    with pytest.raises(TypeMismatch, match="binary"):
        ps.webhook("http://h").check(Schema.parse("raw binary"))
