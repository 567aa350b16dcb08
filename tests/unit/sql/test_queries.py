"""Queries and expressions as text build what the verbs and functions build, and mistakes are shown at their place."""

from __future__ import annotations

from typing import Any

import pytest

import meaning
import penstock as ps
from penstock import functions as F
from penstock.errors import InvalidText, PenstockError
from penstock.expr import infer, record_function
from penstock.testing import collect

ROWS = [
    {"ad": "a", "price": 1.5, "at": 1_000_000, "tags": ["x", "y"]},
    {"ad": "b", "price": 11.0, "at": 2_000_000, "tags": []},
    {"ad": "a", "price": 12.0, "at": 12_000_000, "tags": None},
]


def ads(name: str = "ads") -> ps.Stream:
    return ps.stream(name, ps.records(ROWS, schema="ad string, price double, at timestamp, tags array<string>"))


@pytest.mark.parametrize("group", meaning.GROUPS)
def test_the_text_of_every_expression_reads_back(group: str) -> None:
    records = meaning.records()
    for column in meaning.GROUPS[group]():
        again = ps.expr(str(column))
        assert infer(again, meaning.SCHEMA).type == infer(column, meaning.SCHEMA).type, column
        one, other = record_function(column, meaning.SCHEMA), record_function(again, meaning.SCHEMA)
        assert repr([one(record) for record in records]) == repr([other(record) for record in records]), column


def test_filter_and_select_take_text() -> None:
    assert collect(ads().filter("ad = 'a' AND price > 10").select("price")) == [{"price": 12.0}]
    assert collect(ads().select_expr("ad", "price * 2 AS twice", "size(tags) n"))[0] == {
        "ad": "a",
        "twice": 3.0,
        "n": 2,
    }
    assert ads().select_expr("*").schema == ads().schema
    assert collect(ads().select_expr("at + INTERVAL 10 MINUTES AS later"))[0] == {"later": 601_000_000}


@pytest.mark.parametrize(
    ("query", "same"),
    [
        ("SELECT ad, price FROM ads WHERE price > 2", lambda s: s.filter(ps.col("price") > 2).select("ad", "price")),
        (
            "SELECT ad, count(*) AS n FROM ads GROUP BY window(at, '10 seconds'), ad",
            lambda s: s.group_by(F.window("at", "10s"), "ad").agg(F.count("*").alias("n")).select("ad", "n"),
        ),
        (
            "SELECT window.end, upper(x.ad) AS u, sum(price) / count(*) AS m FROM ads x WHERE x.price > 1 "
            "GROUP BY window(at, '10 seconds', '5 seconds'), 2 HAVING count(*) > 0 AND max(price) > 2",
            lambda s: (
                s.filter("price > 1")
                .group_by(F.window("at", "10s", "5s"), F.upper("ad").alias("u"))
                .agg((F.sum("price") / F.count("*")).alias("m"), F.max("price").alias("most"))
                .filter("most > 2")
                .select(ps.col("window.end"), "u", "m")
            ),
        ),
        ("SELECT sum(price) AS s FROM ads", lambda s: s.group_by().agg(F.sum("price").alias("s"))),
        ("SELECT DISTINCT ad FROM ads", lambda s: s.select("ad").distinct()),
        ("SELECT n FROM (SELECT ad AS n FROM ads) WHERE n = 'b'", lambda s: s.select(n=ps.col("ad")).filter("n = 'b'")),
    ],
)
def test_a_query_builds_what_the_verbs_build(query: str, same: Any) -> None:
    made, expected = ps.sql(query, ads=ads()), same(ads())
    assert made.schema == expected.schema
    assert collect(made) == collect(expected)


