"""Rows that a slot has made ready and a writer adopts end up where, and as, rows that were written do."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle

import penstock as ps
from penstock.connectors import Sink, SinkWriter, WriterContext
from penstock.errors import BadRecord
from penstock.types import Record, Schema

SCHEMA = Schema.parse("k string, n bigint, x double, b boolean, raw binary, at timestamp, many array<bigint>")
FLAT = Schema.parse("k string, n bigint, x double, b boolean, raw binary, at timestamp")
CONTEXT = WriterContext("job", "out", 0, 1)


def values(schema: Schema) -> list[Record]:
    rows = [
        ("a", 1, 0.5, True, b"\x00\xff", 1_700_000_000_000_001, [1, None, 3]),
        ("", -(2**63), float("inf"), False, b"", 0, []),
        ('ü\n"', None, None, None, None, None, None),
        ("b", 2**63 - 1, -0.0, True, b"x", -1, [7]),
    ]
    return [schema.record_type(*row[: len(schema.names)]) for row in rows]


@dataclass
class Case:
    schema: Schema
    make: Callable[[Path], Sink]
    seen: Callable[[Sink, Path, list[Record] | None], Any]
    """What has become visible of a committed epoch; the records are those that the commit hands to the driver."""


def _jsonl(sink: Sink, path: Path, rows: list[Record] | None) -> Any:
    del sink, rows
    return [part.read_bytes() for part in sorted(path.glob("part-*"))]


def _parquet(sink: Sink, path: Path, rows: list[Record] | None) -> Any:
    del sink, rows
    return [pq.read_table(part).to_pylist() for part in sorted(path.glob("part-*"))]


def _table(sink: Sink, path: Path, rows: list[Record] | None) -> Any:
    del sink, rows
    with sqlite3.connect(path) as connection:
        return sorted(connection.execute("SELECT * FROM t"), key=repr)


def _delivered(sink: Sink, path: Path, rows: list[Record] | None) -> Any:
    del sink, path
    return rows


CASES = {
    "jsonl": Case(SCHEMA, ps.files, _jsonl),
    "parquet": Case(SCHEMA, lambda path: ps.files(path, format="parquet"), _parquet),
    "sqlite": Case(FLAT, lambda path: ps.sqlite(path, "t", key="k"), _table),
    "memory": Case(SCHEMA, lambda path: ps.memory(), _delivered),
    "console": Case(SCHEMA, lambda path: ps.console(), _delivered),
}


def opened(case: Case, path: Path) -> tuple[Sink, SinkWriter]:
    sink = case.make(path)
    sink.check(case.schema)
    return sink, sink.writer(case.schema, CONTEXT)


def stage(sink: Sink, schema: Schema, rows: list[Record]) -> bytes:
    """As a slot does it: in another process, with a sink that came through the serialiser."""
    sent: Sink = cloudpickle.loads(cloudpickle.dumps(sink))
    return sent.stager(schema, "out")(schema.to_batch(rows))


def finish(case: Case, sink: Sink, writer: SinkWriter, path: Path) -> Any:
    writer.prepare(1)
    held = writer.snapshot(1)
    rows = writer.commit(1)
    writer.close()
    return case.seen(sink, path, rows), held if case.seen is _delivered else None


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("cuts", [(4,), (1, 3), (2, 2, 4), ()])
def test_adopted_rows_are_written_rows(tmp_path: Path, name: str, cuts: tuple[int, ...]) -> None:
    case = CASES[name]
    rows = values(case.schema)
    written, writer = opened(case, tmp_path / "written")
    writer.write(rows)
    expected = finish(case, written, writer, tmp_path / "written")
    adopted, adopter = opened(case, tmp_path / "adopted")
    at = 0
    for cut in [*cuts, len(rows)]:
        part, at = rows[at:cut], max(at, cut)
        if part:
            adopter.adopt(stage(adopted, case.schema, part), case.schema)
    assert finish(case, adopted, adopter, tmp_path / "adopted") == expected


@pytest.mark.parametrize("name", CASES)
def test_both_ways_take_turns_in_one_epoch(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    rows = values(case.schema)
    written, writer = opened(case, tmp_path / "written")
    writer.write(rows)
    expected = finish(case, written, writer, tmp_path / "written")
    mixed, mixer = opened(case, tmp_path / "mixed")
    mixer.write(rows[:1])
    mixer.adopt(stage(mixed, case.schema, rows[1:2]), case.schema)
    mixer.write(rows[2:3])
    mixer.adopt(stage(mixed, case.schema, rows[3:]), case.schema)
    assert finish(case, mixed, mixer, tmp_path / "mixed") == expected


def test_the_function_of_foreach_is_called_by_the_worker_only() -> None:
    """Whoever makes a batch ready does not call it; whoever adopts it does, in its order."""
    called: list[tuple[str, int]] = []
    schema = Schema.parse("k string, n bigint")
    sink = ps.foreach(lambda row: called.append((row.k, row.n)))
    assert not sink.is_movable
    writer = sink.writer(schema, CONTEXT)
    staged = sink.stager(schema, "out")(schema.to_batch([schema.record_type("a", 1), schema.record_type("b", 2)]))
    assert called == []
    writer.adopt(staged, schema)
    writer.write([schema.record_type("c", 3)])
    assert called == [("a", 1), ("b", 2), ("c", 3)]


def test_what_json_lines_refuse_is_refused_while_it_is_made_ready(tmp_path: Path) -> None:
    schema = Schema.parse("at timestamp")
    far = [schema.record_type(2**62)]
    with pytest.raises(BadRecord) as written:
        ps.files(tmp_path / "a").writer(schema, CONTEXT).write(far)
    with pytest.raises(BadRecord) as staged:
        stage(ps.files(tmp_path / "b"), schema, far)
    assert str(staged.value) == str(written.value)
