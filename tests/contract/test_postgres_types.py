"""Types of a real PostgreSQL, both ways: what a sink writes is what tables and the log of changes give back."""

from __future__ import annotations

import time
from decimal import Decimal
from typing import Any

import msgspec
import pytest

import penstock as ps
from penstock.connectors.base import WriterContext
from penstock.connectors.postgres.values import numeric
from penstock.errors import BadRecord, PenstockError, SinkFailed, SourceFailed, TypeMismatch
from penstock.types import Schema, nested_dict, record_dict
from waiting import wait_for

WRITTEN = Schema.parse(
    "id bigint, price decimal(10,2), wide decimal(38,18), whole decimal(38,0), tiny decimal(5,5), small tinyint, "
    "ratio float, tags array<string>, prices array<decimal(6,3)>, days array<date>, times array<timestamp>, "
    "raws array<binary>, flags array<boolean>, who struct<name: string, at: timestamp, cost: decimal(9,4)>, "
    "counts map<string, bigint>, by_day map<date, double>, parts array<struct<n: int>>, grid array<array<int>>, "
    "blobs map<decimal(3,1), binary>"
)
ROW = WRITTEN.record_type
D = Decimal
FULL = WRITTEN.coerce(
    (
        1, D("-12.50"), D("12345678901234567890.123456789012345678"), D("-" + "9" * 38), D("0.00012"), -3,
        0.10000000149011612, ["a", None, 'q"\\,{}', ""], [D("1.000"), None, D("-999.999")], [-1, 19_000],
        [1_700_000_000_123_456], [b"\x00\xff"], [True, None],
        {"name": 'x"\\u0000é', "at": 1_700_000_000_000_000, "cost": D("1.2300")}, {"k": 1 << 62, "": None},
        {19_000: 0.1}, [{"n": 1}, None, {"n": None}], [[1, 2], [], [3, None]], {D("1.5"): b"\xff"},
    )
)  # fmt: skip
JSON = ("who", "counts", "by_day", "parts", "grid", "blobs")


def written(server: Any, table: str, schema: Schema, rows: list[Any]) -> None:
    sink = ps.postgres(server.dsn, table, key="id").sink()
    for _ in range(2):  # the second time the table is there
        sink.check(schema)
        writer = sink.writer(schema, WriterContext("job", "store", 0, 1, table))
    writer.write(rows)
    writer.prepare(1)
    writer.commit(1)
    writer.finish()
    writer.close()


def looked_up(place: Any, key: str, values: list[Any]) -> list[Any]:
    find = ps.table(place, key=key).finder()
    return [find.get(value) for value in values]


