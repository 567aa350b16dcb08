"""The Delta sink: every epoch in the table once, through crashes at any step; tables that do not fit are refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.connectors.delta import Delta
from penstock.errors import InvalidOption, PenstockError, SinkFailed, TypeMismatch
from penstock.testing import check_sink
from penstock.testing.conformance.engine import Run
from penstock.types import Schema

deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")

SCHEMA = Schema.parse("n bigint, day string")
JOB = "0123456789abcdef"


def rows_of(path: Path) -> list[dict[str, Any]]:
    if not deltalake.DeltaTable.is_deltatable(str(path)):
        return []
    found: list[dict[str, Any]] = deltalake.DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return found


def rows(*numbers: int) -> list[Any]:
    return [SCHEMA.record_type(n, f"d{n % 3}") for n in numbers]


def test_it_keeps_the_promises_of_a_sink(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    path = tmp_path / "table"
    check_sink(lambda: ps.delta(path, partition_by="flag"), lambda: rows_of(path), refused=ps.delta(tmp_path / "other"))


def test_it_keeps_the_promises_of_a_sink_with_a_key(tmp_path: Path) -> None:
    check_sink(lambda: ps.delta(tmp_path / "t", key="id"), lambda: rows_of(tmp_path / "t"), keyed=True)


FAULTS = ("none", "lost unrecorded", "lost prepared", "driver lost before", "driver lost after", "driver lost within")


@settings(max_examples=12, deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 99), max_size=4), st.integers(0, 1), st.sampled_from(FAULTS)),
        min_size=1,
        max_size=6,
    ),
    st.booleans(),
)
def test_the_table_equals_what_was_committed_whatever_is_lost(
    tmp_path_factory: pytest.TempPathFactory, script: list[tuple[list[int], int, str]], keyed: bool
) -> None:
    path = tmp_path_factory.mktemp("delta") / "table"

    def make() -> Delta:
        return ps.delta(path, key="n") if keyed else ps.delta(path, partition_by="day", compact=0.001)

    def resumed(job: Run) -> Run:
        """Another driver, which remembers nothing of what was delivered."""
        job._told.clear()
        return Run(make, SCHEMA, JOB, instances=2, resumed=job)

    job = Run(make, SCHEMA, JOB, instances=2)
    expected: Counter[int] = Counter()
    for epoch, (numbers, instance, fault) in enumerate(script, 1):
        if fault == "lost unrecorded":
            job.write(rows(-1), instance)
            job.prepare(epoch)
            job.replace(instance).close()
        # Rows of a key come from one instance.
        job.write(rows(*numbers), 0 if keyed else instance)
        job.prepare(epoch)
        job.record(epoch)
        expected += Counter(numbers)
        if fault == "lost prepared":
            job.replace(instance).close()
        elif fault == "driver lost before":
            job.die()
            job = resumed(job)
        job.commit(epoch)
        if fault == "driver lost within":
            job.sink.finish()  # the table has it, and no record says so
            job.die()
            job = resumed(job)
        elif fault == "driver lost after":
            job.sink.settle(epoch)
            job.die()
            job = resumed(job)
    job.end()
    wanted = Counter(set(expected)) if keyed else expected
    assert Counter(row["n"] for row in rows_of(path)) == wanted
    assert all(row["day"] == f"d{row['n'] % 3}" for row in rows_of(path))
    left = list((path / "_penstock").glob("*.parquet"))
    assert not left, "what was merged, or was never committed, is not kept"


def test_a_driver_that_was_replaced_adds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both find that the epoch is not there, and both commit it."""
    make = lambda: ps.delta(tmp_path / "t")  # noqa: E731
    job = Run(make, SCHEMA, JOB)
    append = Delta._append
    others: list[Any] = [Run(make, SCHEMA, JOB).sink]

    def late(sink: Any, table: Any, files: list[Any], *rest: Any) -> None:
        if others:
            others.pop().hand_over(1, files, SCHEMA)
        append(sink, table, files, *rest)

    monkeypatch.setattr(Delta, "_append", late)
    job.epoch(1, rows(1, 2))
    job.end()
    assert not others
    assert sorted(row["n"] for row in rows_of(tmp_path / "t")) == [1, 2]


def test_small_files_become_larger_ones(tmp_path: Path) -> None:
    job = Run(lambda: ps.delta(tmp_path / "t", compact="1h"), SCHEMA, JOB)
    for epoch in range(1, 5):
        job.epoch(epoch, rows(epoch))
    job.sink.finish()
    assert len(deltalake.DeltaTable(str(tmp_path / "t")).file_uris()) == 4
    job.sink._compacting.begin(0.0, wait=True)  # type: ignore[attr-defined]
    job.end()
    table = deltalake.DeltaTable(str(tmp_path / "t"))
    assert len(table.file_uris()) == 1
    assert sorted(row["n"] for row in rows_of(tmp_path / "t")) == [1, 2, 3, 4]
    assert table.transaction_version(f"penstock-{JOB}-out") == 4


def test_a_run_that_finds_its_files_gone_knows_whether_they_are_in_the_table(tmp_path: Path) -> None:
    make = lambda: ps.delta(tmp_path / "t")  # noqa: E731
    job = Run(make, SCHEMA, JOB)
    job.epoch(1, rows(1))
    job.sink.finish()
    job.die()
    job._told.clear()
    hidden = [each.rename(each.with_suffix(".gone")) for each in (tmp_path / "t").glob("*.parquet")]
    again = Run(make, SCHEMA, JOB, resumed=job)  # as after a compaction and a vacuum
    again.end()
    for each in hidden:
        each.rename(each.with_suffix(".parquet"))
    assert [row["n"] for row in rows_of(tmp_path / "t")] == [1]
    lost = Run(make, SCHEMA, JOB, resumed=job)
    lost.write(rows(2))
    lost.prepare(2)
    lost.record(2)
    lost.die()
    for each in (tmp_path / "t").glob("*-00000002-*"):
        each.unlink()
    with pytest.raises(SinkFailed, match="of epoch 2 is gone"):
        Run(make, SCHEMA, JOB, resumed=lost).end()