def test_union_all_takes_the_names_of_its_left_side() -> None:
    made = ps.sql("SELECT ad, price FROM ads UNION ALL SELECT upper(ad), price FROM more", ads=ads(), more=ads("more"))
    assert made.schema.names == ("ad", "price")
    assert sorted(str(row["ad"]) for row in collect(made)) == ["A", "A", "B", "a", "a", "b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("price >", r"missing here \(line 1, column 7\)"),
        ("upper(ad", r"Expecting \) \(line 1, column 7\)"),
        ("ad = 'a' AND\n  uper(ad) = 'A'", r"no function 'uper'. Did you mean 'upper'\? \(line 2, column 3\)"),
        ("INTERVAL 10 PARSECS", "not a unit of time"),
        ("SELECT 1", "not an expression"),
        ("", "no SQL text"),
        ("count(*) OVER ()", "not supported"),
        ("ad LIKE", "missing here|Expected|Unexpected"),
    ],
)
def test_a_bad_expression_is_shown_at_its_place(text: str, message: str) -> None:
    with pytest.raises(InvalidText, match=message):
        ps.expr(text)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT ad FROM adz", "no stream 'adz' .*Did you mean 'ads'"),
        ("SELECT nope FROM ads", "no column 'nope'"),
        ("SELECT ad, price, count(*) FROM ads GROUP BY ad", "no column 'price'"),
        ("SELECT ad, count(*) FROM ads GROUP BY ad ORDER BY 1", "no ORDER BY"),
        ("SELECT ad FROM ads LIMIT ad", "LIMIT takes a number"),
        ("SELECT ad FROM ads UNION ALL SELECT ad FROM ads ORDER BY ad", "no ORDER BY"),
        ("SELECT a.ad FROM ads a JOIN ads b ON a.ad = b.ad", "a JOIN bounds the times of both sides"),
        ("SELECT a.ad FROM ads a JOIN ads b ON a.at = b.at", "a JOIN needs equal keys"),
        ("SELECT ad FROM ads a JOIN ads b ON a.ad = b.ad AND a.at = b.at", "'ad' is ambiguous: write a.ad or b.ad"),
        ("SELECT * FROM ads a JOIN ads b ON a.ad = b.ad AND a.at = b.at", "[*] has two columns 'price'"),
        ("SELECT a.ad FROM ads a JOIN ads a ON a.ad = a.ad", "two tables 'a'"),
        ("SELECT b.add FROM ads a JOIN ads b ON a.ad = b.ad AND a.at = b.at", "'b' has no column 'add'.*'ad'"),
        ("SELECT c.* FROM ads a", "no table 'c'"),
        ("SELECT a.ad FROM ads a JOIN ads b USING (ad)", "USING .ad. bounds no time"),
        ("SELECT a.ad FROM ads a CROSS JOIN ads b", "no CROSS JOIN"),
        ("SELECT a.ad FROM ads a, ads b", "no CROSS JOIN"),
        ("SELECT a.ad FROM ads a LEFT SEMI JOIN ads b ON a.ad = b.ad", "no LEFT SEMI JOIN"),
        ("SELECT a.ad FROM ads a JOIN nix b ON a.ad = b.ad", "no stream 'nix'"),
        ("SELECT ad FROM ads UNION SELECT ad FROM ads", "use UNION ALL"),
        ("SELECT ad FROM ads GROUP BY ad", "needs an aggregate"),
        ("DROP TABLE ads", "not a query"),
        ("price > 1", "not a query"),
        ("SELECT window(at, '1s') FROM ads", "stands in GROUP BY"),
    ],
)
def test_a_bad_query_is_refused(query: str, message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        ps.sql(query, ads=ads())


def test_tables_are_streams() -> None:
    with pytest.raises(PenstockError, match="is not a stream"):
        ps.sql("SELECT 1 FROM x", x=[1])  # type: ignore[arg-type]


VIEWS = [("a", 1, 10_000_000), ("b", 2, 20_000_000), ("a", 3, 30_000_000)]
CLICKS = [("a", 9, 12_000_000), ("c", 8, 20_000_000)]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("", [("a", "a", 1, 9)]),
        ("LEFT", [("a", "a", 1, 9), ("b", None, 2, None), ("a", None, 3, None)]),
        ("RIGHT OUTER", [("a", "a", 1, 9), (None, "c", None, 8)]),
        ("FULL", [("a", "a", 1, 9), ("b", None, 2, None), ("a", None, 3, None), (None, "c", None, 8)]),
    ],
)
def test_joins_have_the_keys_and_nulls_of_sql(kind: str, expected: list[Any]) -> None:
    views = ps.stream("views", ps.records(VIEWS, schema="ad string, id int, viewed timestamp"))
    clicks = ps.stream("clicks", ps.records(CLICKS, schema="what string, id int, clicked timestamp"))
    text = f"""
        SELECT v.ad, c.what, v.id AS mine, c.id FROM views v {kind} JOIN clicks AS c
        ON c.what = v.ad AND c.clicked BETWEEN viewed AND viewed + INTERVAL 10 SECONDS
    """
    made = ps.sql(text, views=views, clicks=clicks)
    assert made.schema.names == ("ad", "what", "mine", "id")
    assert sorted(map(repr, (tuple(row.values()) for row in collect(made)))) == sorted(map(repr, expected))


