"""limit: exactly so many records whatever happens, and jobs that end by themselves when nobody wants more."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import penstock as ps
from penstock.control.limits import Limits, wanted
from penstock.errors import InvalidOption
from penstock.metrics.stats import OpStats
from penstock.operators import Errors
from penstock.operators.keyed.limit import Head
from penstock.pipeline.graph import Graph
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.testing import Harness
from penstock.testing.cluster import Cluster


def ticks(name: str = "ticks", **options: Any) -> ps.Stream:
    return ps.stream(name, ps.generator({"x": 1}, rate=1000, **options)).parse_json("x int")


def plan_of(*pipelines: ps.Pipeline, parallelism: int = 2) -> Plan:
    whole = pipelines[0]
    for each in pipelines[1:]:
        whole = whole + each
    options = Options.of(name="test", parallelism=parallelism, epoch="200ms")
    return Plan.of(Graph.check(whole.nodes()), options, ps.memory())


@pytest.mark.parametrize("seed", range(3))
def test_an_endless_job_ends_with_exactly_so_many_records_wherever_it_crashes(seed: int) -> None:
    random, sink = Random(seed), ps.memory()
    cluster = Cluster(plan_of(ticks().limit(700).to(sink)))
    for moment_us in sorted(random.sample(range(100_000, 1_200_000), 3)):
        cluster.run_until(cluster.start_us + moment_us)
        if not cluster.ended:
            cluster.crash(random.randrange(2))
    cluster.run_until(cluster.start_us + 60_000_000)
    assert cluster.ended
    assert cluster.error is None
    assert len(sink.rows) == 700


def test_windows_behind_a_limit_are_closed_when_it_ends() -> None:
    harness = Harness(ticks().limit(30).window(ps.count_window(20)).count().to(ps.memory()))
    harness.run()
    assert [row["count"] for row in harness.rows()] == [20, 10]


def _branched() -> list[ps.Pipeline]:
    """One branch is limited, the other one is not."""
    parts = ticks().split(some=ps.col("x") > 0)
    return [parts["some"].limit(3).to(ps.memory()), parts["rest"].to(ps.memory())]


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda: [ticks().limit(3).to(ps.memory())], {"limit": 3}),
        (lambda: [ticks().limit(0).filter("x > 0").to(ps.memory())], {"limit": 0}),
        (lambda: [ticks().limit(3).to(ps.memory()), ticks("more").to(ps.memory())], {}),
        (lambda: [ticks().limit(3).merge(ticks("more")).to(ps.memory())], {}),
        (lambda: [ticks().limit(3).merge(ticks("more").limit(4)).to(ps.memory())], {"limit": 3, "limit-2": 4}),
        (lambda: [ticks().merge(ticks("more")).limit(4).to(ps.memory())], {"limit": 4}),
        (lambda: [ticks().to(ps.memory())], {}),
        (_branched, {}),
    ],
)
def test_a_job_ends_where_every_record_would_meet_a_limit(made: Any, expected: dict[str, int]) -> None:
    assert wanted(plan_of(*made())) == expected


def test_what_is_full_counts_when_an_epoch_that_began_then_is_committed() -> None:
    limits = Limits(plan_of(ticks().limit(5).to(ps.memory())))
    stats = OpStats("limit", "record")

    def seen(passed: int) -> None:
        stats.records_out = passed
        limits.on_figures([stats.message(0, 0)])

    def tick(begun: int, committed: int, recovering: bool = False) -> bool:
        return limits.tick(begun=begun, committed=committed, recovering=recovering)

    assert not tick(1, 0)
    seen(4)
    assert not tick(2, 1)
    seen(5)
    assert not tick(3, 2), "an epoch is under way that may have begun before"
    assert not tick(4, 3)
    assert not tick(4, 3, recovering=True)
    seen(3)
    assert not tick(5, 4), "what had passed was lost"
    seen(5)
    assert not tick(6, 5)
    assert not tick(7, 6)
    assert tick(8, 7)


def test_both_forms_of_the_half_before_the_gather_are_alike() -> None:
    schema = ticks().schema
    for count in (0, 2, 5):
        head = Head(count).build(schema, Errors("limit"))
        for rows in ([], [schema.record_type(i) for i in range(4)]):
            assert schema.to_rows(head.process_batch(schema.to_batch(rows)).columns) == head.process(rows).rows


def test_the_number_is_checked() -> None:
    with pytest.raises(InvalidOption, match=r"'limit'.*n=-1"):
        ticks().limit(-1)