def test_every_type_comes_back(tmp_path: Path) -> None:
    ddl = (
        "n bigint, i int, s smallint, t tinyint, x double, f float, k boolean, c string, b binary, at timestamp, "
        "d date, m decimal(10,2), l array<string>, g struct<u: bigint, v: string>, p map<string, bigint>"
    )
    schema = Schema.parse(ddl)
    import datetime as dt
    from decimal import Decimal

    at = dt.datetime(2026, 11, 16, 14, 30, 1, 5, tzinfo=dt.UTC)
    full = {"n": 1, "i": 2, "s": 3, "t": 4, "x": 0.5, "f": 0.25, "k": True, "c": "text", "b": b"\0\1", "at": at}
    full |= {"d": at.date(), "m": Decimal("1.25"), "l": ["a", None], "g": {"u": 1, "v": None}, "p": {"a": 1}}
    none = dict.fromkeys(full)
    job = Run(lambda: ps.delta(tmp_path / "t", partition_by=["d", "k"]), schema, JOB)
    job.epoch(1, [schema.coerce(full), schema.coerce(none)])
    job.end()
    found = rows_of(tmp_path / "t")
    found = [{**row, "p": dict(row["p"]) if row["p"] is not None else None} for row in found]
    assert sorted(found, key=lambda row: row["n"] is None) == [full, none]


def existing(path: Path, schema: pa.Schema, by: Sequence[str] = (), **configuration: str) -> Path:
    named = {name.replace("_", "."): value for name, value in configuration.items()}
    deltalake.DeltaTable.create(path, schema, partition_by=list(by), configuration=named)
    return path


def test_what_does_not_fit_is_refused_before_the_start(tmp_path: Path) -> None:
    n, day = pa.field("n", pa.int64()), pa.field("day", pa.string())
    with pytest.raises(SinkFailed, match="without a column 'day'"):
        ps.delta(existing(tmp_path / "a", pa.schema([n]))).check(SCHEMA)
    with pytest.raises(SinkFailed, match="its column 'n' is string, not long"):
        ps.delta(existing(tmp_path / "b", pa.schema([pa.field("n", pa.string()), day]))).check(SCHEMA)
    more = pa.schema([n, day, pa.field("x", pa.int64(), nullable=False)])
    with pytest.raises(SinkFailed, match="its column 'x' must have a value"):
        ps.delta(existing(tmp_path / "c", more)).check(SCHEMA)
    parted = existing(tmp_path / "d", pa.schema([n, day]), ["day"])
    with pytest.raises(SinkFailed, match=r"parted by \(day\), not by \(n\)"):
        ps.delta(parted, partition_by="n").check(SCHEMA)
    ps.delta(parted).check(SCHEMA)
    ps.delta(existing(tmp_path / "e", pa.schema([n, day, pa.field("x", pa.int64())]))).check(SCHEMA)
    ruled = existing(tmp_path / "f", pa.schema([n, day]))
    deltalake.DeltaTable(ruled).alter.add_constraint({"positive": "n > 0"})
    with pytest.raises(SinkFailed, match="it has constraints"):
        ps.delta(ruled).check(SCHEMA)
    for wrong in ({"partition_by": ["n", "day"]}, {"partition_by": ["n", "n"]}, {"compact": "soon"}):
        with pytest.raises(InvalidOption):
            ps.delta(tmp_path / "g", **wrong).check(SCHEMA)
    with pytest.raises(InvalidOption, match="object stores are not supported"):
        ps.delta("s3://bucket/table")
    with pytest.raises(TypeMismatch, match="parts no table"):
        ps.delta(tmp_path / "g", partition_by="x").check(Schema.parse("x double, n bigint"))
    with pytest.raises(PenstockError, match="no column 'z'"):
        ps.delta(tmp_path / "g", key="z").check(SCHEMA)
    assert not (tmp_path / "g").exists()


@pytest.mark.parametrize("key", [(), "two words"])
def test_a_table_with_more_columns_keeps_them_and_names_may_be_odd(tmp_path: Path, key: str) -> None:
    columns = [pa.field("two words", pa.int64()), pa.field("Day", pa.string()), pa.field("x", pa.int64())]
    path = existing(tmp_path / "t", pa.schema(columns))
    deltalake.write_deltalake(path, pa.table({"two words": [1], "Day": ["old"], "x": [5]}), mode="append")
    schema = Schema.parse("`two words` bigint, Day string")
    job = Run(lambda: ps.delta(path, key=key), schema, JOB)
    job.epoch(1, [schema.record_type(1, "new"), schema.record_type(2, "new")])
    job.end()
    found = sorted((row["two words"], row["Day"], row["x"]) for row in rows_of(path) if row["Day"] == "new")
    added = [(1, "new", 5 if key else None), (2, "new", None)]
    assert found == added
    assert len(rows_of(path)) == (2 if key else 3)


def test_a_record_without_a_key_ends_the_job(tmp_path: Path) -> None:
    job = Run(lambda: ps.delta(tmp_path / "t", key="day"), SCHEMA, JOB)
    job.write([SCHEMA.record_type(1, None)])
    with pytest.raises(SinkFailed, match="no value in 'day'"):
        job.prepare(1)


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(InvalidOption, match=r"penstock\[delta\]"):
        ps.delta(tmp_path)
