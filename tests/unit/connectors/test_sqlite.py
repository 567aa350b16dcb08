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
    writer.finish()
    assert table(tmp_path / "db") == [("a", 2, None, None, None, None), ("b", None, None, None, None, None)]
    writer.write([ROW("b", 3, 1.5, False, b"x", 9)])
    writer.prepare(2)
    writer.commit(2)
    writer.finish()
    assert table(tmp_path / "db")[1] == ("b", 3, 1.5, 0, b"x", "1970-01-01T00:00:00.000009Z")


def stored(path: Path, schema: Schema, key: str, *rows: tuple) -> None:
    writer = ps.sqlite(path, "t", key=key).writer(schema, WriterContext("job", "store", 0, 1))
    writer.write([schema.record_type(*row) for row in rows])
    writer.prepare(1)
    writer.commit(1)
    writer.finish()
    writer.close()


def test_times_are_text_that_sqlite_reads_and_that_sorts_by_time(tmp_path: Path) -> None:
    schema = Schema.parse("at timestamp, day date, n int")
    stored(tmp_path / "db", schema, "at", (1_500_000, 1, 1), (-1, -1, 2), (None, None, 3), (1_500_000, 2, 4))
    with sqlite3.connect(tmp_path / "db") as connection:
        assert connection.execute("SELECT n, day FROM t ORDER BY at").fetchall() == [
            (3, None),
            (2, "1969-12-31"),
            (4, "1970-01-03"),
        ]
        assert connection.execute("SELECT strftime('%s', at) FROM t WHERE n = 4").fetchall() == [("1",)]


def test_a_table_that_holds_whole_numbers_goes_on_with_them(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "db") as connection:
        connection.execute("CREATE TABLE t (at BIGINT PRIMARY KEY, day TEXT)")
        connection.execute("INSERT INTO t VALUES (7, 'x')")
    stored(tmp_path / "db", Schema.parse("at timestamp, day date"), "at", (7, 0), (9, 1))
    assert table(tmp_path / "db") == [(7, "1970-01-01"), (9, "1970-01-02")]


def test_an_epoch_that_is_committed_again_changes_nothing(tmp_path: Path) -> None:
    first = opened(tmp_path / "db")
    first.write([ROW("a", 1)])
    first.prepare(1)
    snapshot = first.snapshot(1)
    first.commit(1)
    first.finish()
    first.write([ROW("a", 2)])
    first.prepare(2)
    first.commit(2)
    first.finish()
    late = opened(tmp_path / "db")
    late.restore(1, snapshot)
    late.commit(1)
    late.finish()
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
    successor.finish()
    assert table(tmp_path / "db")[0][:2] == ("a", 1)


def test_instances_have_ledgers_of_their_own(tmp_path: Path) -> None:
    writers = [opened(tmp_path / "db", i) for i in range(2)]
    for i, writer in enumerate(writers):
        writer.write([ROW(f"k{i}", i)])
        writer.prepare(1)
    for writer in writers:
        writer.commit(1)
        writer.finish()
    assert [row[0] for row in table(tmp_path / "db")] == ["k0", "k1"]


def test_a_key_of_all_columns(tmp_path: Path) -> None:
    schema = Schema.parse("a string, b string")
    sink = ps.sqlite(tmp_path / "db", "pairs", key=["a", "b"])
    sink.check(schema)
    writer = sink.writer(schema, WriterContext("job", "store", 0, 1))
    writer.write([schema.record_type("x", "y"), schema.record_type("x", "y")])
    writer.prepare(1)
    writer.commit(1)
    writer.finish()
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
    with pytest.raises(SinkFailed, match="reserved"):
        ps.sqlite(tmp_path / "db", "sqlite_mine", key="k").check(SCHEMA)
    with pytest.raises(SinkFailed, match="duplicate column"):
        ps.sqlite(tmp_path / "db", "t", key="k").check(Schema.parse("k string, K string"))
    ps.sqlite(tmp_path / "db", "select", key="k").check(SCHEMA)
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


# --- second runs, and other tables ------------------------------------------------------------------------------------


def written(path: Path, job_id: str, rows: list[tuple[str, int]], table: str = "t") -> None:
    """One run: an epoch for every row."""
    sink = ps.sqlite(path, table, key="k")
    sink.check(SCHEMA)
    writer = sink.writer(SCHEMA, WriterContext("job", "store", 0, 1, job_id))
    for epoch, (key, n) in enumerate(rows, start=1):
        writer.write([ROW(key, n)])
        writer.prepare(epoch)
        writer.commit(epoch)
        writer.finish()
    writer.close()


def test_a_second_job_of_the_same_name_adds_all_that_it_has(tmp_path: Path) -> None:
    written(tmp_path / "db", "first", [("a", 1), ("b", 2), ("c", 3)])
    written(tmp_path / "db", "second", [("x", 4), ("a", 5)])
    assert [row[:2] for row in table(tmp_path / "db")] == [("a", 5), ("b", 2), ("c", 3), ("x", 4)]


def test_tables_of_one_file_have_ledgers_of_their_own(tmp_path: Path) -> None:
    written(tmp_path / "db", "one", [("a", 1), ("b", 2)])
    written(tmp_path / "db", "one", [("a", 3)], table="other")
    assert [row[:2] for row in table(tmp_path / "db")] == [("a", 1), ("b", 2)]
    assert [row[:2] for row in table(tmp_path / "db", "other")] == [("a", 3)]


