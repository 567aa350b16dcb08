"""The conformance suite over connectors of real servers."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.connectors import SourceReader
from penstock.testing import check_sink, check_source, check_table
from penstock.testing.conformance.report import now_us, until
from penstock.testing.servers import free_port
from services.postgres import PASSWORD as POSTGRES_PASSWORD
from services.redis import PASSWORD as REDIS_PASSWORD
from waiting import WAIT_S


def test_redis_hashes_streams_and_tables(redis_server: Any) -> None:
    client, url = redis_server.client, redis_server.url

    def hashes() -> list[dict[str, Any]]:
        return [client.hgetall(key) for key in client.scan_iter("conform:*")]

    nobody = ps.redis(f"redis://:{REDIS_PASSWORD}@127.0.0.1:1/0", key="id", prefix="conform")
    secrets = [REDIS_PASSWORD]

    def strings() -> list[dict[str, Any]]:
        return [json.loads(client.get(key)) for key in client.scan_iter("conform-json:*")]

    as_hash = check_sink(
        lambda: ps.redis(url, key="id", prefix="conform"), hashes, keyed=True, refused=nobody, secrets=secrets
    )
    assert not as_hash.left_out
    as_json = check_sink(lambda: ps.redis(url, key="id", prefix="conform-json", layout="json"), strings, keyed=True)
    assert not as_json.left_out
    schema = "id bigint, `a text` string, price decimal(20,2), small float, sizes map<string, decimal(5,2)>"

    def append() -> list[dict[str, Any]]:
        client.xadd("conform-in", {"id": 9, "a text": "later"})
        return [{"id": 9, "a text": "later"}]

    values = {"price": Decimal("12345678901234567.20"), "small": 0.5, "sizes": {"s": Decimal("0.50"), "none": None}}
    rows = [{"id": n, "a text": f"t{n}", **values} for n in range(6)]
    texts = {"price": "12345678901234567.20", "small": "0.5", "sizes": '{"s": 0.50, "none": null}'}
    written = [{**row, **texts} for row in rows]
    for row in written:
        client.xadd("conform-in", row)
    source = ps.redis(url, stream="conform-in", schema=schema)
    check_source(source, rows, ends=False, append=append, secrets=[REDIS_PASSWORD])
    for row in written:
        client.hset(f"conform-table:{row['id']}", mapping=row)
    table = ps.redis_table(url, schema=schema, key="id", prefix="conform-table")
    check_table(table, rows, absent=77, secrets=[REDIS_PASSWORD])


def test_redis_streams_out(redis_server: Any) -> None:
    client = redis_server.client

    def entries() -> list[dict[str, Any]]:
        return [fields for _, fields in client.xrange("conform-out")]

    out = ps.redis(redis_server.url, stream="conform-out")
    assert not check_sink(lambda: out, entries, secrets=[REDIS_PASSWORD]).left_out


def test_postgres_rows(postgres_server: Any) -> None:
    dsn = postgres_server.dsn

    def rows() -> list[dict[str, Any]]:
        if not postgres_server.execute("SELECT 1 FROM pg_tables WHERE tablename = 'conform'"):
            return []
        found = postgres_server.execute("SELECT row_to_json(conform)::text FROM conform")
        return [json.loads(text) for (text,) in found]

    out = ps.postgres(dsn, "conform", key="id")
    assert not check_sink(lambda: out, rows, keyed=True, secrets=[POSTGRES_PASSWORD]).left_out


def test_a_table_in_postgres_with_columns_of_any_name(postgres_server: Any) -> None:
    postgres_server.execute('CREATE TABLE conform_ads ("the ad" text PRIMARY KEY, "a campaign" text)')
    postgres_server.execute("INSERT INTO conform_ads VALUES ('a', 'x'), ('b', NULL)")
    table = ps.table(ps.postgres(postgres_server.dsn, "conform_ads"), key="the ad")
    check_table(table, [("a", "x"), ("b", None)], absent="c", secrets=[POSTGRES_PASSWORD])


def test_the_http_receiver(tmp_path: Path) -> None:
    port = free_port()
    secret = "a-token-of-the-test"
    source = ps.http(port=port, spool=tmp_path / "spool", token=secret)

    def post(*values: object) -> list[bytes]:
        lines = [json.dumps(value).encode() for value in values]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
        connection.request("POST", "/", b"\n".join(lines), {"Authorization": f"Bearer {secret}"})
        assert connection.getresponse().status == 200
        connection.close()
        return lines

    reader = source.reader(0, 1, 0)
    reader.poll(1, 1)
    rows = post("a", "", "x" * 100_000, *range(5))
    reader.close()
    check_source(source, rows, ends=False, append=lambda: post("later"), secrets=[secret])


def test_changes_of_a_postgres_table(postgres_server: Any) -> None:
    postgres_server.execute("CREATE TABLE conform_changes (ad text PRIMARY KEY, n bigint)")
    place = ps.postgres(postgres_server.dsn, "conform_changes", snapshot=False)
    with closing(place.source().reader(0, 1, 0)) as reader:
        reader.poll(1, 1)  # makes the slot: what comes from here on is read
    for statement in ("INSERT INTO %s VALUES ('a', 1), ('b', 2)", "UPDATE %s SET n = 3", "DELETE FROM %s WHERE n = 3"):
        postgres_server.execute(statement % "conform_changes")
    rows: list[Any] = []
    with closing(place.source().reader(0, 1, 0)) as reader:
        assert until(lambda: rows.extend(_polled(reader)) or len(rows) == 6, WAIT_S)
    assert [row._op for row in rows] == ["insert"] * 2 + ["update"] * 2 + ["delete"] * 2
    check_source(place, rows, ends=False, secrets=[POSTGRES_PASSWORD])


def _polled(reader: SourceReader) -> list[Any]:
    batch = reader.poll(now_us(), 100)
    return [] if batch is None else batch.rows
