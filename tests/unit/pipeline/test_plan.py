"""The shapes that graphs are laid out in: which operations share a unit, and how units are joined."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

import penstock as ps
from penstock.errors import InvalidGraph, NotSerializable
from penstock.operators import DEAD_LETTERS, Expansion, Filter, Operation, Split
from penstock.pipeline.graph import Graph, Input, Node
from penstock.pipeline.options import Options
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.plan import Mode, Plan, check_serializable
from penstock.types import Schema

SCHEMA = "k string, n bigint, at timestamp"


def source(name: str = "in", partitions: int = 2) -> ps.Stream:
    return ps.stream(name, ps.records([], schema=SCHEMA, partitions=partitions))


def plan_of(pipeline: Pipeline, parallelism: int = 2) -> Plan:
    return Plan.of(pipeline.graph(), Options.of(parallelism=parallelism), pipeline.dead_letters)


def shape(plan: Plan) -> tuple[dict[str, tuple[int, list[str]]], set[tuple[str, str, str, Mode]]]:
    """Units as name → (instances, operations), and edges as (from, port, to, mode)."""
    units = {unit.name: (unit.instances, [op.name for op in unit.ops]) for unit in plan.units}
    edges = {(plan.units[e.producer].name, e.port, plan.units[e.consumer].name, e.mode) for e in plan.edges}
    return units, edges


def test_a_chain_is_one_unit() -> None:
    stream = source().filter(ps.col("n") > 1).select("k").map(lambda r: r, schema="k string")
    units, edges = shape(plan_of(stream.to(ps.memory())))
    assert units == {"in": (2, ["filter", "select", "map", "to_memory"])}
    assert edges == set()


def test_an_aggregation_is_two_halves_around_a_shuffle() -> None:
    counted = source().filter(ps.col("n") > 1).key_by("k").window(ps.tumbling("1s", on="at")).count()
    plan = plan_of(counted.filter(ps.col("count") > 1).to(ps.memory()), parallelism=3)
    units, edges = shape(plan)
    assert units == {"in": (2, ["filter", "count.combine"]), "count": (3, ["count", "filter-2", "to_memory"])}
    assert edges == {("in", "out", "count", Mode.SHUFFLE)}
    assert plan.edges[0].keys == ("_k0",)
    assert "_n" in plan.edges[0].schema


def test_users_know_the_halves_of_an_aggregation_by_one_name_and_the_sides_of_a_join_by_two() -> None:
    joined = source().join(source("other").select("k", at2="at"), on="k", within="1s", left_time="at", right_time="at2")
    plan = plan_of(joined.key_by("k").count().to(ps.memory()))
    known = {op.name: op.display for unit in plan.units for op in unit.ops}
    assert known["count.combine"] == known["count"] == "count"
    assert (known["join.left"], known["join.right"], known["join"]) == ("join.left", "join.right", "join")
    assert {edge.user_keys for edge in plan.edges} == {("k",)}


@dataclass(frozen=True)
class Latest(Operation):
    """A keyed operation that the planner has never heard of; its parts are some that do nothing."""

    keys: tuple[str, ...]
    kind = "latest"

    def bind(self, schema: Schema) -> Schema:
        return schema

    def side_ports(self, schema: Schema) -> dict[str, Schema]:
        return {"older": schema}

    @property
    def required_ports(self) -> tuple[str, ...]:
        return ("older",)

    def expand(self, schemas: Sequence[Schema], read: Collection[str]) -> Expansion:
        assert set(read) == {"older"}
        (schema,) = schemas
        assert schema.names == ("k", "n", "at")
        return Expansion((("spread", Filter(ps.lit(True))),), Split((("older", ps.lit(True)),)), self.keys, self.keys)


@pytest.mark.parametrize("keys", [("k",), ()], ids=["by key", "in one place"])
def test_an_operation_says_itself_what_runs_of_it(keys: tuple[str, ...]) -> None:
    events = ps.records([], schema=SCHEMA, partitions=2)
    nodes = [
        Node("in", events),
        Node("latest", Latest(keys), (Input("in"),)),
        Node("out", ps.memory(), (Input("latest", "older"),)),
    ]
    units, edges = shape(Plan.of(Graph.check(nodes), Options.of(parallelism=3)))
    instances, mode = (3, Mode.SHUFFLE) if keys else (1, Mode.GATHER)
    assert units == {"in": (2, ["latest.spread"]), "latest": (instances, ["latest"]), "out": (instances, ["out"])}
    assert edges == {("in", "out", "latest", mode), ("latest", "older", "out", Mode.FORWARD)}
    with pytest.raises(InvalidGraph, match="its branch 'older' leads nowhere"):
        Graph.check([*nodes[:2], Node("out", ps.memory(), (Input("latest"),))])


def test_a_side_output_of_late_records_makes_whole_records_travel() -> None:
    counted = source().key_by("k").window(ps.tumbling("1s", on="at")).count()
    plan = plan_of(counted.to(ps.memory(), name="a") + counted.late.to(ps.memory(), name="b"))
    units, edges = shape(plan)
    assert units == {"in": (2, ["count.combine"]), "count": (2, ["count", "a"]), "b": (2, ["b"])}
    assert edges == {("in", "out", "count", Mode.SHUFFLE), ("count", "late", "b", Mode.FORWARD)}
    assert plan.edges[0].keys == ("k",)
    assert plan.edges[0].schema.names == ("k", "n", "at")


def test_the_sides_of_a_join_meet_by_key() -> None:
    right = source("other", 1).select(k="k", m=ps.col("n"), seen=ps.col("at"))
    pairs = (
        source().filter(ps.col("n") > 1).join(right, on="k", within="1s", left_time="at", right_time="seen", name="j")
    )
    plan = plan_of(pairs.select("k", "n", "m").to(ps.memory()), parallelism=3)
    units, edges = shape(plan)
    assert units == {
        "in": (2, ["filter", "j.left"]),
        "other": (1, ["select", "j.right"]),
        "j": (3, ["j", "select-2", "to_memory"]),
    }
    assert edges == {("in", "out", "j", Mode.SHUFFLE), ("other", "out", "j", Mode.SHUFFLE)}
    assert {edge.keys for edge in plan.edges} == {("_k0",)}
    assert {edge.schema for edge in plan.edges} == {plan.units[2].schema}


def test_a_stream_joined_with_itself_is_read_by_both_sides() -> None:
    stream = source()
    again = stream.select(k="k", m=ps.col("n"), seen=ps.col("at"))
    pairs = stream.key_by("k").join(again, on="k", within="1s", left_time="at", right_time="seen")
    units, edges = shape(plan_of(pairs.to(ps.memory())))
    assert units == {
        "in": (2, []),
        "join.left": (2, ["join.left"]),
        "select": (2, ["select", "join.right"]),
        "join": (2, ["join", "to_memory"]),
    }
    assert edges == {
        ("in", "out", "join.left", Mode.FORWARD),
        ("in", "out", "select", Mode.FORWARD),
        ("join.left", "out", "join", Mode.SHUFFLE),
        ("select", "out", "join", Mode.SHUFFLE),
    }


def test_panes_travel_unless_the_order_of_records_counts() -> None:
    grouped = source().key_by("k").window("10s", on="at", slide="2s")
    plan = plan_of(grouped.aggregate(n=ps.agg.count(), mean=ps.agg.mean("n")).to(ps.memory()))
    assert plan.edges[0].keys == ("_k0",)
    assert "_w" in plan.edges[0].schema
    plan = plan_of(grouped.aggregate(n=ps.agg.count(), last=ps.agg.last("n")).to(ps.memory()))
    assert plan.edges[0].keys == ("k",)
    assert plan.edges[0].schema.names == ("k", "n", "at")


def test_without_keys_everything_is_gathered() -> None:
    units, edges = shape(plan_of(source().aggregate(n=ps.agg.count()).to(ps.memory())))
    assert units["aggregate"] == (1, ["aggregate", "to_memory"])
    assert edges == {("in", "out", "aggregate", Mode.GATHER)}


def test_key_by_before_a_stateless_operation_shuffles() -> None:
    units, edges = shape(plan_of(source().key_by("k").map(lambda r: r, schema=SCHEMA).to(ps.memory()), parallelism=4))
    assert units == {"in": (2, []), "map": (4, ["map", "to_memory"])}
    assert edges == {("in", "out", "map", Mode.SHUFFLE)}


def test_fan_out_ends_the_chain() -> None:
    stream = source().filter(ps.col("n") > 1)
    units, edges = shape(plan_of(stream.to(ps.memory(), name="a") + stream.select("k").to(ps.memory(), name="b")))
    assert units == {"in": (2, ["filter"]), "a": (2, ["a"]), "select": (2, ["select", "b"])}
    assert edges == {("in", "out", "a", Mode.FORWARD), ("in", "out", "select", Mode.FORWARD)}


def test_split_and_merge() -> None:
    parts = source().split(big=ps.col("n") > 1)
    merged = parts["big"].merge(parts["rest"], source("other", partitions=3))
    plan = plan_of(merged.to(ps.memory()), parallelism=3)
    units, edges = shape(plan)
    assert units == {"in": (2, ["split"]), "other": (3, []), "merge": (3, ["to_memory"])}
    assert edges == {
        ("in", "big", "merge", Mode.FORWARD),
        ("in", "rest", "merge", Mode.FORWARD),
        ("other", "out", "merge", Mode.FORWARD),
    }
    big = next(edge for edge in plan.edges if edge.port == "big")
    assert [big.producers(plan, instance) for instance in range(3)] == [[0], [1], []]


def test_dead_letters_are_gathered_from_every_operation_that_may_have_some() -> None:
    stream = source().filter(ps.col("n") > 1, on_error="dead_letter").select("k", on_error="skip")
    stream = stream.map(lambda r: r, schema="k string", on_error="dead_letter")
    units, _ = shape(plan_of(stream.to(ps.memory(), dead_letters=ps.memory())))
    assert units[DEAD_LETTERS] == (1, [DEAD_LETTERS])
    plan = plan_of(stream.to(ps.memory(), dead_letters=ps.memory()))
    assert [(edge.op_index, edge.port) for edge in plan.edges] == [(0, DEAD_LETTERS), (2, DEAD_LETTERS)]
    with pytest.raises(InvalidGraph, match="needs a sink for the bad records"):
        plan_of(stream.to(ps.memory()))


@pytest.mark.parametrize("parallelism", [1, 2, 3, 5])
def test_every_instance_lives_on_one_worker_and_forward_neighbours_share_it(parallelism: int) -> None:
    counted = source(partitions=4).key_by("k").count()
    plan = plan_of(counted.to(ps.memory(), name="a") + counted.select("k").to(ps.memory(), name="b"), parallelism)
    placed = [(unit.id, i) for worker in range(plan.workers) for unit, i in plan.instances(worker)]
    assert sorted(placed) == sorted((unit.id, i) for unit in plan.units for i in range(unit.instances))
    for edge in plan.edges:
        for i in range(plan.units[edge.producer].instances):
            for consumer in edge.consumers(plan, i):
                assert i in edge.producers(plan, consumer)
                if edge.mode is Mode.FORWARD:
                    assert plan.worker_of(i) == plan.worker_of(consumer)


def test_a_function_that_cannot_be_sent_is_named() -> None:
    def dumps(part: Any) -> None:
        if getattr(part, "kind", "") == "map":
            raise TypeError("cannot pickle a lock")

    plan = plan_of(source().map(lambda r: r, schema=SCHEMA, name="locked").to(ps.memory()))
    with pytest.raises(NotSerializable, match=r"operation 'locked'.*lock"):
        check_serializable(plan, dumps)


@pytest.mark.parametrize("second", ["out", "./out", "other/../out"])
def test_two_sinks_in_one_directory_are_refused(second: str) -> None:
    """They would number their files alike, and one would overwrite the other's."""
    stream = source()
    with pytest.raises(InvalidGraph, match=r"'to_files-2'.*as 'to_files' does"):
        plan_of(stream.to(ps.files("out")) + stream.to(ps.files(second)))
    bad = stream.filter(ps.col("n") > 1, on_error="dead_letter")
    with pytest.raises(InvalidGraph, match=r"'dead_letters'.*as 'to_files' does"):
        plan_of(bad.to(ps.files("out"), dead_letters=ps.files(second)))


def test_pipelines_of_one_job_share_the_sink_of_their_dead_letters() -> None:
    stream = source()
    first = stream.to(ps.memory(), dead_letters=ps.files("bad"))
    assert (first + stream.to(ps.memory(), dead_letters=ps.files("./bad"))).dead_letters is first.dead_letters
    with pytest.raises(InvalidGraph, match="different sinks for dead letters"):
        first + stream.to(ps.memory(), dead_letters=ps.files("worse"))
