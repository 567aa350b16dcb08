"""A real Redis: rows into it, once for each epoch, and streams at either end."""

from __future__ import annotations

import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from test_second_runs import run

import penstock as ps
from penstock.connectors.base import WriterContext
from penstock.connectors.redis import sink as sink_module
from penstock.errors import (
    InvalidOption,
    PenstockError,
    SinkFailed,
    SourceFailed,
    TypeMismatch,
)
from penstock.testing.conformance.report import until
from penstock.types import Schema
from services.redis import PASSWORD
from waiting import WAIT_S

SCHEMA = Schema.parse("k string, n bigint, x double, b boolean, at timestamp, day date, tags array<string>")
ROW = SCHEMA.record_type
FULL = ROW("a", 1, 0.5, True, 1_700_000_000_000_000, 19_000, ["x", "y"])


def opened(server: Any, schema: Schema = SCHEMA, job_id: str = "", instance: int = 0, **options: Any):
    job_id = job_id or str(sorted(options.items()))
    ps.redis(server.url, **options).sink().check(schema)
    return opened_unchecked(server, schema, job_id, instance, **options)


def opened_unchecked(server: Any, schema: Schema = SCHEMA, job_id: str = "", instance: int = 0, **options: Any):
    return ps.redis(server.url, **options).sink().writer(schema, WriterContext("job", "store", instance, 2, job_id))


def committed(writer: Any, epoch: int, rows: list[Any]) -> bytes:
    writer.write(rows)
    writer.prepare(epoch)
    snapshot = writer.snapshot(epoch)
    writer.commit(epoch)
    writer.finish()
    return snapshot


