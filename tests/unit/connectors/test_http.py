"""The HTTP receiver: what was answered is on disk and is read once; what cannot be taken is refused."""

from __future__ import annotations

import errno
import http.client
import importlib
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.connectors.lines_reader import files_in
from penstock.connectors.spool import Spool, SpoolFull, segments
from penstock.errors import InvalidOption, PenstockError, PortOccupied, SourceFailed
from penstock.testing.servers import free_port
from waiting import WAIT_S

module = importlib.import_module("penstock.connectors.http")
TOKEN = "a token of the test"


def post(port: int, body: bytes, token: str | None = TOKEN, method: str = "POST", **headers: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    more = {} if token is None else {"Authorization": f"Bearer {token}"}
    connection.request(method, "/", body, {**more, **headers})
    status = connection.getresponse().status
    connection.close()
    return status


def read(reader: Any, until: Callable[[list[bytes]], bool]) -> list[bytes]:
    lines: list[bytes] = []
    deadline = time.monotonic() + WAIT_S
    while not until(lines):
        assert time.monotonic() < deadline, lines
        batch = reader.poll(time.time_ns() // 1000, 3)
        lines += [row.value for row in batch.rows] if batch is not None else []
    return lines


def some(count: int) -> Callable[[list[bytes]], bool]:
    return lambda lines: len(lines) >= count


def test_what_was_answered_is_read_once_whatever_is_lost(tmp_path: Path) -> None:
    port = free_port()
    source = ps.http(port=port, spool=tmp_path / "spool", token=TOKEN)
    source.check()
    assert list(tmp_path.iterdir()) == [], "a check makes nothing"
    reader = source.reader(0, 1, 0)
    read(reader, some(0))
    reader.poll(1, 1)
    assert post(port, b'{"n": 1}\n\n {"n": 2}\r\n{"n": 3}') == 200
    assert read(reader, some(3)) == [b'{"n": 1}', b'{"n": 2}', b'{"n": 3}']
    position = reader.position()
    reader.committed(position)
    assert post(port, b'{"n": 4}\n{"n": 5}') == 200
    read(reader, some(2))
    reader.close()
    with pytest.raises(OSError, match="refused"):
        post(port, b"{}")
    # Another process takes its place, at the last commit.
    torn = list(segments(tmp_path / "spool").values())[-1]
    with torn.open("ab") as file:
        file.write(b'{"n": "never answ')
    again = source.resumed({0: position}).reader(0, 1, 0)
    again.seek(position)
    assert read(again, some(2)) == [b'{"n": 4}', b'{"n": 5}']
    assert post(port, b'{"n": 1}') == 200, "the same line is another record"
    assert read(again, some(1)) == [b'{"n": 1}']
    again.committed(again.position())
    assert post(port, b'{"n": 7}') == 200
    again.close()
    # A job that begins anew goes on with what was not committed.
    anew = source.reader(0, 1, 0)
    assert read(anew, some(1)) == [b'{"n": 7}']
    assert anew.poll(time.time_ns() // 1000 + 10**6, 10) is None
    anew.close()


def test_segments_are_removed_when_they_are_committed_and_an_older_checkpoint_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, spool = free_port(), tmp_path / "spool"
    source = ps.http(port=port, spool=spool, spool_bytes=4_096)
    reader = source.reader(0, 1, 0)
    reader.poll(1, 1)
    older, taken, sent = reader.position(), list[bytes](), list[bytes]()
    statuses = []
    for n in range(60):
        line = b'{"same": "%s"}' % (b"x" * 200)
        statuses.append(post(port, line, token=None))
        sent += [line] if statuses[-1] == 200 else []
        if n % 20 == 19:
            taken += read(reader, some(len(sent) - len(taken)))
            read(reader, lambda _: all(each.ended for each in files_in(reader.position())))
            if n == 19:
                older = reader.position()
            reader.committed(reader.position())
            assert len(segments(spool)) <= 3
    assert taken == sent, "equal lines, in segments that begin alike, are records of their own"
    assert {200, 429} == set(statuses)
    assert len(sent) > 30
    with pytest.raises(SourceFailed, match="are gone"):
        source.resumed({0: older})
    reader.close()


def test_requests_that_cannot_be_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setattr(module, "BODY_BYTES_MAX", 1_000)
    monkeypatch.setattr(module, "BIND_S", 0.1)
    reader = ps.http(port=port, spool=tmp_path / "spool", token=TOKEN).reader(0, 1, 0)
    reader.poll(1, 1)
    assert post(port, b"{}", token=None) == 401
    assert post(port, b"{}", token=TOKEN[:-1]) == 401
    assert post(port, b"{}", token="ü") == 401
    assert post(port, b"x" * 1_001) == 413
    assert post(port, b"{}", **{"Content-Encoding": "gzip"}) == 415
    assert post(port, b"", method="GET") == 405
    assert post(port, b"", method="PUT") == 405
    assert post(port, b"\n \n") == 200
    with socket.create_connection(("127.0.0.1", port)) as raw:
        raw.sendall(f"POST / HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        assert b" 411 " in raw.recv(100)
    with socket.create_connection(("127.0.0.1", port)) as raw:
        raw.sendall(f"POST / HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 50\r\n\r\nhalf".encode())
    monkeypatch.setattr(Spool, "append", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    assert post(port, b"{}") == 503
    monkeypatch.undo()
    monkeypatch.setattr(module, "BIND_S", 0.1)
    assert post(port, b"{}") == 200
    assert read(reader, some(1)) == [b"{}"]
    other = ps.http(port=port, spool=tmp_path / "other").reader(0, 1, 0)
    with pytest.raises(PortOccupied, match=str(port)):
        other.poll(1, 1)
    reader.close()
    open_to_all = ps.http(port=port, spool=tmp_path / "open").reader(0, 1, 0)
    open_to_all.poll(1, 1)
    assert post(port, b"{}", token=None, Origin="http://evil.example") == 403
    assert post(port, b"{}", token=None) == 200
    open_to_all.close()


def test_many_senders_at_once_lose_nothing(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", 1 << 20, segment_bytes=2_000)

    def send(sender: int) -> None:
        for n in range(50):
            spool.append(f"{sender}-{n}\n".encode() * 3)

    senders = [threading.Thread(target=send, args=(i,)) for i in range(8)]
    for each in senders:
        each.start()
    for each in senders:
        each.join()
    spool.close()
    lines = [line for path in segments(tmp_path / "spool").values() for line in path.read_text().splitlines()]
    found = [line for line in lines if line.strip()]
    assert sorted(found) == sorted(f"{i}-{n}" for i in range(8) for n in range(50) for _ in range(3))
    for i in range(8):
        assert [line for line in found if line.startswith(f"{i}-")] == [f"{i}-{n}" for n in range(50) for _ in range(3)]
    with pytest.raises(SpoolFull):
        Spool(tmp_path / "spool", 10_000).append(b"x" * 9_000 + b"\n")


def test_wrong_options(tmp_path: Path) -> None:
    for options, words in (
        ({"port": 0}, "port"),
        ({"port": 80, "host": "0.0.0.0"}, "unless there is a token"),
        ({"port": 80, "host": "not an address"}, "host"),
        ({"port": 80, "token": "short"}, "at least 8"),
        ({"port": 80, "spool_bytes": 0}, "spool_bytes"),
        ({"port": 80, "spool": "s3://bucket"}, "spool"),
    ):
        with pytest.raises(InvalidOption, match=words) as caught:
            ps.http(**{"spool": tmp_path, **options})
        assert "short" not in str(caught.value)
    (tmp_path / "file").write_text("")
    with pytest.raises(PenstockError, match="spool"):
        ps.http(port=80, spool=tmp_path / "file" / "x").check()
    with pytest.raises(PenstockError, match="no path"):
        ps.http(port=80, spool=7)  # type: ignore[arg-type]
    assert TOKEN not in repr(ps.http(port=80, spool=tmp_path, token=TOKEN))


@contextmanager
def no_file_above(size_bytes: int) -> Iterator[None]:
    """A write that goes beyond that size is cut there, and the next one fails, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class Spooled:
    """A source over HTTP, its reader, and what was answered 200."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.port = directory, free_port()
        self.source = ps.http(port=self.port, spool=directory)
        self.reader: Any = self.source.reader(0, 1, 0)
        self.reader.poll(1, 1)
        self.sent: list[bytes] = []
        self.taken: list[bytes] = []

    def post(self, *lines: bytes) -> int:
        status = post(self.port, b"\n".join(lines), token=None)
        self.sent += lines if status == 200 else ()
        return status

    def read_all(self) -> None:
        self.taken += read(self.reader, some(len(self.sent) - len(self.taken)))
        assert self.taken == self.sent

    @property
    def newest_bytes(self) -> int:
        return self.newest.stat().st_size

    @property
    def newest(self) -> Path:
        return list(segments(self.directory).values())[-1]


def lines_of(kind: str, count: int = 5) -> list[bytes]:
    return [b'{"%s": %d}' % (kind.encode(), n) for n in range(count)]


def test_a_request_of_which_a_part_could_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    spooled = Spooled(tmp_path / "spool")
    assert spooled.post(*lines_of("first")) == 200
    for torn in (25, 5, 0):  # behind the second line, within the first, nothing
        size_bytes = spooled.newest_bytes
        with no_file_above(size_bytes + torn):
            assert spooled.post(*lines_of("refused")) == 503
        assert spooled.newest_bytes == size_bytes
        assert spooled.post(*lines_of(f"after {torn}")) == 200
        spooled.read_all()
    position = spooled.reader.position()
    spooled.reader.close()
    again: Any = spooled.source.resumed({0: position}).reader(0, 1, 0)
    again.seek(position)
    spooled.reader = again
    assert again.poll(1, 10) is None
    assert spooled.post(b"{}") == 200
    spooled.read_all()
    again.committed(again.position())
    assert len(segments(spooled.directory)) == 1, "what is read and committed is removed"
    again.close()


def test_the_spool_is_left_alone_until_the_process_before_has_given_its_port_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spooled = Spooled(tmp_path / "spool")
    assert spooled.post(*lines_of("first")) == 200
    held = spooled.newest
    with held.open("ab") as file:
        file.write(b'{"half": ')
    monkeypatch.setattr(module, "BIND_S", 0.1)
    successor: Any = spooled.source.reader(0, 1, 0)
    with pytest.raises(PortOccupied):
        successor.poll(1, 1)
    assert segments(spooled.directory) == {1: held}
    assert held.read_bytes().endswith(b'{"half": '), "a line that is being written is not cut"
    spooled.reader.close()
    assert successor.poll(1, 100).rows[-1].value == b'{"first": 4}'
    assert held.read_bytes().endswith(b'{"first": 4}\n')
    successor.close()


def test_what_cannot_be_cut_off_again_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spooled = Spooled(tmp_path / "spool")
    assert spooled.post(*lines_of("first")) == 200
    torn = spooled.newest
    with no_file_above(spooled.newest_bytes + 25), monkeypatch.context() as broken:
        broken.setattr("os.ftruncate", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "broken")))
        assert spooled.post(*lines_of("refused")) == 503
        assert torn.read_bytes().endswith(b'{"refused": 0}\n{"refused"')
        spooled.read_all()
        assert spooled.reader.poll(time.time_ns() // 1000 + 20_000, 10) is None
        assert spooled.post(*lines_of("second")) == 200
    assert spooled.newest != torn, "another segment is begun"
    spooled.read_all()
    spooled.reader.poll(time.time_ns() // 1000 + 20_000, 10)
    spooled.reader.committed(spooled.reader.position())
    assert not torn.exists()
    spooled.reader.close()


def test_what_cannot_be_synced_is_refused_and_never_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spooled = Spooled(tmp_path / "spool")
    assert spooled.post(*lines_of("first")) == 200
    before = spooled.newest
    with monkeypatch.context() as broken:
        broken.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(errno.EIO, "broken")))
        assert spooled.post(*lines_of("refused")) == 503
        assert spooled.reader.poll(time.time_ns() // 1000 + 20_000, 3).rows[0].value == b'{"first": 0}'
        assert spooled.post(*lines_of("refused")) == 503, "the next segment cannot be begun"
    assert segments(spooled.directory) == {1: before}
    assert b"refused" not in before.read_bytes()
    spooled.taken = lines_of("first", 3)
    assert spooled.post(*lines_of("second")) == 200
    assert spooled.newest != before, "lines that were dropped once are not to be trusted to that file again"
    spooled.read_all()
    spooled.reader.close()


def test_all_who_wait_for_the_disk_are_told_that_it_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool, calls = Spool(tmp_path, 1 << 20), list[int]()
    before = spool.bytes_held

    def fails(file: int) -> None:
        calls.append(file)
        deadline = time.monotonic() + WAIT_S
        while spool.bytes_held < before + 6:
            assert time.monotonic() < deadline
        raise OSError(errno.EIO, "broken")

    def send(line: bytes) -> None:
        with pytest.raises(OSError, match=r"broken|could not be synced"):
            spool.append(line)
        refused.append(line)

    refused: list[bytes] = []
    with monkeypatch.context() as broken:
        broken.setattr("os.fsync", fails)
        senders = [threading.Thread(target=send, args=(line,)) for line in (b"a1\n", b"b2\n")]
        for each in senders:
            each.start()
        for each in senders:
            each.join()
    assert len(calls) == 1
    assert sorted(refused) == [b"a1\n", b"b2\n"]
    spool.append(b"c3\n")
    spool.close()
    with pytest.raises(OSError, match="closed"):
        spool.append(b"d4\n")
    lines = [line for path in segments(tmp_path).values() for line in path.read_bytes().splitlines()]
    assert [line for line in lines if line.strip()] == [b"c3"]
