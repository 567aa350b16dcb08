"""Parquet files: each row once from any position, in both forms, while files come, move and go."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.connectors.base import Run
from penstock.errors import InvalidOption, SourceChanged, SourceFailed, SourceMissing, SourceUnreadable
from penstock.runtime.job import plan_of
from penstock.testing.cluster import Cluster
from penstock.types import record_dict


def write(path: Path, first: int, count: int, **options: Any) -> None:
    table = pa.table({"n": pa.array(range(first, first + count), pa.int64()), "s": [f"r{i}" for i in range(count)]})
    beside = path.parent / f".{path.name}"
    pq.write_table(table, beside, row_group_size=3, **options)
    beside.rename(path)


def read_all(reader: Any, now_us: int = 0, records_max: int = 2) -> list[int]:
    numbers: list[int] = []
    while (batch := reader.poll(now_us, records_max)) is not None:
        run = Run(batch.at, len(batch.rows))
        assert reader.rows(run) == batch.rows
        assert reader._schema.to_rows(reader.read(run).columns) == batch.rows
        numbers += [row.n for row in batch.rows]
    return numbers


def test_types_are_those_of_the_files(tmp_path: Path) -> None:
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=datetime.UTC)
    table = pa.table(
        {
            "a": pa.array([1, None], pa.int8()),
            "b": pa.array([2**32 - 1, 0], pa.uint32()),
            "c": pa.array([0.5, None], pa.float32()),
            "d": pa.array(["x", None]).dictionary_encode(),
            "e": pa.array([b"\x00", None], pa.large_binary()),
            "f": pa.array([moment, None], pa.timestamp("ns", tz="UTC")),
            "g": pa.array([0, None], pa.timestamp("ms")),
            "h": pa.array([datetime.date(2026, 1, 2), None]),
            "i": pa.array([[1, None], None], pa.list_(pa.int32())),
            "j": pa.array([True, None]),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    source = ps.parquet_files(tmp_path)
    assert source.schema.ddl == (
        "a tinyint, b bigint, c double, d string, e binary, f timestamp, g timestamp, h date, i array<int>, j boolean"
    )
    source.check()
    batch = source.reader(0, 1, 0).poll(0, 10)
    assert batch is not None
    first, second = (tuple(record_dict(row).values()) for row in batch.rows)
    assert first == (1, 2**32 - 1, 0.5, "x", b"\x00", 1_767_323_045_678_901, 0, 20_455, [1, None], True)
    assert set(second) == {None, 0}, second
    assert ps.parquet_files(tmp_path / "a.parquet", columns=("d", "a")).schema.ddl == "d string, a tinyint"


@settings(max_examples=25)
@given(st.data())
def test_every_row_once_whatever_happens_to_files_and_readers(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    place = tmp_path_factory.mktemp("parquet")
    source = ps.parquet_files(place, schema="n bigint, s string", follow=True)
    partitions = data.draw(st.integers(1, 2))
    readers = [source.reader(p, partitions, 0) for p in range(partitions)]
    written, found, now_us = 0, list[int](), 0
    for step in range(data.draw(st.integers(1, 8))):
        match data.draw(st.sampled_from(["write", "write", "rename", "lose", "half"])):
            case "write":
                count = data.draw(st.integers(0, 10))
                write(place / f"{step}.parquet", written, count)
                written += count
            case "rename":
                for path in sorted(place.glob("*.parquet"))[:1]:
                    path.rename(place / f"moved-{step}.parquet")
            case "half":
                (place / f"half-{step}.parquet").write_bytes(b"PAR1 no footer yet")
            case "lose":
                positions = {p: each.position() for p, each in enumerate(readers)}
                for each in readers:
                    each.close()
                again = source.resumed(positions)
                readers = [again.reader(p, partitions, 0) for p in range(partitions)]
                for p, each in enumerate(readers):
                    each.seek(positions[p])
        now_us += 10**6
        for reader in readers:
            count = data.draw(st.integers(0, 4))
            if data.draw(st.booleans()) and (due := reader.due_records(now_us)):
                runs = reader.skip(min(due, count + 1))
                found += [row.n for run in runs for row in source.reader(0, 1, 0).rows(run)]
            elif count and (batch := reader.poll(now_us, count)) is not None:
                found += [row.n for row in batch.rows]
    for reader in readers:
        found += read_all(reader, now_us + 10**6)
    assert sorted(found) == list(range(written))


@pytest.mark.parametrize("forms", ["record", "batch"])
def test_a_job_reads_them_in_both_forms(tmp_path: Path, forms: str) -> None:
    for i in range(5):
        write(tmp_path / f"{i}.parquet", 100 * i, 100, compression="zstd")
    sink = ps.memory()
    pipeline = ps.stream("rows", ps.parquet_files(tmp_path)).filter(ps.col("n") % 2 == 0).to(sink)
    cluster = Cluster(plan_of(pipeline, parallelism=2, epoch="100ms"))
    if forms == "batch":
        cluster.add_slot(0)
        cluster.switch(0, -1, 0)
    cluster.run_until(1 << 62)
    assert sorted(row.n for row in sink.rows) == list(range(0, 500, 2))


def test_files_that_change_or_go_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", 0, 10)
    source = ps.parquet_files(tmp_path, follow=True)
    reader = source.reader(0, 1, 0)
    reader.poll(0, 2)
    (tmp_path / "a.parquet").unlink()
    with pytest.raises(SourceMissing, match=r"a\.parquet"):
        reader.poll(10**6, 2)
    write(tmp_path / "a.parquet", 50, 11)
    with pytest.raises(SourceChanged, match="footer has changed"):
        reader.poll(2 * 10**6, 2)
    whole = source.reader(0, 1, 0)
    assert read_all(whole, 10**6) == list(range(50, 61))
    position = whole.position()
    (tmp_path / "a.parquet").unlink()
    assert whole.poll(2 * 10**6, 1) is None
    again = source.reader(0, 1, 0)
    again.seek(position)
    assert again.poll(0, 1) is None


def test_what_cannot_be_read_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(SourceMissing):
        ps.parquet_files(tmp_path)
    with pytest.raises(InvalidOption, match="schema"):
        ps.parquet_files(tmp_path, follow=True)
    (tmp_path / "half.parquet").write_bytes(b"PAR1 half of it")
    with pytest.raises(SourceUnreadable, match="no footer"):
        ps.parquet_files(tmp_path)
    (tmp_path / "half.parquet").unlink()
    pq.write_table(pa.table({"d": pa.array([None], pa.decimal128(10, 2)), "n": [1]}), tmp_path / "a.parquet")
    with pytest.raises(SourceFailed, match=r"'d' is decimal128\(10, 2\), which maps to no type.*columns="):
        ps.parquet_files(tmp_path)
    with pytest.raises(SourceFailed, match="no column 'x'"):
        ps.parquet_files(tmp_path, columns=("x",))
    with pytest.raises(InvalidOption, match="columns"):
        ps.parquet_files(tmp_path, columns="n")
    with pytest.raises(SourceFailed, match="'n' is bigint, not string"):
        ps.parquet_files(tmp_path, schema="n string").check()
    pq.write_table(pa.table({"n": [2**40, None]}), tmp_path / "b.parquet")
    narrow = ps.parquet_files(tmp_path / "b.parquet", schema="n int")
    with pytest.raises(SourceUnreadable, match=r"b\.parquet"):
        narrow.reader(0, 1, 0).poll(0, 1)
    strict = ps.parquet_files(tmp_path / "b.parquet", schema="n bigint not null")
    with pytest.raises(SourceUnreadable, match="has nulls"):
        strict.reader(0, 1, 0).poll(0, 1)
