"""What an error advises can be written, and does what it says: for every operation that can raise on a record."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

import penstock as ps
from penstock.engine.stage import errors_of
from penstock.errors import OperationFailed
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.pipeline.streams.grouped import Grouped, KeyedStream
from penstock.testing import Harness

BIG = 1 << 62
ROWS = [{"k": "a", "n": 1, "at": 5}, {"k": "a", "n": BIG, "at": None}, {"k": "b", "n": 2, "at": 6}]
Make = Callable[..., ps.Stream]


def rows() -> ps.Stream:
    return ps.stream("rows", ps.records(ROWS, schema="k string, n bigint, at timestamp"))


def raising(record: object) -> tuple[int]:
    return (1 // (0 if record.n == BIG else 1),)  # type: ignore[attr-defined]


def windows() -> Grouped:
    return rows().key_by("k").window("10s", on="at")


SQUARE = ps.col("n") * ps.col("n")
OPERATIONS: dict[str, Make] = {
    "filter": lambda **options: rows().filter(SQUARE > 0, **options),
    "select": lambda **options: rows().select(SQUARE.alias("m"), **options),
    "with_columns": lambda **options: rows().with_columns(m=SQUARE, **options),
    "map": lambda **options: rows().map(raising, schema="m bigint", name="map", **options),
    "flat_map": lambda **options: rows().flat_map(lambda r: [raising(r)], schema="m bigint", **options),
    "split": lambda **options: rows().split(square=SQUARE > 0, **options)["square"],
    "count": lambda **options: windows().count(**options),
    "sum": lambda **options: windows().sum("n", **options),
    "min": lambda **options: windows().min("n", **options),
    "max": lambda **options: windows().max("n", **options),
    "mean": lambda **options: windows().mean("n", **options),
    "first": lambda **options: windows().first("n", **options),
    "last": lambda **options: windows().last("n", **options),
    "aggregate": lambda **options: windows().aggregate(n=ps.agg.count(), **options),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_an_error_advises_helps(name: str) -> None:
    make = OPERATIONS[name]
    with pytest.raises(OperationFailed, match=f"operation '{name}'") as failed:
        Harness(make().to(ps.memory())).run()
    assert failed.value.hint == (
        'To go on past such records give the operation on_error="skip", "retry" or "dead_letter".'
    )
    for policy in ("skip", "dead_letter"):
        harness = Harness(make(on_error=policy).to(ps.memory()))
        harness.run()
        assert harness.rows(), "the other records are there"
        assert len(harness.dead_letters()) == (policy == "dead_letter")
    with pytest.raises(OperationFailed, match="Every retry failed") as failed:
        Harness(make(on_error="retry").to(ps.memory())).run()
    assert '"retry"' not in failed.value.hint, "it was tried"


@pytest.mark.parametrize("kind", [ps.Stream, KeyedStream, Grouped])
def test_every_method_that_adds_an_operation_takes_on_error(kind: type) -> None:
    none = {"to", "merge", "key_by", "group_by", "window", "with_watermark", "show", "take"}
    none |= {"drop", "rename", "with_column_renamed", "with_columns_renamed", "union_by_name", "unionByName", "sample"}
    none |= {"distinct", "limit", "dropna", "fillna"}  # like those above, they fail on no record
    none |= {"alternatives", "transform"}  # the operations inside have policies of their own; Spark's fail as a whole
    methods = {name: each for name, each in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}
    assert len(methods) > 5
    for name, method in methods.items():
        assert ("on_error" in inspect.signature(method).parameters) == (name not in none), name


def test_nothing_is_advised_where_there_is_no_choice() -> None:
    plan = Plan.of(rows().filter(ps.col("n") > 0).to(ps.memory(), name="out").graph(), Options.of(parallelism=1))
    advice = {op.name: errors_of(op).advice for unit in plan.units for op in unit.ops}
    assert advice["out"] == "", "a sink has no policy"
    assert "on_error" in advice["filter"]
    several = OperationFailed(operation="mine", cause="too much", record="(a result of several records)")
    assert several.hint == "", "no policy has a say there"
