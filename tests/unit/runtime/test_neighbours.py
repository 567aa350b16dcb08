"""Sockets between processes of one machine: who is listened to, messages in pieces, one that is slow or gone."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterator
from time import monotonic, sleep

import pytest

from penstock.runtime import neighbours as n
from penstock.runtime.neighbours import Neighbours, Outlet, pack_message
from waiting import WAIT_S

pytestmark = pytest.mark.skipif(not n.is_possible(), reason="needs Linux's sockets without files")

SECRET = b"the job's secret"
HERE = "tcp://127.0.0.1:1"
FRAME_BYTES_MAX = 10_000_000
BESIDE, WAKES = os.pipe()


@pytest.fixture
def inbox() -> Iterator[Neighbours]:
    opened = Neighbours(SECRET, HERE, FRAME_BYTES_MAX, BESIDE)
    yield opened
    opened.close()


def opened(inbox: Neighbours) -> Outlet:
    outlet = inbox.open(HERE)
    assert outlet is not None
    return outlet


def arrived(inbox: Neighbours, count: int, seconds: float = WAIT_S) -> list[list[bytes]]:
    """Wait for so many messages, up to a bound."""
    found: list[list[bytes]] = []
    deadline = monotonic() + seconds
    while len(found) < count and monotonic() < deadline:
        inbox.receive(found)
    return found


def ends(connected: socket.socket) -> bool:
    """Whether the other side has closed the connection, up to a bound."""
    connected.settimeout(WAIT_S)
    try:
        return connected.recv(1) == b""
    except ConnectionError:
        return True


def stranger(inbox: Neighbours) -> socket.socket:
    """A connection that has said nothing yet."""
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connected.connect(n._name(SECRET, HERE))
    return connected


def hears_out(inbox: Neighbours, said: bytes) -> list[list[bytes]]:
    """Say something on a connection of its own, which is to be closed for it; return what was taken of it."""
    connected = stranger(inbox)
    connected.sendall(said)
    found: list[list[bytes]] = []
    deadline = monotonic() + WAIT_S
    while not inbox._inlets and monotonic() < deadline:
        inbox.receive(found)
    while inbox._inlets and monotonic() < deadline:
        inbox.receive(found)
    assert ends(connected)
    connected.close()
    return found


def test_messages_come_whole_and_in_order(inbox: Neighbours) -> None:
    outlet = opened(inbox)
    messages = [[b"P", b"%d" % i, b"x" * i] for i in range(1_000)]
    for each in messages:
        outlet.send(each)
    assert arrived(inbox, 1_000) == messages
    outlet.close(0)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 33, 40])
def test_messages_come_whole_however_they_are_cut(inbox: Neighbours, size: int) -> None:
    messages = [[b"P"], [b"", b"x" * 50, b""], [b"W", b"y" * 7]]
    said = n._token(SECRET, HERE) + b"".join(map(pack_message, messages))
    connected = stranger(inbox)
    found: list[list[bytes]] = []
    for at in range(0, len(said), size):
        connected.sendall(said[at : at + size])
        inbox.receive(found)
    found += arrived(inbox, len(messages) - len(found))
    assert found == messages
    connected.close()


def test_large_messages_are_sent_while_the_sender_does_something_else(inbox: Neighbours) -> None:
    outlet = opened(inbox)
    for i in range(20):
        outlet.send([b"%d" % i, bytes(3_000_000)])
    assert [(int(number), len(payload)) for number, payload in arrived(inbox, 20, 60)] == [
        (i, 3_000_000) for i in range(20)
    ]
    outlet.send([b"after"])
    assert arrived(inbox, 1) == [[b"after"]]
    outlet.close(0)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(lambda: n._token(b"another secret", HERE) + pack_message([b"P"]), id="another secret"),
        pytest.param(lambda: n._token(SECRET, "tcp://127.0.0.1:2") + pack_message([b"P"]), id="for another process"),
        pytest.param(lambda: bytes(n.TOKEN_BYTES) + pack_message([b"P"]), id="no token"),
        pytest.param(lambda: n._token(SECRET, HERE) + struct.pack("<I", 0), id="a message without frames"),
        pytest.param(lambda: n._token(SECRET, HERE) + struct.pack("<I", n.FRAMES_MAX + 1), id="too many frames"),
        pytest.param(lambda: n._token(SECRET, HERE) + struct.pack("<II", 1, FRAME_BYTES_MAX + 1), id="too large"),
    ],
)
def test_others_are_not_listened_to(inbox: Neighbours, said: Callable[[], bytes]) -> None:
    assert hears_out(inbox, said()) == []
    outlet = opened(inbox)
    outlet.send([b"true"])
    assert arrived(inbox, 1) == [[b"true"]]
    outlet.close(0)


def test_another_user_is_not_listened_to(inbox: Neighbours, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(n.os, "geteuid", lambda: 4321)
    assert inbox.open(HERE) is None, "and not spoken to"
    connected = stranger(inbox)
    for _ in range(2):  # it takes one connection at a time, and the first is the one that was given up above
        inbox.receive([])
    assert ends(connected)
    connected.close()


def test_the_name_says_nothing_to_those_without_the_secret() -> None:
    name = n._name(SECRET, HERE)
    assert HERE.encode() not in name
    assert name != n._name(b"another secret", HERE)
    assert n._token(SECRET, HERE).hex().encode() not in name


def test_one_look_answers_for_the_descriptor_beside(inbox: Neighbours) -> None:
    found: list[list[bytes]] = []
    assert not inbox.receive(found)
    os.write(WAKES, b"x")
    assert inbox.receive(found)
    os.read(BESIDE, 1)
    assert not inbox.receive(found)
    assert found == []


def test_where_nobody_listens_there_is_no_way(inbox: Neighbours) -> None:
    assert inbox.open("tcp://127.0.0.1:2") is None


def test_a_neighbour_that_is_gone_is_noticed() -> None:
    inbox = Neighbours(SECRET, HERE, FRAME_BYTES_MAX, BESIDE)
    outlet = opened(inbox)
    inbox.receive([])
    inbox.close()
    deadline = monotonic() + WAIT_S
    while not outlet.broken and monotonic() < deadline:
        outlet.send([b"in vain"])
    assert outlet.broken
    outlet.close(0)


def test_what_a_neighbour_that_is_gone_did_not_take_is_given_up() -> None:
    inbox = Neighbours(SECRET, HERE, FRAME_BYTES_MAX, BESIDE)
    outlet = opened(inbox)
    inbox.receive([])
    for _ in range(5):
        outlet.send([bytes(3_000_000)])
    inbox.close()
    deadline = monotonic() + WAIT_S
    while not outlet.broken and monotonic() < deadline:
        sleep(0.01)
    assert outlet.broken
    outlet.close(1_000)


def test_closing_waits_for_what_is_on_its_way(inbox: Neighbours) -> None:
    outlet = opened(inbox)
    found: list[list[bytes]] = []
    outlet.send([b"one", bytes(3_000_000)])
    while not found:
        inbox.receive(found)
    outlet.close(5_000)
    assert [len(frames[1]) for frames in found] == [3_000_000]
