"""The generator: what a reader gives out and when, formats, users' functions, and bad options."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark import cloudpickle

from penstock.connectors import fields, generator, rates
from penstock.connectors.base import Run, SourceReader
from penstock.connectors.making import Context
from penstock.errors import BadRecord, InvalidOption, SchemaError
from penstock.types import Schema

_START_US = 1_700_000_000_000_000
_EVENT = {"id": fields.sequence(), "kind": fields.choice(["view", "click"]), "user": fields.hexid(8)}


def _drain(reader: SourceReader, now_us: int, records_max: int = 1000) -> list[Any]:
    rows: list[Any] = []
    while (batch := reader.poll(now_us, records_max)) is not None:
        assert 0 < len(batch.rows) <= records_max
        rows += batch.rows
    return rows


def test_records_are_given_out_when_they_are_due() -> None:
    reader = generator(_EVENT, rate=1000, format="columns").reader(0, 1, _START_US)
    assert reader.wake_us(_START_US - 500) == _START_US
    assert reader.poll(_START_US - 1, 10) is None
    batch = reader.poll(_START_US, 10)
    assert batch is not None
    assert [row.id for row in batch.rows] == [0]
    assert batch.due_us == _START_US
    assert reader.poll(_START_US + 999, 10) is None
    assert reader.wake_us(_START_US + 999) == _START_US + 1000
    batch = reader.poll(_START_US + 5000, 3)
    assert batch is not None
    assert [row.id for row in batch.rows] == [1, 2, 3]
    assert batch.due_us == _START_US + 1000
    assert reader.offset == 4
    assert reader.backlog_records(_START_US + 5000) == 2
    assert [row.id for row in _drain(reader, _START_US + 5000)] == [4, 5]


@pytest.mark.parametrize("records_max", [1, 7, 1000, 5000])
def test_backlog_is_read_in_order_without_gap(records_max: int) -> None:
    reader = generator({"id": fields.sequence()}, rate=10_000, format="columns").reader(0, 1, _START_US)
    assert reader.backlog_records(_START_US + 999_999) == 10_000
    assert [row.id for row in _drain(reader, _START_US + 999_999, records_max)] == list(range(10_000))
    assert reader.backlog_records(_START_US + 999_999) == 0
    assert reader.wake_us(_START_US + 999_999) == _START_US + 1_000_000


def test_partitions_share_the_rate_and_the_records() -> None:
    source = generator(_EVENT, rate=1000, total=1000)
    whole = source.records(0, 1000, _START_US)
    for partitions in (1, 3, 4):
        parts = [_drain(source.reader(p, partitions, _START_US), _START_US + 10**7) for p in range(partitions)]
        for partition, rows in enumerate(parts):
            assert rows == whole[partition::partitions]
    second = source.reader(1, 3, _START_US)
    assert second.wake_us(_START_US) == _START_US + 1000
    assert second.backlog_records(_START_US + 2999) == 1
    assert second.backlog_records(_START_US + 4000) == 2


def test_bounded_source_ends() -> None:
    source = generator(_EVENT, rate=1000, total=5)
    readers = [source.reader(partition, 3, 0) for partition in range(3)]
    assert [reader.backlog_records(10**9) for reader in readers] == [2, 2, 1]
    for reader in readers:
        _drain(reader, 10**9)
        assert reader.wake_us(10**9) is None
        assert reader.poll(10**9, 10) is None
    empty = generator(_EVENT, rate=1000, total=1).reader(1, 2, 0)
    assert empty.wake_us(0) is None
    assert empty.poll(10**9, 10) is None
    assert source.records(3, 10, 0) == source.records(0, 5, 0)[3:]


def test_seek_gives_the_same_records_again() -> None:
    source = generator(_EVENT, rate=10_000, total=4000)
    expected = source.records(0, 4000, _START_US)
    reader = source.reader(0, 1, _START_US)
    now_us = _START_US + 10**6
    _drain(reader, now_us)
    for offset in (0, 3999, 17, 2500, 2501, 4000):
        reader.seek(offset)
        assert reader.offset == offset
        assert _drain(reader, now_us, 333) == expected[offset:]


def test_without_a_rate_records_are_due_at_once() -> None:
    source = generator({"t": fields.event_time(unit="us")}, rate=None, total=3, format="columns")
    reader = source.reader(0, 1, _START_US)
    assert reader.wake_us(_START_US + 77) == _START_US + 77
    assert reader.backlog_records(_START_US) == 3
    batch = reader.poll(_START_US + 77, 10)
    assert batch is not None
    assert batch.due_us == _START_US + 77
    assert [row.t for row in batch.rows] == [_START_US, _START_US + 1, _START_US + 2]
    assert reader.wake_us(_START_US + 78) is None


def test_pause_in_the_schedule() -> None:
    reader = generator(_EVENT, rate=rates.steps([("1s", 2), ("10s", 0), ("1s", 1)])).reader(0, 1, 0)
    assert len(_drain(reader, 10_999_999)) == 2
    assert reader.wake_us(2_000_000) == 11_000_000


def test_constants_only() -> None:
    rows = generator({"a": 1, "b": "x%"}, rate=1).records(0, 2, 0)
    assert [json.loads(row.value) for row in rows] == [{"a": 1, "b": "x%"}] * 2


def test_text_format() -> None:
    source = generator(fields.words(["a", "b"], 2), rate=1, format="text")
    assert source.schema == Schema.parse("value string not null")
    assert {row.value for row in source.records(0, 50, 0)} == {"a a", "a b", "b a", "b b"}


def _typed(context: Context) -> dict[str, object]:
    return {"n": context.offset, "t": context.time_us, "x": context.random.random()}


def test_function_with_a_schema() -> None:
    source = generator(_typed, rate=2, seed=9, schema="n bigint, t timestamp, x double", partitions=2)
    rows = source.records(0, 4, 100)
    assert [(row.n, row.t) for row in rows] == [(0, 100), (1, 500_100), (2, 1_000_100), (3, 1_500_100)]
    assert len({row.x for row in rows}) == 4
    assert _drain(source.reader(1, 2, 100), 1_500_100) == rows[1::2]
    assert generator(_typed, rate=2, seed=8, schema=source.schema).records(0, 4, 100) != rows


def test_function_in_json_and_text() -> None:
    source = generator(lambda c: b"{broken" if c.offset == 1 else {"n": c.offset}, rate=1)
    assert [row.value for row in source.records(0, 3, 0)] == [b'{"n":0}', b"{broken", b'{"n":2}']
    text = generator(lambda c: f"line {c.offset}", rate=1, format="text")
    assert [row.value for row in text.records(0, 2, 0)] == ["line 0", "line 1"]


def test_function_whose_record_does_not_fit() -> None:
    with pytest.raises(BadRecord, match="n"):
        generator(lambda c: {"n": "one"}, rate=1, schema="n bigint").records(0, 1, 0)


@pytest.mark.parametrize("make", [_EVENT, lambda c: {"n": c.offset, "r": c.random.randrange(9)}])
def test_travels_to_workers(make: Any) -> None:
    source = generator(make, rate=rates.burst(base=10, peak=100))
    again = cloudpickle.loads(cloudpickle.dumps(source))
    assert again.records(0, 50, 0) == source.records(0, 50, 0)


def test_partitions_follow_the_parallelism_unless_given() -> None:
    assert generator(_EVENT, rate=1).partitions(4) == 4
    assert generator(_EVENT, rate=1, partitions=3).partitions(4) == 3
    assert generator(_EVENT, rate=1).kind == "generator"


@pytest.mark.parametrize(
    "options",
    [
        {"seed": -1},
        {"seed": 0.5},
        {"total": -1},
        {"total": True},
        {"partitions": 0},
        {"partitions": 1 << 40},
        {"format": "csv"},
        {"format": "text"},
        {"schema": "id bigint"},
        {"rate": -1},
        {"fields": {}},
        {"fields": 5},
        {"fields": {1: 2}},
        {"fields": {"a": None}, "format": "columns"},
        {"fields": lambda c: {}, "format": "columns"},
    ],
)
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        generator(**{"fields": _EVENT, "rate": 1, **options})


def test_bad_column_name_is_refused() -> None:
    with pytest.raises(SchemaError, match="cannot be a column name"):
        generator({"": 1}, rate=1, format="columns")


def test_wide_records_are_made_as_columns_in_parts() -> None:
    """Otherwise the random bits of a batch alone would take gigabytes."""
    source = generator({"n": fields.sequence(), "text": fields.text(90_000)}, rate=None, seed=3, format="columns")
    columns = source.reader(0, 2, 0).read(Run(0, 400)).columns
    assert columns.column("n").to_pylist() == list(range(0, 800, 2))
    for place in (0, 185, 186, 187, 399):
        (record,) = source.records(2 * place, 1, 0)
        assert columns.column("text")[place].as_py() == record.text
