"""What users of PySpark write: it works, or the error says what to write instead."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock import functions as F
from penstock.errors import PenstockError, TypeMismatch

ROWS = [(1, "a", 2.0, '{"x": 1, "y": "p"}', 0), (2, "b", 3.0, '{"x": 2, "y": "q"}', 1), (3, "a", 5.0, None, 2)]


def orders(name: str = "orders") -> ps.Stream:
    schema = "id bigint, kind string, price double, payload string, at timestamp"
    return ps.stream(name, ps.records(ROWS, schema=schema))


def taken(stream: ps.Stream) -> list[dict[str, Any]]:
    return stream.take()


def test_a_star_stands_for_all_columns_or_for_the_members_of_a_struct() -> None:
    stream = orders().select("*", F.from_json("payload", "x int, y string").alias("p"))
    assert stream.columns == ["id", "kind", "price", "payload", "at", "p"]
    opened = stream.select("id", "p.*", twice=ps.col("price") * 2)
    assert opened.columns == ["id", "x", "y", "twice"]
    assert taken(opened)[0] == {"id": 1, "x": 1, "y": "p", "twice": 4.0}
    assert orders().select(ps.col("*")).schema == orders().schema
    with pytest.raises(TypeMismatch, match="'price' is double, no struct"):
        orders().select("price.*")


def test_columns_are_added_by_a_dict_too() -> None:
    made = orders().with_columns({"tax": ps.col("price") * 0.5, "one": ps.lit(1)}, two=ps.lit(2)).drop("payload", "at")
    assert taken(made)[1] == {"id": 2, "kind": "b", "price": 3.0, "tax": 1.5, "one": 1, "two": 2}


def test_groups_have_the_aggregates_of_spark() -> None:
    groups = orders().group_by("kind")
    made = groups.sum("price", "id")
    assert made.columns == ["kind", "sum(price)", "sum(id)"]
    assert {tuple(row.values()) for row in taken(made)} == {("a", 7.0, 4), ("b", 3.0, 2)}
    assert groups.avg("price").columns == ["kind", "avg(price)"]
    assert groups.mean("price").schema == groups.avg("price").schema
    assert groups.min("at").columns == ["kind", "min(at)"]
    assert groups.max("id").columns == ["kind", "max(id)"]
    with pytest.raises(TypeMismatch, match=r'Write .sum\("price"\)'):
        groups.sum()


def test_shortcuts_of_windows_can_be_named() -> None:
    windows = orders().key_by("kind").window("1s", on="at")
    made = [windows.count(name="n"), *(getattr(windows, each)("id", name="n") for each in ("sum", "min", "last"))]
    assert [each.to(ps.memory()).graph().nodes[1].name for each in made] == ["n"] * 4
    assert [each.columns[-1] for each in made] == ["count", "sum", "min", "last"]


def test_a_record_of_a_function_fits_a_schema_with_other_nulls() -> None:
    stream = orders().select("id", "kind").map(lambda r: r, schema="id bigint not null, kind string")
    back = stream.flat_map(lambda r: [r], schema="id bigint, kind string")
    assert [row["id"] for row in taken(back)] == [1, 2, 3]
    turned = back.map(lambda r: r, schema="kind string, id bigint")
    assert taken(turned)[0] == {"kind": "a", "id": 1}
    with pytest.raises(PenstockError, match="does not fit"):
        orders().map(lambda r: r, schema="id bigint, kind string").take()


def test_streams_are_merged_whatever_may_be_null() -> None:
    here = orders().select("kind", n=ps.lit(1))
    there = orders("others").select("kind", n=ps.col("id").cast("int"))
    assert [each.nullable for each in here.schema] == [True, False]
    for merged in (here.merge(there), there.merge(here)):
        assert merged.schema == there.schema
        assert sorted(row["n"] for row in taken(merged)) == [1, 1, 1, 1, 2, 3]
    assert here.merge(orders("others").select("kind", n=ps.lit(2))).schema == here.schema
    with pytest.raises(TypeMismatch, match="cannot be merged"):
        here.merge(orders("others").select("kind", n=ps.lit("x")))


def test_the_key_of_a_join_comes_second() -> None:
    right = orders("again").select("id", weight=ps.col("price"), seen=ps.col("at"))
    made = orders().join(right, "id", within="1s", left_time="at", right_time="seen")
    assert len(taken(made)) == 3


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("groupBy", r"Use group_by\(…\)"),
        ("withColumn", r"Use with_column\(…\)"),
        ("orderBy", "no end to sort up to"),
        ("sort", "ps.agg.top"),
        ("writeStream", r"Use to\(…\)"),
        ("price", r'it is a column. Write ps.col\("price"\)'),
        ("agg", r"group_by\(\).agg\(…\)"),
        ("fliter", "Did you mean 'filter'"),
        ("nothing_like_it", "has no 'nothing_like_it'.$"),
    ],
)
def test_a_name_from_elsewhere_leads_to_the_one_here(name: str, told: str) -> None:
    assert not hasattr(orders(), name)
    with pytest.raises(AttributeError, match=told):
        getattr(orders(), name)


def test_groups_and_windows_lead_there_too() -> None:
    with pytest.raises(AttributeError, match="one aggregate for each value"):
        getattr(orders().group_by("kind"), "pivot")  # noqa: B009
    with pytest.raises(AttributeError, match=r"aggregate\(best=ps.agg.top"):
        getattr(orders().key_by("kind").window("1s", on="at"), "top")  # noqa: B009
    with pytest.raises(AttributeError, match=r"Use stream.map\(…\)"):
        getattr(F, "udf")  # noqa: B009
    with pytest.raises(AttributeError, match=r"process\(…\)"):
        getattr(F, "lag")  # noqa: B009
