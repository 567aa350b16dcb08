"""Redis's protocol as lookups speak it: whatever pieces the answers come in, they are read alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connectors.redis.asking import Replies, get_fields, get_many

redis = pytest.importorskip("redis")


def packed(reply: Any) -> bytes:
    match reply:
        case None:
            return b"$-1\r\n"
        case bytes():
            return b"$%d\r\n%b\r\n" % (len(reply), reply)
        case int():
            return b":%d\r\n" % reply
        case _:
            return b"*%d\r\n%b" % (len(reply), b"".join(map(packed, reply)))


def pieces(data: bytes, size: int) -> Callable[[int], bytes]:
    parts = iter([data[i : i + size] for i in range(0, len(data), size)])
    return lambda _: next(parts, b"")


values = st.none() | st.binary(max_size=6) | st.sampled_from([b"\r\n", b"$1\r\n", b""]) | st.integers(-9, 9)


@settings(max_examples=40)
@given(st.lists(values | st.lists(values, max_size=4), max_size=6), st.integers(1, 40), st.data())
def test_answers_are_read_whatever_pieces_they_come_in(replies: list[Any], size: int, data: Any) -> None:
    reader = Replies(pieces(b"".join(map(packed, replies)), size))
    cut = data.draw(st.integers(0, len(replies)))
    assert reader.take(cut) == replies[:cut]
    assert reader.take(len(replies) - cut) == replies[cut:]
    with pytest.raises(redis.ConnectionError, match="closed"):
        reader.take(1)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"-WRONGTYPE no hash\r\n", redis.ResponseError),
        (b"-LOADING Redis is loading\r\n", redis.BusyLoadingError),
        (b"-NOAUTH Authentication required.\r\n", redis.AuthenticationError),
        (b"%1\r\n+a\r\n+b\r\n", redis.InvalidResponse),
    ],
)
def test_what_the_server_refuses_is_an_error(answer: bytes, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        Replies(pieces(b"$1\r\na\r\n" + answer, 5)).take(2)
    assert Replies(pieces(b"+OK\r\n*-1\r\n", 4)).take(2) == [b"OK", None]


def test_many_keys_are_one_message() -> None:
    assert get_many([b"a", b"bc"]) == (b"*3\r\n$4\r\nMGET\r\n$1\r\na\r\n$2\r\nbc\r\n", 1)
    command = b"*4\r\n$5\r\nHMGET\r\n$1\r\n%b\r\n$1\r\nx\r\n$2\r\ny1\r\n"
    assert get_fields(["x", "y1"])([b"a", b"b"]) == (command % b"a" + command % b"b", 2)
