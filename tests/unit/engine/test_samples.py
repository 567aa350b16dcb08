"""What the control loop is told of an instance: samples without functions that may have effects, time without room."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import penstock as ps
from penstock.engine.samples import TAP_BYTES, TAP_RECORDS, Tap
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m
from penstock.testing.cluster import Cluster
from penstock.types import Schema

S = 1_000_000
SCHEMA = "k string, n bigint"
TOTAL = 4_000

calls: Counter[str] = Counter()


@ps.op(schema=SCHEMA)
def noted(record: Any) -> Any:
    """What a call to the outside would be: it must not be made for a record that was only looked at."""
    calls["noted"] += 1
    return record.k, record.n


@noted.batch
def all_noted(batch: Any) -> Any:
    calls["noted"] += batch.num_rows
    return batch


@ps.op(schema=SCHEMA, pure=True)
def declared(record: Any) -> Any:
    calls["declared"] += 1
    return record.k, record.n


class Total(ps.agg.Mergeable):
    """An aggregate of a user's, who may do in it what he likes."""

    def init(self) -> int:
        return 0

    def add(self, state: int, record: Any) -> int:
        calls["total"] += 1
        return state + record.n

    def merge(self, left: int, right: int) -> int:
        return left + right

    def result(self, state: int) -> int:
        return state


def run(stream: ps.Stream, *, sampled: int = 5) -> None:
    """Run a stream to its end while samples of every instance are asked for again and again."""
    calls.clear()
    plan = Plan.of(stream.to(ps.memory(), name="out").graph(), Options.of(parallelism=2))
    cluster = Cluster(plan)
    cluster.add_slot(0)
    for round in range(1, sampled + 1):
        cluster.run_until(cluster.start_us + round * S // 10)
        for worker in cluster.workers:
            for unit in worker.units:
                worker.on_driver(m.Calibrate(unit=unit.spec.id, instance=unit.instance, records=500))
    cluster.run_until(1 << 62)


def source(partitions: int = 2) -> ps.Stream:
    columns = {"k": ps.fields.choice(["a", "b"]), "n": ps.fields.integers(0, 99)}
    return ps.stream("in", ps.generator(columns, rate=4000, total=TOTAL, format="columns", partitions=partitions))


CASES = {
    "first": lambda: source().map(noted),
    "behind built-in ones": lambda: source().filter(ps.col("n") >= 0).map(noted).select("k"),
    "behind a shuffle": lambda: source().key_by("k").map(noted),
    "behind a branch": lambda: source().filter(ps.col("n") >= 0).split(all=ps.col("n") >= 0)["all"].map(noted),
    "a lambda": lambda: source().map(noted.record_form, schema=SCHEMA),
    "declared otherwise where it is used": lambda: source().map(noted, schema="k string, n bigint"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_function_is_called_once_for_each_record_whatever_is_sampled(case: str) -> None:
    run(CASES[case]())
    assert calls["noted"] == TOTAL


def test_an_aggregate_of_the_users_too() -> None:
    total = ps.agg.custom(Total(), type="bigint")
    run(source().key_by("k").aggregate(total=total))
    assert calls["total"] == TOTAL


def test_one_that_is_declared_pure_is_measured_on_samples() -> None:
    run(source().map(declared))
    assert calls["declared"] > 2 * TOTAL


def test_sampling_stops_before_the_first_function_that_may_have_effects() -> None:
    stream = source().filter(ps.col("n") >= 0).map(declared).map(noted).map(declared, name="again").select("k")
    plan = Plan.of(stream.to(ps.memory()).graph(), Options.of(parallelism=2))
    assert plan.units[0].repeatable == range(-1, 2)
    behind_state = source().key_by("k").count().filter(ps.col("count") > 0)
    plan = Plan.of(behind_state.to(ps.memory()).graph(), Options.of(parallelism=2))
    assert [unit.repeatable for unit in plan.units] == [range(-1, 1), range(0)]


# --- waiting for room -------------------------------------------------------------------------------------------------


def test_time_without_room_in_an_output_is_measured_and_only_that() -> None:
    plan = Plan.of(
        source(1).key_by("k").map(declared).to(ps.memory()).graph(), Options.of(parallelism=1, queue_records=100)
    )
    cluster = Cluster(plan)
    cluster.run_until(cluster.start_us + S // 5)
    (worker,) = cluster.workers
    reads, behind = worker.units
    assert (reads.blocked.total_us, behind.blocked.total_us) == (0, 0)
    behind.step = lambda now_us: False  # type: ignore[method-assign]
    cluster.run_until(cluster.start_us + 7 * S // 10)
    held_us = worker.pulse(cluster.now_us).units[0].blocked_us
    # 100 records come in 25 ms; from then on there is no room.
    assert 430_000 <= held_us <= 480_000
    del behind.step  # type: ignore[method-assign]
    behind.bell.rung = True
    cluster.run_until(cluster.start_us + 9 * S // 10)
    assert not reads.blocked.is_running
    assert held_us <= reads.blocked.total_us <= held_us + 50_000
    assert behind.blocked.total_us == 0


# --- what a sample keeps ----------------------------------------------------------------------------------------------

ROW = Schema.parse("text string").record_type


def test_a_tap_keeps_no_more_than_is_wanted() -> None:
    tap = Tap(TAP_RECORDS)
    for _ in range(4):
        tap.add([ROW("x")] * 200)
    assert (len(tap.rows), tap.wanted) == (TAP_RECORDS, TAP_RECORDS)


def test_a_tap_keeps_fewer_of_heavy_records() -> None:
    tap = Tap(TAP_RECORDS)
    for _ in range(100):
        tap.add([ROW("x" * 100_000)])
    assert len(tap.rows) == tap.wanted == TAP_BYTES // 100_007
    tap = Tap(TAP_RECORDS)
    tap.add([ROW("x" * 2 * TAP_BYTES)])
    tap.add([ROW("x")])
    assert len(tap.rows) == 1, "one there is always"
