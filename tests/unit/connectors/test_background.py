"""Writers of servers: commits return at once, and every row gets there once, whatever happens between."""

from __future__ import annotations

import threading

import pytest

from penstock.connectors import background
from penstock.connectors.background import BackgroundWriter, Epochs
from penstock.errors import SinkFailed
from penstock.types import Schema
from waiting import WAIT_S

SCHEMA = Schema.parse("n bigint")


class Server:
    """Knows which epochs it has, as a ledger does, and answers when it is told to."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.asked = threading.Event()
        self.refusal: Exception | None = None
        self.rows: dict[int, list[int]] = {}
        self.disconnected = 0


class Writer(BackgroundWriter):
    shown = "server"

    def __init__(self, server: Server) -> None:
        super().__init__(SCHEMA, "out")
        self._server = server

    def publish(self, ready: Epochs) -> None:
        self._server.asked.set()
        while not self._server.open.is_set():
            self.pause(0.001)
        if self._server.refusal is not None:
            raise self._server.refusal
        for epoch, rows in ready:
            self._server.rows.setdefault(epoch, [row.n for row in rows])

    def disconnect(self) -> None:
        self._server.disconnected += 1


def fill(writer: Writer, epoch: int, *numbers: int) -> bytes | None:
    writer.write([SCHEMA.record_type(n) for n in numbers])
    writer.prepare(epoch)
    return writer.snapshot(epoch)


def test_a_commit_waits_for_no_server_and_records_go_on() -> None:
    server = Server()
    writer = Writer(server)
    fill(writer, 1, 1, 2)
    writer.commit(1)
    assert server.asked.wait(WAIT_S)
    fill(writer, 2, 3)
    writer.commit(2)
    fill(writer, 3)
    writer.commit(3)
    assert server.rows == {}
    server.open.set()
    writer.finish()
    assert server.rows == {1: [1, 2], 2: [3]}
    assert writer.snapshot(3) == Writer(Server()).snapshot(3), "the server has all: nothing is kept"
    writer.close()
    assert server.disconnected == 1


def test_what_the_server_does_not_have_is_in_every_later_snapshot() -> None:
    server = Server()
    writer = Writer(server)
    fill(writer, 1, 1)
    writer.commit(1)
    later = fill(writer, 2, 2)
    writer.close()  # while the thread waits for the server
    assert server.rows == {}
    server.open.set()
    successor = Writer(server)
    successor.restore(2, later)
    successor.commit(2)
    successor.finish()
    assert server.rows == {1: [1], 2: [2]}
    successor.close()


def test_a_server_that_is_behind_holds_up_records_and_not_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "QUEUED_ROWS_MAX", 3)
    server = Server()
    writer = Writer(server)
    fill(writer, 1, 1, 2)
    writer.commit(1)
    assert not writer.is_blocked
    fill(writer, 2, 3, 4)
    writer.commit(2)
    assert writer.is_blocked
    server.open.set()
    writer.finish()
    assert not writer.is_blocked
    writer.close()


@pytest.mark.parametrize("refusal", [SinkFailed(sink="server", cause="no", operation="out"), ValueError("no")])
def test_what_the_server_refuses_fails_the_next_call_and_is_kept(refusal: Exception) -> None:
    server = Server()
    server.refusal = refusal
    server.open.set()
    writer = Writer(server)
    fill(writer, 1, 1)
    writer.commit(1)
    with pytest.raises(SinkFailed, match=r"operation 'out'.*no"):
        writer.finish()
    for call in (lambda: writer.write([]), lambda: writer.prepare(2), lambda: writer.commit(2)):
        with pytest.raises(SinkFailed):
            call()
    server.refusal = None
    successor = Writer(server)
    successor.restore(1, writer.snapshot(1))
    successor.commit(1)
    successor.finish()
    assert server.rows == {1: [1]}
    successor.close()
    writer.close()


def test_what_is_not_written_in_time_is_told_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "FINISH_S", 0.01)
    writer = Writer(Server())
    fill(writer, 1, 1)
    writer.commit(1)
    with pytest.raises(SinkFailed, match="can be resumed"):
        writer.finish()
    writer.close()
