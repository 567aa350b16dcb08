"""Bad records are named by source, partition and offset: in record form, in batch form and by brute force alike."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.connectors.memory import At
from penstock.engine.guard import Guard, Suspect
from penstock.errors import OperationFailed
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.testing.cluster import Cluster

FOREVER_US = 1 << 62
SCHEMA = "n bigint"
Step = tuple[str, int]
"""What an operation does, and on which remainder of a division by 5 it raises."""
KINDS = ["map", "flat_map", "twice", "parse", "filter"]
Range = tuple[int, int]


def outputs(step: Step, n: int) -> list[int] | None:
    """What comes out for one number, in plain Python; None where it raises."""
    kind, bad = step
    if n % 5 == bad:
        return None
    if kind == "flat_map":
        return [n // 2 + i for i in range(n % 4)]
    if kind == "filter":
        return [n] if 7 % (n % 5 - bad) else []
    return {"map": [n + 1], "twice": [n, n], "parse": [n]}[kind]


def made(step: Step, n: int) -> list[int]:
    results = outputs(step, n)
    if results is None:
        raise ValueError(f"bad {n}")
    return results


def added(stream: ps.Stream, name: str, step: Step, policy: str) -> ps.Stream:
    kind, bad = step
    options: dict[str, Any] = {"name": name, "on_error": policy}
    if kind == "map":
        return stream.map(lambda r: (made(step, r.n)[0],), schema=SCHEMA, **options)
    if kind == "flat_map":
        return stream.flat_map(lambda r: [(n,) for n in made(step, r.n)], schema=SCHEMA, **options)
    if kind == "twice":
        return stream.flat_map(lambda r: [r for _ in made(step, r.n)], schema=SCHEMA, **options)
    if kind == "parse":
        text = stream.map(lambda r: (text_of(step, r.n),), schema="value string", name=f"{name}_text")
        return text.parse_json(SCHEMA, **options)
    return stream.filter(ps.lit(7) % (ps.col("n") % 5 - bad) != 0, **options)


def text_of(step: Step, n: int) -> str:
    """What a step that parses is given: text that it cannot read where it has to raise."""
    return '{"n":"x"}' if outputs(step, n) is None else f'{{"n":{n}}}'


def brute_force(partitions: list[list[int]], steps: list[Step]) -> Iterator[tuple[str, int, int, str]]:
    """Yield operation, partition, offset and text of every bad record, source record by source record."""
    for partition, numbers in enumerate(partitions):
        for offset, number in enumerate(numbers):
            held = [number]
            for index, step in enumerate(steps):
                results: list[int] = []
                for n in held:
                    out = outputs(step, n)
                    if out is None:
                        shown = {"value": text_of(step, n)} if step[0] == "parse" else {"n": n}
                        yield f"s{index}", partition, offset, json.dumps(shown, separators=(",", ":"))
                    results += out or []
                held = results


def planned(
    partitions: list[list[int]], steps: list[Step], policies: list[str], dead: Any, width: int = 1, epoch: str = "50ms"
) -> Plan:
    rows = [[each for i, n in enumerate(part) for each in (At(i // 7 / 100), (n,))] for part in partitions]
    stream = ps.stream("numbers", ps.records(partitions=rows, schema=SCHEMA))
    for index, (step, policy) in enumerate(zip(steps, policies, strict=True)):
        stream = added(stream, f"s{index}", step, policy)
    return Plan.of(stream.to(ps.memory()).graph(), Options.of(parallelism=width, epoch=epoch), dead)


def run(plan: Plan, ranges: Sequence[Range] = (), prepare: Callable[[Cluster], None] = lambda _: None) -> None:
    """Run a plan to its end; every 20 ms the next of the ranges of its first unit goes into slots."""
    cluster = Cluster(plan)
    prepare(cluster)
    if ranges:
        cluster.add_slot(0)
        cluster.add_slot(1)
    for at, (first, last) in enumerate(ranges):
        cluster.switch(0, first, last)
        cluster.run_until(cluster.start_us + (at + 1) * 20_000)
    cluster.run_until(FOREVER_US)


def letters(rows: list[Any]) -> Counter[Any]:
    assert all(row.source == "numbers" for row in rows)
    return Counter((row.operation, row.partition, row.offset, row.record) for row in rows)


STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 4)), min_size=1, max_size=4)
NUMBERS = st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=40), min_size=1, max_size=3)


def ranges_of(plan: Plan) -> st.SearchStrategy[list[Range]]:
    places = plan.units[0].movable
    pairs = [(first, last) for first in places for last in places if first <= last]
    return st.lists(st.sampled_from([*pairs, (0, -1)]), min_size=1, max_size=3)


@settings(max_examples=60)
@given(st.data(), NUMBERS, STEPS, st.integers(1, 2))
def test_both_forms_name_what_brute_force_finds(
    data: st.DataObject, partitions: list[list[int]], steps: list[Step], width: int
) -> None:
    expected = list(brute_force(partitions, steps))
    policies = [data.draw(st.sampled_from(["dead_letter", "dead_letter", "skip"])) for _ in steps]
    kept = Counter(each for each in expected if policies[int(each[0][1:])] == "dead_letter")
    by_record, by_batch = ps.memory(), ps.memory()
    run(planned(partitions, steps, policies, by_record, width))
    assert letters(by_record.rows) == kept
    plan = planned(partitions, steps, policies, by_batch, width)
    run(plan, data.draw(ranges_of(plan)))
    assert letters(by_batch.rows) == kept


@settings(max_examples=30)
@given(NUMBERS, STEPS)
def test_careful_mode_names_them_too(partitions: list[list[int]], steps: list[Step]) -> None:
    dead = ps.memory()
    guard = Guard({}, lambda suspect: None)
    run(planned(partitions, steps, ["dead_letter"] * len(steps), dead, epoch="1h"), prepare=lambda c: guarded(c, guard))
    assert letters(dead.rows) == Counter(brute_force(partitions, steps))


def guarded(cluster: Cluster, guard: Guard) -> None:
    for worker in cluster.workers:
        for unit in worker.units:
            unit.chain.guard = guard


@settings(max_examples=40)
@given(st.data(), NUMBERS, STEPS)
def test_an_error_names_the_first_bad_record(
    data: st.DataObject, partitions: list[list[int]], steps: list[Step]
) -> None:
    numbers = partitions[:1]
    strict = data.draw(st.integers(0, len(steps) - 1))
    policies = ["fail" if index == strict else "skip" for index in range(len(steps))]
    bad = [each for each in brute_force(numbers, steps) if each[0] == f"s{strict}"]
    plan = planned(numbers, steps, policies, None)
    for ranges in [], data.draw(ranges_of(plan)):
        if not bad:
            run(plan, ranges)
            continue
        with pytest.raises(OperationFailed) as failure:
            run(planned(numbers, steps, policies, None), ranges)
        _, _, offset, record = bad[0]
        assert f"on record {record} (source 'numbers', partition 0, offset {offset})." in str(failure.value)
        assert failure.value.operation == f"s{strict}"


def test_a_quarantined_record_is_named_with_its_losses() -> None:
    noted: list[Suspect | None] = []
    dead = ps.memory()
    steps: list[Step] = [("flat_map", 0), ("map", 4)]
    numbers = [[3, 6, 3, 7, 2]]
    plan = planned(numbers, steps, ["skip", "dead_letter"], dead, epoch="1h")
    Guard({}, noted.append).losses("s1", plan.units[0].ops[1].schema.record_type(3))
    (suspect,) = noted
    assert suspect is not None
    run(plan, prepare=lambda c: guarded(c, Guard({suspect: 3}, lambda suspect: None)))
    # 3 → 1 2 3, 6 → 3 4, 7 → 3 4 5, 2 → 1 2: the threes are quarantined, the map raises on the fours.
    assert [(row.offset, row.record) for row in dead.rows] == [
        (0, '{"n":3}'),
        (1, '{"n":3}'),
        (1, '{"n":4}'),
        (2, '{"n":3}'),
        (3, '{"n":3}'),
        (3, '{"n":4}'),
    ]
    assert {row.error for row in dead.rows if row.record == '{"n":3}'} == {
        "[POISON_RECORD] the process was lost with the record 3 times"
    }


def places_behind(stream: ps.Stream, form: str = "record") -> list[tuple[Any, Any, Any]]:
    dead = ps.memory()
    failing = stream.map(lambda r: made(("map", 4), 4), schema=SCHEMA, on_error="dead_letter", name="failing")
    plan = Plan.of(failing.to(ps.memory()).graph(), Options.of(parallelism=2), dead)
    cluster = Cluster(plan)
    if form == "careful":
        guarded(cluster, Guard({}, lambda suspect: None))
    if form == "batch":
        cluster.add_slot(0)
        for unit in plan.units:
            at = [index for index, op in enumerate(unit.ops) if op.name == "failing"]
            if at:
                cluster.switch(unit.id, at[0], at[0])
    cluster.run_until(FOREVER_US)
    return [(row.source, row.partition, row.offset) for row in dead.rows]


def test_nothing_is_named_that_is_not_known() -> None:
    rows = [(n,) for n in range(20)]
    stream = ps.stream("numbers", ps.records(rows, schema=SCHEMA, partitions=2))
    calls = count()
    unsteady = stream.map(lambda r: (next(calls),), schema=SCHEMA)
    found = places_behind(unsteady)
    assert Counter(found) == Counter([("numbers", 0, None)] * 10 + [("numbers", 1, None)] * 10)


@pytest.mark.parametrize("form", ["record", "batch", "careful"])
def test_behind_a_shuffle_the_sources_are_named_that_it_may_be_from(form: str) -> None:
    numbers = ps.stream("numbers", ps.records([(n,) for n in range(20)], schema=SCHEMA, partitions=2))
    others = ps.stream("others", ps.records([(n,) for n in range(5)], schema=SCHEMA))
    assert set(places_behind(numbers.key_by("n"), form)) == {("numbers", None, None)}
    merged = numbers.merge(others).key_by("n")
    assert places_behind(merged, form) == [("numbers, others", None, None)] * 25
    counted = merged.count(name="counted").select(ps.col("n"))
    assert set(places_behind(counted, form)) == {("numbers, others", None, None)}


def test_records_are_run_once_more_without_any_consequence() -> None:
    seen: list[int] = []

    def noted(record: Any) -> tuple[int]:
        seen.append(record.n)
        return (record.n,)

    dead, out = ps.memory(), ps.memory()
    stream = ps.stream("numbers", ps.records([(n,) for n in range(10)], schema=SCHEMA)).map(noted, schema=SCHEMA)
    strict = stream.filter(ps.lit(1) % (ps.col("n") - 6) != 7, on_error="dead_letter", name="strict")
    cluster = Cluster(Plan.of(strict.to(out).graph(), Options.of(parallelism=1), dead))
    cluster.run_until(FOREVER_US)
    assert [(row.operation, row.offset) for row in dead.rows] == [("strict", 6)]
    assert [row.n for row in out.rows] == [0, 1, 2, 3, 4, 5, 7, 8, 9]
    assert seen == [*range(10), *range(7)], "no further than the bad record"
    figures = {each.operation: each for worker in cluster.workers for each in worker.figures()}
    assert (figures["noted"].records_in, figures["noted"].records_out) == (10, 10)
    assert (figures["strict"].records_in, figures["strict"].dead_letters) == (10, 1)
