"""Aggregates by Spark's names: values, both halves in any division, both forms, snapshots."""

from __future__ import annotations

import statistics
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from states import restore, snapshot

import penstock as ps
from penstock import functions as F
from penstock.errors import PenstockError
from penstock.expr import Column
from penstock.operators import Aggregation, Errors
from penstock.operators.base import StatefulOperator
from penstock.testing import collect
from penstock.types import Schema, record_dict

SCHEMA = Schema.parse("k string, x int, d double, p decimal(6,2), u string, f boolean, s struct<a: int>, t timestamp")
AGGREGATES = [
    F.count("*"), F.count("x"), F.sum("x"), F.sum("p"), F.avg("x"), F.avg("p"), F.min("d"), F.max("d"), F.min("p"), F.max("p"),
    F.max("x"), F.count_distinct("u"), F.count_distinct("u", "x"), F.approx_count_distinct("u"), F.stddev("x"), F.stddev_pop("x"),
    F.variance("d"), F.var_pop("x"), F.skewness("x"), F.kurtosis("x"), F.median("x"), F.percentile("p", 0.25),
    F.percentile_approx("x", 0.5), F.collect_list("p"), F.collect_list("s"), F.collect_set("u"), F.max_by("u", "x"), F.min_by("x", "u"),
    F.first("x"), F.first("s", True), F.last("p"), F.last("u", True), F.bool_and("f"), F.bool_or("f"), F.count_if("f"),
    F.sum_distinct("x"), F.any_value("u"), F.covar_pop("x", "d"), F.covar_samp("x", "p"), F.mode("x"), F.mode("p"), F.bit_and("x"),
    F.bit_or("x"), F.bit_xor("x"), F.max_by("p", "x"), F.min_by("s", "p"), F.percentile("x", [0.25, 0.5]),
    F.percentile_approx("x", [0.0, 0.9]),
]  # fmt: skip


def drawn(random: Random, count: int) -> list[Any]:
    def maybe(value: Any) -> Any:
        return None if random.random() < 0.2 else value

    return [
        SCHEMA.coerce(
            {
                "k": random.choice("ab"),
                "x": maybe(random.randrange(-5, 6)),
                "d": maybe(random.choice([0.5, -1.5, 2.0, float("nan"), 0.0, -0.0])),
                "p": maybe(Decimal(random.randrange(-999, 999)).scaleb(-2)),
                "u": maybe(random.choice(["q", "r", "s"])),
                "f": maybe(random.random() < 0.5),
                "s": maybe({"a": maybe(random.randrange(3))}),
                "t": random.randrange(20) * 1_000_000,
            }
        )
        for _ in range(count)
    ]


def aggregation(aggregate: Column) -> Aggregation:
    stream = ps.stream("in", ps.records([], schema=SCHEMA)).group_by("k").agg(aggregate.alias("v"))
    body = stream._from.node.body
    assert isinstance(body, Aggregation)
    return body


def shown(rows: list[Any]) -> dict[str, str]:
    def plain(value: Any) -> Any:
        if isinstance(value, float):
            return "NaN" if value != value else round(value, 9) + 0.0
        return sorted(value) if isinstance(value, list) and all(isinstance(v, str) for v in value) else value

    return {str(row.k): repr(plain(record_dict(row)["v"])) for row in rows}


@pytest.mark.parametrize("aggregate", AGGREGATES, ids=str)
@settings(max_examples=8)
@given(seed=st.integers(0, 2**32))
def test_any_division_gives_the_same(aggregate: Column, seed: int) -> None:
    """Records in blocks of any size, in either form before the shuffle, with a snapshot in between."""
    random = Random(seed)
    rows = drawn(random, random.randrange(1, 15))
    operation = aggregation(aggregate)
    expansion = operation.expand([SCHEMA], ())
    assert expansion is not None
    combine = expansion.before[0][1].build(SCHEMA, Errors("combine"))
    between = expansion.before[0][1].bind(SCHEMA)

    def reducer() -> StatefulOperator:
        made = expansion.behind.build(between, Errors("reduce"))
        assert isinstance(made, StatefulOperator)
        return made

    whole = reducer()
    expected = whole.process(combine.process(rows).rows).rows
    parts = reducer()
    seen: dict[str, Any] = {}
    at = 0
    while at < len(rows):
        size = random.randrange(1, 6)
        block = rows[at : at + size]
        at += size
        if random.random() < 0.5:
            partials = combine.process(block).rows
        else:
            partials = between.to_rows(combine.process_batch(SCHEMA.to_batch(block)).columns)
        seen |= {row.k: row for row in parts.process(partials).rows}
        if random.random() < 0.3:
            again = reducer()
            restore(again, [snapshot(parts, full=True)])
            parts = again
    assert shown(list(seen.values())) == shown(expected)


