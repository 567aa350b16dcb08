"""What the graph refuses before anything starts, with the operation named and a word on what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps
from penstock.errors import InvalidGraph, InvalidOption, PenstockError, SchemaError, TypeMismatch, UnknownColumn
from penstock.operators import Filter
from penstock.pipeline.graph import Graph, Input, Node

SCHEMA = "k string, n bigint, at timestamp"


def source(name: str = "in", schema: str = SCHEMA) -> ps.Stream:
    return ps.stream(name, ps.records([], schema=schema))


ADS = ps.table([("a", 1)], schema="k string, price bigint", key="k")

MISTAKES: list[tuple[str, Callable[[], Any], type[PenstockError], str]] = [
    ("unknown column", lambda: source().filter(ps.col("m") > 1), UnknownColumn, "'filter'"),
    ("unknown column in select", lambda: source().select("k", "missing"), UnknownColumn, "'select'"),
    ("unknown key", lambda: source().key_by("missing"), UnknownColumn, "'key_by'"),
    ("unknown time", lambda: source().window(ps.tumbling("1s", on="when")).count(), UnknownColumn, "when"),
    ("key as expression", lambda: source().key_by(ps.col("k") + 1), TypeMismatch, "'key_by': a column is given"),
    ("sum of expression", lambda: source().aggregate(n=ps.agg.sum(ps.col("n"))), TypeMismatch, "by its name"),
    ("constant as column", lambda: source().with_columns(x=5), TypeMismatch, "'with_columns': 5 is not a column"),
    ("constant in select", lambda: source().select("k", 5), TypeMismatch, "ps.lit"),
    ("no boolean", lambda: source().filter(ps.col("n")), TypeMismatch, "not boolean"),
    ("text and number", lambda: source().filter(ps.col("k") > 1), TypeMismatch, "'filter'"),
    ("function as filter", lambda: source().filter(lambda r: True), TypeMismatch, "column expression"),
    ("time is no time", lambda: source().window(ps.tumbling("1s", on="n")).count(), TypeMismatch, "bigint"),
    ("no window", lambda: source().key_by("k").window(["10s"]), TypeMismatch, "tumbling"),
    ("window without time", lambda: source().key_by("k").window("10s"), InvalidOption, "timestamp column"),
    ("window twice", lambda: source().window(ps.tumbling("1s", on="at"), slide="1s"), InvalidOption, "a size"),
    ("slide too long", lambda: source().window("1s", on="at", slide="2s"), InvalidOption, "option slide='2s'"),
    ("no aggregate", lambda: source().key_by("k").aggregate(n="count"), TypeMismatch, "not an aggregate"),
    ("no aggregates", lambda: source().key_by("k").aggregate(), InvalidOption, "at least one"),
    ("sum of text", lambda: source().key_by("k").aggregate(n=ps.agg.sum("k")), TypeMismatch, "needs a number"),
    ("parse a number", lambda: source().parse_json("a int", column="n"), TypeMismatch, "string or binary"),
    ("bad unit", lambda: source(schema="value string").parse_json("a int", timestamp_unit="h"), InvalidOption, "ms"),
    ("bad ddl", lambda: source(schema="value string").parse_json("a strin"), SchemaError, "string"),
    ("no table", lambda: source().lookup({"a": 1}, on="k"), TypeMismatch, "ps.table"),
    ("lookup of another type", lambda: source().lookup(ADS, on="n"), TypeMismatch, "bigint"),
    ("lookup how", lambda: source().lookup(ADS, on="k", how="outer"), InvalidOption, "inner, left"),
    ("lookup clash", lambda: source(schema="k string, price int").lookup(ADS, on="k"), SchemaError, "price"),
    ("unknown branch", lambda: source().split(big=ps.col("n") > 1)["bigg"], InvalidGraph, "big, rest"),
    ("map without schema", lambda: source().map(lambda r: r), TypeMismatch, "schema"),
    ("map without function", lambda: source().map("upper", schema="a int"), TypeMismatch, "not a function"),
    ("no sink", lambda: source().to(print), TypeMismatch, "not a sink"),
    ("no source", lambda: ps.stream("in", [1, 2]), TypeMismatch, "not a source"),
    ("bad policy", lambda: source().filter(ps.col("n") > 1, on_error="ignore"), InvalidOption, "dead_letter"),
    ("empty name", lambda: source().select("k", name=" "), InvalidOption, "name"),
    ("slash in name", lambda: source().select("k", name="a/b"), InvalidOption, "name"),
    ("merge of other schema", lambda: source().merge(source("b", "x int")), TypeMismatch, "cannot be merged"),
    ("join of no stream", lambda: source().join(ADS, on="k", within="1s", time="at"), TypeMismatch, "lookup()"),
    ("join clash", lambda: source().join(source("b"), on="k", within="1s", time="at"), SchemaError, "'join': "),
    ("join without time", lambda: source().join(source("b"), on="k", within="1s"), InvalidOption, "left_time"),
    ("join how", lambda: source().join(source("b"), on="k", within=1, time="at", how="semi"), InvalidOption, "how"),
    ("branch named rest", lambda: source().split(rest=ps.col("n") > 1), InvalidOption, "rest"),
    ("branch named out", lambda: source().split(out=ps.col("n") > 1), InvalidOption, "out"),
    ("no branch", lambda: source().split(), InvalidOption, "at least one"),
    ("late without window", lambda: source().key_by("k").count().late, TypeMismatch, "only windows"),
    ("double column", lambda: source().select("k", "k"), SchemaError, "twice"),
]  # fmt: skip


@pytest.mark.parametrize(("mistake", "error", "says"), [m[1:] for m in MISTAKES], ids=[m[0] for m in MISTAKES])
def test_mistakes_are_refused_where_they_are_made(
    mistake: Callable[[], Any], error: type[PenstockError], says: str
) -> None:
    with pytest.raises(error) as raised:
        mistake()
    assert says in str(raised.value)


def memory_node(name: str, *inputs: Input) -> Node:
    return Node(name, ps.memory(), inputs)


def filter_node(name: str, *inputs: Input) -> Node:
    return Node(name, Filter(ps.col("n") > 0), inputs)


SOURCE = Node("in", ps.records([], schema=SCHEMA))


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        (
            [SOURCE, filter_node("a", Input("b")), filter_node("b", Input("a")), memory_node("out", Input("b"))],
            "cycle: a → b → a",
        ),
        ([SOURCE, filter_node("a", Input("a")), memory_node("out", Input("a"))], "cycle: a → a"),
        ([SOURCE, filter_node("in", Input("in")), memory_node("out", Input("in"))], "two operations have this name"),
        ([SOURCE, memory_node("out", Input("inn"))], "'inn' is not part of the pipeline"),
        ([SOURCE, memory_node("out", Input("in", "late"))], "has no output 'late'"),
        ([SOURCE], "no sink"),
        ([], "no sink"),
        ([SOURCE, filter_node("a", Input("in")), memory_node("out", Input("in"))], "'a': its output leads nowhere"),
        ([SOURCE, Node("b", ps.records([], schema=SCHEMA)), memory_node("out", Input("in"))], "'b': its output"),
        ([SOURCE, filter_node("a"), memory_node("out", Input("a"))], "'a': it has no input"),
        (
            [SOURCE, Node("b", ps.records([], schema="x int")), Node("m", None, (Input("in"), Input("b"))),
             memory_node("out", Input("m"))],
            "only streams of one schema",
        ),
    ],
    ids=["cycle", "loop", "duplicate", "unknown input", "unknown port", "no sink", "nothing", "dangling",
         "unused source", "no input", "union of different schemas"],
)  # fmt: skip
def test_graphs_that_cannot_run(nodes: list[Node], says: str) -> None:
    with pytest.raises(InvalidGraph) as raised:
        Graph.check(nodes)
    assert says in str(raised.value)


def test_a_wrong_column_in_a_graph_names_its_operation() -> None:
    nodes = [SOURCE, Node("odd", Filter(ps.col("x") > 0), (Input("in"),)), memory_node("out", Input("odd"))]
    with pytest.raises(UnknownColumn, match="operation 'odd'"):
        Graph.check(nodes)


def test_every_branch_of_a_split_leads_somewhere() -> None:
    parts = source().split(big=ps.col("n") > 10, small=ps.col("n") < 2)
    with pytest.raises(InvalidGraph, match="branch 'small' leads nowhere"):
        parts["big"].to(ps.memory()).graph()
    graph = (parts["big"].to(ps.memory()) + parts["small"].to(ps.memory())).graph()
    assert ("split", "rest") in graph.ports


def test_names_that_nobody_chose_are_made_distinct() -> None:
    stream = source().filter(ps.col("n") > 1).filter(ps.col("n") > 2).filter(ps.col("n") > 3, name="filter-2")
    names = [node.name for node in stream.to(ps.memory()).graph().nodes]
    assert names == ["in", "filter", "filter-3", "filter-2", "to_memory"]


def test_names_that_were_chosen_must_be_distinct() -> None:
    stream = source().filter(ps.col("n") > 1, name="x").filter(ps.col("n") > 2, name="x")
    with pytest.raises(InvalidGraph, match="operation 'x': two operations"):
        stream.to(ps.memory()).graph()
    with pytest.raises(InvalidGraph, match="two operations"):
        (source().to(ps.memory()) + source().to(ps.memory())).graph()


def test_shared_streams_are_one_node() -> None:
    shared = source().filter(ps.col("n") > 1)
    graph = (shared.to(ps.memory(), name="a") + shared.select("k").to(ps.memory(), name="b")).graph()
    assert [node.name for node in graph.nodes].count("filter") == 1
    assert {node.name for node, _ in graph.consumers("filter", "out")} == {"a", "select"}