def changed(server: Any, table: str, count: int) -> list[Any]:
    """Read a snapshot of a table, and then as many changes."""
    source = ps.postgres(server.dsn, table).source()
    source.check()
    reader, rows = source.reader(0, 1, 0), list[Any]()

    def has(wanted: int) -> bool:
        batch = reader.poll(time.time_ns() // 1000, 100)
        rows.extend(batch.rows if batch is not None else [])
        return len(rows) >= wanted

    wait_for(lambda: has(count), "the snapshot is read", every_s=0.001)
    reader.poll(time.time_ns() // 1000, 0)
    server.execute(f"UPDATE {table} SET id = -id")  # of each row a delete and an insert
    wait_for(lambda: has(3 * count), "the changes have come", every_s=0.001)
    reader.close()
    source.schema.to_batch(rows)  # they fit what was declared
    return [row for row in rows if row._op != "delete"]


def test_what_a_sink_writes_is_what_tables_and_changes_give_back(postgres_server: Any) -> None:
    nothing = ROW(2)
    written(postgres_server, "both_ways", WRITTEN, [FULL, nothing])
    declared = dict(
        postgres_server.execute(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = 'both_ways'::regclass AND attnum > 0"
        )
    )
    assert declared["price"] == "numeric(10,2)"
    assert declared["prices"] == "numeric(6,3)[]"
    assert {declared[name] for name in JSON} == {"jsonb"}
    place = ps.postgres(postgres_server.dsn, "both_ways")
    read = ps.table(place, key="id").schema
    assert {each.name: each.type for each in read if each.name not in (*JSON, "small", "ratio")} == {
        each.name: each.type for each in WRITTEN if each.name not in (*JSON, "small", "ratio")
    }
    found = looked_up(place, "id", [1, 2])
    rows = changed(postgres_server, "both_ways", 2)
    assert [row.id for row in rows] == [1, 2, -1, -2]
    whole = nested_dict(FULL)
    for row in (found[0], rows[0], rows[2]):
        values = record_dict(row)
        same = [name for name in WRITTEN.names if name not in (*JSON, "id")]
        assert {name: values[name] for name in same} == {name: whole[name] for name in same}
        assert [str(values[name]) for name in ("price", "tiny")] == ["-12.50", "0.00012"], "with all of their digits"
        json = {name: msgspec.json.decode(values[name]) for name in JSON}
        assert json == {
            "who": {"name": 'x"\\u0000é', "at": "2023-11-14T22:13:20.000000Z", "cost": 1.23},
            "counts": {"k": 1 << 62, "": None},
            "by_day": {"2022-01-08": 0.1},
            "parts": [{"n": 1}, None, {"n": None}],
            "grid": [[1, 2], [], [3, None]],
            "blobs": {"1.5": "/w=="},
        }
        assert '"cost": 1.2300' in values["who"], "numbers of jsonb keep their digits"
    for row in (found[1], rows[1], rows[3]):
        assert {record_dict(row)[name] for name in WRITTEN.names if name != "id"} == {None}


TEXTS = {
    "time": ["08:30:00", "23:59:59.123456", "24:00:00", "00:00:00.5"],
    "timetz": ["08:30:00+02", "08:30:00.25-03:30", "00:00:00+05:30:15", "01:02:03+00"],
    "interval": ["1 year 2 mons -3 days 04:05:06.789", "0", "-00:00:00.5", "-1 mons", "1 day -00:00:01", "100:00:00"],
    "inet": ["10.0.0.1", "10.0.0.1/8", "::1", "2001:db8::/32", "::ffff:1.2.3.4"],
    "cidr": ["10.0.0.0/8", "192.168.1.1/32", "2001:db8::/32"],
    "macaddr": ["08:00:2b:01:02:03"],
    "macaddr8": ["08:00:2b:01:02:03:04:05"],
    "bit(5)": ["01011"],
    "varbit": ["", "1", "010101011"],
    "uuid": ["c0ffee00-0000-4000-8000-000000000001"],
    "xml": ["<a>ü</a>"],
    '"char"': ["x"],
    "mood": ["so so", "fine"],
    "citext": ["MiXed"],
    "numeric(50,10)": ["1" * 40 + ".5", "0", "-0.0000000001", "NaN"],
    "numeric(60,0)": ["9" * 60, "10000", "-40000000"],
}
DECIMALS = {
    "numeric": (["0", "1", "-1.5", "10000", "123456789012345678.000000000000000001", "1e-18", "0.9999"], "38,18"),
    "numeric(10,2)": (["0", "12.5", "-99999999.99", "40000", "0.01"], "10,2"),
    "numeric(38,38)": (["0." + "9" * 38, "-1e-38"], "38,38"),
    "numeric(5,-2)": (["1200", "-9999900"], "7,0"),
    "numeric(3,5)": (["0.00123"], "5,5"),
    "price": (["9.99", "1234567.89"], "9,2"),
}


def test_every_type_is_read_as_the_server_writes_it_and_arrays_of_it_too(postgres_server: Any) -> None:
    server = postgres_server
    made = "SELECT 1 FROM pg_available_extensions WHERE name = 'citext'"
    has_citext = bool(server.execute(made))
    server.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'so so', 'fine')",
        "CREATE DOMAIN amount AS numeric(9,2)",
        "CREATE DOMAIN price AS amount CHECK (VALUE > 0)",
        "CREATE EXTENSION citext" if has_citext else "SELECT 1",
    )
    types = {**{name: values for name, (values, _) in DECIMALS.items()}, **TEXTS}
    if not has_citext:
        del types["citext"]
    count = max(map(len, types.values()))
    ones = ", ".join(f"c{at} {name}" for at, name in enumerate(types))
    many = ", ".join(f"a{at} {name}[]" for at, name in enumerate(types) if name != "price")
    server.execute(f"CREATE TABLE many (id int PRIMARY KEY, {ones}, {many}, prices price[], two int[][])")
    server.execute("ALTER TABLE many REPLICA IDENTITY FULL")
    for row in range(count):
        given = {"id": str(row + 1), "two": "{{1,NULL},{3,4}}" if row else "{}", "prices": "{1.5,NULL}"}
        for at, (name, values) in enumerate(types.items()):
            if row < len(values):
                given[f"c{at}"] = values[row]
                if name != "price":
                    given[f"a{at}"] = "{" + ",".join(['"' + values[row] + '"', "NULL"]) + "}"
        texts = ", ".join("'" + value.replace("'", "''") + "'" for value in given.values())
        server.execute(f"INSERT INTO many ({', '.join(given)}) VALUES ({texts})")
    place = ps.postgres(server.dsn, "many")
    schema = ps.table(place, key="id").schema
    columns = ", ".join(f"format('%s', c{at})" for at in range(len(types)))  # as the server writes them
    wanted = as_written(server, f"SELECT {columns} FROM many ORDER BY id")
    found = looked_up(place, "id", list(range(1, count + 1)))
    rows = changed(server, "many", count)
    for at, (name, values) in enumerate(types.items()):
        decimals = DECIMALS.get(name)
        expected = f"decimal({decimals[1]})" if decimals else "string"
        assert schema.field(f"c{at}").type.ddl == expected, name
        if name != "price":
            assert schema.field(f"a{at}").type.ddl == f"array<{expected}>", name
        for row in range(len(values)):
            text = wanted[row][at]
            for record in (found[row], rows[row], rows[count + row]):
                one = record[f"c{at}"]
                assert one == (Decimal(text) if decimals else text), (name, values[row])
                if name != "price":
                    assert record[f"a{at}"] == [one, None], (name, values[row])
    assert schema.field("prices").type.ddl == "array<decimal(9,2)>"
    assert schema.field("two").type.ddl == "array<array<int>>"
    assert [row.two for row in found[:2]] == [[], [[1, None], [3, 4]]]
    assert found[0].prices == [Decimal("1.50"), None]


