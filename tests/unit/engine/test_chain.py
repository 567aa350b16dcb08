"""A chain in record form: what comes out, on which port, what is counted, and what an error says."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.connectors.base import Run
from penstock.engine.chain import Chain
from penstock.engine.guard import Guard, Suspect
from penstock.engine.lineage import Place
from penstock.engine.passed import Passed
from penstock.errors import OperationFailed
from penstock.operators import DEAD_LETTERS
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan

SCHEMA = "n bigint"


def chain_of(build: Any) -> tuple[Chain, Any]:
    stream = ps.stream("in", ps.records([(1,)], schema=SCHEMA))
    plan = Plan.of(build(stream).graph(), Options.of(parallelism=1), ps.memory())
    now_ns = [0]

    def clock_ns() -> int:
        now_ns[0] += 1_000
        return now_ns[0]

    return Chain(plan.units[0], 0, plan, clock_ns), plan.units[0].schema.record_type


def halve(record: Any) -> tuple[int]:
    if record.n % 2:
        raise ValueError("odd")
    return (record.n // 2,)


def simple(stream: Any) -> Any:
    kept = stream.filter(ps.col("n") > 0).map(halve, schema=SCHEMA, on_error="dead_letter", name="half")
    return kept.to(ps.memory())


def test_records_go_through_all_operations_and_are_counted() -> None:
    chain, record = chain_of(simple)
    passed = chain.push([record(n) for n in (0, 2, 4)], 0)
    assert [row.n for row in passed.rows] == [1, 2]
    assert [(each.stats.records_in, each.stats.records_out) for each in chain.stages] == [(3, 2), (2, 2), (2, 2)]
    assert passed.sides == {}


def test_a_range_of_the_chain_can_be_left_out_at_either_end() -> None:
    chain, record = chain_of(simple)
    entered = chain.push([record(n) for n in (0, 4)], 0, 0, 1)
    assert [row.n for row in entered.rows] == [4]
    assert [row.n for row in chain.push(entered.rows, 0, 1, 2).rows] == [2]
    assert [each.stats.records_in for each in chain.stages] == [2, 1, 0]


def test_dead_letters_are_a_side_output_with_their_place() -> None:
    chain, record = chain_of(simple)
    passed = chain.push([record(n) for n in (0, 3, 4)], 0, origin=Place(2, [Run(100, 3)]))
    (letter,) = passed.sides[1, DEAD_LETTERS]
    assert (letter.operation, letter.source, letter.partition, letter.offset) == ("half", "in", 2, 101)
    assert chain.push([record(4)], 0).sides == {}, "nothing of a call stays behind"


def test_an_error_names_the_operation_and_the_source_record() -> None:
    chain, record = chain_of(lambda stream: stream.map(halve, schema=SCHEMA, name="half").to(ps.memory()))
    with pytest.raises(OperationFailed) as raised:
        chain.push([record(n) for n in (2, 4, 5)], 0, origin=Place(0, [Run(40, 3)]))
    assert raised.value.operation == "half"
    assert "42" in str(raised.value)


def test_latency_counts_from_when_the_oldest_record_was_due() -> None:
    chain, record = chain_of(lambda stream: stream.filter(ps.col("n") > 0).to(ps.memory()))
    chain.push([record(1), record(2)], 0)
    assert chain.stages[0].stats.latency_us.total == 0, "0: nobody waits for it"
    chain.push([record(1), record(2)], 1)
    assert chain.stages[0].stats.latency_us.total == 2


def test_in_careful_mode_every_record_is_noted_and_quarantined_ones_do_not_reach_the_function() -> None:
    chain, record = chain_of(simple)
    noted: list[Suspect | None] = []
    chain.guard = Guard({}, noted.append)
    assert [row.n for row in chain.push([record(2), record(4)], 0).rows] == [1, 2]
    poison = next(each for each in noted if each is not None and each.operation == "half")
    chain.guard = Guard({poison: 2}, noted.append)
    passed = chain.push([record(2), record(4)], 0, origin=Place(0, [Run(7, 2)]))
    assert [row.n for row in passed.rows] == [2]
    (letter,) = passed.sides[1, DEAD_LETTERS]
    assert letter.offset == 7


def test_what_came_out_adds_up() -> None:
    passed = Passed([])
    passed.add(Passed([1], {(0, "x"): [2]}))  # type: ignore[list-item]
    passed.add(Passed([3], {(0, "x"): [4]}))  # type: ignore[list-item]
    assert (passed.rows, passed.sides) == ([1, 3], {(0, "x"): [2, 4]})


@pytest.mark.parametrize("careful", [False, True])
def test_late_records_are_counted_and_kept_in_the_snapshot(careful: bool) -> None:
    stream = ps.stream("in", ps.records([("a", 0)], schema="k string, at timestamp"))
    counted = stream.key_by("k").process(Noting, schema="k string", time="at")
    plan = Plan.of(counted.to(ps.memory()).graph(), Options.of(parallelism=1), ps.memory())
    (unit,) = [each for each in plan.units if each.is_stateful]
    chain, record = Chain(unit, 0, plan, lambda: 0), plan.units[0].schema.record_type
    chain.guard = Guard({}, lambda suspect: None) if careful else None
    chain.advance(10, 0)
    chain.push([record("a", 9), record("a", 10), record("b", 8)], 0)
    chain.push([record("a", 10)], 0)
    chain.push([record("a", 1)], 0)
    assert chain.figures()[0].late == 3
    assert chain.counters()[0].late == 3


class Noting(ps.Process):
    def on_record(self, record: Any, ctx: Any) -> Any:
        yield record.k
