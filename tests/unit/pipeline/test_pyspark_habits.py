"""What users of PySpark write: it works, or the error says what to write instead."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest

import penstock as ps
from penstock import functions as F
from penstock.errors import PenstockError, TypeMismatch
from penstock.testing import collect

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
        ("fliter", "Did you mean 'filter'"),
        ("nothing_like_it", "has no 'nothing_like_it'.$"),
    ],
)
def test_a_name_from_elsewhere_leads_to_the_one_here(name: str, told: str) -> None:
    assert not hasattr(orders(), name)
    with pytest.raises(AttributeError, match=told):
        getattr(orders(), name)


def test_columns_are_named_after_their_stream() -> None:
    stream = orders()
    assert str(stream.price) == str(stream["price"]) == "price"
    assert "price" in dir(stream)
    assert [row["id"] for row in taken(stream[stream.price > 2][["id", "kind"]])] == [2, 3]
    with pytest.raises(PenstockError, match="Did you mean 'price'"):
        stream["prise"]
    with pytest.raises(TypeMismatch, match=r"take\(n\)"):
        stream[0]
    with pytest.raises(TypeMismatch, match=r"take\(n\)"):
        list(stream)


def test_lists_and_keywords_are_taken_where_pyspark_takes_them() -> None:
    stream = orders()
    assert stream.select(["id", stream.kind]).columns == ["id", "kind"]
    assert stream.drop(stream.payload, "at").columns == ["id", "kind", "price"]
    assert stream.rename(id="key").columns[0] == "key"
    assert stream.cast(price="decimal(4,1)").schema.field("price").type.ddl == "decimal(4,1)"
    assert len(taken(stream.drop_duplicates(["kind"]))) == 2
    assert stream.unionByName(stream.drop("price"), allowMissingColumns=True).schema == stream.schema
    assert taken(stream.agg({"price": "max", "*": "count"}))[-1] == {"max(price)": 5.0, "count(*)": 3}
    assert taken(stream.group_by("kind").agg({"id": "sum"}))[0] == {"kind": "a", "sum(id)": 4}
    for mistake in (stream.rename, lambda: stream.rename("id"), lambda: stream.agg({"id": "summ"})):
        with pytest.raises(TypeMismatch):
            mistake()


def test_declared_times_need_not_be_said_again() -> None:
    stream = orders().with_watermark("at", "1s")
    right = orders("again").select("id", seen=ps.col("at")).with_watermark("seen", "1s")
    assert len(taken(stream.drop_duplicates("kind", within="10s"))) == 2
    assert taken(stream.window("1s").count())[0]["count"] == 3
    assert len(taken(stream.join(right, "id", within="1s"))) == 3
    assert len(taken(stream.join_asof(right, "id"))) == 3
    with pytest.raises(PenstockError, match=r"behind with_watermark\(…\)"):
        orders().drop_duplicates("kind", within="10s")
    with pytest.raises(PenstockError, match="either time or left_time"):
        orders().join(right, "id", within="1s")


VIEWS = [("x", 1, 0), ("y", 2, 5), (None, 3, 6)]
CLICKS = [("x", 10, 3), ("z", 20, 4), ("x", 0, 9)]
BOUND = "clicked BETWEEN viewed AND viewed + INTERVAL 5 MICROSECONDS"


def sides() -> tuple[ps.Stream, ps.Stream]:
    views = ps.stream("views", ps.records(VIEWS, schema="ad string, v int, viewed timestamp"))
    return views, ps.stream("clicks", ps.records(CLICKS, schema="shown string, c int, clicked timestamp"))


PAIR, YS, NULLS = ("x", 1, 0, "x", 10, 3), ("y", 2, 5, None, None, None), (None, 3, 6, None, None, None)
ZS, LATER = (None, None, None, "z", 20, 4), (None, None, None, "x", 0, 9)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", {PAIR}),
        ("left_outer", {PAIR, YS, NULLS}),
        ("RIGHT", {PAIR, ZS, LATER}),
        ("outer", {PAIR, YS, NULLS, ZS, LATER}),
    ],
)
def test_a_join_takes_the_condition_that_spark_takes(how: str, expected: set[Any]) -> None:
    views, clicks = sides()
    rows = {tuple(row.values()) for row in collect(views.join(clicks, f"ad = shown AND {BOUND}", how))}
    assert rows == expected
    written = [
        views.ad == clicks.shown,
        clicks.clicked >= views.viewed,
        clicks.clicked <= views.viewed + ps.expr("INTERVAL 5 MICROSECONDS"),
    ]
    assert {tuple(row.values()) for row in collect(views.join(clicks, written, how))} == expected
    query = f"SELECT * FROM v {how.replace('_', ' ') if how != 'outer' else 'FULL'} JOIN c ON ad = shown AND {BOUND}"
    assert {tuple(row.values()) for row in collect(ps.sql(query, v=views, c=clicks))} == expected


def test_a_condition_may_say_less_or_more() -> None:
    views, clicks = sides()
    times = {"left_time": "viewed", "right_time": "clicked"}
    assert len(taken(views.join(clicks, views.ad == clicks.shown, within=5e-6, **times))) == 1
    again = clicks.rename(shown="ad")
    assert views.join(again, views.ad == again.ad, within="1s", **times).columns == [
        "ad",
        "v",
        "viewed",
        "c",
        "clicked",
    ]
    assert taken(views.join(clicks, f"ad = shown AND v > c AND {BOUND}")) == []
    assert len(taken(views.join(clicks, f"ad = shown AND v < c AND {BOUND}"))) == 1


@pytest.mark.parametrize(
    ("on", "how", "told"),
    [
        ("ad", "inner", 'such as "10m": a stream has no end'),
        ("ad = shown", "left", "option within=None"),
        (BOUND, "inner", "A join needs a key"),
        (f"ad = shown AND v > c AND {BOUND}", "left", "v > c compares neither a key nor times"),
        (5, "inner", "option on=5"),
        ("ad", "left_semi", "option how='left_semi'"),
        ("ad", "left_anti", "those whose partner is null"),
        ("ad", "lef", "Did you mean 'left'"),
    ],
)
def test_a_join_says_what_is_missing(on: Any, how: str, told: str) -> None:
    views, clicks = sides()
    with pytest.raises(PenstockError, match=told):
        views.join(clicks, on, how)


def nested() -> ps.Stream:
    rows = [(1, ["a", "b"], {"k": 1}), (2, [], None)]
    return ps.stream("nested", ps.records(rows, schema="id int, tags array<string>, m map<string, int>"))


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (["id", F.explode("tags")], [{"id": 1, "col": "a"}, {"id": 1, "col": "b"}]),
        ([F.explode("tags").alias("tag")], [{"tag": "a"}, {"tag": "b"}]),
        (["id", F.explode_outer("tags").alias("t")], [{"id": 1, "t": "a"}, {"id": 1, "t": "b"}, {"id": 2, "t": None}]),
        ([F.posexplode("tags"), "id"], [{"pos": 0, "col": "a", "id": 1}, {"pos": 1, "col": "b", "id": 1}]),
        ([F.posexplode("tags").alias("p", "t")], [{"p": 0, "t": "a"}, {"p": 1, "t": "b"}]),
        (["id", F.explode("m")], [{"id": 1, "key": "k", "value": 1}]),
        ([F.explode(F.array("id", F.lit(0))).alias("n")], [{"n": 1}, {"n": 0}, {"n": 2}, {"n": 0}]),
    ],
)
def test_explode_is_a_column_of_a_select(columns: Any, expected: list[Any]) -> None:
    assert taken(nested().select(*columns)) == expected
    texts = [column if isinstance(column, str) else str(column) for column in columns]
    assert taken(nested().select_expr(*texts)) == expected
    assert taken(ps.sql(f"SELECT {', '.join(texts)} FROM n", n=nested())) == expected


def test_explode_keeps_the_place_of_a_column_that_it_replaces() -> None:
    made = nested().with_column("tags", F.explode("tags"))
    assert [tuple(row.values()) for row in taken(made)] == [(1, "a", {"k": 1}), (1, "b", {"k": 1})]
    query = (
        "SELECT t.id, x.tag, v FROM t LATERAL VIEW OUTER posexplode(t.tags) x AS p, tag LATERAL VIEW explode(m) AS k, v"
    )
    assert taken(ps.sql(f"{query} WHERE p = 1", t=nested())) == [{"id": 1, "tag": "b", "v": 1}]


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda s: s.select(F.explode("tags"), F.explode("m")), "would multiply each other"),
        (lambda s: s.select(F.upper(F.explode("tags"))), "makes several records of one"),
        (lambda s: s.filter(F.explode("tags") == "a"), "makes several records of one"),
        (lambda s: s.select(F.explode("id")), "takes an array or a map"),
        (lambda s: s.select(F.posexplode("tags").alias("p")), r'Use alias\("pos", "x"\)'),
        (lambda s: s.select(F.explode("m").alias("a")), "makes key and value"),
        (lambda s: s.select("id + 1"), r"use select_expr\(…\)"),
        (lambda s: s.filter(lambda r: True), r"leave records out in flat_map\(…\)"),
        (lambda s: ps.sql("SELECT * FROM s LATERAL VIEW explode(tags) AS id", s=s), "give another name with AS"),
        (lambda s: ps.sql("SELECT * FROM s LATERAL VIEW size(tags) AS n", s=s), "takes explode or posexplode"),
    ],
)
def test_what_makes_records_stands_alone(build: Any, told: str) -> None:
    with pytest.raises(PenstockError, match=told):
        build(nested())


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (ps.col("id") // 2, [0, 1, 1]),
        (-7 // ps.col("id"), [-7, -4, -3]),
        (F.concat("payload", "kind").contains(ps.col("kind")), [True, True, None]),
        (ps.col("kind").startswith(ps.col("kind")), [True, True, True]),
        (ps.col("kind").rlike(ps.col("kind")), [True, True, True]),
        (ps.col("id").isin(ps.col("at").cast("bigint"), 3), [False, False, True]),
    ],
    ids=str,
)
def test_columns_are_taken_where_values_are(column: Any, expected: list[Any]) -> None:
    assert [row["x"] for row in taken(orders().select(x=column))] == expected


def test_a_column_says_what_it_does_not_have() -> None:
    for name, told in {
        "desc": "no end to sort",
        "over": "process",
        "lowr": "Did you mean 'lower'",
        "city": r'\["city"\]',
    }.items():
        with pytest.raises(AttributeError, match=told):
            getattr(ps.col("user"), name)
    assert {"cast", "alias"} <= set(dir(ps.col("x")))
    assert "payload" not in dir(ps.col("x"))


def test_schemas_and_groups_show_themselves() -> None:
    from pyspark.sql.types import DecimalType

    assert repr(nested().schema) == "Schema(id int, tags array<string>, m map<string, int>)"
    assert repr(orders().select("id").group_by("id")) == "GroupedStream(id of Stream(select: id bigint))"
    assert "tumbling 1s on at" in repr(orders().window("1s", on="at"))
    assert repr(nested().schema.field("id").type) == "DataType(int)"
    assert orders().select(ps.col("id").cast(DecimalType(10, 2))).schema.ddl == "id decimal(10,2)"


def test_show_cuts_where_it_is_told_to(capsys: pytest.CaptureFixture[str]) -> None:
    long = orders().select(x=F.repeat(ps.lit("ab"), 30)).limit(1)
    for truncate, width in ((True, 40), (False, 60), (5, 5)):
        long.show(1, truncate)
        assert len(capsys.readouterr().out.splitlines()[-1]) == width


def test_people_are_given_times_as_times() -> None:
    stream = orders().select(
        at="at",
        day=F.to_date("at"),
        both=F.struct("at"),
        each=F.array("at"),
        far=ps.expr("timestamp_micros(9223372036854775807L)"),
    )
    moment = datetime(1970, 1, 1, tzinfo=UTC)
    expected = {"at": moment, "day": date(1970, 1, 1), "both": {"at": moment}, "each": [moment], "far": (1 << 63) - 1}
    assert taken(stream)[0] == expected


def test_nulls_are_dropped_and_filled() -> None:
    rows = [(1, "a", 2.0, True), (None, "b", float("nan"), None), (None, None, None, None)]
    stream = ps.stream("in", ps.records(rows, schema="n int, s string, d double, f boolean"))
    assert [row["s"] for row in taken(stream.dropna())] == ["a"]
    assert [row["s"] for row in taken(stream.dropna("s"))] == ["a", "b"]
    assert [row["s"] for row in taken(stream.dropna(how="all"))] == ["a", "b"]
    assert [row["s"] for row in taken(stream.dropna(["n", "d"], how="all"))] == ["a"]
    assert [tuple(row.values()) for row in taken(stream.fillna(7))][1:] == [(7, "b", 7.0, None), (7, None, 7.0, None)]
    filled = stream.fillna({"s": "?", "f": False})
    assert tuple(taken(filled)[2].values()) == (None, "?", None, False)
    assert not filled.schema.field("s").nullable
    assert taken(stream.fillna(1.9, subset=["n"]))[1]["n"] == 1
    for mistake in (lambda: stream.fillna([1]), lambda: stream.fillna("x", "n"), lambda: stream.dropna("nope")):
        with pytest.raises(PenstockError):
            mistake()


def test_a_sample_knows_maps() -> None:
    assert len(taken(nested().sample(1.0))) == 2
    with pytest.raises(PenstockError, match="kept once or not at all"):
        nested().sample(False, 1)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("sum", "Use F.sum: from penstock import functions as F"),
        ("readStream", r"ps.stream\(name, source\)"),
        ("sliding", 'slide="2s"'),
        ("jsn_files", "Did you mean 'json_files'"),
        ("_private", "has no '_private'.$"),
    ],
)
def test_the_package_leads_there_too(name: str, told: str) -> None:
    with pytest.raises(AttributeError, match=told):
        getattr(ps, name)
    assert set(dir(ps.testing)) == set(ps.testing.__all__)
    assert repr(
        ps.records(ROWS, schema="id bigint, kind string, price double, payload string, at timestamp")
    ).startswith("<Records source: id bigint, kind")


def test_groups_and_windows_lead_there_too() -> None:
    with pytest.raises(AttributeError, match="one aggregate for each value"):
        getattr(orders().group_by("kind"), "pivot")  # noqa: B009
    with pytest.raises(AttributeError, match=r"aggregate\(best=ps.agg.top"):
        getattr(orders().key_by("kind").window("1s", on="at"), "top")  # noqa: B009
    with pytest.raises(AttributeError, match=r"Use stream.map\(…\)"):
        getattr(F, "udf")  # noqa: B009
    with pytest.raises(AttributeError, match=r"process\(…\)"):
        getattr(F, "lag")  # noqa: B009
