"""Operations change form at random steps, slots come and go, workers die: the output is that of an undisturbed run."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from test_recovery import PIPELINES, S, bag, cluster_of, events, figure, lines, plan_of, sound, step

import penstock as ps
from penstock.connectors.memory import At
from penstock.pipeline.plan import Plan
from penstock.testing.cluster import Cluster

INTERVALS_US = [1_000, 20_000, 50_000, 200_000]


def ranges(plan: Plan) -> list[tuple[int, int, int]]:
    """Every range of operations of every unit that can be run in slots."""
    return [
        (unit.id, first, last)
        for unit in plan.units
        for first in unit.movable
        for last in unit.movable
        if first <= last
    ]


def switch_at_random(cluster: Cluster, plan: Plan, random: Random, *, crashes_max: int = 0) -> tuple[int, int, int]:
    """Run a job to its end while forms change, slots come, leave and are lost, and workers are lost."""
    possible = ranges(plan)
    switches = slot_losses = crashes = group = 0
    while not cluster.ended:
        for _ in range(random.choice([1, 5, 40, 150])):
            if cluster.ended or (group and not cluster.slots):
                break  # without slots a range in batch form stands still, and nothing else makes time pass here
            step(cluster)
        if cluster.ended:
            break
        if not cluster.slots or random.random() < 0.3:
            group += 1
            for slot in range(random.choice([1, 2, 3])):
                cluster.add_slot(slot, group, random.choice([1, 3, 50]))
        if random.random() < 0.7:
            unit, first, last = random.choice(possible)
            back = random.random() < 0.35
            cluster.switch(unit, 0 if back else first, -1 if back else last)
            switches += 1
        if cluster.slots and random.random() < 0.2:
            cluster.lose_slot(random.choice(cluster.slots))
            slot_losses += 1
        if crashes < crashes_max and random.random() < 0.15:
            cluster.crash(random.randrange(plan.workers))
            crashes += 1
    assert cluster.error is None
    assert cluster.adaptation.switches or switches < 5, "they are made, not only asked for"
    return switches, slot_losses, crashes


def check(make: Any, width: int, seed: int, crashes_max: int) -> None:
    random = Random(f"switch {make.__name__} {width} {seed} {crashes_max}")
    total = random.choice([300, 1500, 4000])
    case = make(total, random.choice([width, width + 1]))
    plan = plan_of(case, width, random.choice(["50ms", "200ms", "1s"]))
    plan = replace(plan, options=replace(plan.options, interval_us=random.choice(INTERVALS_US)))
    cluster = Cluster(plan)
    switch_at_random(cluster, plan, random, crashes_max=crashes_max)
    case.check(case, case.source.records(0, total, cluster.start_us), cluster)
    assert figure(cluster, "in", "records_in") == total
    assert figure(cluster, "in", "records_out") == total
    sound(cluster)


@pytest.mark.parametrize("make", PIPELINES)
@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("seed", range(2))
def test_the_output_is_that_of_a_run_in_record_form(make: Any, width: int, seed: int) -> None:
    check(make, width, seed, 0)


@pytest.mark.parametrize("make", PIPELINES)
@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("seed", range(2))
def test_workers_may_be_lost_on_the_way(make: Any, width: int, seed: int) -> None:
    check(make, width, seed, 6)


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_files_written_through_slots_hold_every_record_once(tmp_path: Path, width: int, format: str) -> None:
    random = Random(f"switch files {width} {format}")
    source = events(2000, width)
    pipeline = ps.stream("in", source).select("k", "n").to(ps.files(tmp_path / "all", format=format), name="all")
    cluster = cluster_of(pipeline, width, "200ms")
    plan = cluster._plan
    switch_at_random(cluster, plan, random, crashes_max=4)
    expected = bag([(row.k, row.n) for row in source.records(0, 2000, cluster.start_us)])
    if format == "jsonl":
        assert bag(lines(tmp_path / "all")) == expected
    else:
        import pyarrow.parquet as pq

        rows = [
            tuple(r.values()) for part in (tmp_path / "all").glob("part-*") for r in pq.read_table(part).to_pylist()
        ]
        assert Counter(rows) == expected


def test_the_whole_of_a_stateless_pipeline_goes_over_and_comes_back() -> None:
    source, sink = events(4000, 1), ps.memory()
    stream = ps.stream("in", source).filter(ps.col("n") >= 50)
    cluster = cluster_of(stream.to(sink), 1, "200ms")
    cluster.run_until(cluster.start_us + S // 2)
    cluster.add_slot(0)
    cluster.switch(0, -1, 1)
    cluster.run_until(cluster.start_us + S)
    forms = {each.operation: each.form for worker in cluster.workers for each in worker.figures()}
    assert list(forms.values()) == ["batch"] * 3, forms
    cluster.switch(0, 0, -1)
    cluster.run_until(cluster.start_us + 3 * S // 2)
    assert {each.form for worker in cluster.workers for each in worker.figures()} == {"record"}
    cluster.run_until(1 << 62)
    kept = [(row.k, row.n, row.t) for row in source.records(0, 4000, cluster.start_us) if row.n >= 50]
    assert [(row.k, row.n, row.t) for row in sink.rows] == kept, "in order"


def test_a_function_is_called_in_order_whichever_slot_is_first() -> None:
    """The slot that gets the first micro-batch is the last to run one: the function is called in order nevertheless."""
    called: list[int] = []
    rows = [(n,) for n in range(5_000)]
    stream = ps.stream("in", ps.records([At("1s"), *rows], schema="n bigint")).filter(ps.col("n") >= 0)
    cluster = cluster_of(stream.to(ps.foreach(lambda row: called.append(row.n)), name="call"), 1, "200ms")
    for slot in (2, 1, 0):
        cluster.add_slot(slot)
    (unit,) = cluster._plan.units
    cluster.switch(0, unit.movable[0], unit.movable[-1])
    cluster.run_until(1 << 62)
    assert called == list(range(5_000))
    assert {each.operation: each.form for each in cluster.workers[0].figures()}["filter"] == "batch"
