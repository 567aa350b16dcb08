"""Rows into a real PostgreSQL: exactly once through second runs, resumes, lost processes and a server that restarts."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from test_second_runs import numbers, run

import penstock as ps
from penstock.connectors.base import WriterContext
from penstock.errors import InvalidOption, PenstockError, SinkFailed, TypeMismatch, UnknownColumn
from penstock.types import Schema
from services.postgres import PASSWORD

SCHEMA = Schema.parse(
    "k string, n bigint, x double, b boolean, raw binary, at timestamp, day date, small tinyint, tags array<string>"
)
ROW = SCHEMA.record_type


def opened(server: Any, table: str, instance: int = 0, job_id: str = "one", **options: Any):
    sink = ps.postgres(server.dsn, table, **options).sink()
    schema = options.get("schema", SCHEMA)
    sink.check(schema)
    return sink.writer(schema, WriterContext("job", "store", instance, 2, job_id))


def rows(server: Any, table: str, columns: str = "k, n") -> list[tuple]:
    return server.execute(f'SELECT {columns} FROM "{table}" ORDER BY 1, 2')


def test_all_types_arrive_and_the_newest_row_of_each_key_stays(postgres_server: Any) -> None:
    writer = opened(postgres_server, "types", key="k")
    full = ROW("a", 1, 0.5, True, b"\x00\xff", 1_700_000_000_123_456, 19_000, -3, ["x", None, 'q"\\'])
    writer.write([ROW("a", 0), ROW("b"), full, ROW("tab\t\\N\nline", 7, float("nan"))])
    writer.prepare(1)
    assert rows(postgres_server, "types") == []
    writer.commit(1)
    writer.finish()
    found = postgres_server.execute(
        "SELECT k, n, x, b, raw, extract(epoch from at) * 1000000, day::text, small, tags FROM types ORDER BY k"
    )
    assert found[0] == ("a", 1, 0.5, True, b"\x00\xff", 1_700_000_000_123_456, "2022-01-08", -3, ["x", None, 'q"\\'])
    assert found[1] == ("b", *[None] * 8)
    assert found[2][0] == "tab\t\\N\nline"
    assert found[2][2] != found[2][2]
    writer.write([ROW("b", 3)])
    writer.prepare(2)
    writer.commit(2)
    writer.finish()
    writer.commit(2)
    writer.finish()
    assert rows(postgres_server, "types")[1] == ("b", 3)
    writer.close()


def test_rows_are_appended_once_whoever_commits_the_epoch_and_however_often(postgres_server: Any) -> None:
    first = opened(postgres_server, "log")
    first.write([ROW("a", 1), ROW("a", 1)])
    first.prepare(1)
    snapshot = first.snapshot(1)
    successors = [opened(postgres_server, "log") for _ in range(4)]
    for each in successors:
        each.restore(1, snapshot)
    threads = [threading.Thread(target=each.commit, args=(1,)) for each in (first, *successors)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for each in (first, *successors):
        each.finish()
    assert rows(postgres_server, "log") == [("a", 1), ("a", 1)]
    other = opened(postgres_server, "log", instance=1)
    again = opened(postgres_server, "log", job_id="another of the same name")
    for writer in (other, again):
        writer.write([ROW("b", 2)])
        writer.prepare(1)
        writer.commit(1)
        writer.finish()
    assert rows(postgres_server, "log")[2:] == [("b", 2), ("b", 2)]
    for each in (first, other, again, *successors):
        each.close()


def test_rows_are_deleted_where_a_column_says_so(postgres_server: Any) -> None:
    schema = Schema.parse("id bigint, name string, gone boolean")
    sink = ps.postgres(postgres_server.dsn, "deletes", key="id", delete="gone").sink()
    sink.check(schema)
    writer = sink.writer(schema, WriterContext("job", "store", 0, 1, "one"))
    row = schema.record_type
    writer.write([row(1, "a", False), row(2, "b", None), row(3, "c", False), row(3, None, True)])
    writer.prepare(1)
    writer.write([row(1, None, True), row(2, None, True), row(2, "again", False)])
    writer.prepare(2)
    writer.commit(2)
    writer.finish()
    assert postgres_server.execute("SELECT * FROM deletes") == [(2, "again")]
    writer.close()


def test_a_commit_waits_for_a_server_that_restarts_and_gives_up_in_time(postgres_server: Any) -> None:
    writer = opened(postgres_server, "restarts")
    writer.write([ROW("a", 1)])
    writer.prepare(1)
    writer.commit(1)
    writer.finish()
    postgres_server.restart()  # its connection is dead
    writer.write([ROW("b", 2)])
    writer.prepare(2)
    writer.commit(2)
    writer.finish()
    assert rows(postgres_server, "restarts") == [("a", 1), ("b", 2)]
    writer.retry_s = 0.1
    writer.write([ROW("c", 3)])
    writer.prepare(3)
    snapshot = writer.snapshot(3)
    postgres_server.stop()
    writer.commit(3)
    with pytest.raises(SinkFailed, match=r"operation 'store'.*Nothing of this epoch") as caught:
        writer.finish()
    assert PASSWORD not in str(caught.value)
    postgres_server.restart()
    successor = opened(postgres_server, "restarts")
    successor.restore(3, snapshot)
    successor.commit(3)
    successor.finish()
    assert rows(postgres_server, "restarts") == [("a", 1), ("b", 2), ("c", 3)]
    successor.close()


@pytest.mark.parametrize("key", ["", "n"])
def test_fresh_runs_and_resumed_ones_each_add_what_they_have_once(
    postgres_server: Any, tmp_path: Path, key: str
) -> None:
    table = f"runs_{key or 'all'}"

    def pipeline(count: int = 600) -> ps.Pipeline:
        source = ps.generator({"n": ps.fields.sequence()}, rate=2_000, total=count, format="columns")
        return ps.stream("numbers", source).to(ps.postgres(postgres_server.dsn, table, key=key or ()), name="out")

    def found() -> Counter[int]:
        return Counter(n for (n,) in postgres_server.execute(f"SELECT n FROM {table}"))

    checkpoint, older = tmp_path / "checkpoint", tmp_path / "older"
    first = run(pipeline(), checkpoint=checkpoint)
    shutil.copytree(checkpoint, older)
    for newest in sorted((older / "commits").iterdir())[-2:]:
        newest.unlink()
    again = run(pipeline(), checkpoint=checkpoint)
    assert again.plan.job_id == first.plan.job_id
    assert found() == Counter(range(600))
    with pytest.raises(SinkFailed, match=r"has epoch \d+ of this job, and the checkpoint ends with"):
        run(pipeline(), checkpoint=older)
    run(pipeline(100))
    assert found() == Counter(range(600)) + (Counter() if key else Counter(range(100)))
    renamed = numbers(0, 5).to(ps.postgres(postgres_server.dsn, table), name="renamed")
    with pytest.raises(PenstockError, match="where sink 'out' did"):
        run(renamed, checkpoint=checkpoint)
    postgres_server.execute(f"DROP TABLE {table}")
    with pytest.raises(SinkFailed, match="not there any more"):
        run(pipeline(), checkpoint=checkpoint)


def test_what_cannot_work_is_refused_before_anything_starts_and_without_the_password(postgres_server: Any) -> None:
    dsn, server = postgres_server.dsn, postgres_server
    server.execute(
        "CREATE TABLE keyless (k text, n bigint)",
        "CREATE TABLE wrong (k text PRIMARY KEY, n integer)",
        "CREATE TABLE needs (k text PRIMARY KEY, n bigint, more text NOT NULL)",
        "CREATE VIEW seen AS SELECT * FROM keyless",
        "CREATE ROLE reader LOGIN PASSWORD 'reader-pass'",
    )
    schema = Schema.parse("k string, n bigint")

    def refused(address: str, table: str, ddl: Schema | str = schema, **options: Any) -> str:
        with pytest.raises(PenstockError) as caught:
            ps.postgres(address, table, **options).sink().check(Schema.parse(ddl))
        text = str(caught.value)
        assert "\n" not in text
        assert PASSWORD not in text
        assert "reader-pass" not in text
        return text

    assert "cannot connect" in refused(dsn.replace("127.0.0.1", "no-such-host.invalid"), "t")
    assert "user and password" in refused(dsn.replace(PASSWORD, "post-pass-wrong"), "t")
    assert "Check the name of the database" in refused(dsn.replace("/postgres", "/nothing"), "t")
    assert "host and port" in refused(dsn.replace(f":{server.port}", ":1"), "t")
    assert "primary key or unique index on (k)" in refused(dsn, "keyless", key="k")
    assert "'n' is integer, which does not take bigint" in refused(dsn, "wrong", key="k")
    assert "'more' has to have a value" in refused(dsn, "needs", key="k")
    assert "without a column 'z'" in refused(dsn, "keyless", "k string, z int")
    assert "is no table" in refused(dsn, "seen")
    assert "no schema 'nowhere'" in refused(dsn, "nowhere.t")
    reader = dsn.replace(f"penstock:{PASSWORD}", "reader:reader-pass")
    assert "may not write" in refused(reader, "keyless")
    assert "may not make it" in refused(reader, "fresh")
    with pytest.raises(UnknownColumn):
        ps.postgres(dsn, "t", key="nope").sink().check(schema)
    with pytest.raises(TypeMismatch, match="not boolean"):
        ps.postgres(dsn, "t", key="k", delete="n").sink().check(schema)
    with pytest.raises(InvalidOption, match="dsn") as caught:
        ps.postgres(f"host=h password={PASSWORD} oops", "t")
    assert PASSWORD not in str(caught.value)
    for bad in ("", "a.b.c", 'a"b', 7, "x" * 64):
        with pytest.raises(InvalidOption, match="table"):
            ps.postgres(dsn, bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="delete"):
        ps.postgres(dsn, "t", delete="gone")
    assert PASSWORD not in repr(ps.postgres(dsn, "t")) + repr(ps.postgres(dsn, "t").sink())


def test_a_record_that_the_table_cannot_take_fails_before_its_epoch_is_prepared(postgres_server: Any) -> None:
    writer = opened(postgres_server, "untaken", key="k")
    for bad, words in (
        (ROW(None, 1), "no value in 'k'"),
        (ROW("a\0b", 1), "zero byte"),
        (ROW("a", at=1 << 62), "years 1 to 9999"),
    ):
        with pytest.raises(SinkFailed, match=words):
            writer.write([bad])
    writer.write([ROW("a", 1)])
    writer.prepare(1)
    writer.commit(1)
    writer.finish()
    assert rows(postgres_server, "untaken") == [("a", 1)]
    writer.close()


def test_checking_makes_nothing(postgres_server: Any) -> None:
    ps.postgres(postgres_server.dsn, "unmade", key="k").sink().check(SCHEMA)
    assert postgres_server.execute("SELECT to_regclass('unmade')") == [(None,)]