def test_values_are_those_of_the_definitions() -> None:
    rows = [{"k": "a", "x": x, "p": Decimal(x), "u": str(x % 3)} for x in (1, 5, 2, 5, 9)] + [{"k": "a"}]
    stream = ps.stream("in", ps.records(rows, schema=SCHEMA))
    (made,) = collect(
        stream.group_by("k").agg(
            n=F.count("*"), mean=F.avg("p"), total=F.sum("p"), dev=F.stddev("x"), mid=F.median("x"), most=F.max_by("u", "x"),
            different=F.count_distinct("x"), half=F.percentile_approx("x", 0.5), everything=F.collect_list("x"),
        )
    )  # fmt: skip
    assert made["n"] == 6
    assert made["mean"] == Decimal("4.400000")
    assert made["total"] == Decimal("22.00")
    assert made["dev"] == pytest.approx(statistics.stdev([1, 5, 2, 5, 9]))
    assert made["mid"] == 5.0
    assert made["most"] == "0"
    assert made["different"] == 4
    assert made["half"] == 5
    assert made["everything"] == [1, 5, 2, 5, 9]


def test_estimates_are_as_near_as_they_say() -> None:
    rows = [{"k": "a", "u": f"value {i % 20_000}"} for i in range(25_000)]
    stream = ps.stream("in", ps.records(rows, schema="k string, u string"))
    estimates = {"n": F.approx_count_distinct("u"), "fine": F.approx_count_distinct("u", 0.01)}
    made = collect(stream.group_by("k").agg(**estimates))[-1]
    assert made["n"] == pytest.approx(20_000, rel=0.15)
    assert made["fine"] == pytest.approx(20_000, rel=0.04)


def test_large_groups_have_sketched_percentiles() -> None:
    numbers = list(range(1, 5001))
    Random(7).shuffle(numbers)
    stream = ps.stream("in", ps.records([{"x": x} for x in numbers], schema="x int"))
    made = collect(stream.group_by().agg(v=F.percentile_approx("x", 0.9, 200)))[-1]
    assert made["v"] == pytest.approx(4500, rel=0.03)


def test_windows_are_named_as_spark_names_them() -> None:
    rows = [{"k": "a", "x": x, "t": t * 1_000_000} for x, t in ((1, 1), (2, 3), (4, 12))]
    stream = ps.stream("in", ps.records(rows, schema=SCHEMA))
    counted = stream.group_by(F.upper("k").alias("K"), F.window("t", "10 seconds")).agg(
        F.sum(ps.col("x") * 2).alias("s")
    )
    assert counted.schema.names == ("K", "window", "s")
    ends = counted.select("K", ps.col("window.start"), ps.col("window")["end"].alias("end"), "s")
    assert collect(ends) == [
        {"K": "A", "start": 0, "end": 10_000_000, "s": 6},
        {"K": "A", "start": 10_000_000, "end": 20_000_000, "s": 8},
    ]
    sliding = stream.group_by("k", F.window("t", "10 seconds", "5 seconds")).agg(F.count("*").alias("n"))
    assert sum(row["n"] for row in collect(sliding)) == 6  # type: ignore[misc]


