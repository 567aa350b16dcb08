"""The way through slots: how large micro-batches are, when they are cut, what happens to those that nobody computes."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.connectors.base import Run
from penstock.dataset import Block
from penstock.dataset.sizes import BLOCK_BYTES
from penstock.engine.event_time import Origin
from penstock.engine.inputs import Stretch, Taken
from penstock.engine.line import Item, ItemResult, Line
from penstock.engine.lineage import Place
from penstock.engine.passed import Passed
from penstock.engine.ways.pool import SlotPool
from penstock.engine.ways.slots import (
    FIRST_PACE_US,
    ITEM_BLOCKS,
    ITEM_RECORDS_MAX,
    ITEM_WORK_US,
    WHOLE_INTERVAL_US,
    Slots,
)
from penstock.pipeline.ranges import Range
from penstock.protocol import messages as m
from penstock.protocol import slots as s
from penstock.types import Schema

MS = 1_000
SCHEMA = Schema.parse("n bigint")


def done(number: int, took_us: int = 0) -> s.Done:
    return s.Done(
        incarnation=100,
        item=number,
        attempt=0,
        began_us=1000,
        done_us=1000 + took_us,
        source_ns=0,
        due_us=5,
        times=None,
        stages=[],
        parts=[],
        carried=[],
        staged=[],
    )


class Play:
    """A way through one slot, and its line."""

    def __init__(self, record_ns: float = 0.0) -> None:
        self.pool = SlotPool(0, 7)
        self.pool.on_ready(s.Ready(group=1, slot=0, incarnation=100, endpoint="tcp://100"))
        self.line = Line()
        self.way = Slots(Range(0, 1), 50 * MS, self.pool, self.line, SCHEMA, (0, 0), record_ns)

    @property
    def items(self) -> list[Item]:
        return list(self.line.items)

    def gather(self, source: int, count: int, now_us: int, due_us: int = 5, **said: Any) -> None:
        rows = [SCHEMA.record_type(n) for n in range(count)]
        self.way.take(Taken(rows, due_us, Origin(source, source, **said)), Passed(rows), now_us)

    def finish(self, count: int, took_us: int, size_bytes: int = 1) -> int:
        """Have a micro-batch computed; return how large the next may be."""
        self.way.take_stretch(Stretch(Place(0, [Run(0, count)]), 0), Origin(0, 0), 0)
        item = self.items[-1]
        self.pool.send(0)
        self.pool.receive(done(item.number, took_us), [bytes(size_bytes)])
        assert item.is_complete
        self.line.pop()
        return self.way.records_max


@pytest.mark.parametrize(
    ("record_ns", "expected"), [(0.0, 2048), (100.0, 2048), (1e6, ITEM_WORK_US // 1000), (1e9, 1), (1e12, 1)]
)
def test_the_first_micro_batch_fits_what_records_have_cost(record_ns: float, expected: int) -> None:
    assert Play(record_ns).way.records_max == expected


def test_sizes_follow_the_work() -> None:
    play = Play()
    assert play.finish(2048, ITEM_WORK_US // 100) == 3072, "never more than twice as many are aimed at"
    for _ in range(30):
        play.finish(play.way.records_max, 100)
    assert play.way.records_max == ITEM_RECORDS_MAX
    for _ in range(60):
        play.finish(play.way.records_max, play.way.records_max * ITEM_WORK_US)
    assert play.way.records_max == 1, "records that take as long as a micro-batch should"
    for _ in range(60):
        play.finish(play.way.records_max, 1 + play.way.records_max * 10)
    assert play.way.records_max == pytest.approx(ITEM_WORK_US / 10, rel=0.05), "and back"


def test_small_micro_batches_say_nothing_about_large_ones() -> None:
    play = Play()
    assert play.finish(10, 1) == 2048
    assert play.finish(10, ITEM_WORK_US) < 2048


def test_sizes_follow_the_bytes() -> None:
    play = Play()
    for _ in range(30):
        play.finish(play.way.records_max, 1, play.way.records_max * 20_000)
    assert play.way.records_max == pytest.approx(ITEM_BLOCKS * BLOCK_BYTES / 20_000, rel=0.05)


def heavy(rows: int, length: int) -> tuple[Slots, Line]:
    """A way for records of that many characters, and its line, with blocks of 1,000 bytes."""
    play = Play()
    schema = Schema.parse("text string")
    way = Slots(Range(0, 1), 50 * MS, play.pool, play.line, schema, (0, 0), 0.0, 1_000)
    for _ in range(rows):
        row = schema.record_type("x" * length)
        way.take(Taken([row], 5, Origin(0, 0)), Passed([row]), 0)
    return way, play.line


def test_a_micro_batch_is_full_by_its_bytes_too() -> None:
    way, _ = heavy(7, 1_000)
    assert not way.is_full(0)
    way, line = heavy(8, 1_000)
    assert way.is_full(0), "the first one, before any result says what records weigh"
    assert way.cut(1)
    assert [item.count for item in line.items] == [8]


def test_no_more_is_cut_while_what_is_in_line_is_heavy() -> None:
    way, line = heavy(1, 10)
    assert way.room == 2
    way.flush(0)
    (item,) = line.items
    way.on_result(item, ItemResult(done(item.number), [bytes(40_000), bytes(23_999)]))
    assert way.room == 1
    way.on_result(item, ItemResult(done(item.number), [bytes(40_000), bytes(24_000)]))
    assert way.room == 0
    line.pop()
    assert way.room == 1


def test_a_micro_batch_that_is_too_heavy_to_travel_is_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(m, "MESSAGE_BYTES_MAX", 5_000)
    way, line = heavy(1, 6_000)
    way.flush(0)
    (item,) = line.items
    assert item.given_back
    assert item.is_complete
    assert item.payload is not None
    assert way._pool.unsent == []


def test_a_micro_batch_is_cut_when_it_is_full_or_old() -> None:
    play = Play(record_ns=1e6)
    play.gather(0, 3, 1000)
    play.gather(1, 25, 1000)
    play.gather(0, 3, 21_000, due_us=2)
    assert play.way.is_full(1)
    assert not play.way.is_full(0)
    assert play.way.wake_us() == 1000 + FIRST_PACE_US
    assert play.way.cut(1500)
    assert [item.origin.input for item in play.items] == [1]
    assert play.way.wake_us() == 1000 + 2 * FIRST_PACE_US
    assert not play.way.cut(999 + 2 * FIRST_PACE_US)
    assert play.way.cut(1000 + 2 * FIRST_PACE_US)
    item = play.items[-1]
    assert (item.origin.input, item.count, item.due_us) == (0, 6, 2)
    assert item.came_us == 11_000, "when its records came, on average"
    assert not play.way.gathers


def test_the_first_micro_batches_hardly_wait_and_later_ones_gather() -> None:
    play, waits, now_us = Play(), [], 0
    for _ in range(10):
        play.gather(0, 1, now_us)
        wake_us = play.way.wake_us()
        assert wake_us is not None
        waits.append((wake_us - now_us) // MS)
        now_us = wake_us
        assert play.way.cut(now_us)
        item = play.items[-1]
        play.pool.send(now_us)
        play.pool.receive(done(item.number), [b""])
        play.line.pop()
    assert waits == [1, 2, 4, 8, 16, 32, 50, 50, 50, 50]


def test_a_marker_takes_all_that_has_gathered_along() -> None:
    play = Play()
    play.gather(0, 1, 1000)
    play.gather(1, 1, 1000)
    play.way.flush(1001)
    assert [item.origin.input for item in play.items] == [0, 1]


def test_stragglers_begin_a_micro_batch_and_what_is_said_of_a_lane_ends_one() -> None:
    play = Play()
    play.gather(0, 2, 1000, event_time_us=10)
    play.gather(0, 1, 1001, event_time_us=12)
    play.gather(0, 1, 1002, straggler_us=12)
    play.gather(0, 3, 1003, event_time_us=15)
    play.gather(0, 0, 1004, idle=True)
    play.gather(0, 4, 1005)
    play.way.flush(1006)
    told = [(each.count, each.origin.event_time_us, each.origin.straggler_us, each.origin.idle) for each in play.items]
    assert told == [(3, 12, None, None), (4, 15, 12, True), (4, None, None, None)]


def test_what_follows_stragglers_in_their_micro_batch_is_of_their_lane() -> None:
    play = Play()
    for lane, straggler_us in ((0, None), (1, None), (1, 12), (1, 12), (0, None), (1, None)):
        rows = [SCHEMA.record_type(lane)]
        play.way.take(Taken(rows, 5, Origin(0, lane, straggler_us=straggler_us)), Passed(rows), 1000)
    play.way.flush(1001)
    assert [(each.count, each.origin.straggler_us) for each in play.items] == [(2, None), (2, 12), (2, None)]


def test_blocks_that_nothing_was_done_to_stay_as_they_came() -> None:
    play = Play()
    block = Block(4, 4, 1, [SCHEMA.record_type(1)], None, 1, 5)
    play.way.take(Taken([], 5, Origin(0, 0), block=block), Passed([]), 0)
    play.way.flush(1)
    assert play.items[0].count == 1


def test_what_has_no_records_needs_no_slot() -> None:
    play = Play()
    play.gather(0, 0, 1000)
    play.way.flush(2000)
    assert play.items[0].is_complete
    assert play.pool.send(2000) == []


def test_results_of_the_past_are_not_taken() -> None:
    play = Play()
    play.way.take_stretch(Stretch(Place(0, [Run(0, 5)]), 0), Origin(0, 0), 0)
    play.pool.send(0)
    play.way.forget()
    play.pool.receive(done(play.items[0].number), [])
    assert play.items[0].result is None
    assert play.pool.refused_results == 1


def test_room_is_what_slots_take_and_the_line_holds() -> None:
    play = Play()
    assert play.way.room == 2
    play.way.take_stretch(Stretch(Place(0, [Run(0, 5)]), 0), Origin(0, 0), 0)
    play.way.take_stretch(Stretch(Place(0, [Run(5, 5)]), 0), Origin(0, 0), 0)
    assert play.way.room == 0
    for item in play.items:
        item.result = ItemResult(done(item.number), ())
    assert play.way.room <= 0, "results that wait for their turn count"


def test_what_no_slot_is_there_for_is_given_back() -> None:
    play = Play()
    play.way.take_stretch(Stretch(Place(0, [Run(0, 5)]), 0), Origin(0, 0), 0)
    play.pool.send(0)
    play.way.take_stretch(Stretch(Place(0, [Run(5, 5)]), 0), Origin(0, 0), 0)
    play.way.recall()
    assert [each.given_back for each in play.items] == [False, False], "a slot has it, or will"
    play.pool.on_group_ended(1)
    play.way.recall()
    assert [each.given_back for each in play.items] == [True, True]


def test_what_slots_are_lost_with_too_often_is_given_back() -> None:
    play = Play()
    play.way.take_stretch(Stretch(Place(0, [Run(0, 5)]), 0), Origin(0, 0), 0)
    for group in range(1, 4):
        play.pool.send(0)
        assert not play.pool.give_back_lost()
        play.pool.on_group_ended(group)
        play.pool.on_ready(s.Ready(group=group + 1, slot=0, incarnation=100 + group, endpoint="tcp://101"))
    assert play.pool.give_back_lost()
    assert play.items[0].given_back


def test_a_micro_batch_that_is_run_as_a_whole_neither_shrinks_nor_hurries() -> None:
    """What a Spark SQL job costs hardly depends on how many records it has: less work for each would be more in all."""
    whole = Slots(Range(0, 0), 50_000, SlotPool(0, 1), Line(), SCHEMA, (0, 0), record_ns=10_000_000.0, is_whole=True)
    assert whole.records_max == ITEM_RECORDS_MAX
    assert whole.interval_us == WHOLE_INTERVAL_US


def test_what_is_run_as_a_whole_gathers_until_a_slot_has_nothing_else() -> None:
    play = Play()
    play.way = Slots(Range(0, 1), 50 * MS, play.pool, play.line, SCHEMA, (0, 0), is_whole=True)
    play.gather(0, 10, 0)
    assert not play.way.cut(WHOLE_INTERVAL_US - 1)
    assert play.way.cut(WHOLE_INTERVAL_US)
    play.pool.send(WHOLE_INTERVAL_US)
    for at in range(1, 9):
        play.gather(0, 10, at * WHOLE_INTERVAL_US)
        assert not play.way.cut((at + 1) * WHOLE_INTERVAL_US), "the slot is at work"
    (item,) = play.items
    play.pool.receive(done(item.number), [])
    assert play.way.cut(10 * WHOLE_INTERVAL_US)
    assert [each.count for each in play.items] == [10, 80]
