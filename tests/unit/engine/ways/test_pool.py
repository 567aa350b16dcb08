"""The slots that a worker knows: who gets work, what happens to it when slots leave, are lost or are silent."""

from __future__ import annotations

from collections import deque

import pytest

from penstock.engine.event_time import Origin
from penstock.engine.line import Item, Line
from penstock.engine.ways.pool import DEPTH, LOST_US, MISSED_US, SlotPool, Work
from penstock.engine.ways.slots import Slots
from penstock.pipeline.ranges import Range
from penstock.protocol import slots as s
from penstock.types import Schema

S = 1_000_000
OWNER = 1 << 20
"""An incarnation whose micro-batches are numbered from 1."""
T0 = 50 * S


def ready(slot: int, group: int = 1, incarnation: int | None = None, holds: list[int] | None = None) -> s.Ready:
    number = 100 * group + slot if incarnation is None else incarnation
    return s.Ready(group=group, slot=slot, incarnation=number, endpoint=f"tcp://{number}", holds=holds or [])


def way(pool: SlotPool, *, is_whole: bool = False) -> Slots:
    return Slots(Range(0, 1), 1000, pool, Line(), Schema.parse("n bigint"), (0, 0), is_whole=is_whole)


def work(pool: SlotPool, of: Slots, payload: bytes | None = None) -> Work:
    item = Item(of.range, 10, 0, 0, 0, Origin(0, 0), payload=payload)
    do = s.Do(
        slot=0,
        worker=3,
        incarnation=OWNER,
        item=pool.next_item(),
        attempt=0,
        unit=0,
        instance=0,
        range=Range(0, 1),
        partition=0,
        runs=[],
        count=10,
        due_us=0,
        sample=False,
    )
    return Work(do, item, of)


class Play:
    """A pool of worker 3 and what it sends."""

    def __init__(self, *known: s.Ready) -> None:
        self.pool = SlotPool(3, OWNER)
        self.way, self.other = way(self.pool), way(self.pool)
        self.works: dict[int, Work] = {}
        self.now_us = T0
        for each in known:
            self.pool.on_ready(each)

    def submit(self, count: int, of: Slots | None = None) -> list[int]:
        made = [work(self.pool, of or self.way) for _ in range(count)]
        for each in made:
            self.pool.submit(each)
            self.works[each.do.item] = each
        return [each.do.item for each in made]

    @property
    def given_back(self) -> list[int]:
        return [number for number, each in self.works.items() if each.item.given_back]

    def sent(self, after_us: int = 0) -> list[tuple[str, int, int]]:
        """Endpoint, micro-batch and attempt of what goes out now."""
        self.now_us += after_us
        found = []
        # Twice: what is found lost may be given out at once, or at the next time.
        for endpoint, frames in self.pool.send(self.now_us) + self.pool.send(self.now_us):
            message = s.decode_to_slot(frames[0])
            if isinstance(message, s.Do) and message.count:
                assert endpoint == f"tcp://{message.slot}"
                found.append((endpoint, message.item, message.attempt))
        return found


def test_work_is_dealt_out_evenly_and_only_so_deep() -> None:
    play = Play(ready(0), ready(1))
    assert play.pool.room == 2 * DEPTH
    play.submit(5)
    assert play.sent() == [("tcp://100", 1, 0), ("tcp://101", 2, 0), ("tcp://100", 3, 0), ("tcp://101", 4, 0)]
    assert play.pool.room == -1
    assert play.pool.take(101, 2, 0) is not None
    assert play.sent() == [("tcp://101", 5, 0)]


def test_a_way_that_found_no_room_gets_the_next_place() -> None:
    play = Play(ready(0))
    first, second = play.submit(DEPTH)
    play.sent()
    assert play.pool.room_for(play.other) == 0
    play.pool.want(play.other)
    play.pool.want(play.way)
    play.pool.take(100, first, 0)
    assert (play.pool.room_for(play.way), play.pool.room_for(play.other)) == (0, 1)
    (third,) = play.submit(1, play.other)
    play.sent()
    play.pool.take(100, second, 0)
    # Now the other one has more under way.
    play.pool.want(play.other)
    play.pool.want(play.way)
    assert (play.pool.room_for(play.way), play.pool.room_for(play.other)) == (1, 0)
    play.pool.take(100, third, 0)
    assert (play.pool.room_for(play.way), play.pool.room_for(play.other)) == (1, 2), "with as much, who asked first"


