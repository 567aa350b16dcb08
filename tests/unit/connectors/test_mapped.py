"""Tables in files that processes map: found by key in both forms, exchanged between two blocks, refused."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.connectors import mapped
from penstock.connectors.mapped import SharedTable, write_table
from penstock.errors import InvalidOption, PenstockError, SourceMissing, TypeMismatch
from penstock.operators import ErrorPolicy, Errors, Finder, Form, Lookup
from penstock.operators.stateless.lookup import How, LookupTable, Table
from penstock.pipeline.explain import explain_plan
from penstock.runtime.job import plan_of
from penstock.runtime.tables import tables_of
from penstock.spark.tables import SparkTable
from penstock.types import Schema

SCHEMA = Schema.parse("k string, n bigint, `odd name` string")
KEYS = st.text("ab", max_size=3)


class Mapped(LookupTable):
    """The table of a file."""

    def __init__(self, path: Path, rows: list[tuple[object, ...]]) -> None:
        self.schema, self.key = SCHEMA, "k"
        write_table(path, batches(rows), SCHEMA, "k")
        self.shared = SharedTable(lambda: str(path), SCHEMA, "k", None)

    def finder(self) -> Finder:
        return self.shared.finder()

    def describe(self) -> str:
        return "mapped"


def batches(rows: list[tuple[object, ...]]) -> list[pa.RecordBatch]:
    made = [SCHEMA.record_type(*row) for row in rows]
    return [SCHEMA.to_batch(made[:2]), SCHEMA.to_batch(made[2:])]


def found(table: LookupTable, keys: list[str | None], how: How, form: Form) -> list[object]:
    schema = Schema.parse("at bigint, k string")
    operator = Lookup(table, "k", how).build(schema, Errors("lookup", ErrorPolicy.FAIL))
    rows = [schema.record_type(at, key) for at, key in enumerate(keys)]
    if form is Form.RECORD:
        return [(r.at, r.k, r.n, r["odd name"]) for r in operator.process(rows).rows]
    return [tuple(row.values()) for row in operator.process_batch(schema.to_batch(rows)).columns.to_pylist()]


@settings(max_examples=30)
@given(
    st.dictionaries(KEYS, st.tuples(st.integers(0, 9) | st.none(), KEYS | st.none())),
    st.lists(KEYS | st.none()),
    st.sampled_from(How),
)
def test_both_forms_find_what_a_table_of_rows_finds(
    tmp_path_factory: pytest.TempPathFactory, content: dict[str, tuple[object, ...]], keys: list[str | None], how: How
) -> None:
    rows = [(key, *rest) for key, rest in content.items()]
    table = Mapped(tmp_path_factory.mktemp("t") / "t", [*rows, (None, 1, "no key")])
    expected = found(Table(rows, SCHEMA, "k"), keys, how, Form.RECORD)
    for form in Form:
        assert found(table, keys, how, form) == expected


def test_keys_of_one_checksum_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped, "crc32", lambda data: crc32(data) % 2)
    table = Mapped(tmp_path / "t", [(f"k{i}", i, "x") for i in range(20)])
    for form in Form:
        assert found(table, ["k7", "k19", "k20"], How.INNER, form) == [(0, "k7", 7, "x"), (1, "k19", 19, "x")]


def test_dates_and_times_are_keys(tmp_path: Path) -> None:
    schema = Schema.parse("k timestamp, v date")
    write_table(tmp_path / "t", [schema.to_batch([schema.record_type(5, 7)])], schema, "k")
    finder = SharedTable(lambda: str(tmp_path / "t"), schema, "k", None).finder()
    assert finder.get(5) == schema.record_type(5, 7)
    rows, places = finder.columns(pa.array([6, 5], pa.timestamp("us", "UTC")))
    assert (rows.num_rows, places.to_pylist()) == (1, [None, 0])


def test_newer_rows_take_over_between_two_blocks(tmp_path: Path) -> None:
    table = Mapped(tmp_path / "1", [("a", 1, None)])
    newest = str(tmp_path / "1")
    table.shared._newest = lambda: newest
    operator = Lookup(table, "k").build(Schema.parse("k string"), Errors("lookup", ErrorPolicy.FAIL))
    write_table(tmp_path / "2", batches([("a", 2, None)]), SCHEMA, "k")
    newest = str(tmp_path / "2")
    table.shared.look()
    assert table.shared.get("a") == SCHEMA.record_type("a", 1, None)  # within a block nothing changes
    (tmp_path / "1").unlink()
    assert [r.n for r in operator.process([operator._schema.record_type("a")]).rows] == [2]


def test_a_key_that_is_there_twice_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="'a' is there twice"):
        Mapped(tmp_path / "t", [("a", 1, None), ("b", 1, None), ("a", 2, None)])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"rows": "missing.parquet", "key": "k"}, SourceMissing, "read by Spark"),
        ({"rows": "rows.csv", "key": "k"}, InvalidOption, "schema=None"),
        ({"rows": "rows.parquet", "key": "nope"}, PenstockError, "no column 'nope'"),
        ({"rows": "rows.parquet", "key": "k", "refresh": "often"}, InvalidOption, "refresh='often'"),
        ({"rows": "rows.parquet", "key": "k", "limit_bytes": 0}, InvalidOption, "limit_bytes=0"),
        ({"rows": [("a", 1)], "schema": "k string, n int", "key": "k", "limit_bytes": 5}, InvalidOption, "a path only"),
        ({"rows": [("a", 1)], "schema": "k string, n int", "key": "k", "mapped": False}, InvalidOption, "a path only"),
        ({"rows": "rows.parquet", "key": "k", "mapped": False, "refresh": "5m"}, InvalidOption, "within 30 s"),
        ({"rows": "rows.parquet", "key": "k", "mapped": 0}, InvalidOption, "True or False"),
        ({"rows": 5, "key": "k"}, TypeMismatch, "int is no table"),
    ],
)
def test_what_cannot_be_a_table_is_refused_where_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, object], error: type[Exception], text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"k": ["a"], "n": [1]}), "rows.parquet")
    Path("rows.csv").write_text("k,n\na,1\n")
    with pytest.raises(error, match=text):
        ps.table(**options)  # type: ignore[arg-type]


def test_a_path_knows_its_columns_and_says_how_often_it_is_read(tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": ["a"], "n": [1]}), tmp_path / "rows.parquet")
    table = ps.table(tmp_path / "rows.parquet", key="k", refresh="5m")
    assert isinstance(table, SparkTable)
    assert table.schema.ddl == "k string, n bigint"
    assert table.describe() == f"'{tmp_path}/rows.parquet', loaded again every 5m"
    assert "mapped=False" in str(table.too_large(5))


def test_tables_inside_alternatives_are_loaded_too(tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": ["a"], "n": [1]}), tmp_path / "rows.parquet")
    one, two = (ps.table(tmp_path / "rows.parquet", key="k") for _ in range(2))
    stream = ps.stream("in", ps.records([("a",)], schema="k string"))
    chosen = stream.alternatives("find", new=lambda s: s.lookup(one, on="k"), old=lambda s: s.lookup(two, on="k"))
    assert tables_of(plan_of(chosen.to(ps.memory()), parallelism=1)) == [one, two]


def test_a_table_that_is_not_mapped_is_joined_in_batch_form_only(tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": ["a"], "n": [1]}), tmp_path / "rows.parquet")
    table = ps.table(tmp_path / "rows.parquet", key="k", mapped=False)
    stream = ps.stream("in", ps.records([("a", 2)], schema="id string, v bigint"))
    found = stream.lookup(table, on="id", how="left", name="names")
    assert found.schema.ddl == "id string, v bigint, n bigint"
    told = explain_plan(plan_of(found.to(ps.memory())), width=400)
    assert f"left on id, '{tmp_path}/rows.parquet', joined by a Spark SQL job for each micro-batch" in told
    with pytest.raises(TypeMismatch, match="operation 'lookup': 'v' is bigint, but the table's key 'k' is string"):
        stream.lookup(table, on="v")
