"""Sockets: the job's key opens them, no other key does, and nothing listens beyond loopback."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from time import monotonic

import pytest
import zmq

from penstock.errors import LimitExceeded, PortOccupied
from penstock.protocol import messages
from penstock.protocol.link import Kind
from penstock.runtime import neighbours, transport
from penstock.runtime.connections import PASSING_MIN, PASSING_PER_SLOT, Connections
from penstock.runtime.neighbours import VARIABLE
from penstock.runtime.transport import Keys, Node
from waiting import WAIT_S


@pytest.fixture(autouse=True, params=["1", "0"], ids=["neighbours", "network"])
def unix_sockets(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, request.param)


@pytest.fixture
def keys() -> Keys:
    return Keys.create()


@pytest.fixture
def node(keys: Keys) -> Iterator[Node]:
    opened = Node(keys)
    yield opened
    opened.close(linger_ms=0)


def received(node: Node, seconds: float = WAIT_S) -> list[list[bytes]]:
    """Wait for a message, up to a bound."""
    deadline = monotonic() + seconds
    while monotonic() < deadline:
        if frames := node.receive():
            return frames
        node.wait(20_000)
    return []


def test_the_jobs_key_gets_through(keys: Keys, node: Node) -> None:
    other = Node(keys)
    other.connect(node.endpoint)
    other.send(node.endpoint, Kind.PEER, [b"header", b"payload"])
    assert received(node) == [[b"P", b"header", b"payload"]]
    other.close()


def test_another_key_is_refused(keys: Keys, node: Node) -> None:
    public, secret = zmq.curve_keypair()
    context = zmq.Context()
    socket = context.socket(zmq.PUSH)
    socket.linger = 0
    # A stranger may know where the inbox is, and even its public key, but does not hold the job's secret.
    socket.curve_publickey, socket.curve_secretkey, socket.curve_serverkey = public, secret, keys.public
    socket.connect(node.endpoint)
    socket.send_multipart([b"P", b"forged"])
    friend = Node(keys)
    friend.connect(node.endpoint)
    friend.send(node.endpoint, Kind.PEER, [b"true"])
    assert received(node) == [[b"P", b"true"]]
    assert received(node, 0.3) == []
    friend.close()
    context.destroy(linger=0)


def test_plain_text_is_refused(keys: Keys, node: Node) -> None:
    context = zmq.Context()
    socket = context.socket(zmq.PUSH)
    socket.linger = 0
    socket.connect(node.endpoint)
    socket.send_multipart([b"P", b"forged"])
    assert received(node, 0.5) == []
    context.destroy(linger=0)


def test_inboxes_listen_on_loopback(node: Node) -> None:
    assert node.endpoint.startswith("tcp://127.0.0.1:")


def test_an_occupied_port_is_named(keys: Keys, node: Node) -> None:
    port = int(node.endpoint.rpartition(":")[2])
    with pytest.raises(PortOccupied, match=str(port)):
        Node(keys, port=port)


def test_keys_are_not_shown(keys: Keys) -> None:
    assert keys.secret.decode() not in repr(keys)


def test_waiting_ends_when_a_message_comes(keys: Keys, node: Node) -> None:
    other = Node(keys)
    other.connect(node.endpoint)
    threading.Timer(0.05, lambda: other.send(node.endpoint, Kind.PEER, [b"x"])).start()
    assert received(node) == [[b"P", b"x"]]
    other.close()


def test_connections_to_slots_are_bounded_and_the_longest_unused_goes(keys: Keys, node: Node) -> None:
    other = Node(keys)
    connections = Connections(other, slots=5)
    most = max(PASSING_MIN, 5 * PASSING_PER_SLOT)
    gone = [f"tcp://127.0.0.1:{port}" for port in range(2, 2 + most)]  # nobody listens there
    for endpoint in gone:
        connections.send(endpoint, Kind.SLOT, [b"in vain"])
    connections.send(gone[0], Kind.SLOT, [b"in vain"])
    connections.send(node.endpoint, Kind.SLOT, [b"one"])
    assert list(connections._sockets) == [*gone[2:], gone[0], node.endpoint]
    for endpoint in gone:
        connections.send(endpoint, Kind.SLOT, [b"in vain"])
    assert len(list(connections._sockets)) == most
    assert node.endpoint not in list(connections._sockets)
    connections.send(node.endpoint, Kind.SLOT, [b"two"])
    while [b"S", b"two"] not in (arrived := received(node)):
        assert arrived == [[b"S", b"one"]], "the new connection brings what is sent over it"
    other.close(linger_ms=0)


def test_a_fixed_connection_is_not_opened_again(keys: Keys, node: Node) -> None:
    other = Node(keys)
    other.connect(node.endpoint)
    connections = Connections(other, slots=1)
    connections.send(node.endpoint, Kind.WORKER, [b"x"])
    assert list(connections._sockets) == []
    assert received(node) == [[b"W", b"x"]]
    other.close()


def test_the_way_to_another_worker_is_opened_by_the_first_message_and_stays(keys: Keys, node: Node) -> None:
    other = Node(keys)
    connections = Connections(other, slots=1)
    connections.expect("tcp://127.0.0.1:2")
    connections.expect(node.endpoint, "tcp://127.0.0.1:2")
    assert not other.is_connected(node.endpoint)
    connections.send(node.endpoint, Kind.PEER, [b"x"])
    assert other.is_connected(node.endpoint)
    assert list(connections._sockets) == []
    assert received(node) == [[b"P", b"x"]]
    connections.expect("tcp://127.0.0.1:3", node.endpoint)
    assert not other.is_connected(node.endpoint)
    other.close(linger_ms=0)


@pytest.mark.parametrize("size", [10_000, 100_000, 3_000_000])
def test_large_messages_arrive_whole_however_they_come(keys: Keys, node: Node, size: int) -> None:
    """A poll may say that there is something before all frames of a message are there."""
    other = Node(keys)
    other.connect(node.endpoint)
    for i in range(40):
        other.send(node.endpoint, Kind.PEER, [b"%d" % i, bytes(size), bytes(size)])
    arrived: list[list[bytes]] = []
    deadline = monotonic() + WAIT_S
    while len(arrived) < 40:
        assert monotonic() < deadline
        node.wait(100_000)
        arrived += node.receive()
    assert [(int(frames[1]), len(frames[2]), len(frames[3])) for frames in arrived] == [
        (i, size, size) for i in range(40)
    ]
    other.close()


def test_a_frame_that_no_inbox_takes_is_refused_before_it_is_sent(
    keys: Keys, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "MESSAGE_BYTES_MAX", 1_000)
    other = Node(keys)
    other.connect(node.endpoint)
    with pytest.raises(LimitExceeded):
        other.send(node.endpoint, Kind.PEER, [b"header", b"x" * 1_001])
    other.send(node.endpoint, Kind.PEER, [b"header", b"x" * 1_000, b"y" * 1_000])
    assert received(node) == [[b"P", b"header", b"x" * 1_000, b"y" * 1_000]]
    other.close()


def test_what_has_arrived_is_taken_a_bounded_number_of_bytes_at_a_time(
    keys: Keys, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "RECEIVE_BYTES_MAX", 1_000)
    monkeypatch.setattr(neighbours, "READ_BYTES", 1_000)
    other = Node(keys)
    other.connect(node.endpoint)
    for _ in range(10):
        other.send(node.endpoint, Kind.PEER, [b"x" * 400])
    taken: list[int] = []
    while sum(taken) < 10:
        node.wait(1_000_000)
        taken.append(len(node.receive()))
        assert taken[-1] <= 3
    other.close()