def test_of_two_with_as_much_under_way_the_first_to_ask_is_first() -> None:
    play = Play(ready(0))
    third = way(play.pool)
    items = play.submit(DEPTH, third)
    play.sent()
    play.pool.want(play.other)
    play.pool.want(play.way)
    play.pool.want(play.other)  # again, in the same turn: it keeps its place
    play.pool.take(100, items[0], 0)
    assert (play.pool.room_for(play.way), play.pool.room_for(play.other)) == (0, 1)
    play.submit(1, play.other)
    play.sent()
    play.pool.want(play.way)
    play.pool.take(100, items[1], 0)
    assert (play.pool.room_for(play.way), play.pool.room_for(third)) == (1, 0)


def test_what_was_wanted_is_forgotten_when_it_is_not_said_again() -> None:
    play = Play(ready(0))
    (item, _) = play.submit(DEPTH)
    play.sent()
    play.pool.want(play.other)
    play.pool.take(100, item, 0)
    assert play.pool.room_for(play.way) == 0
    play.pool.send(play.now_us)
    assert play.pool.room_for(play.way) == 0, "its unit may not have had its turn yet"
    play.pool.send(play.now_us)
    assert play.pool.room_for(play.way) == 1


@pytest.mark.parametrize("results", [1, 2])
@pytest.mark.parametrize("slots", [1, 2, 4])
@pytest.mark.parametrize("first", [True, False])
def test_a_way_of_whole_micro_batches_has_its_share_under_overload(slots: int, results: int, first: bool) -> None:
    play = Play(*(ready(each) for each in range(slots)))
    whole = way(play.pool, is_whole=True)
    ways = [whole, play.way] if first else [play.way, whole]
    done = dict.fromkeys(ways, 0)
    at_slots: deque[tuple[int, Work]] = deque()
    for _ in range(400):
        for each in ways:  # both have something to give in every turn
            if (room := play.pool.room_for(each)) <= 0:
                play.pool.want(each)
            for item in play.submit(max(0, room), each):
                at_slots.append((item, play.works[item]))
        play.pool.send(play.now_us)
        for _ in range(min(results, len(at_slots))):
            item, of = at_slots.popleft()
            assert play.pool.take(of.do.slot, item, 0) is not None
            done[of.way] += 1
        per_slot = [sum(one.way is whole and one.do.slot == slot for _, one in at_slots) for slot in range(100, 104)]
        assert max(per_slot) <= 1
    assert done[whole] >= 100


def test_micro_batches_that_would_cost_the_same_with_more_do_not_wait_behind_each_other() -> None:
    play = Play(ready(0))
    one, two = way(play.pool, is_whole=True), way(play.pool, is_whole=True)
    (item,) = play.submit(1, one)
    play.sent()
    assert (play.pool.room_for(one), play.pool.room_for(two), play.pool.room_for(play.way)) == (0, 0, 1)
    play.pool.take(100, item, 0)
    assert (play.pool.room_for(one), play.pool.room_for(two), play.pool.room_for(play.way)) == (1, 1, 2)


def test_nothing_goes_out_without_slots() -> None:
    play = Play()
    play.submit(2)
    assert play.sent() == []
    assert (play.pool.slots, play.pool.room) == (0, -2)
    play.pool.on_ready(ready(0))
    assert [item for _, item, _ in play.sent()] == [1, 2]


def test_payloads_follow_their_message() -> None:
    play = Play(ready(0))
    play.pool.submit(work(play.pool, play.way, b"columns"))
    ((_, frames),) = play.pool.send(T0)
    assert frames[1:] == [b"columns"]


def test_the_next_group_stands_by_until_a_slot_of_the_first_leaves() -> None:
    play = Play(ready(0, 1), ready(1, 1), ready(0, 2), ready(1, 2))
    assert play.pool.slots == 2
    play.submit(2)
    assert [to for to, _, _ in play.sent()] == ["tcp://100", "tcp://101"]
    play.pool.on_leave(100)
    ((endpoint, frames),) = play.pool.send(T0)
    assert (endpoint, s.decode_to_slot(frames[0])) == ("tcp://100", s.Left(slot=100, worker=3, incarnation=OWNER))
    play.submit(2)
    assert [to for to, _, _ in play.sent()] == ["tcp://200", "tcp://200"], "slot 1 of the first group has one already"
    assert play.pool.take(100, 1, 0) is not None, "what it had, it finishes"
    play.pool.on_ready(ready(0, 1))
    play.submit(1)
    assert [to for to, _, _ in play.sent()] == ["tcp://101"], "a late word does not bring it back"


