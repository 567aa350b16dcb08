"""Tables in a real Redis: looked up alike in both forms, in few round trips, with a bounded cache."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_redis import FULL, ROW, SCHEMA, committed, opened

import penstock as ps
from penstock.connectors.redis import link
from penstock.connectors.redis.table import Cache
from penstock.errors import (
    OperationFailed,
)
from penstock.operators.errors import ErrorPolicy, Errors
from penstock.operators.stateless.lookup import How, Lookup
from penstock.types import Schema, record_dict

TABLE = "k string, n bigint, x double, b boolean, at timestamp, day date, tags array<string>"


@pytest.mark.parametrize("layout", ["hash", "json"])
@pytest.mark.parametrize("cache", [0, 2])
def test_what_a_sink_has_written_is_looked_up_alike_in_both_forms(redis_server: Any, layout: str, cache: int) -> None:
    prefix = f"table-{layout}"
    rows = [FULL, ROW("b", -1), ROW("c", None, float("inf") if layout == "hash" else 1e9, False)]
    committed(opened(redis_server, key="k", prefix=prefix, layout=layout, job_id=f"{layout}{cache}"), 1, rows)
    table = ps.redis_table(
        redis_server.url, schema=TABLE.replace("k string", "key string"), key="key", prefix=prefix, layout=layout,
        cache=cache, ttl="1h",
    )  # fmt: skip
    schema = Schema.parse("i bigint, k string")
    wanted = {row.k: row for row in rows}

    @settings(max_examples=15)
    @given(st.lists(st.sampled_from(["a", "b", "c", "none", None])), st.sampled_from(How))
    def both(keys: list[str | None], how: How) -> None:
        lookup = Lookup(table, "k", how)
        output = lookup.bind(schema)
        records = [schema.record_type(i, key) for i, key in enumerate(keys)]
        one = lookup.build(schema, Errors("lookup")).process(records)
        many = lookup.build(schema, Errors("lookup")).process_batch(schema.to_batch(records))
        assert many.fallbacks == 0
        assert output.to_rows(many.columns) == one.rows
        kept = [(i, key) for i, key in enumerate(keys) if key in wanted or how is How.LEFT]
        assert [(row.i, row.k) for row in one.rows] == kept
        for row in one.rows:
            if row.k in wanted:
                found = record_dict(row)
                assert {name: found[name] for name in SCHEMA.names} == record_dict(wanted[row.k])

    both()


def test_a_batch_costs_one_round_trip_and_so_do_records_that_came_together(redis_server: Any) -> None:
    client = redis_server.client
    client.mset({f"ad:{i}": f"campaign-{i % 10}" for i in range(100)})
    table = ps.redis_table(redis_server.url, schema="ad int, campaign string", key="ad", prefix="ad", layout="string")
    schema = Schema.parse("ad int")
    rows = [schema.record_type(i % 120) for i in range(1_000)]
    operator = Lookup(table, "ad").build(schema, Errors("lookup"))

    def commands() -> int:
        return int(client.info("stats")["total_commands_processed"])

    before = commands()
    found = operator.process_batch(schema.to_batch(rows))
    asked = commands() - before - 1
    assert asked <= 4, "the batch has asked once, beside the greeting of its connection"
    before = commands()
    one = operator.process(rows[:50])
    assert commands() - before - 1 == 1
    before = commands()
    assert len(operator.process([rows[7]] * 30).rows) == 30
    assert commands() - before - 1 == 1, "records of one key are one question"
    before = commands()
    alone = [row for each in rows[:50] for row in operator.process([each]).rows]
    assert commands() - before - 1 == 50
    assert alone == one.rows
    assert found.columns.num_rows == sum(row.ad < 100 for row in rows)
    assert [row.campaign for row in one.rows] == found.columns.column("campaign").to_pylist()[:50]


def test_what_does_not_fit_is_a_bad_record_in_both_forms(redis_server: Any) -> None:
    redis_server.client.set("bad:1", "seven")
    table = ps.redis_table(redis_server.url, schema="id int, n int", key="id", prefix="bad", layout="string")
    schema = Schema.parse("id int")
    operator = Lookup(table, "id").build(schema, Errors("lookup"))
    for form in (lambda: operator.process([schema.record_type(1)]),
                 lambda: operator.process_batch(schema.to_batch([schema.record_type(1)]))):  # fmt: skip
        with pytest.raises(OperationFailed, match="'seven' is not a whole number"):
            form()
    # Among others it is this record, and no other, that is bad.
    redis_server.client.set("bad:2", "8")
    skipping = Lookup(table, "id").build(schema, Errors("lookup", ErrorPolicy.SKIP))
    result = skipping.process([schema.record_type(each) for each in (2, 1, None, 3, 2)])
    assert [(row.id, row.n) for row in result.rows] == [(2, 8), (2, 8)]
    assert result.failures is not None
    assert result.failures.counts.skipped == 1
    table._place = link.Place("redis://127.0.0.1:9/0", "a table", 0.0)
    with pytest.raises(OperationFailed, match=r"127\.0\.0\.1:9"):
        Lookup(table, "id").build(schema, Errors("lookup")).process([schema.record_type(each) for each in (1, 2)])


def test_a_refusal_or_a_restart_leaves_no_answer_to_the_next_question(redis_server: Any) -> None:
    client = redis_server.client
    client.set("mixed:1", "a string")
    for i in (2, 3):
        client.hset(f"mixed:{i}", mapping={"n": i})
    table = ps.redis_table(redis_server.url, schema="id int, n int", key="id", prefix="mixed")
    schema = Schema.parse("id int")
    operator = Lookup(table, "id").build(schema, Errors("lookup"))

    def asked(*ids: int) -> list[int]:
        return [row.n for row in operator.process([schema.record_type(each) for each in ids]).rows]

    with pytest.raises(OperationFailed, match="WRONGTYPE"):
        asked(1, 2)
    assert asked(3, 2) == [3, 2]
    client.client_kill_filter(_type="normal", skipme=True)
    assert asked(2, 3) == [2, 3], "a connection that was lost is opened again"


def test_the_cache_is_bounded_and_forgets_in_time() -> None:
    now = [0.0]
    cache = Cache(2, 10.0, lambda: now[0])
    cache.put({"a": None, "b": FULL})
    assert cache.split(["a", "b", "c"]) == ({"a": None, "b": FULL}, ["c"])
    cache.split(["a"])
    cache.put({"c": FULL})
    assert cache.split(["a", "b", "c"]) == ({"a": None, "c": FULL}, ["b"]), "the one not used for longest has gone"
    assert len(cache) == 2
    now[0] = 10.0
    assert cache.split(["a", "c"]) == ({}, ["a", "c"])