def test_expressions_over_aggregates() -> None:
    stream = ps.stream("in", ps.records([{"k": "a", "x": x} for x in (1, 2, 6)], schema=SCHEMA))
    made = collect(stream.group_by("k").agg("sum(x) / count(*) AS mean", (F.max("x") - F.min("x")).alias("span")))
    assert made == [{"k": "a", "mean": 3.0, "span": 5}]
    assert collect(stream.group_by("k").count()) == [{"k": "a", "count": 3}]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s: s.group_by("k").agg(), "no aggregates"),
        (lambda s: s.group_by("k").agg(ps.col("x")), "is not an aggregate"),
        (lambda s: s.group_by("k").agg(F.sum("u")), "needs a number"),
        (lambda s: s.group_by("k").agg(F.sum("nope")), "no column 'nope'"),
        (lambda s: s.group_by("nope").agg(F.count("*")), "no column 'nope'"),
        (lambda s: s.group_by(F.sum("x")), "not a key"),
        (lambda s: s.group_by(F.window("t", "1s"), F.window("t", "2s")), "one window"),
        (lambda s: s.group_by(F.window("x", "1s")).agg(F.count("*")), "is int"),
        (lambda s: s.group_by("k").agg(F.sum(F.sum("x"))), "aggregate of an aggregate"),
        (lambda s: s.select(F.sum("x")), "needs a group"),
        (lambda s: s.group_by("k").agg(F.count("*"), emit="close"), "nothing closes"),
        (lambda s: s.group_by("d").agg(F.count("*")), "cannot be a key"),
        (lambda s: s.group_by("k").agg(F.percentile_approx("x", 2)), "percentage"),
        (lambda s: s.key_by("k").aggregate(m=ps.agg.min("s")), "'aggregate': min needs values with an order"),
        (lambda s: s.key_by("k").aggregate(m=ps.agg.sum("s")), "'aggregate': sum needs a number"),
        (lambda s: s.key_by("k").aggregate(m=ps.agg.top(3, "p")), "'aggregate': .*cannot order by decimal"),
        (lambda s: s.key_by("k").aggregate(m=ps.agg.top(3, "nope")), "no column 'nope'"),
        (lambda s: s.key_by("k").aggregate(m=ps.agg.top(0, "x")), "count=0"),
    ],
)
def test_mistakes_are_told_before_anything_runs(build: Any, message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        build(ps.stream("in", ps.records([], schema=SCHEMA)))


def test_the_aggregates_of_ps_agg_hold_decimals() -> None:
    rows = [("a", Decimal("1.10")), ("a", None), ("a", Decimal("-2.25")), ("b", None), ("a", Decimal("0.05"))]
    stream = ps.stream("in", ps.records(rows, schema="k string, p decimal(6,2)"))
    made = stream.key_by("k").aggregate(
        s=ps.agg.sum("p"),
        m=ps.agg.mean("p"),
        low=ps.agg.min("p"),
        high=ps.agg.max("p"),
        one=ps.agg.first("p"),
        end=ps.agg.last("p"),
        n=ps.agg.count("p"),
    )
    ddl = "k string, s decimal(16,2), m decimal(10,6), low decimal(6,2), high decimal(6,2), one decimal(6,2)"
    assert made.schema.ddl == f"{ddl}, end decimal(6,2), n bigint"
    found = {row.pop("k"): list(row.values()) for row in collect(made)}
    a = ["-1.10", "-0.366667", "-2.25", "1.10", "1.10", "0.05"]
    assert found == {"a": [*map(Decimal, a), 3], "b": [None] * 6 + [0]}


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_the_best_few_of_each_window(largest: bool, parallelism: int) -> None:
    random = Random(3)
    rows = [
        (random.choice("ab"), random.choice([None, *range(9)]), f"w{i}", Decimal(i), i * 100_000) for i in range(200)
    ]
    schema = "k string, price int, who string, p decimal(6,2), at timestamp"
    parts = [rows[0::2], rows[1::2]]
    stream = ps.stream("in", ps.records(partitions=parts, schema=schema)).with_watermark("at", "1s")
    best = ps.agg.top(3, "price", "who", "p", largest=largest)
    made = stream.key_by("k").window("5s", on="at", slide="2500ms").aggregate(best=best)
    assert made.schema.field("best").type.ddl == "array<struct<price: int, who: string, p: decimal(6,2)>>"
    found = {(row["k"], row["window_start"]): row["best"] for row in collect(made, parallelism=parallelism)}
    for (k, start), shown in found.items():
        held = [
            (r[1], r[2], r[3]) for r in rows if r[0] == k and start <= r[4] < start + 5_000_000 and r[1] is not None
        ]
        assert [each["price"] for each in shown] == sorted((each[0] for each in held), reverse=largest)[:3]
        assert {(each["price"], each["who"], each["p"]) for each in shown} <= set(held)
    assert len(found) > 8
    assert found == {(r["k"], r["window_start"]): r["best"] for r in collect(made, parallelism=2)}


def test_too_much_to_collect_is_an_error() -> None:
    stream = ps.stream("in", ps.records([{"x": x} for x in range(10_001)], schema="x int"))
    with pytest.raises(PenstockError, match="more than 10000 values"):
        collect(stream.group_by().agg(F.collect_list("x")))
