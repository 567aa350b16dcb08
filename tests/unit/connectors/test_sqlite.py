"""The SQLite sink: upserts by key, an epoch once, and clear refusals."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import penstock as ps
from penstock.connectors.base import WriterContext
from penstock.errors import InvalidOption, SinkFailed, TypeMismatch, UnknownColumn
from penstock.types import Schema

SCHEMA = Schema.parse("k string, n bigint, x double, b boolean, raw binary, at timestamp")
ROW = SCHEMA.record_type


def table(path: Path, name: str = "t") -> list[tuple]:
    with sqlite3.connect(path) as connection:
        return sorted(connection.execute(f"SELECT * FROM {name}"))


def opened(path: Path, instance: int = 0, key: str | tuple[str, ...] = "k"):
    sink = ps.sqlite(path, "t", key=key)
    sink.check(SCHEMA)
    return sink.writer(SCHEMA, WriterContext("job", "store", instance, 2))


def test_the_newest_row_of_each_key_is_kept(tmp_path: Path) -> None:
    writer = opened(tmp_path / "db")
    writer.write([ROW("a", 1, 0.5, True, b"\x00", 7), ROW("b", None, None, None, None, None), ROW("a", 2)])
    writer.prepare(1)
    assert table(tmp_path / "db") == []
    writer.commit(1)
    assert table(tmp_path / "db") == [("a", 2, None, None, None, None), ("b", None, None, None, None, None)]
    writer.write([ROW("b", 3, 1.5, False, b"x", 9)])
    writer.prepare(2)
    writer.commit(2)
    assert table(tmp_path / "db")[1] == ("b", 3, 1.5, 0, b"x", 9)


def test_an_epoch_that_is_committed_again_changes_nothing(tmp_path: Path) -> None:
    first = opened(tmp_path / "db")
    first.write([ROW("a", 1)])
    first.prepare(1)
    snapshot = first.snapshot(1)
    first.commit(1)
    first.write([ROW("a", 2)])
    first.prepare(2)
    first.commit(2)
    late = opened(tmp_path / "db")
    late.restore(1, snapshot)
    late.commit(1)
    assert table(tmp_path / "db")[0][:2] == ("a", 2)


def test_a_commit_that_was_decided_before_the_crash_is_made_up_for(tmp_path: Path) -> None:
    lost = opened(tmp_path / "db")
    lost.write([ROW("a", 1)])
    lost.prepare(1)
    snapshot = lost.snapshot(1)
    lost.close()
    successor = opened(tmp_path / "db")
    successor.restore(1, snapshot)
    successor.commit(1)
    assert table(tmp_path / "db")[0][:2] == ("a", 1)


def test_instances_have_ledgers_of_their_own(tmp_path: Path) -> None:
    writers = [opened(tmp_path / "db", i) for i in range(2)]
    for i, writer in enumerate(writers):
        writer.write([ROW(f"k{i}", i)])
        writer.prepare(1)
    for writer in writers:
        writer.commit(1)
    assert [row[0] for row in table(tmp_path / "db")] == ["k0", "k1"]


def test_a_key_of_all_columns(tmp_path: Path) -> None:
    schema = Schema.parse("a string, b string")
    sink = ps.sqlite(tmp_path / "db", "pairs", key=["a", "b"])
    sink.check(schema)
    writer = sink.writer(schema, WriterContext("job", "store", 0, 1))
    writer.write([schema.record_type("x", "y"), schema.record_type("x", "y")])
    writer.prepare(1)
    writer.commit(1)
    assert table(tmp_path / "db", "pairs") == [("x", "y")]


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(UnknownColumn):
        ps.sqlite(tmp_path / "db", "t", key="nope").check(SCHEMA)
    with pytest.raises(InvalidOption, match="table"):
        ps.sqlite(tmp_path / "db", "t; DROP TABLE t", key="k")
    with pytest.raises(InvalidOption, match="key"):
        ps.sqlite(tmp_path / "db", "t", key=())
    with pytest.raises(TypeMismatch, match="array"):
        ps.sqlite(tmp_path / "db", "t", key="k").check(Schema.parse("k string, v array<int>"))
    (tmp_path / "text").write_text("this is no database, but it is long enough to be taken for one" * 20)
    with pytest.raises(SinkFailed, match="text"):
        ps.sqlite(tmp_path / "text", "t", key="k").check(SCHEMA)
    opened(tmp_path / "db").close()
    with pytest.raises(SinkFailed, match="without a column 'other'"):
        ps.sqlite(tmp_path / "db", "t", key="k").check(Schema.parse("k string, other int"))
    with pytest.raises(SinkFailed, match=r"its key is not \(n\)"):
        ps.sqlite(tmp_path / "db", "t", key="n").check(SCHEMA)
    with pytest.raises(SinkFailed, match="no directory"):
        ps.sqlite(tmp_path / "none" / "db", "t", key="k").check(SCHEMA)
