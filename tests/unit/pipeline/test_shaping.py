"""Small verbs: what they give, and both forms of explode."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

import penstock as ps
from penstock import functions as F
from penstock.errors import PenstockError
from penstock.operators import Errors, Explode
from penstock.testing import collect
from penstock.types import Schema

SCHEMA = "id int, `the tag` string, tags array<string>, m map<string, int>"
ROWS = [
    {"id": 1, "the tag": "a", "tags": ["x", None], "m": {"k": 1}},
    {"id": 2, "the tag": "b", "tags": [], "m": {}},
    {"id": 3, "the tag": None, "tags": None, "m": None},
]


def stream() -> ps.Stream:
    return ps.stream("in", ps.records(ROWS, schema=SCHEMA))


def test_columns_of_any_name_are_renamed_dropped_and_cast() -> None:
    made = stream().drop("tags", "m").rename({"the tag": "select"}).cast({"id": "decimal(4,1)"})
    assert made.schema.ddl == "id decimal(4,1), select string"
    assert [str(row["id"]) for row in collect(made)] == ["1.0", "2.0", "3.0"]
    assert made.with_column("n", F.length("select")).schema.names == ("id", "select", "n")
    assert stream().with_column_renamed("id", "key").schema.names[0] == "key"
    grouped = made.group_by("select").agg(F.count("*").alias("group by"))
    assert {row["select"]: row["group by"] for row in collect(grouped)} == {"a": 1, "b": 1, None: 1}


def test_explode_makes_a_record_of_each_element() -> None:
    assert collect(stream().explode("tags", "t").select("id", "t")) == [{"id": 1, "t": "x"}, {"id": 1, "t": None}]
    assert collect(stream().explode("m").select("id", "key", "value")) == [{"id": 1, "key": "k", "value": 1}]
    outer = stream().explode("tags", "t", outer=True, position="at").select("id", "t", "at")
    assert [tuple(row.values()) for row in collect(outer)] == [
        (1, "x", 0),
        (1, None, 1),
        (2, None, None),
        (3, None, None),
    ]


@pytest.mark.parametrize("operation", [Explode("tags", ("t",)), Explode("m", ("k", "v"), "p", True)], ids=str)
def test_both_forms_of_explode_agree(operation: Explode) -> None:
    schema = Schema.parse(SCHEMA)
    random = Random(3)
    rows = [schema.coerce(random.choice(ROWS)) for _ in range(20)]
    operator = operation.build(schema, Errors("explode"))
    for part in ([], rows, rows[:1]):
        done = operator.process_batch(schema.to_batch(part))
        assert done.fallbacks == 0
        assert operation.bind(schema).to_rows(done.columns) == operator.process(part).rows


def test_union_by_name() -> None:
    left, right = stream().select("id", "the tag"), ps.stream("more", ps.records([{"id": 9}], schema="id int not null"))
    made = left.union_by_name(right, allow_missing=True)
    assert sorted(row["id"] for row in collect(made)) == [1, 2, 3, 9]  # type: ignore[type-var]
    with pytest.raises(PenstockError, match="has no column 'the tag'"):
        left.union_by_name(right)


def test_a_sample_is_the_same_each_time() -> None:
    many = ps.stream("in", ps.records([{"id": i} for i in range(2000)], schema="id int"))
    kept = [row["id"] for row in collect(many.sample(0.3, seed=5))]
    assert kept == [row["id"] for row in collect(many.sample(0.3, seed=5))]
    assert 500 < len(kept) < 700
    assert kept != [row["id"] for row in collect(many.sample(0.3, seed=6))]


def test_tap_sees_every_record_and_changes_none() -> None:
    seen: list[Any] = []
    assert len(collect(stream().tap(lambda record: seen.append(record.id)))) == 3
    assert seen == [1, 2, 3]


def test_take_and_show_run_in_this_process(capsys: pytest.CaptureFixture[str]) -> None:
    endless = ps.stream("in", ps.generator({"n": ps.fields.sequence()}, rate=5, format="columns"))
    assert [row["n"] for row in endless.take(3)] == [0, 1, 2]
    assert len(stream().take(10)) == 3
    timed = stream().select("id", F.timestamp_seconds("id").alias("at"), "m")
    timed.show(2)
    assert capsys.readouterr().out.splitlines() == [
        "id | at                          | m",
        "---+-----------------------------+---------",
        "1  | 1970-01-01T00:00:01.000000Z | {'k': 1}",
        "2  | 1970-01-01T00:00:02.000000Z | {}",
    ]
    with pytest.raises(PenstockError, match="option n"):
        stream().take(0)


def test_distinct() -> None:
    twice = ps.stream("in", ps.records([{"id": 1}, {"id": 1}, {"id": 2}], schema="id int"))
    assert collect(twice.distinct()) == [{"id": 1}, {"id": 2}]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s: s.drop("nope"), "no column 'nope'"),
        (lambda s: s.drop("id", "the tag", "tags", "m"), "fewer than all"),
        (lambda s: s.rename({"nope": "x"}), "no column 'nope'"),
        (lambda s: s.rename({"id": "the tag"}), "there twice"),
        (lambda s: s.cast({"id": "money"}), "is not a type"),
        (lambda s: s.explode("id"), "takes an array or a map"),
        (lambda s: s.explode("m", "one"), "makes key and value"),
        (lambda s: s.sample(2), "fraction"),
        (lambda s: s.filter("id +"), "missing here"),
    ],
)
def test_mistakes_are_named(build: Any, message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        build(stream())


def test_a_schema_is_found_out_from_a_sample(tmp_path: Path) -> None:
    path = tmp_path / "events.json"
    path.write_text(
        '{"id":1,"at":"2026-01-01T00:00:00Z","price":1,"user":{"name":"a","tags":[]},"none":null}\n'
        '{"id":2,"at":"2026-01-01","price":1.5,"user":{"name":null,"tags":["x"],"age":3},"odd name":true}\n'
    )
    schema = ps.infer(str(path))
    assert schema.ddl == (
        "id bigint, at timestamp, price double, user struct<name: string, tags: array<string>, age: bigint>, "
        "none string, `odd name` boolean"
    )
    made = collect(ps.stream("in", ps.json_files(str(path))).parse_json(schema).select("odd name", ps.col("user.age")))
    assert made == [{"odd name": None, "age": None}, {"odd name": True, "age": 3}]
    (tmp_path / "bad.json").write_text("[1]\n")
    with pytest.raises(PenstockError, match="no JSON objects"):
        ps.infer(str(tmp_path / "bad.json"))
    with pytest.raises(PenstockError, match="path"):
        ps.infer(str(tmp_path / "none.json"))