def test_a_successor_takes_over_what_a_lost_slot_had_in_order() -> None:
    play = Play(ready(0))
    play.submit(3)
    play.sent()
    play.pool.on_ready(ready(0, 1, incarnation=555))
    assert play.sent() == [("tcp://555", 1, 1), ("tcp://555", 2, 1)]
    assert play.pool.take(100, 1, 0) is None
    assert play.pool.take(555, 1, 0) is None, "a result of the first attempt"
    assert play.pool.refused_results == 2
    assert play.pool.take(555, 1, 1) is not None


def test_the_end_of_a_group_concerns_that_group() -> None:
    play = Play(ready(0, 1), ready(1, 1), ready(0, 2))
    play.submit(2)
    play.sent()
    play.pool.on_group_ended(2)
    assert play.pool.slots == 2
    assert play.sent() == []
    play.pool.on_group_ended(1)
    assert play.pool.slots == 0
    play.pool.on_ready(ready(0, 1))
    assert play.pool.slots == 0, "a late word of a group that has ended"
    play.pool.on_ready(ready(0, 3))
    assert sorted(play.sent()) == [("tcp://300", 1, 1), ("tcp://300", 2, 1)]


def test_a_slot_that_is_silent_for_long_loses_its_work_later_at_each_attempt() -> None:
    play = Play(ready(0), ready(1))
    play.submit(1)
    play.sent()
    assert play.sent(LOST_US) == []
    assert play.sent(1) == [("tcp://101", 1, 1)]
    assert play.pool.slots == 1
    assert play.sent(2 * LOST_US) == []
    play.sent(1)
    assert play.pool.slots == 0


def test_work_that_its_slot_says_it_has_is_not_lost_and_a_slot_that_falls_silent_loses_it() -> None:
    play = Play(ready(0), ready(1))
    play.submit(1)
    play.sent()
    for _ in range(5):
        play.pool.on_ready(ready(0, holds=[1]))
        assert play.sent(LOST_US) == []
    play.pool.on_ready(ready(1))
    assert play.sent(LOST_US) == []
    assert play.sent(1) == [("tcp://101", 1, 1)], "another slot's word is no sign of life of this one"


def test_what_a_slot_does_not_have_though_it_was_sent_is_sent_again() -> None:
    play = Play(ready(0), ready(1))
    play.submit(4)
    play.sent()
    play.pool.on_ready(ready(0, holds=[1]))
    assert play.sent() == [], "it may be on its way"
    play.pool.on_ready(ready(0, holds=[1]))
    assert play.sent(MISSED_US + 1) == [("tcp://100", 3, 1)]


def test_withdrawn_work_is_forgotten_and_its_results_are_refused() -> None:
    play = Play(ready(0))
    gone, kept = play.submit(1, play.other), play.submit(1)
    gone += play.submit(1, play.other)
    kept += play.submit(1)
    play.sent()
    play.pool.withdraw(play.other)
    assert play.pool.take(100, gone[0], 0) is None
    assert [item for _, item, _ in play.sent()] == [kept[1]]


def test_only_what_no_slot_has_can_be_recalled() -> None:
    play = Play(ready(0))
    items = [*play.submit(3), *play.submit(1, play.other)]
    play.sent()
    play.pool.recall(play.way)
    assert play.given_back == [items[2]]
    play.pool.recall(play.other)
    assert play.given_back == items[2:]
    assert play.pool.unsent == []


def test_work_that_slots_are_lost_with_is_given_back() -> None:
    play = Play(ready(0))
    play.submit(2)
    for attempt in range(3):
        assert not play.pool.give_back_lost()
        assert [each[2] for each in play.sent()] == [attempt] * 2
        play.pool.on_ready(ready(0, 1, incarnation=900 + attempt))
    assert play.pool.give_back_lost()
    assert play.given_back == [1, 2]
    assert play.sent() == []