def test_a_check_creates_nothing(tmp_path: Path) -> None:
    ps.sqlite(tmp_path / "db", "t", key="k").check(SCHEMA)
    assert list(tmp_path.iterdir()) == []
    written(tmp_path / "db", "one", [("a", 1)])
    before = (tmp_path / "db").read_bytes()
    ps.sqlite(tmp_path / "db", "other", key="k").check(SCHEMA)
    assert (tmp_path / "db").read_bytes() == before


# --- nulls ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ddl", ["k bigint, n bigint", "k int, n bigint", "k string, n bigint", "k double, n bigint"])
def test_null_is_a_key_of_its_own(tmp_path: Path, ddl: str) -> None:
    schema = Schema.parse(ddl)
    keys = ["1", "2", None] if "string" in ddl else [1, 2, None]
    sink = ps.sqlite(tmp_path / "db", "t", key="k")
    sink.check(schema)
    writer = sink.writer(schema, WriterContext("job", "store", 0, 1, "id"))
    for epoch in range(1, 4):
        writer.write([schema.record_type(key, 10 * epoch + i) for i in range(5) for key in keys])
        writer.prepare(epoch)
        writer.commit(epoch)
        writer.finish()
    writer.close()
    with sqlite3.connect(tmp_path / "db") as connection:
        rows = connection.execute("SELECT k, n FROM t").fetchall()
    assert sorted(rows, key=str) == sorted([(key, 34) for key in keys], key=str)


def test_nulls_in_a_key_of_several_columns(tmp_path: Path) -> None:
    schema = Schema.parse("a string, b bigint, n bigint")
    sink = ps.sqlite(tmp_path / "db", "t", key=["a", "b"])
    sink.check(schema)
    writer = sink.writer(schema, WriterContext("job", "store", 0, 1, "id"))
    keys = [("x", None), (None, 1), (None, None), ("x", 1)]
    writer.write([schema.record_type(a, b, n) for n in range(3) for a, b in keys])
    writer.prepare(1)
    writer.commit(1)
    writer.finish()
    writer.close()
    with sqlite3.connect(tmp_path / "db") as connection:
        rows = connection.execute("SELECT a, b, n FROM t").fetchall()
    assert sorted(rows, key=str) == sorted([(a, b, 2) for a, b in keys], key=str)


def test_a_key_of_all_columns_takes_a_null_once_and_nan_as_null(tmp_path: Path) -> None:
    schema = Schema.parse("k double")
    sink = ps.sqlite(tmp_path / "db", "t", key="k")
    sink.check(schema)
    writer = sink.writer(schema, WriterContext("job", "store", 0, 1, "id"))
    writer.write([schema.record_type(value) for value in (None, float("nan"), None, 0.5)])
    writer.prepare(1)
    writer.commit(1)
    writer.finish()
    writer.close()
    with sqlite3.connect(tmp_path / "db") as connection:
        assert sorted(connection.execute("SELECT k FROM t").fetchall(), key=str) == [(0.5,), (None,)]


@pytest.mark.parametrize("column", ["k INTEGER PRIMARY KEY", "k BIGINT NOT NULL PRIMARY KEY"])
def test_a_table_of_the_users_that_keeps_no_null_gets_none(tmp_path: Path, column: str) -> None:
    with sqlite3.connect(tmp_path / "db") as connection:
        connection.execute(f"CREATE TABLE t ({column}, n BIGINT, mine TEXT DEFAULT 'kept')")
    schema = Schema.parse("k bigint, n bigint")
    sink = ps.sqlite(tmp_path / "db", "t", key="k")
    sink.check(schema)
    writer = sink.writer(schema, WriterContext("job", "store", 0, 1, "id"))
    writer.write([schema.record_type(7, 1)])
    with pytest.raises(SinkFailed, match=r"(?s)operation 'store'.*no value in 'k'.*is_not_null"):
        writer.write([schema.record_type(8, 2), schema.record_type(None, 3)])
    writer.prepare(1)
    writer.commit(1)
    writer.finish()
    assert table(tmp_path / "db") == [(7, 1, "kept")]


# --- going on ---------------------------------------------------------------------------------------------------------


def resumed(path: Path, epoch: int, before: Path, table: str = "t", job_id: str = "one") -> None:
    state = {"database": str(before), "table": table, "epoch": epoch, "job_id": job_id}
    ps.sqlite(path, "t", key="k").resume({**state, "operation": "store", "kind": "sqlite"})


def test_an_older_checkpoint_under_newer_rows_is_refused(tmp_path: Path) -> None:
    db = tmp_path / "db"
    written(db, "one", [("a", 1), ("b", 2), ("c", 3)])
    resumed(db, 3, db)
    resumed(db, 4, db)
    with pytest.raises(SinkFailed, match=r"has epoch 3 of this job, and the checkpoint ends with epoch 2"):
        resumed(db, 2, db)
    resumed(db, 1, db, job_id="another job")


def test_a_database_that_was_moved_is_gone_on_with_and_one_that_is_gone_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "db", "one", [("a", 1)])
    with pytest.raises(SinkFailed, match=r"wrote into table 't' of .*db', now it is 't' of .*elsewhere"):
        resumed(tmp_path / "elsewhere", 1, tmp_path / "db")
    (tmp_path / "db").rename(tmp_path / "elsewhere")
    resumed(tmp_path / "elsewhere", 1, tmp_path / "db")
    with pytest.raises(SinkFailed, match="is not there any more"):
        resumed(tmp_path / "db", 1, tmp_path / "db")
