"""Changes of a real PostgreSQL table: each once and in order, through restarts, lost connections and processes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps
from penstock.connectors.base import Position, SourceReader
from penstock.connectors.postgres import changes_reader
from penstock.errors import InvalidOption, PenstockError, SourceFailed
from penstock.operators.errors import Errors
from penstock.operators.stateless.lookup import How, Lookup
from penstock.types import Schema, record_dict
from services.postgres import PASSWORD
from waiting import wait_for


def reader_of(server: Any, table: str, **options: Any) -> SourceReader:
    source = ps.postgres(server.dsn, table, **options).source()
    source.check()
    return source.reader(0, 1, 0)


def read(reader: SourceReader, until: Callable[[list[Any]], bool], records_max: int = 1_000) -> list[Any]:
    """Poll until enough has come."""
    rows: list[Any] = []

    def has_come() -> bool:
        while not until(rows):
            batch = reader.poll(time.time_ns() // 1000, records_max)
            if batch is None:
                return False
            rows.extend(batch.rows)
        return True

    wait_for(has_come, "enough has come", every_s=0.001)
    return rows


def some(count: int) -> Callable[[list[Any]], bool]:
    return lambda rows: len(rows) >= count


def plain(rows: list[Any]) -> list[tuple]:
    return [(row._op, row.id, row.v) for row in rows]


def test_snapshot_changes_and_keys_that_change(postgres_server: Any) -> None:
    server = postgres_server
    server.execute("CREATE TABLE c1 (id bigint PRIMARY KEY, v text)", "INSERT INTO c1 VALUES (2, 'b'), (1, 'a')")
    reader = reader_of(server, "c1")
    assert plain(read(reader, some(2))) == [("snapshot", 1, "a"), ("snapshot", 2, "b")]
    server.execute(
        "INSERT INTO c1 VALUES (3, NULL)",
        "UPDATE c1 SET v = 'aa' WHERE id = 1",
        "UPDATE c1 SET id = 9 WHERE id = 2",
        "DELETE FROM c1 WHERE id = 1",
        "CREATE TABLE unseen (id int)",
        "TRUNCATE c1",
    )
    rows = read(reader, some(6))
    assert plain(rows) == [
        ("insert", 3, None),
        ("update", 1, "aa"),
        ("delete", 2, None),
        ("insert", 9, "b"),
        ("delete", 1, None),
        ("truncate", None, None),
    ]
    assert [row._lsn for row in rows] == sorted(row._lsn for row in rows)
    assert abs(rows[0]._at - time.time_ns() // 1000) < 60_000_000
    reader.close()


def test_all_types_in_the_snapshot_and_in_the_log(postgres_server: Any) -> None:
    server = postgres_server
    columns = "id int PRIMARY KEY, a boolean, b smallint, c real, d float8, e varchar(9), f bytea, g timestamptz"
    server.execute(f"CREATE TABLE c2 ({columns}, h timestamp, i date, j uuid, k json, l jsonb)")
    values = (
        "true, -7, 0.5, -1e300, 'ü€', '\\x00ff', '2026-01-02 03:04:05.678901+02', '1969-12-31 23:59:59', "
        "'1960-02-29', 'c0ffee00-0000-4000-8000-000000000001', '{\"x\": 1}', '[1]'"
    )
    server.execute(f"INSERT INTO c2 VALUES (1, {values})")
    reader = reader_of(server, "c2")
    before = read(reader, some(1))
    server.execute(f"INSERT INTO c2 VALUES (2, {values})", "INSERT INTO c2 VALUES (3)")
    after = read(reader, some(2))
    expected = {
        "a": True, "b": -7, "c": 0.5, "d": -1e300, "e": "ü€", "f": b"\x00\xff", "g": 1_767_315_845_678_901,
        "h": -1_000_000, "i": -3_594, "j": "c0ffee00-0000-4000-8000-000000000001", "k": '{"x": 1}', "l": "[1]",
    }  # fmt: skip
    for row in (before[0], after[0]):
        assert {name: value for name, value in record_dict(row).items() if name in expected} == expected
    assert {value for name, value in record_dict(after[1]).items() if name in expected} == {None}
    server.execute("INSERT INTO c2 (id, g) VALUES (4, 'infinity')")
    with pytest.raises(SourceFailed, match="column 'g': an infinite timestamp"):
        read(reader, some(1))
    reader.close()


def test_every_change_once_whatever_happens_in_between(postgres_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers are lost at random places, go back to the last commit, and lose their connections; small portions."""
    server, draw = postgres_server, random.Random(5)
    monkeypatch.setattr(changes_reader, "_CHUNK_ROWS", 40)
    server.execute("CREATE TABLE c3 (id int PRIMARY KEY, v text)")
    server.execute("INSERT INTO c3 SELECT i, 'old' FROM generate_series(1, 100) i")
    source = ps.postgres(server.dsn, "c3").source()
    source.check()
    reader = source.reader(0, 1, 0)
    taken: list[Any] = []
    committed: list[Any] = []
    position: Position | None = None
    written = 100

    def commit() -> None:
        nonlocal position, taken
        position = reader.position()
        committed.extend(taken)
        taken = []
        if draw.random() < 0.8:  # a worker may be lost before it tells
            reader.committed(position)

    taken += read(reader, some(30), 30)
    server.execute("INSERT INTO c3 SELECT i, 'new' FROM generate_series(101, 150) i")  # while the snapshot is read
    written = 150
    taken += read(reader, some(75), 7)
    commit()
    for step in range(12):
        count = draw.choice([1, 3, 300])
        server.execute(f"INSERT INTO c3 SELECT i, 'new' FROM generate_series({written + 1}, {written + count}) i")
        written += count
        left = min(draw.randrange(1, 120), written - len(committed) - len(taken))
        taken += read(reader, some(left), 7)
        match draw.choice(["commit", "commit", "lost", "cut", "both"]):
            case "commit":
                commit()
            case "cut":
                server.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
            case kind:
                if kind == "both":
                    commit()
                stalled, reader = reader, source.resumed({0: position}).reader(0, 1, 0)  # type: ignore[dict-item]
                reader.seek(position)  # type: ignore[arg-type]
                taken = []
                if step % 2:
                    stalled.close()
    taken += read(reader, lambda rows: len(committed) + len(taken) + len(rows) >= written)
    written += 1
    server.execute(f"INSERT INTO c3 VALUES ({written}, 'last')")
    taken += read(reader, lambda rows: any(row.v == "last" for row in rows))  # nothing else comes before it
    commit()
    assert [row.id for row in committed] == list(range(1, written + 1))
    assert [row._op for row in committed] == ["snapshot"] * 100 + ["insert"] * (written - 100)
    reader.close()