def as_written(server: Any, query: str) -> list[tuple]:
    import psycopg

    with psycopg.connect(server.dsn, options="-c intervalstyle=iso_8601") as connection:
        return connection.execute(query).fetchall()


def test_a_value_that_does_not_fit_is_told_with_its_column(postgres_server: Any) -> None:
    server = postgres_server
    server.execute("CREATE TABLE unfit (id int PRIMARY KEY, n numeric, two int[])", "INSERT INTO unfit VALUES (1)")
    for change, words in (
        ("n = 'NaN', two = NULL", "column 'n': NaN has no place"),
        ("n = 1e20", "column 'n': a number with more than 20 digits"),
        ("n = 0, two = '{{1}}'", "column 'two': an array of 2 dimensions"),
    ):
        server.execute(f"UPDATE unfit SET {change}")
        with pytest.raises(SourceFailed, match=words):
            looked_up(ps.postgres(server.dsn, "unfit"), "id", [1])
    server.execute("UPDATE unfit SET n = 1.0000000000000000005, two = NULL")
    assert looked_up(ps.postgres(server.dsn, "unfit"), "id", [1])[0].n == Decimal("1.000000000000000001")
    # A column that was changed while the job runs.
    with pytest.raises(BadRecord, match="more than 2 digits behind the point"):
        numeric(10, 2, rounds=False)(bytes.fromhex("0002000000000003" + "0001" + "04d2"))


@pytest.mark.parametrize("ddl", ["m map<struct<a: int>, int>", "m array<struct<a: map<array<int>, int>>>"])
def test_a_type_that_does_not_map_is_refused_before_anything_starts(postgres_server: Any, ddl: str) -> None:
    postgres_server.execute("CREATE TABLE IF NOT EXISTS refusing (id bigint, m jsonb)")
    schema = Schema.parse(f"id bigint, {ddl}")
    for table in ("refusing", "not_there"):
        with pytest.raises(TypeMismatch, match=r"column 'm' is .* cannot be nested"):
            ps.postgres(postgres_server.dsn, table).sink().check(schema)
    assert postgres_server.execute("SELECT to_regclass('not_there')") == [(None,)]


def test_a_table_that_is_there_takes_decimals_and_json_where_nothing_is_lost(postgres_server: Any) -> None:
    server = postgres_server
    columns = "a numeric, b numeric(12,4), c bigint, d json, e text, f numeric(8,3)[], g timestamp(3)[]"
    server.execute(f"CREATE TABLE fits ({columns}, h numeric(10,2), i integer, j jsonb)")
    good = "a decimal(38,10), b decimal(10,2), c decimal(18,0), d struct<x: int>, e map<string, int>, "
    ps.postgres(server.dsn, "fits").sink().check(Schema.parse(good + "f array<decimal(7,2)>, g array<timestamp>"))
    for ddl in ("b decimal(13,4)", "b decimal(12,5)", "i decimal(10,0)", "c decimal(5,1)", "h struct<x: int>",
                "f array<decimal(9,3)>", "j array<int>"):  # fmt: skip
        with pytest.raises(SinkFailed, match="does not take"):
            ps.postgres(server.dsn, "fits").sink().check(Schema.parse(ddl))
    with pytest.raises(TypeMismatch, match="key column 'd'"):
        ps.postgres(server.dsn, "fits", key="d").sink().check(Schema.parse(good.rstrip(", ")))


def test_a_zero_byte_within_a_value_fails_before_its_epoch_is_prepared(postgres_server: Any) -> None:
    schema = Schema.parse("tags array<string>, who struct<name: string>")
    sink = ps.postgres(postgres_server.dsn, "zeros").sink()
    writer = sink.writer(schema, WriterContext("job", "store", 0, 1, "one"))
    for values in (["a\0"], None), (None, {"name": "b\0"}), (None, {"name": "\\\0"}):
        with pytest.raises(PenstockError, match="zero byte"):
            writer.write([schema.coerce(values)])
    writer.write([schema.coerce((["\\0"], {"name": "\\u0000"}))])
    writer.prepare(1)
    writer.commit(1)
    writer.finish()
    assert postgres_server.execute("SELECT tags, who->>'name' FROM zeros") == [(["\\0"], "\\u0000")]
    writer.close()
