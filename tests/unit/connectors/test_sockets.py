"""Lines over TCP and UDP: in their order, each at most once."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest

import penstock as ps
from penstock.connectors import sockets
from penstock.errors import InvalidOption, PortOccupied, SourceFailed
from penstock.testing.servers import free_port
from waiting import WAIT_S


def read(reader: Any, count: int) -> list[bytes]:
    lines: list[bytes] = []
    deadline = time.monotonic() + WAIT_S
    while len(lines) < count:
        assert time.monotonic() < deadline, lines
        batch = reader.poll(time.time_ns() // 1000, 2)
        lines += [row.value for row in batch.rows] if batch is not None else []
    return lines


def test_lines_of_a_tcp_server_until_it_closes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        source = ps.tcp_lines("127.0.0.1", port)
        source.check()
        server.accept()[0].close()
        reader = source.reader(0, 1, 0)
        assert reader.poll(1, 10) is None
        client, _ = server.accept()
        client.sendall(b"one\ntwo\r\n\n  three\nfo")
        assert read(reader, 3) == [b"one", b"two", b"three"]
        assert reader.offset == 3
        client.sendall(b"ur\nlast")
        assert read(reader, 1) == [b"four"]
        client.close()
        assert read(reader, 1) == [b"last"]
        while reader.wake_us(1) is not None:
            reader.poll(time.time_ns() // 1000, 1)
        again = source.reader(0, 1, 0)
        again.seek(5)
        assert again.offset == 5
        again.close()


def test_a_tcp_server_that_goes_is_waited_for_and_a_line_without_end_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sockets, "LINE_BYTES_MAX", 100)
    port = free_port()
    with socket.create_server(("127.0.0.1", port)) as server:
        reader = ps.tcp_lines("localhost", port).reader(0, 1, 0)
        reader.poll(1, 1)
        client, _ = server.accept()
        client.sendall(b"x" * 200)
        with pytest.raises(SourceFailed, match="a line has over 100 bytes"):
            read(reader, 1)
        client.close()
    lost = ps.tcp_lines("127.0.0.1", port)
    with pytest.raises(SourceFailed, match="Check host and port"):
        lost.check()
    reader = lost.reader(0, 1, 0)
    assert reader.poll(1, 1) is None
    with pytest.raises(SourceFailed, match="Is the server up"):
        reader.poll(1 + 2 * sockets.PATIENCE_US, 1)


def test_lines_of_udp_packets() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", free_port()))
        port = probe.getsockname()[1]
        with pytest.raises(PortOccupied):
            ps.udp_lines(port).reader(0, 1, 0).poll(1, 1)
    reader = ps.udp_lines(port).reader(0, 1, 0)
    assert reader.poll(1, 1) is None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"a\nb\n", ("127.0.0.1", port))
        sender.sendto(b"c", ("127.0.0.1", port))
        assert read(reader, 3) == [b"a", b"b", b"c"]
    assert reader.wake_us(1) is not None
    reader.close()


def test_wrong_options() -> None:
    for build in (lambda: ps.tcp_lines("", 1), lambda: ps.tcp_lines("h", 0), lambda: ps.udp_lines(70_000)):
        with pytest.raises(InvalidOption):
            build()
    with pytest.raises(InvalidOption, match="host"):
        ps.udp_lines(1, host="")
