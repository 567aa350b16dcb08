"""The driver keeps snapshots of workers that share no disk with it: whole, within bounds, for who holds the key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import pytest
import zmq

from penstock.errors import CheckpointDamaged, CheckpointUnavailable
from penstock.protocol import messages as m
from penstock.runtime import scratch
from penstock.runtime.scratch import ScratchClient, ScratchServer
from penstock.runtime.transport import LOOPBACK, Keys

KEYS = Keys.create()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ScratchServer]:
    made = ScratchServer(KEYS, LOOPBACK, tmp_path)
    yield made
    made.close()


@pytest.fixture
def client(server: ScratchServer) -> Iterator[ScratchClient]:
    made = ScratchClient(KEYS, server.endpoint)
    yield made
    made.close()


def stored(name: str, crc: int) -> m.Stored:
    return m.Stored(unit=0, instance=0, epoch=1, full=True, name=name, crc=crc)


@pytest.mark.parametrize("size", [0, 1, 1_000, 4_000, 12_345])
def test_what_was_put_is_read_back_whole(
    client: ScratchClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(scratch, "PIECE_BYTES", 1_000)
    data = bytes(i * 7 % 256 for i in range(size))
    crc = client.write_snapshot("u1-i0-e00000001-ab-0", data)
    assert crc == crc32(data)
    assert client.read_snapshot(stored("u1-i0-e00000001-ab-0", crc)) == data
    assert [path.name for path in tmp_path.iterdir()] == ["u1-i0-e00000001-ab-0"]


def test_what_is_missing_or_damaged_is_refused(client: ScratchClient, tmp_path: Path) -> None:
    crc = client.write_snapshot("one", b"state")
    with pytest.raises(CheckpointUnavailable, match="No such file"):
        client.read_snapshot(stored("other", crc))
    (tmp_path / "one").write_bytes(b"stata")
    with pytest.raises(CheckpointDamaged, match="checksum"):
        client.read_snapshot(stored("one", crc))


@pytest.mark.parametrize("name", ["../one", "/etc/passwd", "a/b", "", "a.tmp", "ä"])
def test_nothing_but_names_of_snapshots_is_opened(client: ScratchClient, name: str) -> None:
    with pytest.raises(CheckpointUnavailable, match="no name of a snapshot"):
        client.write_snapshot(name, b"x")
    with pytest.raises(CheckpointUnavailable, match="no name of a snapshot"):
        client.read_snapshot(stored(name, 0))


def test_more_than_the_driver_keeps_is_refused_with_what_to_do(
    client: ScratchClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "SCRATCH_BYTES_MAX", 10)
    client.write_snapshot("one", b"twelve bytes")
    with pytest.raises(CheckpointUnavailable, match="give checkpoint= a place"):
        client.write_snapshot("two", b"x")


def test_who_does_not_hold_the_key_is_not_answered(server: ScratchServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "_ANSWER_MS", 200)
    monkeypatch.setattr(scratch, "_TRIES", 1)
    other = Keys.create()
    stranger = ScratchClient(Keys(KEYS.public, other.secret), server.endpoint)
    with pytest.raises((CheckpointUnavailable, zmq.ZMQError)):
        stranger.write_snapshot("one", b"x")
    stranger.close()
