"""Lines from a TCP server and lines in UDP packets: as they come, each at most once."""

from __future__ import annotations

import socket
from typing import Any

from penstock.checks import Whole
from penstock.connectors.base import OnceReader, Position, Source, SourceBatch
from penstock.connectors.lines_reader import SCHEMA
from penstock.connectors.ports import bound, check_free, family_of
from penstock.errors import InvalidOption, SourceFailed
from penstock.types import Schema

LINE_BYTES_MAX = 1024 * 1024
CONNECT_S = 5.0
_POLL_US = 2_000
_RETRY_US = 500_000
PATIENCE_US = 60_000_000
"""How long a server that is away is waited for."""
RESERVE_S = 10.0
"""How long a port is waited for before the job starts, which a run before this one may still hold."""
_READ_BYTES = 256 * 1024
_PACKET_BYTES = 65_535
_BUFFER_BYTES = 4 * 1024 * 1024


class _Lines(Source):
    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port

    @property
    def schema(self) -> Schema:
        return SCHEMA

    def partitions(self, parallelism: int) -> int:
        del parallelism
        return 1


class TcpLines(_Lines):
    """Lines of a TCP server; build it with :func:`tcp_lines`."""

    @property
    def kind(self) -> str:
        return "tcp_lines"

    def check(self) -> None:
        try:
            socket.create_connection((self._host, self._port), CONNECT_S).close()
        except OSError as error:
            raise SourceFailed(
                source=f"tcp_lines('{self._host}', {self._port})",
                cause=f"cannot connect: {error}",
                hint="Check host and port, and that the server runs.",
            ) from None

    def reader(self, partition: int, partitions: int, start_us: int) -> _TcpReader:
        del partition, partitions, start_us
        return _TcpReader(self._host, self._port)


class UdpLines(_Lines):
    """Lines in UDP packets; build it with :func:`udp_lines`."""

    @property
    def kind(self) -> str:
        return "udp_lines"

    def reserve(self, *, is_local: bool) -> None:
        if is_local:
            check_free((self._host, self._port), socket.SOCK_DGRAM, RESERVE_S)

    def reader(self, partition: int, partitions: int, start_us: int) -> _UdpReader:
        del partition, partitions, start_us
        return _UdpReader(self._host, self._port)


class _SocketReader(OnceReader):
    """Holds lines that have come; where a job goes back, what was given out since is lost."""

    def __init__(self, host: str, port: int) -> None:
        self._address = host, port
        self._socket: Any = None
        self._lines: list[bytes] = []
        self._next_us = 0
        self._ended = False

    def poll(self, now_us: int, records_max: int) -> SourceBatch | None:
        if not self._lines and now_us >= self._next_us and not self._ended:
            self._next_us = now_us + _POLL_US
            self._fill(now_us)
        if not self._lines:
            return None
        taken, self._lines = self._lines[:records_max], self._lines[records_max:]
        at, self.offset = self.offset, self.offset + len(taken)
        return SourceBatch(list(map(SCHEMA.record_type, taken)), now_us, at)

    def _fill(self, now_us: int) -> None:
        """Take in what has come."""

    def wake_us(self, now_us: int) -> int | None:
        if self._lines:
            return now_us
        return None if self._ended else self._next_us

    def backlog_records(self, now_us: int) -> int:
        del now_us
        return len(self._lines)

    def seek(self, position: Position) -> None:
        assert isinstance(position, int)
        self.offset = position

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class _TcpReader(_SocketReader):
    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self._rest = b""
        self._lost_us: int | None = None

    def _fill(self, now_us: int) -> None:
        try:
            if self._socket is None:
                self._socket = socket.create_connection(self._address, CONNECT_S)
                self._socket.setblocking(False)
                self._rest, self._lost_us = b"", None
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(now_us, error)
            return
        if not data:
            # The server has sent all that it has: what stands without a line break is a line.
            self._take(self._rest + b"\n")
            self._ended = True
            self.close()
            return
        text = self._rest + data
        end = text.rfind(b"\n") + 1
        self._rest = text[end:]
        if len(self._rest) > LINE_BYTES_MAX:
            host, port = self._address
            raise SourceFailed(source=f"tcp_lines('{host}', {port})", cause=f"a line has over {LINE_BYTES_MAX} bytes")
        self._take(text[:end])

    def _take(self, text: bytes) -> None:
        self._lines += [line for each in text.split(b"\n") if (line := each.strip())]

    def _lose(self, now_us: int, error: OSError) -> None:
        self.close()
        self._lost_us = self._lost_us or now_us
        self._next_us = now_us + _RETRY_US
        if now_us - self._lost_us > PATIENCE_US:
            host, port = self._address
            raise SourceFailed(source=f"tcp_lines('{host}', {port})", cause=error, hint="Is the server up?") from None


class _UdpReader(_SocketReader):
    def _opened(self) -> socket.socket:
        opened = socket.socket(family_of(self._address[0]), socket.SOCK_DGRAM)
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
            opened.setblocking(False)
            opened.bind(self._address)
        except BaseException:
            opened.close()
            raise
        return opened

    def _fill(self, now_us: int) -> None:
        del now_us
        if self._socket is None:
            self._socket = bound(self._opened, self._address, 0.0)
        for _ in range(1_000):
            try:
                packet = self._socket.recv(_PACKET_BYTES)
            except BlockingIOError:
                break
            self._lines += [line for each in packet.split(b"\n") if (line := each.strip())]


def tcp_lines(host: str, port: int) -> TcpLines:
    """Read lines from a TCP server, as `nc -lk` is one; the source ends when the server closes the connection.

    At most once: nobody sends a line again. What was read since the last commit is lost with the worker, and what was
    sent while nobody listened. Use it to try things out; for anything else there are :func:`http`, Kafka and files.

    Parameters
    ----------
    host, port : str, int
        Where the server is.
    """
    if not isinstance(host, str) or not host:
        raise InvalidOption(option="host", given=host, allowed="the name or address of a server")
    return TcpLines(host, Whole(1, 65_535).read("port", port))


def udp_lines(port: int, *, host: str = "127.0.0.1") -> UdpLines:
    """Read lines from UDP packets, such as those of syslog or statsd.

    At most once: packets are lost on the way, where they come faster than they are read, and while nobody listens; and
    what was read since the last commit is lost with the worker. Anybody who reaches the port can send.

    Parameters
    ----------
    port : int
        Where to listen, on one worker's machine.
    host : str
        The address to listen on.
    """
    if not isinstance(host, str) or not host:
        raise InvalidOption(option="host", given=host, allowed="an address of this machine")
    return UdpLines(host, Whole(1, 65_535).read("port", port))
