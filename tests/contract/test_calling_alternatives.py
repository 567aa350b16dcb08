"""Alternatives of which some call a function: nothing is lost, doubled or reordered, whoever fails or takes over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.connectors.memory import At
from penstock.errors import OperationFailed, TypeMismatch
from penstock.pipeline.streams.stream import Stream
from penstock.testing import Harness

OUT = "i bigint, by string"


class Remote:
    """A service that takes a while, and is away sometimes."""

    def __init__(self, delay_s: float = 0.03) -> None:
        self.delay_s = delay_s
        self.is_down = False
        self.called: list[int] = []

    async def __call__(self, record: Any) -> Any:
        self.called.append(record.i)
        await asyncio.sleep(self.delay_s)
        if self.is_down:
            raise ConnectionError("refused")
        return record.i, "remote"


def numbers(count: int = 100, every_s: float = 0.01) -> Stream:
    script: list[Any] = []
    for i in range(count):
        script += [At(i * every_s), (i,)]
    return ps.stream("in", ps.records(script, schema="i bigint"))


def scored(remote: Remote, stream: Stream | None = None, capacity: int = 8, **options: Any) -> Stream:
    return (stream or numbers()).alternatives(
        "score",
        remote=lambda s: s.map_async(remote, schema=OUT, capacity=capacity),
        local=lambda s: s.map(lambda r: (r.i, "local"), schema=OUT),
        **options,
    )


def by(harness: Harness) -> list[str]:
    rows = harness.rows()
    assert [row["i"] for row in rows] == list(range(len(rows)))
    return [str(row["by"]) for row in rows]


def test_from_calls_to_a_function_that_computes_and_back() -> None:
    harness = Harness(scored(Remote()).to(ps.memory()))
    harness.advance("300ms")
    harness.use("score", "local")
    harness.advance("300ms")
    harness.use("score", "remote")
    harness.run()
    found = by(harness)
    assert len(found) == 100
    assert found[:20] == ["remote"] * 20
    assert found[35:50] == ["local"] * 15
    assert found[-20:] == ["remote"] * 20


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 400), st.sampled_from(["batch", "record", "local", "remote", "crash"]))))
def test_one_that_computes_has_a_batch_form_beside_one_that_calls(acts: list[tuple[int, str]]) -> None:
    harness = Harness(scored(Remote(), numbers(60)).to(ps.memory()), epoch="50ms")
    for after_ms, act in acts[:6]:
        if not harness.ended:
            harness.advance(after_ms / 1000)
        if not harness.ended:
            match act:
                case "batch" | "record":
                    harness.switch(act)
                case "crash":
                    harness.crash()
                case _:
                    harness.use("score", act)
    harness.run()
    assert len(by(harness)) == 60


def test_micro_batches_are_computed_and_what_is_called_for_is_not() -> None:
    harness = Harness(scored(Remote(), active="local").to(ps.memory()))
    harness.switch("batch")
    harness.advance("400ms")
    (worker,) = harness._cluster.workers
    assert [each.form for each in worker.figures() if each.operation == "score"] == ["batch"]
    harness.use("score", "remote")
    harness.run()
    assert by(harness)[-40:] == ["remote"] * 40


def test_what_nobody_has_begun_goes_to_the_one_that_takes_over() -> None:
    remote = Remote(delay_s=1.0)
    harness = Harness(scored(remote, numbers(10), capacity=2).to(ps.memory()))
    harness.advance("500ms")
    harness.use("score", "local")
    harness.run()
    assert by(harness) == ["remote"] * 2 + ["local"] * 8
    assert remote.called == [0, 1]
    (report,) = harness._cluster.adaptation.switches
    # Two waited for their turn; the others had not been taken yet.
    assert (report.case, report.moved_records) == ("ahead", 2)


def test_a_service_that_fails_gives_way_record_by_record_and_comes_back() -> None:
    remote = Remote()
    harness = Harness(scored(remote, numbers(400), prefer=["remote", "local"]).to(ps.memory()))
    harness.advance("500ms")
    remote.is_down = True
    harness.advance("1s")
    remote.is_down = False
    harness.run()
    found = by(harness)
    assert len(found) == 400
    assert set(found[60:140]) == {"local"}
    assert found[10] == found[-1] == "remote"
    reasons = [each.reason for each in harness._cluster.adaptation.switches]
    assert any("remote has failed (ConnectionError: refused)" in each for each in reasons)
    # It is not asked for every record while it is away: three times, and once at each attempt after that.
    assert len([i for i in remote.called if 60 <= i < 140]) < 20


def test_an_alternative_that_computes_gives_way_to_one_that_calls() -> None:
    def fails(r: Any) -> Any:
        if 20 <= r.i < 40:
            raise TimeoutError("the device is busy")
        return r.i, "device"

    stream = numbers(60).alternatives(
        "score",
        device=lambda s: s.map(fails, schema=OUT),
        remote=lambda s: s.map_async(Remote(), schema=OUT),
        prefer=["device", "remote"],
    )
    harness = Harness(stream.to(ps.memory()))
    harness.run()
    found = by(harness)
    assert len(found) == 60
    assert set(found[20:40]) == {"remote"}
    assert set(found[:20]) == {"device"}


def test_when_all_fail_the_error_is_that_of_the_last() -> None:
    remote = Remote()
    remote.is_down = True

    def fails(r: Any) -> Any:
        raise TimeoutError("the device is busy")

    stream = numbers(5).alternatives(
        "score",
        remote=lambda s: s.map_async(remote, schema=OUT),
        device=lambda s: s.map(fails, schema=OUT),
        prefer=["remote", "device"],
    )
    with pytest.raises(OperationFailed, match="the device is busy"):
        ps.testing.collect(stream)


def test_operations_before_and_behind_the_call_belong_to_the_alternative() -> None:
    async def call(record: Any) -> Any:
        if record.double == 8:
            raise ValueError("eight")
        return record.double, "called"

    stream = numbers(10).alternatives(
        "score",
        remote=lambda s: (
            s.filter(ps.col("i") != 3)
            .select(double=ps.col("i") * 2)
            .map_async(call, schema="double bigint, by string", on_error="dead_letter")
            .map(lambda r: (1 // (r.double - 12), r.by), schema=OUT, on_error="skip")
        ),
        local=lambda s: s.map(lambda r: (r.i, "local"), schema=OUT),
    )
    harness = Harness(stream.to(ps.memory()))
    harness.run()
    # 3 is filtered, 4 is a dead letter, 6 cannot be divided by.
    assert len(harness.rows()) == 7
    (letter,) = harness.dead_letters()
    assert (letter["operation"], letter["source"]) == ("score.remote.call", "in")
    assert "ValueError: eight" in letter["error"]
    assert (harness.count("score", "records_in"), harness.count("score", "records_out")) == (10, 7)
    assert (harness.count("score", "dead_letters"), harness.count("score", "skipped")) == (1, 1)


def test_two_calls_or_replicas_in_one_alternative_are_refused() -> None:
    call = Remote()
    with pytest.raises(TypeMismatch, match="has replicas with"):
        numbers().alternatives(
            "score",
            a=lambda s: s.map(lambda r: (r.i, "a"), schema=OUT, replicas=2),
            b=lambda s: s.map(lambda r: (r.i, "b"), schema=OUT),
        )
    with pytest.raises(TypeMismatch, match="calls functions twice"):
        numbers().alternatives(
            "score",
            a=lambda s: s.map_async(call, schema=OUT).map_async(call, schema=OUT),
            b=lambda s: s.map_async(call, schema=OUT),
        )


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from([0.0, 0.003, 0.08, 0.5]), st.integers(0, 9)), min_size=1, max_size=40),
    st.lists(st.tuples(st.floats(0.01, 0.6), st.sampled_from(["near", "far", "local", "crash"])), max_size=6),
    st.sampled_from([1, 3, 20]),
    st.booleans(),
)
def test_every_record_leaves_once_and_in_order(plan: Any, acts: Any, capacity: int, chooses: bool) -> None:
    """Two services and a function: delays, failures, exchanges and lost workers at any moment."""

    def calling(name: str) -> Any:
        async def call(record: Any) -> Any:
            delay_s, kind = plan[record.i]
            await asyncio.sleep(delay_s)
            if chooses and kind == (0 if name == "near" else 1):
                raise ConnectionError(record.i)
            if kind == 2:
                raise ValueError(record.i)
            return record.i, name

        return lambda s: s.map_async(call, schema=OUT, capacity=capacity, on_error="dead_letter")

    def local(record: Any) -> Any:
        if plan[record.i][1] == 2:
            raise ValueError(record.i)
        return record.i, "local"

    script: list[Any] = [(i,) for i in range(len(plan))]
    script[5:5] = [At("100ms")]
    script[15:15] = [At("400ms")]
    stream = ps.stream("in", ps.records(script, schema="i bigint")).alternatives(
        "score",
        near=calling("near"),
        far=calling("far"),
        local=lambda s: s.map(local, schema=OUT, on_error="dead_letter"),
        **({"prefer": ["near", "far", "local"]} if chooses else {}),
    )
    harness = Harness(stream.to(ps.memory()), epoch="100ms")
    for after, act in acts:
        if not harness.ended:
            harness.advance(after)
        if not harness.ended:
            if act == "crash":
                harness._cluster.crash(0)
            else:
                harness.use("score", act)
    harness.run()
    good = [i for i, (_, kind) in enumerate(plan) if kind != 2]
    assert [row["i"] for row in harness.rows()] == good
    assert len(harness.dead_letters()) == len(plan) - len(good)