def test_a_join_is_filtered_grouped_and_joined_on() -> None:
    views = ps.stream("views", ps.records(VIEWS, schema="ad string, id int, at timestamp"))
    clicks = ps.stream("clicks", ps.records(CLICKS, schema="ad string, id int, at timestamp"))
    near = "AND c.at BETWEEN v.at - INTERVAL 20 SECONDS AND v.at + INTERVAL 10 SECONDS"
    text = f"""
        SELECT window.start, v.ad, count(*) AS n, sum(c.id) AS total FROM views v JOIN clicks c ON v.ad = c.ad {near}
        JOIN (SELECT ad AS word, at AS then FROM ads) x
        ON x.word = v.ad AND x.then <= v.at AND x.then >= v.at - INTERVAL 1 HOUR
        WHERE c.id > 8 GROUP BY window(v.at, '1 minute'), v.ad
    """
    made = collect(ps.sql(text, views=views, clicks=clicks, ads=ads()))
    assert made == [{"start": 0, "ad": "a", "n": 3, "total": 27}]
    star = ps.sql(
        f"SELECT c.*, v.at AS seen FROM views v JOIN clicks c ON v.ad = c.ad {near}", views=views, clicks=clicks
    )
    assert star.schema.names == ("ad", "id", "at", "seen")
    assert len(collect(star)) == 2


def test_a_limit_lets_so_many_pass() -> None:
    assert len(collect(ps.sql("SELECT ad FROM ads WHERE price > 1 LIMIT 2", ads=ads()))) == 2
    both = "SELECT ad FROM ads UNION ALL SELECT ad FROM ads LIMIT 5"
    assert len(collect(ps.sql(both, ads=ads()))) == 5


def test_sessions_are_sparks() -> None:
    """Records less than the gap apart are in one session, which ends the gap after its last record."""
    rows = [{"ad": "a", "price": 1.0, "at": at * 1_000_000, "tags": None} for at in (0, 3, 8, 12, 30)]
    stream = ps.stream("ads", ps.records(rows, schema="ad string, price double, at timestamp, tags array<string>"))
    text = "SELECT session_window.start AS s, session_window.end AS e, count(*) AS n FROM ads GROUP BY {}, ad"
    made = collect(ps.sql(text.format("session_window(at, '5 seconds')"), ads=stream))
    assert [tuple(row.values()) for row in made] == [
        (0, 8_000_000, 2),
        (8_000_000, 17_000_000, 2),
        (30_000_000, 35_000_000, 1),
    ]
    grouped = stream.group_by("ad", F.session_window("at", "5 seconds"))
    assert grouped.agg(F.count("*").alias("n")).schema.names == ("ad", "session_window", "n")
    assert str(F.session_window("at", "5 seconds")) == "session_window(at, '5 seconds')"
    with pytest.raises(PenstockError, match="sent on when it closes"):
        grouped.agg(F.count("*"), emit="every")
    with pytest.raises(InvalidText, match="session_window takes a time column and a text"):
        ps.sql(text.format("session_window(at)"), ads=stream)


def test_structs_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    ads().select_expr("struct(ad, at) AS both").show(1)
    assert "{'ad': 'a', 'at': '1970-01-01T00:00:01" in capsys.readouterr().out


def test_queries_are_named_before_they_are_read() -> None:
    text = """
        WITH big AS (SELECT k, n, CASE WHEN n > 2 THEN 'many' ELSE 'few' END AS band FROM t WHERE n > 1),
             named AS (SELECT band, n FROM big)
        SELECT band, sum(n) AS total FROM named GROUP BY band HAVING count(*) > 0
        UNION ALL SELECT k, n FROM big
    """
    rows = [("a", 1), ("b", 2), ("c", 3), ("d", 4)]
    stream = ps.stream("t", ps.records(rows, schema="k string, n bigint"))
    found = ps.sql(text, t=stream).take()
    last = {row["band"]: row["total"] for row in found}
    assert last == {"few": 2, "many": 7, "b": 2, "c": 3, "d": 4}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("WITH RECURSIVE a AS (SELECT k FROM t) SELECT k FROM a", "no WITH RECURSIVE"),
        ("SELECT row_number() OVER (ORDER BY k) AS n FROM t", "no end to sort up to; use ps.agg.top"),
        ("WITH a(x) AS (SELECT k FROM t) SELECT x FROM a", "named in the query itself"),
        ("WITH a AS (SELECT k FROM b), b AS (SELECT k FROM t) SELECT k FROM a", "no stream 'b'"),
    ],
)
def test_what_is_refused_says_why(text: str, told: str) -> None:
    with pytest.raises(PenstockError, match=told):
        ps.sql(text, t=ps.stream("t", ps.records([("a",)], schema="k string")))