def test_a_job_that_was_committed_before_it_reached_the_server_can_be_resumed(postgres_server: Any) -> None:
    postgres_server.execute("CREATE TABLE c8 (id int PRIMARY KEY, v text)", "INSERT INTO c8 VALUES (1, 'a')")
    source = ps.postgres(postgres_server.dsn, "c8").source()
    before = source.reader(0, 1, 0).position()
    lost = source.reader(0, 1, 0)
    read(lost, some(1))  # the slot is there, and nothing of it was committed
    lost.close()
    reader = source.resumed({0: before}).reader(0, 1, 0)
    reader.seek(before)
    assert plain(read(reader, some(1))) == [("snapshot", 1, "a")]
    reader.close()


def test_the_slot_moves_at_commits_only_also_after_the_end_and_when_nothing_comes(postgres_server: Any) -> None:
    server = postgres_server
    find = "SELECT (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots WHERE slot_name = 'c4_slot'"
    server.execute("CREATE TABLE c4 (id int PRIMARY KEY, v text)", "CREATE TABLE other (n int)")
    reader = reader_of(server, "c4", slot="c4_slot", snapshot=False)
    read(reader, lambda rows: bool(server.execute(find)))
    began = server.execute(find)[0][0]
    server.execute("INSERT INTO c4 VALUES (1, 'a')")
    assert len(read(reader, some(1))) == 1
    first = reader.position()
    assert server.execute(find)[0][0] == began
    reader.committed(first)
    read(reader, lambda rows: server.execute(find)[0][0] > began)
    # What others write moves the position, so that the server need not keep it.
    before = changes_reader.lsn_in(reader.position())
    server.execute("INSERT INTO other SELECT generate_series(1, 1000)")
    read(reader, lambda rows: changes_reader.lsn_in(reader.position()) > before)
    server.execute("INSERT INTO c4 VALUES (2, 'b')")
    read(reader, some(1))
    last = reader.position()
    reader.close()
    reader.committed(last)
    assert server.execute(find)[0][0] == changes_reader.lsn_in(last)
    # A job that begins anew goes on with what the slot has.
    server.execute("INSERT INTO c4 VALUES (3, 'c')")
    again = reader_of(server, "c4", slot="c4_slot", snapshot=False)
    assert plain(read(again, some(1))) == [("insert", 3, "c")]
    again.close()
    source = ps.postgres(server.dsn, "c4", slot="c4_slot").source()
    with pytest.raises(SourceFailed, match="has gone past the checkpoint"):
        source.resumed({0: first})
    read(source.reader(0, 1, 0), lambda rows: server.execute(f"{find} AND NOT active") != [])
    server.execute("SELECT pg_drop_replication_slot('c4_slot')")
    with pytest.raises(SourceFailed, match="is gone, and with it the changes"):
        source.resumed({0: last})


