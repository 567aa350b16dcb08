"""Tables that Spark loads, at work in real processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.errors import InvalidOption, LimitExceeded, SourceFailed
from penstock.runtime.scratch import ScratchServer
from penstock.runtime.tables import Copies, TableAssignment
from penstock.runtime.transport import LOOPBACK, Keys

pytestmark = pytest.mark.spark


def test_newer_rows_come_in_while_records_flow_and_a_worker_is_killed(
    queries: Any, tmp_path: Path, eventually: Callable[[Callable[[], object]], None]
) -> None:
    path, sink = tmp_path / "names.parquet", ps.memory()
    pq.write_table(pa.table({"id": list(range(10)), "name": [f"old{i}" for i in range(10)]}), path)
    prices = queries.createDataFrame([(i, float(i)) for i in range(5)], "id bigint, price double")
    orders = ps.stream("orders", ps.generator({"id": ps.fields.integers(0, 9)}, rate=500, format="columns"))
    named = orders.lookup(ps.table(path, key="id", refresh="300ms"), on="id")
    priced = named.lookup(ps.table(prices, key="id"), on="id", how="left")
    with ps.start(priced.to(sink), parallelism=2, name="tables") as job:
        eventually(lambda: len({row.name for row in sink.rows}) == 10)
        pq.write_table(pa.table({"id": list(range(10)), "name": [f"new{i}" for i in range(10)]}), tmp_path / "next")
        (tmp_path / "next").replace(path)
        eventually(lambda: len({row.name for row in sink.rows}) == 20)
        os.kill(job.status().workers[0].pid, signal.SIGKILL)
        seen = len(sink.rows)
        eventually(lambda: job.status().recoveries and len(sink.rows) > seen)
        job.drain()
        report = job.wait()
    assert report is not None
    assert len(sink.rows) == sum(report.offsets["orders"])
    assert {(r.id, r.price) for r in sink.rows} == {(i, float(i) if i < 5 else None) for i in range(10)}
    assert {r.name for r in sink.rows} == {f"{age}{i}" for age in ("old", "new") for i in range(10)}


def test_a_table_that_is_too_large_or_has_a_key_twice_is_refused_before_the_job_begins(queries: Any) -> None:
    stream = ps.stream("orders", ps.records([(1,)], schema="id bigint"))
    wide = queries.range(1000).selectExpr("id", "repeat('x', 1000) AS text")
    with pytest.raises(LimitExceeded, match=r"a DataFrame.*mapped=False"):
        ps.run(stream.lookup(ps.table(wide, key="id", limit_bytes=100_000), on="id").to(ps.memory()), parallelism=1)
    twice = queries.range(10).selectExpr("id % 5 AS id", "1 AS n")
    with pytest.raises(InvalidOption, match="is there twice"):
        ps.run(stream.lookup(ps.table(twice, key="id"), on="id").to(ps.memory()), parallelism=1)


def test_a_table_of_any_size_is_joined_and_gives_what_a_mapped_one_does(queries: Any) -> None:
    given = [(1, 10), (2, 20), (None, 30), (7, 40), (1, 50)]
    orders = ps.stream("orders", ps.records(given, schema="customer bigint, v bigint"))
    customers = queries.createDataFrame([(i, f"name{i}", i % 2) for i in range(5)], "id bigint, name string, kind int")
    pipeline, sinks = None, {}
    for how in ("inner", "left"):
        for mapped in (True, False):
            sink = sinks[how, mapped] = ps.memory()
            found = orders.lookup(ps.table(customers, key="id", mapped=mapped), on="customer", how=how)
            assert found.schema.ddl == "customer bigint, v bigint, name string, kind int"
            ending = found.to(sink, name=f"{how}-{mapped}")
            pipeline = ending if pipeline is None else pipeline + ending
    ps.run(pipeline, parallelism=1, name="joined")
    for how in ("inner", "left"):
        rows = [sorted(map(repr, sinks[how, mapped].rows)) for mapped in (True, False)]
        assert rows[0] == rows[1]
        assert len(rows[0]) == (3 if how == "inner" else 5)
    history = ps.backfill(orders.lookup(ps.table(customers, key="id", mapped=False), on="customer").to(ps.memory()))
    (frame,) = history.values()
    assert sorted((row.v, row.name) for row in frame.collect()) == [(10, "name1"), (20, "name2"), (50, "name1")]


def test_files_of_text_are_tables_in_a_job_and_in_a_backfill(queries: Any, tmp_path: Path) -> None:
    (tmp_path / "names.csv").write_text("name,id\nann,1\nbob,2\n")
    table, sink = ps.table(tmp_path / "names.csv", key="id", schema="id bigint, name string"), ps.memory()
    stream = ps.stream("orders", ps.records([(1,), (3,), (2,)], schema="id bigint")).lookup(table, on="id")
    ps.run(stream.to(sink), parallelism=1)
    assert [(r.id, r.name) for r in sink.rows] == [(1, "ann"), (2, "bob")]
    (tmp_path / "names.csv").write_text("id,name\nx,ann\n")
    with pytest.raises(SourceFailed, match=r"table of .*names.csv"):
        ps.run(stream.to(sink), parallelism=1)
    (tmp_path / "names.csv").write_text("other,name,id\n7,ann,1\n8,bob,2\n")
    made = ps.backfill(stream.to(ps.memory(), name="out"), spark=queries)["out"]
    assert sorted(map(tuple, made.collect())) == [(1, "ann"), (2, "bob")]


def test_a_machine_that_does_not_see_the_drivers_directory_fetches_each_version_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(here))
    keys = Keys.create()
    server = ScratchServer(keys, LOOPBACK, there)
    try:
        for version in (1, 2, 3):
            (there / f"t-{version:06d}").write_text(f"rows {version}")
            (there / "t-current").write_text(f"t-{version:06d}")
            one, other = (Copies(TableAssignment(str(there), server.endpoint, keys)) for _ in range(2))
            path = Path(one.newest("t"))
            (there / f"t-{version:06d}").unlink()
            assert (path.read_text(), other.newest("t")) == (f"rows {version}", str(path))
        assert sorted(each.name for each in path.parent.glob("t-0*")) == ["t-000002", "t-000003"]
    finally:
        server.close()
