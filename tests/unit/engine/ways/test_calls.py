"""Calls of users' functions: how many at once, when again, how long, several in one; what comes of an error."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import penstock as ps
from penstock.connectors.memory import At
from penstock.engine.guard import Guard, Suspect
from penstock.errors import InvalidOption, OperationFailed, TypeMismatch
from penstock.pipeline.explain import explain_plan
from penstock.pipeline.graph import Graph
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.testing import Harness

OUT = "x bigint, y bigint"


def numbers(*rows: Any) -> Any:
    return ps.stream("in", ps.records([each if isinstance(each, At) else (each,) for each in rows], schema="x bigint"))


async def double(record: Any) -> Any:
    await asyncio.sleep(1)
    return {"x": record.x, "y": 2 * record.x}


def run(stream: Any, **options: Any) -> Harness:
    harness = Harness(stream.to(ps.memory()), **options)
    harness.run()
    return harness


def xs(harness: Harness) -> list[Any]:
    return [row["x"] for row in harness.rows()]


def test_as_many_calls_as_capacity_run_at_once() -> None:
    harness = run(numbers(*range(12)).map_async(double, schema=OUT, capacity=4), epoch="10s")
    assert harness.rows() == [{"x": x, "y": 2 * x} for x in range(12)]
    # Three rounds of a second each.
    assert 3_000_000 <= harness.now_us - harness.start_us < 3_100_000
    assert harness.count("double", "records_in") == harness.count("double", "records_out") == 12


def test_a_slow_call_holds_up_others_only_where_they_keep_their_order() -> None:
    async def slow(record: Any) -> Any:
        await asyncio.sleep(50 if record.x == 0 else 1)
        return record.x, 0

    rows = [*range(3), At("20s"), *range(3, 6), At("40s"), 6]
    for ordered, expected in ((True, []), (False, [1, 2, 3, 4, 5])):
        harness = Harness(numbers(*rows).map_async(slow, schema=OUT, ordered=ordered).to(ps.memory()), epoch="60s")
        harness.advance("25s")
        way = next(unit.way for unit in harness._cluster.workers[0].units if unit.spec.name == "slow")
        done = [unit for unit in harness._cluster.workers[0].units if unit.spec.name == "to_memory"]
        assert done[0].chain.stages[0].stats.records_in == len(expected)
        assert way.range.first == 0
        harness.run()
        assert sorted(xs(harness)) == list(range(7))


def test_a_marker_leaves_behind_all_calls_before_it() -> None:
    async def slow(record: Any) -> Any:
        await asyncio.sleep(5 if record.x == 0 else 0.1)
        return record.x, 0

    rows = [0, 1, At("1500ms"), 2, At("9s"), 3]
    harness = Harness(numbers(*rows).map_async(slow, schema=OUT, ordered=False).to(ps.memory()), epoch="1s")
    harness.advance("4s")
    assert harness.committed_epoch == 0  # the first marker waits for the call before it
    harness.advance("3s")
    # Record 1 left early, but record 2 came behind the marker.
    assert xs(harness) == [1, 0, 2]
    harness.run()
    assert xs(harness) == [1, 0, 2, 3]


def test_a_call_is_made_again_after_its_back_off() -> None:
    times: list[float] = []

    async def flaky(record: Any) -> Any:
        times.append(asyncio.get_running_loop().time())
        if len(times) < 4:
            raise ConnectionError("down")
        return record.x, 0

    harness = run(numbers(1).map_async(flaky, schema=OUT, retry=ps.retry(5, wait="100ms", factor=3, wait_max="500ms")))
    assert xs(harness) == [1]
    waits = [round(after - before, 3) for before, after in pairwise(times)]
    assert waits == [0.1, 0.3, 0.5]
    assert harness.count("flaky", "retried") == 3


def test_only_named_errors_are_tried_again() -> None:
    calls: list[int] = []

    async def wrong(record: Any) -> Any:
        calls.append(record.x)
        raise ValueError("wrong")

    tries = ps.retry(5, on=(ConnectionError, TimeoutError))
    harness = run(numbers(1, 2).map_async(wrong, schema=OUT, retry=tries, on_error="skip"))
    assert (harness.rows(), calls, harness.count("wrong", "skipped")) == ([], [1, 2], 2)


def test_the_error_policy_retry_means_three_times() -> None:
    calls: list[int] = []

    async def wrong(record: Any) -> Any:
        calls.append(record.x)
        raise ValueError("wrong")

    with pytest.raises(OperationFailed, match="wrong"):
        run(numbers(1).map_async(wrong, schema=OUT, on_error="retry"))
    assert len(calls) == 4


def test_a_call_that_takes_too_long_is_cancelled_and_follows_the_policy() -> None:
    cancelled: list[int] = []

    async def hangs(record: Any) -> Any:
        try:
            await asyncio.sleep(1000 if record.x == 2 else 0)
        except asyncio.CancelledError:
            cancelled.append(record.x)
            raise
        return record.x, 0

    stream = numbers(1, 2, 3).map_async(hangs, schema=OUT, timeout="2s", on_error="dead_letter")
    harness = run(stream)
    assert (xs(harness), cancelled) == ([1, 3], [2])
    (letter,) = harness.dead_letters()
    assert (letter["operation"], letter["error"]) == ("hangs", "TimeoutError: no answer within 2 s")
    with pytest.raises(OperationFailed, match="no answer within 2 s") as caught:
        run(numbers(1, 2, 3).map_async(hangs, schema=OUT, timeout="2s"))
    assert caught.value.operation == "hangs"


@pytest.mark.parametrize("ordered", [True, False])
def test_what_fails_is_named_by_its_place_in_the_source(ordered: bool) -> None:
    async def picky(record: Any) -> Any:
        await asyncio.sleep(0.01 * (200 - record.x))  # the last of them fails first
        if record.x % 50 == 7:
            raise ValueError("seven")
        return record.x, 0

    def stream(**options: Any) -> Any:
        many = (
            numbers(*range(200))
            .filter(ps.col("x") != 3)
            .flat_map(lambda r: [r, r] if r.x == 5 else [r], schema="x int")
        )
        return many.map_async(picky, schema=OUT, ordered=ordered, **options)

    letters = run(stream(on_error="dead_letter"), parallelism=2).dead_letters()
    expected = [("in", 0, x, f'{{"x":{x}}}') for x in (7, 57, 107, 157)]
    found = [(each["source"], each["partition"], each["offset"], each["record"]) for each in letters]
    assert sorted(found) == expected
    with pytest.raises(OperationFailed, match="source 'in', partition 0, offset 57"):
        run(stream())


def test_an_error_of_the_users_code_is_shown_with_its_traceback() -> None:
    async def wrong(record: Any) -> Any:
        return 1 // (record.x - 1)

    with pytest.raises(OperationFailed, match="ZeroDivisionError") as caught:
        run(numbers(1).map_async(wrong, schema="y bigint"))
    assert "in wrong" in caught.value.user_traceback
    assert "calling.py" not in caught.value.user_traceback


@pytest.mark.parametrize("form", ["many", "batch"])
def test_what_waits_goes_in_one_call_and_a_bad_record_is_found_alone(form: str) -> None:
    sizes: list[int] = []

    @ps.op(schema=OUT)
    async def call(record: Any) -> Any:
        sizes.append(1)
        await asyncio.sleep(1)
        if record.x == 7:
            raise ValueError("seven")
        return record.x, 2 * record.x

    if form == "many":

        @call.many
        async def many(records: list[Any]) -> Any:
            sizes.append(len(records))
            await asyncio.sleep(1)
            if any(each.x == 7 for each in records):
                raise ValueError("seven is here")
            return [(each.x, 2 * each.x) for each in records]

    else:

        @call.batch
        async def columns(batch: pa.RecordBatch) -> Any:
            sizes.append(batch.num_rows)
            await asyncio.sleep(1)
            x = batch.column("x")
            if 7 in x.to_pylist():
                raise ValueError("seven is here")
            return pa.table({"x": x, "y": pc.multiply(x, 2)})

    rows = [100, At("100ms"), *range(150)]
    harness = run(numbers(*rows).map_async(call, capacity=1, on_error="dead_letter"))
    assert harness.rows() == [{"x": x, "y": 2 * x} for x in [100, *range(150)] if x != 7]
    assert [letter["error"] for letter in harness.dead_letters()] == ["ValueError: seven"]
    assert sizes[:2] == [1, 100]
    assert sizes.count(1) == 101
    assert 50 in sizes


def test_a_plain_function_is_called_too() -> None:
    def plain(record: Any) -> Any:
        if record.x == 2:
            raise SystemExit(3)
        return record.x, 0

    harness = run(numbers(1, 2, 3).map_async(plain, schema=OUT, on_error="dead_letter"))
    assert xs(harness) == [1, 3]
    assert [letter["error"] for letter in harness.dead_letters()] == ["RuntimeError: SystemExit: 3"]


def test_a_result_that_does_not_fit_follows_the_policy() -> None:
    async def short(record: Any) -> Any:
        return (record.x,) if record.x else (record.x, 1)

    harness = run(numbers(0, 1).map_async(short, schema=OUT, on_error="skip"))
    assert (xs(harness), harness.count("short", "skipped")) == ([0], 1)


def test_wrong_options_are_refused_by_name() -> None:
    async def mixed(record: Any) -> Any:
        return record.x, 0

    op = ps.op(schema=OUT)(mixed)
    op.many(lambda records: records)
    for options, error in (
        ({"capacity": 0}, InvalidOption),
        ({"timeout": "soon"}, InvalidOption),
        ({"retry": -1}, InvalidOption),
        ({"on_error": "again"}, InvalidOption),
        ({"schema": None}, TypeMismatch),
    ):
        with pytest.raises(error, match=r"double|map_async"):
            numbers(1).map_async(double, **{"schema": OUT, **options})
    with pytest.raises(TypeMismatch, match="coroutines"):
        numbers(1).map_async(op)
    with pytest.raises(TypeMismatch, match="map_async"):
        numbers(1).map(double, schema=OUT)
    with pytest.raises(InvalidOption, match="factor"):
        ps.retry(1, factor=0.5)


def test_it_is_a_unit_of_its_own_that_never_takes_batch_form() -> None:
    stream = numbers(1).filter(ps.col("x") > 0).map_async(double, schema=OUT, retry=2, timeout="5s", name="call")
    plan = Plan.of(
        Graph.check(stream.filter(ps.col("y") > 0).to(ps.memory()).nodes()), Options.of(name="t", parallelism=1)
    )
    (unit,) = (each for each in plan.units if each.name == "call")
    assert [op.name for op in unit.ops] == ["call"]
    assert list(unit.movable) == []
    assert "double, up to 64 calls at once, 5s each, retried 2 times" in explain_plan(plan)


def test_in_careful_mode_calls_are_made_one_by_one_and_noted() -> None:
    most = under_way = 0

    async def call(record: Any) -> Any:
        nonlocal most, under_way
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.1)
        under_way -= 1
        return record.x, 0

    harness = Harness(numbers(1, 2, 3).map_async(call, schema=OUT, on_error="dead_letter").to(ps.memory()))
    (unit,) = (each for each in harness._cluster.workers[0].units if each.spec.name == "call")
    noted: list[Suspect | None] = []
    probe = Guard({}, noted.append)
    probe.losses("call", unit.spec.schema.record_type(2))
    assert noted[0] is not None
    unit.chain.guard = Guard({noted.pop(): 2}, noted.append)  # type: ignore[dict-item]
    harness.run()
    assert xs(harness) == [1, 3]
    assert [letter["error"][:8] for letter in harness.dead_letters()] == ["[POISON_"]  # type: ignore[index]
    assert most == 1
    assert [each is None for each in noted] == [False, True, False, True]