def test_samples_go_to_whoever_has_least_to_do() -> None:
    play = Play()
    do = s.Do(
        slot=0,
        worker=3,
        incarnation=OWNER,
        item=0,
        attempt=0,
        unit=0,
        instance=0,
        range=Range(0, 1),
        partition=0,
        runs=[],
        count=10,
        due_us=0,
        sample=True,
    )
    assert not play.pool.sample(do, None)
    play = Play(ready(0), ready(1))
    play.submit(1)
    play.sent()
    assert play.pool.sample(do, b"rows")
    ((endpoint, frames),) = play.pool.send(T0)
    assert (endpoint, frames[1:]) == ("tcp://101", [b"rows"])


def test_incarnations_do_not_share_numbers() -> None:
    assert SlotPool(3, OWNER + 1).next_item() != SlotPool(3, OWNER + 2).next_item()


def test_slots_that_stand_by_build_too_and_nobody_waits_for_them() -> None:
    pool = SlotPool(0, 70)
    for group in (1, 2):
        pool.receive(ready(0, group), [])
    what = (0, 0, Range(0, 0))
    assert not pool.is_ready_for(what, 0)
    asked = [s.decode_to_slot(frames[0]) for _, frames in pool.send(0)]
    assert all(isinstance(each, s.Do) and not each.count for each in asked)
    known = {each.slot: each.item for each in asked if isinstance(each, s.Do)}
    assert len(known) == 2
    first = next(each for each in pool.used()).ready.incarnation
    done = s.NotDone(
        incarnation=first, item=known[first], attempt=0, code="", operation=None, what="", hint="", user_traceback=""
    )
    pool.receive(done, [])
    assert pool.is_ready_for(what, 0), "the one that is used has built it"
    assert pool.send(0) == [], "nobody is asked twice"


def built(pool: SlotPool) -> list[int]:
    """Slots that are asked to build now; they do."""
    found = []
    for _, frames in pool.send(T0):
        message = s.decode_to_slot(frames[0])
        if isinstance(message, s.Do) and not message.count:
            found.append(message.slot)
            done = s.Done(
                incarnation=message.slot, item=message.item, attempt=0, began_us=0, done_us=0, due_us=0, source_ns=0,
                times=None, parts=[], stages=[], carried=[], staged=[],
            )  # fmt: skip
            pool.receive(done, [])
    return found


def test_what_a_slot_did_not_hear_it_is_asked_again() -> None:
    play, what = Play(ready(0)), (0, 0, Range(0, 1))
    assert not play.pool.is_ready_for(what, T0)
    assert len(play.pool.send(T0)) == 1, "lost on the way"
    play.pool.receive(ready(0), [])
    play.pool.send(T0 + MISSED_US)
    assert not play.pool.is_ready_for(what, T0 + MISSED_US)
    assert play.pool.send(T0 + MISSED_US) == [], "it may still come"
    play.pool.receive(ready(0), [])
    play.pool.send(T0 + MISSED_US + 1)
    assert not play.pool.is_ready_for(what, T0 + MISSED_US + 1)
    assert built(play.pool) == [100]
    assert play.pool.is_ready_for(what, T0 + MISSED_US + 1)


def test_a_slot_that_comes_up_later_builds_before_it_gets_work() -> None:
    play = Play(ready(0))
    play.submit(1)
    assert play.sent() == [("tcp://100", 1, 0)]
    play.pool.on_ready(ready(1))
    play.submit(1)
    assert play.sent() == [("tcp://101", 2, 0)], "nobody has computed such a micro-batch yet"
    play.pool.take(100, 1, 0)
    play.pool.on_ready(ready(2))
    play.submit(1)
    out = play.pool.send(T0)
    messages = [(to, s.decode_to_slot(frames[0])) for to, frames in out]
    assert [(to, each.count) for to, each in messages if isinstance(each, s.Do)] == [
        ("tcp://102", 0),
        ("tcp://100", 10),
    ]
    play.submit(2)
    assert [to for to, _, _ in play.sent()] == ["tcp://100", "tcp://102"], "rather than wait it builds on its own"


def test_who_has_built_gets_work_like_the_others() -> None:
    play = Play(ready(0))
    play.submit(1)
    play.sent()
    play.pool.take(100, 1, 0)
    play.pool.on_ready(ready(1))
    play.submit(1)
    assert built(play.pool) == [101]
    play.submit(2)
    assert [to for to, _, _ in play.sent()] == ["tcp://101", "tcp://100"]
