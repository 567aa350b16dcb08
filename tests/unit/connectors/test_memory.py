"""Rows in memory: the scripted source and the collecting sink."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pyspark import cloudpickle

from penstock.connectors import At, WriterContext, memory, records
from penstock.connectors.base import Run
from penstock.errors import BadRecord, InvalidOption, LimitExceeded
from penstock.types import Schema

_SCHEMA = Schema.parse("k string, n bigint")
_CONTEXT = WriterContext(job="test", operation="out", instance=0, instances=1)


def _row(k: str, n: int) -> Any:
    return _SCHEMA.record_type(k, n)


def test_rows_are_read_once_in_order() -> None:
    reader = records([("a", 1), {"k": "b", "n": 2}, _row("c", 3), {"k": "d"}], schema=_SCHEMA).reader(0, 1, 50)
    assert reader.wake_us(50) == 50
    assert reader.backlog_records(50) == 4
    batch = reader.poll(50, 3)
    assert batch is not None
    assert batch.rows == [_row("a", 1), _row("b", 2), _row("c", 3)]
    assert batch.due_us == 50
    batch = reader.poll(60, 3)
    assert batch is not None
    assert batch.rows == [_SCHEMA.record_type("d", None)]
    assert reader.poll(60, 3) is None
    assert reader.wake_us(60) is None


def test_script_sets_when_rows_are_due() -> None:
    script = ["a", At("5s"), "b", "c", At(7), "d", At("10s")]
    reader = records(script, schema="w string").reader(0, 1, 100)

    def words(now_us: int) -> list[str]:
        batch = reader.poll(now_us, 10)
        return [] if batch is None else [row.w for row in batch.rows]

    assert words(99) == []
    assert words(100) == ["a"]
    assert words(5_000_099) == []
    assert reader.wake_us(5_000_099) == 5_000_100
    assert reader.backlog_records(5_000_100) == 2
    assert words(5_000_100) == ["b", "c"]
    assert words(8_000_000) == ["d"]
    assert reader.wake_us(8_000_000) == 10_000_100
    assert reader.wake_us(10_000_100) is None


def test_batch_is_due_with_its_oldest_row() -> None:
    reader = records([At(1), "a", At(2), "b"], schema="w string").reader(0, 1, 0)
    batch = reader.poll(3_000_000, 10)
    assert batch is not None
    assert (len(batch.rows), batch.due_us) == (2, 1_000_000)


def test_seek() -> None:
    reader = records(["a", "b", "c"], schema="w string").reader(0, 1, 0)
    for offset in (0, 2, 1, 3):
        reader.seek(offset)
        batch = reader.poll(0, 10)
        words = [] if batch is None else [row.w for row in batch.rows]
        assert words == ["a", "b", "c"][offset:]


def test_partitions() -> None:
    def read(source: Any) -> list[list[int]]:
        source = cloudpickle.loads(cloudpickle.dumps(source))
        readers = [source.reader(partition, source.partitions(9), 0) for partition in range(source.partitions(9))]
        batches = [reader.poll(10**7, 10) for reader in readers]
        return [[] if batch is None else [row.n for row in batch.rows] for batch in batches]

    assert read(records([1, 2, 3], schema="n int")) == [[1, 2, 3]]
    assert read(records([1, 2, At(1), 3], schema="n int", partitions=2)) == [[1, 3], [2]]
    assert read(records(schema="n int", partitions=[[1], [], [2, At(3), 3]])) == [[1], [], [2, 3]]
    assert records([1], schema="n int").kind == "records"


def test_rows_that_do_not_fit_name_the_row() -> None:
    with pytest.raises(BadRecord, match=r"row 1: .*column 'n'"):
        records([("a", 1), ("b", "two")], schema=_SCHEMA)
    with pytest.raises(BadRecord, match="row 0: "):
        records([{"unknown": 1}], schema=_SCHEMA)


@pytest.mark.parametrize(
    "options",
    [
        {"partitions": 0},
        {"partitions": True},
        {"partitions": []},
        {"partitions": [[1]], "rows": [1]},
        {"rows": [At("2s"), At("1s")]},
        {"rows": [At("later")]},
    ],
)
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        records(**{"schema": "n int", **options})


def test_sink_takes_rows_when_they_are_committed() -> None:
    sink = memory()
    writer = cloudpickle.loads(cloudpickle.dumps(sink)).writer(_SCHEMA, _CONTEXT)
    writer.write([_row("a", 1)])
    writer.prepare(1)
    writer.write([_row("b", 2)])
    writer.prepare(2)
    writer.write([_row("c", 3)])
    assert writer.commit(0) is None
    committed = writer.commit(2)
    assert committed == [_row("a", 1), _row("b", 2)]
    assert writer.commit(2) is None
    writer.prepare(3)
    sink.deliver(committed, _SCHEMA)
    sink.deliver(writer.commit(3) or [], _SCHEMA)
    assert sink.rows == [_row("a", 1), _row("b", 2), _row("c", 3)]
    assert sink.dicts() == [{"k": "a", "n": 1}, {"k": "b", "n": 2}, {"k": "c", "n": 3}]
    sink.clear()
    assert sink.rows == []
    assert sink.kind == "memory"


def test_sink_is_safe_among_threads() -> None:
    sink = memory()
    threads = [
        threading.Thread(target=lambda n=n: [sink.deliver([_row("t", n)], _SCHEMA) for _ in range(500)])
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(row.n for row in sink.rows) == sorted(list(range(4)) * 500)


def test_sink_is_bounded() -> None:
    sink = memory(limit=2)
    sink.deliver([_row("a", 1)], _SCHEMA)
    with pytest.raises(LimitExceeded, match="limit of 2"):
        sink.deliver([_row("b", 2), _row("c", 3)], _SCHEMA)
    assert len(sink.rows) == 1
    with pytest.raises(InvalidOption, match="limit"):
        memory(limit=0)


def test_rows_are_read_as_columns_due_or_not() -> None:
    script = [_row("a", 1), At(5), _row("b", 2), {"k": None, "n": 3}, At(9)]
    reader = records(script, schema=_SCHEMA).reader(0, 1, 100)
    assert [reader.due_records(now_us) for now_us in (0, 100, 5_000_100)] == [0, 1, 3]
    read = reader.read(Run(0, 2))
    assert (read.columns.to_pylist(), read.due_us) == ([{"k": "a", "n": 1}, {"k": "b", "n": 2}], 100)
    assert (reader.offset, reader.due_records(100), reader.wake_us(100)) == (0, 1, 100), "reading leaves it alone"
    assert reader.skip(2) == [Run(0, 2)]
    assert (reader.offset, reader.due_records(100), reader.wake_us(100)) == (2, 0, 5_000_100)
    with pytest.raises(InvalidOption, match="count"):
        reader.read(Run(2, 2))
    assert reader.read(Run(2, 1)).due_us == 5_000_100
    assert reader.skip(1) == [Run(2, 1)]
    assert reader.wake_us(5_000_100) == 9_000_100
    assert reader.wake_us(9_000_100) is None
    assert reader.read(Run(1, 2)).columns == _SCHEMA.to_batch([_row("b", 2), _SCHEMA.record_type(None, 3)])