def test_a_snapshot_goes_on_by_key_and_ends_equal_to_the_table(
    postgres_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are changed while it is read, and the reader is lost in the middle: applied by key, it is the table."""
    server, draw = postgres_server, random.Random(3)
    monkeypatch.setattr(changes_reader, "_CHUNK_ROWS", 10)
    server.execute('CREATE TABLE c5 (a text, "B b" timestamptz, v int, PRIMARY KEY (a, "B b"))')
    server.execute("INSERT INTO c5 SELECT 'k' || i % 5, to_timestamp(i), i FROM generate_series(1, 100) i")
    server.execute('ALTER TABLE c5 RENAME COLUMN "B b" TO bb')
    reader, state, count = reader_of(server, "c5"), dict[Any, int](), 0
    for _ in range(30):
        i = draw.randrange(1, 120)
        server.execute(
            f"INSERT INTO c5 VALUES ('k{i % 5}', to_timestamp({i}), -{i}) "
            "ON CONFLICT (a, bb) DO UPDATE SET v = c5.v + 1",
            f"DELETE FROM c5 WHERE v = {draw.randrange(1, 100)}",
        )
        for row in read(reader, some(1), 7) if count < 90 else []:
            count += 1
            apply(state, row)
        if draw.random() < 0.3:
            position = reader.position()
            reader.close()
            reader = reader_of(server, "c5")
            reader.seek(position)
    server.execute("INSERT INTO c5 VALUES ('end', now(), 0)")
    for row in read(reader, lambda rows: any(row.a == "end" and row._op == "insert" for row in rows)):
        apply(state, row)
    found = server.execute("SELECT a, (extract(epoch from bb) * 1000000)::bigint, v FROM c5")
    assert state == {(a, b): v for a, b, v in found}
    reader.close()


def apply(state: dict[Any, int], row: Any) -> None:
    if row._op == "delete":
        state.pop((row.a, row.bb), None)
    else:
        state[row.a, row.bb] = row.v


def test_large_values_that_the_log_does_not_repeat(postgres_server: Any) -> None:
    server = postgres_server
    server.execute("CREATE TABLE c6 (id int PRIMARY KEY, v text, n int)", "ALTER TABLE c6 ALTER v SET STORAGE EXTERNAL")
    server.execute("INSERT INTO c6 VALUES (1, repeat('x', 9000), 1)")
    reader = reader_of(server, "c6", snapshot=False, slot="c6_key")
    read(reader, lambda rows: True)
    reader.poll(time.time_ns() // 1000, 1)
    server.execute("UPDATE c6 SET n = 2")
    with pytest.raises(SourceFailed, match=r"large value of column 'v'.*REPLICA IDENTITY FULL"):
        read(reader, some(1))
    reader.close()
    server.execute("ALTER TABLE c6 REPLICA IDENTITY FULL")
    whole = reader_of(server, "c6", snapshot=False, slot="c6_full")
    whole.poll(time.time_ns() // 1000, 1)
    server.execute("UPDATE c6 SET n = 3", "UPDATE c6 SET id = 5", "DELETE FROM c6")
    rows = read(whole, some(4))
    assert [(row._op, row.id, len(row.v), row.n) for row in rows] == [
        ("update", 1, 9000, 3),
        ("delete", 1, 9000, 3),
        ("insert", 5, 9000, 3),
        ("delete", 5, 9000, 3),
    ]
    whole.close()


def test_a_slot_that_somebody_else_reads_is_refused(postgres_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server = postgres_server
    monkeypatch.setattr(changes_reader, "IN_USE_US", 200_000)
    server.execute("CREATE TABLE c7 (id int PRIMARY KEY, v text)")
    mine = reader_of(server, "c7", snapshot=False)
    read(mine, lambda rows: True)
    mine.poll(time.time_ns() // 1000, 1)
    other = reader_of(server, "c7", snapshot=False)
    with pytest.raises(SourceFailed, match="Give slot= a name of its own"):
        read(other, some(1))
    mine.close()
    other.close()


def test_a_table_that_cannot_be_read_is_refused_before_anything_starts(postgres_server: Any) -> None:
    server, dsn = postgres_server, postgres_server.dsn
    server.execute(
        "CREATE TABLE d1 (id int, v text)",
        "CREATE TABLE d2 (id int PRIMARY KEY, price point)",
        "CREATE TABLE d3 (id int PRIMARY KEY, _op text)",
        "CREATE VIEW d4 AS SELECT id FROM d1",
        "CREATE ROLE plain_reader LOGIN PASSWORD 'plain-pass'",
        "GRANT SELECT ON d2 TO plain_reader",
    )

    def refused(table: str, address: str = dsn, **options: Any) -> str:
        with pytest.raises(PenstockError) as caught:
            ps.stream("changes", ps.postgres(address, table, **options))._from.node.body.check()
        text = str(caught.value)
        assert "\n" not in text
        assert PASSWORD not in text
        return text

    assert "there is no table 'nothing'" in refused("nothing")
    assert "no primary key" in refused("d1")
    assert "'price' is point, which maps to no type" in refused("d2")
    assert "columns=('id')" in refused("d2")
    assert "a column '_op' of its own" in refused("d3")
    assert "no table: it has no changes" in refused("d4")
    assert "there is no column 'nope'" in refused("d2", columns=("nope",))
    plain_reader = dsn.replace(f"penstock:{PASSWORD}", "plain_reader:plain-pass")
    assert "may not replicate" in refused("d2", plain_reader, columns=("id",))
    assert "user and password" in refused("d2", dsn.replace(PASSWORD, "post-pass-other"))
    with pytest.raises(InvalidOption, match="slot"):
        ps.postgres(dsn, "d2", slot="Not A Slot")


# --- tables to look things up in --------------------------------------------------------------------------------------


def test_a_table_is_looked_up_in_both_forms_and_read_again(
    postgres_server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = postgres_server
    server.execute(
        "CREATE TABLE ads (ad int PRIMARY KEY, campaign text, since date)",
        "INSERT INTO ads VALUES (1, 'shoes', '2026-01-01'), (2, NULL, NULL)",
    )
    table = ps.table(ps.postgres(server.dsn, "ads"), key="ad", refresh="20ms")
    schema = Schema.parse("n bigint, ad int")
    rows = [schema.record_type(i, ad) for i, ad in enumerate([1, 2, 3, None, 1])]
    for how, expected in (
        (How.INNER, [(0, "shoes"), (1, None), (4, "shoes")]),
        (How.LEFT, [(0, "shoes"), (1, None), (2, None), (3, None), (4, "shoes")]),
    ):
        operator = Lookup(table, "ad", how).build(schema, Errors("lookup"))
        one = operator.process(rows).rows
        many = operator.process_batch(schema.to_batch(rows))
        assert [(row.n, row.campaign) for row in one] == expected
        assert Schema((*schema.fields, *Lookup(table, "ad", how)._added())).to_rows(many.columns) == one
        assert many.fallbacks == 0
    assert one[0].since == 20_454
    server.execute("INSERT INTO ads VALUES (3, 'hats', NULL)", "DELETE FROM ads WHERE ad = 1")
    changed = [None, None, "hats", None, None]
    wait_for(lambda: [row.campaign for row in operator.process(rows).rows] == changed, "the table is read again")
    server.execute("ALTER TABLE ads RENAME TO gone")
    wait_for(lambda: "could not be read again" in caplog.text, "it is said that the table is gone")
    assert operator.process(rows).rows[2].campaign == "hats", "the last rows stay"


def test_tables_that_cannot_be_looked_up_in_are_refused(postgres_server: Any) -> None:
    server = postgres_server
    server.execute("CREATE TABLE pairs (k int, v text)", "INSERT INTO pairs VALUES (1, 'a'), (1, 'b')")
    place = ps.postgres(server.dsn, "pairs")
    with pytest.raises(InvalidOption, match="'1' is there twice"):
        ps.table(place, key="k")
    with pytest.raises(PenstockError, match="no column 'nope'"):
        ps.table(place, key="nope")
    with pytest.raises(InvalidOption, match="refresh"):
        ps.table(place, key="v", refresh="often")
    with pytest.raises(InvalidOption, match="schema"):
        ps.table(place, key="v", schema="v string")
    with pytest.raises(InvalidOption, match="schema"):
        ps.table([(1,)], key="v")
    with pytest.raises(InvalidOption, match="refresh"):
        ps.table([(1,)], key="v", schema="v int", refresh="5m")
    with pytest.raises(PenstockError, match="no table 'nothing'"):
        ps.table(ps.postgres(server.dsn, "nothing"), key="v")