def polled(reader: Any) -> list[Any]:
    batch = reader.poll(time.time_ns() // 1000, 100)
    return [] if batch is None else batch.rows


def test_hashes_and_json_hold_the_newest_row_of_each_key(redis_server: Any) -> None:
    client = redis_server.client
    writer = opened(redis_server, key="k", prefix="hash")
    committed(writer, 1, [ROW("a", 7, tags=["old"]), FULL, ROW("b")])
    expected = {"k": "a", "n": "1", "x": "0.5", "b": "true", "at": "2023-11-14T22:13:20.000000Z"}
    assert client.hgetall("hash:a") == {**expected, "day": "2022-01-08", "tags": '["x","y"]'}
    assert client.hgetall("hash:b") == {"k": "b"}
    committed(writer, 2, [ROW("a", None, 1.5)])
    assert client.hgetall("hash:a") == {"k": "a", "x": "1.5"}
    json = opened(redis_server, key=("k", "n"), prefix="json", layout="json")
    committed(json, 1, [FULL, ROW("a:1", 2), ROW("a", 2)])
    assert msgspec.json.decode(client.get("json:a:1"))["at"] == "2023-11-14T22:13:20.000000Z"
    assert sorted(client.scan_iter("json:*")) == ["json:a:1", "json:a:2", "json:a\\:1:2"]


def test_rows_are_deleted_where_a_column_says_so(redis_server: Any) -> None:
    schema = Schema.parse("k string, v string, gone boolean")
    writer = opened(redis_server, schema, key="k", prefix="del", delete="gone")
    row = schema.record_type
    committed(writer, 1, [row("a", "1", False), row("b", "2", False), row("b", None, True), row("c", "3", True)])
    assert list(redis_server.client.scan_iter("del:*")) == ["del:a"]
    assert redis_server.client.hgetall("del:a") == {"k": "a", "v": "1"}


def test_an_epoch_is_written_once_whoever_commits_it(redis_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_module, "PART_COMMANDS", 3)
    schema, client = Schema.parse("n bigint"), redis_server.client
    rows = [schema.record_type(i) for i in range(10)]
    first = opened(redis_server, schema, "one", stream="once")
    snapshot = committed(first, 1, rows)
    late = opened(redis_server, schema, "one", stream="once")
    late.restore(1, snapshot)
    late.commit(1)
    late.finish()
    assert [int(fields["n"]) for _, fields in client.xrange("once")] == list(range(10))
    # A process that was lost between two parts of an epoch: the rest is added.
    client.set("penstock:one:store:0", "2:2")
    committed(late, 2, rows)
    assert [int(fields["n"]) for _, fields in client.xrange("once")][10:] == [6, 7, 8, 9]
    # The first one comes back, stalled: what it had is behind the token.
    first.restore(1, snapshot)
    first.commit(1)
    first.finish()
    assert client.xlen("once") == 14
    committed(opened(redis_server, schema, "one", 1, stream="once"), 1, rows[:1])
    committed(opened(redis_server, schema, stream="once", job_id="other"), 1, rows[:1])
    assert client.xlen("once") == 16


def test_a_command_that_is_refused_leaves_the_token(redis_server: Any) -> None:
    redis_server.client.set("wrong:a", "a string")
    writer = opened(redis_server, key="k", prefix="wrong", job_id="refused")
    with pytest.raises(SinkFailed, match=r"operation 'store'.*WRONGTYPE"):
        committed(writer, 1, [FULL])
    assert redis_server.client.get("penstock:refused:store:0") is None


def test_windows_as_the_yahoo_benchmark_keeps_them(redis_server: Any) -> None:
    schema, client = Schema.parse("campaign string, start timestamp, count bigint"), redis_server.client
    writer = opened(redis_server, schema, key=("campaign", "start"), layout="yahoo")
    row = schema.record_type
    committed(writer, 1, [row("c1", 10_000_000, 3), row("c1", 20_000_000, 4), row("c1", 10_000_000, 5)])
    committed(writer, 2, [row("c1", 20_000_000, 9)])
    windows = client.lrange(client.hget("c1", "windows"), 0, -1)
    assert sorted(windows) == ["10000", "20000"]
    counts = {at: client.hget(client.hget("c1", at), "seen_count") for at in windows}
    assert counts == {"10000": "5", "20000": "9"}
    assert client.hexists(client.hget("c1", "10000"), "time_updated")


def test_windows_of_columns_with_any_names(redis_server: Any) -> None:
    schema, client = (
        Schema.parse("`the campaign` string, `the start` timestamp, `the count` bigint"),
        redis_server.client,
    )
    writer = opened(redis_server, schema, key=("the campaign", "the start"), layout="yahoo")
    committed(writer, 1, [schema.record_type("c2", 10_000_000, 3)])
    assert client.hget(client.hget("c2", "10000"), "seen_count") == "3"


def test_a_resumed_run_adds_nothing_twice_and_an_older_checkpoint_is_refused(redis_server: Any, tmp_path: Path) -> None:
    def pipeline() -> ps.Pipeline:
        source = ps.generator({"n": ps.fields.sequence()}, rate=2_000, total=600, format="columns")
        return ps.stream("numbers", source).to(ps.redis(redis_server.url, stream="runs"), name="out")

    attempt = run(pipeline(), checkpoint=tmp_path / "checkpoint")
    run(pipeline(), checkpoint=tmp_path / "checkpoint")
    found = sorted(int(fields["n"]) for _, fields in redis_server.client.xrange("runs"))
    assert found == list(range(600))
    state = {"server": "x", "what": "stream 'runs'", "job_id": attempt.plan.job_id, "operation": "out", "epoch": 1}
    with pytest.raises(SinkFailed, match=r"has epoch \d of this job, and the checkpoint ends with epoch 1"):
        ps.redis(redis_server.url, stream="runs").sink().resume(state)
    with pytest.raises(SinkFailed, match="the last run wrote into stream 'runs', now it is stream 'other'"):
        ps.redis(redis_server.url, stream="other").sink().resume(state)


def test_a_commit_waits_for_a_server_that_restarts(redis_server: Any) -> None:
    writer = opened(redis_server, key="k", prefix="restart")
    committed(writer, 1, [FULL])
    redis_server.restart()
    committed(writer, 2, [FULL])
    assert redis_server.client.hget("restart:a", "n") == "1"
    redis_server.stop()
    hasty = opened_unchecked(redis_server, key="k", prefix="restart", retry="100ms")
    with pytest.raises(SinkFailed, match="can be resumed") as caught:
        committed(hasty, 3, [FULL])
    assert PASSWORD not in str(caught.value)
    redis_server.restart()


ANY = Schema.parse(
    "`user id` string, price decimal(20,2), small float, sizes map<string, decimal(20,2)>,"
    " inner struct<`a b`: int, at: timestamp>, `gone for good` boolean"
)


def of_any(key: str | None, price: str, gone: bool = False) -> Any:
    inner = {"a b": 1, "at": 1_000_000}
    return ANY.coerce((key, Decimal(price), 0.1, {"s": Decimal("0.50"), "none": None}, inner, gone))


def test_columns_of_any_type_and_name_are_written_and_read_back(redis_server: Any) -> None:
    client, stored = redis_server.client, Schema(ANY.fields[:-1])
    rows = [of_any("a", "12345678901234567.20"), of_any("b", "-0.05"), ANY.coerce({"user id": "c", "small": 1.5})]
    wanted = [stored.record_type(*(row[name] for name in stored.names)) for row in rows]
    for layout in ("hash", "json"):
        options = {"key": "user id", "prefix": f"any-{layout}", "layout": layout}
        writer = opened(redis_server, ANY, **options, delete="gone for good")
        committed(writer, 1, [*rows, of_any("d", "1"), of_any("d", "1", gone=True)])
        assert len(list(client.scan_iter(f"any-{layout}:*"))) == 3
        find = ps.redis_table(redis_server.url, schema=stored, **options).finder().get  # type: ignore[arg-type]
        assert [find(row["user id"]) for row in wanted] == wanted
    kept = client.hgetall("any-hash:a")
    assert kept["price"] == "12345678901234567.20"
    assert kept["sizes"] == '{"s":0.50,"none":null}'
    assert kept["inner"] == '{"a b":1,"at":"1970-01-01T00:00:01.000000Z"}'
    committed(opened(redis_server, ANY, stream="any"), 1, rows)
    source = ps.redis(redis_server.url, stream="any", schema=ANY).source()
    source.check()
    reader, found = source.reader(0, 1, 0), list[Any]()
    until(lambda: found.extend(polled(reader)) or len(found) >= len(rows), WAIT_S)
    assert found == rows
    reader.close()


def test_keys_that_are_no_text_are_refused_at_every_end(redis_server: Any) -> None:
    schema = Schema.parse("k string, m map<struct<a: int>, int>")
    for make in (
        lambda: ps.redis(redis_server.url, key="k").sink().check(schema),
        lambda: ps.redis(redis_server.url, stream="refused", schema=schema).source().check(),
        lambda: ps.redis_table(redis_server.url, schema=schema, key="k"),
    ):
        with pytest.raises(TypeMismatch, match=r"column 'm' is .*cannot be nested"):
            make()


# --- streams as sources -----------------------------------------------------------------------------------------------


def test_a_stream_is_read_from_any_position_and_a_cut_one_is_refused(redis_server: Any) -> None:
    client = redis_server.client
    source = ps.redis(redis_server.url, stream="in", schema="n int, note string, raw binary").source()
    source.check()

    def poll(reader: Any, count: int, records_max: int = 2) -> list[Any]:
        rows: list[Any] = []
        deadline = time.monotonic() + WAIT_S
        while len(rows) < count:
            assert time.monotonic() < deadline
            batch = reader.poll(time.time_ns() // 1000, records_max)
            rows += batch.rows if batch is not None else []
        return rows

    reader = source.reader(0, 1, 0)
    assert reader.poll(1, 10) is None
    for i in range(5):
        client.xadd("in", {"n": i, "raw": b"\xff", "other": "x"})
    assert [row.n for row in poll(reader, 3, 1)] == [0, 1, 2]
    position = reader.position()
    assert [(row.n, row.note, row.raw) for row in poll(reader, 2)] == [(3, None, b"\xff"), (4, None, b"\xff")]
    again = source.resumed({0: position}).reader(0, 1, 0)
    again.seek(position)
    redis_server.client.connection_pool.disconnect()
    assert [row.n for row in poll(again, 2)] == [3, 4]
    client.xtrim("in", maxlen=1, approximate=False)
    with pytest.raises(SourceFailed, match="cut behind the entry that was read last"):
        source.resumed({0: position})
    client.xadd("in", {"n": "x"})
    with pytest.raises(SourceFailed, match=r"entry .* 'x' is not a whole number"):
        poll(again, 1)
    client.delete("in")
    with pytest.raises(SourceFailed, match="is gone"):
        source.resumed({0: position})


def test_what_cannot_work_is_refused_before_anything_starts_and_without_the_password(redis_server: Any) -> None:
    url = redis_server.url
    redis_server.client.set("a-string", "x")
    schema = Schema.parse("k string, n bigint")

    def refused(address: str, ddl: Schema = schema, **options: Any) -> str:
        with pytest.raises(PenstockError) as caught:
            ps.redis(address, **{"key": "k", **options}).sink().check(ddl)
        with pytest.raises(PenstockError) as looked_up:
            ps.redis_table(address, schema=ddl, key="k")
        for text in (str(caught.value), str(looked_up.value)):
            assert "\n" not in text
            assert PASSWORD not in text
        return str(caught.value)

    assert "host and port" in refused(url.replace("127.0.0.1", "no-such-host.invalid"))
    assert "host and port" in refused(url.replace(f":{redis_server.port}", ":1"))
    assert "user and password" in refused(url.replace(PASSWORD, "red-wrong-word"))
    assert "user and password" in refused(url.replace(f":{PASSWORD}@", ""))
    assert "url=" in refused("http://x:secret@y")
    for options, words in (
        ({}, "key"),
        ({"key": "k", "layout": "nope"}, "layout"),
        ({"key": "k", "delete": "k"}, "delete"),
        ({"stream": "s", "key": "k"}, "stream"),
        ({"stream": "s", "maxlen": 0}, "maxlen"),
    ):
        with pytest.raises(InvalidOption, match=words):
            ps.redis(url, **options)
    with pytest.raises(TypeMismatch, match="yahoo"):
        ps.redis(url, key="k", layout="yahoo").sink().check(schema)
    with pytest.raises(TypeMismatch, match="binary"):
        ps.redis(url, key="k", layout="json").sink().check(Schema.parse("k string, raw binary"))
    with pytest.raises(SourceFailed, match="is a string, no stream"):
        ps.redis(url, stream="a-string", schema="n int").source().check()
    with pytest.raises(InvalidOption, match="schema"):
        ps.stream("s", ps.redis(url, stream="s"))
    with pytest.raises(InvalidOption, match="string"):
        ps.redis_table(url, schema="k string, a int, b int", key="k", layout="string")
    with pytest.raises(SinkFailed, match="no value in 'k'"):
        opened(redis_server, schema, key="k").write([schema.record_type(None, 1)])
    assert PASSWORD not in repr(ps.redis(url, key="k")) + repr(ps.redis(url, key="k").sink())
