"""map_async under random delays, failures and crashes: the results of a plain map, in order where that is asked for."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.connectors.memory import At
from penstock.testing import Harness

plans = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from([0.0, 0.001, 0.05, 0.4, 1.5]), st.integers(0, 3)), max_size=30
)


@settings(max_examples=40)
@given(plans, st.booleans(), st.booleans(), st.sampled_from([1, 3, 50]), st.lists(st.floats(0.1, 4.0), max_size=2))
def test_every_record_has_its_result_once(plan: Any, ordered: bool, many: bool, capacity: int, crashes: Any) -> None:
    tried: Counter[int] = Counter()
    under_way = most = 0

    async def answer(i: int) -> tuple[str, int]:
        nonlocal under_way, most
        key, delay, failures = plan[i]
        under_way += 1
        most = max(most, under_way)
        try:
            await asyncio.sleep(delay)
        finally:
            under_way -= 1
        tried[i] += 1
        if failures == 3 or tried[i] <= failures:
            raise ConnectionError(i)
        return key, i

    @ps.op(schema="k string, i bigint")
    async def call(record: Any) -> Any:
        return await answer(record.i)

    if many:

        @call.many
        async def call_many(records: list[Any]) -> Any:
            return [await answer(each.i) for each in records]

    rows: list[Any] = [(plan[i][0], i) for i in range(len(plan))]
    rows[10:10] = [At("700ms")]
    source = ps.stream("in", ps.records(rows, schema="k string, i bigint"))
    stream = (source if ordered else source.key_by("k")).map_async(
        call, capacity=capacity, timeout="3s", retry=ps.retry(2, wait="10ms"), ordered=ordered, on_error="dead_letter"
    )
    harness = Harness(stream.to(ps.memory()), epoch="500ms")
    for after in sorted(crashes):
        if not harness.ended:
            harness.advance(after)
        if not harness.ended:
            harness._cluster.crash(0)
            under_way = 0
    harness.run()
    got = [(row["k"], row["i"]) for row in harness.rows()]
    good = [(key, i) for i, (key, _, failures) in enumerate(plan) if failures < 3]
    assert len(harness.dead_letters()) == len(plan) - len(good)
    if ordered:
        assert got == good
    else:
        assert {k: [i for key, i in got if key == k] for k in "abc"} == {
            k: [i for key, i in good if key == k] for k in "abc"
        }
    if not crashes:
        assert most <= capacity


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 60), st.sampled_from([0.0, 0.01, 0.3])), max_size=30), st.booleans())
def test_windows_behind_see_the_same_records_in_time(events: Any, ordered: bool) -> None:
    async def slow(record: Any) -> Any:
        await asyncio.sleep(events[record.i][1])
        return record.at, record.i

    def counts(*, calls: bool) -> Any:
        rows = [(at * 1_000_000, i) for i, (at, _) in enumerate(events)]
        stream = ps.stream("in", ps.records(rows, schema="at timestamp, i bigint")).with_watermark("at", "5s")
        if calls:
            stream = stream.map_async(slow, schema="at timestamp, i bigint", capacity=7, ordered=ordered)
        made = stream.window("10s", on="at").count()
        harness = Harness(made.to(ps.memory(), name="main") + made.late.to(ps.memory(), name="late"))
        harness.run()
        rows_of = {name: [tuple(row.values()) for row in harness.rows(name)] for name in ("main", "late")}
        return {name: sorted(found, key=str) for name, found in rows_of.items()}

    assert counts(calls=True) == counts(calls=False)
