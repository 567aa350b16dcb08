"""Event time where it is read: records are cut before stragglers, lanes that are silent are not waited for."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.event_time import Lanes, Origin, Reading
from penstock.operators import Lateness, sliding
from penstock.pipeline.event_time import Timing
from penstock.types import Schema

SCHEMA = Schema.parse("n bigint, t timestamp")
READERS = [
    (Lateness(),),
    (Lateness(delay_us=4),),
    (Lateness(10, 10, 3),),
    (Lateness(10, 4),),
    (Lateness(10, 10, 3), Lateness(delay_us=12)),
]
TIMES = st.lists(st.none() | st.integers(-30, 60), max_size=25)


@given(st.integers(-100, 100), st.integers(1, 30), st.integers(1, 30), st.integers(0, 9))
def test_late_is_who_comes_when_the_first_of_its_windows_has_closed(
    time_us: int, size_us: int, slide_us: int, delay_us: int
) -> None:
    slide_us = min(size_us, slide_us)
    late_at = Lateness(size_us, slide_us, delay_us).late_at(time_us)
    window = sliding(f"{size_us}us", slide=f"{slide_us}us", on="t")
    assert late_at == window.starts(time_us)[0] + size_us + delay_us


@pytest.mark.parametrize("readers", READERS)
@given(times=TIMES, cuts=st.lists(st.integers(0, 25), max_size=4))
def test_who_is_late_does_not_depend_on_how_records_are_read(
    readers: tuple[Lateness, ...], times: list[int | None], cuts: list[int]
) -> None:
    reading = Reading(Timing(0, "t", readers))
    rows = [SCHEMA.record_type(i, time) for i, time in enumerate(times)]
    expected, newest = [], None
    for time in times:
        late = [time is not None and newest is not None and newest >= each.late_at(time) for each in readers]
        expected.append(late)
        newest = max(filter(lambda each: each is not None, (newest, time)), default=None)
    found: list[list[bool]] = []
    reached: int | None = None
    begins = sorted({0, *cuts, len(rows)})
    for begin, end in pairwise(begins):
        if not rows[begin:end]:
            continue
        pieces, reached = reading.cut(rows[begin:end], reached)
        assert [row for _, piece in pieces for row in piece] == rows[begin:end]
        for straggler_us, piece in pieces:
            for row in piece:
                late = straggler_us is not None and row.t is not None
                found.append([late and straggler_us >= each.late_at(row.t) for each in readers])
    assert found == expected
    assert reached == newest


def test_stragglers_in_a_row_are_one_piece() -> None:
    reading = Reading(Timing(0, "t", (Lateness(10, 10, 3),)))
    rows = [SCHEMA.record_type(i, time) for i, time in enumerate([90, *range(50), 91, 3, 4, 5])]
    pieces, newest = reading.cut(rows, 40)
    assert [(straggler_us, len(piece)) for straggler_us, piece in pieces] == [(None, 1), (90, 51), (91, 3)]
    assert newest == 91


@pytest.mark.parametrize("readers", READERS)
@given(times=TIMES, before=st.none() | st.integers(-30, 60))
def test_a_micro_batch_has_stragglers_exactly_if_its_records_are_cut(
    readers: tuple[Lateness, ...], times: list[int | None], before: int | None
) -> None:
    reading = Reading(Timing(0, "t", readers))
    rows = [SCHEMA.record_type(i, time) for i, time in enumerate(times)]
    found = reading.read(SCHEMA.to_batch(rows))
    if found is None:
        assert all(time is None for time in times)
        return
    pieces, newest = reading.cut(rows, before)
    straggles = found.straggles or (before is not None and found.late_at_us <= before)
    assert straggles is (len(pieces) > 1 or pieces[0][0] is not None)
    assert newest == max(found.newest_us, found.newest_us if before is None else before)


def shown(lanes: Lanes, lane: int, time_us: int | None, *, idle: bool | None = None, input: int = 0) -> Origin:
    origin = Origin(input, lane, time_us, idle=idle)
    lanes.leave(origin)
    return origin


def test_the_slowest_lane_is_waited_for_unless_it_is_idle() -> None:
    lanes = Lanes([(0, 1), (0, 2)], epochs_max=3)
    shown(lanes, 1, 50)
    assert lanes.event_time_us is None, "the other one may still show anything"
    shown(lanes, 2, 20)
    assert lanes.event_time_us == 20
    assert shown(lanes, 2, None, idle=True).idle is True
    assert lanes.event_time_us == 50
    assert shown(lanes, 2, 30).idle is None
    assert shown(lanes, 2, None, idle=False).idle is False
    assert lanes.event_time_us == 30


def test_a_lane_that_shows_no_time_is_not_waited_for_after_some_epochs() -> None:
    lanes = Lanes([(0, 1), (0, 2)], epochs_max=2)
    shown(lanes, 1, 50)
    assert lanes.on_marker() == []
    shown(lanes, 1, 60)
    assert lanes.on_marker() == [Origin(0, 2, idle=True)]
    assert lanes.event_time_us == 60
    assert shown(lanes, 2, 10).idle is False
    assert lanes.event_time_us == 10


def test_a_lane_that_comes_by_two_inputs_is_idle_when_it_is_so_on_both() -> None:
    lanes = Lanes([(0, 1), (1, 1)], epochs_max=2)
    assert shown(lanes, 1, None, idle=True).idle is None
    assert shown(lanes, 1, None, idle=True, input=1).idle is True
    assert shown(lanes, 1, None, idle=False).idle is False


def test_restored_lanes_know_how_far_they_were() -> None:
    lanes = Lanes([(0, 1), (0, 2)], epochs_max=2)
    shown(lanes, 1, 50)
    shown(lanes, 2, 20, idle=True)
    again = Lanes([(0, 1), (0, 2)], epochs_max=2)
    assert again.restore(lanes.state(), [(0, 2)]) == [Origin(0, 2, idle=True)]
    assert again.event_time_us == 50
    assert again.lane(Origin(0, 2)).entered_us == 20
