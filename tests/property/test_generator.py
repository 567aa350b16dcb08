"""Properties of the generator: any partitioning, polling and seeking gives the same records in time."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.connectors import fields, generator, rates
from penstock.connectors.base import Run
from penstock.connectors.draws import Picker, unit
from penstock.connectors.generator import Generator
from penstock.connectors.making import Context
from penstock.connectors.rates import RateSchedule, Segment
from penstock.errors import InvalidOption
from penstock.types import record_dict

_RATES = st.one_of(
    st.sampled_from([0.1, 1 / 3, 0.7, 1.0, 7.0, 999.0, 1e4, 123_456.789, 3e6]),
    st.floats(min_value=0.01, max_value=5e6, allow_nan=False),
)
_SEGMENTS = st.lists(
    st.builds(Segment, st.integers(1, 5_000_000), st.one_of(st.just(0.0), _RATES)), min_size=1, max_size=5
)


@st.composite
def _schedules(draw: st.DrawFn) -> RateSchedule:
    segments = draw(_SEGMENTS)
    last = Segment(draw(st.integers(1, 5_000_000)), draw(_RATES))
    repeat_from = draw(st.one_of(st.none(), st.integers(0, len(segments))))
    return RateSchedule((*segments, last), repeat_from)


@settings(deadline=None)
@given(_schedules(), st.integers(0, 10**9), st.integers(1, 200), st.integers(1, 7))
def test_times_agree_in_both_forms_and_never_go_back(
    schedule: RateSchedule, first: int, count: int, stride: int
) -> None:
    assume(schedule.time_us(first + count * stride) < 1 << 62)  # later than that no timestamp is
    times_us = schedule.times_us(first, count, stride).tolist()
    assert times_us == [schedule.time_us(offset) for offset in range(first, first + count * stride, stride)]
    assert times_us == sorted(times_us)
    assert times_us[0] >= 0


@settings(deadline=None)
@given(_schedules(), st.integers(0, 10**12))
def test_due_counts_exactly_what_has_its_time(schedule: RateSchedule, elapsed_us: int) -> None:
    due = schedule.due(elapsed_us)
    assert schedule.time_us(due) > elapsed_us
    assert due == 0 or schedule.time_us(due - 1) <= elapsed_us


@settings(deadline=None)
@given(_schedules(), st.integers(0, 10**8))
def test_rate_is_kept_over_time(schedule: RateSchedule, elapsed_us: int) -> None:
    """The count is the integral of the rate, give or take one record for each piece of the schedule."""
    expected, left_us = 0.0, elapsed_us
    segments = schedule.segments
    period = segments[schedule.repeat_from :] if schedule.repeat_from is not None else segments[-1:]
    period_us = sum(segment.duration_us for segment in period)
    period_count = sum(segment.duration_us * segment.rate_eps / 1e6 for segment in period)
    lead = segments[: len(segments) - len(period)]
    for segment in lead:
        spent_us = min(left_us, segment.duration_us)
        expected += spent_us * segment.rate_eps / 1e6
        left_us -= spent_us
    cycles = left_us // period_us
    expected += cycles * period_count
    left_us -= cycles * period_us
    for segment in period:
        spent_us = min(left_us, segment.duration_us)
        expected += spent_us * segment.rate_eps / 1e6
        left_us -= spent_us
    # A microsecond at the highest rate is the resolution of time.
    slack = 2 + max(segment.rate_eps for segment in segments) * 2e-6 + expected * 1e-9
    assert abs(schedule.due(elapsed_us) - expected) <= slack


_FIELDS: dict[str, object] = {
    "n": fields.sequence(),
    "id": fields.hexid(11),
    "kind": fields.choice(["a", "b", "c"], zipf=1.0),
    "size": fields.normal(0, 1),
    "at": fields.event_time(unit="us", jitter="1s"),
    "same": "é%",
}

_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("poll"), st.integers(0, 300_000), st.integers(1, 700)),
        st.tuples(st.just("seek"), st.integers(0, 2000), st.just(0)),
    ),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(
    rate=st.sampled_from([50.0, 5000.0, 50_000.0, None]),
    form=st.sampled_from(["json", "columns"]),
    partitions=st.integers(1, 5),
    partition=st.integers(0, 4),
    seed=st.integers(0, 2**63 - 1),
    steps=_STEPS,
)
def test_readers_agree_with_the_records_of_the_offsets(
    rate: float | None,
    form: str,
    partitions: int,
    partition: int,
    seed: int,
    steps: list[tuple[str, int, int]],
) -> None:
    partition %= partitions
    source = generator(_FIELDS, rate=rate, seed=seed, total=3000, format=form)
    start_us = 1_000_000_000
    expected = source.records(0, 3000, start_us)[partition::partitions]
    reader = source.reader(partition, partitions, start_us)
    now_us = start_us
    for step, amount, records_max in steps:
        if step == "seek":
            reader.seek(min(amount, len(expected)))
            continue
        now_us += amount
        offset, backlog, wake_us = reader.offset, reader.backlog_records(now_us), reader.wake_us(now_us)
        batch = reader.poll(now_us, records_max)
        rows: list[Any] = [] if batch is None else batch.rows
        assert rows == expected[offset : offset + len(rows)]
        assert reader.offset == offset + len(rows)
        assert len(rows) <= min(backlog, records_max)
        assert bool(rows) == (backlog > 0) == (wake_us is not None and wake_us <= now_us)
        assert reader.backlog_records(now_us) == backlog - len(rows)
        if batch is not None and rate is not None:
            assert batch.due_us == wake_us


@settings(deadline=None)
@given(st.integers(0, 10**12), st.integers(1, 50), st.integers(0, 40))
def test_any_range_is_the_same_alone(first: int, count: int, skip: int) -> None:
    source = generator(_FIELDS, rate=rates.burst(base=10, peak=1000), seed=5)
    rows = source.records(first, count, 0)
    assert source.records(first + min(skip, count), count, 0)[: count - min(skip, count)] == rows[skip:]


_SHOWN_IN = {"at": 1, "seconds": 1_000_000, "millis": 1_000}
"""Microseconds in the unit in which JSON shows a time of `_EVERY_FIELD`."""


@settings(deadline=None)
@given(
    rate=st.sampled_from([0.3, 5000.0, 3e6, None]),
    seed=st.integers(0, 2**63 - 1),
    first=st.integers(0, 10**9),
    count=st.integers(1, 50),
)
def test_json_is_the_columns_as_the_encoder_writes_them(rate: float | None, seed: int, first: int, count: int) -> None:
    as_json, as_columns = (generator(_EVERY_FIELD, rate=rate, seed=seed, format=form) for form in ("json", "columns"))
    expected = []
    for record in as_columns.records(first, count, 10**15):
        members = record_dict(record)
        members |= {name: members[name] // unit_us for name, unit_us in _SHOWN_IN.items()}  # type: ignore[operator]
        expected.append(msgspec.json.encode(members))
    assert [record.value for record in as_json.records(first, count, 10**15)] == expected


@given(
    weights=st.lists(st.floats(0, 1), min_size=1, max_size=40).filter(any),
    words=st.lists(st.integers(0, 2**64 - 1), max_size=50),
    near=st.lists(st.tuples(st.integers(0, 2**16 - 1), st.integers(-2, 2)), max_size=20),
)
def test_a_weighted_pick_is_found_as_a_search_finds_it(
    weights: list[float], words: list[int], near: list[tuple[int, int]]
) -> None:
    picker = Picker(len(weights), weights, None)
    assert picker.cumulative is not None
    edges = [min(max((cell << 48) + away, 0), 2**64 - 1) for cell, away in near]
    bounds = [min(int(bound * 2**64), 2**64 - 1) for bound in picker.cumulative.tolist()]
    drawn = np.array([words + edges + bounds], dtype=np.uint64)
    assert picker(drawn).tolist() == np.searchsorted(picker.cumulative, unit(drawn), side="right").tolist()
    assert all(weights[place] > 0 for place in picker(drawn[0]).tolist())


def _by_function(ctx: Context) -> dict[str, object]:
    return {"n": ctx.offset, "at": ctx.time_us, "u": ctx.random.random()}


_EVERY_FIELD: dict[str, object] = {
    **_FIELDS,
    "user": fields.choice(["", 'quo"te', "é", "\\", "100%", None], weights=[1, 2, 3, 4, 5, 6]),
    "many": fields.choice([f"value {i}" for i in range(5000)]),
    "flag": fields.choice([True, False, None]),
    "price": fields.choice([1, 2.5, None]),
    "raw": fields.choice([b"", b"\xff", b"a"]),
    "list": fields.choice([[], [1, None], [3], None]),
    "numbers": fields.integers(-(1 << 63), (1 << 63) - 1),
    "small": fields.integers(-3, 3),
    "ratio": fields.uniform(-1, 1e9),
    "tiny": fields.uniform(0, 1e-300),
    "sentence": fields.words(["", "a", "é", 'b"', "\\n"], 3, zipf=1.0),
    "one_word": fields.words(["alpha", "beta"], 1),
    "letters": fields.text(7),
    "seconds": fields.event_time(unit="s"),
    "millis": fields.event_time(unit="ms", jitter="3s"),
    "constant": [1, 2.5],
}


def _sources(rate: float | None, seed: int, total: int | None) -> dict[str, Generator]:
    common: dict[str, Any] = {"rate": rate, "seed": seed, "total": total}
    return {
        "json": generator(_EVERY_FIELD, **common),
        "json, one field": generator({"n": fields.sequence()}, **common),
        "json, no field": generator({"same": 1, "other": "%d"}, **common),
        "json of a function": generator(_by_function, **common),
        "text": generator(fields.words(["a", "", "é"], 4), format="text", **common),
        "text, constant": generator({"value": "é"}, format="text", **common),
        "columns": generator(_EVERY_FIELD, format="columns", **common),
        "columns of a function": generator(_by_function, schema="n bigint, at timestamp, u double", **common),
    }


@settings(max_examples=80, deadline=None)
@given(
    rate=st.sampled_from([0.3, 50.0, 5000.0, 3e6, None]),
    name=st.sampled_from(sorted(_sources(None, 0, None))),
    partitions=st.integers(1, 5),
    partition=st.integers(0, 4),
    seed=st.integers(0, 2**63 - 1),
    total=st.sampled_from([None, 0, 700]),
    steps=st.lists(
        st.tuples(st.sampled_from(["poll", "read", "seek"]), st.integers(0, 300_000), st.integers(0, 700)),
        max_size=12,
    ),
)
def test_columns_are_the_polled_records(
    rate: float | None,
    name: str,
    partitions: int,
    partition: int,
    seed: int,
    total: int | None,
    steps: list[tuple[str, int, int]],
) -> None:
    """Whatever is read as columns, in turn with polls and at any place, is what `records` makes, and due when it is."""
    source = _sources(rate, seed, total)[name]
    start_us, now_us = 1_000_000_000, 1_000_000_000
    reader = source.reader(partition % partitions, partitions, start_us)
    end = 1 << 62 if total is None else len(range(partition % partitions, total, partitions))
    for step, amount, count in steps:
        now_us += amount
        offset = reader.offset
        due, wake_us = reader.due_records(now_us), reader.wake_us(now_us)
        assert due is not None
        assert 0 <= due <= end - offset
        if rate is None:
            assert due == min(end - offset, 1 << 30)
        else:
            assert due == reader.backlog_records(now_us)
        if step == "seek":
            reader.seek(min(count, end))
            continue
        if step == "poll":
            polled = reader.poll(now_us, count + 1)
            got = [] if polled is None else polled.rows
            due_us = None if polled is None else polled.due_us
        else:
            count = min(count, end - offset)
            if count == 0:
                with pytest.raises(InvalidOption, match="count"):
                    reader.read(Run(offset, end - offset + 1 if total is not None else 0))
                continue
            read = reader.read(Run(offset, count))
            assert (reader.offset, reader.skip(count)) == (offset, [Run(offset, count)])
            read.columns.validate(full=True)
            assert read.columns.schema == source.schema.arrow
            assert read.columns.num_rows == count
            got, due_us = source.schema.to_rows(read.columns), read.due_us
            if rate is None:
                assert due_us == 0
        first = offset * partitions + partition % partitions
        expected = source.records(first, (len(got) - 1) * partitions + 1, start_us)[::partitions] if got else []
        assert got == expected
        assert reader.offset == offset + len(got)
        if got and rate is not None:
            assert due_us == wake_us
