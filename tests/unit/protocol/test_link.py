"""Control messages over a link that loses, doubles and reorders: each arrives once, in order."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import LimitExceeded
from penstock.protocol import link as link_module
from penstock.protocol.link import AGAIN_US_MAX, AGAIN_US_MIN, Header, Link, decode_header

S = 1_000_000


def numbers(frames: list[list[bytes]]) -> list[int]:
    return [decode_header(each[0]).number for each in frames]


def hand(frames: list[list[bytes]], to: Link, now_us: int = 0) -> list[bytes]:
    """Hand everything over; return what is to be acted upon."""
    found: list[bytes] = []
    for header, *packed in frames:
        found += to.receive(decode_header(header), packed[0] if packed else None, now_us)
    return found


def test_what_is_posted_is_numbered_kept_and_forgotten_when_it_is_confirmed() -> None:
    one, other = Link(7), Link(7)
    one.post(b"a")
    one.post(b"b")
    assert not one.is_confirmed
    sent = one.frames(0)
    assert numbers(sent) == [1, 2]
    assert hand(sent, other) == [b"a", b"b"]
    assert hand(other.frames(0), one) == [], "a header alone confirms"
    assert one.is_confirmed
    assert one.frames(S) == []
    assert one.wake_us() is None


def test_what_is_told_has_no_number_and_is_not_repeated() -> None:
    one = Link(7)
    one.tell(b"figures")
    assert numbers(one.frames(0)) == [0]
    assert one.frames(10 * S) == []
    assert one.is_confirmed


def test_what_is_not_confirmed_is_sent_again_and_ever_more_rarely() -> None:
    one = Link(7)
    one.post(b"a")
    one.frames(0)
    now_us, waits = 0, []
    for _ in range(6):
        wake_us = one.wake_us()
        assert wake_us is not None
        assert one.frames(wake_us - 1) == []
        assert numbers(one.frames(wake_us)) == [1]
        waits.append(wake_us - now_us)
        now_us = wake_us
    assert waits[0] == AGAIN_US_MIN
    assert waits == sorted(waits)
    assert waits[-1] == AGAIN_US_MAX


def test_a_duplicate_is_refused_and_confirmed_again() -> None:
    one, other = Link(7), Link(7)
    one.post(b"a")
    (frame,) = one.frames(0)
    assert hand([frame], other) == [b"a"]
    other.frames(0)  # this confirmation is lost
    assert hand([frame], other) == []
    hand(other.frames(0), one)
    assert one.is_confirmed


def test_what_overtakes_waits_for_those_before_it() -> None:
    one, other = Link(7), Link(7)
    for packed in (b"a", b"b", b"c"):
        one.post(packed)
    first, second, third = one.frames(0)
    assert hand([third], other) == []
    assert hand([second], other) == []
    assert hand([first], other) == [b"a", b"b", b"c"]


def test_unconfirmed_messages_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "UNCONFIRMED_MAX", 3)
    one = Link(7)
    for _ in range(3):
        one.post(b"x")
    with pytest.raises(LimitExceeded):
        one.post(b"x")


def test_no_more_bytes_are_on_their_way_than_the_window_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "WINDOW_BYTES", 10)
    one, other = Link(7), Link(7)
    large, small = b"x" * 100, b"y" * 4
    for packed in (large, small, small, small):
        one.post(packed)
    one.tell(b"figures")
    sent = one.frames(0)
    assert [packed for _, packed in sent] == [large, b"figures"], "a large one goes alone; figures wait for nobody"
    assert one.frames(1) == []
    assert numbers(one.frames(AGAIN_US_MIN)) == [1], "only what was sent is sent again"
    assert hand(sent, other) == [large, b"figures"]
    hand(other.frames(1), one, 2)
    assert (one.is_confirmed, one.confirmed_us) == (False, 2)
    assert numbers(one.frames(2)) == [2, 3]
    other.receive(Header(link=7, number=2, seen=0), small, 3)
    hand(other.frames(3), one, 3)
    assert numbers(one.frames(3)) == [4]
    assert not one.is_confirmed


def test_a_header_carries_the_link_that_it_is_of() -> None:
    one = Link(123)
    one.post(b"a")
    assert decode_header(one.frames(0)[0][0]) == Header(link=123, number=1, seen=0)


@given(
    seed=st.integers(0, 1 << 32),
    loss=st.floats(0.0, 0.6),
    doubled=st.floats(0.0, 0.5),
    counts=st.lists(st.integers(0, 4), min_size=1, max_size=30),
    window_bytes=st.sampled_from([1, 4, 1 << 20]),
)
def test_everything_arrives_once_and_in_order_both_ways(
    seed: int, loss: float, doubled: float, counts: list[int], window_bytes: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(link_module, "WINDOW_BYTES", window_bytes)
        exchange(Random(seed), loss, doubled, counts)


def exchange(random: Random, loss: float, doubled: float, counts: list[int]) -> None:
    ends = (Link(7), Link(7))
    posted: tuple[list[bytes], list[bytes]] = ([], [])
    taken: tuple[list[bytes], list[bytes]] = ([], [])
    on_the_way: list[tuple[int, list[bytes]]] = []
    now_us, plan = 0, list(counts)
    for _ in range(3_000):
        if plan:
            side = random.randrange(2)
            for _ in range(plan.pop()):
                packed = b"%d" % len(posted[side])
                posted[side].append(packed)
                ends[side].post(packed)
        for side in (0, 1):
            for frames in ends[side].frames(now_us):
                copies = 0 if plan and random.random() < loss else 2 if random.random() < doubled else 1
                on_the_way += [(1 - side, frames)] * copies
        random.shuffle(on_the_way)
        for _ in range(random.randint(0, len(on_the_way))):
            to, (header, *packed_frames) = on_the_way.pop()
            taken[to].extend(
                ends[to].receive(decode_header(header), packed_frames[0] if packed_frames else None, now_us)
            )
        now_us += random.randint(1, AGAIN_US_MIN)
        if not plan and not on_the_way and all(end.is_confirmed for end in ends):
            break
    assert taken[1] == posted[0]
    assert taken[0] == posted[1]
    assert all(end.is_confirmed for end in ends)
